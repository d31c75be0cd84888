//! The record of the store to which the attempts in the state folder belong.

use std::fs;
use std::io::{self, Write};
use std::path::PathBuf;

use serde::{Deserialize, Serialize};

use super::StateFolder;
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
    fn store_mark_file(&self) -> PathBuf {
        self.path().join("store.json")
    }

    /// Returns the store that the last daemon used; `None` if no daemon has recorded it, or if the file is damaged.
    pub fn store_mark(&self) -> Option<StoreMark> {
        serde_json::from_slice(&fs::read(self.store_mark_file()).ok()?).ok()
    }

    pub(crate) fn write_store_mark(&self, mark: &StoreMark) -> io::Result<()> {
        if self.store_mark().as_ref() == Some(mark) {
            return Ok(());
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
