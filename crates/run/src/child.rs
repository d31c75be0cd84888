//! Runs a helper program with a timeout and a limit on its kept output. When the program ends or is stopped, the
//! remaining processes of its process group are killed. Under a minder, all its descendants are ended.

use std::io::Read;
use std::os::unix::process::CommandExt;
use std::process::{Child, Command, ExitStatus, Stdio};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{self, Receiver};
use std::time::{Duration, Instant};

use rustix::process::{Pid, Signal, kill_process_group};

use super::minder::{DaemonConnection, MindedCommand};

/// Interval of checks whether the program has ended.
const CHILD_POLL_INTERVAL: Duration = Duration::from_millis(5);
/// Timeout for remaining output after the program has ended, if other processes hold its pipes open.
const OUTPUT_END_TIMEOUT: Duration = Duration::from_millis(500);
/// Maximum size of the kept end of stderr, and of the kept end of stdout.
const MAX_END_BYTES: usize = 4 << 10;

pub(crate) struct ChildOutput {
    pub status: ExitStatus,
    pub stdout: Vec<u8>,
    /// Set if there was more output than `stdout` contains.
    pub cut: bool,
    /// Set if the output could not be read to its end in time. Then `stdout` is empty, whatever the program wrote.
    pub unread: bool,
    /// Last bytes of stderr.
    pub stderr_end: String,
    /// Last bytes of stdout.
    pub stdout_end: String,
}

pub(crate) enum ChildError {
    CannotStart(std::io::Error),
    /// The program was started, and it is not known how it ended.
    Io(std::io::Error),
    TimedOut(Duration),
    /// The caller asked to end the program.
    Stopped,
}

/// Limits of a program. `stop` is a flag with which the caller asks to end the program.
pub(crate) struct Bounds<'a> {
    pub timeout: Option<Duration>,
    pub max_stdout_bytes: usize,
    pub stop: &'a AtomicBool,
}

/// Runs a program without a minder. This is only for programs that end soon and leave no processes behind.
pub(crate) fn run(command: &mut Command, bounds: &Bounds<'_>) -> Result<ChildOutput, ChildError> {
    run_by(command.stdin(Stdio::null()), None, bounds)
}

/// Runs a program under a minder, because it may start processes that outlive it.
pub(crate) fn run_minded(minded: MindedCommand, bounds: &Bounds<'_>) -> Result<ChildOutput, ChildError> {
    let MindedCommand { mut command, connection } = minded;
    run_by(&mut command, Some(connection), bounds)
}

fn run_by(
    command: &mut Command,
    connection: Option<DaemonConnection>,
    bounds: &Bounds<'_>,
) -> Result<ChildOutput, ChildError> {
    command.stdout(Stdio::piped()).stderr(Stdio::piped()).process_group(0);
    let mut child = command.spawn().map_err(ChildError::CannotStart)?;
    let stdout = child.stdout.take().map(|pipe| read_both_ends(pipe, bounds.max_stdout_bytes));
    let stderr = child.stderr.take().map(read_end);
    let ended = wait(&mut child, bounds);
    let status = match (ended, connection) {
        (Ok(_), Some(connection)) => connection.ended().map_err(ChildError::CannotStart)?,
        (Ok(status), None) => {
            // Processes that the program left behind are ended too.
            end_group(&child);
            status
        }
        (Err(why), connection) => {
            // A minder ends everything when its connection is closed.
            if connection.is_none() {
                end_group(&child);
            }
            drop(connection);
            child.wait().map_err(ChildError::Io)?;
            return Err(why);
        }
    };
    let output = stdout.and_then(|received| received.recv_timeout(OUTPUT_END_TIMEOUT).ok());
    let unread = output.is_none();
    let output = output.unwrap_or_default();
    let stderr_end =
        stderr.and_then(|received| received.recv_timeout(OUTPUT_END_TIMEOUT).ok()).unwrap_or_default();
    let (stderr_end, stdout_end) = (stderr_end.text(), output.end.text());
    Ok(ChildOutput { status, stdout: output.beginning, cut: output.cut, unread, stderr_end, stdout_end })
}

fn wait(child: &mut Child, bounds: &Bounds<'_>) -> Result<ExitStatus, ChildError> {
    let started = Instant::now();
    loop {
        if let Some(status) = child.try_wait().map_err(ChildError::Io)? {
            return Ok(status);
        }
        if bounds.stop.load(Ordering::Relaxed) {
            return Err(ChildError::Stopped);
        }
        if let Some(timeout) = bounds.timeout.filter(|timeout| started.elapsed() >= *timeout) {
            return Err(ChildError::TimedOut(timeout));
        }
        std::thread::sleep(CHILD_POLL_INTERVAL);
    }
}

fn end_group(child: &Child) {
    let group = i32::try_from(child.id()).ok().and_then(Pid::from_raw);
    // An error means that the group is empty.
    let _ = group.map(|group| kill_process_group(group, Signal::KILL));
}

/// Kept parts of stdout.
#[derive(Default)]
struct KeptOutput {
    beginning: Vec<u8>,
    /// Set if there was more output than `beginning` contains.
    cut: bool,
    end: LastBytes,
}

/// Keeps the first and last bytes of a pipe, and discards the rest, so that the writer is not blocked.
fn read_both_ends(mut pipe: impl Read + Send + 'static, max_stdout_bytes: usize) -> Receiver<KeptOutput> {
    let (sender, received) = mpsc::channel();
    std::thread::spawn(move || {
        let mut kept = KeptOutput::default();
        read(&mut pipe, |bytes| {
            let room = max_stdout_bytes - kept.beginning.len();
            kept.cut |= bytes.len() > room;
            kept.beginning.extend(&bytes[..bytes.len().min(room)]);
            kept.end.add(bytes);
        });
        // The receiver may have been dropped.
        let _ = sender.send(kept);
    });
    received
}

#[derive(Default)]
struct LastBytes {
    bytes: Vec<u8>,
    /// Set if there was more output before.
    cut: bool,
}

impl LastBytes {
    fn add(&mut self, bytes: &[u8]) {
        self.bytes.extend(bytes);
        let excess = self.bytes.len().saturating_sub(MAX_END_BYTES);
        self.bytes.drain(..excess);
        self.cut |= excess > 0;
    }

    /// Returns the text without a first line whose beginning is missing: that line may contain a part of a secret,
    /// which would not be recognised.
    fn text(&self) -> String {
        let begin = match self.bytes.iter().position(|byte| *byte == b'\n') {
            _ if !self.cut => 0,
            Some(line_end) => line_end,
            None => return format!("(its last line has more than {MAX_END_BYTES} bytes)"),
        };
        String::from_utf8_lossy(&self.bytes[begin..]).trim().to_owned()
    }
}

fn read_end(mut pipe: impl Read + Send + 'static) -> Receiver<LastBytes> {
    let (sender, received) = mpsc::channel();
    std::thread::spawn(move || {
        let mut kept = LastBytes::default();
        read(&mut pipe, |bytes| kept.add(bytes));
        let _ = sender.send(kept);
    });
    received
}

fn read(pipe: &mut impl Read, mut take: impl FnMut(&[u8])) {
    let mut buffer = vec![0; 64 << 10];
    loop {
        match pipe.read(&mut buffer) {
            Ok(0) => return,
            Ok(count) => take(&buffer[..count]),
            Err(error) if error.kind() == std::io::ErrorKind::Interrupted => {}
            Err(_) => return,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_line_whose_beginning_is_missing_is_left_out() {
        let text = |output: &str| {
            let mut kept = LastBytes::default();
            kept.add(output.as_bytes());
            kept.text()
        };
        let long = "s".repeat(MAX_END_BYTES);
        assert_eq!(text("one\ntwo\n"), "one\ntwo");
        assert_eq!(text(&format!("{long}\nlast\n")), "last");
        assert_eq!(text(&format!("secret{long}")), "(its last line has more than 4096 bytes)");
    }
}
