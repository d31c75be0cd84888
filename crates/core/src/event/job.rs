//! The record of an event's job at the time of the event.
//!
//! The event log has no copies of jobs: a copy would outlive a pruned job, and prompts can be large. Instead, the
//! record is built from the event and the current row of the job. This is possible because the fields that a job gets
//! at its creation do not change later, and an ended job does not change. The only exception is a renamed schedule: the
//! records of its old events show its new name. In the record of a created or started job, a field whose value at that
//! time is unknown is empty, for example the usage of earlier attempts.

use jiff::Timestamp;

use super::{Event, Fact};
use crate::cut::cut;
use crate::job::{JobRecord, JobStatus};

/// Length in bytes to which the prompt, the summary and the description of the work item are cut in events. The job
/// itself has the full texts.
const MAX_TEXT_BYTES: usize = 16 << 10;

impl Event {
    /// Checks whether events of this type contain the record of their job.
    pub const fn contains_job(&self) -> bool {
        matches!(
            self.fact,
            Fact::JobCreated
                | Fact::JobForked { .. }
                | Fact::JobStarted { .. }
                | Fact::JobCompleted { .. }
                | Fact::JobFailed { .. }
                | Fact::JobCancelled { .. }
        )
    }

    /// Adds the records of the job and of the job that it was forked from. The arguments are the current records.
    pub fn attach_records(&mut self, job: Option<JobRecord>, original: Option<JobRecord>) {
        let then = |job: JobRecord| match self.fact {
            Fact::JobCreated | Fact::JobForked { .. } => as_created(job),
            Fact::JobStarted { attempt, .. } => as_started(job, attempt, self.at),
            _ => job,
        };
        self.job_record = job.map(then).map(with_short_texts).map(Box::new);
        self.original_job_record = original.map(with_short_texts).map(Box::new);
    }
}

/// Returns the record at the creation of the job. Fields that do not change after the creation are copied. All other
/// fields get their first value. The code names every field, so that the compiler reports a field that is new in
/// `JobRecord`.
fn as_created(job: JobRecord) -> JobRecord {
    JobRecord {
        id: job.id,
        agent: job.agent,
        schedule: job.schedule,
        trigger_type: job.trigger_type,
        forked_from: job.forked_from,
        started_at: job.started_at,
        prompt: job.prompt,
        output_file: job.output_file,
        work_item: job.work_item,
        retry_of: job.retry_of,
        chat: job.chat,
        message: job.message,
        confined: job.confined,
        status: JobStatus::Pending,
        exit_reason: None,
        session_id: None,
        finished_at: None,
        duration_seconds: None,
        summary: None,
        usage: None,
        attempt: 0,
        parks: 0,
        requeued: None,
        run_started_at: None,
        attempt_started_at: None,
        not_before: None,
        error: None,
        termination: None,
    }
}

/// Returns the record at the start of an attempt. The first attempt has no session yet. A later attempt gets the
/// current session of the job, which an earlier attempt usually began. The run starts with the first attempt that
/// begins. In the event of an earlier attempt, which never began, the time of the event counts as the start of the run.
fn as_started(job: JobRecord, attempt: u32, at: Timestamp) -> JobRecord {
    let session_id = job.session_id.clone().filter(|_| attempt > 1);
    let run_started_at = job.run_started_at.filter(|start| attempt > 1 && *start <= at).or(Some(at));
    let attempt_started_at = Some(at);
    let status = JobStatus::Running;
    JobRecord { status, session_id, attempt, run_started_at, attempt_started_at, ..as_created(job) }
}

fn with_short_texts(mut job: JobRecord) -> JobRecord {
    let description = job.work_item.as_mut().map(|item| &mut item.description);
    for text in [job.prompt.as_mut(), job.summary.as_mut(), description].into_iter().flatten() {
        if text.len() > MAX_TEXT_BYTES {
            *text = cut(text, 0, MAX_TEXT_BYTES);
        }
    }
    job
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::job::{ErrorKind, ExitReason};

    fn record() -> JobRecord {
        serde_json::from_value(json!({
            "id": "job-2026-01-01-aaaaaa", "agent": "a", "schedule": "s", "trigger_type": "schedule",
            "status": "failed", "exit_reason": "error", "session_id": "s-1", "forked_from": null,
            "started_at": "2026-01-01T00:00:00Z", "finished_at": "2026-01-01T00:09:00Z", "duration_seconds": 480,
            "prompt": "x".repeat(20_000), "summary": "done", "output_file": "job-2026-01-01-aaaaaa.jsonl",
            "attempt": 2, "run_started_at": "2026-01-01T00:01:00Z",
            "error": {"kind": "exit", "message": "exit code 1"},
        }))
        .unwrap()
    }

    fn carried(fact: Fact) -> JobRecord {
        carried_at("2026-01-01T00:05:00Z", fact)
    }

    fn carried_at(at: &str, fact: Fact) -> JobRecord {
        let at = at.parse().unwrap();
        let (job, agent) = (Some(record().id), Some(record().agent));
        let mut event = Event {
            seq: 1,
            at,
            agent,
            schedule: None,
            job,
            by: None,
            fact,
            job_record: None,
            original_job_record: None,
        };
        assert!(event.contains_job());
        event.attach_records(Some(record()), None);
        *event.job_record.unwrap()
    }

    #[test]
    fn an_event_shows_the_job_at_the_time_of_the_event() {
        let created = carried(Fact::JobCreated);
        assert_eq!((created.status, created.attempt, created.run_started_at), (JobStatus::Pending, 0, None));
        assert_eq!((created.error, created.summary, created.session_id), (None, None, None));
        let first = carried(Fact::JobStarted { attempt: 1, node: "n".into() });
        assert_eq!((first.status, first.attempt, first.session_id), (JobStatus::Running, 1, None));
        assert_eq!(first.run_started_at, first.attempt_started_at, "even if it was started again later");
        let second = carried(Fact::JobStarted { attempt: 2, node: "n".into() });
        assert_eq!((second.attempt, second.session_id.as_deref()), (2, Some("s-1")));
        assert_eq!(second.run_started_at, record().run_started_at, "start of the first attempt");
        assert_eq!(second.exit_reason, None);
        let (exit_reason, kind) = (ExitReason::Error, ErrorKind::Exit);
        let failed = carried(Fact::JobFailed {
            exit_reason,
            duration_seconds: 480,
            kind,
            message: "exit code 1".into(),
        });
        assert_eq!(JobRecord { prompt: record().prompt, ..failed.clone() }, record());
        let prompt = failed.prompt.unwrap();
        assert!(prompt.len() < 17_000 && prompt.starts_with("xxx"), "a long text is cut");
    }

    /// The run of the record starts at 00:01.
    #[test]
    fn an_attempt_that_never_began_shows_its_own_start() {
        for (attempt, at, run_started_at) in [
            (1, "2026-01-01T00:00:30Z", "2026-01-01T00:00:30Z"),
            (2, "2026-01-01T00:00:45Z", "2026-01-01T00:00:45Z"),
            (3, "2026-01-01T00:01:00Z", "2026-01-01T00:01:00Z"),
            (4, "2026-01-01T00:02:00Z", "2026-01-01T00:01:00Z"),
        ] {
            let started = carried_at(at, Fact::JobStarted { attempt, node: "n".into() });
            assert_eq!(started.run_started_at, Some(run_started_at.parse().unwrap()), "attempt {attempt}");
            assert_eq!(started.attempt_started_at, Some(at.parse().unwrap()), "attempt {attempt}");
        }
    }
}
