//! Requests to plan agents again.

use std::collections::HashSet;
use std::sync::{Mutex, PoisonError};

use cowhand_core::id::AgentName;

/// Agents that a part of the daemon wants to be planned, because of a change without an event.
#[derive(Debug, Default)]
pub(crate) struct PlanRequests(Mutex<RequestedPlans>);

#[derive(Debug, Default)]
pub(crate) struct RequestedPlans {
    pub(crate) agents: HashSet<AgentName>,
    pub(crate) all: bool,
}

impl PlanRequests {
    pub(crate) fn add(&self, agent: AgentName) {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).agents.insert(agent);
    }

    pub(crate) fn add_all(&self) {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).all = true;
    }

    pub(crate) fn take(&self) -> RequestedPlans {
        std::mem::take(&mut self.0.lock().unwrap_or_else(PoisonError::into_inner))
    }
}
