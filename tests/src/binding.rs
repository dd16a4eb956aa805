//! The pty bindings that tests load: one that works and the ones that do not.

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::Command;

/// Compiles `tests/bindings/NAME.c` to `folder/pty.so`, in place of one that may be there.
///
/// The folder belongs to the test alone, as a binding must: `HostBuilder::folder` does.
#[track_caller]
pub fn install(name: &str, folder: &Path) -> PathBuf {
    let here = Path::new(env!("CARGO_MANIFEST_DIR"));
    let library = folder.join("pty.so");
    let fresh = folder.join("fresh.so");
    let output = Command::new("cc")
        .args(["-shared", "-fPIC", "-O1", "-Wall", "-Wextra", "-Werror"])
        .args(["-I", "worker/include", "-o"])
        .arg(&fresh)
        .arg(here.join("bindings").join(name).with_extension("c"))
        .current_dir(here.parent().expect("the repository"))
        .output()
        .expect("a C compiler");
    assert!(
        output.status.success(),
        "{name}: {}",
        String::from_utf8_lossy(&output.stderr)
    );
    fs::set_permissions(&fresh, fs::Permissions::from_mode(0o755)).unwrap();
    // At once, and a new file: one that is loaded somewhere stays what it is.
    fs::rename(&fresh, &library).unwrap();
    library
}

/// How often a pty was opened through the binding in `folder`, by whichever process.
pub fn opens(folder: &Path) -> usize {
    fs::read(folder.join("opens")).map_or(0, |marks| marks.len())
}
