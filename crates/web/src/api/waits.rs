//! The reasons why a pending job does not run.

use cowhand_core::id::AgentName;
use cowhand_core::job::{ErrorKind, Job, JobStatus, Outcome};
use cowhand_core::plan::{AwaitedStart, Holds, LiveJob, LiveState, Snapshot};
use cowhand_core::policy::ClosedBy;
use cowhand_core::roster::{Agent, Roster};
use cowhand_core::schedule::SkipReason;
use jiff::Timestamp;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::jobs::Waits;
use super::{Api, ApiProblem};
use cowhand_engine::error::agent_left;

/// Agent that is no longer in the config and has jobs that have not ended.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct GoneAgent {
    pub agent: AgentName,
    pub running: usize,
    /// Jobs that wait until the agent comes back, or somebody cancels them.
    pub queued: usize,
}

impl GoneAgent {
    /// Returns all such agents of a snapshot, in the order of their oldest jobs.
    pub(super) fn all(roster: &Roster, snapshot: &Snapshot) -> Vec<Self> {
        let mut gone: Vec<Self> = Vec::new();
        for job in snapshot.jobs.iter().filter(|job| roster.agent(&job.agent).is_none()) {
            let known = gone.iter().position(|gone| gone.agent == job.agent);
            let place = known.unwrap_or_else(|| {
                gone.push(Self { agent: job.agent.clone(), running: 0, queued: 0 });
                gone.len() - 1
            });
            match job.state {
                LiveState::Running { .. } => gone[place].running += 1,
                LiveState::Pending { .. } => gone[place].queued += 1,
            }
        }
        gone
    }
}

/// Describes how a person can handle jobs of a removed agent. `adopt` does not help: it moves no jobs to
/// another agent.
pub(crate) fn gone_sentence(agent: &AgentName) -> String {
    format!(
        "the agent {agent} is not in the config any more, and its jobs do not move to another agent; put it back under \
         this name, or run `cowhand cancel --agent {agent}` and trigger the work again"
    )
}

/// Describes that an agent has left the config, and how a person can handle its remaining jobs.
pub fn left_sentence(agent: &AgentName, gone: Option<&GoneAgent>) -> String {
    match gone {
        Some(GoneAgent { running, queued, .. }) => {
            format!("jobs of {agent}: {running} running, {queued} waiting; {}", gone_sentence(agent))
        }
        None => format!("{}, which have all ended", agent_left(agent)),
    }
}

/// Describes the same for a schedule of an agent that is still in the config.
pub fn left_schedule_sentence(agent: &AgentName, schedule: &str) -> String {
    format!(
        "the schedule {agent}/{schedule} is not in the config any more; put it back under this name, or let another schedule \
         of {agent} go on in its place, with `adopt: {schedule}`"
    )
}

pub(super) async fn of_job(api: &Api, job: &Job) -> Result<Option<Waits>, ApiProblem> {
    Ok(of_jobs(api, std::slice::from_ref(job)).await?.pop().flatten())
}

/// Returns for each job what it waits for; none for a job that is not pending.
pub(super) async fn of_jobs(api: &Api, jobs: &[Job]) -> Result<Vec<Option<Waits>>, ApiProblem> {
    let is_pending = |job: &Job| job.status() == JobStatus::Pending;
    if !jobs.iter().any(is_pending) {
        return Ok(vec![None; jobs.len()]);
    }
    let (roster, now) = (api.roster(), api.now());
    let snapshot = api.snapshot(&roster, now).await?;
    let mut all = Vec::with_capacity(jobs.len());
    for job in jobs {
        all.push(if is_pending(job) { of_pending(api, &roster, &snapshot, job, now).await? } else { None });
    }
    Ok(all)
}

async fn of_pending(
    api: &Api,
    roster: &Roster,
    snapshot: &Snapshot,
    job: &Job,
    now: Timestamp,
) -> Result<Option<Waits>, ApiProblem> {
    let Some(agent) = roster.agent(job.agent()) else {
        let message = gone_sentence(job.agent());
        return Ok(Some(Waits { reason: SkipReason::Disabled, until: None, message }));
    };
    // The job may have begun in the meantime.
    let Some(live) = snapshot.jobs.iter().find(|live| live.id == *job.id()) else { return Ok(None) };
    if let Some(waits) = in_snapshot(roster, agent, snapshot, live, now) {
        return Ok(Some(waits));
    }
    match live.state {
        LiveState::Pending { not_before: Some(until) } if until > now => {
            let failed = if job.attempts() > 0 { last_failure(api, job).await? } else { None };
            Ok(failed.map_or_else(
                || calendar(agent, job, until, now),
                |message| Some(Waits { reason: SkipReason::Requeued, until: Some(until), message }),
            ))
        }
        _ => {
            let Some(awaited) = snapshot.awaited_start(roster, agent, live, now) else { return Ok(None) };
            let failed = if live.began_at.is_some() { last_failure(api, job).await? } else { None };
            Ok(Some(ready(live, awaited, failed, now)))
        }
    }
}

/// Describes a pending job whose time has come, and why it was put back or is tried again.
fn ready(live: &LiveJob, awaited: AwaitedStart, failed: Option<String>, now: Timestamp) -> Waits {
    let AwaitedStart { reason, until, sentence } = awaited;
    let retry = failed.map(|failed| match live.retry_due(now) {
        Some(since) => format!("{failed}; the retry has been due since {since:.0}, and waits: {sentence}"),
        None => format!("{failed}; the retry waits: {sentence}"),
    });
    let again = retry.or_else(|| Some(format!("{}; {sentence}", live.requeued.sentence()?)));
    let without = if again.is_some() { SkipReason::Requeued } else { SkipReason::Disabled };
    Waits { reason: reason.unwrap_or(without), until, message: again.unwrap_or(sentence) }
}

/// Budgets, pauses, provider limits, and starts that failed.
fn in_snapshot(
    roster: &Roster,
    agent: &Agent,
    snapshot: &Snapshot,
    live: &LiveJob,
    now: Timestamp,
) -> Option<Waits> {
    if let Some(over) = roster.over_budget(agent, &snapshot.ledger, now) {
        let message = over.sentence(&agent.name, roster.zone());
        return Some(Waits { reason: SkipReason::OverBudget, until: over.until, message });
    }
    if let Some(held) = Holds::of(agent, snapshot, now).job(live) {
        let message = without_code(&held.sentence()).to_owned();
        return Some(Waits { reason: held.reason(), until: held.until(), message });
    }
    if let Some((until, message)) = live.put_back(now) {
        return Some(Waits { reason: SkipReason::Requeued, until: Some(until), message });
    }
    snapshot.limit_of(agent, live, now).map(|parked| Waits {
        reason: SkipReason::UsageLimit,
        until: Some(parked.until),
        message: parked.sentence(),
    })
}

/// Removes the error kind in brackets at the end of the reason of a pause, which is for programs.
fn without_code(sentence: &str) -> &str {
    let parts = sentence.strip_suffix(')').and_then(|rest| rest.rsplit_once(" ("));
    let is_kind = |word: &str| serde_json::from_value::<ErrorKind>(word.into()).is_ok();
    parts.filter(|(_, word)| is_kind(word)).map_or(sentence, |(words, _)| words)
}

/// Formats `attempt 1 failed, and it is tried again: exit code 3`.
pub(super) async fn last_failure(api: &Api, job: &Job) -> Result<Option<String>, ApiProblem> {
    let history = api.store.history(job.id().clone()).await?;
    let last = history.and_then(|history| history.attempts.into_iter().last());
    Ok(last.and_then(|last| match last.outcome {
        Some(Outcome::Failed { error, .. }) => {
            Some(format!("attempt {} failed, and it is tried again: {}", last.number, error.message))
        }
        _ => None,
    }))
}

fn calendar(agent: &Agent, job: &Job, until: Timestamp, now: Timestamp) -> Option<Waits> {
    let schedule = agent.restrictions(job).schedule()?;
    let closed = schedule.timing.closed_by(now, schedule.zone.time_zone()).map(ClosedBy::sentence)?;
    Some(Waits { reason: SkipReason::OutsideHours, until: Some(until), message: closed })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_sentence_loses_its_code_and_nothing_else() {
        for (sentence, expected) in [
            (
                "its schedule has paused itself: exit code 1 (exit)",
                "its schedule has paused itself: exit code 1",
            ),
            ("no file (a.txt)", "no file (a.txt)"),
            ("paced (1, `max_concurrent`)", "paced (1, `max_concurrent`)"),
            ("exit code 1", "exit code 1"),
        ] {
            assert_eq!(without_code(sentence), expected);
        }
    }
}
