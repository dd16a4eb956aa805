//! What Shellward is measured against: a shell on a pty and a plain loop; and what both print.

use std::fs::File;
use std::io::{BufWriter, Read, Write};
use std::path::Path;

use anyhow::{Result, ensure};
use portable_pty::{CommandBuilder, PtySize, native_pty_system};

/// Lines as a compiler prints them.
pub fn write_build_log(path: &Path, bytes: usize) -> Result<()> {
    let mut out = BufWriter::new(File::create(path)?);
    let mut written = 0;
    let mut n = 0_u32;
    while written < bytes {
        n = n.wrapping_add(1);
        let line = match n % 4 {
            0 => format!(
                "   Compiling some-crate-{} v{}.{}.{}\n",
                n % 397,
                n % 3,
                n % 17,
                n % 9
            ),
            1 => format!(
                "cc -O2 -fPIC -Iinclude -Ibuild/gen -c src/module{}/file{}.c -o build/obj/file{}.o\n",
                n % 31,
                n,
                n
            ),
            2 => format!(
                "src/module{}/file{n}.c:{}:{}: warning: unused variable 'tmp{n}' [-Wunused-variable]\n",
                n % 31,
                n % 2000,
                n % 80
            ),
            _ => format!("[{:3}%] Building object {n}\n", n % 100),
        };
        out.write_all(line.as_bytes())?;
        written += line.len();
    }
    Ok(out.flush()?)
}

/// Colour, wide characters, emoji.
pub fn write_colours(path: &Path, bytes: usize) -> Result<()> {
    let mut out = BufWriter::new(File::create(path)?);
    let mut written = 0;
    let mut n = 0_u32;
    while written < bytes {
        n = n.wrapping_add(1);
        let line = format!(
            "\x1b[1;3{}m{n:>7}\x1b[0m \x1b[38;2;{};{};{}m漢字かな交じり文\x1b[39m ── 🙂🚀👩‍💻 ünïcödé \x1b[4mend\x1b[24m\n",
            n % 8,
            n % 256,
            (n / 3) % 256,
            (n / 7) % 256,
        );
        out.write_all(line.as_bytes())?;
        written += line.len();
    }
    Ok(out.flush()?)
}

/// A shell on a pty, read by a plain loop in this process.
pub struct Bare {
    pub reader: Box<dyn Read + Send>,
    pub writer: Box<dyn Write + Send>,
    pub child: Box<dyn portable_pty::Child + Send + Sync>,
    _master: Box<dyn portable_pty::MasterPty + Send>,
}

impl Bare {
    pub fn start() -> Result<Self> {
        let pair = native_pty_system().openpty(PtySize {
            rows: 24,
            cols: 80,
            pixel_width: 0,
            pixel_height: 0,
        })?;
        let mut command = CommandBuilder::new("/bin/dash");
        command.env("PS1", "$ ");
        let child = pair.slave.spawn_command(command)?;
        drop(pair.slave);
        Ok(Self {
            reader: pair.master.try_clone_reader()?,
            writer: pair.master.take_writer()?,
            child,
            _master: pair.master,
        })
    }

    /// Reads until `needle`; what was read after and with it.
    pub fn read_until(&mut self, needle: &str) -> Result<()> {
        let mut buffer = [0; 4096];
        let mut text = Vec::new();
        loop {
            let count = self.reader.read(&mut buffer)?;
            ensure!(count > 0, "the shell ended");
            text.extend_from_slice(&buffer[..count]);
            if text
                .windows(needle.len())
                .any(|window| window == needle.as_bytes())
            {
                return Ok(());
            }
        }
    }

    pub fn end(mut self) -> Result<()> {
        drop(self.reader);
        drop(self.writer);
        self.child.kill()?;
        self.child.wait()?;
        Ok(())
    }
}
