//! Runs the hooks that ended jobs have left in the store. One loop that may die and begin again at any time; it holds no
//! place of an agent and no schedule up.

use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use cowhand_core::hook::{HookOutline, HookState};
use jiff::{SignedDuration, Timestamp};
use tokio::task::JoinSet;
use tracing::{error, info, warn};

use crate::context::Engine;
use crate::hook::{self, Tried};
use cowhand_run::attempt::Attempt;
use cowhand_store::{HookEnd, StoreError, TakenHook};
use cowhand_system::fault;
use cowhand_system::panic::{self, caught};

/// Ours for so long without another word, and how often we say it.
const LEASE: SignedDuration = SignedDuration::from_mins(2);
const RENEWAL: Duration = Duration::from_secs(30);
/// So many run at the same time, each of another job.
const AT_ONCE: usize = 16;
/// Between two looks at most and, unless something happens, at least.
const LONGEST_WAIT: SignedDuration = SignedDuration::from_mins(1);
const SHORTEST_WAIT: SignedDuration = SignedDuration::from_secs(1);
const AFTER_TROUBLE: SignedDuration = SignedDuration::from_secs(5);
/// How often its end is written down before the next who takes it is left to do so.
const WRITES: u32 = 10;
/// How often one is tried that panics each time.
const MOST_TRIES: u32 = 5;

pub(super) async fn run_hooks(engine: Arc<Engine>) {
    // What a daemon before us has begun, or this loop before it panicked.
    if let Err(error) = engine.store.take_up_hooks(engine.home.node.clone(), engine.clock.now()).await {
        warn!("hooks that were begun before wait until their time is over: {error}");
    }
    if let Err(error) = forget_folders(&engine).await {
        warn!("folders of hooks that have ended are still there: {error:#}");
    }
    let mut running = JoinSet::new();
    loop {
        let wake_at = match begin_due(&engine, &mut running).await {
            Ok(wake_at) => wake_at,
            Err(error) => {
                warn!("cannot see which hooks are to run: {error}");
                in_future(&engine, AFTER_TROUBLE)
            }
        };
        tokio::select! {
            () = engine.clock.wait_until(Some(wake_at)) => {}
            () = engine.hooks.notified() => {}
            Some(ended) = running.join_next() => panic::tell("a hook", ended),
        }
    }
}

/// Says when to look again.
async fn begin_due(engine: &Arc<Engine>, running: &mut JoinSet<()>) -> Result<Timestamp, StoreError> {
    while running.len() < AT_ONCE {
        let lease = in_future(engine, LEASE);
        let taken = engine.store.take_hook(engine.home.node.clone(), lease, engine.clock.now()).await?;
        let Some(owed) = taken else {
            let next = engine.store.next_hook_time().await?.unwrap_or(Timestamp::MAX);
            return Ok(next.clamp(in_future(engine, SHORTEST_WAIT), in_future(engine, LONGEST_WAIT)));
        };
        fault::place("hook_taken");
        running.spawn(supervise(Arc::clone(engine), owed));
    }
    // The end of one of them wakes us.
    Ok(in_future(engine, LONGEST_WAIT))
}

/// After a panic it is taken up again, for a while. What is a process has a keeper, so it is not begun twice.
async fn supervise(engine: Arc<Engine>, owed: TakenHook) {
    let Err(panicked) = caught(see_to(&engine, &owed)).await else { return };
    error!(job = %owed.job, "its {} {panicked}", owed.run.label());
    if owed.run.tries < MOST_TRIES {
        return renew(&engine, &owed, AFTER_TROUBLE).await;
    }
    settle(&engine, &owed, Tried::failed(panicked.to_string())).await;
}

async fn see_to(engine: &Arc<Engine>, owed: &TakenHook) {
    match engine.store.job(owed.job.clone()).await {
        Ok(Some(job)) => {
            let mut run = std::pin::pin!(hook::run(engine, &job, owed));
            let tried = loop {
                tokio::select! {
                    tried = &mut run => break tried,
                    () = tokio::time::sleep(RENEWAL) => renew(engine, owed, LEASE).await,
                }
            };
            fault::place("hook_ended");
            settle(engine, owed, tried).await;
        }
        // Somebody removed it, and its hooks with it.
        Ok(None) => {}
        Err(error) => warn!(job = %owed.job, "its hooks have to wait: {error}"),
    }
}

async fn renew(engine: &Engine, owed: &TakenHook, time: SignedDuration) {
    match engine.store.renew_hook(owed, in_future(engine, time)).await {
        Ok(true) => {}
        Ok(false) => warn!(job = %owed.job, "its {} is somebody else's by now", owed.run.label()),
        Err(error) => {
            warn!(job = %owed.job, "its {} takes longer, which is not written: {error}", owed.run.label());
        }
    }
}

async fn settle(engine: &Arc<Engine>, owed: &TakenHook, tried: Tried) {
    let mut pause = Duration::from_millis(200);
    for _ in 0..WRITES {
        match write(engine, owed, &tried).await {
            Ok(()) => {
                fault::place("hook_settled");
                forget_folder(&Attempt::of_hook(engine.home.state.path(), &owed.job, owed.run.number));
                return;
            }
            Err(error) => {
                warn!(job = %owed.job, "the end of its {} is not written yet: {error}", owed.run.label());
            }
        }
        tokio::time::sleep(pause).await;
        pause = (pause * 2).min(Duration::from_secs(10));
    }
}

async fn write(engine: &Engine, owed: &TakenHook, tried: &Tried) -> Result<(), StoreError> {
    let (job, label) = (&owed.job, owed.run.label());
    let (end, said) = match tried {
        Tried::Again { reason, asked, tries, .. } if owed.run.tries < *tries => {
            let asked = asked.and_then(|asked| SignedDuration::try_from(asked).ok());
            let again = in_future(engine, asked.unwrap_or_else(|| backoff(owed.run.tries)));
            warn!(%job, "its {label} is tried again at {again}: {reason}");
            return engine.store.postpone_hook(owed, reason.clone(), again).await;
        }
        Tried::Again { reason, said, tries, .. } => {
            (HookEnd::Failed { reason: format!("{reason}, tried {tries} time(s)") }, said.clone())
        }
        Tried::Failed { reason, said } => (HookEnd::Failed { reason: reason.clone() }, said.clone()),
        Tried::Done { said, note } => (HookEnd::Completed { note: note.clone() }, said.clone()),
        Tried::Skipped { reason } => (HookEnd::Skipped { reason: reason.clone() }, None),
    };
    match &end {
        HookEnd::Failed { reason } => warn!(%job, "its {label} failed: {reason}"),
        HookEnd::Completed { .. } => info!(%job, "its {label} is done"),
        HookEnd::Skipped { reason } => info!(%job, "its {label} is skipped: {reason}"),
    }
    let ends_the_rest = ends_the_rest(engine, owed);
    engine.store.end_hook(owed.clone(), end, said, ends_the_rest, engine.clock.now()).await
}

/// `continue_on_error: false`.
fn ends_the_rest(engine: &Engine, owed: &TakenHook) -> bool {
    let loaded = engine.loaded();
    let agent = loaded.roster.agent(&owed.agent);
    let hook = agent.and_then(|agent| HookOutline::find(&agent.settings, &owed.run));
    hook.is_some_and(|hook| hook.continue_on_error == Some(false))
}

/// A second, then four times as long each time.
fn backoff(tries: u32) -> SignedDuration {
    SignedDuration::from_secs(1 << (2 * tries.clamp(1, 5) - 2))
}

fn in_future(engine: &Engine, time: SignedDuration) -> Timestamp {
    engine.clock.now().checked_add(time).unwrap_or(Timestamp::MAX)
}

/// All that is worth keeping of it is in the store.
fn forget_folder(attempt: &Attempt) {
    if let Err(error) = attempt.discard() {
        warn!("{} cannot be removed: {error}", attempt.folder().display());
    }
}

/// What a daemon that died after the end of a hook has left.
async fn forget_folders(engine: &Engine) -> anyhow::Result<()> {
    for folder in folders(&engine.home.state.attempts())? {
        let attempt = Attempt::at(&folder)?;
        let Some((job, number)) = attempt.hook() else { continue };
        let runs = engine.store.hook_runs(job).await?;
        let open = |state| matches!(state, HookState::Waiting | HookState::Running);
        if !runs.iter().any(|run| run.number == number && open(run.state)) {
            forget_folder(&attempt);
        }
    }
    Ok(())
}

/// Those of hooks.
fn folders(attempts: &Path) -> std::io::Result<Vec<std::path::PathBuf>> {
    let entries = crate::prune::files::entries(attempts)?;
    let paths = entries.map(|entry| entry.map(|entry| entry.path())).collect::<std::io::Result<Vec<_>>>()?;
    let of_hook = |path: &std::path::PathBuf| Attempt::at(path).is_ok_and(|attempt| attempt.hook().is_some());
    Ok(paths.into_iter().filter(of_hook).collect())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pauses_grow() {
        assert_eq!([1, 2, 3, 4, 5, 9].map(|tries| backoff(tries).as_secs()), [1, 4, 16, 64, 256, 256]);
    }
}
