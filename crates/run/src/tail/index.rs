//! The checkpoints of an attempt, in a file with one JSON line for each checkpoint.

use std::fs::{File, OpenOptions};
use std::io::Write;
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};

use anyhow::Context;
use jiff::Timestamp;
use serde::{Deserialize, Serialize};

use super::append_to;
use crate::runtime::Reader;

/// Size of the index above which all checkpoints except the first and the last are dropped.
const MAX_INDEX_BYTES: u64 = 1 << 20;

/// Positions in all files at one moment, and the state of the reader. A checkpoint that was read owns its reader; to
/// write a checkpoint, a borrowed reader is enough.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub(super) struct Checkpoint<R = Reader> {
    pub(super) at: Timestamp,
    /// Position in stdout, at the end of a line.
    pub(super) stdout: u64,
    /// Position in stderr, at the end of a line.
    pub(super) stderr: u64,
    /// Size of the JSONL in bytes.
    pub(super) jsonl: u64,
    /// Number of lines of the JSONL.
    pub(super) lines: u64,
    pub(super) reader: R,
}

/// How much of an attempt's output is read.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize)]
pub struct ReadSoFar {
    /// Position in stdout, at the end of a line.
    pub stdout: u64,
    /// Number of lines of the job's JSONL.
    pub lines: u64,
}

/// Returns how much of the output of a running attempt is read; `None` if nothing is read yet. `folder` is the folder of
/// the attempt.
pub fn read_so_far(folder: &Path) -> Option<ReadSoFar> {
    let index = std::fs::read(folder.join("index")).ok()?;
    let whole = &index[..=memchr::memrchr(b'\n', &index)?];
    let last = whole.split(|byte| *byte == b'\n').rfind(|line| !line.is_empty())?;
    serde_json::from_slice(last).ok()
}

#[derive(Debug)]
pub(super) struct Index {
    path: PathBuf,
    file: File,
    bytes: u64,
    /// First checkpoint. It is kept for the case that a power failure makes the later ones invalid.
    first: Option<Vec<u8>>,
}

impl Index {
    /// Opens the index, and returns the last checkpoint whose position is within a JSONL of `jsonl_bytes` bytes. Later
    /// checkpoints and incomplete lines are dropped.
    pub(super) fn open(path: &Path, jsonl_bytes: u64) -> anyhow::Result<(Self, Option<Checkpoint>)> {
        let file = append_to(path)?;
        let written = std::fs::read(path).with_context(|| format!("cannot read {}", path.display()))?;
        let (mut bytes, mut end, mut first, mut found) = (0, 0, None, None);
        for line in written.split_inclusive(|byte| *byte == b'\n').filter(|line| line.ends_with(b"\n")) {
            let Ok(checkpoint) = serde_json::from_slice::<Checkpoint>(line) else { break };
            end += line.len() as u64;
            if checkpoint.jsonl <= jsonl_bytes {
                first.get_or_insert_with(|| line.to_owned());
                (bytes, found) = (end, Some(checkpoint));
            }
        }
        file.set_len(bytes).with_context(|| format!("cannot write {}", path.display()))?;
        Ok((Self { path: path.to_owned(), file, bytes, first }, found))
    }

    /// Returns the number of lines that the JSONL had when the attempt began.
    pub(super) fn first_lines(&self) -> u64 {
        let first = self.first.as_deref().and_then(|line| serde_json::from_slice::<Checkpoint>(line).ok());
        first.map_or(0, |first| first.lines)
    }

    pub(super) fn append(&mut self, checkpoint: &Checkpoint<&Reader>) -> anyhow::Result<()> {
        let mut line = serde_json::to_vec(checkpoint)?;
        line.push(b'\n');
        let written =
            if self.bytes > MAX_INDEX_BYTES { self.rewrite(&line) } else { self.file.write_all(&line) };
        written.with_context(|| format!("cannot write {}", self.path.display()))?;
        self.bytes += line.len() as u64;
        self.first.get_or_insert(line);
        Ok(())
    }

    /// Writes the first checkpoint and `last` to a new file that replaces the old one, so that there is always a
    /// complete index.
    fn rewrite(&mut self, last: &[u8]) -> std::io::Result<()> {
        let first = self.first.as_deref().unwrap_or_default();
        let new = self.path.with_extension("new");
        let mut file = OpenOptions::new().create(true).write(true).truncate(true).mode(0o600).open(&new)?;
        file.write_all(&[first, last].concat())?;
        std::fs::rename(&new, &self.path)?;
        self.file = file;
        self.bytes = first.len() as u64;
        Ok(())
    }
}
