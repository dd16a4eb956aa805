//! `shellward-worker`; see the library beside it, which tests and benchmarks use, too.

fn main() -> std::process::ExitCode {
    shellward_worker::main()
}
