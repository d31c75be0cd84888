//! Schedules on and off, until somebody says otherwise.

use cowhand_core::id::{AgentName, ScheduleId, ScheduleName};
use cowhand_core::schedule::DisabledBy;

use super::trigger::schedule_of;
use super::{Fleet, FleetError};

impl Fleet {
    /// Says whether it was off. What fell due or happened meanwhile is not made up; a trigger that gave up begins anew.
    pub async fn enable(&self, agent: &AgentName, schedule: &ScheduleName) -> Result<bool, FleetError> {
        let was_off = self.store().enable(self.id_of(agent, schedule)?, self.clock().now()).await?;
        self.nudge();
        Ok(was_off)
    }

    /// Says whether it was on. What runs goes on.
    pub async fn disable(&self, agent: &AgentName, schedule: &ScheduleName) -> Result<bool, FleetError> {
        let id = self.id_of(agent, schedule)?;
        let was_on = self.store().disable(id, DisabledBy::Person, self.clock().now()).await?;
        self.nudge();
        Ok(was_on)
    }

    fn id_of(&self, agent: &AgentName, schedule: &ScheduleName) -> Result<ScheduleId, FleetError> {
        let roster = self.roster();
        let agent = roster.agent(agent).ok_or_else(|| FleetError::NoAgent(agent.clone()))?;
        schedule_of(agent, schedule).map(|schedule| schedule.id)
    }
}
