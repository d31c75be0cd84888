//! The folder of an attempt, which daemon and keeper share.

mod input_file;
mod saved_folder;

use std::fs::{self, File, OpenOptions, TryLockError};
use std::io::{self, Write};
use std::os::unix::fs::{DirBuilderExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};

use cowhand_core::cut::cut;
use cowhand_core::id::JobId;
use jiff::Timestamp;
use serde::Serialize;
use serde::de::DeserializeOwned;

use super::cgroup::Cgroup;
use super::ending::Ending;
use super::process::{self, ProcessIdentity};
use super::start::StartSpec;
use cowhand_system::blocking::run_blocking;
use cowhand_system::lock_file;
use cowhand_system::remove::{is_missing, missing_is_ok, remove_folder};
use input_file::INPUT_FILE;
pub(super) use input_file::InputReader;
pub use saved_folder::SavedFolder;

/// An attempt of a job, or a hook that is a command: not started, running or ended.
#[derive(Debug, Clone)]
pub struct Attempt {
    folder: PathBuf,
    name: String,
}

/// Record of the keeper's process.
pub(super) const KEEPER_FILE: &str = "keeper.json";
/// Record of the agent's process.
pub(super) const AGENT_FILE: &str = "agent.json";
const ENDING_FILE: &str = "ending.json";
/// File that reserves disk space for the ending. The ending is written into this file, which is then renamed to
/// `ending.json`.
const RESERVED_FILE: &str = "ending.reserved";
const RESERVED_BYTES: usize = 4096;
/// What the keeper starts: command, sandbox plan and limits.
const START_FILE: &str = "start.json";
/// Standard input of the agent.
pub(super) const PROMPT_FILE: &str = "prompt";
const LOCK_FILE: &str = "lock";
const KEEPER_LOG_FILE: &str = "keeper.log";
/// Maximum length of a keeper's message that [`Attempt::last_keeper_message`] returns.
const MAX_KEEPER_MESSAGE_BYTES: usize = 500;
const CGROUP_FILE: &str = "cgroup";
pub(super) const CAPS_FILE: &str = "caps";
pub(super) const CREDENTIALS_FILE: &str = "credentials";
const HOOK_SUFFIX: &str = "hook";
const RESUMED_FILE: &str = "resumed";
/// Secrets that the processes got.
const SECRETS_FILE: &str = "secrets.json";

/// Text and session that are known before the agent starts.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct BeforeOutput {
    /// Notes that are written before the agent's output.
    pub notes: Vec<String>,
    /// Session that the agent continues.
    pub resumed: Option<String>,
}

/// Files that a new keeper inherits.
#[derive(Debug)]
pub(super) struct PreparedLaunch {
    /// Lock of the attempt. The keeper inherits it, so the lock is never free until the keeper ends.
    pub(super) lock: File,
    /// Log of the keeper.
    pub(super) log: File,
}

/// State of the lock of an attempt.
pub(super) enum AttemptLock {
    /// The attempt was never launched, or is being removed.
    Missing,
    Free(#[expect(dead_code, reason = "it is held, not used")] File),
    Taken,
}

/// Returns options that create files for the owner only and do not follow links.
fn private_options() -> OpenOptions {
    let mut options = OpenOptions::new();
    options.mode(0o600).custom_flags(libc::O_NOFOLLOW);
    options
}

impl Attempt {
    pub fn new(state: &Path, job: &JobId, number: u32) -> Self {
        Self::named(state, format!("{job}.{number}"))
    }

    /// Returns the `Attempt` of a hook that is a command. Such a hook has a folder and a keeper, as an attempt does;
    /// the name of the folder shows that it belongs to a hook.
    pub fn of_hook(state: &Path, job: &JobId, number: u32) -> Self {
        Self::named(state, format!("{job}.{HOOK_SUFFIX}{number}"))
    }

    fn named(state: &Path, name: String) -> Self {
        Self { folder: state.join("attempts").join(&name), name }
    }

    /// Returns the job of the attempt; `None` for a hook.
    pub fn job(&self) -> Option<JobId> {
        self.job_and_number().map(|(job, _)| job)
    }

    /// Returns the job and the number of the attempt; `None` for a hook.
    pub fn job_and_number(&self) -> Option<(JobId, u32)> {
        let (job, number) = self.name.rsplit_once('.')?;
        Some((job.parse().ok()?, number.parse().ok()?))
    }

    /// Returns the number of the attempt; `None` for a hook.
    pub fn number(&self) -> Option<u32> {
        self.name.rsplit_once('.')?.1.parse().ok()
    }

    /// Returns the job and the number of the hook; `None` for an attempt.
    pub fn hook(&self) -> Option<(JobId, u32)> {
        let (job, number) = self.name.rsplit_once('.')?;
        Some((job.parse().ok()?, number.strip_prefix(HOOK_SUFFIX)?.parse().ok()?))
    }

    pub fn at(folder: &Path) -> io::Result<Self> {
        let name = folder.file_name().and_then(|name| name.to_str()).unwrap_or_default();
        let is_valid = name.rsplit_once('.').is_some_and(|(job, number)| {
            let number = number.strip_prefix(HOOK_SUFFIX).unwrap_or(number);
            job.parse::<JobId>().is_ok() && number.parse::<u32>().is_ok()
        });
        if !is_valid {
            return Err(io::Error::other(format!("{name:?} is not an attempt's folder")));
        }
        Ok(Self { folder: folder.to_owned(), name: name.to_owned() })
    }

    pub fn folder(&self) -> &Path {
        &self.folder
    }

    pub fn stdout(&self) -> PathBuf {
        self.folder.join("stdout")
    }

    pub fn stderr(&self) -> PathBuf {
        self.folder.join("stderr")
    }

    /// Returns the variable `COWHAND_ATTEMPT_ID=…`, which every process of the attempt has.
    pub fn mark(&self) -> (String, String) {
        (process::ATTEMPT_VARIABLE.to_owned(), self.name.clone())
    }

    /// Returns the folder of the private files.
    pub fn private(&self) -> PathBuf {
        self.folder.join("private")
    }

    /// Makes the folder, if it is missing. A folder without a record of the keeper shows that the attempt did not
    /// begin.
    pub fn make_folder(&self) -> io::Result<()> {
        fs::DirBuilder::new().recursive(true).mode(0o700).create(&self.folder)
    }

    /// Writes the private files before the launch.
    pub fn write_private(&self, files: &[(String, String)]) -> io::Result<()> {
        if files.is_empty() {
            return Ok(());
        }
        fs::DirBuilder::new().recursive(true).mode(0o700).create(self.private())?;
        for (name, text) in files {
            self.create(&format!("private/{name}"))?.write_all(text.as_bytes())?;
        }
        Ok(())
    }

    /// Removes the private files, the credentials and the saved folder after the end of the attempt.
    pub fn remove_private_files(&self) -> io::Result<()> {
        missing_is_ok(fs::remove_file(self.folder.join(CREDENTIALS_FILE)))?;
        self.remove_saved_folder().and(remove_folder(&self.private()))
    }

    /// Writes the secrets that the processes will get. The caller does this before the launch. A later daemon needs
    /// these secrets to redact the output, because its config may have other values by then. The file is synced,
    /// because output can outlive a power failure.
    pub fn write_secrets(&self, secrets: &[String]) -> io::Result<()> {
        if secrets.is_empty() {
            return Ok(());
        }
        self.make_folder()?;
        self.write_synced(SECRETS_FILE, &secrets)
    }

    /// Returns the secrets that the processes got; an empty list if there were no secrets, if the attempt is settled,
    /// or if an earlier version started the attempt.
    pub fn secrets(&self) -> io::Result<Vec<String>> {
        Ok(self.read(SECRETS_FILE)?.unwrap_or_default())
    }

    /// Removes the raw output after the attempt is settled: the job's JSONL contains it without secrets. Other files
    /// that may contain a secret are removed too: the prompt and the messages; the checkpoints, which contain output that is not masked
    /// yet; `start.json`, because the config can put a secret into an argument. The file of secrets is removed last,
    /// because it is needed as long as there is output.
    pub fn remove_output(&self) -> io::Result<()> {
        missing_is_ok(fs::remove_file(self.folder.join(PROMPT_FILE)))?;
        missing_is_ok(fs::remove_file(self.folder.join(INPUT_FILE)))?;
        missing_is_ok(fs::remove_file(self.folder.join("index")))?;
        missing_is_ok(fs::remove_file(self.stdout()))?;
        missing_is_ok(fs::remove_file(self.stderr()))?;
        missing_is_ok(fs::remove_file(self.folder.join(START_FILE)))?;
        missing_is_ok(fs::remove_file(self.folder.join(SECRETS_FILE)))
    }

    /// Returns whether the raw output exists. [`Self::remove_output`] removes it after the attempt is settled.
    pub fn has_output(&self) -> bool {
        !is_missing(&self.stdout())
    }

    /// Creates the folder and executes the program as the keeper.
    pub fn launch(
        &self,
        program: &Path,
        start: &StartSpec,
        prompt: &str,
        environment: &[(String, String)],
    ) -> io::Result<Child> {
        let launch = self.prepare_launch(&BeforeOutput::default(), program, start, prompt)?;
        self.execute_keeper(program, environment, launch)
    }

    /// Creates the folder and writes the files that the keeper needs.
    pub(super) fn prepare_launch(
        &self,
        before_output: &BeforeOutput,
        program: &Path,
        start: &StartSpec,
        prompt: &str,
    ) -> io::Result<PreparedLaunch> {
        self.make_folder()?;
        let lock = self.try_lock()?.ok_or_else(|| io::Error::other("another keeper runs this attempt"))?;
        self.create(PROMPT_FILE)?.write_all(prompt.as_bytes())?;
        self.create("stdout")?;
        let mut stderr = self.create("stderr")?;
        for note in &before_output.notes {
            writeln!(stderr, "cowhand: {note}")?;
        }
        match &before_output.resumed {
            Some(session) => self.create(RESUMED_FILE)?.write_all(session.as_bytes())?,
            None => missing_is_ok(fs::remove_file(self.folder.join(RESUMED_FILE)))?,
        }
        self.write(START_FILE, &start.with_program(program))?;
        Ok(PreparedLaunch { lock, log: self.create(KEEPER_LOG_FILE)? })
    }

    /// Executes the program as the keeper of a prepared launch.
    pub(super) fn execute_keeper(
        &self,
        program: &Path,
        environment: &[(String, String)],
        launch: PreparedLaunch,
    ) -> io::Result<Child> {
        let mark = self.mark();
        Command::new(program)
            .arg("keeper")
            .arg(&self.folder)
            .env_clear()
            .envs(environment.iter().map(|(name, value)| (name, value)))
            .env(mark.0, mark.1)
            .current_dir("/")
            .stdin(launch.lock)
            .stdout(Stdio::null())
            .stderr(launch.log)
            .spawn()
    }

    /// Returns the last non-empty line of the keeper's log.
    pub fn last_keeper_message(&self) -> Option<String> {
        let log = fs::read(self.folder.join(KEEPER_LOG_FILE)).ok()?;
        let log = String::from_utf8_lossy(&log);
        log.lines()
            .map(str::trim)
            .rfind(|line| !line.is_empty())
            .map(|line| cut(line, 0, MAX_KEEPER_MESSAGE_BYTES))
    }

    /// Checks that files can be written in the folder.
    pub fn has_room(&self) -> io::Result<()> {
        let mut file = tempfile::NamedTempFile::new_in(&self.folder)?;
        file.write_all(&[b'.'; 4096])?;
        file.close()
    }

    /// Removes the record of a keeper that did not start the agent, so that the agent can be started again.
    pub(super) fn remove_keeper_record(&self) -> io::Result<()> {
        missing_is_ok(fs::remove_file(self.folder.join(KEEPER_FILE)))
    }

    /// Returns the session that the agent continues.
    pub fn resumed(&self) -> Option<String> {
        fs::read_to_string(self.folder.join(RESUMED_FILE)).ok().filter(|session| !session.is_empty())
    }

    /// Removes the folder of the attempt.
    pub fn discard(&self) -> io::Result<()> {
        self.remove_saved_folder().and(remove_folder(&self.folder))
    }

    /// Returns the pid of the keeper, if it is known.
    pub fn keeper_pid(&self) -> Option<i32> {
        Some(self.identity(KEEPER_FILE).ok()??.pid)
    }

    /// Runs a function on a blocking thread: listing processes takes time, and a container engine may need minutes to
    /// answer.
    pub async fn on_blocking_thread<T: Send + 'static>(
        &self,
        work: impl FnOnce(&Self) -> T + Send + 'static,
    ) -> T {
        let attempt = self.clone();
        run_blocking(move || work(&attempt)).await
    }

    /// Returns true if the agent may have been started. Only an attempt that did not begin can be run again.
    pub fn began(&self) -> io::Result<bool> {
        // The record of the keeper counts even if it was damaged later.
        fs::exists(self.folder.join(KEEPER_FILE))
    }

    /// Returns true if the agent's process is recorded.
    pub fn has_agent(&self) -> bool {
        self.folder.join(AGENT_FILE).exists()
    }

    /// Returns when the keeper started the agent; `None` if the agent was not started or ran on another machine.
    pub fn agent_began(&self) -> Option<Timestamp> {
        Timestamp::try_from(fs::metadata(self.folder.join(AGENT_FILE)).ok()?.modified().ok()?).ok()
    }

    /// Returns the time of the last write to the raw output.
    pub fn last_output(&self) -> Option<Timestamp> {
        let written = |path: PathBuf| Timestamp::try_from(fs::metadata(path).ok()?.modified().ok()?).ok();
        written(self.stdout()).max(written(self.stderr()))
    }

    /// Returns the control group that the keeper made, if it still exists.
    pub(super) fn cgroup(&self) -> io::Result<Option<Cgroup>> {
        match fs::read_to_string(self.folder.join(CGROUP_FILE)) {
            Ok(path) => Ok(Cgroup::at(PathBuf::from(path))),
            Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(None),
            Err(error) => Err(error),
        }
    }

    pub(super) fn record_cgroup(&self, cgroup: &Cgroup) -> io::Result<()> {
        self.create(CGROUP_FILE)?.write_all(cgroup.path().as_os_str().as_encoded_bytes())
    }

    pub(super) fn record_caps(&self, groups: &[&Path]) -> io::Result<()> {
        let mut file = self.create(CAPS_FILE)?;
        groups.iter().try_for_each(|group| writeln!(file, "{}", group.display()))
    }

    /// Appends notes for people after the agent's output.
    pub(super) fn note(&self, notes: &[String]) -> io::Result<()> {
        if notes.is_empty() {
            return Ok(());
        }
        let mut stderr = self.append("stderr")?;
        notes.iter().try_for_each(|note| writeln!(stderr, "cowhand: {note}"))
    }

    /// Takes the lock; returns `None` if another process has it. The launcher has the lock first, then the keeper as
    /// long as it lives. The kernel releases the lock when the keeper ends, even if the keeper is killed.
    pub(super) fn try_lock(&self) -> io::Result<Option<File>> {
        let lock =
            lock_file::open(private_options().create(true).truncate(false), &self.folder.join(LOCK_FILE))?;
        match lock.try_lock() {
            Ok(()) => Ok(Some(lock)),
            Err(TryLockError::WouldBlock) => Ok(None),
            Err(TryLockError::Error(error)) => Err(error),
        }
    }

    /// Takes the lock without creating its file, so that a folder that is being removed stays empty.
    pub(super) fn lock_if_present(&self) -> io::Result<AttemptLock> {
        let lock = match lock_file::open(&mut private_options(), &self.folder.join(LOCK_FILE)) {
            // A missing folder is an error, because then nothing is known about the attempt.
            Err(error) if error.kind() == io::ErrorKind::NotFound && !is_missing(&self.folder) => {
                return Ok(AttemptLock::Missing);
            }
            lock => lock?,
        };
        match lock.try_lock() {
            Ok(()) => Ok(AttemptLock::Free(lock)),
            Err(TryLockError::WouldBlock) => Ok(AttemptLock::Taken),
            Err(TryLockError::Error(error)) => Err(error),
        }
    }

    pub fn start(&self) -> io::Result<StartSpec> {
        self.read(START_FILE)?.ok_or_else(|| io::Error::other("there is no start.json"))
    }

    /// Reads the record of a process. Records are not synced. A record that a power failure damaged is ignored, because
    /// its process has ended.
    pub(super) fn identity(&self, file: &str) -> io::Result<Option<ProcessIdentity>> {
        match self.read(file) {
            Err(error) if error.kind() == io::ErrorKind::InvalidData => Ok(None),
            read => read,
        }
    }

    pub fn ending(&self) -> io::Result<Option<Ending>> {
        self.read(ENDING_FILE)
    }

    /// Reserves disk space for the ending, so that the ending can be written even if the disk becomes full.
    pub(super) fn reserve_ending(&self) -> io::Result<()> {
        self.create(RESERVED_FILE)?.write_all(&[b' '; RESERVED_BYTES])
    }

    /// Writes the ending into the reserved file, syncs the file and renames it, so that a power failure leaves the
    /// whole ending or none.
    pub(super) fn write_ending(&self, ending: &Ending) -> io::Result<()> {
        let reserved = self.folder.join(RESERVED_FILE);
        let mut file = match private_options().write(true).open(&reserved) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => {
                return self.write_synced(ENDING_FILE, ending);
            }
            file => file?,
        };
        let text = serde_json::to_vec(ending)?;
        file.write_all(&text)?;
        file.set_len(text.len() as u64)?;
        file.sync_all()?;
        fs::rename(reserved, self.folder.join(ENDING_FILE))
    }

    /// Writes a record atomically. The record survives the kill of the process, but not a power failure.
    pub(super) fn write<T: Serialize>(&self, name: &str, value: &T) -> io::Result<()> {
        self.write_record(name, value, |_| Ok(()))
    }

    /// Writes a record atomically and syncs it, so that a power failure leaves the old record or the new one.
    pub(super) fn write_synced<T: Serialize>(&self, name: &str, value: &T) -> io::Result<()> {
        self.write_record(name, value, File::sync_all)
    }

    fn write_record<T: Serialize>(
        &self,
        name: &str,
        value: &T,
        then: fn(&File) -> io::Result<()>,
    ) -> io::Result<()> {
        let mut file = tempfile::NamedTempFile::new_in(&self.folder)?;
        // Not `to_writer`, which would make a system call for each part of the text.
        file.write_all(&serde_json::to_vec(value)?)?;
        then(file.as_file())?;
        file.persist(self.folder.join(name))?;
        Ok(())
    }

    /// Syncs the folder, so that a power failure removes no file; the content of files is not synced.
    pub(super) fn sync_names(&self) -> io::Result<()> {
        File::open(&self.folder)?.sync_all()?;
        self.folder.parent().map_or(Ok(()), |all| File::open(all)?.sync_all())
    }

    pub(super) fn read<T: DeserializeOwned>(&self, name: &str) -> io::Result<Option<T>> {
        let path = self.folder.join(name);
        match fs::read(&path) {
            Ok(bytes) => {
                let value = serde_json::from_slice(&bytes);
                value.map(Some).map_err(|error| {
                    io::Error::new(io::ErrorKind::InvalidData, format!("{}: {error}", path.display()))
                })
            }
            Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(None),
            Err(error) => Err(error),
        }
    }

    pub(super) fn create(&self, name: &str) -> io::Result<File> {
        private_options().write(true).create(true).truncate(true).open(self.folder.join(name))
    }

    pub(super) fn open(&self, name: &str) -> io::Result<File> {
        private_options().read(true).open(self.folder.join(name))
    }

    pub(super) fn append(&self, name: &str) -> io::Result<File> {
        private_options().append(true).open(self.folder.join(name))
    }

    /// Opens a file for reading and appending, and creates it if it is missing.
    fn open_to_append(&self, name: &str) -> io::Result<File> {
        private_options().read(true).append(true).create(true).open(self.folder.join(name))
    }

    pub fn name(&self) -> &str {
        &self.name
    }
}
