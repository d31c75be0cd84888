//! Backups of a fleet on SQLite: one file, which is a database with the store and the output of jobs.
//!
//! The lock, the node's id, the key of job tokens, the folders of attempts and the views are not part of a backup: they
//! belong to processes on this machine, or are generated.

pub mod restore;

use std::fs::{self, File, OpenOptions};
use std::io::{self, Read};
use std::os::unix::fs::OpenOptionsExt;
use std::path::Path;

use anyhow::{Context, bail};
use cowhand_core::id::JobId;
use tempfile::TempDir;
use tracing::warn;

use crate::prune::files;
use crate::state::StateFolder;
use cowhand_run::shortage;
use cowhand_store::{BackupFile, Store, file};
use cowhand_system::blocking::run_blocking;

/// Maximum number of bytes of a job's file in one row of the backup.
const BYTES_PER_ROW: usize = 1 << 20;
/// Extensions of the files of a job that a backup contains, in addition to the rows of the job.
const BACKED_UP_EXTENSIONS: [&str; 2] = ["jsonl", "diff"];
/// Prefix of the folders in which backups are made.
const SCRATCH: &str = "backup-";

/// The number of jobs and outputs in a backup.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct BackupCounts {
    pub jobs: u64,
    pub outputs: u64,
}

/// Makes a backup of the committed state. The returned file has no name and is deleted when it is closed.
pub async fn make(store: &Store, state: &StateFolder, with_output: bool) -> anyhow::Result<File> {
    match make_in(scratch(state), store, state, with_output).await {
        Err(error) if cannot_be_written(&format!("{error:#}")) => {
            warn!(
                "the disk of the state folder is full or read-only: the backup is made in the folder for temporary files"
            );
            let folder = tempfile::Builder::new().prefix(SCRATCH).tempdir();
            make_in(folder, store, state, with_output).await.context(error.to_string())
        }
        made => made,
    }
}

fn cannot_be_written(message: &str) -> bool {
    shortage::is_shortage(message) || message.contains("Read-only file system")
}

async fn make_in(
    folder: io::Result<TempDir>,
    store: &Store,
    state: &StateFolder,
    with_output: bool,
) -> anyhow::Result<File> {
    let folder = folder.context("cannot create a folder for the backup")?;
    let path = folder.path().join("store.db");
    file::create(&path).context("cannot create the file of the backup")?;
    store.copy_to(&path).await?;
    let jobs = with_output.then(|| state.jobs());
    // The folder is removed when the backup is complete; the open file stays.
    run_blocking(move || add_outputs(&folder.path().join("store.db"), jobs.as_deref())).await
}

/// Adds the outputs of jobs to the copy of a store, if there is a folder with outputs. Returns the copy.
fn add_outputs(path: &Path, outputs: Option<&Path>) -> anyhow::Result<File> {
    let mut backup = BackupFile::open(path)?;
    backup.add_table()?;
    if let Some(outputs) = outputs {
        // The output of a job that is not in the copy of the store is not part of the backup.
        let jobs = backup.known_rows()?.jobs;
        backup.begin()?;
        for entry in files::entries(outputs)? {
            let path = entry?.path();
            let job = path.file_stem().and_then(|stem| stem.to_str());
            if job.is_some_and(|job| jobs.contains(job)) {
                add_output(&mut backup, &path)?;
            }
        }
        backup.commit()?;
    }
    backup.close()?;
    Ok(File::open(path)?)
}

/// Creates a folder in the state folder, or in the folder for temporary files if the state folder does not exist.
fn scratch(state: &StateFolder) -> io::Result<TempDir> {
    let mut folder = tempfile::Builder::new();
    folder.prefix(SCRATCH);
    match folder.tempdir_in(state.path()) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => folder.tempdir(),
        made => made,
    }
}

/// Removes the folders of interrupted backups. The caller must hold the lock of the state folder.
pub(crate) fn remove_scratch(state: &StateFolder) -> io::Result<()> {
    for entry in files::entries(state.path())? {
        let entry = entry?;
        if entry.file_name().to_string_lossy().starts_with(SCRATCH) && entry.file_type()?.is_dir() {
            fs::remove_dir_all(entry.path())?;
        }
    }
    Ok(())
}

/// Adds a file of a job in parts. Other files are skipped, and no link is followed.
fn add_output(backup: &mut BackupFile, path: &Path) -> anyhow::Result<()> {
    let Some(name) = path.file_name().and_then(|name| name.to_str()).filter(|name| is_output(name)) else {
        return Ok(());
    };
    let Some(mut output) = open_output(path)? else { return Ok(()) };
    for part in 0_i64.. {
        let mut bytes = Vec::new();
        output.by_ref().take(BYTES_PER_ROW as u64).read_to_end(&mut bytes)?;
        if bytes.is_empty() && part > 0 {
            break;
        }
        backup.add_part(name, part, &bytes)?;
    }
    Ok(())
}

/// Opens a file of a job. Returns `None` if it is missing or is not a regular file.
fn open_output(path: &Path) -> anyhow::Result<Option<File>> {
    let opened = OpenOptions::new().read(true).custom_flags(libc::O_NOFOLLOW | libc::O_NONBLOCK).open(path);
    match opened {
        Ok(output) => Ok(output.metadata()?.is_file().then_some(output)),
        // The file was pruned meanwhile, or is a link or a socket.
        Err(error)
            if error.kind() == io::ErrorKind::NotFound
                || matches!(error.raw_os_error(), Some(libc::ELOOP | libc::ENXIO)) =>
        {
            Ok(None)
        }
        Err(error) => Err(error).with_context(|| format!("cannot read {}", path.display())),
    }
}

/// Returns whether a name is `<job>.jsonl` or `<job>.diff`. Such a name cannot lead to another folder.
fn is_output(name: &str) -> bool {
    name.split_once('.')
        .is_some_and(|(job, kind)| job.parse::<JobId>().is_ok() && BACKED_UP_EXTENSIONS.contains(&kind))
}

/// Checks that a file is a complete backup or a complete store, and returns the number of jobs and outputs in it.
pub fn inspect(path: &Path) -> anyhow::Result<BackupCounts> {
    if fs::metadata(path)?.len() == 0 {
        bail!("it is empty");
    }
    let mut backup = BackupFile::open(path)?;
    let contents = count_contents(&mut backup);
    backup.close()?;
    contents
}

fn count_contents(backup: &mut BackupFile) -> anyhow::Result<BackupCounts> {
    let jobs = backup.check()?;
    let mut outputs = 0;
    for name in backup.names()?.unwrap_or_default() {
        if !is_output(&name) {
            bail!("it names a file that is not the output of a job: {name}");
        }
        outputs += u64::from(Path::new(&name).extension() == Some("jsonl".as_ref()));
    }
    Ok(BackupCounts { jobs, outputs })
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A link is skipped. A file that cannot be opened for another reason is an error, because its output would be
    /// missing in the backup.
    #[test]
    fn only_missing_files_and_links_are_skipped() {
        let folder = tempfile::tempdir().unwrap();
        let path = |name: &str| folder.path().join(name);
        fs::write(path("file"), "x").unwrap();
        fs::create_dir(path("folder")).unwrap();
        std::os::unix::fs::symlink("file", path("link")).unwrap();
        assert!(open_output(&path("file")).unwrap().is_some());
        for skipped in ["gone", "link", "folder"] {
            assert!(open_output(&path(skipped)).unwrap().is_none(), "{skipped}");
        }
        let error = format!("{:#}", open_output(&path("file/x")).unwrap_err());
        assert!(error.contains("cannot read ") && error.contains("file/x: Not a directory"), "{error}");
    }

    #[test]
    fn only_outputs_of_jobs_belong_to_a_backup() {
        for (name, belongs) in [
            ("job-2026-01-05-abc123.jsonl", true),
            ("job-2026-01-05-abc123.diff", true),
            ("job-2026-01-05-abc123.yaml", false),
            ("../job-2026-01-05-abc123.jsonl", false),
            ("job-2026-01-05-abc123.jsonl/x", false),
            ("/etc/passwd", false),
            ("store.db", false),
        ] {
            assert_eq!(is_output(name), belongs, "{name}");
        }
    }
}
