//! A custom work source: a list in the config. It needs one type, one line that registers it, and
//! `{type: custom, name: list}` in the config. Nothing in cowhand changes.
//!
//! `cargo run -p cowhand --example own_work_source`

use std::path::Path;
use std::sync::{Arc, Mutex, PoisonError};

use async_trait::async_trait;
use cowhand::work::contract::assert_work_source_contract;
use cowhand::work::{
    Claimant, NextOptions, SourceContext, SourceOwner, SourceRegistry, WorkSource, WorkSourceError,
    WorkSources,
};
use cowhand_core::config::{ConfigEnvironment, load};
use cowhand_core::policy::Zone;
use cowhand_core::work::{
    ClaimFailureReason, ClaimResult, FetchOptions, FetchResult, Priority, ReleaseOptions, ReleaseResult,
    WorkItem, WorkItemId, WorkOutcome, WorkResult,
};
use cowhand_core::work_source::ConfiguredSource;
use jiff::{SignedDuration, Timestamp};
use serde_json::Map;

const CONFIG: &str = "
agents:
  - name: gardener
    work_source:
      type: custom
      name: list
      with:
        tasks: [Paint the fence, 'Water the plants (urgent)', Mow the lawn, Feed the cat]
";

/// Tasks with their states, in the order of the config.
#[derive(Debug)]
struct List(Mutex<Vec<Task>>);

#[derive(Debug)]
struct Task {
    title: String,
    priority: Priority,
    state: State,
}

#[derive(Debug)]
enum State {
    Available,
    Claimed(Claimant),
    Done(Claimant),
}

/// Builds the source; the registry calls it when a config names `list`.
fn make(config: &ConfiguredSource, _: &SourceContext) -> Result<Arc<dyn WorkSource>, WorkSourceError> {
    let ConfiguredSource::Custom { with, .. } = config else {
        return Err(WorkSourceError::Config("`list` is a custom source".to_owned()));
    };
    let tasks = with.get("tasks").and_then(|tasks| tasks.as_array());
    let tasks =
        tasks.ok_or_else(|| WorkSourceError::Config("`list` needs `with: {tasks: […]}`".to_owned()))?;
    let task = |title: &str| Task {
        title: title.replace(" (urgent)", ""),
        priority: Priority::of_labels(&[title]),
        state: State::Available,
    };
    Ok(Arc::new(List(Mutex::new(tasks.iter().filter_map(|title| title.as_str()).map(task).collect()))))
}

impl List {
    /// Passes the task with this id to `change`, while the list is locked for other claimants.
    fn with<T>(&self, id: &WorkItemId, change: impl FnOnce(&mut Task) -> T) -> Option<T> {
        let number: usize = id.external_id().parse().ok()?;
        let mut tasks = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        tasks.get_mut(number.checked_sub(1)?).map(change)
    }

    fn items(&self) -> Result<Vec<WorkItem>, WorkSourceError> {
        let tasks = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        tasks.iter().zip(1..).map(|(task, number)| item(task, number)).collect()
    }
}

fn item(task: &Task, number: i64) -> Result<WorkItem, WorkSourceError> {
    let id = WorkItemId::new("list", &number.to_string());
    let id = id.map_err(|error| WorkSourceError::Config(error.to_string()))?;
    let state = match task.state {
        State::Available => "available",
        State::Claimed(_) => "claimed",
        State::Done(_) => "done",
    };
    // An earlier task in the list is older.
    let created_at = Timestamp::from_second(number).unwrap_or_default();
    Ok(WorkItem {
        id,
        title: task.title.clone(),
        description: String::new(),
        priority: task.priority,
        labels: Vec::new(),
        metadata: Map::from_iter([("state".to_owned(), state.into())]),
        url: String::new(),
        created_at,
        updated_at: created_at,
    })
}

#[async_trait]
impl WorkSource for List {
    fn source_type(&self) -> &'static str {
        "list"
    }

    async fn fetch_available_work(&self, options: &FetchOptions) -> Result<FetchResult, WorkSourceError> {
        let mut items = self.items()?;
        let shown = |item: &WorkItem| match item.metadata["state"].as_str() {
            Some("available") => true,
            Some("claimed") => options.include_claimed,
            _ => false,
        };
        items.retain(|item| shown(item) && options.admits(item));
        let total_count = Some(items.len() as u64);
        // The cursor is the number of items on earlier pages.
        let before: usize = options.cursor.as_deref().and_then(|cursor| cursor.parse().ok()).unwrap_or(0);
        let end = before.saturating_add(options.limit.unwrap_or(usize::MAX)).min(items.len());
        let next_cursor = (end < items.len()).then(|| end.to_string());
        Ok(FetchResult { items: items.drain(before.min(end)..end).collect(), next_cursor, total_count })
    }

    async fn claim_work(&self, id: &WorkItemId, by: &Claimant) -> Result<ClaimResult, WorkSourceError> {
        let refused = |reason| ClaimResult::Refused { reason, message: None };
        let claim = self.with(id, |task| match &task.state {
            State::Claimed(_) => Err(ClaimFailureReason::AlreadyClaimed),
            State::Done(_) => Err(ClaimFailureReason::InvalidState),
            State::Available => {
                task.state = State::Claimed(by.clone());
                Ok(())
            }
        });
        Ok(match (claim, self.get_work(id).await?) {
            (Some(Ok(())), Some(item)) => ClaimResult::Claimed(Box::new(item)),
            (Some(Err(reason)), _) => refused(reason),
            _ => refused(ClaimFailureReason::NotFound),
        })
    }

    async fn complete_work(
        &self,
        id: &WorkItemId,
        result: &WorkResult,
        by: &Claimant,
    ) -> Result<(), WorkSourceError> {
        let reported = self.with(id, |task| match &task.state {
            State::Claimed(holder) if holder == by => {
                task.state = State::Done(by.clone());
                task.title = format!("{} ({})", task.title, result.summary);
                true
            }
            // A repeated report succeeds if the holder is the same.
            State::Done(holder) => holder == by,
            _ => false,
        });
        match reported {
            Some(true) => Ok(()),
            Some(false) => Err(WorkSourceError::NotHeld {
                item: id.clone(),
                state: "is held by another claimant".to_owned(),
            }),
            None => Err(WorkSourceError::NotFound(id.clone())),
        }
    }

    async fn release_work(
        &self,
        id: &WorkItemId,
        _: &ReleaseOptions,
        by: &Claimant,
    ) -> Result<ReleaseResult, WorkSourceError> {
        let success = self.with(id, |task| {
            let ours = matches!(&task.state, State::Claimed(holder) if holder == by);
            if ours {
                task.state = State::Available;
            }
            ours || matches!(task.state, State::Available)
        });
        Ok(ReleaseResult { success: success.unwrap_or(false), message: None })
    }

    async fn get_work(&self, id: &WorkItemId) -> Result<Option<WorkItem>, WorkSourceError> {
        Ok(self.items()?.into_iter().find(|item| item.id == *id))
    }
}

/// Does the same as one firing of a schedule: claims the next item, works on it, and reports the result.
pub async fn run() -> anyhow::Result<Vec<String>> {
    let mut registry = SourceRegistry::with_built_ins();
    registry.register("list", make)?;
    let sources = WorkSources::new(Arc::new(registry), SourceContext::new(".", |_| None));

    let outside = ConfigEnvironment {
        read: &mut |_| Ok(CONFIG.to_owned()),
        env: &|_| None,
        is_folder: &|_| true,
        zone: Zone::UTC,
        now: Timestamp::now(),
    };
    let loaded = load(Path::new("cowhand.yaml"), outside);
    let Some(agent) = loaded.roster.agents.first() else { anyhow::bail!("the config has no agent") };
    let by = claimant();

    let next = sources.next_item(SourceOwner::agent(agent), &NextOptions::default(), &by).await?;
    let Some(item) = next.item().filter(|_| next.claimed()) else { anyhow::bail!("nothing to do") };
    let mut told = vec![format!("claimed {}: {}", item.id, item.title)];

    let summary = "They were dry.".to_owned();
    let result = WorkResult {
        outcome: WorkOutcome::Success,
        summary,
        details: None,
        artifacts: Vec::new(),
        error: None,
    };
    sources.report_outcome(&item.id, &result, SourceOwner::agent(agent), &by).await?;
    told.push(format!("done: {} (success): {}", item.id, result.summary));
    Ok(told)
}

/// Checks the source against the contract, as the author of any source can do.
pub async fn keeps_the_contract() {
    let tasks =
        (1..=5).map(|n| Task { title: format!("{n}"), priority: Priority::Medium, state: State::Available });
    let list = Arc::new(List(Mutex::new(tasks.collect())));
    let handle: Arc<dyn WorkSource> = list.clone();
    assert_work_source_contract(&[handle], claimant().until, async || format!("{list:?}")).await;
}

fn claimant() -> Claimant {
    let until = Timestamp::now().saturating_add(SignedDuration::from_hours(1)).unwrap_or(Timestamp::MAX);
    Claimant { fleet: "garden".to_owned(), holder: "job-1".to_owned(), until }
}

#[tokio::main]
async fn main() -> anyhow::Result<()> {
    for line in run().await? {
        println!("{line}");
    }
    keeps_the_contract().await;
    println!("and it keeps the contract");
    Ok(())
}
