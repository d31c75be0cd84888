//! The process of an ACP agent and its pipes.

use std::fmt;
use std::io;
use std::process::Stdio;
use std::time::Duration;

use cowhand_core::job::ErrorKind;
use rustix::process::{Pid, Signal, kill_process_group};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::process::{Child, ChildStdin, ChildStdout, Command};
use tokio::sync::mpsc;

use super::wire::MAX_FRAME_BYTES;

/// Maximum number of frames that wait for the agent. If an agent reads its input, fewer frames wait.
const WRITE_QUEUE_LENGTH: usize = 256;
/// Time from SIGTERM to SIGKILL.
const TERMINATION_GRACE: Duration = Duration::from_secs(1);

/// Why an exchange failed or was stopped.
#[derive(Debug)]
pub(crate) enum ExchangeError {
    /// Kind of the error, with a message for people.
    Failed(ErrorKind, String),
    /// The client was asked to stop.
    Stopped,
    /// An operation of the client itself failed, for example a write to its output.
    Broken(io::Error),
}

impl ExchangeError {
    pub(super) fn reported(message: impl Into<String>) -> Self {
        Self::Failed(ErrorKind::Reported, message.into())
    }
}

impl fmt::Display for ExchangeError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Failed(_, message) => f.write_str(message),
            Self::Stopped => f.write_str("it was asked to stop"),
            Self::Broken(error) => error.fmt(f),
        }
    }
}

impl From<io::Error> for ExchangeError {
    fn from(error: io::Error) -> Self {
        Self::Broken(error)
    }
}

/// One line of the agent's stdout.
#[derive(Debug)]
pub(super) enum OutputLine {
    Line(String),
    /// A line that is too long: its length in bytes, and its beginning.
    TooLong(usize, String),
}

#[derive(Debug)]
pub struct AgentProcess {
    pub(super) child: Child,
    group: Option<Pid>,
    pub(super) lines: mpsc::Receiver<OutputLine>,
    frame_sender: Option<mpsc::Sender<String>>,
}

impl AgentProcess {
    /// Starts the agent in its own process group: a signal to the client's group reaches only the client, which then
    /// cancels the turn through the protocol.
    pub fn start(mut command: Command) -> io::Result<Self> {
        command.stdin(Stdio::piped()).stdout(Stdio::piped()).process_group(0).kill_on_drop(true);
        let mut child = command.spawn()?;
        let group = child.id().and_then(|pid| Pid::from_raw(i32::try_from(pid).ok()?));
        let (line_sender, lines) = mpsc::channel(16);
        let (frame_sender, frames) = mpsc::channel(WRITE_QUEUE_LENGTH);
        if let Some(stdout) = child.stdout.take() {
            tokio::spawn(read_stdout(stdout, line_sender));
        }
        if let Some(stdin) = child.stdin.take() {
            tokio::spawn(write_stdin(stdin, frames));
        }
        Ok(Self { child, group, lines, frame_sender: Some(frame_sender) })
    }

    pub(super) fn send(&self, frame: String) -> Result<(), ExchangeError> {
        let sent = self.frame_sender.as_ref().map(|frame_sender| frame_sender.try_send(frame));
        match sent {
            Some(Err(mpsc::error::TrySendError::Full(_))) => {
                Err(ExchangeError::reported("the agent does not read its stdin"))
            }
            // The agent has ended or is ending; the caller sees its exit status.
            _ => Ok(()),
        }
    }

    /// Asks the agent to exit by closing its input. If the agent does not exit within `timeout`, its process group gets
    /// SIGTERM, and then SIGKILL. In an attempt, the keeper ends the remaining processes.
    pub(super) async fn shut_down(mut self, timeout: Duration) {
        self.frame_sender = None;
        // An agent whose output is not read may not be able to exit.
        let mut lines = self.lines;
        tokio::spawn(async move { while lines.recv().await.is_some() {} });
        if tokio::time::timeout(timeout, self.child.wait()).await.is_ok() {
            return;
        }
        let Some(group) = self.group else { return };
        // The agent may have just ended.
        kill_process_group(group, Signal::TERM).ok();
        if tokio::time::timeout(TERMINATION_GRACE, self.child.wait()).await.is_err() {
            kill_process_group(group, Signal::KILL).ok();
        }
    }
}

async fn write_stdin(mut stdin: ChildStdin, mut frames: mpsc::Receiver<String>) {
    while let Some(mut frame) = frames.recv().await {
        frame.push('\n');
        if stdin.write_all(frame.as_bytes()).await.is_err() || stdin.flush().await.is_err() {
            // A caller that waits for an answer sees that the agent has ended.
            return;
        }
    }
}

async fn read_stdout(mut stdout: ChildStdout, line_sender: mpsc::Sender<OutputLine>) {
    let mut splitter = Splitter::default();
    let mut buffer = vec![0; 64 << 10];
    loop {
        let count = stdout.read(&mut buffer).await.unwrap_or(0);
        if count == 0 {
            if let Some(line) = splitter.rest() {
                line_sender.send(line).await.ok();
            }
            return;
        }
        let mut chunk = &buffer[..count];
        while let Some(line) = splitter.next(&mut chunk) {
            if line_sender.send(line).await.is_err() {
                return;
            }
        }
    }
}

/// Splits bytes into lines and keeps only the beginning of lines that are too long.
#[derive(Debug, Default)]
struct Splitter {
    kept: Vec<u8>,
    bytes: usize,
}

impl Splitter {
    fn next(&mut self, chunk: &mut &[u8]) -> Option<OutputLine> {
        let end = memchr::memchr(b'\n', chunk);
        let (line, rest) = chunk.split_at(end.unwrap_or(chunk.len()));
        self.bytes += line.len();
        let room = MAX_FRAME_BYTES.saturating_sub(self.kept.len());
        self.kept.extend_from_slice(&line[..line.len().min(room)]);
        *chunk = if end.is_some() { &rest[1..] } else { rest };
        end.map(|_| self.take())
    }

    fn rest(&mut self) -> Option<OutputLine> {
        (self.bytes > 0).then(|| self.take())
    }

    fn take(&mut self) -> OutputLine {
        let (kept, bytes) = (std::mem::take(&mut self.kept), std::mem::take(&mut self.bytes));
        if bytes > MAX_FRAME_BYTES {
            return OutputLine::TooLong(bytes, String::from_utf8_lossy(&kept[..1024]).into_owned());
        }
        OutputLine::Line(String::from_utf8_lossy(&kept).into_owned())
    }
}
