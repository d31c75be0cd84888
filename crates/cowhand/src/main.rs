//! The `cowhand` program, which only calls the library.

use std::process::ExitCode;

fn main() -> ExitCode {
    cowhand::cli::run()
}
