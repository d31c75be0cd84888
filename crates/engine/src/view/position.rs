//! The position of a reader in the event log, in a file of the state folder.
//!
//! The file contains the number of the last event that was read, and the time of that event. If the store was replaced,
//! for example by `pg_restore`, the event with this number is missing or has another time.

use std::fmt;
use std::io;
use std::path::Path;

use cowhand_core::event::Event;
use jiff::Timestamp;

use super::write_whole;
use crate::state::read_small;
use cowhand_store::{Store, StoreError};

/// Number and time of the last event that was read. The default is the position before the first event.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct EventPosition {
    pub seq: i64,
    /// Time of the event; `None` if it is not known.
    at: Option<Timestamp>,
}

impl EventPosition {
    pub fn of(event: &Event) -> Self {
        Self { seq: event.seq, at: Some(event.at) }
    }

    /// Returns the position after the event with this number.
    pub async fn after(seq: i64, store: &Store) -> Result<Self, StoreError> {
        let events = store.events_after(seq - 1, 1).await?;
        Ok(Self { seq, at: events.first().filter(|event| event.seq == seq).map(|event| event.at) })
    }

    /// Reads the position from a file; `None` if the file is missing or not valid.
    pub fn read(path: &Path) -> Option<Self> {
        Self::parse(str::from_utf8(&read_small(path).ok()?).ok()?)
    }

    /// Parses the number and, if it is there, the time.
    pub fn parse(text: &str) -> Option<Self> {
        let mut words = text.split_whitespace();
        let seq = words.next()?.parse().ok().filter(|seq| *seq >= 0)?;
        Some(Self { seq, at: words.next().and_then(|word| word.parse().ok()) })
    }

    pub fn write(self, path: &Path) -> io::Result<()> {
        write_whole(path, self.to_string().as_bytes())
    }

    /// Returns whether the store contains the event of this position.
    pub async fn is_in(self, store: &Store) -> Result<bool, StoreError> {
        if self.seq == 0 {
            return Ok(true);
        }
        let stored = Self::after(self.seq, store).await?.at;
        Ok(stored.is_some() && self.at.is_none_or(|at| stored == Some(at)))
    }
}

impl fmt::Display for EventPosition {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.at {
            Some(at) => write!(out, "{} {at}", self.seq),
            None => write!(out, "{}", self.seq),
        }
    }
}
