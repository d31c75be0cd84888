//! Checks that the state folder still belongs to this daemon. If somebody removes or moves the folder, nothing can be
//! written, and another daemon can start at the same path. So this daemon ends. If only the lock file or the folder
//! `attempts` was removed, it is made again.

use std::sync::Arc;
use std::time::Duration;

use tokio::sync::watch;
use tracing::{error, warn};

use crate::context::{Engine, Home, HomeLoss};
use crate::error::FleetError;
use crate::lifecycle::Lifecycle;
use crate::state::LockState;
use crate::state::modes::Modes;

/// Time between two checks.
const POLL_EVERY: Duration = Duration::from_secs(1);

impl HomeLoss {
    pub(crate) fn error(self, folder: String) -> FleetError {
        match self {
            Self::Gone => FleetError::HomeGone { folder },
            Self::Taken => FleetError::HomeTaken { folder },
        }
    }
}

/// Checks the folder and the modes of its files regularly, until two checks in a row find the same loss. A folder that
/// is put back at once does not count as lost, and a lock that a command holds for a moment does not count as another
/// daemon.
pub(super) async fn wait_until_lost(engine: Arc<Engine>) -> HomeLoss {
    let (mut earlier_loss, mut modes) = (None, Modes::default());
    loop {
        tokio::time::sleep(POLL_EVERY).await;
        modes.check(&engine.home.state);
        let loss = loss(&engine.home);
        if let Some(loss) = loss.filter(|_| loss == earlier_loss) {
            return loss;
        }
        earlier_loss = loss;
    }
}

/// Returns the loss of the state folder, if there is one. Makes a missing lock file or folder `attempts` again.
fn loss(home: &Home) -> Option<HomeLoss> {
    match home.lock_state() {
        LockState::Held => None,
        LockState::FolderGone => Some(HomeLoss::Gone),
        LockState::FileGone => {
            let file = home.state.lock_file();
            match home.lock_again() {
                Ok(true) => {
                    warn!(
                        "{} or `attempts` was removed or replaced; cowhand has made it again",
                        file.display()
                    );
                }
                Ok(false) => return Some(HomeLoss::Taken),
                Err(error) => {
                    warn!("{} or `attempts` was removed, and cannot be made again: {error}", file.display());
                }
            }
            None
        }
    }
}

/// Requests the end of the daemon. The daemon also ends its attempts, unless another daemon takes them over.
pub(super) fn give_up(engine: &Engine, loss: HomeLoss, lifecycle: &watch::Sender<Lifecycle>) {
    let folder = engine.home.state.path().display().to_string();
    error!("{}", loss.error(folder));
    let _ = engine.home_loss.set(loss);
    lifecycle.send_replace(match loss {
        HomeLoss::Gone => Lifecycle::Cancelling { overdue: 0 },
        HomeLoss::Taken => Lifecycle::Leaving,
    });
}
