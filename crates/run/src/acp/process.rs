//! The agent's process, its pipes, and what may become of it.

use std::fmt;
use std::io;
use std::process::Stdio;
use std::time::Duration;

use cowhand_core::job::ErrorKind;
use rustix::process::{Pid, Signal, kill_process_group};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::process::{Child, ChildStdin, ChildStdout, Command};
use tokio::sync::mpsc;

use super::wire::MAX_LINE_BYTES;

/// More than an agent that reads would ever leave waiting.
const WRITE_QUEUE_LENGTH: usize = 256;
/// From SIGTERM to our own end.
const TERMINATION_GRACE: Duration = Duration::from_secs(1);

/// Why nothing came of it.
#[derive(Debug)]
pub(crate) enum Cause {
    /// A sentence for people, and what kind of trouble it is.
    Trouble(ErrorKind, String),
    /// We were asked to stop.
    Stopped,
    /// Our own output cannot be written, or a signal not be heard.
    Broken(io::Error),
}

impl Cause {
    pub(super) fn reported(message: impl Into<String>) -> Self {
        Self::Trouble(ErrorKind::Reported, message.into())
    }
}

impl fmt::Display for Cause {
    fn fmt(&self, to: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Trouble(_, message) => to.write_str(message),
            Self::Stopped => to.write_str("it was asked to stop"),
            Self::Broken(error) => error.fmt(to),
        }
    }
}

impl From<io::Error> for Cause {
    fn from(error: io::Error) -> Self {
        Self::Broken(error)
    }
}

/// What comes of its stdout.
#[derive(Debug)]
pub(super) enum OutputLine {
    Line(String),
    /// A line of so many bytes, of which this is the beginning.
    TooLong(usize, String),
}

#[derive(Debug)]
pub struct AgentProcess {
    pub(super) child: Child,
    group: Option<Pid>,
    pub(super) heard: mpsc::Receiver<OutputLine>,
    to: Option<mpsc::Sender<String>>,
}

impl AgentProcess {
    /// In a group of its own: a signal for our group is for us alone, and the agent is asked in the protocol's words.
    pub fn start(mut command: Command) -> io::Result<Self> {
        command.stdin(Stdio::piped()).stdout(Stdio::piped()).process_group(0).kill_on_drop(true);
        let mut child = command.spawn()?;
        let group = child.id().and_then(|pid| Pid::from_raw(i32::try_from(pid).ok()?));
        let (told, heard) = mpsc::channel(16);
        let (to, orders) = mpsc::channel(WRITE_QUEUE_LENGTH);
        if let Some(stdout) = child.stdout.take() {
            tokio::spawn(listen(stdout, told));
        }
        if let Some(stdin) = child.stdin.take() {
            tokio::spawn(speak(stdin, orders));
        }
        Ok(Self { child, group, heard, to: Some(to) })
    }

    pub(super) fn send(&self, frame: String) -> Result<(), Cause> {
        let sent = self.to.as_ref().map(|to| to.try_send(frame));
        match sent {
            Some(Err(mpsc::error::TrySendError::Full(_))) => {
                Err(Cause::reported("the agent does not read what it is sent"))
            }
            // Then it is gone, or going, and how it ended says more.
            _ => Ok(()),
        }
    }

    /// Its input ends, which tells it to go; then it is told in another way. What is left then is the keeper's.
    pub(super) async fn leave(mut self, patience: Duration) {
        self.to = None;
        // Somebody has to read what it still says, or it cannot go.
        let mut heard = self.heard;
        tokio::spawn(async move { while heard.recv().await.is_some() {} });
        if tokio::time::timeout(patience, self.child.wait()).await.is_ok() {
            return;
        }
        let Some(group) = self.group else { return };
        // It may have ended this very moment.
        kill_process_group(group, Signal::TERM).ok();
        if tokio::time::timeout(TERMINATION_GRACE, self.child.wait()).await.is_err() {
            kill_process_group(group, Signal::KILL).ok();
        }
    }
}

async fn speak(mut stdin: ChildStdin, mut orders: mpsc::Receiver<String>) {
    while let Some(mut frame) = orders.recv().await {
        frame.push('\n');
        if stdin.write_all(frame.as_bytes()).await.is_err() || stdin.flush().await.is_err() {
            // Whoever waits for an answer will hear that the agent is gone.
            return;
        }
    }
}

async fn listen(mut stdout: ChildStdout, told: mpsc::Sender<OutputLine>) {
    let mut splitter = Splitter::default();
    let mut buffer = vec![0; 64 << 10];
    loop {
        let count = stdout.read(&mut buffer).await.unwrap_or(0);
        if count == 0 {
            if let Some(line) = splitter.rest() {
                told.send(line).await.ok();
            }
            return;
        }
        let mut chunk = &buffer[..count];
        while let Some(line) = splitter.next(&mut chunk) {
            if told.send(line).await.is_err() {
                return;
            }
        }
    }
}

/// Lines of bytes, of which only the beginning is kept if they are too long.
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
        let room = MAX_LINE_BYTES.saturating_sub(self.kept.len());
        self.kept.extend_from_slice(&line[..line.len().min(room)]);
        *chunk = if end.is_some() { &rest[1..] } else { rest };
        end.map(|_| self.take())
    }

    fn rest(&mut self) -> Option<OutputLine> {
        (self.bytes > 0).then(|| self.take())
    }

    fn take(&mut self) -> OutputLine {
        let (kept, bytes) = (std::mem::take(&mut self.kept), std::mem::take(&mut self.bytes));
        if bytes > MAX_LINE_BYTES {
            return OutputLine::TooLong(bytes, String::from_utf8_lossy(&kept[..1024]).into_owned());
        }
        OutputLine::Line(String::from_utf8_lossy(&kept).into_owned())
    }
}
