//! Metrics of notifications that could not be delivered.

use cowhand_engine::notification::view::{UndeliveredTarget, undelivered_targets};

use super::Metrics;
use super::text::{MetricKind, MetricsText};
use crate::api::ApiProblem;

impl Metrics {
    pub(super) async fn write_notifications(&self, page: &mut MetricsText) -> Result<(), ApiProblem> {
        let roster = self.fleet.roster();
        let undelivered = undelivered_targets(self.fleet.store()).await?;
        let count = |name: &String| {
            let of_target = undelivered.iter().find(|own: &&UndeliveredTarget| own.target == *name);
            of_target.map_or(0, |own| own.waiting + own.failed)
        };
        let targets = roster.notifications.targets.keys();
        let values = targets.map(|name| ([("target", name.clone())], count(name)));
        let help = "Notifications to a target that could not be delivered.";
        page.family(MetricKind::Gauge, "cowhand_notifications_undelivered", help, values);
        Ok(())
    }
}
