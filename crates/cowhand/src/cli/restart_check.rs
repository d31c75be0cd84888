//! Checks whether a new daemon could start, while the old one still runs, so that a restart that would fail leaves the
//! old daemon running.

use std::io::ErrorKind;
use std::time::{Duration, Instant};

use cowhand_core::config::report;
use cowhand_core::server::ServerConfig as Settings;

use super::background::unusable;
use super::listen::ListenArgs;
use super::location::FleetLocation;
use super::{Exit, Failure};
use cowhand_engine::config;
use cowhand_engine::daemon::refuse_other_store;
use cowhand_engine::error::FleetError;
use cowhand_engine::herdctl::HerdctlFolder;
use cowhand_store::Store;
use cowhand_web::api::{Client, DaemonView, StatusView};
use cowhand_web::server::{HttpListener, ListenError};

/// Time in which the old daemon has to settle attempts that have ended.
const SETTLE_TIMEOUT: Duration = Duration::from_secs(3);
const POLL_ATTEMPTS_EVERY: Duration = Duration::from_millis(50);

/// Fails with the reason why a new daemon would not start. Does nothing if no daemon runs, because then the start
/// itself reports errors.
pub(super) async fn check(location: &FleetLocation, listen: &ListenArgs) -> Result<(), Failure> {
    let Some(client) = Client::of_daemon(&location.state).await? else { return Ok(()) };
    let Err(failure) = check_all(location, listen, &client).await else { return Ok(()) };
    // Another command may have stopped the daemon meanwhile.
    match Client::of_daemon(&location.state).await {
        Ok(None) => Err(failure),
        _ => Err(failure.with_line("Nothing was stopped: the daemon continues to run.")),
    }
}

async fn check_all(location: &FleetLocation, listen: &ListenArgs, client: &Client) -> Result<(), Failure> {
    let loaded = config::load(&location.config).loaded;
    if loaded.errors() > 0 {
        let current_dir = std::env::current_dir().unwrap_or_default();
        let report = format!("{}\n{}", report::render(&loaded, &current_dir, true), report::summary(&loaded));
        return Err(Failure::new(Exit::Config, report));
    }
    let usable = location.state.create().and_then(|()| location.state.check_files());
    usable.map_err(|error| unusable(location, &error))?;
    let herdctl = HerdctlFolder::refuse_if_running_beside(&location.config);
    herdctl.map_err(|error| Failure::new(Exit::Refused, error.to_string()))?;
    let daemon = client.get::<StatusView>("status").await?.daemon;
    if let Some(problem) = &daemon.store_problem {
        return Err(Failure::new(Exit::CannotRunHere, problem));
    }
    let store =
        loaded.roster.store.clone().unwrap_or_else(|| location.state.database().display().to_string());
    let result = Store::check_location(&store).await;
    result.map_err(|error| Failure::new(Exit::CannotRunHere, error.to_string()))?;
    check_attempts(location, loaded.roster.store.as_deref()).await?;
    match listen.server_of(&loaded) {
        Some(settings) => check_address(settings, &daemon).await,
        None => Ok(()),
    }
}

/// Fails if attempts are not settled and the config names another store than that of the old daemon. The old daemon
/// settles an attempt soon after its end, so an attempt that has ended gets some time.
async fn check_attempts(location: &FleetLocation, store: Option<&str>) -> Result<(), Failure> {
    let give_up_at = Instant::now() + SETTLE_TIMEOUT;
    loop {
        let mut error = match refuse_other_store(&location.state, store).await {
            Ok(()) => return Ok(()),
            Err(error) => error,
        };
        if let FleetError::OtherStore(other) = &mut error {
            if other.jobs.running.is_empty() && Instant::now() < give_up_at {
                tokio::time::sleep(POLL_ATTEMPTS_EVERY).await;
                continue;
            }
            other.daemon_runs = true;
        }
        return Err(Failure::new(Exit::CannotRunHere, error.to_string()));
    }
}

/// Checks the address by binding it for a short time. If it is in use, the check succeeds in two cases: the old daemon
/// has the same port, or the address is the default, for which the new daemon can use a free port.
async fn check_address(settings: Settings, old: &DaemonView) -> Result<(), Failure> {
    let (port, is_chosen) = (settings.listen.port(), settings.listen_chosen);
    let is_of_old_daemon = || old.url.as_ref().is_some_and(|url| url.ends_with(&format!(":{port}")));
    match HttpListener::bind(settings).await {
        Err(ListenError::CannotBind { source, .. })
            if source.kind() == ErrorKind::AddrInUse && (!is_chosen || is_of_old_daemon()) =>
        {
            Ok(())
        }
        bound => bound.map(drop).map_err(|error| Failure::new(Exit::CannotRunHere, error.to_string())),
    }
}
