//! An existing herdctl fleet runs unchanged.

use super::{lines, load_files, rendered};
use cowhand_core::config::LoadedConfig;
use cowhand_core::runtime::Runtime;
use cowhand_core::work_source::ConfiguredSource;

const FLEET: &str = include_str!("herdctl_fleet/herdctl.yaml");
const FULL: &str = include_str!("herdctl_fleet/full.yaml");
const SUB: &str = include_str!("herdctl_fleet/sub.yaml");
const HELPER: &str = "name: helper\nruntime: sdk\n";
const ENV: [(&str, &str); 4] = [
    ("ANTHROPIC_API_KEY", "canary-a"),
    ("GITHUB_TOKEN", "canary-b"),
    ("API_TOKEN", "canary-c"),
    ("HOOK_URL", "https://me:canary-d@example.com/hook"),
];

fn everything(root: &str) -> LoadedConfig {
    let files =
        [(root, FLEET), ("agents/full.yaml", FULL), ("sub/herdctl.yaml", SUB), ("sub/helper.yaml", HELPER)];
    load_files(&files, &ENV)
}

#[test]
fn every_documented_key_is_accepted() {
    let loaded = everything("herdctl.yaml");
    insta::assert_snapshot!(rendered(&loaded));
    assert_eq!(loaded.errors(), 0);
}

#[test]
fn a_herdctl_config_becomes_agents_and_schedules() {
    let loaded = everything("herdctl.yaml");
    let [full, helper] = loaded.roster.agents.shared() else { panic!("{:?}", loaded.roster.agents) };
    assert_eq!((full.name.as_str(), helper.name.as_str()), ("full", "sub.helper"));
    assert_eq!((full.max_concurrent, helper.max_concurrent), (1, 2));
    assert_eq!(full.directory.to_str(), Some("agents/repo"));
    assert_eq!(helper.directory.to_str(), Some("work"), "relative to the file that says so");
    assert_eq!(helper.program.model.as_deref(), Some("haiku"), "overridden for the whole sub-fleet");
    assert_eq!((full.runtime(), full.max_turns), (Runtime::Claude, Some(10)), "`runtime: cli`");
    assert_eq!(helper.runtime(), Runtime::Claude, "`runtime: sdk`");
    assert_eq!(full.container, None, "it is not enabled");
    let docker = &loaded.shown.value()["agents"][0]["docker"];
    assert_eq!((&docker["image"], &docker["memory"]), (&"node:22".into(), &"512m".into()));
    let enabled: Vec<_> = full.schedules.iter().map(|one| (one.name.as_str(), one.enabled)).collect();
    assert_eq!(
        enabled,
        [
            ("check", true),
            ("nightly", false),
            ("weekly", true),
            ("deploy", true),
            ("talk", true),
            ("chat", true)
        ]
    );
}

#[test]
fn a_work_source_inherits_key_by_key() {
    let loaded = everything("herdctl.yaml");
    let Some(ConfiguredSource::Github { repo, labels, exclude_labels, .. }) =
        loaded.roster.agents[0].schedules[0].work_source.as_deref()
    else {
        panic!("no work source")
    };
    assert_eq!(repo.as_deref(), Some("my-org/my-repo"), "from the agent");
    assert_eq!(labels.ready, "go", "from the schedule");
    assert_eq!(labels.in_progress, "in-progress", "from the defaults");
    assert_eq!(exclude_labels, &["blocked"]);
}

#[test]
fn mistakes_that_herdctl_accepts_are_errors_in_cowhand_yaml() {
    let loaded = everything("cowhand.yaml");
    let errors: Vec<String> = lines(&loaded).into_iter().filter(|line| !line.contains("warning: ")).collect();
    insta::assert_snapshot!(errors.join("\n"));
}

#[test]
fn mistakes_that_herdctl_refuses_are_errors() {
    let text = "agent: []\nfleet: {nam: x}\nagents: [{path: a.yaml}]\nweb: {prot: 1}\n";
    let agent = "name: a\npermissions: {mode: plan}\ndocker: {network: host, memry: 1g}\n";
    let loaded = load_files(&[("herdctl.yaml", text), ("a.yaml", agent)], &[]);
    insta::assert_snapshot!(lines(&loaded).join("\n"));
}

#[test]
fn cron_takes_precedence_over_expression() {
    let agents = [
        "name: a\nschedules: {s: {type: cron, expression: '@weekly', cron: '@daily'}}",
        "name: b\nschedules: {s: {type: cron, cron: '@daily', expression: '@weekly'}}",
    ];
    let root = "agents: [{path: a.yaml}, {path: b.yaml}]";
    let loaded = load_files(&[("herdctl.yaml", root), ("a.yaml", agents[0]), ("b.yaml", agents[1])], &[]);
    assert_eq!((loaded.errors(), loaded.warnings()), (0, 2), "{}", rendered(&loaded));
    for agent in &loaded.roster.agents {
        assert!(format!("{:?}", agent.schedules[0].trigger).contains("@daily"), "{}", agent.name);
    }
}

#[test]
fn no_secret_is_shown() {
    let shown = everything("herdctl.yaml").shown.value().to_string();
    assert!(!shown.contains("canary"), "{shown}");
    assert!(shown.contains("\"***\""));
    assert!(shown.contains("https://***@example.com/hook"), "{shown}");
}
