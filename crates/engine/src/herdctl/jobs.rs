//! `jobs/<id>.yaml`: the jobs of herdctl. A job that was pending or running when herdctl ended is imported as lost.

use std::path::Path;

use cowhand_core::config::node::Node;
use cowhand_core::id::JobId;
use cowhand_core::job::{
    ErrorKind, ExitReason, Job, JobError, JobRecord, JobStatus, JobUsage, Termination, TriggerType,
};
use jiff::Timestamp;

use super::error::HerdctlFileError;
use super::{HerdctlFolder, field, yaml};
use cowhand_run::redact::Redactor;
use cowhand_store::{History, PastJob};

/// Adds every job that can be read, and a note for every job that cannot be read.
pub(super) fn read(folder: &HerdctlFolder, redactor: &Redactor, history: &mut History) {
    let files = match folder.files("jobs", "yaml") {
        Ok(files) => files,
        Err(error) => {
            history.notes.push(format!("the jobs of herdctl cannot be listed: {error}"));
            return;
        }
    };
    for file in files {
        match job(folder, redactor, &file) {
            Ok(job) => history.jobs.push(PastJob { job, session: None }),
            Err(why) => history.notes.push(format!("{} is not imported: {why}", file.display())),
        }
    }
}

fn job(folder: &HerdctlFolder, redactor: &Redactor, file: &Path) -> Result<Job, HerdctlFileError> {
    let text = folder.text(file)?.ok_or(HerdctlFileError::Gone)?;
    let node = yaml(&text)?;
    let id: JobId = required_field(&node, "id")?;
    if file.file_stem().and_then(|stem| stem.to_str()) != Some(id.as_str()) {
        return Err(HerdctlFileError::OtherJob(id));
    }
    let mut record = record(id, &node)?;
    for text in [&mut record.prompt, &mut record.summary].into_iter().flatten() {
        *text = redactor.redact(text).into_owned();
    }
    Ok(Job::try_from(record)?)
}

fn required_field<T: std::str::FromStr>(node: &Node, key: &str) -> Result<T, HerdctlFileError> {
    field(node, key)?.ok_or_else(|| HerdctlFileError::Missing(key.to_owned()))
}

fn record(id: JobId, node: &Node) -> Result<JobRecord, HerdctlFileError> {
    let started_at: Timestamp = required_field(node, "started_at")?;
    let finished_at = field(node, "finished_at")?.unwrap_or(started_at).max(started_at);
    let End { status, exit_reason, error, termination } = end(node)?;
    Ok(JobRecord {
        output_file: None,
        duration_seconds: None,
        id,
        agent: required_field(node, "agent")?,
        schedule: field(node, "schedule")?,
        // herdctl also has `spawned`, which cowhand does not have.
        trigger_type: field(node, "trigger_type").ok().flatten().unwrap_or(TriggerType::Manual),
        status,
        exit_reason: Some(exit_reason),
        session_id: field(node, "session_id")?,
        forked_from: field(node, "forked_from")?,
        started_at,
        finished_at: Some(finished_at),
        prompt: field(node, "prompt")?,
        summary: field(node, "summary")?,
        work_item: None,
        usage: node.get("usage").filter(|usage| !usage.is_null()).map(usage).transpose()?,
        retry_of: None,
        attempt: 1,
        parks: 0,
        requeued: None,
        run_started_at: Some(started_at),
        attempt_started_at: None,
        not_before: None,
        error,
        termination,
        chat: None,
        message: None,
        confined: None,
    })
}

/// The end of a job.
struct End {
    status: JobStatus,
    exit_reason: ExitReason,
    error: Option<JobError>,
    termination: Option<Termination>,
}

fn end(node: &Node) -> Result<End, HerdctlFileError> {
    let failed = |exit_reason, kind, message: &str| End {
        status: JobStatus::Failed,
        exit_reason,
        error: Some(JobError { kind, message: message.to_owned() }),
        termination: None,
    };
    let ended = |status, exit_reason, termination| End { status, exit_reason, error: None, termination };
    let exit_reason: Option<ExitReason> = field(node, "exit_reason").ok().flatten();
    Ok(match required_field(node, "status")? {
        JobStatus::Completed => ended(JobStatus::Completed, ExitReason::Success, None),
        JobStatus::Cancelled => {
            ended(JobStatus::Cancelled, ExitReason::Cancelled, Some(Termination::Graceful))
        }
        JobStatus::Failed => match exit_reason {
            Some(ExitReason::Timeout) => {
                failed(ExitReason::Timeout, ErrorKind::Timeout, "herdctl ended it when its time was over")
            }
            Some(ExitReason::MaxTurns) => {
                failed(ExitReason::MaxTurns, ErrorKind::Reported, "it reached its limit of turns")
            }
            _ => failed(ExitReason::Error, ErrorKind::Reported, "it failed; herdctl recorded no reason"),
        },
        JobStatus::Pending | JobStatus::Running => {
            failed(ExitReason::Error, ErrorKind::Lost, "lost: herdctl ended before this job did")
        }
    })
}

fn usage(node: &Node) -> Result<JobUsage, HerdctlFileError> {
    let mut usage = JobUsage {
        num_turns: field(node, "num_turns")?,
        total_cost_usd: field(node, "total_cost_usd")?,
        ..JobUsage::default()
    };
    for (model, used) in node.get("per_model").and_then(Node::entries).into_iter().flatten() {
        let tokens = |key| Ok::<u64, HerdctlFileError>(field(&used.node, key)?.unwrap_or_default());
        let model_usage = usage.per_model.entry(model.clone()).or_default();
        model_usage.input_tokens = tokens("input_tokens")?;
        model_usage.output_tokens = tokens("output_tokens")?;
        model_usage.cache_creation_input_tokens = tokens("cache_creation_input_tokens")?;
        model_usage.cache_read_input_tokens = tokens("cache_read_input_tokens")?;
    }
    Ok(usage.bounded())
}
