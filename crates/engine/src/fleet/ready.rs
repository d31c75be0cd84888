//! The readiness check: the fleet runs, and the store and the state folder can be written.

use std::io::{self, ErrorKind};
use std::time::Duration;

use tokio::time::{Instant, timeout};
use tracing::warn;

use super::Fleet;
use crate::error::{FleetError, Unready, WriteProblem};
use cowhand_store::StoreError;
use cowhand_system::blocking::run_blocking;
use cowhand_system::disk::DiskProblem;

/// Time for which a result is reused.
const RESULT_REUSED_FOR: Duration = Duration::from_secs(1);
const CHECK_TIMEOUT: Duration = Duration::from_secs(10);

/// The last result and its time.
pub(super) type LastCheck = tokio::sync::Mutex<Option<(Instant, Result<(), Unready>)>>;

impl Fleet {
    /// Returns an error if the fleet stops, or if a test write to the store or to the state folder fails. The result of
    /// the writes is reused for one second.
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
        if let Err(unready) = result {
            warn!("nothing is accepted: {}", self.unready_reason(unready));
        }
        *last_check = Some((Instant::now(), result));
        result
    }

    /// Describes why no work is accepted, with the details that the store has, for the owner of the fleet.
    pub fn unready_reason(&self, unready: Unready) -> String {
        self.store().write_problem().unwrap_or_else(|| unready.with_path(self.state_folder().path()))
    }

    /// Returns an error if new work cannot be accepted, because the fleet stops or the state folder cannot be written.
    /// The readiness check is repeated only if its last result is that the folder could not be written, and no check is
    /// in progress. Otherwise nothing is written here, and the caller does not wait. Errors of the store are ignored
    /// here, because the write that follows fails with a more precise error.
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
        let store = timeout(CHECK_TIMEOUT, self.store().test_write(self.clock().now())).await;
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
        match (DiskProblem::of(kind), kind) {
            (Some(problem), _) => Self::Disk(problem),
            (None, ErrorKind::PermissionDenied) => Self::PermissionDenied,
            (None, ErrorKind::NotFound) => Self::Removed,
            (None, _) => Self::Other,
        }
    }
}

impl From<&StoreError> for WriteProblem {
    fn from(error: &StoreError) -> Self {
        match error {
            StoreError::PermissionDenied { .. } => Self::PermissionDenied,
            StoreError::FileChanged { .. } => Self::Removed,
            StoreError::Disk { problem, .. } => Self::Disk(*problem),
            StoreError::ServerFull { .. } => Self::ServerFull,
            StoreError::ServerReadOnly { .. } => Self::ServerReadOnly,
            StoreError::NoAnswer { .. } => Self::NoAnswer,
            StoreError::ServerRefuses { .. } => Self::ServerRefuses,
            StoreError::NoRights { .. } => Self::NoRights,
            StoreError::Locked { .. } => Self::Locked,
            _ => Self::Other,
        }
    }
}
