//! Slots of providers, which agents share.

use std::borrow::Cow;
use std::collections::HashMap;

use jiff::Timestamp;

use super::{LiveJob, LiveState, Snapshot};
use crate::provider::{LimitedProvider, Parked, ProviderState, ProviderWait};
use crate::roster::{Agent, Roster};

/// Slots of each provider of the fleet.
pub(super) struct ProviderSlots {
    providers: HashMap<String, UsedSlots>,
}

struct UsedSlots {
    slot: LimitedProvider,
    state: ProviderState,
    /// Number of jobs that run at the provider.
    running: u32,
}

/// Reason why a job waits for a provider that is not used up.
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
    /// Returns the usage limit that the job waits for: of the limits of all candidates, the first to end. None if the
    /// provider of at least one candidate is not used up.
    pub fn limit_of(&self, agent: &Agent, job: &LiveJob, now: Timestamp) -> Option<&Parked> {
        self.first_to_end(candidates(agent, job).map(|(_, candidate)| candidate), now)
    }

    /// Returns the wait for a provider that is not used up: all its slots are taken, or its last start is too recent.
    /// The first candidate whose provider is not used up decides.
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
        let slot =
            slots.take_while(Option::is_some).flatten().find(|slot| state(slot).used_up(now).is_none())?;
        let runs = |job: &&LiveJob| {
            matches!(job.state, LiveState::Running { .. }) && job.provider.as_ref() == Some(&slot.provider)
        };
        let running = u32::try_from(self.jobs.iter().filter(runs).count()).unwrap_or(u32::MAX);
        let name = &slot.provider;
        let (until, sentence) = match slot.wait(&state(&slot), running, now)? {
            ProviderWait::Opens(until) => {
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

    /// Returns the usage limit that a new job of the agent would wait for.
    pub fn limit(&self, agent: &Agent, now: Timestamp) -> Option<&Parked> {
        self.first_to_end(agent.with_fallbacks().map(|(_, candidate)| candidate), now)
    }

    fn first_to_end<'a>(
        &self,
        candidates: impl Iterator<Item = Cow<'a, Agent>>,
        now: Timestamp,
    ) -> Option<&Parked> {
        let used_up = |agent: &Agent| self.providers.get(agent.provider()?)?.used_up(now);
        let limits: Option<Vec<&Parked>> = candidates.map(|agent| used_up(&agent)).collect();
        limits?.into_iter().min_by_key(|parked| parked.until)
    }
}

impl ProviderSlots {
    /// Returns the slots of the providers of these agents.
    pub(super) fn of<'a>(
        roster: &Roster,
        agents: impl Iterator<Item = &'a Agent>,
        snapshot: &Snapshot,
    ) -> Self {
        let mut providers = HashMap::new();
        for agent in agents {
            for (_, agent) in agent.with_fallbacks() {
                let Some(slot) = roster.slot(&agent) else { continue };
                let state = snapshot.providers.get(&slot.provider).cloned().unwrap_or_default();
                providers.entry(slot.provider.clone()).or_insert(UsedSlots { slot, state, running: 0 });
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

    /// Finds a slot for the job. The other candidates are tried only if the provider of the first candidate is used up.
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
            let Some(why) = used.and_then(|used| used.slot.wait(&used.state, used.running, now)) else {
                let provider = used.map(|used| used.slot.provider.clone());
                return Ok(FoundSlot { fallback, provider });
            };
            let is_used_up = used.is_some_and(|used| used.state.used_up(now).is_some());
            if waits.is_none() && !is_used_up {
                return Err(why);
            }
            waits = Some(match (waits, why) {
                (Some(ProviderWait::Opens(one)), ProviderWait::Opens(other)) => {
                    ProviderWait::Opens(one.min(other))
                }
                (Some(ProviderWait::Opens(at)), _) | (_, ProviderWait::Opens(at)) => ProviderWait::Opens(at),
                (_, why) => why,
            });
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
