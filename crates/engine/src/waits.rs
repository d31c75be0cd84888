//! The reasons why a pending job does not run.

use cowhand_core::id::AgentName;
use cowhand_core::job::{ErrorKind, Job, Outcome};
use cowhand_core::plan::{AwaitedStart, Holds, LiveJob, LiveState, ScheduleHold, Snapshot};
use cowhand_core::policy::ClosedBy;
use cowhand_core::roster::{Agent, Roster};
use cowhand_core::schedule::SkipReason;
use jiff::Timestamp;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::schedule_view::{RESCHEDULED_AT_START, RETRY_DUE};
use cowhand_store::{Store, StoreError};

/// Reason for which a job waits.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Waits {
    pub reason: SkipReason,
    /// Latest time at which this reason ends without an action of a person; none if the time is not known.
    pub until: Option<Timestamp>,
    pub message: String,
}

impl Waits {
    /// Returns the time at which the provider accepts jobs again, the pause of the schedule ends, or the next attempt
    /// may start. None for all other reasons; the message about a budget already contains the time.
    pub fn ends(&self) -> Option<Timestamp> {
        use SkipReason::{Paused, Requeued, ReserveReached, UsageLimit};
        self.until.filter(|_| matches!(self.reason, UsageLimit | ReserveReached | Paused | Requeued))
    }

    /// Returns whether the job may start at its `not_before`. False if it also waits after that time, because its agent
    /// or schedule is removed or off, or because a budget is used up.
    pub const fn allows_start(&self) -> bool {
        !matches!(self.reason, SkipReason::Removed | SkipReason::Disabled | SkipReason::OverBudget)
    }
}

/// Reason why a job waits, if its agent or schedule may be missing only because of errors in the config.
const CONFIG_ERRORS: &str = "the config has errors, and its agent or schedule cannot be read; correct them (`cowhand config check` \
    shows them)";

/// Describes how a person can handle jobs of a removed agent. `adopt` does not help, because it moves only firings to
/// another agent, not jobs.
pub fn removed_agent_advice(agent: &AgentName) -> String {
    format!(
        "the agent {agent} is not in the config any more, and its jobs do not move to another agent; put it back under \
         this name, or run `cowhand cancel --agent {agent}` and trigger the work again"
    )
}

/// Returns why a pending job waits; none if it no longer does, or if no reason is known.
pub async fn waits_of_pending(
    store: &Store,
    roster: &Roster,
    snapshot: &Snapshot,
    job: &Job,
    now: Timestamp,
) -> Result<Option<Waits>, StoreError> {
    let Some(agent) = roster.agent(job.agent()) else {
        let message =
            if roster.has_errors { CONFIG_ERRORS.to_owned() } else { removed_agent_advice(job.agent()) };
        return Ok(Some(Waits { reason: SkipReason::Removed, until: None, message }));
    };
    // The job may have begun after it was read.
    let live = snapshot.jobs.iter().find(|live| live.id == *job.id());
    let Some(live) = live.filter(|live| matches!(live.state, LiveState::Pending { .. })) else {
        return Ok(None);
    };
    if let Some(waits) = in_snapshot(roster, agent, snapshot, live, now) {
        let has_failure = matches!(waits.reason, SkipReason::Requeued | SkipReason::UsageLimit);
        let failed =
            if live.began_at.is_some() && !has_failure { last_failure(store, job).await? } else { None };
        return Ok(Some(match failed {
            Some(failed) => {
                Waits { message: format!("{failed}; the retry waits: {}", waits.message), ..waits }
            }
            None => waits,
        }));
    }
    match live.state {
        LiveState::Pending { not_before: Some(until) } if until > now => {
            let failed = if job.attempts() > 0 { last_failure(store, job).await? } else { None };
            Ok(failed.map_or_else(
                || calendar(agent, job, until, now).or_else(|| Some(earliest_start(live, until))),
                |message| Some(Waits { reason: SkipReason::Requeued, until: Some(until), message }),
            ))
        }
        _ => {
            let Some(awaited) = snapshot.awaited_start(roster, agent, live, now) else { return Ok(None) };
            let failed = if live.began_at.is_some() { last_failure(store, job).await? } else { None };
            Ok(Some(ready(live, awaited, failed, now)))
        }
    }
}

/// Describes why a pending job that is due does not start. For a requeued job or a retry, includes the reason of the
/// requeue or the failure.
fn ready(live: &LiveJob, awaited: AwaitedStart, failed: Option<String>, now: Timestamp) -> Waits {
    let AwaitedStart { reason, until, sentence } = awaited;
    let retry = failed.map(|failed| match live.retry_due(now) {
        Some(since) => format!("{failed}{RETRY_DUE} since {since:.0}, and waits: {sentence}"),
        None => format!("{failed}; the retry waits: {sentence}"),
    });
    let message = retry.or_else(|| Some(format!("{}; {sentence}", live.requeued.sentence()?)));
    let default_reason = if message.is_some() { SkipReason::Requeued } else { SkipReason::Disabled };
    Waits { reason: reason.unwrap_or(default_reason), until, message: message.unwrap_or(sentence) }
}

/// Returns the reason that the snapshot shows: a budget, a requeue, a usage limit or a reserve of a provider, or a
/// schedule that is removed, paused or off.
fn in_snapshot(
    roster: &Roster,
    agent: &Agent,
    snapshot: &Snapshot,
    live: &LiveJob,
    now: Timestamp,
) -> Option<Waits> {
    let hold = Holds::of(agent, snapshot, now).job(live);
    // A budget comes before all other reasons except a removed schedule, whose job does not start even if the budget
    // allows it.
    if let Some(over) = roster.over_budget(agent, &snapshot.ledger, now)
        && hold != Some(ScheduleHold::Removed)
    {
        let message = over.sentence(&agent.name, roster.zone());
        return Some(Waits { reason: SkipReason::OverBudget, until: over.until, message });
    }
    if let Some(hold) = hold {
        let message = match hold {
            ScheduleHold::Removed if roster.has_errors => CONFIG_ERRORS.to_owned(),
            hold => without_code(&hold.sentence(&agent.name, roster.zone())).to_owned(),
        };
        return Some(Waits { reason: hold.reason(), until: hold.until(), message });
    }
    if let Some((until, message)) = live.requeued_until(now) {
        return Some(Waits { reason: SkipReason::Requeued, until: Some(until), message });
    }
    snapshot.provider_hold(roster, agent, live, now).map(|hold| Waits {
        reason: hold.reason(),
        until: Some(hold.until()),
        message: hold.sentence(),
    })
}

/// Removes the error kind in brackets at the end of a pause's reason. The kind is only for programs.
fn without_code(sentence: &str) -> &str {
    let parts = sentence.strip_suffix(')').and_then(|rest| rest.rsplit_once(" ("));
    let is_kind = |code: &str| serde_json::from_value::<ErrorKind>(code.into()).is_ok();
    parts.filter(|(_, code)| is_kind(code)).map_or(sentence, |(text, _)| text)
}

/// Describes the failure of the last attempt, as `attempt 1 failed and will be retried: exit code 3`.
pub async fn last_failure(store: &Store, job: &Job) -> Result<Option<String>, StoreError> {
    let history = store.history(job.id().clone()).await?;
    let last = history.and_then(|history| history.attempts.into_iter().last());
    Ok(last.and_then(|last| match last.outcome {
        Some(Outcome::Failed { error, .. }) => {
            Some(format!("attempt {} failed and will be retried: {}", last.number, error.message))
        }
        _ => None,
    }))
}

/// Returns the reason if the calendar of the schedule delays the job.
fn calendar(agent: &Agent, job: &Job, until: Timestamp, now: Timestamp) -> Option<Waits> {
    let schedule = agent.restrictions(job).schedule()?;
    let closed = schedule.timing.closed_by(now, schedule.zone.time_zone()).map(ClosedBy::sentence)?;
    Some(Waits { reason: SkipReason::OutsideHours, until: Some(until), message: closed })
}

/// Describes a job whose earliest start is in the future although the calendar is open: a follow-up, or a job whose
/// calendar was changed while no daemon ran.
fn earliest_start(live: &LiveJob, until: Timestamp) -> Waits {
    let (reason, message) = if live.by_trigger {
        (SkipReason::OutsideHours, RESCHEDULED_AT_START.to_owned())
    } else {
        (SkipReason::NotDue, format!("it is a follow-up, and its earliest start is {until:.0}"))
    };
    Waits { reason, until: Some(until), message }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_the_code_at_the_end_is_removed() {
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
