//! Restores a backup. The backup is checked first, and the replaced store is kept.

mod outputs;
mod rows;

use std::fs;
use std::io::{self, Write};
use std::path::{Path, PathBuf};

use anyhow::Context;
use jiff::Timestamp;
use outputs::{Outputs, folder_of};
use rows::RestoredRows;

use super::{BackupCounts, inspect, scratch};
use crate::state::StateFolder;
use cowhand_store::file::{self, beside};
use cowhand_store::{BackupFile, RevokedToken, Store};
use cowhand_system::named_file;
use cowhand_system::remove::missing_is_ok;

/// Result of a restore.
#[derive(Debug)]
pub struct Restored {
    pub contents: BackupCounts,
    /// Path at which the replaced store is kept; `None` if there was no store.
    pub replaced: Option<PathBuf>,
    /// Write-ahead log that belongs to the replaced store; `None` if the replaced store contains all its data.
    pub replaced_log: Option<PathBuf>,
    /// Error because of which the output files of some jobs do not match the restored store.
    pub output_error: Option<io::Error>,
    /// Names of the tokens that were valid in the backup and revoked in the replaced store. They are revoked again. An
    /// error if the replaced store cannot be read.
    pub revoked_tokens: anyhow::Result<Vec<String>>,
}

/// Replaces the store with the backup `from`, and makes the output files of jobs match the backup. The caller must hold
/// the lock of the state folder. If the backup is not valid, nothing is changed.
pub async fn restore(from: &Path, state: &StateFolder, now: Timestamp) -> anyhow::Result<Restored> {
    let copy = beside(&state.database(), ".restore");
    let restored = restore_by(&copy, from, state, now).await;
    if restored.is_err() {
        // The original error is more useful than an error of the removal.
        file::remove(&copy).ok();
    }
    restored.with_context(|| format!("cannot restore {}", from.display()))
}

async fn restore_by(
    copy: &Path,
    from: &Path,
    state: &StateFolder,
    now: Timestamp,
) -> anyhow::Result<Restored> {
    file::create(copy)?;
    copy_file(from, copy)?;
    // `from` can also be a store. A store that was in use has a write-ahead log with its latest data.
    if beside(from, "-wal").exists() {
        copy_file(&beside(from, "-wal"), &beside(copy, "-wal"))?;
    }
    let contents = inspect(copy)?;
    let opened = Store::open(&copy.display().to_string()).await;
    let store = opened.map_err(|error| error.at(from.display().to_string()))?;
    let checked = store.check_integrity().await;
    store.close().await;
    checked?;
    let mut backup = BackupFile::open(copy)?;
    let files = scratch(state)?;
    take_out(&mut backup, files.path())?;
    backup.end_chats(now)?;
    let rows = RestoredRows(backup.known_rows()?);
    let former = state.database();
    let revoked = if former.exists() { RevokedToken::all(&former) } else { Ok(Vec::new()) };
    let revoked_tokens = revoked.and_then(|revoked| backup.revoke_tokens(&revoked));
    backup.close()?;
    let (replaced, replaced_log) = swap(copy, &state.database(), now)?;
    // The cursors belong to the event log of the replaced store.
    for cursor in ["views", "traces"] {
        missing_is_ok(fs::remove_file(state.path().join(cursor)))?;
    }
    state.write_restored_at(now)?;
    // The backup may be of another store.
    state.remove_store_mark()?;
    rows.remove_unknown(state);
    let outputs = Outputs { state, rows: &rows.0, replaced: replaced.as_deref().map(folder_of) };
    let matched = outputs.take(&folder_of(from)).and(outputs.take(files.path())).and(outputs.cut());
    let output_error = matched.err();
    Ok(Restored { contents, replaced, replaced_log, output_error, revoked_tokens })
}

fn copy_file(from: &Path, to: &Path) -> anyhow::Result<()> {
    let mut source = named_file::open(from)?;
    let mut target = fs::OpenOptions::new().write(true).create(true).truncate(true).open(to)?;
    io::copy(&mut source, &mut target)?;
    Ok(())
}

/// Writes the outputs of jobs to a folder, and removes them from the backup, so that only the store is left in the
/// backup.
fn take_out(backup: &mut BackupFile, folder: &Path) -> anyhow::Result<()> {
    let Some(names) = backup.names()? else { return Ok(()) };
    for name in names {
        let mut output = fs::File::create_new(folder.join(&name))?;
        for part in 0_i64.. {
            let Some(bytes) = backup.part(&name, part)? else { break };
            output.write_all(&bytes)?;
        }
    }
    backup.remove_files()
}

/// Replaces the store with the new file, and returns the path at which the old store is kept; `None` if there was no
/// store. Also returns the path of the old store's write-ahead log, if the log cannot be written into the old store.
/// The old store gets its second name first, so that a store exists at any moment.
fn swap(new: &Path, store: &Path, now: Timestamp) -> anyhow::Result<(Option<PathBuf>, Option<PathBuf>)> {
    let replaced = beside(store, &now.strftime(".replaced-%Y%m%dT%H%M%S%.3fZ").to_string());
    let (exists, log) = (store.exists(), beside(store, "-wal"));
    // After a crash, the newest data of the old store is in its log.
    if exists && log.exists() && file::fold_log(store) {
        missing_is_ok(fs::remove_file(&log))?;
    }
    if exists {
        fs::hard_link(store, &replaced)
            .with_context(|| format!("cannot keep the store at {}", replaced.display()))?;
    }
    let mut replaced_log = None;
    if log.exists() {
        let kept = beside(&replaced, "-wal");
        fs::hard_link(&log, &kept)?;
        fs::remove_file(&log)?;
        replaced_log = Some(kept);
    }
    missing_is_ok(fs::remove_file(beside(store, "-shm")))?;
    file::persist(new, store)?;
    Ok((exists.then_some(replaced), replaced_log))
}
