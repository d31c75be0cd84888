//! The planner: decides what to do now, from the config and the state of the store.
//!
//! `plan` and `plan_agents` read their arguments and return actions. They change nothing, so a test can list inputs
//! with the expected actions, and a caller can plan again at any time. For each agent, the planner decides about the
//! ends of jobs, about firings and about starts:
//!
//! 1. **ends**: running jobs that have to stop, and running jobs whose lease has expired;
//! 2. **firings**: which recorded firings are prepared, and which schedules resume, finish or reopen; for each schedule
//!    that the clock fires, which due times run, which are skipped, missed or coalesced, and which wait ([`due`] has
//!    the rules for one schedule);
//! 3. **starts**: pending jobs that [`admit()`] admits, oldest first; the jobs of schedules that the clock fires take
//!    turns ([`turn`] has the order).
//!
//! A plan does not start the jobs of its own firings, because these jobs do not exist yet. The caller executes the
//! actions, takes a new snapshot and plans again, until the actions change nothing. The caller may also claim the job
//! of a firing when it executes the firing.

mod admit;
pub(crate) mod closed;
mod due;
mod elsewhere;
mod holds;
pub mod next_firings;
mod overdue;
mod pending;
mod slots;
mod turn;

use std::collections::{BTreeSet, HashMap, HashSet};

use jiff::tz::TimeZone;
use jiff::{SignedDuration, Timestamp};

use crate::budget::{Amount, OverBudget, SpendingLedger};
use crate::id::{AgentName, JobId, ScheduleId, ScheduleName};
use crate::job::Requeued;
use crate::moment::{BootTime, Moment};
use crate::node::FleetNode;
use crate::policy::Overlap;
use crate::provider::{ProviderState, ProviderWait};
use crate::roster::{Agent, Roster, Schedule};
use crate::schedule::{FiringOutcome, ScheduleRecord, ScheduleState, SkipReason};
use crate::trigger::FiringKey;
use crate::uptime::Uptime;
use crate::work::WorkItemId;
use admit::ReadyJobs;
pub use admit::{Admission, PlaceCount, SharedPlaces, StartFacts, admit, free_places};
pub use closed::NeverFires;
pub use elsewhere::PlanningNode;
pub use holds::{Holds, ScheduleHold};
pub use overdue::Missed;
pub use pending::AwaitedStart;
use slots::ProviderSlots;
pub use slots::{ProviderHold, SlotWait};
use turn::PlaceTurn;

/// State of the store at one moment.
#[derive(Debug, Clone, Default)]
pub struct Snapshot {
    pub schedules: HashMap<ScheduleId, ScheduleRecord>,
    /// All jobs that have not ended, oldest first.
    pub jobs: Vec<LiveJob>,
    /// Firings without jobs yet. The firings of one schedule are in the order in which they are prepared.
    pub preparing: Vec<Preparing>,
    /// Work items that are being claimed for a job.
    pub claims: Vec<UnfinishedClaim>,
    /// Spending of the agents; empty if no daily or monthly budget is set, or if the spending was not read.
    pub ledger: SpendingLedger,
    /// State of the agents' providers, by name.
    pub providers: HashMap<String, ProviderState>,
    /// The boot clock, if it was read.
    pub boot: Option<BootTime>,
    /// Start of the fleet's daemon, and the gaps in which it could not act.
    pub uptime: Uptime,
    /// Running jobs whose attempt has ended or never began, while no daemon runs that writes this. Only for people;
    /// plans do not use this field.
    pub unsettled: BTreeSet<JobId>,
    /// The nodes of the fleet. Only for people; plans do not use this field.
    pub nodes: Vec<FleetNode>,
    /// What the node that plans can start.
    pub here: PlanningNode,
}

impl Snapshot {
    /// Returns whether the job runs. False for an unsettled job.
    pub fn runs(&self, job: &LiveJob) -> bool {
        matches!(job.state, LiveState::Running { .. }) && !self.unsettled.contains(&job.id)
    }

    /// Returns the firings of a schedule that have to be prepared now, in their order.
    pub fn to_prepare(&self, schedule: ScheduleId) -> impl Iterator<Item = &Preparing> {
        let of_schedule = self.preparing.iter().filter(move |firing| firing.schedule == schedule);
        of_schedule.filter(|firing| !self.is_held_back(firing))
    }

    /// Returns the oldest of the schedule's jobs that have had an attempt and wait for the time of the next attempt,
    /// with that time.
    pub fn next_retry(&self, schedule: ScheduleId, now: Timestamp) -> Option<(&LiveJob, Timestamp)> {
        let mut jobs =
            self.jobs.iter().filter(|job| job.schedule == Some(schedule) && job.began_at.is_some());
        jobs.find_map(|job| match job.state {
            LiveState::Pending { not_before } => Some((job, not_before.filter(|until| *until > now)?)),
            LiveState::Running { .. } => None,
        })
    }

    /// Returns the current moment, with the boot clock as it was read for this snapshot.
    fn moment(&self, now: Timestamp) -> Moment {
        Moment { wall: now, boot: self.boot }
    }

    /// Returns the session keys of the agent's running jobs.
    fn busy_sessions(&self, agent: &Agent) -> HashSet<String> {
        let running = self
            .jobs
            .iter()
            .filter(|job| job.agent == agent.name && matches!(job.state, LiveState::Running { .. }));
        running.filter_map(|job| job.session_key.clone()).collect()
    }

    /// Returns the items that are being claimed for jobs of the agent. Each of them takes a place of the agent.
    pub fn claims_of(&self, agent: &Agent, now: Timestamp) -> impl Iterator<Item = &UnfinishedClaim> {
        self.claims.iter().filter(move |claim| claim.agent == agent.name && claim.until > now)
    }

    /// Checks whether a job of the schedule waits for the end of another job with the same session.
    pub fn waits_for_session(&self, agent: &Agent, schedule: ScheduleId) -> bool {
        self.jobs.iter().any(|job| {
            job.schedule == Some(schedule)
                && matches!(job.state, LiveState::Pending { .. })
                && self.has_busy_session(agent, job)
        })
    }
}

/// A firing without jobs yet.
#[derive(Debug, Clone, PartialEq)]
pub struct Preparing {
    pub schedule: ScheduleId,
    pub key: FiringKey,
    /// Time at which the firing was recorded.
    pub since: Timestamp,
    /// True if a try has failed and the preparation has to be tried again.
    pub has_failed: bool,
}

impl Preparing {
    /// Returns the time until which a place is kept free for the items of a poll of a work source. Without a kept
    /// place, schedules that are always due would take every place before the work source has answered. None if that
    /// time has passed, if a try has failed, or if `since` is in the future because the clock was set back.
    fn keeps_place_until(&self, now: Timestamp) -> Option<Timestamp> {
        let until = self.since.checked_add(PLACE_KEPT_FOR_POLL).ok()?;
        (!self.has_failed && self.since <= now && now < until).then_some(until)
    }
}

/// A work item that is being claimed for a job. The job does not exist yet.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct UnfinishedClaim {
    pub agent: AgentName,
    pub schedule: Option<ScheduleName>,
    /// Time after which the claim is given up.
    pub until: Timestamp,
}

/// Time for which a place is kept free: longer than a healthy work source takes to answer.
const PLACE_KEPT_FOR_POLL: SignedDuration = SignedDuration::from_secs(2);

#[derive(Debug, Clone, PartialEq)]
pub struct LiveJob {
    pub id: JobId,
    pub agent: AgentName,
    /// The schedule whose firing created the job. `None` for a retry, a fork or a follow-up, and for a waiting job
    /// whose schedule another agent has adopted.
    pub schedule: Option<ScheduleId>,
    /// Name of the schedule whose restrictions apply to the job.
    pub schedule_name: Option<ScheduleName>,
    /// True if the trigger of the job's schedule fired it; false for every other job, for example a job by hand.
    pub by_trigger: bool,
    /// True if no person requested the job, so that it waits while the reserve of its provider is reached.
    pub automatic: bool,
    /// Work item of the job.
    pub item: Option<WorkItemId>,
    /// Conversation in which the job answers.
    pub chat: Option<String>,
    /// True if the job runs in the strict sandbox.
    pub confined: bool,
    /// Start of its first attempt; none before that.
    pub began_at: Option<Timestamp>,
    /// Runtime of the session that the job has to continue after a usage limit; none if it may start with any runtime.
    pub resumes: Option<String>,
    /// Provider at which the job runs or ran last.
    pub provider: Option<String>,
    /// Session key of a running job. No other running job of its agent has the same key.
    pub session_key: Option<String>,
    /// Attempts that never began.
    pub requeued: Requeued,
    /// The part of its reservation that it has not spent yet; zero if it does not run.
    pub reserved: Amount,
    pub state: LiveState,
}

impl LiveJob {
    /// Checks whether the job runs in a place of the agent. A running job of another agent also takes a place of this
    /// agent, if a schedule of this agent has adopted the job's schedule.
    pub fn takes_place_of(&self, agent: &Agent) -> bool {
        let has_schedule = |id: ScheduleId| agent.schedules.iter().any(|schedule| schedule.id == id);
        matches!(self.state, LiveState::Running { .. })
            && (self.agent == agent.name || self.schedule.is_some_and(has_schedule))
    }

    /// Returns the time until which the job waits because it could not be started, and a sentence about that.
    pub fn requeued_until(&self, now: Timestamp) -> Option<(Timestamp, String)> {
        match self.state {
            LiveState::Pending { not_before: Some(until) } if until > now => {
                Some((until, self.requeued.sentence()?))
            }
            LiveState::Pending { .. } | LiveState::Running { .. } => None,
        }
    }
}

#[derive(Debug, Clone, PartialEq)]
pub enum LiveState {
    Pending {
        not_before: Option<Timestamp>,
    },
    /// `epoch` is the number of the claim, which distinguishes this lease from every other lease of the job.
    Running {
        epoch: i64,
        lease_until: Timestamp,
        /// True if a stop was requested.
        cancel: bool,
    },
}

#[derive(Debug, Clone, PartialEq)]
pub struct Plan {
    pub actions: Vec<Action>,
    /// Time at which the caller has to plan again if no event comes first; none if only an event can change the plan.
    pub wake_at: Option<Timestamp>,
}

#[derive(Debug, Clone, PartialEq)]
pub enum Action {
    /// Settle the attempt as lost, because its lease has expired.
    Expire { job: JobId, epoch: i64 },
    /// End the processes of a running job whose stop was requested. Each plan contains this action until the job has
    /// ended or its lease has expired.
    Stop { job: JobId },
    /// Cancel the job to make room for the firing that follows in the plan.
    CancelPrevious { job: JobId },
    /// Write one row of the ledger. `Ran` also creates a job, unless the firing has to be prepared first or the
    /// schedule's filter excludes it.
    Fire {
        schedule: ScheduleId,
        key: FiringKey,
        due: Timestamp,
        outcome: FiringOutcome,
        /// True if the due time was missed and runs now because of `misfire`.
        by_misfire: bool,
        /// True if the firing was due earlier and waited until the calendar of its schedule allowed it.
        after_hours: bool,
    },
    /// Prepare the firing, and create its jobs if it runs. Each plan contains this action until that is done.
    Prepare { schedule: ScheduleId, key: FiringKey },
    /// Record that the schedule is due but has to wait, and why. A later plan does not contain this action again for
    /// the same reason, because the record stores the reason.
    Wait { schedule: ScheduleId, due: Timestamp, hold: Hold },
    /// End the pause of the schedule, because its time has passed. A schedule that a person has disabled stays
    /// disabled.
    Resume { schedule: ScheduleId },
    /// Finish the schedule, because its `end_at` has passed, or because it is a delay whose time passed while it was
    /// off.
    Finish { schedule: ScheduleId },
    /// Reopen the finished schedule, because the config has moved its `end_at` into the future or removed it.
    Reopen { schedule: ScheduleId },
    /// Reset the recorded times, because they are in the future after the wall clock was set back. The schedule
    /// continues from now.
    RestartFromNow { schedule: ScheduleId },
    /// Claim this job. The claim checks again whether the job may start.
    Start {
        job: JobId,
        agent: AgentName,
        max_concurrent: u32,
        session_key: Option<String>,
        /// Number of the fallback with which the job starts; none for the agent's own program.
        fallback: Option<usize>,
    },
}

/// Reason why a due firing waits.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Hold {
    AtCapacity { running: u32, max: u32 },
    AlreadyRunning,
    OutsideHours { opens: Timestamp },
    OverBudget(OverBudget),
}

impl Hold {
    pub const fn reason(self) -> SkipReason {
        match self {
            Self::AtCapacity { .. } => SkipReason::AtCapacity,
            Self::AlreadyRunning => SkipReason::AlreadyRunning,
            Self::OutsideHours { .. } => SkipReason::OutsideHours,
            Self::OverBudget(_) => SkipReason::OverBudget,
        }
    }

    /// Returns the line for the log.
    pub fn line(self, agent: &AgentName, schedule: &Schedule) -> String {
        let why = match self {
            Self::AtCapacity { running, max } => format!("at max capacity ({running}/{max})"),
            Self::AlreadyRunning => "already running".to_owned(),
            Self::OutsideHours { opens } => format!("its calendar allows no firing until {opens}"),
            Self::OverBudget(over) => over.sentence(agent, &TimeZone::UTC),
        };
        format!("Skipping {agent}/{}: {why}", schedule.name)
    }
}

/// Plans the whole fleet: the agents of the config, and agents that were removed from it and still have jobs.
pub fn plan(now: Timestamp, roster: &Roster, snapshot: &Snapshot) -> Plan {
    let removed = snapshot.jobs.iter().map(|job| &job.agent).filter(|name| roster.agent(name).is_none());
    let removed: BTreeSet<&AgentName> = removed.collect();
    let agents: Vec<AgentName> =
        roster.agents.iter().map(|agent| &agent.name).chain(removed).cloned().collect();
    let plans = plan_agents(now, roster, &agents, snapshot);
    let wake_at = plans.iter().filter_map(|(_, plan)| plan.wake_at).min();
    Plan { actions: plans.into_iter().flat_map(|(_, plan)| plan.actions).collect(), wake_at }
}

/// Plans some agents, and returns a plan for each of them. The agent with the oldest waiting job comes first. The
/// snapshot needs to contain only the schedules, jobs, firings and claims of these agents. If a name is not in the
/// config, only the ends of its jobs are planned. Agents that share a provider with limits have to be planned together
/// ([`Roster::coupled_with`]).
pub fn plan_agents(
    now: Timestamp,
    roster: &Roster,
    agents: &[AgentName],
    snapshot: &Snapshot,
) -> Vec<(AgentName, Plan)> {
    let configured = agents.iter().filter_map(|name| roster.agent(name));
    let mut shared = SharedCapacity {
        slots: ProviderSlots::of(roster, configured, snapshot, now),
        places: snapshot.here.places,
    };
    let mut in_order: Vec<&AgentName> = agents.iter().collect();
    let oldest = oldest_ready_jobs(snapshot, now);
    in_order.sort_by_key(|name| oldest.get(name).copied().unwrap_or(usize::MAX));
    let plan_agent = |name: &AgentName| {
        let mut plan = PlanBuilder { now, actions: Vec::new(), wake_at: None };
        plan.ends(snapshot.jobs.iter().filter(|job| job.agent == *name));
        if let Some(agent) = roster.agent(name) {
            plan.agent(agent, roster, snapshot, &mut shared);
        }
        (name.clone(), Plan { actions: plan.actions, wake_at: plan.wake_at })
    };
    in_order.into_iter().map(plan_agent).collect()
}

/// Returns, for each agent, the position of its oldest job that could start now. Agents that share a provider or a
/// budget are planned in this order, so that none of them takes all slots from the others.
fn oldest_ready_jobs(snapshot: &Snapshot, now: Timestamp) -> HashMap<&AgentName, usize> {
    let mut oldest = HashMap::new();
    for (position, job) in snapshot.jobs.iter().enumerate() {
        if matches!(job.state, LiveState::Pending { .. }) && job.is_ready(now) {
            oldest.entry(&job.agent).or_insert(position);
        }
    }
    oldest
}

/// Returns the agent's schedules in the order in which they get a free place: first the waiting schedules, by due time;
/// then the other schedules; last the schedules that want a fill. Without this order, a long queue of work items would
/// keep every other schedule waiting.
fn in_turn<'a>(agent: &'a Agent, snapshot: &Snapshot) -> Vec<&'a Schedule> {
    let mut schedules: Vec<&Schedule> = agent.schedules.iter().collect();
    schedules.sort_by_key(|schedule| {
        let record = snapshot.schedules.get(&schedule.id);
        let waiting = record.and_then(|record| record.waiting.as_ref()).map(|waiting| waiting.due);
        (waiting.unwrap_or(Timestamp::MAX), record.is_some_and(|record| record.fill))
    });
    schedules
}

/// What the jobs of several agents take from: slots of providers, and places of the fleet and of the node.
struct SharedCapacity {
    slots: ProviderSlots,
    places: SharedPlaces,
}

struct PlanBuilder {
    now: Timestamp,
    actions: Vec<Action>,
    wake_at: Option<Timestamp>,
}

impl PlanBuilder {
    fn wake(&mut self, at: Timestamp) {
        self.wake_at = Some(self.wake_at.map_or(at, |wake| wake.min(at)));
    }

    /// Plans the firings and starts of one agent.
    fn agent(&mut self, agent: &Agent, roster: &Roster, snapshot: &Snapshot, shared: &mut SharedCapacity) {
        let over = roster.over_budget(agent, &snapshot.ledger, self.now);
        let holds = Holds::of(agent, snapshot, self.now);
        let mut places = FiringPlaces::of(agent, snapshot, &holds, self.now);
        if places.is_full() {
            let claims_end = snapshot.claims_of(agent, self.now).map(|claim| claim.until);
            places.kept_until.into_iter().chain(claims_end).for_each(|until| self.wake(until));
        }
        for schedule in in_turn(agent, snapshot) {
            let prepare =
                |firing: &Preparing| Action::Prepare { schedule: schedule.id, key: firing.key.clone() };
            self.actions.extend(snapshot.to_prepare(schedule.id).map(prepare));
            if let Some(record) = snapshot.schedules.get(&schedule.id) {
                let live = LiveWork::of(agent, schedule, snapshot);
                let check = due::DueCheck {
                    now: self.now,
                    schedule,
                    record,
                    live: &live,
                    over: live.over_budget(roster, agent, schedule, snapshot, self.now),
                    shares_interval: roster.shares_interval(schedule),
                    snapshot,
                };
                self.firings(&check, &mut places);
            }
        }
        if snapshot.here.takes_jobs_of(&agent.name) {
            self.starts(agent, snapshot, (&holds, over), &places, shared);
        }
    }

    fn ends<'j>(&mut self, jobs: impl Iterator<Item = &'j LiveJob>) {
        for job in jobs {
            let LiveState::Running { epoch, lease_until, cancel } = job.state else { continue };
            if lease_until <= self.now {
                self.actions.push(Action::Expire { job: job.id.clone(), epoch });
            } else {
                self.wake(lease_until);
                self.actions.extend(cancel.then(|| Action::Stop { job: job.id.clone() }));
            }
        }
    }

    fn firings(&mut self, check: &due::DueCheck<'_>, places: &mut FiringPlaces) {
        let (schedule, record) = (check.schedule, check.record);
        let (now, id) = (check.snapshot.moment(self.now), schedule.id);
        if let Some(ends) = record.pause_ends(now) {
            if ends > self.now {
                self.wake(ends);
            } else {
                self.actions.push(Action::Resume { schedule: id });
            }
        }
        if record.state == ScheduleState::Finished && !record.is_finished(schedule, self.now) {
            self.actions.push(Action::Reopen { schedule: id });
        }
        if !schedule.enabled || record.state != ScheduleState::Active {
            return;
        }
        if record.is_ahead_of(now) {
            self.actions.push(Action::RestartFromNow { schedule: id });
            return;
        }
        let verdict = check.verdict(places);
        if let Some(wake) = verdict.wake_at {
            self.wake(wake);
        }
        if verdict.actions.is_empty() && record.is_finished(schedule, self.now) {
            self.actions.push(Action::Finish { schedule: id });
        } else if let Some(end) = check.ends() {
            self.wake(end);
        }
        self.actions.extend(verdict.actions);
    }

    /// Starts the pending jobs of the agent that [`admit`] admits, in their turn, and sets the wake-up time for jobs
    /// that wait for a known time. The wake-up time for the end of a pause is set in [`Self::firings`]. All other
    /// reasons to wait end with an event.
    fn starts(
        &mut self,
        agent: &Agent,
        snapshot: &Snapshot,
        (holds, over): (&Holds<'_>, Option<OverBudget>),
        firings: &FiringPlaces,
        shared: &mut SharedCapacity,
    ) {
        let mut places = PlaceCount::of_running(agent, snapshot);
        let mut sessions = snapshot.busy_sessions(agent);
        let mut latest_turn = None;
        for (job, turn) in snapshot.starting_order(agent) {
            let LiveState::Pending { not_before } = job.state else { continue };
            // A firing that has no job yet gets its place in the next plan. Keep that place free here if the turn of
            // the firing comes before the latest turn so far: that of this job or of an earlier job.
            latest_turn = latest_turn.max(turn.filter(|_| job.item.is_none()));
            let fired_before = match latest_turn {
                Some(turn) if job.item.is_none() => firings.fired_before(turn),
                _ => 0,
            };
            let left = places.without(fired_before);
            // Without a place, there is no need to look for the session and the slot.
            let has_place = left.free() > 0;
            let session_key = || agent.session_key(job.item.as_ref(), job.chat.as_deref(), job.confined);
            let session_key = has_place.then(session_key).flatten();
            let slot = has_place.then(|| shared.slots.find(agent, job, self.now));
            let facts = StartFacts {
                over,
                not_before,
                hold: holds.job(job),
                places: left,
                shared: shared.places,
                session_busy: session_key.as_ref().is_some_and(|key| sessions.contains(key)),
                provider: slot.as_ref().and_then(|slot| slot.as_ref().err().copied()),
            };
            match admit(&facts, self.now) {
                Admission::Admitted => {
                    let Some(Ok(slot)) = slot else { continue };
                    shared.slots.take(&slot, self.now);
                    shared.places.take();
                    places.take(1);
                    sessions.extend(session_key.clone());
                    self.actions.push(Action::Start {
                        job: job.id.clone(),
                        agent: agent.name.clone(),
                        max_concurrent: agent.max_concurrent,
                        session_key,
                        fallback: slot.fallback,
                    });
                }
                Admission::OverBudget(over) => over.until.into_iter().for_each(|until| self.wake(until)),
                Admission::NotBefore(at) => {
                    self.wake(at);
                    // A requeued job keeps its place, so that no later job takes it.
                    if job.requeued.keeps_place() && facts.hold.is_none() {
                        places.take(1);
                    }
                }
                Admission::Provider(wait) => {
                    // The job waits. Keep its session free, so that no later job takes it first. A job by hand takes the
                    // session of a job that waits because of the reserve, because that wait may last for days.
                    sessions.extend(session_key.filter(|_| !matches!(wait, ProviderWait::Reserved { .. })));
                    wait.until().into_iter().for_each(|until| self.wake(until));
                }
                Admission::Held(ScheduleHold::OverPersonBudget(over)) => {
                    over.until.into_iter().for_each(|until| self.wake(until));
                }
                Admission::Held(_)
                | Admission::AtCapacity
                | Admission::FleetFull
                | Admission::NodeFull
                | Admission::SessionBusy => {}
            }
        }
    }
}

/// Firings and jobs of a schedule that have not ended.
struct LiveWork<'a> {
    jobs: Vec<&'a LiveJob>,
    preparing: bool,
    /// True if its firings take items from a work source.
    takes_work: bool,
    /// True if its firings have to be prepared.
    needs_preparing: bool,
    /// Turn of its next firing.
    turn: PlaceTurn,
}

impl<'a> LiveWork<'a> {
    fn of(agent: &Agent, schedule: &Schedule, snapshot: &'a Snapshot) -> Self {
        let jobs = snapshot.jobs.iter().filter(|job| job.schedule == Some(schedule.id)).collect();
        let preparing = snapshot.preparing.iter().any(|firing| firing.schedule == schedule.id);
        let (takes_work, needs_preparing) = (schedule.takes_work(), schedule.needs_preparing(agent));
        Self { jobs, preparing, takes_work, needs_preparing, turn: snapshot.next_turn(schedule) }
    }

    /// Returns the budget that has no room for the schedule's next firing. With `overlap: cancel_previous`, the
    /// reservations of the jobs that the firing cancels do not count.
    fn over_budget(
        &self,
        roster: &Roster,
        agent: &Agent,
        schedule: &Schedule,
        snapshot: &Snapshot,
        now: Timestamp,
    ) -> Option<OverBudget> {
        let over = roster.over_budget(agent, &snapshot.ledger, now)?;
        if self.takes_work || schedule.timing.overlap != Overlap::CancelPrevious {
            return Some(over);
        }
        let cancelled = self.jobs.iter().fold(Amount::default(), |sum, job| sum.plus(job.reserved));
        roster.over_budget(agent, &snapshot.ledger.without_reserved(&agent.name, cancelled), now)
    }

    /// Checks whether a firing takes a place when it fires. A poll of a work source takes a place, which is kept for a
    /// short time. Another firing that has to be prepared takes no place, because its preparation may take long or
    /// never end; its job takes a place when the job is created.
    const fn takes_place(&self) -> bool {
        self.takes_work || !self.needs_preparing
    }

    fn is_empty(&self) -> bool {
        self.jobs.is_empty() && !self.preparing
    }

    /// Checks whether there is a job that the schedule's trigger fired, or a firing without jobs, which may be by hand.
    fn by_trigger(&self) -> bool {
        self.preparing || self.jobs.iter().any(|job| job.by_trigger)
    }
}

/// The places of an agent, to decide whether a new firing gets a place. Places are taken by running jobs, by items that
/// are being claimed, and by pending jobs that come before a new firing. Further places are kept free for polls of work
/// sources.
struct FiringPlaces {
    max: u32,
    ready: ReadyJobs,
    /// Turns of the firings that have no job yet: firings of this plan, and polls for which a place is kept.
    fired: Vec<PlaceTurn>,
    /// Number of these polls that are claiming an item. The place of the poll is the place of the item.
    claiming: usize,
    /// Time at which the first kept place becomes free.
    kept_until: Option<Timestamp>,
}

impl FiringPlaces {
    fn of(agent: &Agent, snapshot: &Snapshot, holds: &Holds<'_>, now: Timestamp) -> Self {
        let (mut fired, mut claiming, mut kept_until) = (Vec::new(), 0, None);
        for firing in snapshot.preparing.iter().filter(|firing| !snapshot.is_held_back(firing)) {
            let schedule = agent.schedules.iter().find(|schedule| schedule.id == firing.schedule);
            let schedule = schedule.filter(|schedule| schedule.takes_work());
            let Some((schedule, until)) = schedule.zip(firing.keeps_place_until(now)) else { continue };
            fired.push(snapshot.next_turn(schedule));
            let mut claims = snapshot.claims_of(agent, now);
            claiming += usize::from(claims.any(|claim| claim.schedule.as_ref() == Some(&schedule.name)));
            kept_until = Some(kept_until.map_or(until, |first: Timestamp| first.min(until)));
        }
        let ready = ReadyJobs::of(agent, snapshot, holds, now);
        Self { max: agent.max_concurrent, ready, fired, claiming, kept_until }
    }

    fn take(&mut self, live: &LiveWork<'_>) {
        self.fired.extend(live.takes_place().then_some(live.turn));
    }

    /// Counts the firings without a job that get a place before a job with this turn.
    fn fired_before(&self, turn: PlaceTurn) -> u32 {
        u32::try_from(self.fired.iter().filter(|fired| **fired < turn).count()).unwrap_or(u32::MAX)
    }

    /// Counts the places that the firings without a job need, in addition to the items that are being claimed.
    fn for_firings(&self) -> usize {
        self.fired.len().saturating_sub(self.claiming)
    }

    /// Checks whether the running jobs, the ready jobs and the firings without a job need all places.
    fn is_full(&self) -> bool {
        self.ready.count() + self.for_firings() >= self.max as usize
    }

    /// Returns the reason to wait if no place is left for the schedule's next firing.
    fn full(&self, live: &LiveWork<'_>) -> Option<Hold> {
        let taken = self.ready.before(live.turn) + self.for_firings();
        (taken >= self.max as usize).then_some(Hold::AtCapacity { running: self.max, max: self.max })
    }
}

#[cfg(test)]
mod tests;
