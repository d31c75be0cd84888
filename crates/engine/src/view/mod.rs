//! Files for people: `jobs/<id>.yaml`, `jobs/<id>/output.log` and `state.yaml`, for `cat`, `grep` and `tail -f`.
//!
//! They are views, which are never read back. If the event log has a change of a job, `jobs/<id>.yaml` and `state.yaml`
//! are written again from the store; `output.log` is a view of the job's JSONL (see [`output`]). If a job was pruned or
//! deleted according to the log, all its files are removed here, including files that an interrupted prune or a prune
//! on another machine has left.

pub mod line;
pub mod output;
pub mod position;
mod progress;
mod state;
pub mod style;

use std::collections::BTreeMap;
use std::fs::{self, DirBuilder};
use std::io::{self, Write};
use std::os::unix::fs::DirBuilderExt;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use anyhow::Context;
use cowhand_core::event::Fact;
use cowhand_core::id::{AgentName, JobId, ScheduleName};
use cowhand_core::job::{Job, JobRecord, JobStatus};
use cowhand_core::roster::Roster;
use jiff::Timestamp;
use serde::Serialize;
use tracing::warn;

use crate::loaded::Loaded;
use crate::prune::files;
use crate::secrets::redactor;
use crate::state::StateFolder;
use cowhand_run::redact::Redactor;
use cowhand_store::{Cancellation, JobFilter, Store, StoreError};
use cowhand_system::remove::missing_is_ok;
use output::OutputLog;
use position::EventPosition;
use progress::Progress;
use state::StateFile;

#[derive(Debug)]
pub struct Views {
    state: StateFolder,
    started_at: Timestamp,
    /// The last event that the files show.
    cursor: EventPosition,
    /// True once the cursor of an earlier daemon is checked: the store contains its event, or the cursor was reset.
    is_cursor_checked: bool,
    /// Jobs with files that could not be written or removed, to be tried again, also by a later daemon. They do not
    /// delay other jobs.
    behind: BTreeMap<JobId, Change>,
    /// Jobs that were removed according to the log since the last call of [`Self::take_removed`].
    removed: Vec<JobId>,
    /// True if it was logged that files are not up to date.
    is_delay_logged: bool,
    /// Redactor for the secrets of the current config.
    redactor: Arc<Redactor>,
    state_file: StateFile,
}

/// A change to the files of a job.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Change {
    Write,
    /// The job was pruned or deleted after this number of attempts. Each attempt may have left files.
    Remove(u32),
}

/// Number of the newest jobs whose missing or changed files are written again at each start.
const MAX_MENDED_JOBS: u32 = 200;
/// Number of events that are read at once.
const EVENTS_PER_READ: u32 = 500;

impl Views {
    pub fn new(state: StateFolder, started_at: Timestamp) -> Self {
        let Progress { cursor, behind } = Progress::read(&state);
        let (removed, redactor) = (Vec::new(), Arc::default());
        let (is_cursor_checked, is_delay_logged) = (false, false);
        let state_file = StateFile::default();
        Self {
            state,
            started_at,
            cursor,
            is_cursor_checked,
            behind,
            removed,
            is_delay_logged,
            redactor,
            state_file,
        }
    }

    /// Returns the number of the last event that the files show.
    pub const fn cursor(&self) -> i64 {
        self.cursor.seq
    }

    /// Returns the removed jobs since the last call.
    pub fn take_removed(&mut self) -> Vec<JobId> {
        std::mem::take(&mut self.removed)
    }

    /// Restores the files of the newest jobs if somebody deleted or changed a file, and writes the changes that an
    /// earlier daemon did not write. A changed `output.log` is not restored.
    pub async fn repair(&mut self, store: &Store, fleet: &Arc<Loaded>, now: Timestamp) -> anyhow::Result<()> {
        self.redactor = redactor(fleet);
        for job in store.jobs(JobFilter::default(), MAX_MENDED_JOBS).await? {
            let mut log = OutputLog::new(&self.state, job.id());
            if wants_log(&fleet.roster, &job)
                && !log.exists()
                && let Err(error) = log.catch_up()
            {
                warn!(job = %job.id(), "cannot write its output.log: {error}");
            }
            let id = job.id().clone();
            let record = JobFile::of(store, job).await?;
            if let Err(error) = self.mend_job(&id, &record) {
                self.put_off(id, Change::Write, &error);
            }
        }
        self.catch_up(store, fleet, now).await?;
        self.write_state(store, fleet, now).await
    }

    /// Writes each job with an event since the last call, and tries failed changes again. If there was no event and no
    /// failed change, writes only `state.yaml`, and only if it is not up to date.
    pub async fn catch_up(
        &mut self,
        store: &Store,
        fleet: &Arc<Loaded>,
        now: Timestamp,
    ) -> anyhow::Result<()> {
        self.redactor = redactor(fleet);
        let newest = store.last_event().await?;
        self.check_cursor(store, newest).await?;
        if newest == self.cursor.seq && self.behind.is_empty() {
            if self.state_file.pause().is_some() {
                self.write_state(store, fleet, now).await?;
            }
            return Ok(());
        }
        for (id, change) in std::mem::take(&mut self.behind) {
            self.change(store, id, change).await?;
        }
        loop {
            let events = store.events_after(self.cursor.seq, EVENTS_PER_READ).await?;
            let Some(last) = events.last().map(EventPosition::of) else { break };
            let mut jobs: BTreeMap<JobId, Change> = BTreeMap::new();
            for event in events {
                if let Fact::ScheduleAdopted { .. } = event.fact {
                    self.rename(store, event.agent.clone(), event.schedule).await?;
                }
                if let Some(agent) = event.agent {
                    self.state_file.change(agent);
                }
                let Some(job) = event.job else { continue };
                let change = jobs.entry(job).or_insert(Change::Write);
                if let Fact::JobPruned { attempts, .. } | Fact::JobDeleted { attempts } = event.fact {
                    *change = Change::Remove(attempts);
                }
            }
            for (id, change) in jobs {
                self.change(store, id, change).await?;
            }
            self.cursor = last;
        }
        self.is_delay_logged = !self.behind.is_empty();
        self.write_state(store, fleet, now).await?;
        Progress { cursor: self.cursor, behind: self.behind.clone() }.write(&self.state)?;
        Ok(())
    }

    async fn write_state(
        &mut self,
        store: &Store,
        fleet: &Arc<Loaded>,
        now: Timestamp,
    ) -> anyhow::Result<()> {
        self.state_file.write(&self.state, store, fleet, self.started_at, now).await
    }

    /// Ends the pause before the next write of `state.yaml`. The daemon does this before its last call, because no
    /// later call would write the file.
    pub fn end_pause(&mut self) {
        self.state_file.end_pause();
    }

    /// Returns how long `state.yaml` has to wait for its next write; `None` if it is up to date.
    pub fn state_pause(&self) -> Option<Duration> {
        self.state_file.pause()
    }

    /// Begins again if the store does not contain the event of the cursor: the store was then replaced by an earlier
    /// state. All views are written again, and records of jobs that the store does not have are removed.
    async fn check_cursor(&mut self, store: &Store, newest: i64) -> anyhow::Result<()> {
        if self.cursor.seq <= newest && (self.is_cursor_checked || self.cursor.is_in(store).await?) {
            self.is_cursor_checked = true;
            return Ok(());
        }
        warn!("the store was replaced, for example by a restore: all records of jobs are written again");
        for entry in files::entries(&self.state.jobs())? {
            let path = entry?.path();
            let Some(id) = job_of_record(&path) else { continue };
            if store.job(id).await?.is_none() {
                missing_is_ok(fs::remove_file(path))?;
            }
        }
        (self.cursor, self.is_cursor_checked) = (EventPosition::default(), true);
        Ok(())
    }

    /// Writes the jobs of a schedule that adopted the jobs of its former name, because there is no event for each of
    /// these jobs.
    async fn rename(
        &mut self,
        store: &Store,
        agent: Option<AgentName>,
        schedule: Option<ScheduleName>,
    ) -> anyhow::Result<()> {
        let mut filter = JobFilter { agent, schedule, ..JobFilter::default() };
        loop {
            let jobs = store.jobs(filter.clone(), EVENTS_PER_READ).await?;
            let Some(last) = jobs.last().map(|job| job.id().clone()) else { return Ok(()) };
            for job in jobs {
                let id = job.id().clone();
                let record = JobFile::of(store, job).await?;
                if let Err(error) = self.mend_job(&id, &record) {
                    self.put_off(id, Change::Write, &error);
                }
            }
            filter.after = Some(last);
        }
    }

    /// Writes or removes the files of one job. A change that fails because of a file is tried again later; only errors
    /// of the store are returned.
    async fn change(&mut self, store: &Store, id: JobId, change: Change) -> anyhow::Result<()> {
        let result = match (store.job(id.clone()).await?, change) {
            (Some(job), _) => self.write_job(&id, &JobFile::of(store, job).await?),
            (None, Change::Remove(attempts)) => {
                self.removed.push(id.clone());
                files::remove(&self.state, &id, attempts).map_err(anyhow::Error::from)
            }
            // The job was removed, and a later event of the log reports the removal.
            (None, Change::Write) => Ok(()),
        };
        if let Err(error) = result {
            self.put_off(id, change, &error);
        }
        Ok(())
    }

    /// Keeps a failed change for the next call. Only the first failure is logged, until no change is pending any more.
    fn put_off(&mut self, id: JobId, change: Change, error: &anyhow::Error) {
        if !std::mem::replace(&mut self.is_delay_logged, true) {
            warn!(job = %id, "its files are not up to date and are tried again: {error:#}");
        }
        self.behind.insert(id, change);
    }

    fn write_job(&self, id: &JobId, record: &JobFile) -> anyhow::Result<()> {
        write_yaml(&self.state.view(id), "", record, &self.redactor)
    }

    /// Writes the record unless the file already contains it.
    fn mend_job(&self, id: &JobId, record: &JobFile) -> anyhow::Result<()> {
        let path = self.state.view(id);
        let yaml = to_yaml(&path, "", record, &self.redactor)?;
        let found = fs::symlink_metadata(&path);
        let is_current = found.is_ok_and(|found| found.is_file() && found.len() == yaml.len() as u64)
            && fs::read(&path).is_ok_and(|found| found == yaml.as_bytes());
        if is_current { Ok(()) } else { write_text(&path, &yaml) }
    }
}

/// The content of `jobs/<id>.yaml`.
#[derive(Debug, Serialize)]
struct JobFile {
    #[serde(flatten)]
    job: JobRecord,
    /// Time and reason of the cancellation, for a cancelled job.
    #[serde(skip_serializing_if = "Option::is_none")]
    cancellation: Option<Cancellation>,
}

impl JobFile {
    async fn of(store: &Store, job: Job) -> Result<Self, StoreError> {
        let is_cancelled = job.status() == JobStatus::Cancelled;
        let cancellation = if is_cancelled { store.cancellation_of(&job).await? } else { None };
        Ok(Self { job: job.into(), cancellation })
    }
}

/// Writes `jobs/<id>.yaml` for an imported job, without a cancellation.
pub(crate) fn write_job(state: &StateFolder, record: &JobRecord, redactor: &Redactor) -> anyhow::Result<()> {
    write_yaml(&state.view(&record.id), "", record, redactor)
}

/// Returns the job if the path is that of a record.
pub(crate) fn job_of_record(path: &Path) -> Option<JobId> {
    path.file_name()?.to_str()?.strip_suffix(".yaml")?.parse().ok()
}

/// Returns whether the job's schedule requests `output.log`.
fn wants_log(roster: &Roster, job: &Job) -> bool {
    let schedules = roster.agent(job.agent()).into_iter().flat_map(|agent| &agent.schedules);
    schedules
        .filter(|schedule| Some(&schedule.name) == job.schedule())
        .any(|schedule| schedule.output_to_file)
}

fn write_yaml<T: Serialize>(path: &Path, head: &str, value: &T, redactor: &Redactor) -> anyhow::Result<()> {
    write_text(path, &to_yaml(path, head, value, redactor)?)
}

/// Serialises a view with masked secrets, because the text of a job may come from anywhere.
fn to_yaml<T: Serialize>(path: &Path, head: &str, value: &T, redactor: &Redactor) -> anyhow::Result<String> {
    let mut view = serde_json::to_value(value)?;
    let has_secret = redactor.redact_view(&mut view);
    let yaml = if has_secret { serde_saphyr::to_string(&view) } else { serde_saphyr::to_string(value) };
    let yaml = yaml.with_context(|| format!("cannot write {}", path.display()))?;
    Ok(format!("{head}{yaml}"))
}

fn write_text(path: &Path, text: &str) -> anyhow::Result<()> {
    write_whole(path, text.as_bytes()).with_context(|| format!("cannot write {}", path.display()))
}

/// Replaces a file atomically: a reader sees the old file or the new file. A missing folder is created.
pub fn write_whole(path: &Path, bytes: &[u8]) -> io::Result<()> {
    let folder = path.parent().unwrap_or(Path::new("."));
    let mut file = match tempfile::NamedTempFile::new_in(folder) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => {
            DirBuilder::new().recursive(true).mode(0o700).create(folder)?;
            tempfile::NamedTempFile::new_in(folder)?
        }
        file => file?,
    };
    file.write_all(bytes)?;
    file.persist(path)?;
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The example record of requirement 001-30 (`tests/seeds.md`), with the indentation that a YAML block needs.
    const DOCUMENTED: &str = r#"id: job-2024-01-19-abc123
agent: bragdoc-marketer
schedule: daily-analytics
trigger_type: schedule
status: completed
exit_reason: success
session_id: claude-session-xyz789
forked_from: null
started_at: "2024-01-19T09:00:00Z"
finished_at: "2024-01-19T09:05:23Z"
duration_seconds: 323
prompt: |
  Analyze site traffic for the past 24 hours.
  Create a brief report and post to #marketing channel.
summary: "Generated daily analytics report. Traffic up 12% from yesterday."
output_file: job-2024-01-19-abc123.jsonl
"#;

    #[test]
    fn the_documented_job_record_is_read_and_written_unchanged() {
        let read: JobRecord = serde_json::from_value(serde_json::json!({
            "id": "job-2024-01-19-abc123",
            "agent": "bragdoc-marketer",
            "schedule": "daily-analytics",
            "trigger_type": "schedule",
            "status": "completed",
            "exit_reason": "success",
            "session_id": "claude-session-xyz789",
            "forked_from": null,
            "started_at": "2024-01-19T09:00:00Z",
            "finished_at": "2024-01-19T09:05:23Z",
            "duration_seconds": 323,
            "prompt": "Analyze site traffic for the past 24 hours.\nCreate a brief report and post to #marketing channel.\n",
            "summary": "Generated daily analytics report. Traffic up 12% from yesterday.",
            "output_file": "job-2024-01-19-abc123.jsonl",
        }))
        .unwrap();
        // The example has no fields for attempts: its job started at once, in its first attempt.
        let record = JobRecord { attempt: 1, run_started_at: Some(read.started_at), ..read };
        let job = Job::try_from(record.clone()).unwrap();
        assert_eq!(
            JobRecord::from(job),
            record,
            "a job keeps all fields of its record, and computes the same duration"
        );
        let folder = tempfile::tempdir().unwrap();
        let state = StateFolder::at(folder.path());
        state.create().unwrap();
        let views = Views::new(state, Timestamp::UNIX_EPOCH);
        views.write_job(&record.id.clone(), &JobFile { job: record.clone(), cancellation: None }).unwrap();
        let text = fs::read_to_string(views.state.view(&record.id)).unwrap();
        // Quotes are optional; cowhand's own fields come after the fields of the example.
        assert!(text.replace('"', "").starts_with(&DOCUMENTED.replace('"', "")), "{text}");
    }
}
