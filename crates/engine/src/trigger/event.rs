//! The strategy for events of the fleet: it follows the stored event log. Each schedule has its own cursor.
//!
//! The cursor in the store moves in the transaction that records the firing for an event. The strategy itself remembers
//! how far it has read, and moves the cursor after [`MAX_EVENTS_READ_AGAIN`] events that were not for its schedule.

use std::time::Duration;

use async_trait::async_trait;
use cowhand_core::event::Event;
use cowhand_core::job::{Job, JobRecord};
use cowhand_core::prompt::Upstream;
use cowhand_core::roster::{EventListener, end_status};
use cowhand_core::trigger::{
    CONFINED_KEY, LifecycleEvent, MAX_TRIGGERED_IN_A_ROW, TRIGGERED_IN_A_ROW, TriggerConfig,
};
use tokio::sync::watch;

use super::strategy::{Task, TriggerStrategy, stopped};
use super::strategy_context::StrategyContext;
use cowhand_store::StoreError;

/// Number of events that are read at once.
const EVENTS_PER_READ: u32 = 500;
/// Largest number of events that are read again after a restart, if none of them was for the schedule.
const MAX_EVENTS_READ_AGAIN: i64 = 1_000;
/// Longest wait before the next read, because other nodes write to the same log without a signal to this node.
const READ_LOG_EVERY: Duration = Duration::from_secs(30);

/// The strategy that follows the event log for one schedule.
#[derive(Debug)]
pub struct EventStrategy {
    context: StrategyContext,
    /// Position up to which the log is read; `None` before the first read.
    read: Option<i64>,
    /// Approximate position of the cursor in the store. A firing stores the position of its event, which may be
    /// smaller.
    stored: i64,
}

impl EventStrategy {
    pub fn new(context: StrategyContext) -> Self {
        Self { context, read: None, stored: 0 }
    }

    async fn next(&mut self) -> Result<Vec<Task>, StoreError> {
        loop {
            let committed = self.context.store().committed();
            let after = self.cursor().await?;
            let events = self.context.store().events_after(after, EVENTS_PER_READ).await?;
            let Some(last) = events.last().map(|event| event.seq) else {
                self.wait(committed).await;
                continue;
            };
            let tasks = self.tasks(events).await?;
            self.read = Some(last);
            if !tasks.is_empty() {
                self.stored = last;
                return Ok(tasks);
            }
            if last - self.stored >= MAX_EVENTS_READ_AGAIN {
                self.context.store().pass_events(self.context.schedule_id(), last).await?;
                self.stored = last;
            }
        }
    }

    /// Waits until this process has committed an event after `committed`, at most for [`READ_LOG_EVERY`].
    async fn wait(&self, committed: i64) {
        let store = self.context.store();
        let news = async {
            while store.committed() <= committed {
                store.changed(committed).await;
            }
        };
        // The next read shows whether there is a new event.
        let _ = tokio::time::timeout(READ_LOG_EVERY, news).await;
    }

    async fn cursor(&mut self) -> Result<i64, StoreError> {
        if let Some(read) = self.read {
            return Ok(read);
        }
        let stored = self.context.store().cursor(self.context.schedule_id()).await?;
        // Without a stored cursor, only events from now on count.
        self.stored = match stored {
            Some(seq) => seq,
            None => self.context.store().last_event().await?,
        };
        self.read = Some(self.stored);
        Ok(self.stored)
    }

    async fn tasks(&self, events: Vec<Event>) -> Result<Vec<Task>, StoreError> {
        let roster = self.context.roster();
        let Some((agent, schedule)) = roster.schedule(self.context.schedule_id()) else {
            return Ok(Vec::new());
        };
        let listener = EventListener { roster: &roster, agent, schedule };
        let mut tasks = Vec::new();
        for event in events.into_iter().filter(|event| listener.matches(event)) {
            tasks.push(self.task(event, &schedule.trigger).await?);
        }
        Ok(tasks)
    }

    async fn task(&self, event: Event, trigger: &TriggerConfig) -> Result<Task, StoreError> {
        let (mut job, mut in_a_row) = (None, 0);
        if let Some(id) = &event.job {
            job = self.context.store().job(id.clone()).await?;
            in_a_row = self.context.store().triggered_in_a_row(id.clone(), MAX_TRIGGERED_IN_A_ROW).await?;
        }
        let mut task = match trigger {
            TriggerConfig::AgentLifecycle { event: kind, .. } => of_session(&event, *kind, job.as_ref()),
            _ => self.of_result(&event, job.as_ref()).await,
        };
        task.source_id = event.seq.to_string();
        task.metadata.insert("timestamp".to_owned(), event.at.to_string());
        task.metadata.insert(TRIGGERED_IN_A_ROW.to_owned(), in_a_row.to_string());
        let why = match &job {
            Some(job) => job.confined(),
            // The author of the text is unknown, because the job no longer exists.
            None if event.job.is_some() && self.context.roster().has_trust_rules() => {
                Some("its job no longer exists")
            }
            None => None,
        };
        task.metadata.extend(why.map(|why| (CONFINED_KEY.to_owned(), why.to_owned())));
        Ok(task)
    }

    async fn of_result(&self, event: &Event, job: Option<&Job>) -> Task {
        let status = end_status(&event.fact);
        let subject = event.subject();
        let word = status.map_or("ended", |status| status.as_str());
        let mut task = Task { title: format!("{subject} {word}"), ..Task::default() };
        let Some((id, status)) = event.job.clone().zip(status) else { return task };
        let summary = job.and_then(|job| JobRecord::from(job.clone()).summary);
        let work_item = job.and_then(Job::work_item).map(|item| item.id.to_string());
        let result = self.context.result(&id).await.or_else(|| summary.clone());
        task.body = summary.clone().unwrap_or_default();
        let from = event.schedule_id().map(|id| id.to_string());
        let own = [
            ("source_workflow_id", from),
            ("dispatch_id", Some(id.to_string())),
            ("status", Some(status.to_string())),
        ];
        task.metadata.extend(own.into_iter().filter_map(|(key, value)| Some((key.to_owned(), value?))));
        let (Some(agent), schedule) = (event.agent.clone(), event.schedule.clone()) else { return task };
        Upstream { agent, schedule, job_id: id, status, result, summary, work_item }
            .write(&mut task.metadata);
        task
    }
}

fn of_session(event: &Event, kind: LifecycleEvent, job: Option<&Job>) -> Task {
    let (word, happened) = match kind {
        LifecycleEvent::SessionStart => ("session_start", "A session began"),
        LifecycleEvent::SessionEnd => ("session_end", "A session ended"),
        LifecycleEvent::ContextClear => ("context_clear", "The context was cleared"),
    };
    let metadata = [
        ("event_type", Some(word.to_owned())),
        ("agent_id", event.agent.as_ref().map(ToString::to_string)),
        ("job_id", event.job.as_ref().map(ToString::to_string)),
        ("session_id", job.and_then(Job::session_id).map(str::to_owned)),
    ];
    let metadata = metadata.into_iter().filter_map(|(key, value)| Some((key.to_owned(), value?))).collect();
    Task { title: format!("{happened}: {}", event.subject()), metadata, ..Task::default() }
}

#[async_trait]
impl TriggerStrategy for EventStrategy {
    async fn next_tasks(&mut self, shutdown: &watch::Receiver<bool>) -> anyhow::Result<Vec<Task>> {
        tokio::select! {
            biased;
            () = stopped(shutdown) => Ok(Vec::new()),
            tasks = self.next() => Ok(tasks?),
        }
    }
}
