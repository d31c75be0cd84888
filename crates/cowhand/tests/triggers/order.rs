//! The firings of one schedule become jobs in order, however long the preparation of each takes.

use cowhand::fleet::{Delivered, Fleet, Options, Stop};
use cowhand::trigger::{Registry, Task};
use cowhand_core::delivery::{Delivery, Webhook};
use cowhand_core::roster::Agent;
use cowhand_core::schedule::FiringOutcome;
use serde_json::json;

use crate::crash::start;
use crate::scripted::{Script, Step};
use crate::{FleetFolder, id, jobs, ledger, name, on_both, prompts, record, wait_for, with_schedule};

on_both! {
    webhooks_do_not_overtake_each_other,
    a_list_keeps_its_order,
    a_slow_schedule_holds_up_no_other,
    order_outlives_a_crash,
}

const HOOK: &str = r#"{"type":"webhook","secret":"x"}"#;

/// Script in which the first calls wait for the others, or for a second: if firings were prepared in
/// parallel, the later ones would finish first.
const GATE: &str = "n=$(ls calls | wc -l); touch calls/$$; i=0
if [ $n -lt 3 ]; then while [ $(ls calls | wc -l) -lt 8 ] && [ $i -lt 20 ]; do sleep 0.05; i=$((i+1)); done; sleep 0.2; fi";

fn gated(home: &FleetFolder, mut agent: Agent, gate: &str) -> Agent {
    std::fs::create_dir_all(home.path().join("calls")).unwrap();
    let command = ["sh", "-c", gate].map(str::to_owned).into();
    agent.schedules.last_mut().unwrap().when_command = Some(command);
    agent
}

async fn deliver(fleet: &Fleet, schedule: &str, number: usize) -> Delivered {
    let body = json!({ "n": number }).to_string();
    // The ids do not show the order of arrival.
    let webhook = Webhook::of_body(format!("d{}", 99 - number), "push", body.as_bytes()).unwrap();
    fleet.deliver(&name("a"), &schedule.parse().unwrap(), Delivery::Webhook(webhook)).await.unwrap()
}

async fn settled(fleet: &Fleet, schedule: &str, count: usize) {
    wait_for("all are decided", async || {
        let rows = ledger(fleet, id("a", schedule)).await;
        rows.iter().filter(|row| row.outcome == FiringOutcome::Ran).count() == count
    })
    .await;
}

fn numbers(count: usize) -> Vec<String> {
    (1..=count).map(|number| format!("n={number}")).collect()
}

async fn webhooks_do_not_overtake_each_other(home: FleetFolder) {
    let agent = with_schedule(home.idle_agent("a"), "hook", HOOK, "n={{payload.n}}");
    let fleet = home.start(vec![gated(&home, agent, GATE)], Registry::default()).await;
    for number in 1..=8 {
        assert_eq!(deliver(&fleet, "hook", number).await, Delivered::Preparing);
    }
    settled(&fleet, "hook", 8).await;
    assert_eq!(prompts(&fleet).await, numbers(8));
    fleet.stop(Stop::KeepAgents).await.unwrap();
}

/// One answer with many tasks, which are all due at the same time.
async fn a_list_keeps_its_order(home: FleetFolder) {
    let task = |number: usize| Task {
        source_id: number.to_string(),
        title: format!("n={number}"),
        ..Task::default()
    };
    let script = Script::of([Step::Tasks((1..=12).map(task).collect())]);
    let trigger = r#"{"type":"custom","name":"script"}"#;
    let agent = with_schedule(home.idle_agent("a"), "list", trigger, "{{title}}");
    let fleet = home.start(vec![gated(&home, agent, "true")], script.registry()).await;
    settled(&fleet, "list", 12).await;
    assert_eq!(prompts(&fleet).await, numbers(12));
    fleet.stop(Stop::KeepAgents).await.unwrap();
}

async fn a_slow_schedule_holds_up_no_other(home: FleetFolder) {
    let agent = with_schedule(home.idle_agent("a"), "slow", HOOK, "slow");
    let agent = gated(&home, agent, "while [ ! -e go ]; do sleep 0.05; done");
    let agent = with_schedule(agent, "broken", HOOK, "broken");
    let mut agent = gated(&home, agent, "true");
    agent.schedules.last_mut().unwrap().when_command = Some(["./no-such-program"].map(str::to_owned).into());
    let agent = with_schedule(agent, "quick", HOOK, "n={{payload.n}}");
    let fleet = home.start(vec![gated(&home, agent, "true")], Registry::default()).await;
    deliver(&fleet, "slow", 1).await;
    deliver(&fleet, "broken", 1).await;
    for number in 1..=3 {
        deliver(&fleet, "quick", number).await;
    }
    settled(&fleet, "quick", 3).await;
    assert_eq!(prompts(&fleet).await, numbers(3));
    wait_for("its trouble is told", async || record(&fleet, id("a", "broken")).await.last_error.is_some())
        .await;
    std::fs::write(home.path().join("go"), "").unwrap();
    settled(&fleet, "slow", 1).await;
    assert_eq!(jobs(&fleet).await.len(), 4);
    fleet.stop(Stop::KeepAgents).await.unwrap();
}

/// The daemon dies when the third firing is about to be decided, and the next daemon continues from there.
async fn order_outlives_a_crash(home: FleetFolder) {
    let store = home.server.as_ref().map(|server| format!("store: {}\n", server.url())).unwrap_or_default();
    // Without the file the command fails, and is retried.
    std::fs::write(home.path().join("gate.sh"), "[ -e open ] || exit 127\n").unwrap();
    let config = format!(
        "{store}agents:\n  - name: a\n    runtime: command\n    command: [cat]\n    schedules:\n      \
         hook: {{type: webhook, secret: x, prompt: 'n={{{{payload.n}}}}', when_command: [sh, gate.sh]}}\n"
    );
    let file = home.path().join("cowhand.yaml");
    std::fs::write(&file, config).unwrap();
    let options = || Options::of(file.clone(), env!("CARGO_BIN_EXE_cowhand"));
    let fleet = Fleet::start(options()).await.unwrap();
    for number in 1..=6 {
        assert_eq!(deliver(&fleet, "hook", number).await, Delivered::Preparing);
    }
    fleet.stop(Stop::KeepAgents).await.unwrap();
    drop(fleet);
    std::fs::write(home.path().join("open"), "").unwrap();
    let mut daemon = start(&home, Some("prepared:3"));
    wait_for("the planned death", async || daemon.try_wait().unwrap().is_some()).await;
    let fleet = Fleet::start(options()).await.unwrap();
    settled(&fleet, "hook", 6).await;
    assert_eq!(prompts(&fleet).await, numbers(6));
    fleet.stop(Stop::Cancel).await.unwrap();
}
