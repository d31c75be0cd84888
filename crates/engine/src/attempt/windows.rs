//! The reports of a running attempt about the usage windows of its provider: read from its output, and stored for all
//! agents that use the provider.

use cowhand_core::provider::{WindowReport, WindowUsage};
use cowhand_store::StoreError;
use jiff::SignedDuration;
use tracing::{info, warn};

use super::AttemptTask;
use cowhand_run::tail::Tailer;

/// The reports of one attempt that the store has received.
#[derive(Debug, Default)]
pub(super) struct StoredReports {
    /// Number of lines of the output at its last examination.
    lines: u64,
    reports: Vec<WindowReport>,
}

/// Time after which a report with an unchanged usage is stored again.
const REPORT_REFRESHED_AFTER: SignedDuration = SignedDuration::from_mins(1);

impl AttemptTask {
    /// Stores new reports of the attempt, if its output has new lines. After a failure the next call tries again.
    pub(super) async fn record_windows(&self, tail: &mut Tailer, stored: &mut StoredReports) {
        if tail.lines() == stored.lines {
            return;
        }
        match self.record_all_windows(tail, stored).await {
            Ok(()) => stored.lines = tail.lines(),
            Err(error) => {
                warn!(job = %self.job.id(), "cannot store what the attempt reports about its provider yet: {error}");
            }
        }
    }

    /// Stores new reports of the attempt. The provider is the one at which the attempt started, even if the config has
    /// changed meanwhile.
    pub(super) async fn record_all_windows(
        &self,
        tail: &mut Tailer,
        stored: &mut StoredReports,
    ) -> Result<(), StoreError> {
        let reports = tail.windows();
        let is_stored = |report: &WindowReport| stored.reports.iter().any(|known| is_same(known, report));
        if reports.iter().all(is_stored) {
            return Ok(());
        }
        let store = &self.engine.store;
        if let Some(provider) = store.provider_of(self.job.id().clone()).await? {
            let now = self.now();
            let slot = self.engine.loaded().roster.slot_at(&provider);
            let usages = reports.iter().map(|report| WindowUsage::of(*report, now)).collect();
            if let Some(reserve) = store.record_windows(slot, usages, now).await? {
                info!("no automatic job starts until {:.0}: {}", reserve.until, reserve.sentence());
            }
            self.engine.nudge.notify_one();
        }
        stored.reports = reports;
        Ok(())
    }
}

/// Checks whether a report says what a stored report says, at about the same time.
fn is_same(stored: &WindowReport, report: &WindowReport) -> bool {
    let is_recent = match (stored.at, report.at) {
        (Some(stored), Some(at)) => at.duration_since(stored).abs() < REPORT_REFRESHED_AFTER,
        (stored, at) => stored == at,
    };
    let resets_together = report.resets_at.duration_since(stored.resets_at).abs() < REPORT_REFRESHED_AFTER;
    stored.window == report.window && stored.used == report.used && resets_together && is_recent
}
