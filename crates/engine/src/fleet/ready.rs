//! The readiness check: the fleet runs, and the store and the state folder can be written.

use std::io::{self, Write};
use std::time::Duration;

use tokio::time::{Instant, timeout};

use super::Fleet;
use cowhand_system::blocking::run_blocking;

/// Reason why a fleet accepts no work now. The text contains no path, because anybody can request it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum Unready {
    #[error("stopping")]
    Stopping,
    #[error("the store cannot be written")]
    Store,
    #[error("the state folder cannot be written")]
    Folder,
}

/// Time for which a result is reused, however often it is requested.
const RESULT_REUSED_FOR: Duration = Duration::from_secs(1);
const CHECK_TIMEOUT: Duration = Duration::from_secs(10);
/// Number of bytes that are written as a test, about the minimum that a job writes.
const TEST_WRITE_SIZE: usize = 64 << 10;

/// The last result and its time.
pub(super) type Probed = tokio::sync::Mutex<Option<(Instant, Result<(), Unready>)>>;

impl Fleet {
    /// Writes to the store and to the state folder, and returns whether that works.
    pub async fn ready(&self) -> Result<(), Unready> {
        if !self.is_running() {
            return Err(Unready::Stopping);
        }
        let mut probed = self.probed.lock().await;
        if let Some((at, answer)) = *probed
            && at.elapsed() < RESULT_REUSED_FOR
        {
            return answer;
        }
        let answer = self.probe().await;
        *probed = Some((Instant::now(), answer));
        answer
    }

    async fn probe(&self) -> Result<(), Unready> {
        let store = timeout(CHECK_TIMEOUT, self.store().probe_write(self.clock().now())).await;
        if !matches!(store, Ok(Ok(()))) {
            return Err(Unready::Store);
        }
        let folder = self.state_folder().path().to_owned();
        let written = run_blocking(move || -> io::Result<()> {
            tempfile::tempfile_in(folder)?.write_all(&vec![0; TEST_WRITE_SIZE])
        });
        timeout(CHECK_TIMEOUT, written).await.ok().and_then(Result::ok).ok_or(Unready::Folder)
    }
}
