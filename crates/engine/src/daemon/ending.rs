//! The end of the daemon: attempts are ended or left to their keepers, and everything that can be stored is stored.

use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use cowhand_core::duration;
use cowhand_core::job::CancelReason;
use tokio::sync::watch;
use tokio::time::Instant;
use tracing::{info, warn};

use super::Daemon;
use crate::context::{Engine, StopRequest};
use crate::lifecycle::Lifecycle;
use cowhand_store::SHUTDOWN_STORE_TIMEOUT;
use cowhand_system::blocking::run_blocking;
use cowhand_system::panic;

/// Time limit for recording why jobs are cancelled.
const RECORD_TIMEOUT: Duration = Duration::from_secs(2);
/// Time limit for the last results and hooks.
const FINISH_TIMEOUT: Duration = Duration::from_secs(10);
/// Time without an answer of the store after which a warning is logged.
const SILENT_STORE_WARNING_AFTER: Duration = Duration::from_secs(1);
const POLL_EVERY: Duration = Duration::from_millis(200);

/// Limits the time for which a stopping daemon waits for the store. The limit begins when the daemon no longer waits
/// for jobs. Logs a warning if the store does not answer or cannot be written.
pub(super) async fn limit_store_wait(engine: Arc<Engine>, mut lifecycle: watch::Receiver<Lifecycle>) {
    if lifecycle.wait_for(|lifecycle| *lifecycle != Lifecycle::Running).await.is_err() {
        return;
    }
    // Agents that still work may finish, even if the store is unavailable meanwhile.
    while matches!(*lifecycle.borrow(), Lifecycle::Draining { until } if Instant::now() < until)
        && any_agent_works(&engine).await
    {
        tokio::time::sleep(POLL_EVERY).await;
    }
    engine.store.limit_waits();
    while engine.store.unanswered_time().is_none_or(|waited| waited < SILENT_STORE_WARNING_AFTER) {
        tokio::time::sleep(POLL_EVERY).await;
    }
    let limit = duration::exact(SHUTDOWN_STORE_TIMEOUT);
    warn!(
        "the store does not answer or cannot be written; the daemon waits at most {limit} for the store and then \
         stops; the next start settles the jobs whose end could not be written"
    );
}

/// Returns whether any attempt of this daemon still runs. The files of the attempts decide this, because a task that
/// waits for the store does not know yet that its attempt has ended.
async fn any_agent_works(engine: &Engine) -> bool {
    let attempts = engine.attempts();
    run_blocking(move || attempts.iter().any(|attempt| !matches!(attempt.ending(), Ok(Some(_))))).await
}

impl Daemon {
    /// Waits until the results of the last jobs are delivered to their work sources, the hooks of these jobs have ended,
    /// and notifications that are being sent have arrived, within a time limit. Then stops the background tasks. Results and hooks that are not done by then are
    /// left for the next start. A hook that is a process continues under its keeper, within its own time limit.
    async fn deliver_outbox(&mut self) {
        let outbox = async {
            self.engine.outbox.notify_one();
            while matches!(self.engine.store.has_due_outbox_entry(self.engine.clock.now()).await, Ok(true)) {
                tokio::time::sleep(Duration::from_millis(50)).await;
            }
        };
        let hooks = async {
            self.engine.hooks.notify_one();
            let has_hook =
                || self.engine.store.has_open_hook(self.engine.home.node.clone(), self.engine.clock.now());
            while matches!(has_hook().await, Ok(true)) {
                tokio::time::sleep(Duration::from_millis(50)).await;
            }
        };
        let notifications = async {
            while self.engine.sending.load(Ordering::Relaxed) > 0 {
                tokio::time::sleep(Duration::from_millis(50)).await;
            }
        };
        // An entry that cannot be written stays due, so the wait has a limit. If the store has not answered for some
        // time already, that time counts towards this limit.
        let timeout = FINISH_TIMEOUT.saturating_sub(self.engine.store.unanswered_time().unwrap_or_default());
        let (outbox, hooks, notifications) = tokio::join!(
            tokio::time::timeout(timeout, outbox),
            tokio::time::timeout(timeout, hooks),
            tokio::time::timeout(timeout, notifications),
        );
        if outbox.is_err() {
            warn!(
                "not all reports to the work sources were delivered; they are delivered after the next start"
            );
        }
        if hooks.is_err() {
            warn!("some hooks have not ended; the next start continues with them");
        }
        if notifications.is_err() {
            warn!("some notifications are still being sent; the next start sends them again");
        }
        self.background.shutdown().await;
    }

    /// Records that this node was stopped, so that other nodes do not report it as lost.
    async fn record_stop(&self) {
        let (node, now) = (self.engine.home.node.clone(), self.engine.clock.now());
        match tokio::time::timeout(RECORD_TIMEOUT, self.engine.store.node_stopped(node, now)).await {
            Ok(Ok(())) => {}
            Ok(Err(error)) => warn!("cannot record that this node was stopped: {error}"),
            Err(_) => warn!("the store does not answer; it is not recorded that this node was stopped"),
        }
    }

    /// Records for each running job that it is cancelled because the daemon stops. A store that does not answer delays
    /// the stop by at most [`RECORD_TIMEOUT`].
    async fn record_cancel_reason(&self) {
        let (store, now) = (&self.engine.store, self.engine.clock.now());
        let record = async {
            for (job, _) in self.engine.running_jobs() {
                if let Err(error) =
                    store.record_cancelling(job.clone(), CancelReason::DaemonStopped, now).await
                {
                    warn!(%job, "cannot store why the job is cancelled: {error}");
                }
            }
        };
        if tokio::time::timeout(RECORD_TIMEOUT, record).await.is_err() {
            warn!("the store does not answer; the reason why jobs are cancelled is not stored");
        }
    }

    pub(super) async fn end(mut self, mut lifecycle: watch::Receiver<Lifecycle>) {
        self.triggers.stop().await;
        self.pruning.stop();
        self.engine.is_ending.store(true, Ordering::Relaxed);
        let keep_agents = *lifecycle.borrow_and_update() == Lifecycle::Leaving;
        let stop_request = if keep_agents { StopRequest::Detach } else { StopRequest::Cancel };
        if !keep_agents {
            self.record_cancel_reason().await;
        }
        for (job, _) in self.engine.running_jobs() {
            self.engine.request_stop(&job, stop_request);
        }
        while !self.tasks.is_empty() {
            tokio::select! {
                Some(ended) = self.tasks.join_next() => panic::log_panic("a task", ended),
                _ = lifecycle.changed(), if !keep_agents => {
                    for (job, _) in self.engine.running_jobs() {
                        self.engine.request_stop(&job, StopRequest::CancelNow);
                    }
                }
            }
        }
        let node = self.engine.home.node.clone();
        if let Err(error) = self.engine.store.node_seen(node, self.engine.clock.now()).await {
            warn!("cannot record the end of this node: {error}");
        }
        if self.engine.is_state_folder_lost() {
            // A folder at the same path may belong to another daemon.
            self.background.shutdown().await;
            if let Some(views) = self.views.take() {
                views.abort().await;
            }
        } else {
            self.deliver_outbox().await;
            self.record_stop().await;
            if let Some(views) = self.views.take() {
                views.finish().await;
            }
        }
        self.traces.stop().await;
        info!("stopped");
    }
}
