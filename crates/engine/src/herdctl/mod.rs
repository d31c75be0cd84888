//! The state that herdctl left beside a `herdctl.yaml`. It is read at the first start and never changed.
//!
//! ```text
//! .herdctl/state.yaml       which schedules are disabled, when each ran last      → schedules
//! .herdctl/jobs/*.yaml      jobs, with their output in *.jsonl                    → jobs
//! .herdctl/sessions/*.json  the last session of each agent                        → the job that had it
//! .herdctl/{discord,slack}-sessions/*.yaml  the session of each channel           → a job of the conversation
//! ```
//!
//! A `state.yaml` that cannot be read stops the start, because disabled schedules would run without it. A job or
//! session file that cannot be read is left out, with a note.

mod chats;
mod error;
mod import;
mod jobs;
mod sessions;
mod state;

use std::fs;
use std::io;
use std::path::{Path, PathBuf};

use cowhand_core::config::node::{Node, Sources};
use cowhand_core::config::parse::parse;
use cowhand_core::config::problem::{Problems, Severity};
use cowhand_core::id::JobId;

use cowhand_run::redact::Redactor;
use cowhand_store::{History, StoreError};
use cowhand_system::beneath::{NotOpened, Root};
use cowhand_system::named_file;

use error::HerdctlFileError;
pub use import::Import;

/// Largest size of a file of herdctl, apart from the output of jobs.
const MAX_BYTES: u64 = 16 << 20;

/// The folder `.herdctl` beside the root file.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct HerdctlFolder(PathBuf);

#[derive(Debug, thiserror::Error)]
pub enum HerdctlError {
    #[error(
        "herdctl is running: {file} names process {pid} ({command}); stop it with `herdctl stop`, or remove that file if the process is not herdctl"
    )]
    Running { file: PathBuf, pid: u32, command: String },
    #[error(
        "cannot import {file}: {why}; correct it, or leave herdctl's state behind with `cowhand start --fresh`"
    )]
    Unreadable { file: PathBuf, why: String },
    #[error(transparent)]
    Store(#[from] StoreError),
    #[error("cannot use the state folder {folder}: {source}")]
    State { folder: String, source: io::Error },
    #[error("the import from herdctl panicked; read the log for the reason")]
    Died,
}

impl HerdctlFolder {
    /// Returns the folder if it exists and the root file has herdctl's name: `herdctl` with any extension.
    pub fn beside(config: &Path) -> Option<Self> {
        let of_herdctl = config.file_stem().is_some_and(|stem| stem == "herdctl");
        let folder = config.with_file_name(".herdctl");
        (of_herdctl && folder.is_dir()).then_some(Self(folder))
    }

    /// Returns the folder if it exists and the root file does not have herdctl's name.
    pub(crate) fn left_beside(config: &Path) -> Option<Self> {
        let folder = config.with_file_name(".herdctl");
        (Self::beside(config).is_none() && folder.is_dir()).then_some(Self(folder))
    }

    /// Returns an error while the process in herdctl's PID file lives, because two programs would run the same
    /// schedules.
    pub(crate) fn refuse_if_running(&self) -> Result<(), HerdctlError> {
        let file = self.0.join("herdctl.pid");
        let pid = match named_file::read_text(&file, MAX_BYTES) {
            Ok(text) => text.trim().parse::<u32>().ok(),
            Err(error) if error.kind() == io::ErrorKind::NotFound => None,
            Err(error) => return Err(HerdctlError::Unreadable { file, why: error.to_string() }),
        };
        match pid.and_then(|pid| Some((pid, command_of(pid)?))) {
            Some((pid, command)) => Err(HerdctlError::Running { file, pid, command }),
            None => Ok(()),
        }
    }

    /// Returns an error while herdctl runs beside this config file. A start is then refused.
    pub fn refuse_if_running_beside(config: &Path) -> Result<(), HerdctlError> {
        let folder = Self::beside(config).or_else(|| Self::left_beside(config));
        folder.map_or(Ok(()), |folder| folder.refuse_if_running())
    }

    /// Reads the schedules, jobs and sessions to import. Secrets in the errors of schedules and in the prompts and
    /// summaries of jobs are masked.
    pub fn read(&self, redactor: &Redactor) -> Result<History, HerdctlError> {
        let mut schedules = state::read(self)?;
        for schedule in &mut schedules {
            schedule.last_error =
                schedule.last_error.take().map(|error| redactor.redact(&error).into_owned());
        }
        let mut history = History { schedules, ..History::default() };
        jobs::read(self, redactor, &mut history);
        sessions::read(self, &mut history);
        chats::read(self, &mut history);
        history.jobs.sort_by_key(|past| past.job.created_at());
        Ok(history)
    }

    /// Opens the output of a job that herdctl ran; `None` if there is none.
    pub fn output(&self, job: &JobId) -> io::Result<Option<fs::File>> {
        let opened = Root::open(&self.0).and_then(|root| root.file(Path::new(&format!("jobs/{job}.jsonl"))));
        none_if_missing(opened)
    }

    /// Reads a small file below the folder; `None` if it does not exist.
    fn text(&self, path: impl AsRef<Path>) -> io::Result<Option<String>> {
        let read = Root::open(&self.0).and_then(|root| root.read(path.as_ref(), MAX_BYTES));
        let text = none_if_missing(read)?.map(String::from_utf8).transpose();
        text.map_err(|_| io::Error::other("it is not UTF-8 text"))
    }

    /// Lists the files with this extension in a subfolder, sorted by name.
    fn files(&self, folder: &str, extension: &str) -> io::Result<Vec<PathBuf>> {
        let listed = Root::open(&self.0).and_then(|root| root.directory(Path::new(folder))?.entries());
        let names = none_if_missing(listed)?.into_iter().flatten().map(|(name, _)| PathBuf::from(name));
        let mut files: Vec<_> = names
            .filter(|name| name.extension().is_some_and(|found| found == extension))
            .map(|name| Path::new(folder).join(name))
            .collect();
        files.sort();
        Ok(files)
    }
}

/// Returns `None` if there is nothing to open. herdctl's agents could write to its folder, so no link in it is
/// followed.
fn none_if_missing<T>(opened: Result<T, NotOpened>) -> io::Result<Option<T>> {
    match opened {
        Ok(opened) => Ok(Some(opened)),
        Err(NotOpened::Missing) => Ok(None),
        Err(error) => Err(error.into()),
    }
}

/// Returns the command line of a living process. A zombie has no command line and counts as ended.
fn command_of(pid: u32) -> Option<String> {
    let raw = fs::read(format!("/proc/{pid}/cmdline")).ok()?;
    let parts: Vec<_> = raw.split(|byte| *byte == 0).map(String::from_utf8_lossy).collect();
    Some(parts.join(" ").trim().to_owned()).filter(|command| !command.is_empty())
}

/// Parses YAML of herdctl. The error states what is wrong and where.
fn yaml(text: &str) -> Result<Node, HerdctlFileError> {
    let (mut sources, mut problems) = (Sources::default(), Problems::default());
    let file = sources.add(PathBuf::new(), String::new());
    let node = parse(file, text, &mut problems);
    let error = problems.finish().into_iter().find(|problem| problem.severity == Severity::Error);
    match (error, node) {
        (Some(problem), _) => Err(HerdctlFileError::Yaml { line: problem.at.line, message: problem.message }),
        (None, Some(node)) => Ok(node),
        (None, None) => Err(HerdctlFileError::NotYaml),
    }
}

/// Parses the value of a key; `None` if the key is missing or null.
fn field<T: std::str::FromStr>(node: &Node, key: &str) -> Result<Option<T>, HerdctlFileError> {
    let text = node.get(key).and_then(Node::text);
    let unreadable = |text: &str| HerdctlFileError::Field { key: key.to_owned(), text: text.to_owned() };
    text.map(|text| text.parse().map_err(|_| unreadable(text))).transpose()
}
