//! A store that does not know the running attempts of the state folder. A daemon with such a store would end them as
//! orphans, so it does not start.

use std::io;

use cowhand_core::id::JobId;

use super::orphans::all_running;
use crate::error::FleetError;
use crate::state::{StateFolder, StoreMark};
use cowhand_run::attempt::Attempt;
use cowhand_store::{Store, is_postgres};
use cowhand_system::blocking::run_blocking;
use cowhand_system::remove::is_missing;

/// Returns an error if attempts run that belong to another store than `store`. `None` means the SQLite file in the
/// state folder.
pub async fn refuse_other_store(state: &StateFolder, store: Option<&str>) -> Result<(), FleetError> {
    let folder = state.clone();
    if store.is_none() {
        run_blocking(move || refuse_without_store(&folder)).await?;
    }
    let Some(mark) = state.store_mark() else { return Ok(()) };
    let folder = state.clone();
    let running =
        run_blocking(move || all_running(&folder)).await.map_err(|error| state_error(state, error))?;
    if running.is_empty() {
        return Ok(());
    }
    let location = store.map_or_else(|| state.database().display().to_string(), str::to_owned);
    if Store::check_location(&location).await?.as_ref() == Some(&mark.id) {
        return Ok(());
    }
    Err(other_store(mark, &running))
}

/// Returns an error if the file of the store is missing while attempts still run. A new store would not know them.
pub fn refuse_without_store(state: &StateFolder) -> Result<(), FleetError> {
    if !is_missing(&state.database()) {
        return Ok(());
    }
    let running = all_running(state).map_err(|error| state_error(state, error))?;
    if running.is_empty() {
        return Ok(());
    }
    if let Some(mark) = state.store_mark().filter(|mark| is_postgres(&mark.location)) {
        return Err(other_store(mark, &running));
    }
    let database = state.database().display().to_string();
    Err(FleetError::StoreGone { database, jobs: jobs(&running), keepers: keepers(&running) })
}

fn other_store(mark: StoreMark, running: &[(Attempt, JobId)]) -> FleetError {
    FleetError::OtherStore { location: mark.location, jobs: jobs(running), keepers: keepers(running) }
}

fn jobs(running: &[(Attempt, JobId)]) -> Vec<JobId> {
    running.iter().map(|(_, job)| job.clone()).collect()
}

fn keepers(running: &[(Attempt, JobId)]) -> Vec<i32> {
    running.iter().filter_map(|(attempt, _)| attempt.keeper_pid()).collect()
}

fn state_error(state: &StateFolder, source: io::Error) -> FleetError {
    FleetError::State { folder: state.path().display().to_string(), source }
}
