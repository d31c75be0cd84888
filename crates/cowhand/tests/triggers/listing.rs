//! Lists: each item once, in order, and again when it comes back.

use std::sync::{Arc, Mutex};
use std::time::Duration;

use async_trait::async_trait;
use cowhand::fleet::{Fleet, Stop};
use cowhand::store::Store;
use cowhand::trigger::{PollingStrategy, Registry, Task, TaskSource};
use cowhand_core::event::Fact;

use crate::scripted::task;
use crate::{FleetFolder, fires, id, jobs, ledger, on_both, prompts, until, wait_for, with_schedule};

on_both! {
    a_thousand_items_each_once_and_in_order_over_restarts,
    what_comes_back_is_new,
}

/// List that the test changes.
#[derive(Clone, Default)]
struct List {
    items: Arc<Mutex<Vec<String>>>,
    fetched: Arc<Mutex<usize>>,
}

#[async_trait]
impl TaskSource for List {
    async fn fetch_tasks(&self) -> anyhow::Result<Vec<Task>> {
        *self.fetched.lock().unwrap() += 1;
        Ok(self.items.lock().unwrap().iter().map(|item| task(item)).collect())
    }

    fn source_type(&self) -> &'static str {
        "list"
    }
}

impl List {
    fn of(items: impl IntoIterator<Item = impl Into<String>>) -> Self {
        let list = Self::default();
        list.set(items);
        list
    }

    fn set(&self, items: impl IntoIterator<Item = impl Into<String>>) {
        *self.items.lock().unwrap() = items.into_iter().map(Into::into).collect();
    }

    fn registry(&self) -> Registry {
        let list = self.clone();
        let poll = move || PollingStrategy::new(list.clone(), Duration::from_secs(1));
        Registry::default().with("list", move |_| Ok(Box::new(poll())))
    }

    /// Waits for two whole rounds, after which the current items were handled.
    async fn is_seen(&self) {
        let before = *self.fetched.lock().unwrap();
        wait_for("two fetches", async || *self.fetched.lock().unwrap() >= before + 2).await;
    }
}

async fn started(home: &FleetFolder, list: &List) -> Fleet {
    let agent =
        with_schedule(home.idle_agent("a"), "s", r#"{"type":"custom","name":"list"}"#, "{{source_id}}");
    home.start(vec![agent], list.registry()).await
}

async fn a_thousand_items_each_once_and_in_order_over_restarts(home: FleetFolder) {
    let items: Vec<String> = (1..=1_000).map(|number| number.to_string()).collect();
    let list = List::of(&items);
    for _ in 0..2 {
        let fleet = started(&home, &list).await;
        let mut events = fleet.subscribe_after(0);
        until(&mut events, |event| matches!(event.fact, Fact::ScheduleFired { .. })).await;
        // The stop comes in the middle of the list or at its end. The result has to be the same.
        fleet.stop(Stop::KeepAgents).await.unwrap();
    }
    let fleet = started(&home, &list).await;
    wait_for("a thousand jobs", async || jobs(&fleet).await.len() >= 1_000).await;
    list.is_seen().await;
    fleet.stop(Stop::KeepAgents).await.unwrap();
    assert_eq!(prompts(&fleet).await, items);
}

async fn what_comes_back_is_new(home: FleetFolder) {
    let list = List::of(["1", "2"]);
    let fleet = started(&home, &list).await;
    let mut events = fleet.subscribe_after(0);
    fires(&mut events, "a", "s").await;
    fires(&mut events, "a", "s").await;
    list.set(["1"]);
    list.is_seen().await;
    let quiet = fleet.store().last_event().await.unwrap();
    list.set(["1", "2"]);
    fires(&mut events, "a", "s").await;
    list.is_seen().await;
    assert_eq!(fleet.store().last_event().await.unwrap(), quiet + 2, "one firing and its job");
    // A stop is not an empty list, and an empty list is not the end of the schedule.
    fleet.stop(Stop::KeepAgents).await.unwrap();
    drop(fleet);
    let fleet = started(&home, &list).await;
    list.is_seen().await;
    assert_eq!(prompts(&fleet).await, ["1", "2", "2"]);
    list.set(Vec::<String>::new());
    list.is_seen().await;
    list.set(["2"]);
    let mut events = fleet.subscribe().await.unwrap();
    fires(&mut events, "a", "s").await;
    fleet.stop(Stop::KeepAgents).await.unwrap();
    let keys: Vec<String> =
        ledger(&fleet, id("a", "s")).await.iter().map(|row| row.key.to_string()).collect();
    assert_eq!(keys[..2], ["custom:2#2", "custom:2#1"]);
    assert!(Store::open(&home.store_url()).await.is_ok());
}
