//! The agenda of the daemon loop, and a tick: one plan of some agents and its execution.
//!
//! The agenda knows which agents have to be planned, and when. A plan of an agent depends on its rows in the store, on
//! the config and on the time. An agent is planned again when an event concerns it, when a part of the daemon requests
//! it, and at the time that its last plan named. So the cost of a tick does not depend on the number of other agents.
//! After a change of the config or of the clock, and after events that concern the whole fleet, all agents are planned.
//! In addition, each tick plans the next agent of the roster, so that a change without an event or request is found in
//! the end.
//!
//! A tick may be run twice, because each of its actions is an idempotent verb of the store. A tick does not retry a
//! failed action; the next tick plans the action again.

use std::collections::{BTreeSet, HashMap};

use cowhand_core::budget::{SpendLimits, UsageReporting};
use cowhand_core::firing::{Dispatch, DueOutcome, NewFiring};
use cowhand_core::id::{AgentName, JobId, ScheduleId};
use cowhand_core::job::{CancelReason, Job};
use cowhand_core::plan::{Action, PlaceCount, Plan, PlanningNode, Snapshot, plan_agents};
use cowhand_core::policy::Retry;
use cowhand_core::roster::{Agent, CoupledAgents, Roster};
use cowhand_core::trigger::FiringKey;
use cowhand_core::uptime::Uptime;
use futures_util::future::join_all;
use jiff::{SignedDuration, Timestamp};
use tracing::{error, info, warn};

use crate::plan_requests::PlanRequests;
use cowhand_store::{ChangedAgents, Fired, Settled, SharedLimits, Starter, Store, StoreError, WaitingJobs};
use cowhand_system::fault;

/// Maximum number of agents that are planned together, unless their plans depend on each other.
const AGENTS_PER_PLAN: usize = 64;

#[derive(Debug)]
pub(super) struct Agenda {
    /// Number of the last event that was noted.
    pub(super) cursor: i64,
    /// True if all agents have to be planned.
    all: bool,
    /// Agents that have to be planned now.
    changed: BTreeSet<AgentName>,
    /// Time of the next plan of each agent.
    wakes: HashMap<AgentName, Timestamp>,
    by_time: BTreeSet<(Timestamp, AgentName)>,
    /// Position of the next agent that is planned without a reason.
    rotation: usize,
}

impl Agenda {
    /// Creates an agenda that begins with a plan of all agents, and with the events after `cursor`.
    pub(super) fn new(cursor: i64) -> Self {
        Self {
            cursor,
            all: true,
            changed: BTreeSet::new(),
            wakes: HashMap::new(),
            by_time: BTreeSet::new(),
            rotation: 0,
        }
    }

    pub(super) fn plan_all(&mut self) {
        self.all = true;
    }

    /// Notes the agents of new events, and the requests.
    pub(super) fn note(&mut self, changed: ChangedAgents, requests: &PlanRequests) {
        let requested = requests.take();
        self.all |= changed.whole_fleet || requested.all;
        self.changed.extend(changed.agents);
        self.changed.extend(requested.agents);
        self.cursor = changed.newest;
    }

    /// Returns whether all agents have to be planned. If so, forgets the times that earlier plans named.
    pub(super) fn take_all(&mut self) -> bool {
        let all = std::mem::take(&mut self.all);
        if all {
            self.changed.clear();
            self.wakes.clear();
            self.by_time.clear();
        }
        all
    }

    /// Takes the agents that have to be planned now, in groups. Agents whose plans depend on each other are in the same
    /// group.
    pub(super) fn take_due(&mut self, roster: &Roster, now: Timestamp) -> Vec<Vec<AgentName>> {
        let mut due = std::mem::take(&mut self.changed);
        while self.next().is_some_and(|at| at <= now) {
            let Some((_, agent)) = self.by_time.pop_first() else { break };
            self.wakes.remove(&agent);
            due.insert(agent);
        }
        if let Some(next) = roster.agents.get(self.rotation) {
            due.insert(next.name.clone());
        }
        self.rotation = (self.rotation + 1).checked_rem(roster.agents.len()).unwrap_or_default();
        groups(roster, due)
    }

    /// Records when an agent has to be planned again.
    pub(super) fn set_wake(&mut self, agent: AgentName, wake_at: Option<Timestamp>) {
        let before = match wake_at {
            Some(at) => self.wakes.insert(agent.clone(), at),
            None => self.wakes.remove(&agent),
        };
        if let Some(before) = before {
            self.by_time.remove(&(before, agent.clone()));
        }
        self.by_time.extend(wake_at.map(|at| (at, agent)));
    }

    /// Plans an agent at `at`, or earlier if its last plan named an earlier time.
    pub(super) fn wake_by(&mut self, agent: AgentName, at: Timestamp) {
        if self.wakes.get(&agent).is_none_or(|wake| at < *wake) {
            self.set_wake(agent, Some(at));
        }
    }

    /// Returns the time of the next plan.
    pub(super) fn next(&self) -> Option<Timestamp> {
        self.by_time.first().map(|(at, _)| *at)
    }
}

/// Divides agents into groups that are planned together.
pub(super) fn groups(roster: &Roster, agents: impl IntoIterator<Item = AgentName>) -> Vec<Vec<AgentName>> {
    let (mut coupled, mut groups) = (Vec::new(), Vec::new());
    let mut group = Vec::new();
    let is_removed = |agent: &AgentName| roster.agent(agent).is_none();
    for agent in agents {
        match roster.coupled_with(&agent) {
            CoupledAgents::None => group.push(agent),
            CoupledAgents::Some(others) if coupled.is_empty() => coupled = others,
            CoupledAgents::All if coupled.is_empty() => {
                coupled = roster.agents.iter().map(|agent| agent.name.clone()).collect();
                coupled.extend(is_removed(&agent).then_some(agent));
            }
            CoupledAgents::All | CoupledAgents::Some(_) => {
                coupled.extend(is_removed(&agent).then_some(agent));
            }
        }
        if group.len() == AGENTS_PER_PLAN {
            groups.push(std::mem::take(&mut group));
        }
    }
    groups.extend([group, coupled].into_iter().filter(|group| !group.is_empty()));
    groups
}

/// The work that a tick leaves to its caller: jobs to start and to stop, firings to prepare, and the time of the next
/// tick.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Tick {
    pub start: Vec<Startable>,
    pub stop: Vec<JobId>,
    /// Firings that have to be prepared.
    pub prepare: Vec<(ScheduleId, FiringKey)>,
    /// Time at which each planned agent has to be planned again, if no event comes first.
    pub wakes: Vec<(AgentName, Option<Timestamp>)>,
    /// Number of jobs that the firings of this tick created.
    pub fired: u64,
}

impl Tick {
    /// Returns the time of the next tick.
    pub fn wake_at(&self) -> Option<Timestamp> {
        self.wakes.iter().filter_map(|(_, wake_at)| *wake_at).min()
    }

    fn add(&mut self, other: Self) {
        self.start.extend(other.start);
        self.stop.extend(other.stop);
        self.prepare.extend(other.prepare);
        self.wakes.extend(other.wakes);
        self.fired += other.fired;
    }
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

/// Values and callbacks with which the tick claims the job of a firing at once. Without them, the tick leaves all
/// starts to its caller.
pub struct ImmediateStarter<'a> {
    pub node: &'a str,
    pub lease: SignedDuration,
    /// Limits of the places that agents share.
    pub shared: SharedLimits,
    /// Agents whose jobs the node starts.
    pub here: PlanningNode,
    /// Callback that returns whether a job of the agent may be left to a freer node. Its firings are not claimed at
    /// once.
    pub leaves: &'a (dyn Fn(&AgentName) -> bool + Sync),
    /// Callback that returns whether this process still supervises an attempt of a job. Such a job is not lost, even if
    /// its lease has expired: the process may have been suspended between two ticks.
    pub supervises: &'a (dyn Fn(&JobId) -> bool + Sync),
    /// Callback for each claimed job, with its epoch, before the next plan.
    pub begin: &'a (dyn Fn(Job, i64) + Sync),
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

/// Plans and records everything that is due now in the whole fleet.
pub async fn tick(
    store: &Store,
    roster: &Roster,
    now: Timestamp,
    uptime: &Uptime,
    at_once: Option<&ImmediateStarter<'_>>,
) -> Result<Tick, StoreError> {
    let agents = all_agents(store, roster).await?;
    tick_agents(store, roster, agents, now, uptime, at_once).await
}

/// Returns the agents of the config, and agents that were removed from it and still have jobs.
pub(super) async fn all_agents(store: &Store, roster: &Roster) -> Result<Vec<AgentName>, StoreError> {
    let removed = store.live_agents().await?.into_iter().filter(|name| roster.agent(name).is_none());
    Ok(roster.agents.iter().map(|agent| agent.name.clone()).chain(removed).collect())
}

/// Plans and records everything that is due now for these agents. Agents whose plans depend on each other have to be
/// in the same list. The actions of different agents are executed at the same time, so that they share commits.
pub async fn tick_agents(
    store: &Store,
    roster: &Roster,
    mut agents: Vec<AgentName>,
    now: Timestamp,
    uptime: &Uptime,
    at_once: Option<&ImmediateStarter<'_>>,
) -> Result<Tick, StoreError> {
    let context = TickContext { store, roster, now, at_once };
    let mut tick = Tick::default();
    for _ in 0..MAX_PLANS {
        let plans = context.plan(&agents, uptime).await?;
        let executed = join_all(plans.into_iter().map(|(agent, plan)| context.execute(agent, plan))).await;
        let is_coupled = |agent: &AgentName| roster.coupled_with(agent) != CoupledAgents::None;
        let replan_coupled = executed.iter().any(|done| done.is_changed && is_coupled(&done.agent));
        agents.clear();
        for done in executed {
            if done.is_changed || (replan_coupled && is_coupled(&done.agent)) {
                tick.fired += done.tick.fired;
                agents.push(done.agent);
            } else {
                tick.add(done.tick);
            }
        }
        if agents.is_empty() {
            return Ok(tick);
        }
    }
    warn!("more firings are due than {MAX_PLANS} plans could handle; continuing in the next tick");
    tick.wakes.extend(agents.into_iter().map(|agent| (agent, Some(now))));
    Ok(tick)
}

/// A plan of one agent that was executed.
struct Executed {
    agent: AgentName,
    tick: Tick,
    /// True if another plan is needed because of the changes.
    is_changed: bool,
}

/// Input of the execution of a plan.
#[derive(Clone, Copy)]
struct TickContext<'a> {
    store: &'a Store,
    roster: &'a Roster,
    now: Timestamp,
    at_once: Option<&'a ImmediateStarter<'a>>,
}

impl TickContext<'_> {
    /// Plans the agents. If an agent has many pending jobs, the first snapshot contains only the oldest of them,
    /// because these usually fill its places. If a place stays free, because these jobs wait for something else, the
    /// agents are planned again with all jobs.
    async fn plan(self, agents: &[AgentName], uptime: &Uptime) -> Result<Vec<(AgentName, Plan)>, StoreError> {
        let Self { store, roster, now, .. } = self;
        let waiting = WaitingJobs::to_fill_places(roster, agents);
        let oldest = store.snapshot_of_agents(roster, agents, waiting, now).await?;
        let here = self.here().await?;
        let oldest = Snapshot { uptime: uptime.clone(), here: here.clone(), ..oldest };
        let plans = plan_agents(now, roster, agents, &oldest);
        let has_free_place = |(name, plan): &(AgentName, Plan)| {
            let jobs = oldest.jobs.iter().filter(|job| job.agent == *name).count();
            let is_queue_long = matches!(waiting, WaitingJobs::Oldest { count } if jobs >= count as usize);
            let is_start = |action: &&Action| matches!(action, Action::Start { .. });
            let starts = plan.actions.iter().filter(is_start).count();
            let places = roster.agent(name).map(|agent| PlaceCount::of_running(agent, &oldest).free());
            is_queue_long && places.is_some_and(|free| starts < free as usize)
        };
        if here.places.is_full() || !plans.iter().any(has_free_place) {
            return Ok(plans);
        }
        let all = store.snapshot_of_agents(roster, agents, WaitingJobs::All, now).await?;
        Ok(plan_agents(now, roster, agents, &Snapshot { uptime: uptime.clone(), here, ..all }))
    }

    /// Returns what the node can start now.
    async fn here(self) -> Result<PlanningNode, StoreError> {
        let Some(at_once) = self.at_once else { return Ok(PlanningNode::default()) };
        let places = self.store.shared_places(at_once.node, at_once.shared).await?;
        Ok(PlanningNode { places, ..at_once.here.clone() })
    }

    async fn execute(self, agent: AgentName, plan: Plan) -> Executed {
        let (mut tick, mut is_changed, mut wake_at) = (Tick::default(), false, plan.wake_at);
        for action in plan.actions {
            // A row that cannot be written must not delay the rest of the fleet.
            match self.act(action, &mut tick).await {
                Ok(changes) => is_changed |= changes,
                Err(error) => {
                    error!("cannot act: {error}");
                    wake_at = Some(self.now + ACTION_RETRY_AFTER);
                }
            }
        }
        tick.wakes.push((agent.clone(), wake_at));
        Executed { agent, tick, is_changed }
    }

    /// Executes an action, and returns whether another plan is needed because of its changes.
    async fn act(self, action: Action, tick: &mut Tick) -> Result<bool, StoreError> {
        let Self { store, roster, now, at_once } = self;
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
            Action::Expire { job, .. } if at_once.is_some_and(|at_once| (at_once.supervises)(&job)) => {
                Ok(false)
            }
            Action::Expire { job, epoch } => self.expire(job, epoch).await,
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
                let dispatch = Dispatch { agent, schedule: configured, by: None };
                let planned = DueOutcome { due, outcome, by_misfire, after_hours };
                self.fire(agent, dispatch.clock_firing(key, planned, now), tick).await
            }
        }
    }

    async fn expire(self, job: JobId, epoch: i64) -> Result<bool, StoreError> {
        let (retry, silent) = expiry_policy(self.store, self.roster, &job).await?;
        let settled = self.store.settle_expired(job.clone(), epoch, silent, retry, self.now).await?;
        let is_lost = matches!(settled, Settled::Done(_));
        if is_lost {
            warn!(%job, "its node stopped renewing the lease; the attempt is lost");
        }
        Ok(is_lost)
    }

    /// Records a firing of the clock and, if its job may start, claims the job at once.
    async fn fire(self, agent: &Agent, firing: NewFiring, tick: &mut Tick) -> Result<bool, StoreError> {
        let Self { store, roster, now, at_once } = self;
        // If agents share slots or a budget, an older job of another agent may have to start first. The next plan
        // decides.
        let at_once = at_once.filter(|at_once| {
            roster.coupled_with(&agent.name) == CoupledAgents::None
                && at_once.here.takes_jobs_of(&agent.name)
                && !(at_once.leaves)(&agent.name)
        });
        let fired = match at_once {
            Some(ImmediateStarter { node, lease, shared, .. }) => {
                let (node, lease, shared) = ((*node).to_owned(), *lease, *shared);
                // A firing by the clock has no work item yet, and no chat.
                let (max_concurrent, session_key) =
                    (agent.max_concurrent, agent.session_key(None, None, false));
                let limits = SpendLimits::of(roster, agent, now);
                let slot = roster.slot(agent);
                let on_lost = agent.on_lost_lease;
                let starter =
                    Starter { node, lease, on_lost, max_concurrent, shared, session_key, limits, slot };
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

/// Returns the retry policy of the job's schedule or agent, and whether the runtime reports its usage only at the end.
/// A job of an agent that was removed from the config is not tried again.
async fn expiry_policy(store: &Store, roster: &Roster, id: &JobId) -> Result<(Retry, bool), StoreError> {
    let Some(job) = store.job(id.clone()).await? else { return Err(StoreError::NoJob(id.clone())) };
    let Some(agent) = roster.agent(job.agent()) else { return Ok((Retry::default(), false)) };
    let retry = agent.restrictions(&job).schedule().map_or(&agent.retry, |schedule| schedule.retry.as_ref());
    let program = store.provider_and_runtime(id.clone()).await?;
    let number = program.and_then(|at| agent.fallback_of(at.provider.as_deref(), at.runtime.as_deref()));
    let fallback = number.and_then(|number| agent.fallback(number));
    Ok((retry.clone(), fallback.as_ref().unwrap_or(agent).usage_reporting() == UsageReporting::AtEnd))
}

#[cfg(test)]
mod tests {
    use cowhand_core::provider::Provider;
    use cowhand_core::roster::Agent;

    use super::*;

    fn names(list: &[&str]) -> Vec<AgentName> {
        list.iter().map(|name| name.parse().unwrap()).collect()
    }

    fn roster(list: &[&str]) -> Roster {
        Roster::of(names(list).into_iter().map(Agent::new).collect())
    }

    #[test]
    fn agents_are_due_after_an_event_a_request_or_at_their_time() {
        let (roster, requests) = (roster(&["a", "b", "c", "d"]), PlanRequests::default());
        let at = |second| Timestamp::from_second(second).unwrap();
        let mut agenda = Agenda::new(0);
        assert!(agenda.take_all() && !agenda.take_all(), "the first plan is of all agents");
        for (agent, second) in [("b", 10), ("c", 20)] {
            agenda.set_wake(agent.parse().unwrap(), Some(at(second)));
        }
        agenda.set_wake("c".parse().unwrap(), Some(at(30)));
        assert_eq!(agenda.next(), Some(at(10)));
        // No agent has a reason to be planned, so the next agent of the roster is planned: the first one.
        assert_eq!(agenda.take_due(&roster, at(9)), [names(&["a"])]);
        assert_eq!(agenda.take_due(&roster, at(20)), [names(&["b"])], "its time has come");
        assert_eq!(agenda.next(), Some(at(30)));
        let changed = ChangedAgents {
            newest: 7,
            agents: names(&["d"]).into_iter().collect(),
            ..ChangedAgents::default()
        };
        requests.add("a".parse().unwrap());
        agenda.note(changed, &requests);
        assert_eq!((agenda.cursor, agenda.take_all()), (7, false));
        assert_eq!(agenda.take_due(&roster, at(20)), [names(&["a", "c", "d"])], "c comes in turn");
        requests.add_all();
        agenda.note(ChangedAgents { newest: 8, ..ChangedAgents::default() }, &requests);
        assert!(agenda.take_all());
        assert_eq!(agenda.next(), None, "earlier times are forgotten");
    }

    #[test]
    fn agents_that_share_a_limited_provider_are_planned_together() {
        let mut roster = roster(&["a", "b", "c"]);
        for agent in roster.agents.iter_mut().skip(1) {
            agent.program.provider = Some("shared".to_owned());
        }
        assert_eq!(groups(&roster.clone(), names(&["a", "c"])), [names(&["a", "c"])], "without limits");
        let limits = Provider { max_concurrent: Some(1), ..Provider::default() };
        roster.providers.insert("shared".to_owned(), limits);
        assert_eq!(groups(&roster.clone(), names(&["a", "c"])), [names(&["a"]), names(&["b", "c"])]);
        roster.budget.per_day_usd = Some("5".parse().unwrap());
        let all = [names(&["a", "b", "c", "removed", "gone"])];
        assert_eq!(groups(&roster.clone(), names(&["c", "removed", "gone"])), all);
    }

    #[test]
    fn a_group_has_a_maximum_size() {
        let list: Vec<String> = (0..=AGENTS_PER_PLAN).map(|number| format!("a{number}")).collect();
        let list: Vec<&str> = list.iter().map(String::as_str).collect();
        let sizes: Vec<usize> = groups(&roster(&list), names(&list)).iter().map(Vec::len).collect();
        assert_eq!(sizes, [AGENTS_PER_PLAN, 1]);
    }
}
