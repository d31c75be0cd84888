//! The schedules of a fleet.

use super::{Fleet, FleetError};
use crate::schedule_view::{ScheduleView, schedules};

impl Fleet {
    /// Returns all schedules, in the order of the fleet's files.
    pub async fn schedules(&self) -> Result<Vec<ScheduleView>, FleetError> {
        Ok(schedules(self.store(), &self.roster(), self.clock().now()).await?)
    }
}
