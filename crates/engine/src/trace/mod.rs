//! Traces: one for each ended job, for an OpenTelemetry collector.
//!
//! A trace is made after the end of the job, from the store and the job's output. So nothing is lost if a daemon dies,
//! and traces do not slow down a running job. The ended jobs are found in the events of the store, and a file in the
//! state folder contains the cursor. Ids are derived from the job's id, so that a trace that is sent twice has the same
//! ids.

mod collector;
mod error;
mod otlp;
mod span;
mod tool;

use std::fs;
use std::sync::Arc;
use std::time::Duration;

use cowhand_core::event::{Event, Fact};
use cowhand_core::job::{ErrorKind, JobState, Outcome};
use tokio::sync::watch;
use tokio::task::JoinHandle;
use tracing::{info, warn};

use crate::context::Engine;
use crate::view::position::EventPosition;
use collector::Collector;
use cowhand_store::{JobHistory, StoreError};
use cowhand_system::remove::missing_is_ok;
use otlp::Exporter;
use span::{Ids, Span};
use tool::Calls;

/// Number of events that are read at once.
const EVENTS_PER_READ: u32 = 500;
/// Number of pending spans after which a request is sent. A request may have more spans, because the spans of a job are
/// not split.
const SPANS_PER_REQUEST: usize = 2000;
/// Time before a failed store is asked again.
const STORE_RETRY_AFTER: Duration = Duration::from_secs(5);
/// Time limit at the stop. Traces that are not sent by then are sent at the next start.
const TRACE_STOP_TIMEOUT: Duration = Duration::from_secs(1);
/// File in the state folder with the number of the last event whose spans are sent or dropped.
const TRACE_CURSOR: &str = "traces";

/// The task that sends traces, if a collector is configured.
#[derive(Debug)]
pub struct Traces(Option<(watch::Sender<bool>, JoinHandle<()>)>);

impl Traces {
    /// Starts sending traces. Invalid settings only cause a warning, because traces are not essential.
    pub async fn start(engine: &Arc<Engine>) -> Result<Self, StoreError> {
        let loaded = engine.loaded();
        let variable = |name: &str| loaded.sources.context().variable(name);
        let exporter = Collector::configured(loaded.roster.traces.as_ref(), variable).and_then(|collector| {
            collector.map(|collector| Exporter::new(collector, &engine.home.node)).transpose()
        });
        let exporter = exporter.unwrap_or_else(|error| {
            warn!("no traces are sent: {error}");
            None
        });
        let Some(exporter) = exporter else {
            // If traces are configured again later, jobs that ended before that time get no trace.
            if let Err(error) = missing_is_ok(fs::remove_file(engine.home.state.path().join(TRACE_CURSOR))) {
                warn!("cannot delete the position up to which traces were sent: {error}");
            }
            return Ok(Self(None));
        };
        info!("traces go to {}", exporter.display_address());
        let follower = Follower {
            fleet: engine.store.fleet_id().await?,
            cursor: first_cursor(engine).await?,
            engine: Arc::clone(engine),
            exporter,
            pending: Vec::new(),
        };
        follower.save_cursor();
        let (stop, stopped) = watch::channel(false);
        Ok(Self(Some((stop, tokio::spawn(follower.follow(stopped))))))
    }

    /// Sends the remaining traces within the time limit.
    pub async fn stop(&mut self) {
        let Some((stop, mut task)) = self.0.take() else { return };
        stop.send_replace(true);
        if tokio::time::timeout(TRACE_STOP_TIMEOUT, &mut task).await.is_err() {
            info!("some traces are not sent yet; they are sent at the next start");
            task.abort();
            // After its end, the task no longer holds the lock of the state folder.
            let _ = task.await;
        }
    }
}

/// Aborts the task, so that it does not hold the lock of the state folder if the daemon could not start.
impl Drop for Traces {
    fn drop(&mut self) {
        if let Some((_, task)) = &self.0 {
            task.abort();
        }
    }
}

/// Returns the cursor of the last daemon. If that daemon sent no traces, or the store was replaced, returns the last
/// event before this start.
async fn first_cursor(engine: &Engine) -> Result<EventPosition, StoreError> {
    match EventPosition::read(&engine.home.state.path().join(TRACE_CURSOR)) {
        Some(stored) if stored.is_in(&engine.store).await? => Ok(stored),
        _ => EventPosition::after(engine.home.event_before_start, &engine.store).await,
    }
}

struct Follower {
    engine: Arc<Engine>,
    /// Id of the fleet, from which the ids of spans are derived.
    fleet: String,
    exporter: Exporter,
    /// The last event that was read.
    cursor: EventPosition,
    pending: Vec<Span>,
}

impl Follower {
    async fn follow(mut self, mut stop: watch::Receiver<bool>) {
        loop {
            // Both values are taken before the read, so that the next read sees events that are written meanwhile.
            let (is_stopping, seen) = (*stop.borrow_and_update(), self.engine.store.committed());
            let result = self.catch_up().await;
            if is_stopping {
                return;
            }
            if let Err(error) = result {
                warn!("cannot read the jobs to trace: {error}");
                // If a stop is requested meanwhile, the loop reads once more.
                let _ = tokio::time::timeout(STORE_RETRY_AFTER, stop.changed()).await;
                continue;
            }
            tokio::select! {
                () = self.engine.store.changed(seen) => {}
                _ = stop.changed() => {}
            }
        }
    }

    async fn catch_up(&mut self) -> Result<(), StoreError> {
        loop {
            self.pending.clear();
            let events = self.engine.store.events_after(self.cursor.seq, EVENTS_PER_READ).await?;
            let Some(last) = events.last().map(EventPosition::of) else { return Ok(()) };
            let mut has_spans = false;
            for event in events {
                has_spans |= self.take(event).await?;
                if self.pending.len() >= SPANS_PER_REQUEST {
                    self.send().await;
                }
            }
            self.send().await;
            self.cursor = last;
            if has_spans {
                self.save_cursor();
            }
        }
    }

    /// Adds the spans of an event, and returns whether this node has to send any.
    async fn take(&mut self, event: Event) -> Result<bool, StoreError> {
        let is_end = match event.fact {
            Fact::JobCompleted { .. } | Fact::JobFailed { .. } | Fact::JobCancelled { .. } => true,
            Fact::WorkReported { .. } | Fact::WorkReleased { .. } | Fact::WorkDropped { .. } => false,
            _ => return Ok(false),
        };
        let Some(id) = &event.job else { return Ok(false) };
        let history = match self.engine.store.history(id.clone()).await {
            Ok(Some(history)) if is_sent_here(&history, &self.engine.home.node) => history,
            // The job was pruned, or belongs to another node.
            Ok(_) => return Ok(false),
            // The row will not be readable later either.
            Err(error @ StoreError::Unreadable { .. }) => {
                warn!(job = %id, "it has no trace: {error}");
                return Ok(false);
            }
            Err(error) => return Err(error),
        };
        let ids = Ids::of(&self.fleet, id);
        if is_end {
            let calls = self.calls(&history).await;
            self.pending.extend(span::of_job(&ids, &history, &calls));
        } else {
            self.pending.extend(span::of_report(&ids, &history, &event));
        }
        Ok(true)
    }

    /// Reads the tool calls of a job. Output that cannot be read is left out.
    async fn calls(&self, history: &JobHistory) -> Calls {
        let id = history.job.id();
        let windows = history.attempts.iter().map(span::window_of(history)).collect();
        let mut calls = Calls::within(windows);
        if let Err(error) = calls.read(self.engine.home.state.output(id)).await {
            warn!(job = %id, "its trace lacks some of its tool calls: {error}");
        }
        calls
    }

    /// Sends the pending spans. If that fails, they are dropped.
    async fn send(&mut self) {
        if self.pending.is_empty() {
            return;
        }
        if let Err(error) = self.exporter.send(&self.pending).await {
            let traces = self.pending.iter().filter(|span| span.is_root()).count();
            warn!(traces, spans = self.pending.len(), "traces are dropped: {error}");
        }
        self.pending.clear();
    }

    fn save_cursor(&self) {
        let path = self.engine.home.state.path().join(TRACE_CURSOR);
        if let Err(error) = self.cursor.write(&path) {
            warn!("traces may be sent again: {}: {error}", path.display());
        }
    }
}

/// Returns whether this node sends the trace. Usually the node that ran the job sends it, because that node has the
/// output. If the job never ran or was lost, every node sends the same trace.
fn is_sent_here(history: &JobHistory, node: &str) -> bool {
    let is_lost = matches!(
        history.job.state(),
        JobState::Ended { outcome: Outcome::Failed { error, .. }, .. } if error.kind == ErrorKind::Lost
    );
    is_lost || history.attempts.last().is_none_or(|attempt| attempt.node == node)
}
