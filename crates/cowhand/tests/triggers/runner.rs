//! The runner with every kind of answer of a strategy.

use std::sync::Arc;
use std::time::{Duration, Instant};

use cowhand::fleet::{Fleet, Stop};
use cowhand::trigger::{RetryAfter, Task};
use cowhand_core::event::Fact;
use cowhand_core::schedule::{DisabledBy, FiringOutcome, ScheduleState, SkipReason};

use tokio::sync::Notify;

use crate::scripted::{Script, Step, task, tasks};
use crate::{FleetFolder, fires, id, jobs, ledger, name, prompts, record, until, wait_for, with_schedule};

const CUSTOM: &str = r#"{"type":"custom","name":"script"}"#;

async fn started(home: &FleetFolder, script: &Script) -> Fleet {
    let agent = with_schedule(home.idle_agent("clerk"), "s", CUSTOM, "Do {{title}}");
    home.start(vec![agent], script.registry()).await
}

async fn stopped(fleet: Fleet) {
    fleet.stop(Stop::Cancel).await.unwrap();
}

#[tokio::test]
async fn every_task_is_dispatched_once_and_in_order() {
    let home = FleetFolder::sqlite();
    let script = Script::of([tasks(&["b", "a", "c"]), tasks(&["c", "d", "d"])]);
    let fleet = started(&home, &script).await;
    let mut events = fleet.subscribe_after(0);
    for _ in 0..4 {
        fires(&mut events, "clerk", "s").await;
    }
    wait_for("the third call", async || script.calls().len() == 3).await;
    assert_eq!(prompts(&fleet).await, ["Do `Task b`", "Do `Task a`", "Do `Task c`", "Do `Task d`"]);
    let keys: Vec<String> =
        ledger(&fleet, id("clerk", "s")).await.iter().map(|row| row.key.to_string()).collect();
    assert_eq!(keys.len(), 4);
    assert!(keys.contains(&"custom:b".to_owned()), "{keys:?}");
    assert_eq!(fleet.state().trigger_count, 4);
    stopped(fleet).await;
}

#[tokio::test]
async fn task_dispatched_before_restart_is_not_dispatched_again() {
    let home = FleetFolder::sqlite();
    for _ in 0..3 {
        let script = Script::of([tasks(&["a", "b"])]);
        let fleet = started(&home, &script).await;
        wait_for("the second call", async || script.calls().len() == 2).await;
        assert_eq!(jobs(&fleet).await.len(), 2);
        stopped(fleet).await;
    }
}

#[tokio::test]
async fn empty_answers_are_delayed_by_backoff() {
    let home = FleetFolder::sqlite();
    let empties = std::iter::repeat_with(|| tasks(&[])).take(6);
    let script = Script::of(empties.chain([tasks(&["a"])]));
    let fleet = started(&home, &script).await;
    let mut events = fleet.subscribe_after(0);
    fires(&mut events, "clerk", "s").await;
    let calls = script.calls();
    let took = calls[6] - calls[0];
    assert!(took >= Duration::from_millis(10 + 20 + 40 + 80 + 160 + 320), "{took:?}");
    stopped(fleet).await;
}

#[tokio::test]
async fn error_of_strategy_is_shown_and_retried() {
    let home = FleetFolder::sqlite();
    // The error stays until the strategy is called again and has answered.
    let word = Arc::new(Notify::new());
    let later = Step::Later(Arc::clone(&word), vec![task("a")]);
    let script = Script::of([Step::Fail("the gate is shut"), later]);
    let fleet = started(&home, &script).await;
    let of_schedule = id("clerk", "s");
    wait_for("its error", async || record(&fleet, of_schedule).await.last_error.is_some()).await;
    assert_eq!(record(&fleet, of_schedule).await.last_error.as_deref(), Some("the gate is shut"));
    assert_eq!(record(&fleet, of_schedule).await.state, ScheduleState::Active);
    word.notify_one();
    let mut events = fleet.subscribe_after(0);
    fires(&mut events, "clerk", "s").await;
    let calls = script.calls();
    assert!(calls[1] - calls[0] >= Duration::from_secs(2), "{:?}", calls[1] - calls[0]);
    assert_eq!(record(&fleet, of_schedule).await.last_error, None, "that is over");
    assert_eq!(script.made(), 1, "an error is no reason for a new strategy");
    stopped(fleet).await;
}

#[tokio::test]
async fn fatal_error_stays_until_schedule_is_enabled() {
    let home = FleetFolder::sqlite();
    let script = Script::of([tasks(&["a"]), Step::Fatal("no such folder")]);
    let fleet = started(&home, &script).await;
    let mut events = fleet.subscribe_after(0);
    let gave_up =
        until(&mut events, |event| matches!(event.fact, Fact::ScheduleError { .. })).await.pop().unwrap();
    assert_eq!(gave_up.fact, Fact::ScheduleError { reason: "no such folder".into() });
    let of_schedule = id("clerk", "s");
    let error = ScheduleState::Error { reason: "no such folder".into() };
    assert_eq!(record(&fleet, of_schedule).await.state, error);
    wait_for("its end", async || script.dropped() == 1).await;
    assert_eq!(script.calls().len(), 2, "it is not asked again");

    script.add([tasks(&["b"])]);
    assert!(fleet.enable(&name("clerk"), &"s".parse().unwrap()).await.unwrap());
    fires(&mut events, "clerk", "s").await;
    assert_eq!(script.made(), 2);
    assert_eq!(record(&fleet, of_schedule).await.state, ScheduleState::Active);
    stopped(fleet).await;
}

#[tokio::test]
async fn unknown_trigger_name_is_an_error_state() {
    let home = FleetFolder::sqlite();
    let trigger = r#"{"type":"custom","name":"nobody"}"#;
    let agent = with_schedule(home.idle_agent("clerk"), "s", trigger, "x");
    let fleet = home.start(vec![agent], Script::default().registry()).await;
    let mut events = fleet.subscribe_after(0);
    let gave_up =
        until(&mut events, |event| matches!(event.fact, Fact::ScheduleError { .. })).await.pop().unwrap();
    let Fact::ScheduleError { reason } = gave_up.fact else { panic!("{gave_up:?}") };
    let expected = r#"no trigger is registered under the name "nobody"; registered: script; a program with"#;
    assert!(reason.starts_with(expected), "{reason}");
    stopped(fleet).await;
}

#[tokio::test]
async fn strategy_is_replaced_after_panic() {
    let home = FleetFolder::sqlite();
    let word = Arc::new(Notify::new());
    let later = Step::Later(Arc::clone(&word), vec![task("a")]);
    let script = Script::of([Step::Panic("my bad"), later]);
    let fleet = started(&home, &script).await;
    let of_schedule = id("clerk", "s");
    wait_for("its error", async || record(&fleet, of_schedule).await.last_error.is_some()).await;
    let error = record(&fleet, of_schedule).await.last_error;
    assert_eq!(error.as_deref(), Some("the trigger panicked: my bad"));
    word.notify_one();
    let mut events = fleet.subscribe_after(0);
    fires(&mut events, "clerk", "s").await;
    let calls = script.calls();
    assert!(calls[1] - calls[0] >= Duration::from_secs(2));
    assert_eq!((script.made(), script.dropped()), (2, 1));
    stopped(fleet).await;
}

#[tokio::test]
async fn strategy_is_replaced_only_when_its_trigger_changes() {
    let home = FleetFolder::sqlite();
    let script = Script::default();
    let fleet = started(&home, &script).await;
    let of_schedule = id("clerk", "s");
    wait_for("a first strategy", async || script.calls().len() == 1).await;

    let other_prompt = with_schedule(home.idle_agent("clerk"), "s", CUSTOM, "Now do {{title}}");
    let beside = with_schedule(other_prompt.clone(), "t", CUSTOM, "x");
    fleet.set_agents(vec![beside]).await.unwrap();
    wait_for("one for the new schedule", async || script.calls().len() == 2).await;
    assert_eq!((script.made(), script.dropped()), (2, 0), "the first goes on");

    fleet.set_agents(vec![other_prompt]).await.unwrap();
    wait_for("an end of the second", async || script.dropped() == 1).await;

    assert!(fleet.disable(&name("clerk"), &"s".parse().unwrap()).await.unwrap());
    wait_for("an end of the first", async || script.dropped() == 2).await;
    let off = ScheduleState::Disabled { why: DisabledBy::Person };
    assert_eq!(record(&fleet, of_schedule).await.state, off);
    assert!(fleet.enable(&name("clerk"), &"s".parse().unwrap()).await.unwrap());
    wait_for("a third", async || script.calls().len() == 3).await;

    let changed = CUSTOM.replace('}', r#","with":{"a":1}}"#);
    let changed = with_schedule(home.idle_agent("clerk"), "s", &changed, "Do {{title}}");
    fleet.set_agents(vec![changed]).await.unwrap();
    wait_for("a fourth", async || script.calls().len() == 4).await;
    assert_eq!((script.made(), script.dropped()), (4, 3));
    stopped(fleet).await;
    assert_eq!(script.dropped(), 4);
}

#[tokio::test]
async fn strategy_that_ignores_shutdown_is_dropped() {
    let home = FleetFolder::sqlite();
    let script = Script::of([Step::Hang]);
    let fleet = started(&home, &script).await;
    wait_for("its call", async || script.calls().len() == 1).await;
    stopped(fleet).await;
    assert_eq!(script.dropped(), 1);
}

#[tokio::test]
async fn filter_passes_matching_tasks_and_records_the_rest() {
    let home = FleetFolder::sqlite();
    let labelled = |id: &str, label: &str| Task { labels: vec![label.to_owned()], ..task(id) };
    let script = Script::of([Step::Tasks(vec![labelled("a", "docs"), labelled("b", "Bug")])]);
    let mut agent = with_schedule(home.idle_agent("clerk"), "s", CUSTOM, "Do {{title}}");
    agent.schedules[0].filter = serde_json::from_str(r#"{"labels":["bug"]}"#).unwrap();
    let fleet = home.start(vec![agent], script.registry()).await;
    wait_for("the second call", async || script.calls().len() == 2).await;
    assert_eq!(prompts(&fleet).await, ["Do `Task b`"]);
    let rows = ledger(&fleet, id("clerk", "s")).await;
    let skipped = rows.iter().find(|row| row.key.as_str() == "custom:a").unwrap();
    assert_eq!(skipped.outcome, FiringOutcome::Skipped(SkipReason::Filtered));
    stopped(fleet).await;
}

/// The due times of an interval continue even if its filter never lets it through.
#[tokio::test]
async fn filter_applies_to_interval() {
    let home = FleetFolder::sqlite();
    let mut agent = with_schedule(home.agent("clerk"), "s", r#"{"type":"interval","interval":"1h"}"#, "x");
    agent.schedules[0].filter = serde_json::from_str(r#"{"title":"never"}"#).unwrap();
    let fleet = home.start(vec![agent], Script::default().registry()).await;
    let mut events = fleet.subscribe_after(0);
    let skipped = fires(&mut events, "clerk", "s").await;
    assert!(matches!(skipped.fact, Fact::ScheduleSkipped { reason: SkipReason::Filtered, .. }));
    assert!(record(&fleet, id("clerk", "s")).await.last_run_at.is_some());
    fleet.stop(Stop::Cancel).await.unwrap();
    assert_eq!(ledger(&fleet, id("clerk", "s")).await.len(), 1);
}

#[tokio::test]
async fn hostile_text_of_tasks_is_escaped_and_cut() {
    let home = FleetFolder::sqlite();
    let titled = |id: &str, title: &str| Task { title: title.to_owned(), ..task(id) };
    let hostile = vec![
        titled("1", "{{ body }}{{agent}} {% x %}"),
        titled("2", "red \u{1b}[31mtext\u{1b}[0m\u{0}"),
        titled(&"x".repeat(1 << 20), "long id"),
        titled("a\nb#1", "odd id"),
        Task { body: "~~~~\n".repeat(200_000), ..titled("3", "a megabyte") },
        titled("", "without an id"),
    ];
    let script = Script::of([Step::Tasks(hostile)]);
    let agent = with_schedule(home.idle_agent("clerk"), "s", CUSTOM, "<{{title}}>{{body}}");
    let fleet = home.start(vec![agent], script.registry()).await;
    wait_for("the second call", async || script.calls().len() == 2).await;
    let prompts = prompts(&fleet).await;
    assert_eq!(
        prompts[..4],
        ["<`{{ body }}{{agent}} {% x %}`>", "<`red text`>", "<`long id`>", "<`odd id`>"]
    );
    assert!(prompts[4].len() < 300_000 && prompts[4].contains(" bytes cut …]"));
    assert_eq!(prompts[5], "<`without an id`>");
    assert!(ledger(&fleet, id("clerk", "s")).await.iter().all(|row| row.key.as_str().len() < 100));
    stopped(fleet).await;
}

/// A wait that the source requests has priority over the backoff of the runner.
#[tokio::test]
async fn retry_after_of_source_overrides_backoff() {
    use cowhand::trigger::{Registry, TriggerStrategy};
    struct Limited(u32);
    #[async_trait::async_trait]
    impl TriggerStrategy for Limited {
        async fn next_tasks(&mut self, _: &tokio::sync::watch::Receiver<bool>) -> anyhow::Result<Vec<Task>> {
            self.0 += 1;
            let slow_down = || anyhow::anyhow!("slow down").context(RetryAfter(Duration::from_millis(1)));
            if self.0 < 20 { Err(slow_down()) } else { Ok(vec![task("a")]) }
        }
    }
    let home = FleetFolder::sqlite();
    let agent = with_schedule(home.idle_agent("clerk"), "s", CUSTOM, "x");
    let began = Instant::now();
    let fleet =
        home.start(vec![agent], Registry::default().with("script", |_| Ok(Box::new(Limited(0))))).await;
    let mut events = fleet.subscribe_after(0);
    fires(&mut events, "clerk", "s").await;
    assert!(began.elapsed() < Duration::from_mins(1), "twenty times our own backoff would be minutes");
    stopped(fleet).await;
}
