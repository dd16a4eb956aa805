//! Bytes as one run, not one by one.

use std::borrow::Cow;
use std::fmt;

use serde::de::{Deserialize, Deserializer, Error, Visitor};
use serde::ser::{Serialize, Serializer};

/// A run of bytes, borrowed where that saves a copy.
///
/// With serde a plain `Vec<u8>` is encoded element by element, about a hundred times slower
/// (style-anchors part 5), so wire types hold this instead.
#[derive(Clone, PartialEq, Eq, Hash, Default)]
pub struct Data<'a>(pub Cow<'a, [u8]>);

impl<'a> Data<'a> {
    /// Borrows `bytes`.
    #[must_use]
    pub fn borrowed(bytes: &'a [u8]) -> Self {
        Self(Cow::Borrowed(bytes))
    }

    /// The bytes themselves.
    #[must_use]
    pub fn as_slice(&self) -> &[u8] {
        &self.0
    }

    /// A copy that owns its bytes.
    #[must_use]
    pub fn into_owned(self) -> Data<'static> {
        Data(Cow::Owned(self.0.into_owned()))
    }

    /// The bytes as a vector; copies only if they were borrowed.
    #[must_use]
    pub fn into_vec(self) -> Vec<u8> {
        self.0.into_owned()
    }
}

impl From<Vec<u8>> for Data<'_> {
    fn from(bytes: Vec<u8>) -> Self {
        Self(Cow::Owned(bytes))
    }
}

impl From<String> for Data<'_> {
    fn from(text: String) -> Self {
        Self(Cow::Owned(text.into_bytes()))
    }
}

/// Shows the length only: what is typed or printed does not belong in logs.
impl fmt::Debug for Data<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Data({} bytes)", self.0.len())
    }
}

impl Serialize for Data<'_> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_bytes(&self.0)
    }
}

impl<'de: 'a, 'a> Deserialize<'de> for Data<'a> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct BytesVisitor;
        impl<'de> Visitor<'de> for BytesVisitor {
            type Value = Data<'de>;
            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("bytes")
            }
            fn visit_borrowed_bytes<E: Error>(self, bytes: &'de [u8]) -> Result<Data<'de>, E> {
                Ok(Data(Cow::Borrowed(bytes)))
            }
            fn visit_bytes<E: Error>(self, bytes: &[u8]) -> Result<Data<'de>, E> {
                Ok(Data(Cow::Owned(bytes.to_vec())))
            }
            fn visit_byte_buf<E: Error>(self, bytes: Vec<u8>) -> Result<Data<'de>, E> {
                Ok(Data(Cow::Owned(bytes)))
            }
        }
        deserializer.deserialize_bytes(BytesVisitor)
    }
}
