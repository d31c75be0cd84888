//! A strategy that follows a script.

use std::collections::VecDeque;
use std::sync::{Arc, Mutex};
use std::time::Instant;

use anyhow::anyhow;
use async_trait::async_trait;
use cowhand::trigger::{FatalTriggerError, Registry, Task, TriggerStrategy, stopped};
use tokio::sync::{Notify, watch};

pub(crate) enum Step {
    Tasks(Vec<Task>),
    /// Returns the tasks after a notification.
    Later(Arc<Notify>, Vec<Task>),
    Fail(&'static str),
    Fatal(&'static str),
    Panic(&'static str),
    /// Never returns, whatever is signalled.
    Hang,
}

/// Steps of a scripted strategy, with a record of the calls. After the last step the strategy waits.
#[derive(Clone, Default)]
pub(crate) struct Script(Arc<Mutex<Seen>>);

#[derive(Default)]
struct Seen {
    steps: VecDeque<Step>,
    calls: Vec<Instant>,
    made: usize,
    dropped: usize,
}

struct Scripted(Script);

impl Script {
    pub(crate) fn of(steps: impl IntoIterator<Item = Step>) -> Self {
        let script = Self::default();
        script.add(steps);
        script
    }

    pub(crate) fn add(&self, steps: impl IntoIterator<Item = Step>) {
        self.0.lock().unwrap().steps.extend(steps);
    }

    /// Returns a registry with the strategy under the name `script`.
    pub(crate) fn registry(&self) -> Registry {
        let script = self.clone();
        Registry::default().with("script", move |_| {
            script.0.lock().unwrap().made += 1;
            Ok(Box::new(Scripted(script.clone())))
        })
    }

    pub(crate) fn calls(&self) -> Vec<Instant> {
        self.0.lock().unwrap().calls.clone()
    }

    pub(crate) fn made(&self) -> usize {
        self.0.lock().unwrap().made
    }

    pub(crate) fn dropped(&self) -> usize {
        self.0.lock().unwrap().dropped
    }
}

impl Drop for Scripted {
    fn drop(&mut self) {
        self.0.0.lock().unwrap().dropped += 1;
    }
}

#[async_trait]
impl TriggerStrategy for Scripted {
    async fn next_tasks(&mut self, shutdown: &watch::Receiver<bool>) -> anyhow::Result<Vec<Task>> {
        let step = {
            let mut seen = self.0.0.lock().unwrap();
            seen.calls.push(Instant::now());
            seen.steps.pop_front()
        };
        match step {
            Some(Step::Tasks(tasks)) => Ok(tasks),
            Some(Step::Later(word, tasks)) => {
                word.notified().await;
                Ok(tasks)
            }
            Some(Step::Fail(message)) => Err(anyhow!(message)),
            Some(Step::Fatal(reason)) => Err(FatalTriggerError(reason.to_owned()).into()),
            Some(Step::Panic(words)) => panic!("{words}"),
            Some(Step::Hang) => std::future::pending().await,
            None => {
                stopped(shutdown).await;
                Ok(Vec::new())
            }
        }
    }
}

pub(crate) fn task(id: &str) -> Task {
    Task { source_id: id.to_owned(), title: format!("Task {id}"), ..Task::default() }
}

pub(crate) fn tasks(ids: &[&str]) -> Step {
    Step::Tasks(ids.iter().map(|id| task(id)).collect())
}
