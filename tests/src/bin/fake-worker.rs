//! A worker that says what the contract allows, and is cut off in the middle of it.
//!
//! `serve --worker` starts it in place of the real one. A file beside the directory of the workers'
//! sockets, `fake-worker`, holds after how many bytes it leaves. As a probe it is the real one.

use std::ffi::OsStr;
use std::io::{self, Read, Write};
use std::os::unix::ffi::OsStrExt;
use std::os::unix::net::UnixListener;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::Context as _;
use shellward_protocol::message::{ExitStatus, Exited, Output, Started};
use shellward_protocol::{AttachToken, Boot, Data, FrameDecoder, FromWorker, Hello, Role};

fn main() -> anyhow::Result<()> {
    let args: Vec<_> = std::env::args_os().skip(1).collect();
    if args.first().is_none_or(|role| role != "run") {
        let real = std::env::current_exe()?.with_file_name("shellward-worker");
        return Err(Command::new(real).args(args).exec().into());
    }
    let mut bytes = Vec::new();
    io::stdin().read_to_end(&mut bytes)?;
    let mut decoder = FrameDecoder::new();
    decoder.push(&bytes);
    let socket = {
        let (header, payload) = decoder.next_frame()?.context("a boot frame")?;
        let boot = Boot::decode(header, payload)?;
        PathBuf::from(OsStr::from_bytes(boot.socket.as_slice()))
    };
    let listener = UnixListener::bind(&socket)?;
    println!("ready");
    let (mut stream, _) = listener.accept()?;
    std::fs::remove_file(&socket)?;
    let epoch = hello_of(&mut stream, &mut decoder)?;
    let said = everything(epoch)?;
    let cut = cut_after(&socket)?.min(said.len());
    stream.write_all(&said[..cut])?;
    // What the supervisor has sent is read, so that leaving is an end and no reset.
    stream.shutdown(std::net::Shutdown::Write)?;
    io::copy(&mut stream, &mut io::sink())?;
    Ok(())
}

/// Reads the supervisor's hello; its epoch.
fn hello_of(stream: &mut impl Read, decoder: &mut FrameDecoder) -> anyhow::Result<u64> {
    let mut bytes = [0; 4096];
    loop {
        if let Some((header, payload)) = decoder.next_frame()? {
            return Ok(Hello::decode(header, payload)?.epoch);
        }
        let count = stream.read(&mut bytes)?;
        anyhow::ensure!(count > 0, "the supervisor went away");
        decoder.push(&bytes[..count]);
    }
}

/// A short life of a terminal, from the greeting to the exit.
fn everything(epoch: u64) -> anyhow::Result<Vec<u8>> {
    let mut said = Vec::new();
    Hello {
        oldest: shellward_protocol::OLDEST_WIRE_VERSION,
        newest: shellward_protocol::WIRE_VERSION,
        role: Role::Worker,
        pid: std::process::id(),
        epoch,
        token: AttachToken::new([0; AttachToken::LEN]),
    }
    .encode(&mut said)?;
    FromWorker::Started(Started {
        shell_pid: std::process::id(),
        is_pty: true,
    })
    .encode(&mut said)?;
    FromWorker::Output(Output {
        offset: 0,
        cuts: Vec::new(),
        data: Data::borrowed("h\u{e9}llo\r\n".as_bytes()),
    })
    .encode(&mut said)?;
    FromWorker::Exited(Exited {
        status: ExitStatus::Code(7),
    })
    .encode(&mut said)?;
    Ok(said)
}

fn cut_after(socket: &Path) -> anyhow::Result<usize> {
    let runtime = socket.ancestors().nth(2).context("a runtime directory")?;
    let text = std::fs::read_to_string(runtime.join("fake-worker"))?;
    Ok(text.trim().parse()?)
}
