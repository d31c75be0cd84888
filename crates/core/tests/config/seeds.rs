//! The documented examples load exactly as printed.

use super::{fine, load_files, load_text, rendered};
use cowhand_core::interval::Interval;
use cowhand_core::trigger::TriggerConfig;
use cowhand_core::work_source::ConfiguredSource;

const MARKETING: &str = r#"name: marketing-agent
description: "Handles analytics, social monitoring, and reports"
schedules:
  hourly-scan:
    type: interval
    interval: 1h
    prompt: |
      Scan social media channels for product mentions.
      Log any notable conversations to mentions.md.
  daily-analytics:
    type: cron
    cron: "0 9 * * *"
    prompt: |
      Analyze yesterday's site traffic and conversion data.
  weekly-report:
    type: cron
    cron: "0 10 * * 1"
    prompt: |
      Create reports/weekly/{{date}}.md with the full report.
"#;

const DEVOPS: &str = r#"name: devops-agent
description: "Monitors infrastructure and handles deployments"
workspace: infrastructure-repo
repo: company/infrastructure
instances:
  max_concurrent: 2 # Allow 2 concurrent jobs
schedules:
  health-check:
    type: interval
    interval: 5m
    prompt: |
      Run quick health checks on all services.
  security-scan:
    type: cron
    cron: "0 * * * *"
    prompt: Scan for security vulnerabilities in dependencies.
  daily-capacity:
    type: cron
    cron: "0 8 * * *"
    prompt: |
      Put the figures into reports/capacity/{{date}}.md.
  weekly-review:
    type: cron
    cron: "0 10 * * 1"
    prompt: |
      Sum up the week in reports/weekly/{{date}}.md.
  deploy:
    type: webhook
    prompt: |
      A deployment has been triggered via webhook.
"#;

const PROCESSOR: &str = r#"name: data-processor
description: "Processes data from multiple sources"
instances:
  max_concurrent: 3 # Process up to 3 items simultaneously
schedules:
  process-queue:
    type: interval
    interval: 1m
    prompt: "Process the next item from the work queue."
    work_source:
      type: github
      labels:
        ready: "ready"
        in_progress: "processing"
  morning-report:
    type: cron
    expression: "0 9 * * 1-5"  # 9am weekdays
    prompt: "Generate daily report."
  support-response:
    type: chat
    prompt: |
      A user has asked a question in the support channel.
  process-issue:
    type: interval
    interval: 5m
    prompt: |
      Process issue {{issue.number}}: {{issue.title}}
"#;

#[test]
fn schedules() {
    let root = "agents: [{path: m.yaml}, {path: d.yaml}, {path: p.yaml}]\n";
    let files = [("herdctl.yaml", root), ("m.yaml", MARKETING), ("d.yaml", DEVOPS), ("p.yaml", PROCESSOR)];
    let loaded = load_files(&files, &[]);
    fine(&loaded);
    let roster = &loaded.roster;
    let counts: Vec<_> =
        roster.agents.iter().map(|agent| (agent.max_concurrent, agent.schedules.len())).collect();
    assert_eq!(counts, [(1, 3), (2, 5), (3, 4)]);
    let hourly = &roster.agents[0].schedules[0];
    assert_eq!(hourly.name.as_str(), "hourly-scan");
    assert_eq!(hourly.trigger, TriggerConfig::Interval { interval: "1h".parse::<Interval>().unwrap() });
    assert!(hourly.prompt.as_deref().unwrap().ends_with("to mentions.md.\n"));
    let TriggerConfig::Cron { expression, timezone } = &roster.agents[2].schedules[1].trigger else {
        panic!("not a cron")
    };
    assert_eq!(expression.as_str(), "0 9 * * 1-5");
    assert_eq!(timezone.as_ref().unwrap().to_string(), "Europe/Berlin", "the system's");
    assert_eq!(roster.agents[1].directory.to_str(), Some("infrastructure-repo"));
}

const WORK_SOURCES: &str = r#"defaults:
  work_source:
    type: github
    labels:
      ready: "ready"
      in_progress: "in-progress"
agents:
  - name: coder
    work_source:
      type: github
      repo: my-org/my-repo # Agent-specific repo
      # Inherits labels from defaults
  - name: explicit
    work_source:
      type: github
      repo: owner/repo-name # Required: owner/repo format
      labels:
        ready: ready # Label marking issues as available (default: "ready")
        in_progress: agent-working # Label applied when claimed (default: "agent-working")
      exclude_labels: # Labels that disqualify issues (default: [])
        - blocked
        - wip
      cleanup_on_failure: true # Re-add ready label on release (default: true)
      auth:
        token_env: GITHUB_TOKEN # Env var for PAT (default: "GITHUB_TOKEN")
"#;

#[test]
fn work_sources() {
    let loaded = load_text(WORK_SOURCES);
    fine(&loaded);
    let source = |place: usize| loaded.roster.agents[place].work_source.clone().unwrap();
    let ConfiguredSource::Github { repo, labels, exclude_labels, .. } = source(0) else { panic!("github") };
    assert_eq!(repo.as_deref(), Some("my-org/my-repo"));
    assert_eq!(labels.in_progress, "in-progress");
    assert_eq!(exclude_labels, ["blocked", "wip"]);
    let ConfiguredSource::Github { labels, .. } = source(1) else { panic!("github") };
    assert_eq!(labels.in_progress, "agent-working");
}

#[test]
fn a_short_work_source_gets_defaults() {
    let loaded = load_text("agents: [{name: a, work_source: {type: github, repo: o/r}}]");
    fine(&loaded);
    let ConfiguredSource::Github { repo, labels, exclude_labels, cleanup_on_failure, auth, .. } =
        loaded.roster.agents[0].work_source.clone().unwrap()
    else {
        panic!("github")
    };
    assert_eq!(repo.as_deref(), Some("o/r"));
    assert_eq!((labels.ready.as_str(), labels.in_progress.as_str()), ("ready", "agent-working"));
    assert_eq!((exclude_labels.join(" "), cleanup_on_failure), ("blocked wip".to_owned(), true));
    assert_eq!(auth.token_env, None);
}

/// The same lines in YAML and in JSON.
#[test]
fn documented_trigger_lines_are_accepted() {
    let text = r#"agents:
  - name: a
    schedules:
      issues: { "type": "github_issues", "owner": "myorg", "repo": "myrepo", "labels": ["agent"] }
      pulls: { "type": "github_pull_requests", "owner": "myorg", "repo": "myrepo", "state": "open" }
      cron: { "type": "cron", "expression": "0 9 * * MON-FRI" }
      delay: { "type": "delay", "run_at": "2026-04-01T09:00:00Z" }
      life: { "type": "agent_lifecycle", "event": "session_start" }
      after: { "type": "dispatch_result", "source_workflow_id": "3f2504e0-4f89-41d3-9a0c-0305e82c3301", "status": "completed" }
      hook: { "type": "webhook", "secret": "my-hmac-secret" }
      manual: { "type": "manual" }
"#;
    let loaded = load_text(text);
    fine(&loaded);
    assert_eq!(loaded.roster.agents[0].schedules.len(), 8);
    assert_eq!(loaded.warnings(), 1, "an id that nobody has: {}", rendered(&loaded));
    assert!(!loaded.shown.value().to_string().contains("my-hmac-secret"));
}
