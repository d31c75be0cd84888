//! Workspaces of jobs, and sessions that jobs share.

use cowhand_core::roster::Agent;
use cowhand_core::session::SessionPolicy;
use cowhand_core::workspace::{Cleanup, IsolationKind};
use jiff::SignedDuration;

use super::{fine, lines, load_text};

#[test]
fn isolation_maps_are_merged_and_plain_kinds_replace_them() {
    let loaded = load_text(
        "
defaults:
  isolation: {kind: worktree, cleanup: never, max_kept: 1GB}
  session: {policy: continue, timeout: 90m}
agents:
  - name: plain
  - {name: own, isolation: {base: main, cleanup: always}, session: {policy: per_item, expires: 1.5h}}
  - {name: word, isolation: clone, session: {policy: fresh}}
  - {name: none, isolation: ~, session: ~}
",
    );
    fine(&loaded);
    let rules: Vec<_> = loaded.roster.agents.iter().map(|agent| agent.isolation.clone()).collect();
    let seen: Vec<_> = rules.iter().map(|rules| (rules.kind, rules.cleanup, rules.max_kept())).collect();
    assert_eq!(
        seen,
        [
            (IsolationKind::Worktree, Cleanup::Never, 1_000_000_000),
            (IsolationKind::Worktree, Cleanup::Always, 1_000_000_000),
            (IsolationKind::Clone, Cleanup::KeepOnFailure, 10_000_000_000),
            (IsolationKind::Shared, Cleanup::KeepOnFailure, 10_000_000_000),
        ]
    );
    assert_eq!(rules[1].base.as_deref(), Some("main"));
    let session = |agent: &Agent| (agent.session.policy, agent.session.expires);
    let sessions: Vec<_> = loaded.roster.agents.iter().map(session).collect();
    let minutes = SignedDuration::from_mins;
    assert_eq!(
        sessions,
        [
            (SessionPolicy::Continue, minutes(90)),
            (SessionPolicy::PerItem, minutes(90)),
            (SessionPolicy::Fresh, minutes(90)),
            (SessionPolicy::Fresh, minutes(24 * 60)),
        ]
    );
}

#[test]
fn a_schedule_can_override_the_isolation_of_its_agent() {
    let loaded = load_text(
        "
agents:
  - name: a
    isolation: {kind: worktree, base: main, max_kept: 1GB}
    schedules:
      as-agent: {type: manual, prompt: x}
      beside: {type: manual, prompt: x, isolation: shared}
      none: {type: manual, prompt: x, isolation: ~}
      partly: {type: manual, prompt: x, isolation: {cleanup: never, max_kept: 2GB}}
  - name: b
    schedules:
      alone: {type: manual, prompt: x, isolation: clone}
",
    );
    fine(&loaded);
    let [a, b] = &loaded.roster.agents[..] else { panic!("two agents") };
    let rules = |agent: &Agent, schedule: Option<&str>| {
        let rules = agent.isolation_of(schedule.map(|name| name.parse().unwrap()).as_ref());
        (rules.kind, rules.base, rules.cleanup)
    };
    let main = || Some("main".to_owned());
    for (agent, schedule, expected) in [
        (a, None, (IsolationKind::Worktree, main(), Cleanup::KeepOnFailure)),
        (a, Some("as-agent"), (IsolationKind::Worktree, main(), Cleanup::KeepOnFailure)),
        (a, Some("long-gone"), (IsolationKind::Worktree, main(), Cleanup::KeepOnFailure)),
        (a, Some("beside"), (IsolationKind::Shared, None, Cleanup::KeepOnFailure)),
        (a, Some("none"), (IsolationKind::Shared, None, Cleanup::KeepOnFailure)),
        (a, Some("partly"), (IsolationKind::Worktree, main(), Cleanup::Never)),
        (b, None, (IsolationKind::Shared, None, Cleanup::KeepOnFailure)),
        (b, Some("alone"), (IsolationKind::Clone, None, Cleanup::KeepOnFailure)),
    ] {
        assert_eq!(rules(agent, schedule), expected, "{} {schedule:?}", agent.name);
    }
    assert_eq!((a.isolations().count(), b.isolations().count()), (3, 1));
    assert_eq!(a.isolations().map(|rules| rules.max_kept()).max(), Some(2_000_000_000));
    let wrong =
        load_text("agents: [{name: a, schedules: {s: {type: manual, prompt: x, isolation: {base: main}}}}]");
    assert!(lines(&wrong)[0].contains("kind"), "{:?}", lines(&wrong));
}

#[test]
fn invalid_isolation_settings_are_refused() {
    for (isolation, says) in [
        ("tree", "`tree`"),
        ("{base: main}", "kind"),
        ("{kind: worktree, branch: always-the-same}", "has no {{job}} in it"),
        ("{kind: worktree, branch: \"a..b/{{job}}\"}", "is no name for a branch"),
        ("{kind: worktree, base: --upload-pack=x}", "--upload-pack=x"),
        ("{kind: worktree, setup: npm ci}", "expected a list, found `npm ci`"),
        ("{kind: worktree, cleanup: sometimes}", "`sometimes` is not one of"),
        ("{kind: worktree, max_kept: much}", "much"),
        ("{kind: worktree, kept: 3}", "kept"),
    ] {
        let loaded = load_text(&format!("agents: [{{name: a, isolation: {isolation}}}]"));
        let lines = lines(&loaded);
        assert_eq!(loaded.errors(), 1, "{isolation}: {lines:?}");
        assert!(lines[0].contains(says), "{isolation}: {lines:?}");
    }
    let command = "agents: [{name: a, runtime: command, command: [x], session: {policy: continue}}]";
    let problems = lines(&load_text(command));
    assert!(problems[0].contains("`session.policy` has no effect for `runtime: command`"), "{problems:?}");
}
