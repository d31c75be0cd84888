//! Workspaces of jobs, and sessions that jobs share.

use cowhand_core::id::ScheduleName;
use cowhand_core::roster::Agent;
use cowhand_core::sandbox::SandboxKind;
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
    let [a, b] = loaded.roster.agents.shared() else { panic!("two agents") };
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
    assert_eq!(a.isolations().map(|(_, rules)| rules.max_kept()).max(), Some(2_000_000_000));
    let wrong =
        load_text("agents: [{name: a, schedules: {s: {type: manual, prompt: x, isolation: {base: main}}}}]");
    assert!(lines(&wrong)[0].contains("kind"), "{:?}", lines(&wrong));
}

/// `worktree` is short for `{kind: worktree}`, also when a map is merged over it.
#[test]
fn a_map_is_merged_over_the_short_form() {
    let loaded = load_text(
        "
defaults: {isolation: worktree, sandbox: bubblewrap, working_directory: sub, trust: {strangers: sandbox, sandbox: landlock}}
agents:
  - name: a
    runtime: command
    command: [sh]
    isolation: {base: main}
    sandbox: {memory: 1GB}
    working_directory: {auto_clone: true}
    trust: {sandbox: {pids: 9}}
    schedules:
      more: {type: manual, isolation: {cleanup: never}, sandbox: {pids: 20}}
      word: {type: manual, isolation: clone, sandbox: landlock}
  - name: b
    runtime: command
    command: [sh]
    isolation: clone
    overrides: {isolation: {base: dev}}
    trust: {min_permission: write, sandbox: ~}
    schedules: {s: {type: manual, trust: {strangers: sandbox, sandbox: {pids: 30}}}}
  - name: c
    runtime: command
    command: [sh]
    sandbox: ~
    docker: {enabled: true, image: node}
    trust: ~
    schedules: {s: {type: manual, sandbox: {pids: 40}}}
",
    );
    fine(&loaded);
    let [a, b, c] = loaded.roster.agents.shared() else { panic!("three agents") };
    let name = |name: &str| Some(name.parse().unwrap());
    let isolation = |agent: &Agent, schedule: Option<ScheduleName>| {
        let rules = agent.isolation_of(schedule.as_ref());
        (rules.kind, rules.base, rules.cleanup)
    };
    let main = || Some("main".to_owned());
    assert_eq!(isolation(a, None), (IsolationKind::Worktree, main(), Cleanup::KeepOnFailure));
    assert_eq!(isolation(a, name("more")), (IsolationKind::Worktree, main(), Cleanup::Never));
    assert_eq!(isolation(a, name("word")), (IsolationKind::Clone, None, Cleanup::KeepOnFailure));
    assert_eq!(isolation(b, None), (IsolationKind::Clone, Some("dev".to_owned()), Cleanup::KeepOnFailure));
    let sandbox = |agent: &Agent, schedule: Option<ScheduleName>, confined| {
        let asked = agent.sandbox(schedule.as_ref(), confined);
        (asked.kind, asked.caps.memory, asked.caps.pids)
    };
    let memory = Some(1_000_000_000);
    assert_eq!(sandbox(a, None, false), (SandboxKind::Bubblewrap, memory, None));
    assert_eq!(sandbox(a, None, true), (SandboxKind::Bubblewrap, memory, Some(9)));
    assert_eq!(sandbox(a, name("more"), false), (SandboxKind::Bubblewrap, memory, Some(20)));
    assert_eq!(sandbox(a, name("word"), false), (SandboxKind::Bubblewrap, memory, None));
    assert_eq!(a.trust.as_ref().unwrap().sandbox.as_ref().unwrap().rules().kind, SandboxKind::Landlock);
    assert_eq!(sandbox(b, name("s"), true), (SandboxKind::Bubblewrap, None, Some(30)));
    assert_eq!(sandbox(c, name("s"), false), (SandboxKind::Docker, None, Some(40)));
    assert!(a.directory.ends_with("sub"), "{}", a.directory.display());
}

/// A wrong word is reported once. A variable without a value is not also reported as a missing `kind`.
#[test]
fn an_invalid_short_form_below_a_map_is_reported_once() {
    for (word, says) in [("tree", "`tree` is not one of"), ("'${NO_SUCH}'", "`NO_SUCH` is not set")] {
        let loaded = load_text(&format!(
            "defaults: {{isolation: {word}}}\nagents: [{{name: a, default_prompt: x, isolation: {{base: main}}}}]"
        ));
        let lines = lines(&loaded);
        assert_eq!(lines.len(), 1, "{word}: {lines:?}");
        assert!(lines[0].contains(says), "{word}: {lines:?}");
    }
}

#[test]
fn invalid_isolation_settings_are_refused() {
    for (isolation, says) in [
        ("tree", "`tree`"),
        ("{base: main}", "kind"),
        ("{kind: worktree, branch: always-the-same}", "has no {{job}} in it"),
        ("{kind: worktree, branch: \"a..b/{{job}}\"}", "is not a valid branch name"),
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
