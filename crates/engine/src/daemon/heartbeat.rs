//! The heartbeat: renews the leases of running attempts and moves the deadlines of their agents.
//!
//! It runs in its own task, so that nothing that the daemon does can delay it.

use std::sync::Arc;

use cowhand_core::id::JobId;
use jiff::SignedDuration;
use tracing::{error, info, warn};

use crate::context::Engine;
use cowhand_run::boot_timer::BootTimer;
use cowhand_system::clock::Clock;
use cowhand_system::fault;

/// Renews the leases until the task is stopped.
pub(super) async fn renew_leases(engine: Arc<Engine>) {
    let timer = match BootTimer::new() {
        Ok(timer) => timer,
        Err(error) => {
            error!("cannot create the timer for the leases; the agents of this node will be paused: {error}");
            return;
        }
    };
    let mut heartbeat = Heartbeat { engine, overdue: 0 };
    let mut wait = heartbeat.engine.loaded().roster.leases.renew_every();
    loop {
        heartbeat.wait_for_leases().await;
        // The timer is of the machine, also if a test sets the clock of the fleet.
        if let Err(error) = timer.set(Clock::System.boot().plus(wait)) {
            error!("cannot set the timer for the leases: {error}");
        }
        timer.expired().await;
        wait = heartbeat.beat().await;
    }
}

struct Heartbeat {
    engine: Arc<Engine>,
    /// Number of agents whose deadline had passed at the last failure.
    overdue: usize,
}

impl Heartbeat {
    /// Waits until this node has a lease. A node of a shared database does not wait: it also records that it reaches the
    /// database.
    async fn wait_for_leases(&self) {
        while !self.engine.store.is_postgres() && self.engine.running_jobs().is_empty() {
            self.engine.attempt_began.notified().await;
        }
    }

    /// Renews the leases, moves the deadlines, and abandons attempts whose lease is lost. Returns the time until the next
    /// renewal.
    async fn beat(&mut self) -> SignedDuration {
        let engine = &self.engine;
        let (times, running) = (engine.loaded().roster.leases, engine.running_jobs());
        if running.is_empty() && !engine.store.is_postgres() {
            return times.renew_every();
        }
        // Leases that expired while the machine was suspended are renewed, too: they belong to this node until another
        // node settles the job. The lease of a job without an attempt task on this node is not renewed, so it expires.
        let (node, jobs) = (engine.home.node.clone(), running.iter().map(|(job, _)| job.clone()).collect());
        let (sent, now) = (engine.clock.boot(), engine.clock.now());
        let renewed = match engine.store.renew(node, jobs, times.length, now).await {
            Ok(renewed) => renewed,
            Err(error) => {
                warn!("cannot renew the leases: {error}");
                self.report_overdue();
                return times.retry_after();
            }
        };
        fault::point("renewed");
        if std::mem::take(&mut self.overdue) > 0 {
            info!("the leases are renewed again; agents that were paused continue");
        }
        let is_lost = |(job, epoch): &(JobId, i64)| {
            !renewed.iter().any(|lease| lease.job == *job && lease.epoch == *epoch)
        };
        for (job, epoch) in running.into_iter().filter(is_lost) {
            engine.abandon(&job, epoch);
        }
        engine.move_deadlines(&renewed, sent).await;
        if !renewed.is_empty() {
            // Another node may have cancelled a job of this node.
            engine.nudge.notify_one();
        }
        times.renew_every()
    }

    /// Logs once how many agents are stopped because the leases could not be renewed in time.
    fn report_overdue(&mut self) {
        let overdue = self.engine.overdue_attempts();
        if overdue > self.overdue {
            let agents = if overdue == 1 { "1 agent is".to_owned() } else { format!("{overdue} agents are") };
            warn!(
                "{agents} paused or ended, as `on_lost_lease` says, because the leases were not renewed in time; \
                 paused agents continue when the database answers again"
            );
        }
        self.overdue = overdue;
    }
}
