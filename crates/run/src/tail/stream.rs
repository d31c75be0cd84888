//! One raw file of an attempt, with the position up to which it is read and the end of the last complete line.

use std::borrow::Cow;
use std::fs::{File, OpenOptions};
use std::io::ErrorKind;
use std::os::unix::fs::{FileExt, OpenOptionsExt};
use std::path::PathBuf;

use anyhow::Context;

use rustix::fs::{SeekFrom, seek};
use rustix::io::Errno;

use crate::lines::LineBuffer;

/// Maximum length of a gap that is read as zeros.
const MAX_SHORT_GAP_BYTES: u64 = 4 << 10;

#[derive(Debug)]
pub(super) struct Stream {
    path: PathBuf,
    /// File; `None` until it exists.
    file: Option<File>,
    lines: LineBuffer,
    /// Start of the line that is being read.
    done: u64,
    /// Position up to which the file is read.
    read: u64,
}

impl Stream {
    pub(super) const fn new(path: PathBuf, done: u64, line_cap: usize) -> Self {
        Self { path, file: None, lines: LineBuffer::new(line_cap), done, read: done }
    }

    pub(super) const fn done(&self) -> u64 {
        self.done
    }

    pub(super) const fn read(&self) -> u64 {
        self.read
    }

    /// Returns the length of the file; 0 if it does not exist.
    pub(super) fn length(&mut self) -> anyhow::Result<u64> {
        if self.file.is_none() {
            let mut options = OpenOptions::new();
            options.read(true).custom_flags(libc::O_NOFOLLOW | libc::O_NONBLOCK);
            self.file = match options.open(&self.path) {
                Err(error) if error.kind() == ErrorKind::NotFound => return Ok(0),
                opened => Some(opened.with_context(|| format!("cannot open {}", self.path.display()))?),
            };
        }
        let file = self.file.as_ref().map(File::metadata).transpose();
        Ok(file
            .with_context(|| format!("cannot read {}", self.path.display()))?
            .map_or(0, |metadata| metadata.len()))
    }

    /// Returns at most `most` bytes that precede the current line.
    pub(super) fn before(&mut self, most: u64) -> anyhow::Result<Vec<u8>> {
        let end = self.done.min(self.length()?);
        let Some(file) = &self.file else { return Ok(Vec::new()) };
        let start = end.saturating_sub(most);
        let mut bytes = vec![0; usize::try_from(end - start)?];
        file.read_exact_at(&mut bytes, start)
            .with_context(|| format!("cannot read {}", self.path.display()))?;
        Ok(bytes)
    }

    /// Returns the length of the gap at the current position, up to `end`. A gap has no data: an agent can extend its
    /// file without writing. Returns 0 without a gap, and for a short gap, which is read as zeros.
    pub(super) fn gap(&self, end: u64) -> u64 {
        let Some(file) = self.file.as_ref().filter(|_| self.read < end) else { return 0 };
        let data = match seek(file, SeekFrom::Data(self.read)) {
            Ok(data) => data.min(end),
            // No data follows.
            Err(Errno::NXIO) => end,
            // The file system cannot find gaps.
            Err(_) => self.read,
        };
        Some(data - self.read.min(data)).filter(|gap| *gap > MAX_SHORT_GAP_BYTES).unwrap_or_default()
    }

    /// Skips bytes. The next line begins after them.
    pub(super) const fn skip(&mut self, count: u64) {
        self.read += count;
        self.done = self.read;
    }

    /// Reads the next bytes before `end`. The position moves when [`Self::next`] processes them.
    pub(super) fn fill(&mut self, buffer: &mut [u8], end: u64) -> anyhow::Result<usize> {
        let Some(file) = &self.file else { return Ok(0) };
        let left = usize::try_from(end.saturating_sub(self.read)).unwrap_or(usize::MAX);
        let room = buffer.len().min(left);
        if room == 0 {
            return Ok(0);
        }
        let count = loop {
            match file.read_at(&mut buffer[..room], self.read) {
                Err(error) if error.kind() == ErrorKind::Interrupted => {}
                read => break read.with_context(|| format!("cannot read {}", self.path.display()))?,
            }
        };
        Ok(count)
    }

    /// Returns the next whole line of a chunk that [`Self::fill`] read. The beginning of an incomplete line is kept for
    /// the next chunk.
    pub(super) fn next<'a>(&mut self, chunk: &mut &'a [u8]) -> Option<Cow<'a, str>> {
        let before = chunk.len();
        let line = self.lines.next(chunk);
        self.read += (before - chunk.len()) as u64;
        if line.is_some() {
            self.done = self.read;
        }
        line
    }

    /// Returns true if the next chunk continues a line.
    pub(super) const fn has_begun(&self) -> bool {
        self.lines.has_begun()
    }

    /// Returns the last line if it has no line end.
    pub(super) fn finish(&mut self) -> Option<String> {
        self.done = self.read;
        self.lines.finish()
    }

    pub(super) const fn rewind(&mut self) {
        (self.done, self.read) = (0, 0);
    }
}
