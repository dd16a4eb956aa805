//! The only file that names bincode.
//!
//! Fixed-width little-endian integers; a decode limit, because without one a length prefix of a
//! few bytes aborts the process (style-anchors part 5); trailing bytes are an error, because
//! bincode itself accepts them.

use bincode::config::{Configuration, Fixint, Limit, LittleEndian};
use serde::{Deserialize, Serialize};

use crate::error::WireError;
use crate::limits::PAYLOAD_MAX;

type Config = Configuration<LittleEndian, Fixint, Limit<PAYLOAD_MAX>>;

fn config() -> Config {
    bincode::config::standard()
        .with_fixed_int_encoding()
        .with_little_endian()
        .with_limit::<PAYLOAD_MAX>()
}

/// Appends the encoding of `value` to `out`.
pub(crate) fn encode<T: Serialize>(
    kind: u16,
    value: &T,
    out: &mut Vec<u8>,
) -> Result<(), WireError> {
    bincode::serde::encode_into_std_write(value, out, config())
        .map(|_written| ())
        .map_err(|error| WireError::Unencodable {
            kind,
            detail: error.to_string(),
        })
}

/// Decodes exactly the whole of `payload`.
pub(crate) fn decode<'de, T: Deserialize<'de>>(
    kind: u16,
    payload: &'de [u8],
) -> Result<T, WireError> {
    let malformed = |detail: String| WireError::Malformed { kind, detail };
    let (value, used) = bincode::serde::borrow_decode_from_slice(payload, config())
        .map_err(|error| malformed(error.to_string()))?;
    if used == payload.len() {
        Ok(value)
    } else {
        Err(malformed(format!(
            "{} bytes after the message",
            payload.len().saturating_sub(used)
        )))
    }
}
