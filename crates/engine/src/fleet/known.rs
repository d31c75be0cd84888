//! Checks of the names in filters: a name that never existed is an error, not an empty list.

use cowhand_core::config::suggest::closest;
use cowhand_core::id::{AgentName, ScheduleName};
use cowhand_core::roster::{Agent, Roster};
use cowhand_core::schedule::ScheduleRecord;

use super::FleetError;
use cowhand_store::{JobFilter, Store, StoreError};

/// Returns an error if the agent is unknown. An agent that was removed from the config is known as long as it has jobs
/// or firings that wait for their jobs.
pub async fn known_agent(store: &Store, roster: &Roster, agent: &AgentName) -> Result<(), FleetError> {
    let filter = JobFilter { agent: Some(agent.clone()), ..JobFilter::default() };
    let is_known = roster.agent(agent).is_some()
        || has_jobs(store, filter).await?
        || has_firings(store, Some(agent), None).await?;
    if !is_known {
        return Err(match FleetError::no_agent(roster, agent) {
            FleetError::NoAgent { agent, nearest: None } => {
                let removed = store.agents_with_jobs().await?;
                let nearest = closest(agent.as_str(), removed.iter().map(AgentName::as_str));
                FleetError::NoAgent { nearest: nearest.map(str::to_owned), agent }
            }
            error => error,
        });
    }
    Ok(())
}

/// Returns the error for an agent that is not in the config: it was removed, or it never existed.
pub async fn missing_agent(store: &Store, roster: &Roster, agent: &AgentName) -> FleetError {
    match known_agent(store, roster, agent).await {
        Ok(()) => FleetError::AgentRemoved { agent: agent.clone() },
        Err(error) => error,
    }
}

/// Returns an error if the schedule is unknown. Without an agent, the schedules of all agents are searched. A schedule
/// that was removed from the config is known as long as it has jobs or firings that wait for their jobs.
pub async fn known_schedule(
    store: &Store,
    roster: &Roster,
    agent: Option<&AgentName>,
    schedule: &ScheduleName,
) -> Result<(), FleetError> {
    let agents =
        || roster.agents.iter().filter(|configured| agent.is_none_or(|agent| configured.name == *agent));
    let names = || agents().flat_map(|agent| &agent.schedules).map(|schedule| schedule.name.as_str());
    let filter =
        JobFilter { agent: agent.cloned(), schedule: Some(schedule.clone()), ..JobFilter::default() };
    let is_known = names().any(|name| name == schedule.as_str())
        || has_jobs(store, filter).await?
        || has_firings(store, agent, Some(schedule)).await?;
    if is_known {
        return Ok(());
    }
    let nearest = if let Some(nearest) = closest(schedule.as_str(), names()) {
        Some(nearest.to_owned())
    } else {
        let removed = store.schedules_with_jobs(agent).await?;
        closest(schedule.as_str(), removed.iter().map(ScheduleName::as_str)).map(str::to_owned)
    };
    let schedule = schedule.to_string();
    Err(match agent {
        Some(agent) => FleetError::NoSchedule { agent: agent.clone(), schedule, nearest },
        None => FleetError::NoScheduleAnywhere { schedule, nearest },
    })
}

/// Returns the error for a schedule that is not in the config: it was removed, or it never existed.
pub async fn missing_schedule(store: &Store, roster: &Roster, agent: &Agent, schedule: &str) -> FleetError {
    let Ok(name) = schedule.parse::<ScheduleName>() else { return FleetError::no_schedule(agent, schedule) };
    match known_schedule(store, roster, Some(&agent.name), &name).await {
        Ok(()) => FleetError::ScheduleRemoved { agent: agent.name.clone(), schedule: name },
        Err(error) => error,
    }
}

async fn has_jobs(store: &Store, filter: JobFilter) -> Result<bool, StoreError> {
    Ok(!store.jobs(filter, 1).await?.is_empty())
}

async fn has_firings(
    store: &Store,
    agent: Option<&AgentName>,
    schedule: Option<&ScheduleName>,
) -> Result<bool, StoreError> {
    let snapshot = store.snapshot().await?;
    let mut waiting = snapshot.preparing.iter().filter_map(|firing| snapshot.schedules.get(&firing.schedule));
    Ok(waiting.any(|record| is_of(record, agent, schedule)))
}

/// Returns whether a schedule has these names. `None` stands for any name.
pub(super) fn is_of(
    record: &ScheduleRecord,
    agent: Option<&AgentName>,
    schedule: Option<&ScheduleName>,
) -> bool {
    agent.is_none_or(|agent| record.agent == *agent) && schedule.is_none_or(|name| record.name == *name)
}
