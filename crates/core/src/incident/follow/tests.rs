//! Tables of events, and of the notifications that follow from them.

use serde_json::json;

use super::*;
use crate::notification::{NotificationSettings, NotificationTarget, TargetAction};
use crate::roster::{Agent, Schedule};
use crate::trigger::TriggerConfig;

fn at(second: i64) -> Timestamp {
    Timestamp::from_second(1_767_600_000 + second).unwrap()
}

fn rules(json: serde_json::Value) -> Vec<NotifyRule> {
    serde_json::from_value(json).unwrap()
}

/// A fleet with an agent `a`, its schedules `s` and `t`, and these rules of the root file.
fn fleet(root: serde_json::Value) -> Roster {
    let name = "a".parse().unwrap();
    let schedule = |own: &str| Schedule::new(&name, own.parse().unwrap(), TriggerConfig::Manual {});
    let schedules = vec![schedule("s"), schedule("t")];
    let agent = Agent { schedules, ..Agent::new(name.clone()) };
    let action = TargetAction::Command { command: vec!["x".to_owned()], directory: ".".into() };
    let target = NotificationTarget { action, timeout: std::time::Duration::from_secs(1) };
    let targets = [("ops".to_owned(), target.clone()), ("pager".to_owned(), target)].into_iter().collect();
    let notifications =
        NotificationSettings { targets, rules: rules(root), ..NotificationSettings::default() };
    Roster { notifications, ..Roster::of(vec![agent]) }
}

/// One event at second `seq`.
fn event(seq: i64, subject: &str, fact: serde_json::Value) -> Event {
    let mut names = subject.split('/').filter(|name| !name.is_empty());
    Event {
        seq,
        at: at(seq),
        agent: names.next().map(|name| name.parse().unwrap()),
        schedule: names.next().map(|name| name.parse().unwrap()),
        job: Some("job-2026-01-05-aaaaaa".parse().unwrap()),
        by: None,
        fact: serde_json::from_value(fact).unwrap(),
        job_record: None,
        original_job_record: None,
    }
}

fn failed() -> serde_json::Value {
    json!({"type": "job:failed", "exit_reason": "error", "duration_seconds": 1, "kind": "exit", "message": "exit code 1"})
}

fn completed() -> serde_json::Value {
    json!({"type": "job:completed", "exit_reason": "success", "duration_seconds": 1})
}

/// Returns the notifications as `TARGET KIND TITLE`.
fn sent(steps: &[IncidentStep]) -> Vec<String> {
    let all = steps.iter().flat_map(|step| &step.notifications);
    all.map(|planned| format!("{} {} {}", planned.target, planned.message.kind, planned.message.title))
        .collect()
}

/// Applies events with their subjects, one each second, and returns what is sent.
fn follow(roster: &Roster, events: &[(&str, serde_json::Value)]) -> Vec<String> {
    let mut open = OpenIncidents::default();
    let steps = (1..)
        .zip(events)
        .flat_map(|(seq, (subject, fact))| open.apply(&event(seq, subject, fact.clone()), roster, at(seq)));
    sent(&steps.collect::<Vec<_>>())
}

#[test]
fn equal_incidents_are_one_message_until_they_end() {
    let roster = fleet(json!([{"to": ["ops"]}]));
    let events = [
        ("a/s", failed()),
        ("a/s", failed()),
        ("a/t", failed()),
        ("a", failed()),
        ("a/s", failed()),
        ("a/s", completed()),
        ("a/s", completed()),
        ("a/s", failed()),
    ];
    assert_eq!(
        follow(&roster, &events),
        [
            "ops opened a/s failed",
            "ops opened a/t failed",
            "ops opened a failed",
            "ops ended a/s recovered after 3 failures",
            "ops opened a/s failed",
        ]
    );
}

/// An event with its subject.
type Happening = (&'static str, serde_json::Value);

/// Checks what is sent for an incident that begins with one event, and ends with another or at a time.
fn assert_opens_and_ends(roster: &Roster, begin: Happening, end: Option<Happening>, expected: [&str; 2]) {
    let mut open = OpenIncidents::default();
    let mut steps = open.apply(&event(1, begin.0, begin.1), roster, at(1));
    steps.extend(open.at_time(at(2)));
    match end {
        Some((subject, fact)) => steps.extend(open.apply(&event(3, subject, fact), roster, at(3))),
        None => steps.extend(open.at_time(at(1_000))),
    }
    assert_eq!(sent(&steps), expected);
    assert_eq!(open, OpenIncidents::default());
}

#[test]
fn each_kind_opens_and_ends() {
    let roster = fleet(json!([{"to": ["ops"]}]));
    let ask = "job-2026-01-05-aaaaaa.1";
    let budget = |percent: u32| {
        json!({"type": "budget:reached", "scope": "agent", "window": "day", "unit": "usd", "percent": percent,
            "limit": 10_000_000, "spent": 8_000_000, "until": at(500)})
    };
    let parked = json!({"type": "job:parked", "attempt": 1, "provider": "claude", "until": at(900), "message": "limit"});
    for (begin, end, expected) in [
        (
            ("a", json!({"type": "ask:made", "ask": ask, "about": "Bash"})),
            Some(("a", json!({"type": "ask:answered", "ask": ask, "status": "allowed"}))),
            ["ops opened a waits for an answer", "ops ended The ask of a was answered"],
        ),
        (
            ("a", json!({"type": "ask:made", "ask": ask, "about": "Bash"})),
            Some(("a", json!({"type": "ask:expired", "ask": ask, "status": "expired"}))),
            ["ops opened a waits for an answer", "ops ended The ask of a ended without an answer"],
        ),
        (
            ("a/s", json!({"type": "schedule:paused", "reason": "r", "until": at(50)})),
            Some(("a/s", json!({"type": "schedule:resumed"}))),
            ["ops opened a/s has paused itself", "ops ended a/s continues"],
        ),
        (
            ("a/s", json!({"type": "schedule:error", "reason": "401"})),
            Some(("a/s", json!({"type": "schedule:armed"}))),
            ["ops opened The trigger of a/s cannot continue", "ops ended a/s continues"],
        ),
        (
            ("a/s", parked.clone()),
            Some(("", json!({"type": "provider:unparked", "provider": "claude"}))),
            [
                "ops opened The provider claude has reached a usage limit",
                "ops ended The provider claude can be used again",
            ],
        ),
        (
            ("a/s", parked),
            None,
            [
                "ops opened The provider claude has reached a usage limit",
                "ops ended The provider claude can be used again",
            ],
        ),
        (
            ("a/s", json!({"type": "work:given_up", "item": "files-a.md", "failures": 3, "message": "m"})),
            Some(("", json!({"type": "work:reopened", "item": "files-a.md"}))),
            [
                "ops opened The work item files-a.md was given up",
                "ops ended The work item files-a.md is no longer given up",
            ],
        ),
        (
            ("", json!({"type": "fleet:config_refused"})),
            Some(("", json!({"type": "fleet:reloaded", "agents": 1, "schedules": 1}))),
            ["ops opened The config has errors and was refused", "ops ended The config was accepted"],
        ),
        (
            ("a", budget(80)),
            None,
            [
                "ops opened The daily budget of a in dollars is spent to 80 %",
                "ops ended A new period began for the daily budget of a in dollars",
            ],
        ),
        (
            ("", budget(100)),
            Some((
                "",
                json!({"type": "budget:relieved", "scope": "fleet", "window": "day", "unit": "usd", "limit": 1, "spent": 0}),
            )),
            [
                "ops opened The daily budget of the fleet in dollars is spent",
                "ops ended The daily budget of the fleet in dollars has room again",
            ],
        ),
        (
            ("", json!({"type": "node:lost", "node": "n1"})),
            Some(("", json!({"type": "node:returned", "node": "n1"}))),
            ["ops opened The node n1 is lost", "ops ended The node n1 runs again"],
        ),
        (
            ("", json!({"type": "disk:low", "node": "n1", "free": 5_000_000, "limit": 1_000_000_000})),
            Some((
                "",
                json!({"type": "disk:freed", "node": "n1", "free": 2_000_000_000, "limit": 1_000_000_000}),
            )),
            [
                "ops opened The disk of the node n1 has little free space",
                "ops ended The disk of the node n1 has enough free space again",
            ],
        ),
    ] {
        assert_opens_and_ends(&roster, begin, end, expected);
    }
}

#[test]
fn a_spent_budget_replaces_the_warning() {
    let roster = fleet(json!([{"to": ["ops"]}]));
    let budget = |percent: u32| {
        json!({"type": "budget:reached", "scope": "fleet", "window": "month", "unit": "tokens", "percent": percent,
            "limit": 10, "spent": 10, "until": at(500)})
    };
    assert_eq!(
        follow(&roster, &[("", budget(80)), ("", budget(100))]),
        [
            "ops opened The monthly budget of the fleet in tokens is spent to 80 %",
            "ops opened The monthly budget of the fleet in tokens is spent",
        ]
    );
}

#[test]
fn rules_of_a_schedule_replace_those_of_its_agent_and_those_of_the_root_file_always_apply() {
    let mut roster = fleet(json!([{"to": ["ops"], "severity": "critical"}]));
    let mut agent = Agent::clone(roster.agent(&"a".parse().unwrap()).unwrap());
    agent.notify.rules = rules(json!([{"to": ["pager"], "ended": false}]));
    agent.schedules[1].notify = Some(Box::default());
    roster.agents = vec![agent].into();
    let error = |reason: &str| json!({"type": "schedule:error", "reason": reason});
    let events = [
        ("a/s", failed()),
        ("a/t", failed()),
        ("a/t", error("x")),
        ("a/s", completed()),
        ("other", failed()),
        ("", json!({"type": "node:lost", "node": "n"})),
    ];
    assert_eq!(
        follow(&roster, &events),
        [
            "pager opened a/s failed",
            "ops opened The trigger of a/t cannot continue",
            "ops opened The node n is lost",
        ]
    );
}

#[test]
fn reminders_tell_whether_something_has_happened() {
    let roster = fleet(json!([{"to": ["ops"], "remind": "1m"}, {"to": ["pager"]}]));
    let mut open = OpenIncidents::default();
    open.apply(&event(1, "a/s", failed()), &roster, at(0));
    let incident_next = |open: &OpenIncidents| open.0[0].next_at();
    assert_eq!(incident_next(&open), Some(at(60)));
    assert_eq!(sent(&open.at_time(at(59))), Vec::<String>::new());
    assert_eq!(sent(&open.at_time(at(61))), ["ops reminder Still open: a/s failed"]);
    assert_eq!(incident_next(&open), Some(at(121)), "a late reminder is not followed by another at once");
    open.apply(&event(2, "a/s", failed()), &roster, at(100));
    assert_eq!(sent(&open.at_time(at(130))), ["ops update a/s failed (2 times)"]);
    assert_eq!(sent(&open.at_time(at(190))), ["ops reminder Still open: a/s failed (2 times)"]);
    let ended = open.apply(&event(3, "a/s", completed()), &roster, at(191));
    assert_eq!(
        sent(&ended),
        ["ops ended a/s recovered after 2 failures", "pager ended a/s recovered after 2 failures"]
    );
    assert_eq!(sent(&open.at_time(at(900))), Vec::<String>::new());
}

#[test]
fn incidents_of_removed_schedules_end() {
    let roster = fleet(json!([{"to": ["ops"]}]));
    let mut open = OpenIncidents::default();
    open.apply(&event(1, "a/s", failed()), &roster, at(0));
    open.apply(&event(2, "a", failed()), &roster, at(0));
    let mut smaller = roster.clone();
    let agent = Agent { schedules: Vec::new(), ..Agent::clone(roster.agent(&"a".parse().unwrap()).unwrap()) };
    smaller.agents = vec![agent].into();
    let reloaded = event(3, "", json!({"type": "fleet:reloaded", "agents": 1, "schedules": 0}));
    assert_eq!(
        sent(&open.apply(&reloaded, &smaller, at(3))),
        ["ops ended Over: a/s failed; it is no longer in the config"]
    );
    let empty = Roster { agents: Vec::new().into(), ..roster };
    assert_eq!(
        sent(&open.at_start(&empty, at(4))),
        ["ops ended Over: a failed; it is no longer in the config"]
    );
}

#[test]
fn a_limit_that_has_already_ended_is_not_reported() {
    let roster = fleet(json!([{"to": ["ops"]}]));
    let parked =
        json!({"type": "job:parked", "attempt": 1, "provider": "claude", "until": at(1), "message": "limit"});
    assert_eq!(follow(&roster, &[("a/s", parked)]), Vec::<String>::new());
}
