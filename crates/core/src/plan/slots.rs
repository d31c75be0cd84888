//! Slots of providers, which agents share.

use std::borrow::Cow;
use std::collections::HashMap;

use jiff::Timestamp;

use super::{LiveJob, LiveState, Snapshot};
use crate::provider::{LimitedProvider, Parked, ProviderState, ProviderWait, ReachedReserve};
use crate::roster::{Agent, Roster, Schedule};
use crate::schedule::SkipReason;

/// Slots of each provider of the fleet.
pub(super) struct ProviderSlots {
    providers: HashMap<String, UsedSlots>,
}

struct UsedSlots {
    slot: LimitedProvider,
    state: ProviderState,
    /// Reserve that holds automatic jobs back.
    reserve: Option<ReachedReserve>,
    /// Number of jobs that run at the provider.
    running: u32,
}

impl UsedSlots {
    fn reserve_for(&self, job: &LiveJob) -> Option<&ReachedReserve> {
        self.reserve.as_ref().filter(|_| job.automatic)
    }
}

/// Reason why a job may not start at a provider for a longer time, so that a fallback is tried.
#[derive(Debug, Clone, PartialEq)]
pub enum ProviderHold<'a> {
    /// The provider is used up.
    UsedUp(&'a Parked),
    /// The job is automatic, and the reserve of the provider is reached.
    Reserved(ReachedReserve),
}

impl ProviderHold<'_> {
    pub fn provider(&self) -> &str {
        match self {
            Self::UsedUp(parked) => &parked.provider,
            Self::Reserved(reserve) => &reserve.provider,
        }
    }

    pub const fn until(&self) -> Timestamp {
        match self {
            Self::UsedUp(parked) => parked.until,
            Self::Reserved(reserve) => reserve.until,
        }
    }

    pub const fn reason(&self) -> SkipReason {
        match self {
            Self::UsedUp(_) => SkipReason::UsageLimit,
            Self::Reserved(_) => SkipReason::ReserveReached,
        }
    }

    pub fn sentence(&self) -> String {
        match self {
            Self::UsedUp(parked) => parked.sentence(),
            Self::Reserved(reserve) => reserve.sentence(),
        }
    }
}

/// Reason why a job waits for a provider that has no [`ProviderHold`].
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SlotWait {
    /// Time at which the provider takes a job again, if known.
    pub until: Option<Timestamp>,
    pub sentence: String,
}

/// A slot for a job: of the agent itself, or of the fallback with this number.
pub(super) struct FoundSlot {
    pub(super) fallback: Option<usize>,
    /// None for an agent without a provider.
    provider: Option<String>,
}

/// Returns the candidates for the job, in their order: the agent itself, and the agent with the program of each
/// fallback. A job that continues its session after a usage limit has only the candidates that can continue the
/// session, so that finished work is not repeated. If no candidate can continue the session, all are returned.
fn candidates<'a>(
    agent: &'a Agent,
    job: &LiveJob,
) -> Box<dyn Iterator<Item = (Option<usize>, Cow<'a, Agent>)> + 'a> {
    match &job.resumes {
        None => Box::new(agent.with_fallbacks()),
        Some(runtime) => Box::new(agent.able_to_continue(runtime, job.provider.as_deref()).into_iter()),
    }
}

impl Snapshot {
    /// Returns the hold that the job waits for: of the holds of all candidates, the first to end. None if the provider of
    /// at least one candidate has no hold.
    pub fn provider_hold(
        &self,
        roster: &Roster,
        agent: &Agent,
        job: &LiveJob,
        now: Timestamp,
    ) -> Option<ProviderHold<'_>> {
        let candidates = candidates(agent, job).map(|(_, candidate)| candidate);
        self.first_hold_to_end(roster, candidates, job.automatic, now)
    }

    /// Returns the wait for a provider without a hold: all its slots are taken, or its last start is too recent. The
    /// first candidate whose provider has no hold decides.
    pub fn slot_wait(
        &self,
        roster: &Roster,
        agent: &Agent,
        job: &LiveJob,
        now: Timestamp,
    ) -> Option<SlotWait> {
        let state = |slot: &LimitedProvider| self.providers.get(&slot.provider).cloned().unwrap_or_default();
        let slots = candidates(agent, job).map(|(_, candidate)| roster.slot(&candidate));
        // A candidate without a provider does not wait.
        let is_open = |slot: &LimitedProvider| self.hold_at(slot, job.automatic, now).is_none();
        let slot = slots.take_while(Option::is_some).flatten().find(is_open)?;
        let runs = |job: &&LiveJob| {
            matches!(job.state, LiveState::Running { .. }) && job.provider.as_ref() == Some(&slot.provider)
        };
        let running = u32::try_from(self.jobs.iter().filter(runs).count()).unwrap_or(u32::MAX);
        let name = &slot.provider;
        let (until, sentence) = match slot.wait(&state(&slot), None, running, now)? {
            ProviderWait::Opens(until) | ProviderWait::Reserved { until, .. } => {
                let every = slot.limits.start_every?;
                let how = format!("the provider {name} starts one job every {every} (`start_every`)");
                (Some(until), format!("{how}, the next one at {until:.0}"))
            }
            ProviderWait::Full => {
                let places = slot.limits.max_concurrent?;
                let how = format!("all slots of the provider {name} are taken");
                (None, format!("{how} ({places}, `max_concurrent`)"))
            }
        };
        Some(SlotWait { until, sentence })
    }

    /// Returns the hold that a new job would wait for, if the trigger of the schedule fired it.
    pub fn provider_hold_of_new(
        &self,
        roster: &Roster,
        agent: &Agent,
        schedule: &Schedule,
        now: Timestamp,
    ) -> Option<ProviderHold<'_>> {
        let candidates = agent.with_fallbacks().map(|(_, candidate)| candidate);
        self.first_hold_to_end(roster, candidates, schedule.trigger.kind().is_automatic(), now)
    }

    fn first_hold_to_end<'a>(
        &self,
        roster: &Roster,
        candidates: impl Iterator<Item = Cow<'a, Agent>>,
        automatic: bool,
        now: Timestamp,
    ) -> Option<ProviderHold<'_>> {
        let hold = |agent: Cow<'a, Agent>| self.hold_at(&roster.slot(&agent)?, automatic, now);
        let holds: Option<Vec<ProviderHold<'_>>> = candidates.map(hold).collect();
        holds?.into_iter().min_by_key(ProviderHold::until)
    }

    /// Returns the hold of a provider. If the provider is used up and its reserve is reached too, returns the one that
    /// ends later.
    fn hold_at(&self, slot: &LimitedProvider, automatic: bool, now: Timestamp) -> Option<ProviderHold<'_>> {
        let state = self.providers.get(&slot.provider)?;
        let used_up = state.used_up(now).map(ProviderHold::UsedUp);
        let reserve = automatic.then(|| slot.reached_reserve(state, now)).flatten();
        used_up.into_iter().chain(reserve.map(ProviderHold::Reserved)).max_by_key(ProviderHold::until)
    }
}

impl ProviderSlots {
    /// Returns the slots of the providers of these agents.
    pub(super) fn of<'a>(
        roster: &Roster,
        agents: impl Iterator<Item = &'a Agent>,
        snapshot: &Snapshot,
        now: Timestamp,
    ) -> Self {
        let mut providers = HashMap::new();
        for agent in agents {
            for (_, agent) in agent.with_fallbacks() {
                let Some(slot) = roster.slot(&agent) else { continue };
                let state = snapshot.providers.get(&slot.provider).cloned().unwrap_or_default();
                let reserve = slot.reached_reserve(&state, now);
                let used = UsedSlots { slot, state, reserve, running: 0 };
                providers.entry(used.slot.provider.clone()).or_insert(used);
            }
        }
        let running = snapshot.jobs.iter().filter(|job| matches!(job.state, LiveState::Running { .. }));
        for provider in running.filter_map(|job| job.provider.as_ref()) {
            if let Some(used) = providers.get_mut(provider) {
                used.running += 1;
            }
        }
        Self { providers }
    }

    /// Finds a slot for the job. The other candidates are tried only if the provider of the first candidate is used up,
    /// or its reserve holds the job back.
    /// If no candidate has a slot now, returns the reason, with the earliest time at which a candidate can start, if
    /// known.
    pub(super) fn find(
        &self,
        agent: &Agent,
        job: &LiveJob,
        now: Timestamp,
    ) -> Result<FoundSlot, ProviderWait> {
        let mut waits: Option<ProviderWait> = None;
        for (fallback, candidate) in candidates(agent, job) {
            let used = candidate.provider().and_then(|provider| self.providers.get(provider));
            let wait =
                |used: &UsedSlots| used.slot.wait(&used.state, used.reserve_for(job), used.running, now);
            let Some(why) = used.and_then(wait) else {
                let provider = used.map(|used| used.slot.provider.clone());
                return Ok(FoundSlot { fallback, provider });
            };
            let has_hold =
                |used: &UsedSlots| used.state.used_up(now).is_some() || used.reserve_for(job).is_some();
            if waits.is_none() && !used.is_some_and(has_hold) {
                return Err(why);
            }
            let ends = |wait: &ProviderWait| wait.until().unwrap_or(Timestamp::MAX);
            waits = waits.into_iter().chain([why]).min_by_key(ends);
        }
        Err(waits.unwrap_or(ProviderWait::Full))
    }

    /// Takes a slot that was found for a job that starts now.
    pub(super) fn take(&mut self, found: &FoundSlot, now: Timestamp) {
        let provider = found.provider.as_ref();
        if let Some(used) = provider.and_then(|provider| self.providers.get_mut(provider)) {
            used.running += 1;
            used.state.last_start = Some(now);
        }
    }
}
