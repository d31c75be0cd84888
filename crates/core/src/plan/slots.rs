//! Slots of providers, which agents share.

use std::borrow::Cow;
use std::collections::HashMap;

use jiff::Timestamp;

use super::{LiveJob, LiveState, Snapshot};
use crate::provider::{Parked, ProviderSlot, ProviderState};
use crate::roster::{Agent, Roster};

/// Free slots of each provider of the fleet.
pub(super) struct ProviderSlots {
    providers: HashMap<String, Free>,
}

struct Free {
    slot: ProviderSlot,
    state: ProviderState,
    /// Number of free slots; none means no limit.
    left: Option<u32>,
}

/// Reason why a job waits for a provider that is not used up.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SlotWait {
    /// Time at which the provider takes a job again, if known.
    pub until: Option<Timestamp>,
    pub sentence: String,
}

pub(super) enum SlotResult {
    /// Taken by the agent itself, or by its fallback of this number.
    Taken {
        fallback: Option<usize>,
    },
    Opens(Timestamp),
    /// No slot is free until a running job ends.
    Full,
}

/// Returns the agents that may run the job, in their order: the agent and its fallbacks. A job with a session continues
/// only where its session can, so that finished work is not repeated.
fn candidates<'a>(
    agent: &'a Agent,
    job: &LiveJob,
) -> Box<dyn Iterator<Item = (Option<usize>, Cow<'a, Agent>)> + 'a> {
    match &job.resumes {
        None => Box::new(agent.with_fallbacks()),
        Some(runtime) => Box::new(agent.successors(runtime, job.provider.as_deref()).into_iter()),
    }
}

impl Snapshot {
    /// Returns the limit that the job waits for: all candidates are used up, and this limit ends first.
    pub fn limit_of(&self, agent: &Agent, job: &LiveJob, now: Timestamp) -> Option<&Parked> {
        self.first_to_end(candidates(agent, job).map(|(_, candidate)| candidate), now)
    }

    /// Returns the provider that the job waits for although it is not used up: all its slots are taken, or its last
    /// start is too recent. The first candidate whose provider is not used up decides.
    pub fn slot_wait(
        &self,
        roster: &Roster,
        agent: &Agent,
        job: &LiveJob,
        now: Timestamp,
    ) -> Option<SlotWait> {
        let state = |slot: &ProviderSlot| self.providers.get(&slot.provider).cloned().unwrap_or_default();
        let slots = candidates(agent, job).map(|(_, candidate)| roster.slot(&candidate));
        // A candidate without a provider does not wait.
        let slot =
            slots.take_while(Option::is_some).flatten().find(|slot| state(slot).used_up(now).is_none())?;
        let until = slot.opens(&state(&slot), now);
        let runs = |job: &&LiveJob| {
            matches!(job.state, LiveState::Running { .. }) && job.provider.as_ref() == Some(&slot.provider)
        };
        let running = self.jobs.iter().filter(runs).count();
        let places = slot.limits.max_concurrent.filter(|places| running >= *places as usize);
        let name = &slot.provider;
        let sentence = match (until, slot.limits.start_every, places) {
            (Some(until), Some(every), _) => format!(
                "the provider {name} starts one job every {every} (`start_every`), the next one at {until:.0}"
            ),
            (_, _, Some(places)) => {
                format!(
                    "as many jobs run at the provider {name} as it has places ({places}, `max_concurrent`)"
                )
            }
            _ => return None,
        };
        Some(SlotWait { until, sentence })
    }

    /// Returns the limit that a new job of the agent would wait for.
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
    pub(super) fn of(roster: &Roster, snapshot: &Snapshot) -> Self {
        let mut providers = HashMap::new();
        for agent in &roster.agents {
            for (_, agent) in agent.with_fallbacks() {
                let Some(slot) = roster.slot(&agent) else { continue };
                let state = snapshot.providers.get(&slot.provider).cloned().unwrap_or_default();
                let left = slot.limits.max_concurrent;
                providers.entry(slot.provider.clone()).or_insert(Free { slot, state, left });
            }
        }
        let running = snapshot.jobs.iter().filter(|job| matches!(job.state, LiveState::Running { .. }));
        for provider in running.filter_map(|job| job.provider.as_ref()) {
            if let Some(left) = providers.get_mut(provider).and_then(|free| free.left.as_mut()) {
                *left = left.saturating_sub(1);
            }
        }
        Self { providers }
    }

    /// Takes a slot for the job, if there is one. While the first candidate is used up, the next one is tried.
    pub(super) fn take(&mut self, agent: &Agent, job: &LiveJob, now: Timestamp) -> SlotResult {
        let mut waits: Option<SlotResult> = None;
        for (number, candidate) in candidates(agent, job) {
            let why = match self.at(&candidate, now) {
                Ok(()) => return SlotResult::Taken { fallback: number },
                Err(why) => why,
            };
            if waits.is_none() && !self.is_used_up(&candidate, now) {
                return why;
            }
            waits = Some(match (waits, why) {
                (Some(SlotResult::Opens(one)), SlotResult::Opens(other)) => SlotResult::Opens(one.min(other)),
                (Some(SlotResult::Opens(at)), _) | (_, SlotResult::Opens(at)) => SlotResult::Opens(at),
                (_, why) => why,
            });
        }
        waits.unwrap_or(SlotResult::Full)
    }

    fn is_used_up(&self, agent: &Agent, now: Timestamp) -> bool {
        let free = agent.provider().and_then(|provider| self.providers.get(provider));
        free.is_some_and(|free| free.state.used_up(now).is_some())
    }

    fn at(&mut self, agent: &Agent, now: Timestamp) -> Result<(), SlotResult> {
        let free = agent.provider().and_then(|provider| self.providers.get_mut(provider));
        let Some(free) = free else { return Ok(()) };
        if let Some(opens) = free.slot.opens(&free.state, now) {
            return Err(SlotResult::Opens(opens));
        }
        match &mut free.left {
            Some(0) => return Err(SlotResult::Full),
            Some(left) => *left -= 1,
            None => {}
        }
        free.state.last_start = Some(now);
        Ok(())
    }
}
