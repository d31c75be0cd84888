//! Standard error of the programs that run beside an agent.

use std::fmt::Display;
use std::io::Write;

/// Writes a line to standard error. If that fails, for example because the disk is full, the line is lost: unlike
/// `eprintln!`, this does not panic, so that the agent is still supervised.
pub fn write_line(line: impl Display) {
    let _ = writeln!(std::io::stderr(), "{line}");
}
