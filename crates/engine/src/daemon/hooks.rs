//! Runs the hooks of ended jobs. The hook runs are in the store, so the loop can be stopped and started again at any
//! time. A hook uses no place of an agent and delays no schedule.

use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use cowhand_core::backoff::Backoff;
use cowhand_core::hook::{HookOutline, HookState};
use jiff::{SignedDuration, Timestamp};
use tokio::task::JoinSet;
use tracing::{error, info, warn};

use crate::context::Engine;
use crate::hook::{self, HookResult};
use cowhand_run::attempt::Attempt;
use cowhand_store::{HookEnd, StoreError, TakenHook};
use cowhand_system::fault;
use cowhand_system::panic::{self, caught};

/// Time for which the lease of a hook run is valid without a renewal.
const HOOK_LEASE: SignedDuration = SignedDuration::from_mins(2);
/// Time between two renewals of a lease.
const HOOK_RENEWAL: Duration = Duration::from_secs(30);
/// Largest number of hooks that run at the same time, each of a different job.
const PARALLEL_HOOKS: usize = 16;
/// Longest time between two searches for due hooks.
const MAX_POLL_WAIT: SignedDuration = SignedDuration::from_mins(1);
/// Shortest time between two searches for due hooks, unless something wakes the loop.
const MIN_POLL_WAIT: SignedDuration = SignedDuration::from_secs(1);
const HOOK_RETRY_AFTER: SignedDuration = SignedDuration::from_secs(5);
/// Largest number of tries to write the end of a hook run. After that the lease expires, and a node takes the run
/// again.
const MAX_WRITES: u32 = 10;
const WRITE_BACKOFF: Backoff =
    Backoff::doubling(SignedDuration::from_millis(200), SignedDuration::from_secs(10));
/// Largest number of tries of a hook that panics.
const MAX_PANICKED_TRIES: u32 = 5;
const HOOK_BACKOFF: Backoff =
    Backoff::quadrupling(SignedDuration::from_secs(1), SignedDuration::from_secs(256));

pub(super) async fn run_hooks(engine: Arc<Engine>) {
    // Take up the hook runs that were begun by an earlier daemon, or by this loop before it panicked.
    if let Err(error) = engine.store.take_up_hooks(engine.home.node.clone(), engine.clock.now()).await {
        warn!("hooks that were begun before wait until their time is over: {error}");
    }
    if let Err(error) = remove_ended_folders(&engine).await {
        warn!("folders of hooks that have ended are still there: {error:#}");
    }
    let mut running = JoinSet::new();
    loop {
        let wake_at = match begin_due(&engine, &mut running).await {
            Ok(wake_at) => wake_at,
            Err(error) => {
                warn!("cannot read the pending hooks: {error}");
                in_future(&engine, HOOK_RETRY_AFTER)
            }
        };
        tokio::select! {
            () = engine.clock.wait_until(Some(wake_at)) => {}
            () = engine.hooks.notified() => {}
            Some(ended) = running.join_next() => panic::log_panic("a hook", ended),
        }
    }
}

/// Starts the hooks that are due, and returns the time of the next call.
async fn begin_due(engine: &Arc<Engine>, running: &mut JoinSet<()>) -> Result<Timestamp, StoreError> {
    while running.len() < PARALLEL_HOOKS {
        let lease = in_future(engine, HOOK_LEASE);
        let taken = engine.store.take_hook(engine.home.node.clone(), lease, engine.clock.now()).await?;
        let Some(taken) = taken else {
            let next = engine.store.next_hook_time().await?.unwrap_or(Timestamp::MAX);
            return Ok(next.clamp(in_future(engine, MIN_POLL_WAIT), in_future(engine, MAX_POLL_WAIT)));
        };
        fault::point("hook_taken");
        running.spawn(supervise(Arc::clone(engine), taken));
    }
    // The end of a hook wakes the loop.
    Ok(in_future(engine, MAX_POLL_WAIT))
}

/// Runs a hook. After a panic it is tried again later, a limited number of times. A hook command has a keeper, so it is
/// not started twice.
async fn supervise(engine: Arc<Engine>, taken: TakenHook) {
    let Err(panicked) = caught(run_hook(&engine, &taken)).await else { return };
    error!(job = %taken.job, "its {} {panicked}", taken.run.label());
    if taken.run.tries < MAX_PANICKED_TRIES {
        return renew(&engine, &taken, HOOK_RETRY_AFTER).await;
    }
    store_result(&engine, &taken, HookResult::failed(panicked.to_string())).await;
}

async fn run_hook(engine: &Arc<Engine>, taken: &TakenHook) {
    match engine.store.job(taken.job.clone()).await {
        Ok(Some(job)) => {
            let mut run = std::pin::pin!(hook::run(engine, &job, taken));
            let result = loop {
                tokio::select! {
                    result = &mut run => break result,
                    () = tokio::time::sleep(HOOK_RENEWAL) => renew(engine, taken, HOOK_LEASE).await,
                }
            };
            fault::point("hook_ended");
            store_result(engine, taken, result).await;
        }
        // Somebody removed the job, and its hooks with it.
        Ok(None) => {}
        Err(error) => warn!(job = %taken.job, "its hooks have to wait: {error}"),
    }
}

async fn renew(engine: &Engine, taken: &TakenHook, time: SignedDuration) {
    match engine.store.renew_hook(taken, in_future(engine, time)).await {
        Ok(true) => {}
        Ok(false) => warn!(job = %taken.job, "another node has taken over its {}", taken.run.label()),
        Err(error) => {
            warn!(job = %taken.job, "cannot extend the lease of its {}: {error}", taken.run.label());
        }
    }
}

async fn store_result(engine: &Arc<Engine>, taken: &TakenHook, result: HookResult) {
    for failures in 1..=MAX_WRITES {
        match write(engine, taken, &result).await {
            Ok(()) => {
                fault::point("hook_settled");
                remove_folder(&Attempt::of_hook(engine.home.state.path(), &taken.job, taken.run.number));
                return;
            }
            Err(error) => {
                warn!(job = %taken.job, "cannot store the end of its {} yet: {error}", taken.run.label());
            }
        }
        tokio::time::sleep(WRITE_BACKOFF.wait_after(failures)).await;
    }
}

async fn write(engine: &Engine, taken: &TakenHook, result: &HookResult) -> Result<(), StoreError> {
    let (job, label) = (&taken.job, taken.run.label());
    let (end, output) = match result {
        HookResult::Retry { reason, retry_after, max_tries, .. } if taken.run.tries < *max_tries => {
            let retry_after = retry_after.and_then(|retry_after| SignedDuration::try_from(retry_after).ok());
            let retry_at =
                in_future(engine, retry_after.unwrap_or_else(|| HOOK_BACKOFF.after(taken.run.tries)));
            warn!(%job, "its {label} is tried again at {retry_at}: {reason}");
            return engine.store.postpone_hook(taken, reason.clone(), retry_at).await;
        }
        HookResult::Retry { reason, output, max_tries, .. } => {
            let times = if *max_tries == 1 { "time" } else { "times" };
            (HookEnd::Failed { reason: format!("{reason}, tried {max_tries} {times}") }, output.clone())
        }
        HookResult::Failed { reason, output } => (HookEnd::Failed { reason: reason.clone() }, output.clone()),
        HookResult::Done { output, note } => (HookEnd::Completed { note: note.clone() }, output.clone()),
        HookResult::Skipped { reason } => (HookEnd::Skipped { reason: reason.clone() }, None),
    };
    match &end {
        HookEnd::Failed { reason } => warn!(%job, "its {label} failed: {reason}"),
        HookEnd::Completed { .. } => info!(%job, "its {label} is done"),
        HookEnd::Skipped { reason } => info!(%job, "its {label} is skipped: {reason}"),
    }
    let ends_the_rest = ends_the_rest(engine, taken);
    engine.store.end_hook(taken.clone(), end, output, ends_the_rest, engine.clock.now()).await
}

/// Returns whether the remaining hooks of the job are skipped if this hook fails (`continue_on_error: false`).
fn ends_the_rest(engine: &Engine, taken: &TakenHook) -> bool {
    let loaded = engine.loaded();
    let agent = loaded.roster.agent(&taken.agent);
    let hook = agent.and_then(|agent| HookOutline::find(&agent.hooks, &taken.run));
    hook.is_some_and(|hook| !hook.continue_on_error)
}

fn in_future(engine: &Engine, time: SignedDuration) -> Timestamp {
    engine.clock.now().checked_add(time).unwrap_or(Timestamp::MAX)
}

/// Removes the folder of a hook run; everything of value is in the store.
fn remove_folder(attempt: &Attempt) {
    if let Err(error) = attempt.discard() {
        warn!("{} cannot be removed: {error}", attempt.folder().display());
    }
}

/// Removes the folders of ended hook runs that a daemon left because it died.
async fn remove_ended_folders(engine: &Engine) -> anyhow::Result<()> {
    for folder in hook_folders(&engine.home.state.attempts())? {
        let attempt = Attempt::at(&folder)?;
        let Some((job, number)) = attempt.hook() else { continue };
        let runs = engine.store.hook_runs(job).await?;
        let is_open = |state| matches!(state, HookState::Waiting | HookState::Running);
        if !runs.iter().any(|run| run.number == number && is_open(run.state)) {
            remove_folder(&attempt);
        }
    }
    Ok(())
}

/// Returns the folders of hook runs.
fn hook_folders(attempts: &Path) -> std::io::Result<Vec<std::path::PathBuf>> {
    let entries = crate::prune::files::entries(attempts)?;
    let paths = entries.map(|entry| entry.map(|entry| entry.path())).collect::<std::io::Result<Vec<_>>>()?;
    let of_hook = |path: &std::path::PathBuf| Attempt::at(path).is_ok_and(|attempt| attempt.hook().is_some());
    Ok(paths.into_iter().filter(of_hook).collect())
}
