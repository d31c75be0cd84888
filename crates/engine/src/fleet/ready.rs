//! The readiness check: the fleet runs, and the store and the state folder can be written.

use std::io::{self, ErrorKind};
use std::time::Duration;

use tokio::time::{Instant, timeout};

use super::Fleet;
use crate::error::{FleetError, Unready, WriteProblem};
use cowhand_store::StoreError;
use cowhand_system::blocking::run_blocking;

/// Time for which a result is reused.
const RESULT_REUSED_FOR: Duration = Duration::from_secs(1);
const CHECK_TIMEOUT: Duration = Duration::from_secs(10);

/// The last result and its time.
pub(super) type LastCheck = tokio::sync::Mutex<Option<(Instant, Result<(), Unready>)>>;

impl Fleet {
    /// Writes to the store and to the state folder, and returns an error if that fails.
    pub async fn ready(&self) -> Result<(), Unready> {
        if !self.is_running() {
            return Err(Unready::Stopping);
        }
        let mut last_check = self.last_check.lock().await;
        if let Some((at, result)) = *last_check
            && at.elapsed() < RESULT_REUSED_FOR
        {
            return result;
        }
        let result = self.probe().await;
        *last_check = Some((Instant::now(), result));
        result
    }

    /// Returns an error if new work cannot be accepted, because the fleet stops or the state folder cannot be written.
    /// The last result of the readiness check decides, so that no test write is made without a failure, and no caller
    /// waits for a check in progress. After a failure the check is repeated. Errors of the store are ignored here,
    /// because the write that follows fails with a more precise error.
    pub(super) async fn accept(&self) -> Result<(), FleetError> {
        if !self.is_running() {
            return Err(FleetError::Stopping);
        }
        let last = self.last_check.try_lock().ok().and_then(|last_check| *last_check);
        if !matches!(last, Some((_, Err(Unready::Folder(_))))) {
            return Ok(());
        }
        match self.ready().await {
            Ok(()) | Err(Unready::Store(_)) => Ok(()),
            Err(unready) => Err(FleetError::Unready(unready)),
        }
    }

    async fn probe(&self) -> Result<(), Unready> {
        let store = timeout(CHECK_TIMEOUT, self.store().probe_write(self.clock().now())).await;
        let store =
            store.map_or(Err(WriteProblem::NoAnswer), |result| result.map_err(|error| (&error).into()));
        store.map_err(Unready::Store)?;
        let folder = self.state_folder().clone();
        let result = timeout(CHECK_TIMEOUT, run_blocking(move || folder.test_write())).await;
        result.map_or(Err(WriteProblem::NoAnswer), folder_written).map_err(Unready::Folder)
    }
}

fn folder_written(result: io::Result<()>) -> Result<(), WriteProblem> {
    result.map_err(|error| error.kind().into())
}

impl From<ErrorKind> for WriteProblem {
    fn from(kind: ErrorKind) -> Self {
        match kind {
            ErrorKind::StorageFull | ErrorKind::QuotaExceeded => Self::DiskFull,
            ErrorKind::ReadOnlyFilesystem => Self::ReadOnly,
            ErrorKind::PermissionDenied => Self::PermissionDenied,
            ErrorKind::NotFound => Self::Removed,
            _ => Self::Other,
        }
    }
}

impl From<&StoreError> for WriteProblem {
    fn from(error: &StoreError) -> Self {
        // These are the texts of SQLite for the codes FULL and READONLY.
        match (error, error.to_string()) {
            (StoreError::Unreachable { .. }, _) => Self::PermissionDenied,
            (StoreError::Replaced { .. }, _) => Self::Removed,
            (_, text) if text.contains("disk is full") => Self::DiskFull,
            (_, text) if text.contains("readonly database") => Self::ReadOnly,
            _ => Self::Other,
        }
    }
}
