//! Prompts are checked when they are loaded, against the variables of their trigger.

use crate::{fine, lines, load_files, load_text};

#[test]
fn unknown_variables_are_errors_at_their_prompt() {
    let loaded = load_text(
        "agents:
  - name: a
    default_prompt: 'Look at {{issue.number}}'
    schedules:
      cron: {type: cron, cron: '@daily', prompt: 'For {{dte}} and {{payload.x}}'}
      default: {type: cron, cron: '@daily'}
      hook: {type: webhook, secret_env: S, prompt: 'Got {{payload.issue.title}}'}
      items: {type: interval, interval: 5m, work_source: {type: github, repo: o/r}, prompt: '{{issue.title}}'}
      broken: {type: cron, cron: 'not cron', prompt: '{{tilte}}'}
",
    );
    let found: Vec<String> =
        lines(&loaded).into_iter().filter(|line| line.contains("unknown variable")).collect();
    let starts: Vec<&str> = found.iter().map(|line| line.split(" in a").next().unwrap()).collect();
    assert_eq!(
        starts,
        [
            "cowhand.yaml:3:21 line 1: unknown variable \"issue.number\"",
            "cowhand.yaml:5:50 line 1: unknown variable \"dte\"",
            "cowhand.yaml:5:50 line 1: unknown variable \"payload.x\"",
            "cowhand.yaml:9:54 line 1: unknown variable \"tilte\"",
        ]
    );
}

#[test]
fn unknown_variables_in_herdctl_prompts_are_warnings() {
    let text = "agents: [{path: a.yaml}]\n";
    let agent =
        "name: a\nschedules: {s: {type: cron, cron: '@daily', prompt: 'Use {{ handlebars }} here'}}\n";
    let loaded = load_files(&[("herdctl.yaml", text), ("a.yaml", agent)], &[]);
    fine(&loaded);
    assert!(
        lines(&loaded).iter().any(|line| line.contains("warning: line 1: unknown variable \"handlebars\""))
    );
}
