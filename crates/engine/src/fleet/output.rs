//! What jobs say: live, for whoever listens, and what it came to in the end.

use std::collections::VecDeque;

use cowhand_core::id::{AgentName, JobId};
use cowhand_core::output::OutputMessage;
use serde::Serialize;
use serde_json::Map;
use tokio::sync::watch;

use super::{Fleet, FleetError};
use crate::output::{Listening, result};

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
        let growth = Some(self.growth_of(job));
        let listening = Listening::new(self.store(), self.state_folder(), job, line, growth);
        Ok(Output { listening, ended: self.ended.clone(), agent, line, page: VecDeque::new() })
    }

    /// Notifies when the job has said something.
    pub fn growth_of(&self, job: &JobId) -> watch::Receiver<()> {
        self.engine.growth.of(job)
    }

    /// Notifies when any job has said something.
    pub fn output_growth(&self) -> watch::Receiver<()> {
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
            let (job, agent, line) = (self.listening.job().clone(), self.agent.clone(), self.line);
            self.page.push_back(Said { job, agent, line, message });
        }
    }
}
