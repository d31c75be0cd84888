//! The reasons why a pending job does not run. Also the agents and schedules that are no longer in the config and still
//! have jobs or firings.

use cowhand_core::id::{AgentName, ScheduleName};
use cowhand_core::job::{ErrorKind, Job, JobStatus, Outcome};
use cowhand_core::plan::{AwaitedStart, Holds, LiveJob, LiveState, ScheduleHold, Snapshot};
use cowhand_core::policy::ClosedBy;
use cowhand_core::roster::{Agent, Roster};
use cowhand_core::schedule::{ScheduleRecord, SkipReason};
use cowhand_core::shell::shell_word;
use jiff::Timestamp;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::jobs::Waits;
use super::{Api, ApiProblem};
use cowhand_engine::error::{agent_left, schedule_left};
use cowhand_engine::schedule_view::{RESCHEDULED_AT_START, RETRY_DUE};

/// Agent that is no longer in the config and has jobs that have not ended, or firings without a job.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[schemars(rename = "GoneAgent")]
pub struct RemovedAgent {
    pub agent: AgentName,
    pub running: usize,
    /// Running jobs whose schedule another agent has adopted. They take places of that agent.
    #[serde(default)]
    pub adopted: usize,
    /// Agents that have adopted the schedules of these jobs.
    #[serde(default)]
    pub adopted_by: Vec<AgentName>,
    /// Jobs that wait until the agent comes back, or somebody cancels them.
    pub queued: usize,
    /// Accepted firings without a job, which wait until the agent comes back, or somebody cancels them.
    #[serde(default)]
    pub firings: usize,
    /// Schedules of the firings that `firings` counts.
    #[serde(default)]
    pub firing_schedules: Vec<ScheduleName>,
}

/// Schedule that is no longer in the config and has jobs or firings that wait for it. Its agent is in the config.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[schemars(rename = "GoneSchedule")]
pub struct RemovedSchedule {
    pub agent: AgentName,
    pub schedule: ScheduleName,
    /// Jobs that wait until the schedule comes back, or somebody cancels them.
    pub queued: usize,
    /// Accepted firings without a job, which wait until the schedule comes back, or somebody cancels them.
    pub firings: usize,
}

impl RemovedAgent {
    /// Returns all removed agents of a snapshot, in the order of their oldest jobs. Agents without jobs come last. If
    /// the config has errors, returns no agents, because then it is not known which agents were removed.
    pub(super) fn all(roster: &Roster, snapshot: &Snapshot) -> Vec<Self> {
        let mut gone: Vec<Self> = Vec::new();
        if roster.has_errors {
            return gone;
        }
        for job in snapshot.jobs.iter().filter(|job| roster.agent(&job.agent).is_none()) {
            let agent = Self::entry(&mut gone, &job.agent);
            if let Some(adopter) = roster.agents.iter().find(|adopter| job.takes_place_of(adopter)) {
                agent.adopted += 1;
                if !agent.adopted_by.contains(&adopter.name) {
                    agent.adopted_by.push(adopter.name.clone());
                }
            }
            match job.state {
                LiveState::Running { .. } => agent.running += 1,
                LiveState::Pending { .. } => agent.queued += 1,
            }
        }
        for record in
            firings_of_removed(roster, snapshot).filter(|record| roster.agent(&record.agent).is_none())
        {
            let agent = Self::entry(&mut gone, &record.agent);
            agent.firings += 1;
            if !agent.firing_schedules.contains(&record.name) {
                agent.firing_schedules.push(record.name.clone());
            }
        }
        gone
    }

    fn entry<'a>(entries: &'a mut Vec<Self>, agent: &AgentName) -> &'a mut Self {
        let existing = entries.iter().position(|gone| gone.agent == *agent);
        let index = existing.unwrap_or_else(|| {
            entries.push(Self {
                agent: agent.clone(),
                running: 0,
                adopted: 0,
                adopted_by: Vec::new(),
                queued: 0,
                firings: 0,
                firing_schedules: Vec::new(),
            });
            entries.len() - 1
        });
        &mut entries[index]
    }

    /// Describes the running jobs whose schedule another agent has adopted; returns none if there are no such jobs.
    fn adopted_sentence(&self) -> Option<String> {
        let names: Vec<&str> = self.adopted_by.iter().map(AgentName::as_str).collect();
        let names = names.join(" or ");
        match self.adopted {
            0 => None,
            1 => Some(format!("1 running job takes a place of {names}, which has adopted its schedule")),
            more => {
                Some(format!("{more} running jobs take places of {names}, which has adopted their schedules"))
            }
        }
    }

    /// Returns true if the agent has no firings, and all its jobs are running jobs of adopted schedules.
    fn is_all_adopted(&self) -> bool {
        self.adopted > 0 && self.adopted == self.running && self.queued == 0 && self.firings == 0
    }
}

impl RemovedSchedule {
    /// Returns all removed schedules of a snapshot, in the order of their oldest jobs. Schedules without jobs come
    /// last. If the config has errors, returns no schedules, because then it is not known which schedules were removed.
    pub(super) fn all(roster: &Roster, snapshot: &Snapshot) -> Vec<Self> {
        let mut gone: Vec<Self> = Vec::new();
        if roster.has_errors {
            return gone;
        }
        let waiting = snapshot.jobs.iter().filter(|job| matches!(job.state, LiveState::Pending { .. }));
        for job in waiting {
            let (Some(agent), Some(name)) = (roster.agent(&job.agent), &job.schedule_name) else { continue };
            if agent.schedule(Some(name)).is_none() {
                Self::entry(&mut gone, &job.agent, name).queued += 1;
            }
        }
        for record in
            firings_of_removed(roster, snapshot).filter(|record| roster.agent(&record.agent).is_some())
        {
            Self::entry(&mut gone, &record.agent, &record.name).firings += 1;
        }
        gone
    }

    fn entry<'a>(entries: &'a mut Vec<Self>, agent: &AgentName, schedule: &ScheduleName) -> &'a mut Self {
        let existing = entries.iter().position(|gone| gone.agent == *agent && gone.schedule == *schedule);
        let index = existing.unwrap_or_else(|| {
            entries.push(Self { agent: agent.clone(), schedule: schedule.clone(), queued: 0, firings: 0 });
            entries.len() - 1
        });
        &mut entries[index]
    }

    /// Describes the jobs and firings that wait for the schedule, and how a person can handle them.
    pub fn sentence(&self) -> String {
        let Self { agent, schedule, queued, firings } = self;
        let jobs =
            (*queued > 0).then(|| if *queued == 1 { "1 job".to_owned() } else { format!("{queued} jobs") });
        let firings = (*firings > 0).then(|| firing_count_in_words(*firings));
        let waiting: Vec<String> = jobs.into_iter().chain(firings).collect();
        let (waiting, removed) = (waiting.join(" and "), schedule_left(agent, schedule.as_str()));
        let word = shell_word(schedule.as_str());
        let cancel = format!("`cowhand cancel --agent {agent} --schedule {word} --status pending`");
        format!(
            "{agent}/{schedule}: {waiting} waiting; {removed}; {cancel} cancels the waiting jobs and firings"
        )
    }
}

/// Finds the firings without a job whose schedule is no longer in the config. Returns the schedule's record for each.
fn firings_of_removed<'a>(
    roster: &'a Roster,
    snapshot: &'a Snapshot,
) -> impl Iterator<Item = &'a ScheduleRecord> + 'a {
    let firings = snapshot.preparing.iter().filter(|firing| roster.schedule(firing.schedule).is_none());
    firings.filter_map(|firing| snapshot.schedules.get(&firing.schedule))
}

fn firing_count_in_words(firings: usize) -> String {
    match firings {
        1 => "1 accepted firing without a job".to_owned(),
        more => format!("{more} accepted firings without a job"),
    }
}

/// Reason why a job waits, if its agent or schedule may be missing only because of errors in the config.
const CONFIG_ERRORS: &str = "the config has errors, and its agent or schedule cannot be read; correct them (`cowhand config check` \
    shows them)";

/// Describes how a person can handle jobs of a removed agent. `adopt` does not help, because it moves only firings to
/// another agent, not jobs.
pub(crate) fn removed_agent_advice(agent: &AgentName) -> String {
    format!(
        "the agent {agent} is not in the config any more, and its jobs do not move to another agent; put it back under \
         this name, or run `cowhand cancel --agent {agent}` and trigger the work again"
    )
}

/// States that an agent is no longer in the config, and how a person can handle its remaining jobs.
pub fn removed_agent_sentence(agent: &AgentName, gone: Option<&RemovedAgent>) -> String {
    match gone {
        Some(gone) if gone.is_all_adopted() => {
            let adopted = gone.adopted_sentence().unwrap_or_default();
            format!(
                "jobs of {agent}: {} running, 0 waiting; the agent {agent} is not in the config any more; {adopted}",
                gone.running
            )
        }
        Some(gone) => {
            let RemovedAgent { running, queued, firings, firing_schedules, .. } = gone;
            let adopted = gone.adopted_sentence().map(|sentence| format!("; {sentence}")).unwrap_or_default();
            let firings = (*firings > 0).then(|| format!(", {}", firing_count_in_words(*firings)));
            let (firings, advice) = (firings.unwrap_or_default(), removed_agent_advice(agent));
            let adopt = firing_schedules.iter().map(|schedule| format!("`adopt: {agent}/{schedule}`"));
            let adopt = adopt.collect::<Vec<_>>().join(" or ");
            let adopt = (!adopt.is_empty())
                .then(|| format!("; its firings continue in a schedule of another agent that has {adopt}"));
            format!(
                "jobs of {agent}: {running} running, {queued} waiting{firings}{adopted}; {advice}{}",
                adopt.unwrap_or_default()
            )
        }
        None => format!(
            "{}; `cowhand jobs --agent {agent}` lists its jobs, which have all ended",
            agent_left(agent)
        ),
    }
}

pub(super) async fn of_job(api: &Api, job: &Job) -> Result<Option<Waits>, ApiProblem> {
    Ok(of_jobs(api, std::slice::from_ref(job)).await?.pop().flatten())
}

/// Returns why each job waits; none for a job that is not pending, or for which no reason is known.
pub(super) async fn of_jobs(api: &Api, jobs: &[Job]) -> Result<Vec<Option<Waits>>, ApiProblem> {
    let is_pending = |job: &Job| job.status() == JobStatus::Pending;
    if !jobs.iter().any(is_pending) {
        return Ok(vec![None; jobs.len()]);
    }
    let (roster, now) = (api.roster(), api.now());
    let snapshot = api.snapshot(&roster, now).await?;
    let mut waits = Vec::with_capacity(jobs.len());
    for job in jobs {
        waits.push(if is_pending(job) { of_pending(api, &roster, &snapshot, job, now).await? } else { None });
    }
    Ok(waits)
}

async fn of_pending(
    api: &Api,
    roster: &Roster,
    snapshot: &Snapshot,
    job: &Job,
    now: Timestamp,
) -> Result<Option<Waits>, ApiProblem> {
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
            if live.began_at.is_some() && !has_failure { last_failure(api, job).await? } else { None };
        return Ok(Some(match failed {
            Some(failed) => {
                Waits { message: format!("{failed}; the retry waits: {}", waits.message), ..waits }
            }
            None => waits,
        }));
    }
    match live.state {
        LiveState::Pending { not_before: Some(until) } if until > now => {
            let failed = if job.attempts() > 0 { last_failure(api, job).await? } else { None };
            Ok(failed.map_or_else(
                || calendar(agent, job, until, now).or_else(|| Some(earliest_start(live, until))),
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

/// Returns the reason that the snapshot shows: a budget, a requeue, a usage limit of a provider, or a schedule that is
/// removed, paused or off.
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
            hold => without_code(&hold.sentence()).to_owned(),
        };
        return Some(Waits { reason: hold.reason(), until: hold.until(), message });
    }
    if let Some((until, message)) = live.requeued_until(now) {
        return Some(Waits { reason: SkipReason::Requeued, until: Some(until), message });
    }
    snapshot.limit_of(agent, live, now).map(|parked| Waits {
        reason: SkipReason::UsageLimit,
        until: Some(parked.until),
        message: parked.sentence(),
    })
}

/// Removes the error kind in brackets at the end of a pause's reason. The kind is only for programs.
fn without_code(sentence: &str) -> &str {
    let parts = sentence.strip_suffix(')').and_then(|rest| rest.rsplit_once(" ("));
    let is_kind = |code: &str| serde_json::from_value::<ErrorKind>(code.into()).is_ok();
    parts.filter(|(_, code)| is_kind(code)).map_or(sentence, |(text, _)| text)
}

/// Describes the failure of the last attempt, as `attempt 1 failed and will be retried: exit code 3`.
pub(super) async fn last_failure(api: &Api, job: &Job) -> Result<Option<String>, ApiProblem> {
    let history = api.store.history(job.id().clone()).await?;
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
