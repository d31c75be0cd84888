//! Writes the views in a task of their own, so that they do not delay ticks. Changes within a short time are written
//! together.

use std::sync::atomic::Ordering;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use jiff::Timestamp;
use tokio::sync::watch;
use tokio::task::JoinSet;
use tokio::time::Instant;
use tracing::warn;

use crate::attempt::workspaces;
use crate::context::Engine;
use crate::view::Views;
use cowhand_system::fault;
use cowhand_system::panic;

/// Minimum time from the beginning of a write to the write of the next change. A change after a longer time is written
/// at once. A delayed `state.yaml` and the last write do not wait for this time.
const WRITE_INTERVAL: Duration = Duration::from_millis(200);

/// The task that writes the views. It ends when this value is dropped.
#[derive(Debug)]
pub(super) struct ViewWriter {
    /// Contains only this task.
    tasks: JoinSet<()>,
    stop: watch::Sender<bool>,
}

impl ViewWriter {
    /// Repairs the views, and starts the task.
    pub(super) async fn start(engine: &Arc<Engine>, started_at: Timestamp) -> Self {
        let new_views = move |engine: &Engine| Views::new(engine.home.state.clone(), started_at);
        let mut views = new_views(engine);
        let (loaded, now) = (engine.loaded(), engine.clock.now());
        if let Err(error) = views.repair(&engine.store, &loaded, now).await {
            warn!("cannot update the views: {error:#}");
        }
        let (stop, stopped) = watch::channel(false);
        let (engine, repaired) = (Arc::clone(engine), Mutex::new(Some(views)));
        let begin = move || {
            let repaired = repaired.lock().unwrap_or_else(PoisonError::into_inner).take();
            let views = repaired.unwrap_or_else(|| new_views(&engine));
            write_until_stopped(Arc::clone(&engine), views, stopped.clone())
        };
        let mut tasks = JoinSet::new();
        tasks.spawn(panic::restart_on_panic("writing the views", begin));
        Self { tasks, stop }
    }

    /// Writes the last changes, and ends the task.
    pub(super) async fn finish(mut self) {
        self.stop.send_replace(true);
        // The task catches its panics.
        self.tasks.join_next().await;
    }

    /// Ends the task without another write.
    pub(super) async fn abort(mut self) {
        self.tasks.shutdown().await;
    }
}

async fn write_until_stopped(engine: Arc<Engine>, mut views: Views, mut stopped: watch::Receiver<bool>) {
    let mut background = JoinSet::new();
    let mut begin = Instant::now();
    loop {
        let state_at = views.state_pause().map(|pause| Instant::now() + pause);
        tokio::select! {
            () = changed_after(&engine, begin + WRITE_INTERVAL) => {}
            () = until(state_at) => {}
            _ = stopped.wait_for(|stopped| *stopped) => {}
        }
        let is_last = *stopped.borrow();
        if is_last {
            views.end_pause();
        }
        begin = Instant::now();
        write(&engine, &mut views, &mut background).await;
        if is_last {
            break;
        }
        while let Some(ended) = background.try_join_next() {
            panic::log_panic("the removal of workspaces", ended);
        }
    }
    background.shutdown().await;
}

async fn changed_after(engine: &Engine, time: Instant) {
    tokio::time::sleep_until(time).await;
    engine.view_changes.notified().await;
}

async fn until(time: Option<Instant>) {
    match time {
        Some(time) => tokio::time::sleep_until(time).await,
        None => std::future::pending().await,
    }
}

/// Writes the views. They are for people, so an error is only logged.
async fn write(engine: &Arc<Engine>, views: &mut Views, background: &mut JoinSet<()>) {
    let (loaded, now) = (engine.loaded(), engine.clock.now());
    if let Err(error) = views.catch_up(&engine.store, &loaded, now).await {
        warn!("cannot update the views: {error:#}");
    }
    engine.seen_by_views.store(views.cursor(), Ordering::Relaxed);
    let removed = views.take_removed();
    if !removed.is_empty() {
        background.spawn(workspaces::remove_workspaces_of(Arc::clone(engine), removed));
    }
    fault::point("viewed");
}
