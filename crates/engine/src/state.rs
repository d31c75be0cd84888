//! The state folder, `.cowhand/` beside the config file, and the paths of its contents.

mod guard;
mod job_socket;
mod lock;
pub(crate) mod modes;
mod restart_lock;
mod socket_path;
mod store_mark;

use std::fs::{self, DirBuilder, OpenOptions};
use std::io::{self, Write};
use std::os::unix::fs::{DirBuilderExt, OpenOptionsExt};
use std::path::{Path, PathBuf};

use cowhand_core::id::{AgentName, JobId};
use jiff::Timestamp;
use ring::rand::{SecureRandom, SystemRandom};
use uuid::Uuid;

use cowhand_system::digest::sha256;
use cowhand_system::disk::test_write_in;
use cowhand_system::named_file;

pub use job_socket::{job_folder, job_socket};
pub(crate) use lock::LockState;
pub use lock::StateLock;
pub use restart_lock::RestartLock;
pub use socket_path::{MAX_SOCKET_PATH, short_socket_path};
pub use store_mark::StoreMark;

/// File with the time of the last restore.
const RESTORED_FILE: &str = "restored";

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct StateFolder(PathBuf);

impl StateFolder {
    pub const NAME: &str = ".cowhand";

    pub fn beside(config_file: &Path) -> Self {
        Self(config_file.parent().unwrap_or(Path::new(".")).join(Self::NAME))
    }

    pub fn at(path: impl Into<PathBuf>) -> Self {
        Self(path.into())
    }

    pub fn path(&self) -> &Path {
        &self.0
    }

    pub fn database(&self) -> PathBuf {
        self.0.join("store.db")
    }

    pub fn jobs(&self) -> PathBuf {
        self.0.join("jobs")
    }

    /// Returns the path of the job's output, one message for each line.
    pub fn output(&self, job: &JobId) -> PathBuf {
        self.jobs().join(format!("{job}.jsonl"))
    }

    /// Returns the path of the job's record, a file for people.
    pub fn view(&self, job: &JobId) -> PathBuf {
        self.jobs().join(format!("{job}.yaml"))
    }

    /// Returns the path of the changes that the job made in its workspace.
    pub fn diff(&self, job: &JobId) -> PathBuf {
        self.jobs().join(format!("{job}.diff"))
    }

    /// Returns the folder for other files that a job leaves.
    pub fn folder(&self, job: &JobId) -> PathBuf {
        self.jobs().join(job.as_str())
    }

    /// Returns the path of the content of a file that an agent sends with this key, until it is posted.
    pub fn sent_file(&self, job: &JobId, key: &str) -> PathBuf {
        self.folder(job).join("chat").join(sha256(key))
    }

    pub fn attempts(&self) -> PathBuf {
        self.0.join("attempts")
    }

    /// Returns the files with the outcomes of settled attempts: the current file and the former one.
    pub(crate) fn outcomes(&self) -> [PathBuf; 2] {
        [self.0.join("outcomes.jsonl"), self.0.join("outcomes.1.jsonl")]
    }

    /// Returns when the store was last replaced by a backup; `None` if that never happened.
    pub(crate) fn restored_at(&self) -> Option<Timestamp> {
        String::from_utf8(read_small(&self.0.join(RESTORED_FILE)).ok()?).ok()?.trim().parse().ok()
    }

    pub(crate) fn write_restored_at(&self, at: Timestamp) -> io::Result<()> {
        let mut file = tempfile::NamedTempFile::new_in(&self.0)?;
        writeln!(file, "{at}")?;
        file.as_file().sync_all()?;
        file.persist(self.0.join(RESTORED_FILE))?;
        Ok(())
    }

    /// Returns the folder that programs of one agent use as their home in confined jobs.
    pub fn home_for_strangers(&self, agent: &AgentName) -> PathBuf {
        self.0.join("strangers").join(agent.as_str())
    }

    /// Returns the folder of the workspaces.
    pub fn workspaces(&self) -> PathBuf {
        self.0.join("workspaces")
    }

    /// Returns the path of the lock of the git commands that make, compare and remove workspaces.
    pub(crate) fn git_lock(&self) -> PathBuf {
        self.0.join("git.lock")
    }

    /// Returns the path of the log of a daemon in the background.
    pub fn log(&self) -> PathBuf {
        self.0.join("daemon.log")
    }

    /// Returns the path of the owner's socket. It is a symbolic link if the path is too long for a socket.
    pub fn socket(&self) -> PathBuf {
        self.0.join("sock")
    }

    /// Checks that the folder can be written: writes and syncs a file without a name, and returns an error if that
    /// fails. The size of the file is about the minimum that a job writes.
    pub fn test_write(&self) -> io::Result<()> {
        test_write_in(&self.0)
    }

    /// Creates missing folders, accessible only by the owner, because prompts and output may contain anything. Refuses
    /// the folder if it, or an entry in it, belongs to another user, or if it contains a symbolic link that cowhand did
    /// not make.
    pub fn create(&self) -> io::Result<()> {
        self.restore_modes();
        self.check()?;
        for folder in [self.0.clone(), self.jobs(), self.attempts()] {
            DirBuilder::new().recursive(true).mode(0o700).create(folder)?;
        }
        self.close_to_others()?;
        self.keep_out_of_git()
    }

    /// Returns an error if the folder cannot be used safely.
    pub fn check(&self) -> io::Result<()> {
        guard::check(&self.0)
    }

    /// Returns an error if `node`, `job-key` or the lock file exists and is damaged or cannot be read, for example
    /// because it is a pipe, or if something is in the place of a socket. A start would then fail. Creates nothing.
    pub fn check_files(&self) -> io::Result<()> {
        for path in [self.0.join("node"), self.0.join("job-key"), self.lock_file()] {
            match read_small(&path) {
                Err(error) if error.kind() != io::ErrorKind::NotFound => {
                    return Err(unreadable(&path, &error));
                }
                _ => {}
            }
        }
        if !cowhand_system::remove::is_missing(&self.0.join("node")) {
            self.node()?;
        }
        if !cowhand_system::remove::is_missing(&self.0.join("job-key")) {
            self.job_key()?;
        }
        job_socket::check_socket_places(self)
    }

    /// Removes the rights of other users, so that they can reach nothing in the folder, whatever the umask was when it
    /// was created.
    pub fn close_to_others(&self) -> io::Result<()> {
        guard::close(&self.0)
    }

    /// Writes a `.gitignore`, so that prompts and output are not committed by accident.
    fn keep_out_of_git(&self) -> io::Result<()> {
        let file =
            OpenOptions::new().write(true).create_new(true).mode(0o600).open(self.0.join(".gitignore"));
        match file {
            Ok(mut file) => file.write_all(b"*\n"),
            Err(error) if error.kind() == io::ErrorKind::AlreadyExists => Ok(()),
            Err(error) => Err(error),
        }
    }

    /// Returns whether this user may not look into the state folder, so that the caller cannot know whether a daemon
    /// runs.
    pub fn is_closed_to_this_user(&self) -> bool {
        fs::metadata(self.lock_file()).is_err_and(|error| error.kind() == io::ErrorKind::PermissionDenied)
    }

    /// Returns the key from which the tokens of jobs are made. It is generated once and readable only by the owner.
    pub fn job_key(&self) -> io::Result<Vec<u8>> {
        const JOB_KEY_LENGTH: usize = 32;
        let path = self.0.join("job-key");
        match read_small(&path) {
            Ok(key) if key.len() == JOB_KEY_LENGTH => Ok(key),
            Ok(_) => {
                Err(io::Error::other(format!("{} is damaged; remove it if no agent runs", path.display())))
            }
            Err(error) if error.kind() == io::ErrorKind::NotFound => {
                let mut key = vec![0; JOB_KEY_LENGTH];
                let filled = SystemRandom::new().fill(&mut key);
                filled.map_err(|_| io::Error::other("the system returned no random bytes"))?;
                // A temporary file is created with access for the owner only.
                let mut file = tempfile::NamedTempFile::new_in(&self.0)?;
                file.write_all(&key)?;
                file.as_file().sync_all()?;
                file.persist(&path)?;
                Ok(key)
            }
            Err(error) => Err(unreadable(&path, &error)),
        }
    }

    /// Returns the id of this node, if it has one already.
    pub fn known_node(&self) -> Option<String> {
        let id = String::from_utf8(read_small(&self.0.join("node")).ok()?).ok()?;
        Some(id.trim().to_owned()).filter(|id| !id.is_empty())
    }

    /// Returns the id of this node. It stays the same after a restart, so that the daemon finds its own leases.
    pub fn node(&self) -> io::Result<String> {
        let path = self.0.join("node");
        let text = |bytes| {
            String::from_utf8(bytes).map_err(|error| io::Error::new(io::ErrorKind::InvalidData, error))
        };
        match read_small(&path).and_then(text) {
            Ok(id) if !id.trim().is_empty() => Ok(id.trim().to_owned()),
            Ok(_) => {
                Err(io::Error::other(format!("{} is empty; remove it if no agent runs", path.display())))
            }
            Err(error) if error.kind() == io::ErrorKind::NotFound => {
                let id = Uuid::now_v7().to_string();
                let mut file = tempfile::NamedTempFile::new_in(&self.0)?;
                file.write_all(id.as_bytes())?;
                file.as_file().sync_all()?;
                file.persist(&path)?;
                Ok(id)
            }
            Err(error) => Err(unreadable(&path, &error)),
        }
    }
}

/// Reads a small file of the state folder. Fails without blocking if a pipe or another special file is in its place.
pub(crate) fn read_small(path: &Path) -> io::Result<Vec<u8>> {
    const MAX_BYTES: u64 = 16 << 20;
    named_file::read(path, MAX_BYTES)
}

/// Adds the path of a file to the error of reading it. Only some errors mean that the file is damaged: after others, for
/// example too many open files, its removal would lose intact data.
fn unreadable(path: &Path, error: &io::Error) -> io::Error {
    use io::ErrorKind::{FileTooLarge, InvalidData, InvalidInput, IsADirectory};
    let path = path.display();
    let message = match error.kind() {
        FileTooLarge | InvalidData | InvalidInput | IsADirectory => {
            format!("{path} is damaged: {error}; remove it if no agent runs")
        }
        _ => format!("cannot read {path}: {error}"),
    };
    io::Error::new(error.kind(), message)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Opening a pipe would block.
    #[test]
    fn pipes_in_place_of_files_are_reported_as_damaged() {
        let folder = tempfile::tempdir().unwrap();
        let state = StateFolder::at(folder.path());
        for name in ["node", "job-key", "daemon.lock", "store.json", "views"] {
            let path = folder.path().join(name);
            let made = std::process::Command::new("mkfifo").arg(path).status().unwrap();
            assert!(made.success());
        }
        let errors = [state.node().unwrap_err(), state.job_key().unwrap_err()];
        for error in errors.map(|error| error.to_string()) {
            assert!(error.contains("is damaged: it is a pipe, not a regular file; remove it"), "{error}");
        }
        let error = state.check_files().unwrap_err().to_string();
        assert!(error.contains("node is damaged: it is a pipe"), "{error}");
        assert_eq!(state.known_node(), None);
        fs::remove_file(folder.path().join("node")).unwrap();
        fs::remove_file(folder.path().join("job-key")).unwrap();
        for error in [state.lock().unwrap_err(), state.check_files().unwrap_err()] {
            assert!(error.to_string().contains("daemon.lock is damaged: it is a pipe"), "{error}");
        }
        assert!(!state.is_locked() && state.lock_holder().is_none() && state.starting_process().is_none());
        let error = state.store_mark().unwrap_err().to_string();
        assert!(error.contains("it is a pipe, not a regular file"), "{error}");
        let mark = StoreMark { id: serde_json::from_str("\"id\"").unwrap(), location: "x".to_owned() };
        state.write_store_mark(&mark).unwrap();
        assert_eq!(state.store_mark().unwrap(), Some(mark));
    }
}
