//! Checks that the state folder still belongs to this daemon. If somebody removes or moves the folder, nothing can be
//! written, and another daemon can start at the same path.

use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use tokio::sync::watch;
use tracing::error;

use crate::context::Engine;
use crate::error::FleetError;
use crate::lifecycle::Lifecycle;
use crate::state::modes::Modes;

/// Time between two checks.
const POLL_EVERY: Duration = Duration::from_secs(1);

/// Waits until the folder is missing in two checks in a row. A folder that is put back at once does not count as
/// missing.
pub(super) async fn wait_until_lost(engine: Arc<Engine>) {
    let (mut was_missing, mut modes) = (false, Modes::default());
    loop {
        tokio::time::sleep(POLL_EVERY).await;
        modes.check(&engine.home.state);
        let is_ours = engine.home.is_ours();
        if was_missing && !is_ours {
            return;
        }
        was_missing = !is_ours;
    }
}

/// Makes the daemon end its attempts and itself.
pub(super) fn give_up(engine: &Engine, lifecycle: &watch::Sender<Lifecycle>) {
    let folder = engine.home.state.path().display().to_string();
    error!("{}", FleetError::HomeGone { folder });
    engine.state_folder_lost.store(true, Ordering::Relaxed);
    lifecycle.send_replace(Lifecycle::Cancelling { overdue: 0 });
}
