//! Places at providers, which agents share.

use std::collections::HashMap;

use jiff::Timestamp;

use super::{LiveJob, LiveState, Snapshot};
use crate::provider::{ProviderState, Seat};
use crate::roster::{Agent, Roster};

/// What is free at each provider of the fleet.
pub(super) struct Seats {
    providers: HashMap<String, Free>,
}

struct Free {
    seat: Seat,
    state: ProviderState,
    /// None means any number.
    left: Option<u32>,
}

pub(super) enum Taking {
    /// As the agent is, or as its fallback of this number.
    Taken {
        stand_in: Option<usize>,
    },
    Opens(Timestamp),
    /// Until one of those that run ends.
    Full,
}

impl Seats {
    pub(super) fn of(roster: &Roster, snapshot: &Snapshot) -> Self {
        let mut providers = HashMap::new();
        for agent in roster.agents.iter().filter(|agent| agent.provider().is_some()) {
            for (_, agent) in agent.and_stand_ins() {
                let Some(seat) = roster.seat(&agent) else { continue };
                let state = snapshot.providers.get(&seat.provider).cloned().unwrap_or_default();
                let left = seat.limits.max_concurrent;
                providers.entry(seat.provider.clone()).or_insert(Free { seat, state, left });
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

    /// The job starts, if it may. While the agent's own provider is used up, a fallback takes its place; but one that
    /// has begun has a session, which only its own runtime can go on with.
    pub(super) fn take(&mut self, agent: &Agent, job: &LiveJob, now: Timestamp) -> Taking {
        let own = match self.at(agent, now) {
            Ok(()) => return Taking::Taken { stand_in: None },
            Err(own) => own,
        };
        if !self.is_used_up(agent, now) {
            return own;
        }
        let runtime = |agent: &Agent| agent.settings.runtime.unwrap_or_default().name();
        for (number, other) in agent.and_stand_ins().skip(1) {
            let may = !job.began || runtime(&other) == runtime(agent);
            if may && self.at(&other, now).is_ok() {
                return Taking::Taken { stand_in: number };
            }
        }
        own
    }

    fn is_used_up(&self, agent: &Agent, now: Timestamp) -> bool {
        let free = agent.provider().and_then(|provider| self.providers.get(provider));
        free.and_then(|free| free.state.parked.as_ref()).is_some_and(|parked| parked.until > now)
    }

    fn at(&mut self, agent: &Agent, now: Timestamp) -> Result<(), Taking> {
        let free = agent.provider().and_then(|provider| self.providers.get_mut(provider));
        let Some(free) = free else { return Ok(()) };
        if let Some(opens) = free.seat.opens(&free.state, now) {
            return Err(Taking::Opens(opens));
        }
        match &mut free.left {
            Some(0) => return Err(Taking::Full),
            Some(left) => *left -= 1,
            None => {}
        }
        free.state.last_start = Some(now);
        Ok(())
    }
}
