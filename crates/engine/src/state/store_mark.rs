//! The record of the store to which the attempts in the state folder belong.

use std::fs;
use std::io::{self, Write};
use std::path::PathBuf;

use serde::{Deserialize, Serialize};
use tracing::warn;

use super::{StateFolder, read_small};
use cowhand_store::StoreId;
use cowhand_system::remove::missing_is_ok;

/// The store that the last daemon of the folder used.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct StoreMark {
    pub id: StoreId,
    /// Path of the SQLite file, or address of the PostgreSQL server without user and password.
    pub location: String,
}

impl StateFolder {
    /// Returns the path of the record of the store.
    pub fn store_mark_file(&self) -> PathBuf {
        self.path().join("store.json")
    }

    /// Returns the store that the last daemon used; `None` if no daemon has recorded it. Fails if the file cannot be
    /// read or is damaged.
    pub fn store_mark(&self) -> io::Result<Option<StoreMark>> {
        match read_small(&self.store_mark_file()) {
            Ok(text) => Ok(Some(serde_json::from_slice(&text)?)),
            Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(None),
            Err(error) => Err(error),
        }
    }

    /// Writes the record. Replaces a damaged record, and logs this.
    pub(crate) fn write_store_mark(&self, mark: &StoreMark) -> io::Result<()> {
        match self.store_mark() {
            Ok(Some(known)) if known == *mark => return Ok(()),
            Ok(_) => {}
            Err(error) => {
                warn!("{} is damaged and is written again: {error}", self.store_mark_file().display());
            }
        }
        let mut file = tempfile::NamedTempFile::new_in(self.path())?;
        file.write_all(&serde_json::to_vec(mark)?)?;
        file.as_file().sync_all()?;
        file.persist(self.store_mark_file())?;
        Ok(())
    }

    /// Removes the record, because a person chose another store for the attempts of the folder.
    pub(crate) fn remove_store_mark(&self) -> io::Result<()> {
        missing_is_ok(fs::remove_file(self.store_mark_file()))
    }
}
