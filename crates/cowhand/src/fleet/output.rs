//! What jobs say: live, for whoever listens, and what it came to in the end.

use std::collections::VecDeque;

use cowhand_core::id::{AgentName, JobId};
use cowhand_core::job::JobStatus;
use cowhand_core::output::OutputMessage;
use serde::Serialize;
use serde_json::Map;
use tokio::sync::watch;

use super::{Fleet, FleetError};
use crate::run::jsonl::{self, Jsonl};
use crate::state::StateFolder;
use crate::store::Store;

/// A message of a job. Job and line together are its place: whoever knows them can go on from there.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Said {
    pub job: JobId,
    pub agent: AgentName,
    /// Counted from 1 over all attempts of the job.
    pub line: u64,
    pub message: OutputMessage,
}

/// Everything that a job says from one line on, each once and in order.
#[derive(Debug)]
pub struct Output {
    listening: Listening,
    ended: watch::Receiver<bool>,
    agent: AgentName,
    /// The last line that was read.
    line: u64,
    page: VecDeque<Said>,
}

impl Fleet {
    /// All that a job said, and then what it says until it has ended.
    pub async fn output(&self, job: &JobId) -> Result<Output, FleetError> {
        self.output_after(job, 0).await
    }

    /// As above, without the first lines.
    pub async fn output_after(&self, job: &JobId, line: u64) -> Result<Output, FleetError> {
        let agent = self.job(job).await?.agent().clone();
        let listening = Listening::new(self.store(), self.state_folder(), job, line, Some(self));
        Ok(Output { listening, ended: self.ended.clone(), agent, line, page: VecDeque::new() })
    }

    /// Notifies when any job has said something.
    pub(crate) fn output_growth(&self) -> watch::Receiver<()> {
        self.engine.growth.of_any()
    }

    /// What a job came to in its own words, so far if it has not ended: the result that it told, or else the last thing
    /// it said. None if it said nothing, or ran on another machine.
    pub async fn result(&self, job: &JobId) -> Result<Option<String>, FleetError> {
        let job = self.job(job).await?.id().clone();
        result(self.state_folder(), job).await
    }
}

impl Output {
    /// The next message; none once the job has ended and everything was read, or once the fleet has ended, which nobody
    /// else follows. May be dropped while it waits: the next call goes on there.
    ///
    /// A line that is no message, which nobody but a person can have written, comes as `system`.
    pub async fn next(&mut self) -> Result<Option<Said>, FleetError> {
        loop {
            if let Some(said) = self.page.pop_front() {
                return Ok(Some(said));
            }
            // First whether it has ended, then what there is: so nothing that was said before is missed.
            let ended = *self.ended.borrow() || self.ended.has_changed().is_err();
            match self.listening.more().await? {
                None => return Ok(None),
                Some(part) if part.is_empty() && ended => return Ok(None),
                Some(part) if part.is_empty() => tokio::select! {
                    () = self.listening.grown() => {}
                    _ = self.ended.changed() => {}
                },
                Some(part) => self.take(&part),
            }
        }
    }

    fn take(&mut self, part: &[u8]) {
        for line in String::from_utf8_lossy(part).lines() {
            self.line += 1;
            let message = match OutputMessage::read_line(line) {
                Ok(Some(message)) => message,
                Ok(None) => continue,
                Err(_) => OutputMessage::System {
                    subtype: None,
                    content: Some(line.to_owned()),
                    timestamp: None,
                    extra: Map::new(),
                },
            };
            let (job, agent, line) = (self.listening.job.clone(), self.agent.clone(), self.line);
            self.page.push_back(Said { job, agent, line, message });
        }
    }
}

/// The lines of a job as they come, for those who pass them on.
#[derive(Debug)]
pub(crate) struct Listening {
    store: Store,
    job: JobId,
    jsonl: Jsonl,
    /// None if what there is is all.
    growth: Option<watch::Receiver<()>>,
    /// The newest event when it was last looked at: the job's end is one.
    seen: i64,
}

impl Listening {
    /// With a fleet until the job has ended; without one there is nobody who writes.
    pub(crate) fn new(
        store: &Store,
        state: &StateFolder,
        job: &JobId,
        after: u64,
        fleet: Option<&Fleet>,
    ) -> Self {
        Self {
            seen: store.committed(),
            store: store.clone(),
            job: job.clone(),
            jsonl: Jsonl::after(state.output(job), after),
            growth: fleet.map(|fleet| fleet.engine.growth.of(job)),
        }
    }

    /// The next lines; nothing while there are none, none when there will be none.
    pub(crate) async fn more(&mut self) -> Result<Option<Vec<u8>>, FleetError> {
        // First whether it has ended, then what it wrote: so nothing that was written before is missed.
        self.seen = self.store.committed();
        let mut lives = false;
        if let Some(growth) = &mut self.growth {
            growth.mark_unchanged();
            let job = self.store.job(self.job.clone()).await?;
            let job = job.ok_or_else(|| FleetError::NoJob(self.job.clone()))?;
            lives = matches!(job.status(), JobStatus::Pending | JobStatus::Running);
        }
        let part = self.jsonl.more().map_err(|source| unreadable(&self.job, source))?;
        Ok((lives || !part.is_empty()).then_some(part))
    }

    /// Returns when there may be something that the last look did not see, also if it came during that look.
    pub(crate) async fn grown(&mut self) {
        let Some(growth) = &mut self.growth else { return };
        tokio::select! {
            _ = growth.changed() => {}
            () = self.store.changed(self.seen) => {}
        }
    }
}

/// See [`Fleet::result`], which is this for a fleet that runs.
pub(crate) async fn result(state: &StateFolder, job: JobId) -> Result<Option<String>, FleetError> {
    let path = state.output(&job);
    // A large file takes a while.
    let read = tokio::task::spawn_blocking(move || jsonl::final_output(&path)).await;
    read.map_err(std::io::Error::other).flatten().map_err(|source| unreadable(&job, source))
}

fn unreadable(job: &JobId, source: std::io::Error) -> FleetError {
    FleetError::Output { job: job.clone(), source }
}
