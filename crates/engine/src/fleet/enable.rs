//! Enables and disables schedules on request of a person.

use cowhand_core::id::{AgentName, ScheduleName};
use cowhand_core::roster::Schedule;
use cowhand_core::schedule::{DisabledBy, ScheduleRecord, ScheduleState};
use tracing::warn;

use super::{Fleet, FleetError};

impl Fleet {
    /// Enables a schedule and returns whether this changed the schedule. Due times and events that passed while the
    /// schedule was disabled do not fire later. A pause ends, the breaker is reset, and a schedule in the state `error`
    /// is active again. A schedule that is disabled in its file, or finished, cannot be enabled. A delay whose time
    /// passed while it was disabled is finished when it is enabled.
    pub async fn enable(&self, agent: &AgentName, schedule: &ScheduleName) -> Result<bool, FleetError> {
        let configured = self.find_with_current_files(agent, schedule).await?;
        let name = || (agent.clone(), schedule.clone());
        let record = self.store().schedule(configured.id).await?;
        let off_by_person = record.as_ref().is_some_and(ScheduleRecord::is_disabled_by_person);
        if let Some(location) = configured.disabled_in_file() {
            let (agent, schedule) = name();
            return Err(FleetError::OffInFile { agent, schedule, location, off_by_person });
        }
        let now = self.clock().now();
        if record.as_ref().is_some_and(ScheduleRecord::is_done) && !off_by_person {
            let (agent, schedule) = name();
            return Err(FleetError::HasFired { agent, schedule });
        }
        let is_finished = |record: &&ScheduleRecord| record.is_finished(&configured, now);
        let finished = record.as_ref().filter(is_finished);
        if let Some(due) = finished.and_then(|record| record.passed_while_off(&configured)) {
            let (agent, schedule) = name();
            return Err(FleetError::PassedWhileOff { agent, schedule, due });
        }
        if let (Some(end), true) = (configured.timing.end_at, configured.is_over(now)) {
            let (agent, schedule) = name();
            return Err(FleetError::Finished { agent, schedule, end, off_by_person });
        }
        let was_off = self.store().enable(configured.id, now).await?;
        self.nudge();
        Ok(was_off)
    }

    /// Disables a schedule and returns whether this changed its state. Running jobs continue.
    pub async fn disable(&self, agent: &AgentName, schedule: &ScheduleName) -> Result<bool, FleetError> {
        let id = self.find(agent, schedule).await?.id;
        let was_on = self.store().disable(id, DisabledBy::Person, self.clock().now()).await?;
        self.nudge();
        Ok(was_on)
    }

    /// Finds a schedule. If its trigger fails, or the schedule has stopped because of an error, first reads the config
    /// and `.env` again: a person may have just corrected them, and the daemon notices changes of files with a delay.
    async fn find_with_current_files(
        &self,
        agent: &AgentName,
        schedule: &ScheduleName,
    ) -> Result<Schedule, FleetError> {
        let configured = self.find(agent, schedule).await?;
        let record = self.store().schedule(configured.id).await?;
        let is_stopped = record.is_some_and(|record| {
            record.trigger_error.is_some() || matches!(record.state, ScheduleState::Error { .. })
        });
        if !is_stopped || self.config.is_none() {
            return Ok(configured);
        }
        if let Err(error) = self.reload().await {
            warn!("the config was not loaded again before {agent}/{schedule} was enabled: {error}");
        }
        self.find(agent, schedule).await
    }

    async fn find(&self, agent: &AgentName, schedule: &ScheduleName) -> Result<Schedule, FleetError> {
        let roster = self.roster();
        let Some(agent) = roster.agent(agent) else { return Err(self.missing_agent_error(agent).await) };
        self.schedule_of(agent, schedule).await.cloned()
    }
}
