//! Bringing a backup back: looked at first, and what it replaces is kept.

use std::fs;
use std::io::{self, Write};
use std::path::{Path, PathBuf};

use anyhow::Context;
use jiff::Timestamp;

use super::known::Known;
use super::outputs::{Outputs, folder_of};
use super::{Contents, inspect, scratch};
use crate::state::StateFolder;
use cowhand_store::file::{self, beside};
use cowhand_store::{BackupFile, Store};
use cowhand_system::named_file;
use cowhand_system::remove::absent_is_ok;

/// What came back.
#[derive(Debug)]
pub struct Restored {
    pub contents: Contents,
    /// Where the store is that was there before.
    pub aside: Option<PathBuf>,
    /// Why the output of some job is not that of the store.
    pub trouble: Option<io::Error>,
}

/// Puts the backup `from` in the place of the store. Only for whoever has the state folder alone. If anything is wrong
/// with the backup, nothing is changed.
pub async fn restore(from: &Path, state: &StateFolder, now: Timestamp) -> anyhow::Result<Restored> {
    let copy = beside(&state.database(), ".restore");
    let restored = restore_by(&copy, from, state, now).await;
    if restored.is_err() {
        // Whatever it was, it says more than this would.
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
    // A store that was in use has a log, and with it all that it knows.
    if beside(from, "-wal").exists() {
        copy_file(&beside(from, "-wal"), &beside(copy, "-wal"))?;
    }
    let contents = inspect(copy).await?;
    let store = Store::open(&copy.display().to_string()).await?;
    let checked = store.check_integrity().await;
    store.close().await;
    checked?;
    let mut backup = BackupFile::open(copy).await?;
    let files = scratch(state)?;
    take_out(&mut backup, files.path()).await?;
    let known = Known(backup.known_rows().await?);
    backup.close().await?;
    let aside = swap(copy, &state.database(), now)?;
    // They count the events of another history.
    for cursor in ["views", "traces"] {
        absent_is_ok(fs::remove_file(state.path().join(cursor)))?;
    }
    known.forget_others(state);
    let outputs = Outputs { state, known: &known.0, aside: aside.as_deref().map(folder_of) };
    let matched = outputs.take(&folder_of(from)).and(outputs.take(files.path())).and(outputs.cut());
    Ok(Restored { contents, aside, trouble: matched.err() })
}

fn copy_file(from: &Path, to: &Path) -> anyhow::Result<()> {
    let mut source = named_file::open(from)?;
    let mut target = fs::OpenOptions::new().write(true).create(true).truncate(true).open(to)?;
    io::copy(&mut source, &mut target)?;
    Ok(())
}

/// Writes the outputs of jobs to a folder, and leaves the store alone in the file.
async fn take_out(backup: &mut BackupFile, folder: &Path) -> anyhow::Result<()> {
    let Some(names) = backup.names().await? else { return Ok(()) };
    for name in names {
        let mut output = fs::File::create_new(folder.join(&name))?;
        for part in 0_i64.. {
            let Some(bytes) = backup.part(&name, part).await? else { break };
            output.write_all(&bytes)?;
        }
    }
    backup.remove_files().await
}

/// Gives the old store a second name, and its own to the new one. At no moment is there no store.
fn swap(new: &Path, store: &Path, now: Timestamp) -> anyhow::Result<Option<PathBuf>> {
    let aside = beside(store, &now.strftime(".replaced-%Y%m%dT%H%M%S%.3fZ").to_string());
    let there = store.exists();
    if there {
        fs::hard_link(store, &aside)
            .with_context(|| format!("cannot keep the store at {}", aside.display()))?;
    }
    let log = beside(store, "-wal");
    if log.exists() {
        fs::hard_link(&log, beside(&aside, "-wal"))?;
        fs::remove_file(&log)?;
    }
    absent_is_ok(fs::remove_file(beside(store, "-shm")))?;
    file::persist(new, store)?;
    Ok(there.then_some(aside))
}
