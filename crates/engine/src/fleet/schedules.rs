//! The schedules of a fleet.

use cowhand_core::id::ScheduleName;
use cowhand_core::roster::{Agent, Schedule};

use super::{Fleet, FleetError, missing_schedule};
use crate::schedule_view::{ScheduleView, schedules};

impl Fleet {
    /// Returns all schedules, in the order of the fleet's files.
    pub async fn schedules(&self) -> Result<Vec<ScheduleView>, FleetError> {
        Ok(schedules(self.store(), &self.roster(), self.clock().now()).await?)
    }

    /// Finds a schedule for a verb that needs it in the config. The error does not suggest a removed schedule.
    pub(super) async fn schedule_of<'a>(
        &self,
        agent: &'a Agent,
        name: &ScheduleName,
    ) -> Result<&'a Schedule, FleetError> {
        if let Some(schedule) = agent.schedules.iter().find(|own| own.name == *name) {
            return Ok(schedule);
        }
        // The schedule of web chat exists after its first message.
        let web_chat = agent.web_chat.as_ref().map(|chat| &*chat.schedule).filter(|own| own.name == *name);
        if let Some(schedule) = web_chat
            && self.store().schedule(schedule.id).await?.is_some()
        {
            return Ok(schedule);
        }
        Err(match missing_schedule(self.store(), &self.roster(), agent, name.as_str()).await {
            FleetError::NoSchedule { .. } => FleetError::no_schedule(agent, name.as_str()),
            error => error,
        })
    }
}
