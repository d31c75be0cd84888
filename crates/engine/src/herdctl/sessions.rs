//! `sessions/<agent>.json`: the last session of an agent.

use std::path::{Path, PathBuf};

use cowhand_core::id::{AgentName, JobId};
use cowhand_core::job::{ExitReason, Job, JobRecord, JobStatus, RecordError, TriggerType};
use jiff::Timestamp;
use jiff::tz::TimeZone;
use ring::digest::{SHA256, digest};
use serde::Deserialize;

use super::HerdctlFolder;
use super::error::HerdctlFileError;
use cowhand_store::{History, PastJob, PastSession};

/// The file as herdctl writes it; other keys are not needed.
#[derive(Debug, Deserialize)]
struct SessionFile {
    agent_name: AgentName,
    session_id: String,
    created_at: Timestamp,
    last_used_at: Timestamp,
    #[serde(default)]
    working_directory: Option<PathBuf>,
}

/// Assigns each agent's last session to the newest job that had it. For a session without such a job, a job is made, so
/// that `cowhand resume` and the agent's next job find the session.
pub(super) fn read(folder: &HerdctlFolder, history: &mut History) {
    let files = match folder.files("sessions", "json") {
        Ok(files) => files,
        Err(error) => {
            history.notes.push(format!("the sessions of herdctl cannot be listed: {error}"));
            return;
        }
    };
    for file in files {
        match session_file(folder, &file) {
            Ok(session_file) => attach(history, session_file),
            Err(why) => history.notes.push(format!("{} is not imported: {why}", file.display())),
        }
    }
}

fn session_file(folder: &HerdctlFolder, file: &Path) -> Result<SessionFile, HerdctlFileError> {
    let text = folder.text(file)?.ok_or(HerdctlFileError::Gone)?;
    Ok(serde_json::from_str(&text)?)
}

fn attach(history: &mut History, session_file: SessionFile) {
    let has_session = |past: &&mut PastJob| {
        *past.job.agent() == session_file.agent_name
            && past.job.session_id() == Some(session_file.session_id.as_str())
    };
    let session = Some(PastSession { directory: session_file.working_directory.clone() });
    let newest = history.jobs.iter_mut().filter(has_session).max_by_key(|past| past.job.created_at());
    match newest {
        Some(past) => past.session = session,
        None => match session_job(session_file) {
            Ok(job) => history.jobs.push(PastJob { job, session }),
            Err(why) => history.notes.push(why.to_string()),
        },
    }
}

/// Makes a finished job with the session.
fn session_job(session_file: SessionFile) -> Result<Job, HerdctlFileError> {
    let SessionFile { agent_name, session_id, created_at, last_used_at, .. } = session_file;
    let ended = EndedSession {
        agent: agent_name,
        trigger_type: TriggerType::Manual,
        session_id,
        created_at,
        ended_at: last_used_at,
        summary: "A session of herdctl whose job no longer exists.",
        chat: None,
    };
    Ok(ended.job()?)
}

/// A session of herdctl for which a finished job is made.
pub(super) struct EndedSession {
    pub(super) agent: AgentName,
    pub(super) trigger_type: TriggerType,
    pub(super) session_id: String,
    pub(super) created_at: Timestamp,
    pub(super) ended_at: Timestamp,
    pub(super) summary: &'static str,
    /// Conversation to which the session belongs, if it belongs to one.
    pub(super) chat: Option<String>,
}

impl EndedSession {
    /// Makes the job. Its id is derived from the session, so that it is the same in every try.
    pub(super) fn job(self) -> Result<Job, RecordError> {
        let Self { agent, trigger_type, session_id, created_at, ended_at, summary, chat } = self;
        let named = chat.as_ref().map_or_else(|| session_id.clone(), |chat| format!("{chat} {session_id}"));
        let digest = digest(&SHA256, named.as_bytes());
        let number = digest.as_ref().iter().take(8).fold(0, |number, byte| number << 8 | u64::from(*byte));
        let record = JobRecord {
            id: JobId::new(TimeZone::UTC.to_datetime(created_at).date(), number),
            agent,
            schedule: None,
            trigger_type,
            status: JobStatus::Completed,
            exit_reason: Some(ExitReason::Success),
            session_id: Some(session_id),
            forked_from: None,
            started_at: created_at,
            finished_at: Some(ended_at.max(created_at)),
            duration_seconds: None,
            prompt: None,
            summary: Some(summary.to_owned()),
            output_file: None,
            work_item: None,
            usage: None,
            retry_of: None,
            attempt: 1,
            parks: 0,
            requeued: None,
            run_started_at: Some(created_at),
            attempt_started_at: None,
            not_before: None,
            error: None,
            termination: None,
            chat,
            message: None,
            confined: None,
        };
        Job::try_from(record)
    }
}
