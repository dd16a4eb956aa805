//! Native bindings: shared libraries that open ptys. The only file that names libloading.
//!
//! What lives here: loading one for good and calling it; `include/shellward_pty.h` is the contract
//! and has the reasons. What must not: what is done with a pty.
//!
//! Unsafe code is allowed here and in `sys` only. A library can break any promise of Rust; that is
//! why it is loaded in processes that may die, and nowhere else.

#![allow(unsafe_code)]

use std::ffi::{c_char, c_int};
use std::io;
use std::mem::ManuallyDrop;
use std::os::fd::{FromRawFd, OwnedFd, RawFd};
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};
use std::ptr::NonNull;

use libloading::os::unix::{Library, RTLD_LOCAL, RTLD_NOW};
use nix::errno::Errno;
use nix::sys::stat::fstat;
use nix::unistd::geteuid;
use shellward_protocol::message::Size;

use crate::escape::escaped;
use crate::sys;
use crate::terminal::pty::Cause;
use crate::trust::{Distrust, resolve};

/// The version of `shellward_pty.h` that is spoken here.
const ABI_VERSION: u32 = 1;

/// Room for the name of a slave.
const NAME_MAX: usize = 256;

/// Room for the words of an error.
const WORDS_MAX: usize = 512;

/// What the library keeps behind a pointer.
#[repr(C)]
struct Opaque {
    _private: [u8; 0],
}

type AbiVersion = unsafe extern "C" fn() -> u32;
type Open = unsafe extern "C" fn(u16, u16, *mut *mut Opaque) -> c_int;
type Descriptor = unsafe extern "C" fn(*const Opaque) -> c_int;
type SlaveName = unsafe extern "C" fn(*const Opaque, *mut c_char, usize) -> c_int;
type Resize = unsafe extern "C" fn(*mut Opaque, u16, u16) -> c_int;
type Close = unsafe extern "C" fn(*mut Opaque) -> c_int;
type LastError = unsafe extern "C" fn(*mut c_char, usize) -> c_int;

/// Why a binding cannot be used at all.
#[derive(Debug, thiserror::Error)]
pub(crate) enum LoadError {
    /// It may not be trusted.
    #[error("the pty binding is not loaded: {0}")]
    Refused(#[source] Distrust),
    /// It is not there, or the loader does not take it; in the loader's own words.
    #[error("the pty binding cannot be loaded: {words}")]
    Missing { words: String, errno: Option<i32> },
    /// It is no binding, or one of another time.
    #[error("the pty binding does not fit: {path} {what}")]
    Abi { path: String, what: String },
    /// It closed or replaced what is not its own: nothing this process holds is certain any more.
    #[error("the pty binding has closed or replaced descriptor {0}, which is not its own")]
    Damage(RawFd),
}

/// No process of ours that loads a binding holds higher numbers.
const HELD_MAX: RawFd = 256;

/// What this process holds, to see whether a binding leaves it alone.
pub(crate) struct Held(Vec<(RawFd, u64, u64)>);

impl Held {
    /// Looks at everything that is open.
    pub(crate) fn now() -> Self {
        let open = (0..HELD_MAX).filter_map(identity);
        Self(open.collect())
    }

    /// Whether all of it is still the same.
    pub(crate) fn check(&self) -> Result<(), LoadError> {
        match self.0.iter().find(|held| identity(held.0) != Some(**held)) {
            Some(lost) => Err(LoadError::Damage(lost.0)),
            None => Ok(()),
        }
    }
}

/// A number and the file behind it.
fn identity(number: RawFd) -> Option<(RawFd, u64, u64)> {
    let stat = fstat(sys::inherited(number)?).ok()?;
    Some((number, stat.st_dev, stat.st_ino))
}

/// A loaded binding. Copies of its addresses stay valid: it is never unloaded.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Binding {
    open: Open,
    master: Descriptor,
    slave: Descriptor,
    slave_name: SlaveName,
    resize: Resize,
    close: Close,
    last_error: LastError,
}

impl Binding {
    /// Checks and loads the library at `path`.
    pub(crate) fn load(path: &Path) -> Result<Self, LoadError> {
        let path = resolve(path, geteuid().as_raw()).map_err(|distrust| match distrust {
            // The loader would say the same; it is not asked, since what it finds a moment later
            // has not been looked at.
            Distrust::Unreadable { source, .. } if source.kind() == io::ErrorKind::NotFound => {
                LoadError::Missing {
                    words: format!(
                        "{}: cannot open shared object file: {}",
                        escaped(path.as_os_str().as_bytes()),
                        crate::terminal::pty::words_of(&source)
                    ),
                    errno: source.raw_os_error(),
                }
            }
            other => LoadError::Refused(other),
        })?;
        // SAFETY: loading runs code of the library that nothing can vouch for; the operator chose
        // it, only trusted users can have written it, and this process may die of it.
        let library = unsafe { Library::open(Some(&path), RTLD_NOW | RTLD_LOCAL) };
        let library = library.map_err(|error| LoadError::Missing {
            words: crate::start::chain(&error)
                .trim_start_matches("dlopen failed: ")
                .to_owned(),
            errno: None,
        })?;
        // Never unloaded: it may have left callbacks with the C library.
        let library = ManuallyDrop::new(library);

        let version: AbiVersion = symbol(&library, &path, "shellward_pty_abi_version")?;
        // SAFETY: the header declares it so.
        let version = unsafe { version() };
        if version != ABI_VERSION {
            return Err(LoadError::Abi {
                path: escaped(path.as_os_str().as_bytes()),
                what: format!(
                    "speaks version {version} of the binding interface; this worker speaks version {ABI_VERSION}"
                ),
            });
        }
        Ok(Self {
            open: symbol(&library, &path, "shellward_pty_open")?,
            master: symbol(&library, &path, "shellward_pty_master")?,
            slave: symbol(&library, &path, "shellward_pty_slave")?,
            slave_name: symbol(&library, &path, "shellward_pty_slave_name")?,
            resize: symbol(&library, &path, "shellward_pty_resize")?,
            close: symbol(&library, &path, "shellward_pty_close")?,
            last_error: symbol(&library, &path, "shellward_pty_last_error")?,
        })
    }

    /// Opens a pty of this size.
    pub(crate) fn open(self, size: Size) -> Result<NativePty, Cause> {
        let mut raw = std::ptr::null_mut();
        // SAFETY: as the header declares it; `raw` outlives the call.
        let result = unsafe { (self.open)(size.cols, size.rows, &raw mut raw) };
        self.check(result)?;
        let handle = NonNull::new(raw).ok_or_else(|| Cause {
            words: "the pty binding said that it opened a pty, but gave none".to_owned(),
            errno: None,
        })?;
        Ok(NativePty {
            binding: self,
            handle,
        })
    }

    fn check(self, result: c_int) -> Result<(), Cause> {
        if result == 0 {
            return Ok(());
        }
        let errno = (result > 0).then(|| Errno::from_raw(result));
        let words = self.words().unwrap_or_else(|| match errno {
            Some(errno) => errno.desc().to_owned(),
            None => format!("the pty binding returned {result}"),
        });
        Err(Cause { words, errno })
    }

    /// What the library says about its last failure.
    fn words(self) -> Option<String> {
        let mut buffer = [0_u8; WORDS_MAX];
        // SAFETY: as the header declares it; the buffer is writable for that length and outlives
        // the call.
        let result = unsafe { (self.last_error)(buffer.as_mut_ptr().cast(), buffer.len()) };
        let text = until_nul(&buffer)?;
        (result == 0 && !text.is_empty()).then(|| escaped(text))
    }
}

/// One function of the library.
fn symbol<T: Copy>(library: &Library, path: &Path, name: &str) -> Result<T, LoadError> {
    // SAFETY: `T` is the type of this name in the header; an ABI version of its own guards it.
    let found = unsafe { library.get::<T>(name) };
    found.map(|symbol| *symbol).map_err(|_| LoadError::Abi {
        path: escaped(path.as_os_str().as_bytes()),
        what: format!("has no function {name}"),
    })
}

fn until_nul(buffer: &[u8]) -> Option<&[u8]> {
    buffer.get(..memchr::memchr(0, buffer)?)
}

/// An open pty of a binding; closed when dropped.
#[derive(Debug)]
pub(crate) struct NativePty {
    binding: Binding,
    handle: NonNull<Opaque>,
}

impl NativePty {
    /// The number of the master's descriptor, which stays the binding's.
    pub(crate) fn master(&self) -> RawFd {
        // SAFETY: as the header declares it; the handle is open until `self` is dropped.
        unsafe { (self.binding.master)(self.handle.as_ptr()) }
    }

    /// The slave, to be asked for once: a descriptor, or the path to open.
    pub(crate) fn slave(&mut self) -> Result<Slave, Cause> {
        // SAFETY: as for the master.
        let raw = unsafe { (self.binding.slave)(self.handle.as_ptr()) };
        // Nobody may own the first three but whoever has them now.
        if raw > libc::STDERR_FILENO {
            // SAFETY: the header makes it ours; if it is not open, using it fails with EBADF.
            return Ok(Slave::Open(unsafe { OwnedFd::from_raw_fd(raw) }));
        }
        let mut buffer = [0_u8; NAME_MAX];
        let (to, len) = (buffer.as_mut_ptr().cast(), buffer.len());
        // SAFETY: as for the master; the buffer is writable for that length.
        let result = unsafe { (self.binding.slave_name)(self.handle.as_ptr(), to, len) };
        self.binding.check(result)?;
        match until_nul(&buffer) {
            Some(name) if name.starts_with(b"/") => Ok(Slave::Named(PathBuf::from(
                std::ffi::OsStr::from_bytes(name),
            ))),
            _ => Err(Cause {
                words: "the pty binding gave neither a slave nor a name for one".to_owned(),
                errno: None,
            }),
        }
    }

    /// Changes the size.
    pub(crate) fn resize(&self, size: Size) -> Result<(), Cause> {
        // SAFETY: as for the master.
        let result = unsafe { (self.binding.resize)(self.handle.as_ptr(), size.cols, size.rows) };
        self.binding.check(result)
    }
}

impl Drop for NativePty {
    fn drop(&mut self) {
        // SAFETY: the handle was open until now and is not used again. If it fails there is
        // nothing left to do about it.
        unsafe { (self.binding.close)(self.handle.as_ptr()) };
    }
}

/// The other side of a pty.
#[derive(Debug)]
pub(crate) enum Slave {
    /// Open already.
    Open(OwnedFd),
    /// To be opened.
    Named(PathBuf),
}
