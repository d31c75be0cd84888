//! `schedules` and `schedule`: lists, runs, enables and disables the schedules of the agent.

use std::time::Duration;

use cowhand_core::chat::escape::{escape, inline_code};
use cowhand_core::chat::texts;
use cowhand_core::duration;
use cowhand_core::roster::Schedule;
use cowhand_core::trigger::Occurrence;

use super::{UsedCommand, names};
use crate::fleet::{FleetError, TriggerRequest, Triggered};
use crate::schedule_view::{ScheduleView, schedules_of_agent};
use cowhand_store::audit;

/// Longest time for which the answer to a command in a message waits for the preparation of a firing. Later messages of
/// the channel wait meanwhile.
const PREPARE_WAIT: Duration = Duration::from_secs(3);
/// Number of schedules that are listed.
const MAX_LISTED_SCHEDULES: usize = 25;

impl UsedCommand<'_> {
    pub(super) async fn schedules(&self) -> Result<String, FleetError> {
        let (roster, now) = (self.context().fleet.roster(), self.now());
        let snapshot = self.store().snapshot_of(&roster, now).await?;
        let platform = self.platform();
        let line = |view: &ScheduleView| {
            let next = view.next_run_at.map(|at| format!(", next {}", duration::until(now, at)));
            let (name, status) = (inline_code(view.schedule.as_str(), platform), view.status.as_str());
            format!("{name} {}, {status}{}", escape(&view.kind, platform), next.unwrap_or_default())
        };
        let views = schedules_of_agent(&roster, &self.addressee.agent, &snapshot, now);
        let mut lines: Vec<String> = views.iter().take(MAX_LISTED_SCHEDULES).map(line).collect();
        if views.len() > MAX_LISTED_SCHEDULES {
            lines.push(format!("{} more schedules are not shown.", views.len() - MAX_LISTED_SCHEDULES));
        }
        Ok(lines.join("\n"))
    }

    /// Fires a schedule by hand.
    pub(super) async fn run_schedule(&self, name: &str) -> Result<String, FleetError> {
        let Some(schedule) = self.schedule_named(name) else { return Ok(self.no_schedule(name)) };
        let key = format!("chat {}", self.sent.id);
        let request = TriggerRequest {
            schedule: Some(schedule.name.clone()),
            idempotency_key: Some(key.clone()),
            ..TriggerRequest::default()
        };
        let fleet = &self.context().fleet;
        let trigger = audit::by(self.sent.actor(), fleet.trigger(self.agent_name(), request));
        let triggered = match self.sent.received {
            None => trigger.await?,
            Some(_) => match tokio::time::timeout(PREPARE_WAIT, trigger).await {
                Ok(triggered) => triggered?,
                Err(_) => return self.still_prepared(schedule, &key).await,
            },
        };
        let job = match triggered {
            Triggered::New(job) | Triggered::Existing(job) => Some(job),
            Triggered::Accepted(_) => None,
        };
        let job = job.as_ref().map(cowhand_core::job::Job::id);
        Ok(texts::schedule_fired(&self.full_name(schedule), job, self.platform()))
    }

    /// Returns the answer about a firing that is still being prepared.
    async fn still_prepared(&self, schedule: &Schedule, key: &str) -> Result<String, FleetError> {
        let firing = self.store().firing(schedule.id, Occurrence::Manual(key).key(0)).await?;
        Ok(match firing {
            Some(firing) => {
                texts::schedule_fired(&self.full_name(schedule), firing.job.as_ref(), self.platform())
            }
            None => texts::not_done("the store does not answer in time; try again", self.platform()),
        })
    }

    pub(super) async fn enable_schedule(&self, name: &str) -> Result<String, FleetError> {
        let Some(schedule) = self.schedule_named(name) else { return Ok(self.no_schedule(name)) };
        let enable = self.context().fleet.enable(self.agent_name(), &schedule.name);
        let is_changed = audit::by(self.sent.actor(), enable).await?;
        Ok(texts::schedule_enabled(&self.full_name(schedule), is_changed, self.platform()))
    }

    pub(super) async fn disable_schedule(&self, name: &str) -> Result<String, FleetError> {
        let Some(schedule) = self.schedule_named(name) else { return Ok(self.no_schedule(name)) };
        let disable = self.context().fleet.disable(self.agent_name(), &schedule.name);
        let is_changed = audit::by(self.sent.actor(), disable).await?;
        Ok(texts::schedule_disabled_by(&self.full_name(schedule), is_changed, self.platform()))
    }

    fn schedule_named(&self, name: &str) -> Option<&Schedule> {
        names::schedule(&self.addressee.agent, name)
    }

    fn no_schedule(&self, name: &str) -> String {
        texts::no_such_schedule(name, self.platform())
    }

    fn full_name(&self, schedule: &Schedule) -> String {
        format!("{}/{}", self.agent_name(), schedule.name)
    }
}
