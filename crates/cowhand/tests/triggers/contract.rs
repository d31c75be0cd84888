//! The strategies meet the contract in each of their states. `variants.rs` tests the strategy of each trigger type.

use std::sync::{Arc, Mutex};
use std::time::Duration;

use async_trait::async_trait;
use cowhand::clock::Clock;
use cowhand::fleet::Stop;
use cowhand::trigger::contract::assert_trigger_contract;
use cowhand::trigger::{
    EventStrategy, PollingStrategy, Registry, StrategyContext, Task, TaskSource, Timer, TriggerStrategy,
};
use cowhand_core::roster::Schedule;

use crate::{FleetFolder, wait_for, with_schedule};

/// Source that answers, fails, or never answers.
#[derive(Clone, Copy)]
enum Source {
    Answers,
    Fails,
    Hangs,
}

#[async_trait]
impl TaskSource for Source {
    async fn fetch_tasks(&self) -> anyhow::Result<Vec<Task>> {
        match self {
            Self::Answers => Ok(vec![Task::default()]),
            Self::Fails => anyhow::bail!("away"),
            Self::Hangs => std::future::pending().await,
        }
    }

    fn source_type(&self) -> &'static str {
        "test"
    }
}

#[tokio::test]
async fn polling_strategies_keep_contract() {
    let day = Duration::from_hours(24);
    for source in [Source::Answers, Source::Fails, Source::Hangs] {
        for immediately in [true, false] {
            let make = || PollingStrategy::new(source, day).poll_immediately(immediately);
            assert_trigger_contract(|| Box::new(make())).await;
        }
    }
}

#[tokio::test]
async fn timer_strategies_keep_contract() {
    let home = FleetFolder::sqlite();
    for trigger in [
        r#"{"type":"interval","interval":"1h"}"#,
        r#"{"type":"cron","expression":"0 0 1 1 *"}"#,
        r#"{"type":"delay","in":"365d"}"#,
        r#"{"type":"manual"}"#,
    ] {
        let agent = home.agent("a");
        let schedule =
            Schedule::new(&agent.name, "s".parse().unwrap(), serde_json::from_str(trigger).unwrap());
        let make = || Timer::new(agent.clone(), schedule.clone(), Clock::System);
        assert_trigger_contract(|| Box::new(make())).await;
    }
}

/// The event strategy needs the context of a fleet, which the test gets through a custom type.
#[tokio::test]
async fn event_strategy_keeps_contract() {
    let home = FleetFolder::sqlite();
    let handed: Arc<Mutex<Option<StrategyContext>>> = Arc::default();
    let keep = Arc::clone(&handed);
    let registry = Registry::default().with("keep", move |context| {
        *keep.lock().unwrap() = Some(context.clone());
        Ok(Box::new(PollingStrategy::new(Source::Hangs, Duration::from_hours(1))))
    });
    let agent = with_schedule(home.idle_agent("a"), "s", r#"{"type":"custom","name":"keep"}"#, "x");
    let fleet = home.start(vec![agent], registry).await;
    wait_for("a context", async || handed.lock().unwrap().is_some()).await;
    let context = handed.lock().unwrap().clone().unwrap();
    assert_trigger_contract(|| Box::new(EventStrategy::new(context.clone()))).await;
    fleet.stop(Stop::Cancel).await.unwrap();
}

/// Runs the trigger type of the example: a letter fires once, and again when it is put back.
#[tokio::test]
async fn custom_trigger_type_fires_for_each_letter() {
    let home = FleetFolder::sqlite();
    let inbox = home.path().join("in");
    std::fs::create_dir(&inbox).unwrap();
    std::fs::write(inbox.join("letter"), "Dear fleet").unwrap();
    let with = serde_json::json!({"type": "custom", "name": "inbox", "with": {"folder": inbox}});
    let agent =
        with_schedule(home.idle_agent("clerk"), "inbox", &with.to_string(), "Answer {{title}}:\n{{body}}");
    let fleet = home.start(vec![agent], crate::own_trigger::registry()).await;
    let mut events = fleet.subscribe_after(0);
    crate::fires(&mut events, "clerk", "inbox").await;
    assert!(crate::prompts(&fleet).await[0].contains("Dear fleet"));
    std::fs::remove_file(inbox.join("letter")).unwrap();
    // Another letter shows that the folder was read without the first.
    std::fs::write(inbox.join("other"), "x").unwrap();
    crate::fires(&mut events, "clerk", "inbox").await;
    std::fs::write(inbox.join("letter"), "Dear fleet").unwrap();
    crate::fires(&mut events, "clerk", "inbox").await;
    let keys: Vec<String> = crate::ledger(&fleet, crate::id("clerk", "inbox"))
        .await
        .iter()
        .map(|row| row.key.to_string())
        .collect();
    assert_eq!(keys, ["custom:letter#1", "custom:other", "custom:letter"]);
    fleet.stop(Stop::Cancel).await.unwrap();
}

fn moves_between_tasks<T: Send + Sync + 'static>() {}

#[test]
fn strategies_and_sources_are_send_and_sync() {
    moves_between_tasks::<Box<dyn TriggerStrategy>>();
    moves_between_tasks::<Box<dyn TaskSource>>();
}

/// The runner must not depend on the types that it runs.
#[test]
fn runner_does_not_depend_on_trigger_types() {
    let runner = include_str!("../../../engine/src/daemon/triggers/runner.rs");
    assert!(!runner.contains("TriggerConfig") && !runner.contains("type_name"));
}
