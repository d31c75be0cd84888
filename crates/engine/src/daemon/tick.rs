//! One plan and its execution.
//!
//! A tick may be run twice, because each of its actions is an idempotent verb of the store. A tick does not retry a
//! failed action; the next tick plans the action again.

use cowhand_core::budget::{SpendLimits, UsageReporting};
use cowhand_core::duration;
use cowhand_core::id::{AgentName, JobId, ScheduleId};
use cowhand_core::job::{CancelReason, Job};
use cowhand_core::plan::{Action, Snapshot, plan};
use cowhand_core::policy::{ClosedBy, Misfire, Retry, Timing};
use cowhand_core::roster::{Roster, Schedule};
use cowhand_core::schedule::{FiringOutcome, SkipReason};
use cowhand_core::trigger::{FiringContext, FiringKey};
use cowhand_core::uptime::Uptime;
use jiff::{SignedDuration, Timestamp};
use tracing::{error, info, warn};

use crate::schedule_view::{AFTER_HOURS, MISSED};
use crate::trigger::dispatch::Dispatch;
use cowhand_store::{Decision, Fired, NewFiring, Settled, Starter, Store, StoreError};
use cowhand_system::fault;

/// The work that a tick leaves to its caller: jobs to start and to stop, firings to prepare, and the time of the next
/// tick.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Tick {
    pub start: Vec<Startable>,
    pub stop: Vec<JobId>,
    /// Firings that have to be prepared.
    pub prepare: Vec<(ScheduleId, FiringKey)>,
    pub wake_at: Option<Timestamp>,
    /// Number of jobs that the firings of this tick created.
    pub fired: u64,
}

/// A job that has a place.
#[derive(Debug, Clone, PartialEq)]
pub struct Startable {
    pub job: JobId,
    pub agent: AgentName,
    pub max_concurrent: u32,
    /// Session key. Of the jobs with the same key, only one runs at a time.
    pub session_key: Option<String>,
    /// Index of the fallback to start with; `None` for the agent's own program.
    pub fallback: Option<usize>,
}

/// Values and callbacks with which the tick claims a job as soon as it is fired. Without them, the tick leaves all
/// starts to its caller.
pub struct ImmediateStarter<'a> {
    pub node: &'a str,
    pub lease: SignedDuration,
    /// Callback before a write that will probably start a job.
    pub prewarm_cgroup: &'a (dyn Fn() + Sync),
    /// Callback that returns whether this process still supervises an attempt of a job. Such a job is not lost, even if
    /// its lease has expired: the process may have been suspended between two ticks.
    pub supervises: &'a (dyn Fn(&JobId) -> bool + Sync),
    /// Callback for each claimed job, with its epoch, before the next plan.
    pub begin: &'a mut (dyn FnMut(Job, i64) + Send),
}

impl std::fmt::Debug for ImmediateStarter<'_> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("ImmediateStarter").field("node", &self.node).finish_non_exhaustive()
    }
}

/// Time before a failed action is tried again.
const ACTION_RETRY_AFTER: SignedDuration = SignedDuration::from_secs(2);

/// Largest number of plans in a tick. A firing makes a job that the next plan starts, so a few plans are enough.
const MAX_PLANS: usize = 10;

/// Plans and records everything that is due now.
pub async fn tick(
    store: &Store,
    roster: &Roster,
    now: Timestamp,
    uptime: &Uptime,
    mut at_once: Option<ImmediateStarter<'_>>,
) -> Result<Tick, StoreError> {
    let mut fired = 0;
    for _ in 0..MAX_PLANS {
        let snapshot = Snapshot { uptime: uptime.clone(), ..store.snapshot_of(roster, now).await? };
        let plan = plan(now, roster, &snapshot);
        let mut tick = Tick { wake_at: plan.wake_at, fired, ..Tick::default() };
        let mut changed = false;
        for action in plan.actions {
            // A row that cannot be written must not delay the rest of the fleet.
            match act(store, roster, action, now, &mut tick, at_once.as_mut()).await {
                Ok(is_change) => changed |= is_change,
                Err(error) => {
                    error!("cannot act: {error}");
                    tick.wake_at = Some(now + ACTION_RETRY_AFTER);
                }
            }
        }
        if !changed {
            return Ok(tick);
        }
        fired = tick.fired;
    }
    warn!("more firings are due than {MAX_PLANS} plans could handle; continuing in the next tick");
    Ok(Tick { wake_at: Some(now), fired, ..Tick::default() })
}

/// Executes an action, and returns whether another plan is needed because of its changes.
async fn act(
    store: &Store,
    roster: &Roster,
    action: Action,
    now: Timestamp,
    tick: &mut Tick,
    at_once: Option<&mut ImmediateStarter<'_>>,
) -> Result<bool, StoreError> {
    match action {
        Action::Start { job, agent, max_concurrent, session_key, fallback } => {
            tick.start.push(Startable { job, agent, max_concurrent, session_key, fallback });
            Ok(false)
        }
        Action::Prepare { schedule, key } => {
            tick.prepare.push((schedule, key));
            Ok(false)
        }
        Action::Stop { job } => {
            tick.stop.push(job);
            Ok(false)
        }
        Action::CancelPrevious { job } => {
            store.cancel_because(job, Some(CancelReason::CancelPrevious), now).await.map(|_| false)
        }
        Action::Expire { job, .. } if at_once.as_ref().is_some_and(|at_once| (at_once.supervises)(&job)) => {
            Ok(false)
        }
        Action::Expire { job, epoch } => {
            let (retry, silent) = expiry_policy(store, roster, &job).await?;
            let settled = store.settle_expired(job.clone(), epoch, silent, retry, now).await?;
            let is_lost = matches!(settled, Settled::Done(_));
            if is_lost {
                warn!(%job, "its node stopped renewing the lease; the attempt is lost");
            }
            Ok(is_lost)
        }
        Action::Resume { schedule } => {
            let resumed = store.resume(schedule, now).await?;
            if let (true, Some((agent, schedule))) = (resumed, roster.schedule(schedule)) {
                info!(agent = %agent.name, schedule = %schedule.name, "its pause is over");
            }
            Ok(resumed)
        }
        Action::Finish { schedule } => {
            let finished = store.finish(schedule, now).await?;
            if let (true, Some((agent, schedule))) = (finished, roster.schedule(schedule)) {
                info!(agent = %agent.name, schedule = %schedule.name, "its end_at has passed; it has finished");
            }
            Ok(finished)
        }
        Action::Reopen { schedule } => store.reopen(schedule, now).await,
        Action::RestartFromNow { schedule } => store.restart_from_now(schedule, now).await,
        Action::Wait { schedule, due, hold } => {
            if store.record_waiting(schedule, due, hold.reason(), now).await?
                && let Some((agent, schedule)) = roster.schedule(schedule)
            {
                info!(agent = %agent.name, schedule = %schedule.name, "{}", hold.line(&agent.name, schedule));
            }
            Ok(false)
        }
        Action::Fire { schedule, key, due, outcome, by_misfire, after_hours } => {
            let Some((agent, configured)) = roster.schedule(schedule) else { return Ok(false) };
            let (decision, refused) = match outcome {
                FiringOutcome::Ran | FiringOutcome::Preparing => {
                    let firing_context = FiringContext::by_clock(configured, &key, due);
                    Dispatch { agent, schedule: configured, due: Some(due) }.decision(
                        &key,
                        firing_context,
                        now,
                    )
                }
                FiringOutcome::Skipped(reason) => {
                    (Decision::Skip(reason), calendar_note(configured, reason, due))
                }
                FiringOutcome::Missed => (Decision::Miss, Some(missed_note(&configured.timing))),
                FiringOutcome::Coalesced => (Decision::Coalesce, None),
            };
            let misfire = by_misfire.then(|| make_up_note(configured.timing.misfire));
            let waited = after_hours.then(|| calendar_wait_note(configured, due));
            let firing = NewFiring { schedule, key, due, decision, note: misfire.or(refused).or(waited) };
            let fired = match &at_once {
                Some(ImmediateStarter { node, lease, prewarm_cgroup, .. }) => {
                    if matches!(firing.decision, Decision::Run(_)) {
                        prewarm_cgroup();
                    }
                    let (node, lease) = ((*node).to_owned(), *lease);
                    // A firing by the clock has no work item yet, and no chat.
                    let (max_concurrent, session_key) =
                        (agent.max_concurrent, agent.session_key(None, None, false));
                    let limits = SpendLimits::of(roster, agent, now);
                    let slot = roster.slot(agent);
                    let starter = Starter { node, lease, max_concurrent, session_key, limits, slot };
                    store.fire_and_claim(firing, starter, now).await?
                }
                None => store.fire_once(firing, now).await?,
            };
            fault::point("fired");
            tick.fired += u64::from(matches!(fired, Fired::Recorded(Some(_)) | Fired::Claimed { .. }));
            let is_new = fired != Fired::Duplicate;
            if let (Fired::Claimed { job, epoch }, Some(at_once)) = (fired, at_once) {
                (at_once.begin)(job, epoch);
            }
            Ok(is_new)
        }
    }
}

/// Returns the note of a missed firing that runs because of the misfire policy.
fn make_up_note(misfire: Misfire) -> String {
    let policy = misfire.as_str();
    format!("{MISSED}, because nothing could fire it, and this run makes up for it (`misfire: {policy}`)")
}

/// Returns the note of a firing that waited for the calendar of its schedule, which may have been changed since then.
fn calendar_wait_note(schedule: &Schedule, due: Timestamp) -> String {
    match schedule.timing.closed_by(due, schedule.zone.time_zone()) {
        Some(_) => format!("{AFTER_HOURS} to open"),
        None => format!("{AFTER_HOURS}, which was changed and no longer excludes this time"),
    }
}

/// Returns the note of a firing that was missed and does not run.
fn missed_note(timing: &Timing) -> String {
    match timing.latest().filter(|_| timing.misfire != Misfire::Skip) {
        Some(latest) => format!("it was late by more than `max_lateness` ({})", duration::rounded(latest)),
        None => "`misfire: skip` drops missed firings".to_owned(),
    }
}

/// Returns the note of a firing that the calendar of its schedule does not allow; `None` for any other skip reason.
fn calendar_note(schedule: &Schedule, reason: SkipReason, due: Timestamp) -> Option<String> {
    let closed = schedule.timing.closed_by(due, schedule.zone.time_zone());
    closed.filter(|_| reason == SkipReason::OutsideHours).map(ClosedBy::sentence)
}

/// Returns the retry policy of the job's schedule or agent, and whether the runtime reports its usage only at the end.
/// A job of an agent that was removed from the config is not tried again.
async fn expiry_policy(store: &Store, roster: &Roster, id: &JobId) -> Result<(Retry, bool), StoreError> {
    let Some(job) = store.job(id.clone()).await? else { return Err(StoreError::NoJob(id.clone())) };
    let Some(agent) = roster.agent(job.agent()) else { return Ok((Retry::default(), false)) };
    let retry = agent.restrictions(&job).schedule().map_or(&agent.retry, |schedule| &schedule.retry);
    let program = store.provider_and_runtime(id.clone()).await?;
    let number = program.and_then(|at| agent.fallback_of(at.provider.as_deref(), at.runtime.as_deref()));
    let fallback = number.and_then(|number| agent.fallback(number));
    Ok((retry.clone(), fallback.as_ref().unwrap_or(agent).usage_reporting() == UsageReporting::AtEnd))
}
