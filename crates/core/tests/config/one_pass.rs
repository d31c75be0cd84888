//! One pass finds all mistakes: a mistake of an agent hides no other mistake of the same agent or of another agent.

use super::{lines, load_text};

const ALL_AT_ONCE: &str = "\
agents:
  - name: coder
    descripton: Misspelt.
    max_turns: many
    runtime: codex
    schedules:
      hook: {type: webhook}
      signed: {type: webhook, secret_env: NOT_SET}
      after: {type: dispatch_result, schedule: coder/chek}
      wait: {type: dispatch_result, schedule: builder/nightly, prompt: Go.}
      wrong: {type: cron, cron: '99 * * * *'}
      near: {type: dispatch_result, schedule: wrong}
      pointer: {type: manual, filter: {payload: {sender.login: ann}}}
      never: {type: manual, start_at: '2026-01-02T00:00:00Z', end_at: '2026-01-01T00:00:00Z'}
  - name: builder
    env: {KEY: '${NO_SUCH_VARIABLE}'}
    schedules:
      watch: {type: agent_lifecycle, event: session_end, agent: codr}
  - name: cage
    descripton: Misspelt.
    sandbox: {kind: landlock, network: {hosts: [a.com]}}
    followups: {from: [nobody]}
  - name: builder
    schedules: {watch: {type: agent_lifecycle, event: session_end, agent: nobody}}
";

#[test]
fn all_errors_are_reported_in_one_pass() {
    let found = lines(&load_text(ALL_AT_ONCE)).join("\n");
    let expected = "\
cowhand.yaml:3:5 unknown key `descripton`
cowhand.yaml:4:16 expected a whole number, found `many`
cowhand.yaml:4:16 warning: `max_turns` has no effect for `runtime: codex`: Codex has no limit of turns; `timeout` ends the job
cowhand.yaml:7:7 a webhook needs `secret_env` or `secret`; `allow_unsigned: true` accepts unsigned deliveries
cowhand.yaml:8:7 warning: the environment variable NOT_SET with the secret of this webhook is not set
cowhand.yaml:9:48 there is no schedule `coder/chek`
cowhand.yaml:10:47 there is no schedule `builder/nightly`
cowhand.yaml:11:33 invalid minute \"99\" in cron expression; expected 0-59, lists (1,2), ranges (1-5) or steps (*/5)
cowhand.yaml:13:7 \"sender.login\" is not a JSON pointer; a valid one is /sender/login
cowhand.yaml:14:7 `end_at` (2026-01-01T00:00:00Z) is not after `start_at` (2026-01-02T00:00:00Z), so the schedule can never fire
cowhand.yaml:16:17 the environment variable `NO_SUCH_VARIABLE` is not set
cowhand.yaml:18:65 there is no agent `codr`
cowhand.yaml:20:5 unknown key `descripton`
cowhand.yaml:21:14 `network: {hosts: …}` needs `kind: bubblewrap`: Landlock can restrict ports (`network: {ports: …}`) but not hosts
cowhand.yaml:22:23 there is no agent `nobody`
cowhand.yaml:23:11 the agent `builder` is defined twice; the first is in cowhand.yaml, line 15
cowhand.yaml:24:75 there is no agent `nobody`";
    assert_eq!(found, expected);
}

/// Schedules inherit some keys of their agent, so an error in such a key is also an error of each schedule. Neither
/// this error nor a wrong name hides other errors.
#[test]
fn an_error_in_the_agent_hides_none_in_its_schedules() {
    let schedules = "hook: {type: webhook}, wait: {type: delay}, after: {type: dispatch_result, schedule: hok}, \
                     good: {type: manual}, then: {type: dispatch_result, schedule: good}, self: {type: dispatch_result, schedule: self}";
    for (keys, first) in [
        ("name: a", None),
        ("name: a b", Some("is not a valid name")),
        ("description: x", Some("this agent has no `name`")),
        ("name: '${NO_SUCH}'", Some("`NO_SUCH` is not set")),
        ("name: a, retry: {max_attempts: -1}", Some("-1")),
        ("name: a, timeout: soon", Some("soon")),
        ("name: a, max_turns: many", Some("many")),
        ("name: a, isolation: tree", Some("`tree`")),
        ("name: a, work_source: {type: file, path: .}", Some("`file`")),
    ] {
        let text = format!(
            "agents:\n  - {{runtime: command, command: [sh], {keys}, schedules: {{{schedules}}}}}\n  - {{name: z, followups: {{from: [zz]}}}}"
        );
        let loaded = load_text(&text);
        let found = lines(&loaded);
        for says in first.iter().copied().chain([
            "a webhook needs",
            "a delay needs exactly one of",
            "there is no schedule `hok`",
            "waits for itself",
            "there is no agent `zz`",
        ]) {
            // An agent whose name is not known could be the agent `zz`.
            let is_meant =
                says.ends_with("`zz`") && (keys.contains("description") || keys.contains("NO_SUCH"));
            let count = found.iter().filter(|line| line.contains(says)).count();
            assert_eq!(count, usize::from(!is_meant), "{keys}: {says}: {found:?}");
        }
        assert!(!found.iter().any(|line| line.contains("unnamed")), "{found:?}");
    }
}

/// A wrong key of a work source or of a trigger does not hide the errors of the keys beside it.
#[test]
fn an_error_in_a_section_hides_none_in_the_same_section() {
    let dates = "start_at: '2026-01-02T00:00:00Z', end_at: '2026-01-01T00:00:00Z'";
    for (schedule, expected) in [
        (
            "{type: manual, work_source: {type: github, api_url: 'ftp://x', labels: {ready: x, in_progress: x}}}".to_owned(),
            &["`ftp://x`", "names no repository", "are both `x`"][..],
        ),
        (
            "{type: manual, work_source: {type: github, repo: x, labels: {ready: x, in_progress: x}}}".to_owned(),
            &["`x` is not of the right form", "are both `x`"],
        ),
        ("{type: dispatch_result, schedule: nix, status: fail}".to_owned(), &["`fail`", "there is no schedule `nix`"]),
        ("{type: agent_lifecycle, agent: nix, event: end}".to_owned(), &["`end`", "there is no agent `nix`"]),
        (format!("{{type: cron, cron: x, {dates}}}"), &["cron expression", "is not after `start_at`"]),
        (format!("{{type: crn, cron: x, {dates}}}"), &["`crn`", "cron expression", "is not after"]),
        // With the correct `status`, there may be no cycle.
        ("{type: dispatch_result, status: fail}\n      t: {type: dispatch_result}".to_owned(), &["`fail`"]),
    ] {
        let text = format!(
            "agents:\n  - name: a\n    default_prompt: Go.\n    schedules:\n      s: {schedule}\n"
        );
        let found = lines(&load_text(&text));
        assert_eq!(found.len(), expected.len(), "{schedule}: {found:?}");
        for says in expected {
            assert!(found.iter().any(|line| line.contains(says)), "{schedule}: {says}: {found:?}");
        }
    }
}

/// A reference to an agent or schedule with an error is not an error.
#[test]
fn invalid_agents_and_schedules_are_not_reported_as_missing() {
    let text = "\
agents:
  - {name: broken, max_turns: many, schedules: {s: {type: manual}, bad: {type: cron, cron: x}}}
  - {name: unread, schedules: []}
  - name: coder
    schedules:
      a: {type: dispatch_result, schedule: broken/s}
      b: {type: dispatch_result, schedule: broken/bad}
      c: {type: dispatch_result, schedule: unread/any}
      d: {type: agent_lifecycle, event: session_end, agent: unread}
";
    let loaded = load_text(text);
    assert_eq!(loaded.errors(), 3, "{:?}", lines(&loaded));
    assert!(!lines(&loaded).iter().any(|line| line.contains("there is no")), "{:?}", lines(&loaded));
}

/// Two schedules that listen to all results start each other only if the same outcome starts both.
#[test]
fn schedules_that_start_each_other_are_refused() {
    let cycles = |schedules: &str| {
        let text = format!("agents:\n  - name: a\n    default_prompt: Go.\n    schedules:\n{schedules}");
        let loaded = load_text(&text);
        let found: Vec<String> =
            lines(&loaded).into_iter().filter(|line| line.contains("wait for each other")).collect();
        assert_eq!(found.len(), loaded.errors(), "{:?}", lines(&loaded));
        found.len()
    };
    let one = |name: &str, more: &str| format!("      {name}: {{type: dispatch_result{more}}}\n");
    for (first, second, expected) in [
        ("", "", 1),
        (", status: failed", ", status: failed", 1),
        ("", ", status: failed", 1),
        (", status: failed", ", status: completed", 0),
        (", status: completed", ", status: cancelled", 0),
        ("", ", enabled: false", 0),
        ("", ", schedule: x", 1),
        (", status: failed", ", schedule: x, status: completed", 0),
        (", status: failed", ", schedule: x, status: failed", 1),
        (", status: failed", ", schedule: x", 1),
        // Schedules that name each other form a cycle, whatever their statuses are.
        (", schedule: y, status: failed", ", schedule: x, status: completed", 1),
    ] {
        let both = one("x", first) + &one("y", second);
        assert_eq!(cycles(&both), expected, "{both}");
    }
    // A cycle is also found between schedules that are not neighbours.
    let three =
        one("x", ", status: failed") + &one("y", ", status: completed") + &one("z", ", status: failed");
    assert_eq!(cycles(&three), 1);
}

/// A wrong key hides only the checks that would need it.
#[test]
fn a_wrong_key_hides_no_check_between_other_keys() {
    let others = "budget: {per_job_usd: 5, per_day_usd: 1}, ask_timeout: 5m, sandbox: {kind: landlock, network: {hosts: [a.com]}}";
    let budget = "`per_job_usd` is more than `per_day_usd`";
    let asks = "`ask_timeout` has no effect";
    let hosts = "Landlock can restrict ports";
    for (wrong, expected) in [
        ("max_turns: 5", vec![budget, asks, hosts]),
        ("max_turns: many", vec![budget, asks, hosts]),
        ("env: 3", vec![budget, asks, hosts]),
        ("max_turns: many, env: 3", vec![budget, asks, hosts]),
        ("runtime: clod", vec![budget, asks]),
        ("permission_mode: sometimes", vec![hosts]),
        ("fleet_tools: perhaps, isolation: tree", vec![]),
    ] {
        let found = lines(&load_text(&format!("agents:\n  - {{name: a, {wrong}, {others}}}\n")));
        for says in [budget, asks, hosts] {
            let is_found = found.iter().any(|line| line.contains(says));
            assert_eq!(is_found, expected.contains(&says), "{wrong}: {says}: {found:?}");
        }
    }
}

#[test]
fn a_wrong_schedule_does_not_make_its_work_source_unused() {
    let text = "agents:\n  - {name: a, work_source: {type: github, repo: a/b}, schedules: {s: {type: cron, cron: '99 * * * *'}}}\n";
    let found = lines(&load_text(text));
    assert!(found.len() == 1 && found[0].contains("invalid minute"), "{found:?}");
}
