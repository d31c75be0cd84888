//! Recovery after a restart: running attempts continue, ended attempts are settled, attempts that never began are
//! requeued, and orphans are ended.

use std::collections::{HashMap, HashSet};
use std::io;
use std::sync::Arc;

use cowhand_core::id::JobId;
use cowhand_core::job::Job;
use tracing::{info, warn};

use cowhand_system::blocking::run_blocking;
use cowhand_system::fault;

use super::Daemon;
use crate::attempt::unwritten::{self, is_unwritten};
use crate::attempt::{AttemptTask, orphans, outcomes, superseded, workspaces};
use crate::context::Engine;
use crate::error::FleetError;
use crate::lease::JobLease;
use crate::prune::files::entries;
use crate::state::StateFolder;
use cowhand_run::attempt::Attempt;
use cowhand_store::ProviderAndRuntime;

impl Daemon {
    /// Creates an attempt task for each attempt that this node started and that is not settled, ends orphans, and
    /// removes the remains of settled attempts. This happens before the first plan.
    pub(super) async fn recover(&mut self) -> Result<(), FleetError> {
        let engine = &self.engine;
        workspaces::wait_for_earlier_git(engine).await;
        let (length, sent) = (engine.loaded().roster.leases.length, engine.clock.boot());
        let held = engine.store.adopt(engine.home.node.clone(), length, engine.clock.now()).await?;
        for lease in &held {
            fault::point("adopted");
            let Some(job) = engine.store.job(lease.job.clone()).await? else { continue };
            let fallback = self.fallback_of(&job).await?;
            let own = JobLease { epoch: lease.epoch, on_lost: lease.on_lost, sent };
            if let Some(stop_requests) = engine.begin(&job, own) {
                info!(job = %job.id(), agent = %job.agent(), "supervision of the running attempt continues");
                let task = AttemptTask::new(Arc::clone(engine), job, lease.epoch, stop_requests, fallback);
                self.tasks.spawn(task.supervise(false));
            }
        }
        engine.move_deadlines(&held, sent).await;
        let orphans = orphans::find(engine).await;
        let held = engine.running_jobs().into_iter().map(|(job, _)| job);
        let mut held: HashSet<JobId> =
            held.chain(orphans.iter().map(|orphan| orphan.job().clone())).collect();
        held.extend(record_superseded(engine, &held).await);
        for orphan in orphans {
            self.tasks.spawn(orphan.end());
        }
        let (state, loaded, now) = (engine.home.state.clone(), engine.loaded(), engine.clock.now());
        let attempts = self.attempts_of_unwritten().await?;
        let write = move |attempt: &Attempt, state: &StateFolder| {
            let last = attempt.job().and_then(|job| attempts.get(&job).copied());
            unwritten::catch_up(attempt, state, last, &loaded, now)
        };
        let result = tokio::task::spawn_blocking(move || remove_settled(&state, &held, &write)).await;
        if let Err(error) = result.map_err(io::Error::other).flatten() {
            warn!("files of attempts that were settled are still there: {error}");
        }
        Ok(())
    }

    /// Returns the number of attempts of each job that has output to be written.
    async fn attempts_of_unwritten(&self) -> Result<HashMap<JobId, u32>, FleetError> {
        let state = self.engine.home.state.clone();
        let jobs = run_blocking(move || {
            let folder = state.attempts();
            let entries = entries(&folder).into_iter().flatten().flatten();
            let attempts = entries.filter_map(|entry| Attempt::at(&entry.path()).ok());
            attempts.filter(is_unwritten).filter_map(|attempt| attempt.job()).collect::<HashSet<JobId>>()
        })
        .await;
        let mut attempts = HashMap::new();
        for id in jobs {
            attempts.extend(self.engine.store.job(id).await?.map(|job| (job.id().clone(), job.attempts())));
        }
        Ok(attempts)
    }

    /// Returns the index of the fallback with which the last attempt of the job was started; `None` if it was started
    /// without a fallback.
    async fn fallback_of(&self, job: &Job) -> Result<Option<usize>, FleetError> {
        let loaded = self.engine.loaded();
        let agent = loaded.roster.agent(job.agent());
        let program = self.engine.store.provider_and_runtime(job.id().clone()).await?;
        Ok(agent.zip(program).and_then(|(agent, ProviderAndRuntime { provider, runtime })| {
            agent.fallback_of(provider.as_deref(), runtime.as_deref())
        }))
    }
}

/// Stores the ends of attempts that another node settled as lost, and that have ended while no daemon ran here. Returns
/// the jobs whose files have to stay, because that failed.
async fn record_superseded(engine: &Engine, held: &HashSet<JobId>) -> Vec<JobId> {
    let state = engine.home.state.clone();
    let found = tokio::task::spawn_blocking(move || {
        let all = state.attempts();
        let folders = entries(&all)?.filter_map(|entry| Some(entry.ok()?.path()));
        let attempts = folders.filter_map(|folder| Attempt::at(&folder).ok()).filter(Attempt::has_output);
        Ok::<Vec<Attempt>, io::Error>(attempts.collect())
    });
    let found = found.await.map_err(io::Error::other).flatten().unwrap_or_else(|error| {
        warn!("cannot search for attempts that another node has taken over: {error}");
        Vec::new()
    });
    let mut failed = Vec::new();
    for (attempt, job) in found.iter().filter_map(|attempt| Some((attempt, attempt.job()?))) {
        if held.contains(&job) {
            continue;
        }
        if let Err(error) = superseded::record(engine, attempt).await {
            warn!(%job, "the end of a superseded attempt is not stored; the next start tries again: {error}");
            failed.push(job);
        }
    }
    failed
}

/// Removes the remains of settled attempts, because the daemon that settled them may have died before it removed them.
/// `held` are the jobs with attempts that are not settled. `write` first writes output that is not yet in the
/// job's JSONL, and returns whether it succeeded.
fn remove_settled(
    state: &StateFolder,
    held: &HashSet<JobId>,
    write: &dyn Fn(&Attempt, &StateFolder) -> bool,
) -> io::Result<()> {
    for entry in entries(&state.attempts())? {
        let Ok(attempt) = Attempt::at(&entry?.path()) else { continue };
        // A folder without a job belongs to a hook run. The code in `hooks.rs` removes it.
        if attempt.job().is_some_and(|job| !held.contains(&job))
            && (!is_unwritten(&attempt) || write(&attempt, state))
        {
            outcomes::remove_settled_earlier(&attempt, state)?;
        }
    }
    Ok(())
}
