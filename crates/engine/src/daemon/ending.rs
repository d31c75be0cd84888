//! The end of the daemon: attempts are ended or left to their keepers, and what can be written is written.

use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use cowhand_core::job::CancelReason;
use tokio::sync::watch;
use tokio::time::Instant;
use tracing::{info, warn};

use super::Daemon;
use crate::context::{Engine, StopRequest};
use crate::lifecycle::Lifecycle;
use cowhand_store::LAST_WAIT;
use cowhand_system::panic;

/// How long it may take to write down why jobs end.
const RECORD_TIMEOUT: Duration = Duration::from_secs(2);
const FINISH_TIMEOUT: Duration = Duration::from_secs(10);
/// A store that has been silent for so long is worth a line in the log.
const SILENT_STORE_WARNING_AFTER: Duration = Duration::from_secs(1);
const POLL_EVERY: Duration = Duration::from_millis(200);

/// Bounds how long the store is waited for as soon as the daemon has no more jobs to wait for, whatever it does at that
/// moment, and says so while it is waited for.
pub(super) async fn hurry(engine: Arc<Engine>, mut way: watch::Receiver<Lifecycle>) {
    if way.wait_for(|way| *way != Lifecycle::Running).await.is_err() {
        return;
    }
    // Jobs that may finish are settled even if the store is away for a while.
    let drains = || match *way.borrow() {
        Lifecycle::Draining { until } => Instant::now() < until && !engine.held().is_empty(),
        _ => false,
    };
    while drains() {
        tokio::time::sleep(POLL_EVERY).await;
    }
    engine.store.hurry();
    while engine.store.silence().is_none_or(|silence| silence < SILENT_STORE_WARNING_AFTER) {
        tokio::time::sleep(POLL_EVERY).await;
    }
    let seconds = LAST_WAIT.as_secs();
    warn!(
        "the store does not answer; the daemon stops after it has waited for it for {seconds} seconds, and the next start \
         settles the jobs whose end it could not write"
    );
}

impl Daemon {
    /// Sources hear what the end of the daemon made of their items, and hooks run, if they are quick; the rest is for the
    /// next start. A hook that is a process goes on under its keeper, for as long as it may.
    async fn deliver_outbox(&mut self) {
        let outbox = async {
            self.engine.outbox.notify_one();
            while matches!(self.engine.store.has_due_outbox_entry(self.engine.clock.now()).await, Ok(true)) {
                tokio::time::sleep(Duration::from_millis(50)).await;
            }
        };
        let hooks = async {
            self.engine.hooks.notify_one();
            let any = || self.engine.store.any_hook(self.engine.home.node.clone(), self.engine.clock.now());
            while matches!(any().await, Ok(true)) {
                tokio::time::sleep(Duration::from_millis(50)).await;
            }
        };
        let (outbox, hooks) = tokio::join!(
            tokio::time::timeout(FINISH_TIMEOUT, outbox),
            tokio::time::timeout(FINISH_TIMEOUT, hooks)
        );
        if outbox.is_err() {
            warn!("a work source could not be told everything; it will be at the next start");
        }
        if hooks.is_err() {
            warn!("not all hooks have come to their end; they are seen to at the next start");
        }
        self.background.shutdown().await;
    }

    /// Writes down of each running job that the end of the daemon ends it. A store that does not answer holds up nothing.
    async fn record_cancel_reason(&self) {
        let (store, now) = (&self.engine.store, self.engine.clock.now());
        let say = async {
            for (job, _) in self.engine.held() {
                if let Err(error) = store.note_cancelling(job.clone(), CancelReason::DaemonStopped, now).await
                {
                    warn!(%job, "why it is cancelled is not written: {error}");
                }
            }
        };
        if tokio::time::timeout(RECORD_TIMEOUT, say).await.is_err() {
            warn!("the store does not answer; why jobs are cancelled is not written");
        }
    }

    pub(super) async fn end(mut self, mut way: watch::Receiver<Lifecycle>) {
        self.triggers.stop().await;
        self.pruning.stop();
        self.engine.ending.store(true, Ordering::Relaxed);
        let keep_agents = *way.borrow_and_update() == Lifecycle::Leaving;
        let stop_request = if keep_agents { StopRequest::Detach } else { StopRequest::Cancel };
        if !keep_agents {
            self.record_cancel_reason().await;
        }
        for (job, _) in self.engine.held() {
            self.engine.request_stop(&job, stop_request);
        }
        while !self.tasks.is_empty() {
            tokio::select! {
                Some(ended) = self.tasks.join_next() => panic::tell("a task", ended),
                _ = way.changed(), if !keep_agents => {
                    for (job, _) in self.engine.held() {
                        self.engine.request_stop(&job, StopRequest::CancelNow);
                    }
                }
            }
        }
        if self.engine.is_state_folder_lost() {
            // What lies in its place may be another daemon's.
            self.background.shutdown().await;
        } else {
            self.deliver_outbox().await;
            self.write_views().await;
        }
        self.traces.stop().await;
        info!("stopped");
    }
}
