//! The readiness check: the fleet runs, and the store and the state folder can be written.

use std::io::{self, Write};
use std::time::Duration;

use tokio::time::{Instant, timeout};

use super::Fleet;
use crate::error::{FleetError, Unready};
use cowhand_system::blocking::run_blocking;

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

    /// Refuses what would be accepted while the state folder cannot be written. The last result decides, so that nothing
    /// is written as a test while all is well, and nobody waits for a test in progress. After a failure the test is
    /// repeated. If the store fails, the write itself fails, with an error that says more.
    pub(super) async fn accept(&self) -> Result<(), FleetError> {
        if !self.is_running() {
            return Err(FleetError::Stopping);
        }
        let last = self.probed.try_lock().ok().and_then(|probed| *probed);
        if !matches!(last, Some((_, Err(Unready::Folder)))) {
            return Ok(());
        }
        match self.ready().await {
            Ok(()) | Err(Unready::Store) => Ok(()),
            Err(unready) => Err(FleetError::Unready(unready)),
        }
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
