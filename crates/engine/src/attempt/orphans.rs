//! Orphans: attempts that still run on this node although the node has no lease for them. Another node may have settled
//! the attempt and may already run the next one, or a restored store may not know the attempt. Therefore the processes
//! of an orphan are ended, whatever the status of the job is.

use std::collections::BTreeSet;
use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use cowhand_core::id::JobId;
use tokio::time::Instant;
use tracing::{error, info, warn};

use super::stop::{END_POLL_EVERY, PROCESSES_END_TIMEOUT, STOP_TIMEOUT};
use super::superseded;
use super::unwritten::is_unwritten;
use crate::context::Engine;
use crate::prune::files::entries;
use crate::state::StateFolder;
use cowhand_run::attempt::Attempt;
use cowhand_run::supervision::{AttemptState, StopOutcome};
use cowhand_system::remove::is_missing;

/// An attempt without a lease that still runs. Its job gets no other attempt on this node until this value is dropped.
/// The value is dropped when the processes of the orphan have ended or cannot be ended.
#[derive(Debug)]
pub(crate) struct Orphan {
    engine: Arc<Engine>,
    attempt: Attempt,
    job: JobId,
}

/// Finds all orphans on this machine. Call it after this node has adopted its leases and before the first plan.
pub(crate) async fn find(engine: &Arc<Engine>) -> Vec<Orphan> {
    let (state, shared) = (engine.home.state.clone(), Arc::clone(engine));
    let found = tokio::task::spawn_blocking(move || {
        let current = |job: &JobId, number| shared.is_current(job, number);
        let running = Attempt::running()?;
        let with_folder = with_folder(&state, &running, current)?;
        Ok::<_, io::Error>((with_folder, without_folder(&state, &running, current)))
    });
    let (mut found, without_folder) = match found.await.map_err(io::Error::other).flatten() {
        Ok(found) => found,
        Err(error) => {
            error!("cannot search for attempts without a lease: {error}; the next start searches again");
            return Vec::new();
        }
    };
    for (attempt, job, number) in without_folder {
        if is_of_this_node(engine, &job, number).await {
            found.push((attempt, job));
        }
    }
    let orphan = |(attempt, job): (Attempt, JobId)| {
        engine.orphan_found(job.clone());
        Orphan { engine: Arc::clone(engine), attempt, job }
    };
    found.into_iter().map(orphan).collect()
}

/// Returns all attempts that have a folder in this state folder and still run.
pub(super) fn all_running(state: &StateFolder) -> io::Result<Vec<(Attempt, JobId)>> {
    with_folder(state, &Attempt::running()?, |_, _| false)
}

/// Returns the attempts that have a folder, still run, and are not current. An attempt is current if an attempt task
/// supervises it. `running` contains the names of all attempts with processes, so that the list of processes is read
/// only once.
fn with_folder(
    state: &StateFolder,
    running: &BTreeSet<String>,
    is_current: impl Fn(&JobId, u32) -> bool,
) -> io::Result<Vec<(Attempt, JobId)>> {
    let mut found = Vec::new();
    for entry in entries(&state.attempts())? {
        let Ok(attempt) = Attempt::at(&entry?.path()) else { continue };
        // Hook runs are skipped: `daemon/hooks.rs` takes them up again and removes their folders.
        let Some((job, number)) = attempt.job_and_number() else { continue };
        if is_current(&job, number) {
            continue;
        }
        match attempt.state_if(|| Ok(running.contains(attempt.name()))) {
            Ok(AttemptState::Ended(_) | AttemptState::Gone) => {}
            Ok(AttemptState::Kept | AttemptState::Unkept) => found.push((attempt, job)),
            // The attempt may run although its state cannot be read.
            Err(error) => {
                warn!(%job, attempt = number, "cannot read the state of the attempt: {error}");
                found.push((attempt, job));
            }
        }
    }
    Ok(found)
}

/// Returns the attempts without a folder, found by the marks of their processes. They may belong to another fleet.
fn without_folder(
    state: &StateFolder,
    running: &BTreeSet<String>,
    is_current: impl Fn(&JobId, u32) -> bool,
) -> Vec<(Attempt, JobId, u32)> {
    let attempts = running.iter().filter_map(|name| Attempt::at(&state.attempts().join(name)).ok());
    let without_folder = attempts.filter(|attempt| is_missing(attempt.folder()));
    let without_folder = without_folder.filter_map(|attempt| {
        let (job, number) = attempt.job_and_number()?;
        (!is_current(&job, number)).then_some((attempt, job, number))
    });
    without_folder.collect()
}

async fn is_of_this_node(engine: &Engine, job: &JobId, number: u32) -> bool {
    match engine.store.history(job.clone()).await {
        Ok(history) => history.is_some_and(|history| {
            let is_this_node = |node: &str| node == engine.home.node;
            history.attempts.iter().any(|attempt| attempt.number == number && is_this_node(&attempt.node))
        }),
        Err(error) => {
            warn!(%job, attempt = number, "cannot find out which node started it, so it is not ended: {error}");
            false
        }
    }
}

impl Orphan {
    pub(crate) fn job(&self) -> &JobId {
        &self.job
    }

    /// Ends the orphan: asks its keeper to stop it, then kills the remaining processes.
    pub(crate) async fn end(self) {
        let (job, attempt) = (&self.job, &self.attempt);
        warn!(%job, attempt = attempt.name(), "the attempt runs without a lease; ending it");
        if end(attempt, &AtomicBool::default()).await {
            info!(%job, attempt = attempt.name(), "ended an attempt without a lease");
            if let Err(error) = superseded::record(&self.engine, attempt).await {
                warn!(%job, attempt = attempt.name(), "its end is not stored; the next start tries again: {error}");
                return;
            }
            attempt.on_blocking_thread(remove_files).await;
        } else {
            error!(%job, attempt = attempt.name(), "cannot end its processes; kill them manually");
        }
    }
}

impl Drop for Orphan {
    fn drop(&mut self) {
        self.engine.orphan_ended(&self.job);
    }
}

/// Ends an attempt, and returns whether all its processes have ended. The processes are killed after [`STOP_TIMEOUT`],
/// or as soon as `is_urgent` is set.
pub(super) async fn end(attempt: &Attempt, is_urgent: &AtomicBool) -> bool {
    let mut kill_at = Instant::now() + STOP_TIMEOUT;
    let mut was_asked = false;
    loop {
        let now = Instant::now();
        if is_urgent.load(Ordering::Relaxed) {
            kill_at = kill_at.min(now);
        }
        let (by_force, give_up_at) = (now >= kill_at, kill_at + PROCESSES_END_TIMEOUT);
        let step = attempt.on_blocking_thread(move |attempt| {
            step(attempt, &mut was_asked, by_force).map(|has_ended| (has_ended, was_asked))
        });
        match step.await {
            Ok((true, _)) => return true,
            Ok((false, asked)) => was_asked = asked,
            Err(error) => warn!(attempt = attempt.name(), "cannot end the attempt yet: {error}"),
        }
        if now >= give_up_at {
            return false;
        }
        tokio::time::sleep(END_POLL_EVERY).await;
    }
}

/// Takes the next step to end an attempt, and returns whether it has ended.
fn step(attempt: &Attempt, was_asked: &mut bool, by_force: bool) -> io::Result<bool> {
    if is_missing(attempt.folder()) {
        return attempt.kill_marked_processes().map(|any| !any);
    }
    if matches!(attempt.state()?, AttemptState::Ended(_) | AttemptState::Gone) {
        return Ok(true);
    }
    if by_force {
        attempt.kill()?;
    } else if !*was_asked {
        // If there is no keeper, `stop` kills the remaining processes. A keeper that is just starting is asked in the
        // next step.
        *was_asked = attempt.stop()? == StopOutcome::Asked;
    }
    Ok(false)
}

/// Removes files that may contain secrets and are not needed after the end. Output that is not stored elsewhere is left
/// for the next start.
pub(super) fn remove_files(attempt: &Attempt) {
    let output = || if is_unwritten(attempt) { Ok(()) } else { attempt.remove_output() };
    if let Err(error) = attempt.remove_private_files().and_then(|()| output()) {
        warn!(attempt = attempt.name(), "cannot remove its private files and raw output: {error}");
    }
}

#[cfg(test)]
mod tests {
    use std::fs::{self, File};
    use std::time::Duration;

    use super::*;

    /// The lock of the attempt is never released, as if its keeper did not end.
    #[tokio::test(start_paused = true)]
    async fn processes_have_less_time_if_the_preparation_has_to_end() {
        let folder = tempfile::tempdir().unwrap();
        let job: JobId = "job-2026-01-05-aaaaaa".parse().unwrap();
        let attempt = Attempt::new(folder.path(), &job, 1);
        fs::create_dir_all(attempt.folder()).unwrap();
        let lock = File::create(attempt.folder().join("lock")).unwrap();
        lock.lock().unwrap();
        for (is_urgent, expected) in
            [(false, STOP_TIMEOUT + PROCESSES_END_TIMEOUT), (true, PROCESSES_END_TIMEOUT)]
        {
            let began = Instant::now();
            assert!(!end(&attempt, &AtomicBool::new(is_urgent)).await);
            let took = began.elapsed();
            assert!(took >= expected && took < expected + Duration::from_secs(1), "{is_urgent}: {took:?}");
        }
    }
}
