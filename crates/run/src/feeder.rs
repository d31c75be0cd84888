//! The feeder: the part of the keeper that passes the prompt and messages to the standard input of an agent.
//!
//! ```text
//! prompt ────────────────────────────▶ pipe ──▶ the agent's stdin
//! input.jsonl ──▶ messages ────────────▲
//! stdout ──▶ confirmed, turn ended ────┘ (closes the pipe)
//! ```
//!
//! The agent waits for more input after each turn, and ends when the pipe is closed. The feeder closes it when a turn has
//! ended and the agent has confirmed all messages. The kernel closes it when the keeper ends, however it ends. A message
//! that is appended after that is not fed: the daemon sees in the agent's output which messages the agent has.

use std::collections::HashSet;
use std::fs::File;
use std::io::{self, PipeReader, Read};
use std::time::Duration;

use rustix::pipe::fcntl_setpipe_size;
use tokio::io::AsyncWriteExt;
use tokio::net::unix::pipe;
use tokio::time::Instant;
use uuid::Uuid;

use super::attempt::{Attempt, InputReader, PROMPT_FILE};
use super::folder_access::log_error;
use super::input::InputEvent;
use super::lines::LineBuffer;
use super::runtime::input::InputFormat;
use super::watch::Watch;

/// Time in which an agent has to confirm a message after its turn has ended. Closing the pipe then loses no message,
/// because the agent has it, or the next turn gets it.
const CONFIRMATION_TIMEOUT: Duration = Duration::from_secs(30);
/// Largest pipe that a user may request by default.
const MAX_PIPE_BYTES: usize = 1 << 20;
/// Longest line of stdout that is read whole.
const MAX_FED_LINE_BYTES: usize = 4 << 20;
/// Size of one read of stdout.
const READ_BYTES: usize = 64 << 10;

pub(super) struct Feeder {
    attempt: Attempt,
    format: InputFormat,
    pipe: pipe::Sender,
    /// Lines that are not in the pipe yet.
    unsent: Vec<u8>,
    input: InputReader,
    output: OutputEvents,
    /// Messages that were fed and that the agent has not confirmed.
    unconfirmed: HashSet<Uuid>,
    /// Time at which the last turn ended; `None` while a turn runs.
    turn_ended: Option<Instant>,
}

impl Feeder {
    /// Creates the pipe. Fills it with the prompt before the agent starts, so that an agent whose keeper is killed has
    /// its prompt. Returns the end that the agent reads.
    pub(super) fn new(attempt: &Attempt, format: InputFormat) -> io::Result<(Self, PipeReader)> {
        let mut prompt = String::new();
        attempt.open(PROMPT_FILE)?.read_to_string(&mut prompt)?;
        let mut unsent = format.prompt(&prompt).into_bytes();
        let (reader, writer) = io::pipe()?;
        let size = unsent.len().next_power_of_two().min(MAX_PIPE_BYTES);
        // If the size is refused, the agent gets the rest of the prompt after its start.
        let _ = fcntl_setpipe_size(&writer, size.max(READ_BYTES));
        let pipe = pipe::Sender::from_owned_fd(writer.into())?;
        while let Ok(count @ 1..) = pipe.try_write(&unsent) {
            unsent.drain(..count);
        }
        let feeder = Self {
            attempt: attempt.clone(),
            format,
            pipe,
            unsent,
            input: InputReader::default(),
            output: OutputEvents::new(attempt)?,
            unconfirmed: HashSet::new(),
            turn_ended: None,
        };
        Ok((feeder, reader))
    }

    /// Feeds the agent until it has ended its work, and closes the pipe.
    pub(super) async fn run(mut self) {
        match self.feed().await {
            // The agent has closed its stdin, usually because it has ended.
            Err(error) if error.kind() == io::ErrorKind::BrokenPipe => {}
            Err(error) => {
                let message = format!("cannot pass messages to the agent any more: {error}");
                log_error(self.attempt.folder(), &message);
            }
            Ok(()) => {}
        }
    }

    async fn feed(&mut self) -> io::Result<()> {
        let watch = Watch::new();
        let changes = watch.folder(self.attempt.folder());
        loop {
            self.pipe.write_all(&self.unsent).await?;
            self.unsent = Vec::new();
            self.read_output()?;
            for message in self.input.read(&self.attempt)? {
                self.unsent.extend(self.format.message(&message).into_bytes());
                self.unconfirmed.insert(message.uuid);
            }
            if !self.unsent.is_empty() {
                continue;
            }
            if self.is_done() {
                return Ok(());
            }
            changes.changed().await;
        }
    }

    fn read_output(&mut self) -> io::Result<()> {
        let (format, unconfirmed, turn_ended) = (self.format, &mut self.unconfirmed, &mut self.turn_ended);
        self.output.read(|line| match format.event(line) {
            // The prompt is confirmed too.
            Some(InputEvent::Confirmed(message)) => {
                unconfirmed.remove(&message);
                *turn_ended = None;
            }
            Some(InputEvent::TurnEnded) => *turn_ended = Some(Instant::now()),
            None => {}
        })
    }

    fn is_done(&self) -> bool {
        self.turn_ended
            .is_some_and(|ended| self.unconfirmed.is_empty() || ended.elapsed() >= CONFIRMATION_TIMEOUT)
    }
}

/// Reads the lines of the agent's stdout as they are written.
struct OutputEvents {
    stdout: File,
    line: LineBuffer,
}

impl OutputEvents {
    fn new(attempt: &Attempt) -> io::Result<Self> {
        Ok(Self { stdout: attempt.open("stdout")?, line: LineBuffer::new(MAX_FED_LINE_BYTES) })
    }

    fn read(&mut self, mut take: impl FnMut(&str)) -> io::Result<()> {
        let mut buffer = vec![0; READ_BYTES];
        loop {
            let count = self.stdout.read(&mut buffer)?;
            if count == 0 {
                return Ok(());
            }
            let mut chunk = &buffer[..count];
            while let Some(line) = self.line.next(&mut chunk) {
                take(&line);
            }
        }
    }
}
