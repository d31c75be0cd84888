//! `cowhand backup`: writes the store and the output of jobs to one file.

use std::fs::File;
use std::io;
use std::path::{Path, PathBuf};

use clap::Args;
use cowhand_core::size::in_words;
use serde::Serialize;
use tempfile::NamedTempFile;

use super::location::{Connection, FleetLocation, cannot};
use super::{Exit, Failure, print};
use cowhand_engine::backup::{self, BackupCounts};
use cowhand_engine::config;
use cowhand_store::{StoreError, is_postgres};

#[derive(Debug, Args)]
pub(super) struct BackupArgs {
    /// File to write; an existing file is not overwritten
    file: PathBuf,
    /// Leave out the output of jobs
    #[arg(long)]
    no_output: bool,
    /// Print JSON
    #[arg(long)]
    json: bool,
}

#[derive(Debug, Serialize)]
struct WrittenBackup<'m> {
    file: &'m Path,
    bytes: u64,
    jobs: u64,
    outputs: u64,
}

impl BackupArgs {
    pub(super) fn run(self, config: Option<&Path>) -> Result<(), Failure> {
        let location = FleetLocation::find(config)?;
        if self.file.symlink_metadata().is_ok() {
            return Err(self.exists());
        }
        let (contents, bytes) = location.ask(async |client| {
            // A PostgreSQL database is refused here, because the API does not read a database without tables: it reads
            // an empty SQLite store instead, and would back that up.
            if client.is_alone() && uses_postgres(&location) {
                return Err(Failure::new(Exit::Refused, StoreError::PostgresBackup.to_string()));
            }
            if client.is_alone() && !has_store(&location) {
                let message = "there is no store yet, so there is nothing to back up";
                return Err(Failure::new(Exit::Refused, message));
            }
            self.write(client).await
        })?;
        let BackupCounts { jobs, outputs } = contents;
        let (name, number) = (self.file.display(), job_count_in_words(jobs));
        let sentence = format!("{name}: {number}, the output of {outputs}, {}", in_words(bytes));
        print::done(&sentence, &WrittenBackup { file: &self.file, bytes, jobs, outputs }, self.json);
        Ok(())
    }

    fn exists(&self) -> Failure {
        Failure::new(Exit::Refused, format!("{} exists already; choose another name", self.file.display()))
    }

    /// Writes the backup to a temporary file, which gets its name when it has been checked and is on disk. Returns the
    /// counts and the size in bytes.
    async fn write(&self, client: &Connection<'_>) -> Result<(BackupCounts, u64), Failure> {
        let folder = self.file.parent().filter(|folder| !folder.as_os_str().is_empty());
        let folder = folder.unwrap_or(Path::new("."));
        let failed = |error: &io::Error| cannot(&format!("cannot write {}", self.file.display()), error);
        folder.metadata().map_err(|error| failed(&error))?;
        // The error itself names the temporary file.
        let mut file = NamedTempFile::new_in(folder).map_err(|error| failed(&error.kind().into()))?;
        // Without a daemon, this process makes the backup: in the state folder or, if the state folder cannot be
        // written, in the folder for temporary files. The finished backup needs space in `folder` anyway, so `folder`
        // becomes the folder for temporary files. The error is ignored: it only means that the folder for temporary
        // files was set before.
        let _ = tempfile::env::override_temp_dir(folder);
        let path = if self.no_output { "backup?no_output=1" } else { "backup" };
        client.download(path, &mut file).await?;
        file.as_file().sync_all().map_err(|error| failed(&error))?;
        let contents = backup::inspect(file.path()).map_err(|error| {
            Failure::new(Exit::CannotRunHere, format!("the backup is damaged and was removed: {error:#}"))
        })?;
        let bytes = file.as_file().metadata().map_err(|error| failed(&error))?.len();
        file.persist_noclobber(&self.file).map_err(|error| match error.error.kind() {
            io::ErrorKind::AlreadyExists => self.exists(),
            _ => failed(&error.error),
        })?;
        File::open(folder).and_then(|folder| folder.sync_all()).map_err(|error| failed(&error))?;
        Ok((contents, bytes))
    }
}

fn has_store(location: &FleetLocation) -> bool {
    location.state.database().exists() || config::load(&location.config).loaded.roster.store.is_some()
}

fn uses_postgres(location: &FleetLocation) -> bool {
    config::load(&location.config).loaded.roster.store.is_some_and(|store| is_postgres(&store))
}

pub(super) fn job_count_in_words(jobs: u64) -> String {
    if jobs == 1 { "1 job".to_owned() } else { format!("{jobs} jobs") }
}
