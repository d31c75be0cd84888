//! The output of jobs: live, and their final result.

use std::collections::VecDeque;

use cowhand_core::id::{AgentName, JobId};
use cowhand_core::output::OutputMessage;
use serde::Serialize;
use serde_json::Map;
use tokio::sync::watch;

use super::{Fleet, FleetError};
use crate::output::{OutputReader, result};

/// A message of a job. Job and line together are a cursor from which reading can continue.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct JobMessage {
    pub job: JobId,
    pub agent: AgentName,
    /// Line number, counted from 1 over all attempts of the job.
    pub line: u64,
    pub message: OutputMessage,
}

/// All messages of a job after a given line, each once and in order.
#[derive(Debug)]
pub struct OutputStream {
    reader: OutputReader,
    ended: watch::Receiver<bool>,
    agent: AgentName,
    /// Number of the last line that was read.
    line: u64,
    page: VecDeque<JobMessage>,
}

impl Fleet {
    /// Returns all messages of a job, and new messages until the job has ended.
    pub async fn output(&self, job: &JobId) -> Result<OutputStream, FleetError> {
        self.output_after(job, 0).await
    }

    /// Returns the same as [`Self::output`], without the first `line` lines.
    pub async fn output_after(&self, job: &JobId, line: u64) -> Result<OutputStream, FleetError> {
        let agent = self.job(job).await?.agent().clone();
        let growth = Some(self.growth_of(job));
        let reader = OutputReader::new(self.store(), self.state_folder(), job, line, growth);
        Ok(OutputStream { reader, ended: self.ended.clone(), agent, line, page: VecDeque::new() })
    }

    /// Returns a signal of new output of the job.
    pub fn growth_of(&self, job: &JobId) -> watch::Receiver<()> {
        self.engine.output_notifier.subscribe(job)
    }

    /// Returns a signal of new output of any job.
    pub fn output_growth(&self) -> watch::Receiver<()> {
        self.engine.output_notifier.subscribe_all()
    }

    /// Returns the final output of the last attempt: the result that the agent stated, else its last message, else the
    /// last result of a tool, else its lines of text. For a running job, this is the final output so far. Returns
    /// `None` if there is no output, or if the job ran on another machine.
    pub async fn result(&self, job: &JobId) -> Result<Option<String>, FleetError> {
        let job = self.job(job).await?.id().clone();
        result(self.state_folder(), job).await
    }
}

impl OutputStream {
    /// Returns the next message; `None` once the job has ended and everything is read, or once the fleet has ended,
    /// because then nobody follows the job. The future can be dropped while it waits; the next call continues at the
    /// same message.
    ///
    /// A line that is not a message is returned as `system`. Only a person can have written such a line.
    pub async fn next(&mut self) -> Result<Option<JobMessage>, FleetError> {
        loop {
            if let Some(message) = self.page.pop_front() {
                return Ok(Some(message));
            }
            // Check for the end before reading, so that messages before the end are not missed.
            let ended = *self.ended.borrow() || self.ended.has_changed().is_err();
            match self.reader.more().await? {
                None => return Ok(None),
                Some(part) if part.is_empty() && ended => return Ok(None),
                Some(part) if part.is_empty() => tokio::select! {
                    () = self.reader.grown() => {}
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
            let (job, agent, line) = (self.reader.job().clone(), self.agent.clone(), self.line);
            self.page.push_back(JobMessage { job, agent, line, message });
        }
    }
}
