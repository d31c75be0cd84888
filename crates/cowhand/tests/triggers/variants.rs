//! Every trigger type is created and fired, from YAML and from the library, and its strategy meets the contract.

use std::collections::BTreeSet;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use cowhand::clock::Clock;
use cowhand::fleet::{AgentSource, Fleet, Options, Stop, TriggerRequest};
use cowhand::state::StateFolder;
use cowhand::trigger::contract::assert_trigger_contract;
use cowhand::trigger::{Registry, StrategyContext, Wakes, strategy};
use cowhand::work::SourceRegistry;
use cowhand_core::chat::posting::MessageDetails;
use cowhand_core::delivery::{Delivery, Message, Webhook};
use cowhand_core::trigger::{ChatPlatform, TriggerConfig};
use serde_json::{Value, json};

use crate::fake::FakeLists;
use crate::scripted::{Script, tasks};
use crate::{FleetFolder, fires, id, name, wait_for, with_schedule};

/// What the triggers watch: a folder, and a server in place of GitHub.
struct Watched {
    home: FleetFolder,
    github: FakeLists,
}

impl Watched {
    async fn new() -> Self {
        let pull = json!({"number": 2, "created_at": "2026-01-02T04:00:00Z", "head": {"ref": "x", "sha": "y"}, "base": {"ref": "main"}});
        let github = FakeLists::start(vec![crate::fake::issue(1)], vec![pull]).await;
        Self { home: FleetFolder::sqlite(), github }
    }
}

/// Returns one trigger of each type, as in the config, under the name of its type.
fn all(watched: &Watched) -> Vec<(&'static str, Value)> {
    let github = |kind: &str| json!({"type": kind, "owner": "o", "repo": "r", "api_url": watched.github.url, "auth": {"token_env": "CARGO_MANIFEST_DIR"}});
    vec![
        ("interval", json!({"type": "interval", "interval": "1h"})),
        ("cron", json!({"type": "cron", "cron": "* * * * * *"})),
        ("delay", json!({"type": "delay", "in": "1s"})),
        ("webhook", json!({"type": "webhook", "secret_env": "S"})),
        ("chat", json!({"type": "chat", "platform": "discord"})),
        ("manual", json!({"type": "manual"})),
        ("github_issues", github("github_issues")),
        ("github_pull_requests", github("github_pull_requests")),
        ("agent_lifecycle", json!({"type": "agent_lifecycle", "event": "context_clear"})),
        ("dispatch_result", json!({"type": "dispatch_result", "schedule": "manual"})),
        ("custom", json!({"type": "custom", "name": "script"})),
    ]
}

/// Causes the occurrence for which each type waits. Called again until the schedule fires, because a strategy may not
/// see what happens before its first look. A new type needs its own arm.
async fn happen(fleet: &Fleet, trigger: &TriggerConfig) {
    let schedule = trigger.type_name().parse().unwrap();
    match trigger {
        TriggerConfig::Interval { .. }
        | TriggerConfig::Cron { .. }
        | TriggerConfig::Delay { .. }
        | TriggerConfig::GithubIssues { .. }
        | TriggerConfig::GithubPullRequests { .. }
        | TriggerConfig::Custom { .. } => {}
        TriggerConfig::Webhook { .. } => {
            let delivery = Webhook::of_body("d1", "push", b"{}").unwrap();
            fleet.deliver(&name("a"), &schedule, Delivery::Webhook(delivery)).await.unwrap();
        }
        TriggerConfig::Chat { .. } => {
            let message = Message {
                platform: ChatPlatform::Discord,
                id: "1".into(),
                channel: "c".into(),
                thread: None,
                author: "ann".into(),
                text: "hello".into(),
                url: String::new(),
                details: MessageDetails::default(),
            };
            fleet.deliver(&name("a"), &schedule, Delivery::Chat(message)).await.unwrap();
        }
        TriggerConfig::Manual {} | TriggerConfig::DispatchResult { .. } => {
            let manual = Some("manual".parse().unwrap());
            fleet
                .trigger(&name("a"), TriggerRequest { schedule: manual, ..TriggerRequest::default() })
                .await
                .unwrap();
        }
        TriggerConfig::AgentLifecycle { .. } => fleet.clear(&name("a")).await.unwrap(),
    }
}

async fn each_fires(fleet: &Fleet) {
    let roster = fleet.roster();
    let types: BTreeSet<_> =
        roster.agents[0].schedules.iter().map(|schedule| schedule.trigger.type_name()).collect();
    assert_eq!(types, TriggerConfig::TYPES.iter().copied().collect(), "a trigger of each type");
    for schedule in &roster.agents[0].schedules {
        wait_for(schedule.name.as_str(), async || {
            happen(fleet, &schedule.trigger).await;
            let mut events = fleet.subscribe_after(0);
            let fired = fires(&mut events, "a", schedule.name.as_str());
            let fired = tokio::time::timeout(Duration::from_secs(5), fired).await;
            fired.is_ok_and(|fired| fired.job.is_some())
        })
        .await;
    }
}

#[tokio::test]
async fn each_trigger_type_fires_from_the_library() {
    let watched = Watched::new().await;
    let script = Script::of([tasks(&["a"])]);
    let mut agent = watched.home.agent("a");
    agent.max_concurrent = 3;
    for (kind, trigger) in all(&watched) {
        agent = with_schedule(agent, kind, &trigger.to_string(), "x");
    }
    let fleet = watched.home.start(vec![agent], script.registry()).await;
    each_fires(&fleet).await;
    fleet.stop(Stop::Cancel).await.unwrap();
}

#[tokio::test]
async fn each_trigger_type_fires_from_yaml() {
    let watched = Watched::new().await;
    let script = Script::of([tasks(&["a"])]);
    // JSON is valid YAML.
    let schedules: serde_json::Map<String, Value> =
        all(&watched).into_iter().map(|(kind, trigger)| (kind.to_owned(), trigger)).collect();
    let agent = json!({
        "name": "a", "runtime": "command", "command": ["cat"], "instances": {"max_concurrent": 3}, "schedules": schedules,
        // The variable is not set, so that the fleet does not connect to Discord.
        "chat": {"discord": {"bot_token_env": "NO_TOKEN_OF_TEST", "users": ["1"]}},
    });
    let config = watched.home.path().join("cowhand.yaml");
    std::fs::write(&config, json!({"agents": [agent]}).to_string()).unwrap();
    let fleet = Fleet::start(Options {
        agents: AgentSource::Config(config),
        state: StateFolder::at(watched.home.path().join("state")),
        clock: Clock::System,
        program: env!("CARGO_BIN_EXE_cowhand").into(),
        work_sources: SourceRegistry::default(),
        triggers: script.registry(),
        fresh: false,
        node: cowhand::fleet::NodeOptions::default(),
    })
    .await
    .unwrap();
    each_fires(&fleet).await;
    fleet.stop(Stop::Cancel).await.unwrap();
}

/// A strategy needs the context of a fleet, which the test gets through the custom type.
#[tokio::test]
async fn strategy_of_each_trigger_type_keeps_contract() {
    let watched = Watched::new().await;
    let handed: Arc<Mutex<Option<StrategyContext>>> = Arc::default();
    let keep = Arc::clone(&handed);
    let registry = Registry::default().with("script", move |context| {
        *keep.lock().unwrap() = Some(context.clone());
        anyhow::bail!("the test needs only the context")
    });
    let mut agent = watched.home.idle_agent("a");
    for (kind, trigger) in all(&watched) {
        agent = with_schedule(agent, kind, &trigger.to_string(), "x");
    }
    let fleet = watched.home.start(vec![agent], registry).await;
    wait_for("a context", async || handed.lock().unwrap().is_some()).await;
    let context = handed.lock().unwrap().clone().unwrap();
    let (script, wakes) = (Script::default().registry(), Wakes::default());
    for kind in TriggerConfig::TYPES {
        let context = context.of_schedule(id("a", kind)).unwrap();
        assert_trigger_contract(|| strategy(&script, &wakes, &context).unwrap()).await;
    }
    fleet.stop(Stop::Cancel).await.unwrap();
}
