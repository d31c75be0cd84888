//! Places at providers, which agents share.

use std::collections::HashMap;

use jiff::Timestamp;

use super::{LiveState, Snapshot};
use crate::provider::{ProviderState, Seat};
use crate::roster::{Agent, Roster};

/// What is free at each provider of the fleet.
pub(super) struct Seats<'a> {
    providers: HashMap<&'a str, Free>,
}

struct Free {
    seat: Seat,
    state: ProviderState,
    /// None means any number.
    left: Option<u32>,
}

pub(super) enum Taking {
    Taken,
    Opens(Timestamp),
    /// Until one of those that run ends.
    Full,
}

impl<'a> Seats<'a> {
    pub(super) fn of(roster: &'a Roster, snapshot: &Snapshot) -> Self {
        let mut providers: HashMap<&str, Free> = HashMap::new();
        for agent in &roster.agents {
            let Some(provider) = agent.provider() else { continue };
            let free = providers.entry(provider).or_insert_with(|| {
                let limits = roster.providers.get(provider).cloned().unwrap_or_default();
                let left = limits.max_concurrent;
                let seat = Seat { provider: provider.to_owned(), limits, agents: Vec::new() };
                Free { seat, state: snapshot.providers.get(provider).cloned().unwrap_or_default(), left }
            });
            free.seat.agents.push(agent.name.clone());
        }
        let mut seats = Self { providers };
        for job in &snapshot.jobs {
            let agent = roster.agent(&job.agent).filter(|_| matches!(job.state, LiveState::Running { .. }));
            if let Some(left) = agent.and_then(|agent| seats.free(agent)?.left.as_mut()) {
                *left = left.saturating_sub(1);
            }
        }
        seats
    }

    fn free(&mut self, agent: &Agent) -> Option<&mut Free> {
        self.providers.get_mut(agent.provider()?)
    }

    /// One more of the agent's jobs starts, if it may.
    pub(super) fn take(&mut self, agent: &Agent, now: Timestamp) -> Taking {
        let Some(free) = self.free(agent) else { return Taking::Taken };
        if let Some(opens) = free.seat.opens(&free.state, now) {
            return Taking::Opens(opens);
        }
        match &mut free.left {
            Some(0) => return Taking::Full,
            Some(left) => *left -= 1,
            None => {}
        }
        free.state.last_start = Some(now);
        Taking::Taken
    }
}
