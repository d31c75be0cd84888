//! Detects whether `bwrap` started the agent. `bwrap` reports the agent's exit code on a pipe. Without that report, the
//! exit code is that of `bwrap` itself, and the agent has not run.

use std::ffi::OsString;
use std::io::{self, PipeReader, PipeWriter, Read as _};
use std::os::fd::AsRawFd as _;
use std::path::Path;
use std::process::{Command, Stdio};

use cowhand_core::sandbox::SandboxKind;
use rustix::fs::{OFlags, fcntl_setfl};
use rustix::io::{FdFlags, fcntl_setfd};

use super::{SandboxError, SandboxPlan, bubblewrap, forward};

/// Text that `bwrap` writes when the started program has ended.
const STARTED_MARK: &str = "\"exit-code\"";
/// Prefix of messages of `bwrap` itself.
const BWRAP_PREFIX: &str = "bwrap: ";

/// The pipe on which `bwrap` reports. A child inherits the write end, so this process closes it after the start of
/// `bwrap`.
#[derive(Debug)]
pub struct BwrapStatus {
    reader: PipeReader,
    writer: Option<PipeWriter>,
}

impl BwrapStatus {
    pub fn new() -> io::Result<Self> {
        let (reader, writer) = io::pipe()?;
        fcntl_setfd(&writer, FdFlags::empty())?;
        fcntl_setfl(&reader, OFlags::NONBLOCK)?;
        Ok(Self { reader, writer: Some(writer) })
    }

    /// Adds the option that makes `bwrap` write to the pipe. `argv` begins with the name of the program.
    pub fn add_status_pipe(&self, argv: &mut Vec<OsString>) {
        if let Some(writer) = self.writer.as_ref().filter(|_| !argv.is_empty()) {
            let words = ["--json-status-fd".to_owned(), writer.as_raw_fd().to_string()];
            argv.splice(1..1, words.map(OsString::from));
        }
    }

    /// Closes the write end after the child is started.
    pub fn spawned(&mut self) {
        self.writer = None;
    }

    /// Returns true if the agent was started. Called after all processes of the attempt have ended.
    pub fn began(mut self) -> bool {
        self.spawned();
        let mut status = Vec::new();
        // If the pipe cannot be read, the exit code counts as that of the agent.
        match self.reader.read_to_end(&mut status) {
            Ok(_) => String::from_utf8_lossy(&status).contains(STARTED_MARK),
            Err(_) => true,
        }
    }
}

/// Formats why a sandbox could not be created, from the stderr of `bwrap`.
pub fn failure(stderr: &str) -> String {
    let last_own_line = stderr.lines().rev().find(|line| line.starts_with(BWRAP_PREFIX));
    let why = last_own_line.or_else(|| stderr.lines().next()).unwrap_or("bwrap ended without a message");
    format!("`sandbox: {}` cannot be enforced: {why}", SandboxKind::Bubblewrap)
}

/// Checks that the sandbox can be created: creates it as for an attempt, but without a proxy, and with cowhand's
/// program instead of the agent.
pub fn try_out(sandbox: &SandboxPlan, directory: &Path, cowhand: &Path) -> Result<(), SandboxError> {
    let trial = SandboxPlan { program: forward::PROGRAM_PATH.into(), ..sandbox.clone() };
    let argv = bubblewrap::argv(&trial, directory, &[String::new(), "--version".to_owned()], cowhand, None);
    let Some((program, arguments)) = argv.split_first() else { return Ok(()) };
    let tried = Command::new(program)
        .args(arguments)
        .current_dir(directory)
        .stdin(Stdio::null())
        .stdout(Stdio::null())
        .output()
        .map_err(|error| SandboxError::BubblewrapFailed(format!("{BWRAP_PREFIX}{error}")))?;
    if tried.status.success() {
        return Ok(());
    }
    Err(SandboxError::BubblewrapFailed(String::from_utf8_lossy(&tried.stderr).into_owned()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_error_message_of_bwrap_is_reported() {
        let message = failure("hello\nbwrap: Can't mkdir /x: Read-only file system\n");
        assert_eq!(
            message,
            "`sandbox: bubblewrap` cannot be enforced: bwrap: Can't mkdir /x: Read-only file system"
        );
        assert!(failure("").ends_with("bwrap ended without a message"));
    }

    #[test]
    fn a_started_program_is_distinguished_from_a_failed_sandbox() {
        for (arguments, expected) in [
            (vec!["--ro-bind", "/", "/", "--", "sh", "-c", "exit 1"], true),
            (vec!["--ro-bind", "/", "/", "--ro-bind", "/nowhere", "/x", "--", "true"], false),
            (vec!["--ro-bind", "/", "/", "--", "/nowhere"], false),
        ] {
            let mut status = BwrapStatus::new().unwrap();
            let mut argv: Vec<OsString> = std::iter::once("bwrap").chain(arguments).map(Into::into).collect();
            status.add_status_pipe(&mut argv);
            let mut child = Command::new(&argv[0]).args(&argv[1..]).stderr(Stdio::null()).spawn().unwrap();
            status.spawned();
            assert!(!child.wait().unwrap().success() || expected);
            assert_eq!(status.began(), expected, "{argv:?}");
        }
    }
}
