//! Makes the output files of jobs match a restored store. Output of attempts that the store does not have is removed.
//! The files of jobs that the store does not have are kept.

use std::collections::HashMap;
use std::fs::{self, DirBuilder, File};
use std::io::{self, BufRead, BufReader, Read};
use std::os::unix::fs::DirBuilderExt;
use std::path::{Path, PathBuf};

use cowhand_core::output::OutputMessage;
use tempfile::NamedTempFile;

use super::rows::paths;
use crate::backup::is_output;
use crate::state::StateFolder;
use cowhand_store::KnownRows;
use cowhand_store::file::beside;
use cowhand_system::remove::missing_is_ok;

/// Maximum length in bytes of a line that separates the output of two attempts.
const MAX_BORDER: usize = 4096;

/// Returns the folder beside a replaced store for the output files that were replaced together with the store.
pub(super) fn folder_of(store: &Path) -> PathBuf {
    beside(store, ".jobs")
}

/// The output files of jobs in a state folder, and the rows of the restored store that the files have to match.
pub(super) struct Outputs<'a> {
    pub(super) state: &'a StateFolder,
    pub(super) rows: &'a KnownRows,
    /// Folder for replaced files; `None` if there was no store before. Then replaced files are not kept.
    pub(super) replaced: Option<PathBuf>,
}

impl Outputs<'_> {
    /// Copies the output files of a folder into the state folder, and replaces existing files. The existing file of a
    /// job that was running at the backup is kept, because the next start appends the rest of the output to that file.
    pub(super) fn take(&self, from: &Path) -> io::Result<()> {
        for new in paths(from) {
            let Some(name) = output_name(&new) else { continue };
            let path = self.state.jobs().join(name);
            let runs = self.rows.running.contains(job_of(name));
            if is_plain(&path) && (runs || is_same(&path, &new)?) {
                continue;
            }
            let mut copy = NamedTempFile::new_in(self.state.jobs())?;
            io::copy(&mut File::open(&new)?, &mut copy)?;
            self.replace(&path, Some(copy))?;
        }
        Ok(())
    }

    /// Removes the output of attempts that the store does not have. If the store has no attempt of a job, all output
    /// files of the job are removed. Otherwise its JSONL is shortened, and its diff is kept. Files of jobs that the
    /// store does not have are kept.
    pub(super) fn cut(&self) -> io::Result<()> {
        let mut last: HashMap<&str, i64> = HashMap::new();
        for (job, number) in &self.rows.attempts {
            let last = last.entry(job).or_default();
            *last = (*last).max(*number);
        }
        for path in paths(&self.state.jobs()) {
            let Some(name) = output_name(&path).filter(|name| self.rows.jobs.contains(job_of(name))) else {
                continue;
            };
            match last.get(job_of(name)) {
                None => self.replace(&path, None)?,
                Some(last) if path.extension() == Some("jsonl".as_ref()) => {
                    let Some(length) = border_after(&path, *last)? else { continue };
                    let mut kept = NamedTempFile::new_in(self.state.jobs())?;
                    io::copy(&mut File::open(&path)?.take(length), &mut kept)?;
                    self.replace(&path, Some(kept))?;
                }
                Some(_) => {}
            }
        }
        Ok(())
    }

    /// Links the old file into the folder for replaced files, and renames the new file to the old name. Without a new
    /// file, the old name is removed.
    fn replace(&self, path: &Path, new: Option<NamedTempFile>) -> io::Result<()> {
        if let (Some(replaced), Some(name), true) = (&self.replaced, path.file_name(), path.exists()) {
            DirBuilder::new().recursive(true).mode(0o700).create(replaced)?;
            // The link exists already if an earlier call has replaced the same file. It then leads to the oldest file.
            match fs::hard_link(path, replaced.join(name)) {
                Err(error) if error.kind() == io::ErrorKind::AlreadyExists => {}
                linked => linked?,
            }
        }
        match new {
            Some(new) => {
                new.as_file().sync_all()?;
                new.persist(path).map(drop).map_err(|error| error.error)
            }
            None => missing_is_ok(fs::remove_file(path)),
        }
    }
}

/// Returns the name of the file if it is the output of a job. Symbolic links are not followed.
fn output_name(path: &Path) -> Option<&str> {
    path.file_name()?.to_str().filter(|name| is_output(name) && is_plain(path))
}

fn is_plain(path: &Path) -> bool {
    fs::symlink_metadata(path).is_ok_and(|found| found.is_file())
}

fn job_of(name: &str) -> &str {
    name.split('.').next().unwrap_or(name)
}

/// Returns the offset in bytes at which the output of the attempts after `last` begins; `None` if the file contains no
/// such output.
fn border_after(path: &Path, last: i64) -> io::Result<Option<u64>> {
    let (mut lines, mut line, mut at) = (BufReader::new(File::open(path)?), Vec::new(), 0);
    loop {
        line.clear();
        let length = lines.read_until(b'\n', &mut line)?;
        if length == 0 {
            return Ok(None);
        }
        if length <= MAX_BORDER && attempt_begun_by(&line).is_some_and(|number| number > last) {
            return Ok(Some(at));
        }
        at += length as u64;
    }
}

fn attempt_begun_by(line: &[u8]) -> Option<i64> {
    let line = std::str::from_utf8(line).ok().filter(|line| line.contains(OutputMessage::ATTEMPT))?;
    match OutputMessage::read_line(line).ok()?? {
        OutputMessage::System { subtype: Some(subtype), content: Some(content), .. }
            if subtype == OutputMessage::ATTEMPT =>
        {
            content.strip_prefix("attempt ")?.parse().ok()
        }
        _ => None,
    }
}

fn is_same(first: &Path, second: &Path) -> io::Result<bool> {
    let (first, second) = (File::open(first)?, File::open(second)?);
    if first.metadata()?.len() != second.metadata()?.len() {
        return Ok(false);
    }
    let (mut first, mut second) = (BufReader::new(first), BufReader::new(second));
    loop {
        let (first_part, second_part) = (first.fill_buf()?, second.fill_buf()?);
        let length = first_part.len().min(second_part.len());
        if length == 0 {
            return Ok(first_part.len() == second_part.len());
        }
        if first_part[..length] != second_part[..length] {
            return Ok(false);
        }
        first.consume(length);
        second.consume(length);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The store has three jobs: the first has not begun, the second has one attempt, and the third has a running
    /// attempt.
    #[test]
    fn output_of_unknown_attempts_is_set_aside() {
        let [waits, ended, runs, unknown] =
            ["aaaaaa", "bbbbbb", "cccccc", "dddddd"].map(|end| format!("job-2026-01-05-{end}"));
        let folder = tempfile::tempdir().unwrap();
        let state = StateFolder::at(folder.path().join("state"));
        fs::create_dir_all(state.jobs()).unwrap();
        let message = |text: &str| format!("{{\"type\":\"assistant\",\"content\":\"{text}\"}}\n");
        let border = |number| {
            format!(
                "{}\n",
                OutputMessage::attempt(number, Some("attempt 1 failed: exit code 3 (exit)"))
                    .to_line(4096)
                    .unwrap()
            )
        };
        let two_attempts = [message("one attempt"), border(2), message("two")].concat();
        for (job, text) in [
            (&waits, message("later")),
            (&ended, two_attempts.clone()),
            (&runs, [message("begun"), message("more")].concat()),
            (&unknown, message("other")),
        ] {
            fs::write(state.jobs().join(format!("{job}.jsonl")), text).unwrap();
        }
        fs::write(state.jobs().join(format!("{waits}.diff")), "later").unwrap();
        let backup = folder.path().join("backup");
        fs::create_dir(&backup).unwrap();
        fs::write(backup.join(format!("{ended}.jsonl")), message("one attempt")).unwrap();
        fs::write(backup.join(format!("{runs}.jsonl")), message("begun")).unwrap();
        let rows = KnownRows {
            jobs: [&waits, &ended, &runs].map(Clone::clone).into(),
            attempts: [&ended, &runs].map(|job| (job.clone(), 1)).into(),
            running: [runs.clone()].into(),
            hooks: [].into(),
        };
        let contents = |name: &str| fs::read_to_string(state.jobs().join(name)).ok();
        for with_backup in [true, false] {
            fs::write(state.jobs().join(format!("{ended}.jsonl")), &two_attempts).unwrap();
            let replaced = folder.path().join(format!("aside-{with_backup}"));
            let outputs = Outputs { state: &state, rows: &rows, replaced: Some(replaced.clone()) };
            if with_backup {
                outputs.take(&backup).unwrap();
            }
            outputs.cut().unwrap();
            assert_eq!(contents(&format!("{waits}.jsonl")).or(contents(&format!("{waits}.diff"))), None);
            assert_eq!(contents(&format!("{ended}.jsonl")), Some(message("one attempt")), "{with_backup}");
            assert_eq!(
                contents(&format!("{runs}.jsonl")),
                Some([message("begun"), message("more")].concat())
            );
            assert_eq!(contents(&format!("{unknown}.jsonl")), Some(message("other")));
            assert_eq!(fs::read_to_string(replaced.join(format!("{ended}.jsonl"))).unwrap(), two_attempts);
            assert_eq!(
                replaced.join(format!("{waits}.jsonl")).exists(),
                with_backup,
                "only the first restore finds the file"
            );
        }
    }
}
