//! Output of jobs as live events among the events of the log. The job and the line number identify such an event.

use std::collections::BTreeMap;
use std::path::PathBuf;

use cowhand_core::event::{Event, Fact, JobOutput, OutputKind};
use cowhand_core::id::{AgentName, JobId, ScheduleName};
use cowhand_core::job::{Job, JobStatus};
use jiff::Timestamp;
use serde_json::{Value, json};
use tokio::sync::watch;

use super::events::{PART_BYTES, write_line};
use super::extract::Count;
use super::{Api, ApiProblem, OutputCursor};
use cowhand_run::jsonl::Jsonl;
use cowhand_store::JobFilter;

/// Output of all live jobs, from one moment on.
pub(super) struct LiveOutput {
    api: Api,
    /// `seq` of the newest event at that moment, or of the last event that the caller has. A job that started later is
    /// read from its first line.
    since: i64,
    jobs: BTreeMap<JobId, OutputPosition>,
    /// Lines that were read and not passed on yet.
    pending: Vec<u8>,
    /// Notification of new output; `None` without a daemon, because then no output is written.
    growth: Option<watch::Receiver<()>>,
}

/// Position in the output of a job.
struct OutputPosition {
    agent: AgentName,
    schedule: Option<ScheduleName>,
    path: PathBuf,
    jsonl: Jsonl,
    line: u64,
    /// Set when a line of the job was passed on.
    has_passed_on: bool,
}

impl LiveOutput {
    /// Starts after the current output of live jobs.
    pub(super) async fn of_live_jobs(api: &Api) -> Result<Self, ApiProblem> {
        let since = api.store.last_event().await?;
        Self::open(api, since, &OutputCursor::default()).await
    }

    /// Continues where an earlier answer ended: after the event `since`, and after the lines of the cursor. A job of
    /// the cursor may have ended since then.
    pub(super) async fn after(api: &Api, since: i64, cursor: &OutputCursor) -> Result<Self, ApiProblem> {
        let mut output = Self::open(api, since, cursor).await?;
        for (id, lines) in cursor.jobs() {
            if !output.jobs.contains_key(id)
                && let Some(job) = api.store.job(id.clone()).await?
            {
                output.jobs.insert(id.clone(), OutputPosition::after(api, &job, lines));
            }
        }
        Ok(output)
    }

    async fn open(api: &Api, since: i64, cursor: &OutputCursor) -> Result<Self, ApiProblem> {
        let mut growth = api.daemon().ok().map(cowhand_engine::fleet::Fleet::output_growth);
        if let Some(growth) = &mut growth {
            growth.mark_changed();
        }
        let mut jobs = BTreeMap::new();
        for status in [JobStatus::Running, JobStatus::Pending] {
            let filter = JobFilter { status: Some(status), ..JobFilter::default() };
            for job in api.store.jobs(filter, Count::MAX_COUNT).await? {
                let position = match cursor.get(job.id()) {
                    Some(lines) => OutputPosition::after(api, &job, lines),
                    None if job.attempts() > 0 => OutputPosition::from_the_end(api, &job).await?,
                    None => continue,
                };
                jobs.insert(job.id().clone(), position);
            }
        }
        Ok(Self { api: api.clone(), since, jobs, pending: Vec::new(), growth })
    }

    /// Returns the current position.
    pub(super) fn cursor(&self) -> OutputCursor {
        self.jobs.iter().map(|(job, position)| (job.clone(), position.line)).collect()
    }

    /// Returns the output that has to be passed on before this event: lines that [`Self::give_back`] has kept, or else
    /// new output of the event's job.
    pub(super) fn output_before_event(&mut self, event: &Event) -> Result<Vec<u8>, ApiProblem> {
        if !self.pending.is_empty() {
            return Ok(std::mem::take(&mut self.pending));
        }
        let is_before_output = matches!(
            event.fact,
            Fact::JobCreated | Fact::JobForked { .. } | Fact::JobStarted { attempt: 1, .. }
        );
        let Some(job) = event.job.as_ref().filter(|_| !is_before_output) else { return Ok(Vec::new()) };
        match self.jobs.get_mut(job) {
            Some(followed) => followed.more(job),
            None => Ok(Vec::new()),
        }
    }

    /// Keeps lines that the caller did not pass on. The next call for output returns them.
    pub(super) fn give_back(&mut self, lines: Vec<u8>) {
        self.pending = lines;
    }

    /// Returns the new output of all jobs, up to about [`PART_BYTES`].
    pub(super) fn new_output(&mut self) -> Result<Vec<u8>, ApiProblem> {
        let mut lines = std::mem::take(&mut self.pending);
        for (job, followed) in &mut self.jobs {
            if lines.len() >= PART_BYTES {
                break;
            }
            lines.extend(followed.more(job)?);
        }
        Ok(lines)
    }

    /// Adds the job of an event when it starts, and removes it when it ends.
    pub(super) fn follow(&mut self, event: &Event) {
        let (Some(job), Some(agent)) = (&event.job, &event.agent) else { return };
        match event.fact {
            Fact::JobStarted { attempt: 1, .. } => match self.jobs.get_mut(job) {
                // The caller reads the log from before the start of the job, so it gets all of the output.
                Some(followed) if !followed.has_passed_on => followed.restart(),
                None if event.seq > self.since => {
                    let path = self.api.state.output(job);
                    let followed =
                        OutputPosition::from_the_start(agent.clone(), event.schedule.clone(), path);
                    self.jobs.insert(job.clone(), followed);
                }
                Some(_) | None => {}
            },
            Fact::JobCompleted { .. } | Fact::JobFailed { .. } | Fact::JobCancelled { .. } => {
                self.jobs.remove(job);
            }
            _ => {}
        }
    }

    /// Waits until a job may have new output. Without a daemon, waits forever.
    pub(super) async fn wait_for_growth(&mut self) {
        let is_open = match &mut self.growth {
            Some(growth) => growth.changed().await.is_ok(),
            None => false,
        };
        if !is_open {
            std::future::pending::<()>().await;
        }
    }
}

impl OutputPosition {
    fn from_the_start(agent: AgentName, schedule: Option<ScheduleName>, path: PathBuf) -> Self {
        let jsonl = Jsonl::after(path.clone(), 0);
        Self { agent, schedule, path, jsonl, line: 0, has_passed_on: false }
    }

    /// Starts after lines that the caller has.
    fn after(api: &Api, job: &Job, lines: u64) -> Self {
        let path = api.state.output(job.id());
        let jsonl = Jsonl::after(path.clone(), lines);
        let (agent, schedule) = (job.agent().clone(), job.schedule().cloned());
        Self { agent, schedule, path, jsonl, line: lines, has_passed_on: false }
    }

    async fn from_the_end(api: &Api, job: &Job) -> Result<Self, ApiProblem> {
        let (agent, schedule) = (job.agent().clone(), job.schedule().cloned());
        let mut followed = Self::from_the_start(agent, schedule, api.state.output(job.id()));
        // Reading a large file takes time, so it must not block the other tasks.
        let at_end = tokio::task::spawn_blocking(move || {
            loop {
                let part = followed.jsonl.next_lines()?;
                if part.is_empty() {
                    return Ok(followed);
                }
                followed.line += memchr::memchr_iter(b'\n', &part).count() as u64;
            }
        });
        let at_end: std::io::Result<Self> = at_end.await.unwrap_or_else(|error| Err(error.into()));
        at_end.map_err(|error| unreadable(job.id(), &error))
    }

    fn restart(&mut self) {
        let (agent, schedule, path) = (self.agent.clone(), self.schedule.clone(), self.path.clone());
        *self = Self::from_the_start(agent, schedule, path);
    }

    fn more(&mut self, job: &JobId) -> Result<Vec<u8>, ApiProblem> {
        let part = self.jsonl.next_lines().map_err(|error| unreadable(job, &error))?;
        let mut lines = Vec::with_capacity(part.len() * 2);
        for text in String::from_utf8_lossy(&part).lines() {
            self.line += 1;
            write_line(&mut lines, &self.event(job, text))?;
        }
        self.has_passed_on |= !lines.is_empty();
        Ok(lines)
    }

    /// Builds the event of a line. A line that is not JSON becomes a `system` message.
    fn event(&self, job: &JobId, text: &str) -> JobOutput {
        let output: Value =
            serde_json::from_str(text).unwrap_or_else(|_| json!({ "type": "system", "content": text }));
        let text_field = |key: &str| output.get(key).and_then(Value::as_str);
        JobOutput {
            kind: OutputKind::JobOutput,
            at: text_field("timestamp").and_then(|at| at.parse().ok()).unwrap_or_else(Timestamp::now),
            agent: self.agent.clone(),
            schedule: self.schedule.clone(),
            job: job.clone(),
            line: self.line,
            output_type: text_field("type").unwrap_or("system").to_owned(),
            output,
        }
    }
}

fn unreadable(job: &JobId, error: &std::io::Error) -> ApiProblem {
    ApiProblem::unavailable(format!("the output of {job} cannot be read: {error}"))
}
