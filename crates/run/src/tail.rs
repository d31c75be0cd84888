//! The tailer: follows the output of an attempt's process and writes its messages.
//!
//! ```text
//! stdout ──▶ lines ──┐                                 ┌──▶ the job's JSONL, with long lines cut
//!                    ├──▶ redactor ──▶ reader ──▶ batch┼──▶ the index: a checkpoint
//! stderr ──▶ lines ──┘                                 └──▶ listeners
//! ```
//!
//! A batch is written to the JSONL, and then a checkpoint records all positions: the raw files up to the end of a line,
//! the JSONL, and the state of the reader. After a crash of the daemon, the JSONL is truncated to the last checkpoint
//! and the raw files, which are authoritative, are read from there. So no line is lost, split, repeated or moved. Lines
//! of the two raw files are in the order in which they were read.
//!
//! Nothing is synced, because data that a process has written is not lost when the process is killed. Only after a
//! power failure may the JSONL be shorter than the position in the last checkpoint. Then an older checkpoint is used,
//! at worst the first.

mod batch;
mod index;
mod stream;

use std::borrow::Cow;
use std::fs::{DirBuilder, File, OpenOptions};
use std::io::{BufRead, BufReader, Write};
use std::os::unix::fs::{DirBuilderExt, MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};

use anyhow::Context;
use cowhand_core::job::JobUsage;
use cowhand_core::output::OutputMessage;
use cowhand_core::provider::WindowReport;
use jiff::Timestamp;
use uuid::Uuid;

use super::ending::Ending;
use super::runtime::{Finish, KnownMessages, Reader};
use crate::redact::{OpenSecret, Redactor};
use batch::Batch;
use index::{Checkpoint, Index};
pub use index::{ReadSoFar, read_so_far};
use stream::Stream;

/// Maximum length of a message in the JSONL, and of a line of stderr.
pub(crate) const MAX_MESSAGE_BYTES: usize = 1 << 20;

/// Maximum size of one read of a raw file.
const READ_CHUNK_BYTES: usize = 64 << 10;
/// Number of bytes after which [`Tailer::advance`] returns, so that the caller can act before the next call.
const MAX_ADVANCE_BYTES: u64 = 4 << 20;

/// Paths of all files of the tailer, and facts about the attempt. The JSONL belongs to the job and may contain the
/// output of earlier attempts.
#[derive(Debug, Clone)]
pub struct TailFiles {
    pub stdout: PathBuf,
    pub stderr: PathBuf,
    pub jsonl: PathBuf,
    pub index: PathBuf,
    /// Number of the attempt.
    pub attempt: u32,
    /// Why the previous attempt ended, if known.
    pub previous_ending: Option<String>,
}

#[derive(Debug)]
pub struct Tailer {
    files: TailFiles,
    /// Initial state of the reader. It is needed if the files have to be opened again.
    initial_reader: Reader,
    reader: Reader,
    /// Redactor that masks secrets in every line before the reader gets the line.
    redactor: Redactor,
    /// Messages to the job that the agent may confirm.
    messages: KnownMessages,
    stdout: Stream,
    stderr: Stream,
    /// Secrets of several lines that the next line of each stream may continue.
    open_secrets: OpenSecrets,
    jsonl: File,
    index: Index,
    /// Size of the JSONL.
    bytes: u64,
    lines: u64,
    /// Set if the line that separates this attempt from an earlier one is not written yet.
    unmarked: bool,
    batch: Batch,
    /// Set if a write failed, so that the state in memory is ahead of the disk.
    failed: bool,
    /// Set if the last [`Self::advance`] returned before the end of the raw files.
    behind: bool,
}

/// Number of bytes directly before a checkpoint in which the tailer searches for the beginning of a secret. In
/// practice, a secret of several lines is shorter.
const OPEN_SECRET_BYTES: u64 = 64 << 10;

#[derive(Debug, Default)]
struct OpenSecrets {
    stdout: OpenSecret,
    stderr: OpenSecret,
}

#[derive(Debug, Clone, Copy)]
enum Source {
    Stdout,
    Stderr,
}

impl Tailer {
    /// Opens an attempt's output, or continues where an earlier tailer of the same attempt stopped. The raw files need
    /// not exist yet.
    pub fn open(
        files: TailFiles,
        initial_reader: Reader,
        redactor: Redactor,
        now: Timestamp,
    ) -> anyhow::Result<Self> {
        let jsonl = open_jsonl(&files.jsonl)?;
        let jsonl_bytes = jsonl.metadata()?.len();
        let (mut index, found) = Index::open(&files.index, jsonl_bytes)?;
        let at = if let Some(at) = found {
            at
        } else {
            let (jsonl, lines) = whole_lines(&files.jsonl)?;
            let first = Checkpoint { at: now, stdout: 0, stderr: 0, jsonl, lines, reader: &initial_reader };
            index.append(&first)?;
            Checkpoint { at: now, stdout: 0, stderr: 0, jsonl, lines, reader: initial_reader.clone() }
        };
        // Each checkpoint except the first covers lines of this attempt.
        let unmarked = files.attempt > 1 && at.lines == index.first_lines();
        let mut reader = at.reader;
        reader.set_redactor(&redactor);
        jsonl.set_len(at.jsonl).with_context(|| format!("cannot write {}", files.jsonl.display()))?;
        let mut tailer = Self {
            stdout: Stream::new(files.stdout.clone(), at.stdout, reader.line_cap()),
            stderr: Stream::new(files.stderr.clone(), at.stderr, MAX_MESSAGE_BYTES),
            open_secrets: OpenSecrets::default(),
            reader,
            redactor,
            messages: KnownMessages::default(),
            initial_reader,
            jsonl,
            index,
            bytes: at.jsonl,
            lines: at.lines,
            unmarked,
            batch: Batch::default(),
            failed: false,
            behind: false,
            files,
        };
        for source in [Source::Stdout, Source::Stderr] {
            tailer.find_open_secret(source)?;
        }
        Ok(tailer)
    }

    /// Finds out whether the last line before the checkpoint is a line of a secret that the next line may continue.
    fn find_open_secret(&mut self, source: Source) -> anyhow::Result<()> {
        if !self.redactor.has_following_lines() {
            return Ok(());
        }
        let before = self.stream(source).before(OPEN_SECRET_BYTES)?;
        let mut open = OpenSecret::default();
        for line in String::from_utf8_lossy(&before).lines() {
            self.redactor.redact_next_line(line, &mut open);
        }
        *self.open_secret(source) = open;
        Ok(())
    }

    const fn open_secret(&mut self, source: Source) -> &mut OpenSecret {
        match source {
            Source::Stdout => &mut self.open_secrets.stdout,
            Source::Stderr => &mut self.open_secrets.stderr,
        }
    }

    /// Reads new output, up to a limit, and writes its messages. Returns the number of messages. After an error the
    /// next call starts again at the last checkpoint, so a disk that is full for a while does no harm.
    pub fn advance(&mut self, now: Timestamp) -> anyhow::Result<u64> {
        if self.failed || !self.is_intact() {
            let messages = self.messages.clone();
            *self = Self::open(self.files.clone(), self.initial_reader.clone(), self.redactor.clone(), now)?;
            self.set_messages(messages);
        }
        self.failed = true;
        let before = self.lines;
        self.behind = !self.read_new(now)?;
        if !self.behind {
            self.batch.free();
        }
        self.failed = false;
        Ok(self.lines - before)
    }

    /// Sets the redactor of the lines that are read from now on.
    pub fn set_redactor(&mut self, redactor: Redactor) {
        self.reader.set_redactor(&redactor);
        self.redactor = redactor;
    }

    /// Sets the messages to the job that the agent may confirm. They have to be set before the agent can confirm them.
    pub fn set_messages(&mut self, messages: KnownMessages) {
        self.reader.set_messages(&messages);
        self.messages = messages;
    }

    /// Returns the ids of the messages that the agent has confirmed.
    pub fn confirmed_messages(&self) -> &[Uuid] {
        self.reader.confirmed_messages()
    }

    /// Returns true if the last [`Self::advance`] did not read everything.
    pub const fn is_behind(&self) -> bool {
        self.behind
    }

    /// Returns true if the open file is still the JSONL on disk, with everything that was written. Somebody may
    /// have removed or replaced the file on disk.
    fn is_intact(&self) -> bool {
        let on_disk = std::fs::symlink_metadata(&self.files.jsonl);
        let open = self.jsonl.metadata();
        on_disk.is_ok_and(|on_disk| {
            on_disk.len() >= self.bytes
                && open.is_ok_and(|open| (open.dev(), open.ino()) == (on_disk.dev(), on_disk.ino()))
        })
    }

    /// Reads the rest after the process has ended, including a last line without a line end, and returns the result. A
    /// second call, even after a restart, returns the same result.
    pub fn finish(&mut self, ending: &Ending, now: Timestamp) -> anyhow::Result<Finish> {
        self.advance(now)?;
        while self.behind {
            self.advance(now)?;
        }
        self.failed = true;
        for source in [Source::Stdout, Source::Stderr] {
            self.end_line(source, now)?;
        }
        self.reader
            .rest()
            .into_iter()
            .try_for_each(|message| self.append_message(message.of_agent(), now))?;
        self.mark(now)?;
        self.flush(now)?;
        self.failed = false;
        Ok(self.reader.clone().finish(ending))
    }

    /// Skips the rest of the output, and writes how many bytes were skipped. Called after all processes have ended.
    pub fn skip_rest(&mut self, now: Timestamp) -> anyhow::Result<()> {
        self.failed = true;
        for source in [Source::Stdout, Source::Stderr] {
            let stream = self.stream(source);
            let rest = stream.length()?.saturating_sub(stream.read());
            if rest == 0 {
                continue;
            }
            self.end_line(source, now)?;
            self.stream(source).skip(rest);
            let name = source.name();
            let message = format!("{rest} more bytes of {name} were not read, because the job was cancelled");
            self.append_message(OutputMessage::text(Some(OutputMessage::UNREAD), &message), now)?;
        }
        self.flush(now)?;
        (self.failed, self.behind) = (false, false);
        Ok(())
    }

    /// Adds the line that separates this attempt from an earlier one, if it is missing. It is written with the next
    /// batch.
    pub fn begin(&mut self, now: Timestamp) -> anyhow::Result<()> {
        if self.failed { Ok(()) } else { self.mark(now) }
    }

    pub fn session_id(&self) -> Option<&str> {
        self.reader.session_id()
    }

    /// Returns the number of lines of the JSONL.
    pub fn lines(&self) -> u64 {
        self.lines
    }

    /// Returns the usage so far, if the agent states it.
    pub fn usage(&self) -> Option<JobUsage> {
        self.reader.usage()
    }

    /// Returns the last report of the agent about each usage window of its provider.
    pub fn windows(&mut self) -> Vec<WindowReport> {
        self.reader.windows()
    }

    /// Returns true if the agent has stated the result of its work.
    pub fn has_result(&mut self) -> bool {
        self.reader.has_result()
    }

    pub fn tool_calls(&mut self) -> u64 {
        self.reader.tool_calls()
    }

    /// Reads up to the current ends of the files, or until [`MAX_ADVANCE_BYTES`] are read: an agent that never stops
    /// writing must not block others. Returns false if there may be more output.
    fn read_new(&mut self, now: Timestamp) -> anyhow::Result<bool> {
        let stdout = self.check_length(Source::Stdout, now)?;
        let stderr = self.check_length(Source::Stderr, now)?;
        let unread = stdout.saturating_sub(self.stdout.read()).max(stderr.saturating_sub(self.stderr.read()));
        let mut buffer = vec![0; usize::try_from(unread).unwrap_or(usize::MAX).min(READ_CHUNK_BYTES)];
        let (mut read, mut is_at_end) = (0, false);
        while read < MAX_ADVANCE_BYTES && !is_at_end {
            let of_stdout = self.step(Source::Stdout, stdout, &mut buffer, now)?;
            let of_stderr = self.step(Source::Stderr, stderr, &mut buffer, now)?;
            is_at_end = of_stdout + of_stderr == 0;
            read += (of_stdout + of_stderr) as u64;
        }
        self.flush(now)?;
        Ok(is_at_end)
    }

    /// Returns the length of a raw file. A file that has become shorter was truncated by the agent, and is read from
    /// its beginning.
    fn check_length(&mut self, source: Source, now: Timestamp) -> anyhow::Result<u64> {
        let stream = self.stream(source);
        let length = stream.length()?;
        if length >= stream.read() {
            return Ok(length);
        }
        let name = source.name();
        let message = format!(
            "{name} shrank from {} to {length} bytes; it is read from its start again",
            stream.read()
        );
        self.end_line(source, now)?;
        self.stream(source).rewind();
        self.append_message(OutputMessage::text(Some(OutputMessage::TRUNCATED), &message), now)?;
        Ok(length)
    }

    /// Reads one chunk of a raw file and returns its size, which is 0 at `end`.
    fn step(&mut self, source: Source, end: u64, buffer: &mut [u8], now: Timestamp) -> anyhow::Result<usize> {
        self.skip_gap(source, end, now)?;
        let count = self.stream(source).fill(buffer, end)?;
        let mut chunk = &buffer[..count];
        if self.stream(source).has_begun()
            && let Some(line) = self.stream(source).next(&mut chunk)
        {
            self.read_line(source, &line, false, now)?;
        }
        // All lines that are completely in the chunk are checked at once, because most output contains no secret.
        let whole_lines = memchr::memrchr(b'\n', chunk).map_or(&[][..], |end| &chunk[..=end]);
        let is_clean = self.redactor.is_clean(whole_lines);
        while let Some(line) = self.stream(source).next(&mut chunk) {
            self.read_line(source, &line, is_clean, now)?;
            if self.batch.is_full() {
                self.flush(now)?;
            }
        }
        Ok(count)
    }

    /// Skips a gap: a part of the file that was never written. The line before the gap counts as complete.
    fn skip_gap(&mut self, source: Source, end: u64, now: Timestamp) -> anyhow::Result<()> {
        let gap = self.stream(source).gap(end);
        if gap == 0 {
            return Ok(());
        }
        self.end_line(source, now)?;
        self.stream(source).skip(gap);
        let message = format!("{} has a gap of {gap} bytes without data; it is left out", source.name());
        self.append_message(OutputMessage::text(Some(OutputMessage::GAP), &message), now)
    }

    /// Reads a last line without a line end.
    fn end_line(&mut self, source: Source, now: Timestamp) -> anyhow::Result<()> {
        let line = self.stream(source).finish();
        line.map_or(Ok(()), |line| self.read_line(source, &line, false, now))
    }

    /// Reads a line. `is_clean` is true if it is known that the line contains no secret.
    fn read_line(
        &mut self,
        source: Source,
        line: &str,
        is_clean: bool,
        now: Timestamp,
    ) -> anyhow::Result<()> {
        let open = match source {
            Source::Stdout => &mut self.open_secrets.stdout,
            Source::Stderr => &mut self.open_secrets.stderr,
        };
        let line = if is_clean && !open.is_set() {
            Cow::Borrowed(line)
        } else {
            self.redactor.redact_next_line(line, open)
        };
        match source {
            Source::Stdout if self.reader.read_text(&line) => self.append_text(None, &line, now),
            Source::Stdout => {
                let mut messages = self.reader.read(&line).into_iter();
                messages.try_for_each(|message| self.append_message(message.of_agent(), now))
            }
            Source::Stderr => {
                self.reader.read_stderr(&line);
                self.append_text(Some(Reader::STDERR), &line, now)
            }
        }
    }

    /// Adds the line that separates this attempt from an earlier one, once.
    fn mark(&mut self, now: Timestamp) -> anyhow::Result<()> {
        if !std::mem::take(&mut self.unmarked) {
            return Ok(());
        }
        self.append_message(
            OutputMessage::attempt(self.files.attempt, self.files.previous_ending.as_deref()),
            now,
        )
    }

    fn append_message(&mut self, message: OutputMessage, now: Timestamp) -> anyhow::Result<()> {
        self.mark(now)?;
        Ok(self.batch.add(message, now)?)
    }

    fn append_text(
        &mut self,
        subtype: Option<&'static str>,
        line: &str,
        now: Timestamp,
    ) -> anyhow::Result<()> {
        self.mark(now)?;
        Ok(self.batch.add_text(subtype, line, now)?)
    }

    /// Writes the batch, and then the checkpoint.
    fn flush(&mut self, now: Timestamp) -> anyhow::Result<()> {
        if self.batch.lines() == 0 {
            return Ok(());
        }
        self.date_windows(now);
        let written = self.jsonl.write_all(self.batch.text());
        written.with_context(|| format!("cannot write {}", self.files.jsonl.display()))?;
        self.bytes += self.batch.text().len() as u64;
        self.lines += self.batch.lines();
        self.index.append(&Checkpoint {
            at: now,
            stdout: self.stdout.done(),
            stderr: self.stderr.done(),
            jsonl: self.bytes,
            lines: self.lines,
            reader: &self.reader,
        })?;
        self.batch.clear();
        Ok(())
    }

    /// Sets the time of new reports about usage windows: now, or earlier if the output was written while nobody read it.
    fn date_windows(&mut self, now: Timestamp) {
        if self.reader.has_undated_window() {
            let written = std::fs::metadata(&self.files.stdout).and_then(|metadata| metadata.modified());
            let written = written.ok().and_then(|at| Timestamp::try_from(at).ok());
            self.reader.date_windows(written.map_or(now, |written| written.min(now)));
        }
    }

    const fn stream(&mut self, source: Source) -> &mut Stream {
        match source {
            Source::Stdout => &mut self.stdout,
            Source::Stderr => &mut self.stderr,
        }
    }
}

impl Source {
    const fn name(self) -> &'static str {
        match self {
            Self::Stdout => "stdout",
            Self::Stderr => "stderr",
        }
    }
}

/// Opens a file for the owner only, because output may contain secrets.
fn append_to(path: &Path) -> anyhow::Result<File> {
    let mut options = OpenOptions::new();
    options.create(true).append(true).mode(0o600).custom_flags(libc::O_NOFOLLOW);
    options.open(path).with_context(|| format!("cannot open {}", path.display()))
}

/// Opens the job's JSONL, and creates its folder again if it was removed.
fn open_jsonl(path: &Path) -> anyhow::Result<File> {
    if let Some(folder) = path.parent() {
        let made = DirBuilder::new().recursive(true).mode(0o700).create(folder);
        made.with_context(|| format!("cannot make {}", folder.display()))?;
    }
    append_to(path)
}

/// Returns the number of bytes and lines of the complete lines of a file.
fn whole_lines(path: &Path) -> anyhow::Result<(u64, u64)> {
    let mut file = BufReader::new(File::open(path)?);
    let (mut at, mut bytes, mut lines) = (0, 0, 0);
    loop {
        let chunk = file.fill_buf().with_context(|| format!("cannot read {}", path.display()))?;
        let length = chunk.len();
        if length == 0 {
            return Ok((bytes, lines));
        }
        for (place, _) in chunk.iter().enumerate().filter(|(_, byte)| **byte == b'\n') {
            bytes = at + place as u64 + 1;
            lines += 1;
        }
        at += length as u64;
        file.consume(length);
    }
}

#[cfg(test)]
mod tests;
