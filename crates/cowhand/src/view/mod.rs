//! Files for people: `jobs/<id>.yaml` and `state.yaml`, for `cat`, `grep` and `tail -f`.
//!
//! They are views. The store is the truth: what the event log says has changed is written again, and nothing in
//! them is ever read back. A job that the log says was pruned loses all its files here, also those that a prune
//! which was killed left, or one on another machine.

mod state;

use std::collections::BTreeMap;
use std::fs;
use std::io::{self, Write};
use std::path::Path;

use anyhow::Context;
use cowhand_core::event::Fact;
use cowhand_core::id::JobId;
use cowhand_core::job::JobRecord;
use cowhand_core::roster::Roster;
use jiff::Timestamp;
use serde::Serialize;

use crate::prune::files;
use crate::state::StateFolder;
use crate::store::{JobFilter, Store};

#[derive(Debug)]
pub(crate) struct Views {
    state: StateFolder,
    started_at: Timestamp,
    /// The last event whose changes are written.
    cursor: i64,
}

/// Of the newest jobs, those whose file is missing are written again at every start.
const MENDED: u32 = 200;
/// Events looked at together.
const PAGE: u32 = 500;

impl Views {
    pub(crate) fn new(state: StateFolder, started_at: Timestamp) -> Self {
        // A cursor that cannot be read only means that more is written than needed.
        let cursor =
            fs::read_to_string(state.path().join(CURSOR)).ok().and_then(|text| text.trim().parse().ok());
        Self { state, started_at, cursor: cursor.unwrap_or_default() }
    }

    /// Brings back what somebody deleted, and writes what happened while nobody looked.
    pub(crate) async fn mend(
        &mut self,
        store: &Store,
        roster: &Roster,
        now: Timestamp,
    ) -> anyhow::Result<()> {
        for job in store.jobs(JobFilter::default(), MENDED).await? {
            if !self.state.view(job.id()).exists() {
                self.write_job(&job.into())?;
            }
        }
        self.catch_up(store, roster, now).await?;
        state::write(self, store, roster, now).await
    }

    /// Writes every job that an event since the last time tells of; nothing if there was none.
    pub(crate) async fn catch_up(
        &mut self,
        store: &Store,
        roster: &Roster,
        now: Timestamp,
    ) -> anyhow::Result<()> {
        if store.last_event().await? == self.cursor {
            return Ok(());
        }
        loop {
            let events = store.events_after(self.cursor, PAGE).await?;
            let Some(last) = events.last().map(|event| event.seq) else { break };
            // How many attempts of those that were pruned may have left something.
            let mut jobs: BTreeMap<JobId, Option<u32>> = BTreeMap::new();
            for event in events {
                let Some(job) = event.job else { continue };
                let pruned = jobs.entry(job).or_default();
                if let Fact::JobPruned { attempts, .. } = event.fact {
                    *pruned = Some(attempts);
                }
            }
            for (id, pruned) in jobs {
                match (store.job(id.clone()).await?, pruned) {
                    (Some(job), _) => self.write_job(&job.into())?,
                    (None, Some(attempts)) => files::remove(&self.state, &id, attempts)?,
                    // The event that says so is yet to come.
                    (None, None) => {}
                }
            }
            self.cursor = last;
        }
        state::write(self, store, roster, now).await?;
        write_whole(&self.state.path().join(CURSOR), self.cursor.to_string().as_bytes())?;
        Ok(())
    }

    fn write_job(&self, record: &JobRecord) -> anyhow::Result<()> {
        write_yaml(&self.state.view(&record.id), "", record)
    }
}

const CURSOR: &str = "views";

fn write_yaml<T: Serialize>(path: &Path, head: &str, value: &T) -> anyhow::Result<()> {
    let yaml = serde_saphyr::to_string(value).with_context(|| format!("cannot write {}", path.display()))?;
    write_whole(path, format!("{head}{yaml}").as_bytes())
        .with_context(|| format!("cannot write {}", path.display()))
}

/// A reader sees the old file or the new one.
fn write_whole(path: &Path, bytes: &[u8]) -> io::Result<()> {
    let mut file = tempfile::NamedTempFile::new_in(path.parent().unwrap_or(Path::new(".")))?;
    file.write_all(bytes)?;
    file.persist(path)?;
    Ok(())
}
