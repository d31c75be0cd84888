//! `jobs/<id>/output.log`: the output of a job as `cowhand logs` shows it, for schedules with `outputToFile`.
//!
//! It is a view of the job's JSONL. New lines are appended. If another program changed the log, or the JSONL became
//! shorter, the log is rewritten.

use std::fs::{self, DirBuilder, File};
use std::io::{self, BufRead, BufReader, BufWriter, Seek, SeekFrom, Write};
use std::os::unix::fs::{DirBuilderExt, MetadataExt};
use std::path::PathBuf;

use cowhand_core::id::JobId;
use tempfile::NamedTempFile;

use super::line::readable_unstyled;
use crate::state::StateFolder;

/// Size of the reads of the JSONL and of the writes of the log.
const BUFFER_BYTES: usize = 64 << 10;

#[derive(Debug)]
pub(crate) struct OutputLog {
    folder: PathBuf,
    jsonl: PathBuf,
    /// State of the log; `None` before the first write.
    state: Option<LogState>,
}

#[derive(Debug)]
struct LogState {
    log: File,
    bytes: u64,
    /// Number of bytes of the JSONL that the log contains.
    jsonl: u64,
}

impl OutputLog {
    const NAME: &str = "output.log";

    pub(crate) fn new(state: &StateFolder, job: &JobId) -> Self {
        Self { folder: state.folder(job), jsonl: state.output(job), state: None }
    }

    pub(crate) fn exists(&self) -> bool {
        self.folder.join(Self::NAME).exists()
    }

    /// Appends the lines of the JSONL that the log does not contain, or writes the log from the beginning if that is
    /// not possible. Does nothing if there is no JSONL.
    pub(crate) fn catch_up(&mut self) -> io::Result<()> {
        let jsonl = match File::open(&self.jsonl) {
            Err(error) if matches!(error.kind(), io::ErrorKind::NotFound | io::ErrorKind::NotADirectory) => {
                return Ok(());
            }
            file => file?,
        };
        let length = jsonl.metadata()?.len();
        match self.state.take() {
            Some(mut state) if self.is_ours(&state)? && state.jsonl <= length => {
                if state.jsonl < length {
                    state.append(jsonl)?;
                }
                self.state = Some(state);
            }
            _ => self.state = Some(self.begin(jsonl)?),
        }
        Ok(())
    }

    /// Returns whether the log on disk is still the file that this `OutputLog` wrote, with the same length.
    fn is_ours(&self, state: &LogState) -> io::Result<bool> {
        let (own, found) = (state.log.metadata()?, fs::metadata(self.folder.join(Self::NAME)));
        Ok(found.is_ok_and(|found| found.ino() == own.ino() && found.len() == state.bytes))
    }

    /// Writes the log from the beginning. The new file replaces the old file atomically.
    fn begin(&self, jsonl: File) -> io::Result<LogState> {
        DirBuilder::new().recursive(true).mode(0o700).create(&self.folder)?;
        let (log, path) = NamedTempFile::new_in(&self.folder)?.into_parts();
        let mut state = LogState { log, bytes: 0, jsonl: 0 };
        state.append(jsonl)?;
        path.persist(self.folder.join(Self::NAME))?;
        Ok(state)
    }
}

impl LogState {
    /// Appends only complete lines. An incomplete line is appended by a later call.
    fn append(&mut self, mut jsonl: File) -> io::Result<()> {
        jsonl.seek(SeekFrom::Start(self.jsonl))?;
        let mut jsonl = BufReader::with_capacity(BUFFER_BYTES, jsonl);
        let mut log = BufWriter::with_capacity(BUFFER_BYTES, &self.log);
        let mut line = Vec::new();
        while jsonl.read_until(b'\n', &mut line)? > 0 && line.ends_with(b"\n") {
            if let Some(text) = readable_unstyled(String::from_utf8_lossy(&line).trim_end()) {
                log.write_all(text.as_bytes())?;
                log.write_all(b"\n")?;
                self.bytes += text.len() as u64 + 1;
            }
            self.jsonl += line.len() as u64;
            line.clear();
        }
        log.flush()
    }
}

#[cfg(test)]
mod tests {
    use std::fs::OpenOptions;

    use super::*;

    fn line(text: &str) -> String {
        format!("{{\"type\":\"assistant\",\"content\":\"{text}\"}}\n")
    }

    #[test]
    fn the_log_always_matches_the_jsonl() {
        let folder = tempfile::tempdir().unwrap();
        let state = StateFolder::at(folder.path());
        state.create().unwrap();
        let job: JobId = "job-2026-01-01-abc123".parse().unwrap();
        let (jsonl, path) = (state.output(&job), state.jobs().join("job-2026-01-01-abc123/output.log"));
        let mut log = OutputLog::new(&state, &job);
        let mut check = |what: &str, expected: Option<&str>| {
            log.catch_up().unwrap();
            assert_eq!(fs::read_to_string(&path).ok().as_deref(), expected, "{what}");
        };
        let append = |text: &str| {
            let mut file = OpenOptions::new().create(true).append(true).open(&jsonl).unwrap();
            file.write_all(text.as_bytes()).unwrap();
        };
        check("no output yet", None);
        append(&line("one"));
        check("a line", Some("one\n"));
        append(&line("two")[..10]);
        check("half a line", Some("one\n"));
        append(&line("two")[10..]);
        check("the rest of the line", Some("one\ntwo\n"));
        fs::remove_file(&path).unwrap();
        check("deleted", Some("one\ntwo\n"));
        fs::write(&path, "what nobody said").unwrap();
        append(&line("three"));
        check("overwritten", Some("one\ntwo\nthree\n"));
        fs::remove_dir_all(path.parent().unwrap()).unwrap();
        check("deleted with its folder", Some("one\ntwo\nthree\n"));
        File::options().write(true).open(&jsonl).unwrap().set_len(line("one").len() as u64).unwrap();
        check("after a crash the JSONL is cut back", Some("one\n"));
        fs::write(&path, "from an earlier daemon\n").unwrap();
        OutputLog::new(&state, &job).catch_up().unwrap();
        assert_eq!(fs::read_to_string(&path).unwrap(), "one\n", "the log of an earlier daemon is rewritten");
    }
}
