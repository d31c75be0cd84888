//! Every mistake is found at its own position, and nothing else is reported.

use std::fmt::Write as _;

use cowhand_core::trigger::TriggerConfig;

use super::{lines, load_files, load_text, rendered};

/// Twelve kinds of mistakes, each in a different agent of fifty: the number of the agent, and its additional lines.
const MISTAKES: [(usize, &str); 12] = [
    (3, "    descripton: Says hello.\n"),
    (7, "    max_turns: many\n"),
    (11, "    permission_mode: acceptEdit\n"),
    (15, "    instances: {max_concurrent: 0}\n"),
    (18, "    schedules:\n      weekly: {type: crno, cron: \"@weekly\"}\n"),
    (21, "    schedules:\n      nightly: {type: cron, timezone: UTC}\n"),
    (25, "    schedules:\n      often: {type: interval, interval: 5 minutes}\n"),
    (29, "    schedules:\n      noon:\n        type: cron\n        cron: 0 25 * * *\n"),
    (33, "    schedules:\n      noon: {type: cron, cron: '@daily', timezone: Europe/Berln}\n"),
    (38, "    description: Reports to ${TEAM_NAME} and ${HOME}.\n"),
    (42, "    model: opus\n    model: sonnet\n"),
    (47, "    schedules:\n      after: {type: dispatch_result, schedule: agent-4/chek}\n"),
];

fn fifty_agents(mistakes: &[(usize, &str)]) -> String {
    let mut text = String::from("fleet: {name: fifty}\nagents:\n");
    for number in 0..50 {
        write!(text, "  - name: agent-{number}\n    system_prompt: Be brief.\n").unwrap();
        match mistakes.iter().find(|(agent, _)| *agent == number) {
            Some((_, lines)) => text += lines,
            None => text += "    schedules:\n      check: {type: interval, interval: 5m, prompt: Check.}\n",
        }
    }
    text
}

#[test]
fn twelve_mistakes_in_fifty_agents() {
    let text = fifty_agents(&MISTAKES);
    let loaded = load_files(&[("cowhand.yaml", &text)], &[("HOME", "/home/me")]);
    insta::assert_snapshot!(without_trigger_types(&rendered(&loaded)));
    assert_eq!(loaded.errors(), 12);
}

#[test]
fn fifty_agents_without_mistakes_are_accepted() {
    let loaded = load_text(&fifty_agents(&[]));
    assert_eq!(rendered(&loaded), "\nok: 50 agents, 50 schedules");
}

#[test]
fn sandboxes() {
    let problems = |agent: &str| {
        let command = "runtime: command, command: [true], working_directory: desk";
        let loaded = load_text(&format!("agents:\n  - {{name: a, {command}, {agent}}}\n"));
        (loaded.errors(), lines(&loaded).join("\n"))
    };
    let schedule = |sandbox: &str| {
        format!("schedules: {{s: {{type: interval, interval: 1h, prompt: x, sandbox: {sandbox}}}}}")
    };
    for (agent, errors, word) in [
        ("sandbox: landlock".to_owned(), 0, ""),
        ("sandbox: {kind: landlock, network: off}".to_owned(), 0, ""),
        (
            "sandbox: {kind: landlock, network: {ports: [443, 53]}, memory: 1GB, pids: 64, cpu: 0.5}"
                .to_owned(),
            0,
            "",
        ),
        ("sandbox: {kind: bubblewrap, network: {hosts: ['*.example.com', 10.0.0.7:80]}}".to_owned(), 0, ""),
        (
            "sandbox: {kind: landlock, network: {hosts: [a.com]}}".to_owned(),
            1,
            "Landlock can restrict ports (`network: {ports: …}`) but not hosts",
        ),
        ("sandbox: {kind: bubblewrap, network: {ports: [443]}}".to_owned(), 1, "list the hosts"),
        ("sandbox: {kind: bubblewrap, network: {}}".to_owned(), 1, "either `ports`"),
        (
            "sandbox: {kind: bubblewrap, network: {hosts: [a.com], ports: [443]}}".to_owned(),
            1,
            "either `ports`",
        ),
        ("sandbox: {kind: bubblewrap, network: {hosts: ['https://a.com']}}".to_owned(), 1, "is not a host"),
        ("sandbox: {kind: landlock, credentials: outside}".to_owned(), 1, "needs `kind: bubblewrap`"),
        ("sandbox: {kind: landlock, pids: 1}".to_owned(), 1, ""),
        ("sandbox: {kind: landlock, memory: lots}".to_owned(), 1, ""),
        ("sandbox: {kind: landlock, writes: [/x]}".to_owned(), 1, "unknown key"),
        ("sandbox: landlok".to_owned(), 1, "landlok"),
        ("sandbox: docker".to_owned(), 1, "`docker` needs the image of its container"),
        ("sandbox: {kind: docker, image: 'node:22'}".to_owned(), 0, ""),
        ("sandbox: {kind: docker, image: ''}".to_owned(), 1, ""),
        (
            "sandbox: {kind: docker, image: a, socket: run/engine.sock}".to_owned(),
            1,
            "`socket` has to be the absolute path of a Unix socket, not run/engine.sock",
        ),
        ("sandbox: {kind: docker, image: a, socket: 'unix:///run/engine.sock'}".to_owned(), 0, ""),
        // All mistakes of one sandbox are reported at once.
        (
            "sandbox: {kind: docker, memory: 1KB, write: [/], network: {hosts: [a.com]}, credentials: outside, socket: x}"
                .to_owned(),
            6,
            "so little memory",
        ),
        ("sandbox: {kind: none, network: off, write: [x]}".to_owned(), 2, "enforces only caps"),
        (
            "sandbox: {kind: docker, image: a, network: {hosts: [a.com]}}".to_owned(),
            1,
            "needs the proxy of `kind: bubblewrap`",
        ),
        // Without `image`, the key `docker` means herdctl's default image.
        ("docker: {enabled: true}".to_owned(), 0, ""),
        (schedule("landlock"), 0, ""),
        (
            schedule("{kind: landlock, network: {hosts: [a.com]}}"),
            1,
            "Landlock can restrict ports (`network: {ports: …}`) but not hosts",
        ),
        // Each of the two sandboxes is valid alone, but not both together.
        (
            format!("sandbox: {{kind: landlock, network: {{ports: [443]}}}}, {}", schedule("bubblewrap")),
            1,
            "list the hosts",
        ),
    ] {
        let (count, text) = problems(&agent);
        assert_eq!(count, errors, "{agent}: {text}");
        assert!(text.contains(word), "{agent}: {text}");
        assert!(!word.is_empty() || errors > 0 || text.is_empty(), "{agent}: {text}");
    }
    // This sandbox has no network, so the agent cannot reach its model.
    let loaded = load_text("agents:\n  - {name: a, sandbox: landlock}\n");
    assert_eq!(loaded.errors(), 0);
    assert!(lines(&loaded).join("\n").contains("cannot reach its model"), "{:?}", lines(&loaded));
}

#[test]
fn invalid_keys_of_hooks_are_refused() {
    let problems = |hook: &str| {
        let hook = format!("hooks: {{after_run: [{{{hook}}}]}}");
        load_text(&format!("agents:\n  - name: a\n    {hook}\n")).errors()
    };
    let url = "type: webhook, url: 'https://example.com'";
    for (more, expected) in [
        ("", 0),
        (", retries: 10, allow_private: true, secret_env: A_NAME, timeout: 1, method: PUT", 0),
        (", retries: 11", 1),
        (", retries: often", 1),
        (", secret: ''", 1),
        (", secret_env: ''", 1),
        (", allow_private: maybe", 1),
        (", on_events: [finished]", 1),
        (", timeout: 0", 1),
    ] {
        assert_eq!(problems(&format!("{url}{more}")), expected, "{more}");
    }
}

/// The remaining mistakes: a file, and every line of its report.
#[test]
fn each_mistake_is_reported_with_its_position_and_help() {
    let mut report = String::new();
    for (case, text) in [wrong_forms(), wrong_values()].concat() {
        let loaded = load_text(&text);
        writeln!(report, "{case}").unwrap();
        for (line, problem) in lines(&loaded).iter().zip(&loaded.problems) {
            writeln!(report, "  {line} [{}] {}", problem.key, problem.help.as_deref().unwrap_or("")).unwrap();
        }
    }
    insta::assert_snapshot!(without_trigger_types(&report));
}

/// Replaces the list of all trigger types in a message, so that a new type does not change the snapshots.
fn without_trigger_types(report: &str) -> String {
    let quoted: Vec<String> = TriggerConfig::TYPES.iter().map(|name| format!("`{name}`")).collect();
    let (last, others) = quoted.split_last().unwrap();
    let types = format!("{} or {last}", others.join(", "));
    assert!(report.contains(&types), "a message lists {types}");
    report.replace(&types, "(all trigger types)")
}

pub(super) fn agent(lines: &str) -> String {
    format!("agents:\n  - name: a\n    {}\n", lines.replace('\n', "\n    "))
}

pub(super) fn schedule(line: &str) -> String {
    agent(&format!("schedules:\n  s: {line}"))
}

fn wrong_forms() -> Vec<(&'static str, String)> {
    vec![
        ("a list for a map", "fleet: []".to_owned()),
        ("a map for a list", "agents: {name: a}".to_owned()),
        ("text for a map", "defaults: none".to_owned()),
        ("the root is a list", "- name: a".to_owned()),
        ("the root is text", "hello".to_owned()),
        ("not YAML", "agents: [".to_owned()),
        ("a tab", "agents:\n\t- name: a".to_owned()),
        ("two documents", "fleet: {}\n---\nfleet: {}".to_owned()),
        ("a key that is a list", "? [a]\n: b".to_owned()),
        ("a tag of someone else", "fleet: !include x.yaml".to_owned()),
        ("an unknown alias", "fleet: *nobody".to_owned()),
        ("a merge of text", "fleet: {<<: text}".to_owned()),
        ("no name", "agents: [{description: x}]".to_owned()),
        ("a bad name", "agents: [{name: a.b}]".to_owned()),
        ("the same name twice", "agents: [{name: a}, {name: a}]".to_owned()),
        ("beside a path", "agents: [{path: a.yaml, model: opus}]".to_owned()),
        ("a fleet without a path", "fleets: [{name: x}]".to_owned()),
        ("an empty item", agent("tools: [Read, ]\ndenied_tools: [~]")),
        ("a number in quotes", agent("max_turns: \"5\"")),
        ("too large", agent("max_turns: 4294967296")),
        ("a truth in words", "web: {enabled: yes}".to_owned()),
        ("a wrong port", "web: {port: 70000}".to_owned()),
        ("a wrong repo", agent("work_source: {type: github, repo: foo}")),
        ("an app without its id", agent("work_source: {type: github, auth: {app: {private_key_env: KEY}}}")),
        ("a path or a map", agent("working_directory: [a]")),
        ("a map without its key", agent("working_directory: {auto_clone: true}")),
        ("two names of one key", schedule("{type: cron, cron: '@daily', expression: '@daily'}")),
        ("no type", schedule("{prompt: x}")),
        ("a type that is a map", schedule("{type: {a: b}}")),
        ("a schedule that is text", schedule("daily")),
        ("of another type", schedule("{type: cron, cron: '@daily', interval: 5m}")),
        ("a delay without a time", schedule("{type: delay}")),
        ("a webhook without a secret", schedule("{type: webhook}")),
        ("a bad time", schedule("{type: delay, run_at: tomorrow}")),
        ("a bad date", schedule("{type: manual, exclude_dates: [2026-02-30]}")),
        ("bad hours", schedule("{type: manual, active_hours: {start: 25:00, end: 9}}")),
    ]
}

fn wrong_values() -> Vec<(&'static str, String)> {
    vec![
        ("half of the hours", schedule("{type: manual, active_hours: {start: 09:00}}")),
        ("too much jitter", schedule("{type: interval, interval: 5m, jitter: 11}")),
        ("a bad pattern", schedule("{type: chat, pattern: '['}")),
        ("a bad pattern in a list", schedule("{type: chat, patterns: [ok, '(']}")),
        ("a chat schedule without a chat", schedule("{type: chat, platform: discord}")),
        (
            "a chat schedule with a work source",
            agent(
                "chat: {slack: {everyone: true, channels: [{id: C1}]}}\nschedules: {s: {type: chat, work_source: {type: github, repo: o/r}}}",
            ),
        ),
        ("a rate without a unit", agent("chat: {slack: {everyone: true, rate: {messages: 5, per: 10}}}")),
        ("a bad presence", agent("chat: {discord: {bot_token_env: T, presence: {activity_type: walking}}}")),
        ("a chat for nobody", agent("chat: {slack: {channels: [{id: C1}]}}")),
        ("a bad id", schedule("{type: dispatch_result, source_workflow_id: x}")),
        ("a bad filter", schedule("{type: manual, filter: {labels: bug, title: '(', lables: [x]}}")),
        ("a filter without a pointer", schedule("{type: manual, filter: {payload: {sender.login: x}}}")),
        ("a secret that is not set", schedule("{type: webhook, secret_env: 'NOT_SET, HOME'}")),
        ("a webhook whose secret has no name", schedule("{type: webhook, secret_env: ' , '}")),
        ("a custom trigger without a name", schedule("{type: custom, with: {a: 1}}")),
        ("waits for itself", schedule("{type: dispatch_result, schedule: s}")),
        ("an unknown agent", schedule("{type: agent_lifecycle, event: session_end, agent: b}")),
        ("an unknown hook", agent("hooks: {after_run: [{type: shel, command: x}]}")),
        ("a hook without its key", agent("hooks: {after_run: [{type: webhook}]}")),
        ("not a web address", agent("hooks: {on_error: [{type: webhook, url: example.com}]}")),
        ("a bad timeout", agent("timeout: 1h30m")),
        ("no attempts", agent("retry: {max_attempts: 0, backof: 5s}")),
        (
            "a server without a port",
            "server: {listen: localhost, allowed_hosts: ['https://x'], tls: yes}".to_owned(),
        ),
        ("a short lease", "store: postgres://h/d\nleases: {length: 2s, max_pause: long}".to_owned()),
        ("a lease of a wrong length", "store: postgres://h/d\nleases: {length: 2h}".to_owned()),
        ("an unknown action for lost leases", agent("on_lost_lease: stop")),
        ("half of tls", "server: {tls: {certificate: a.pem, keys: a.key}}".to_owned()),
        ("traces for a name", "traces: {endpoint: collector, header: {a: b}}".to_owned()),
        (
            "traces with a key in the address",
            "traces: {endpoint: 'http://collector:4318/?key=canary'}".to_owned(),
        ),
        ("a header that cannot be", "traces: {headers: {'x key': canary}}".to_owned()),
        ("a server that is an address", "server: 127.0.0.1:3232".to_owned()),
        ("a retention that is a number", "retention: 30".to_owned()),
        ("retention of nothing", agent("retention: {max_jobs_per_agent: 0, max_age: 0d, max_bytes: 0}")),
        (
            "retention below nothing",
            agent("retention: {max_jobs_per_agent: -1, max_age: -1d, max_bytes: -1}"),
        ),
        (
            "retention in odd words",
            "defaults: {retention: {max_age: a week, max_bytes: 10 apples}}".to_owned(),
        ),
        ("a size like a float", "retention: {max_bytes: 1e9}".to_owned()),
        ("prices that are a list", "prices: [1]".to_owned()),
        ("a price without its output", "prices: {gpt-9: {input: 1}}".to_owned()),
        (
            "prices below nothing",
            "prices: {gpt-9: {input: -1, cached_input: x, output: 2, outptu: 3}}".to_owned(),
        ),
        (
            "keys that Codex has no use for",
            agent(
                "runtime: codex\nmax_turns: 3\nsession: {max_turns: 3}\nallowed_tools: [Bash]\nplugins: [a]",
            ),
        ),
        (
            "keys that Gemini has no use for",
            agent("runtime: gemini\nsetting_sources: [user]\nmax_turns: 3\npartial_messages: true"),
        ),
        ("keys that OpenCode has no use for", agent("runtime: opencode\nplugins: [a]\nmodel: p/m")),
        (
            "keys that a command has no use for",
            agent("runtime: command\ncommand: [sh]\nmodel: opus\nsystem_prompt: Hi."),
        ),
        ("permissions that nobody keeps", agent("permissions: {allow: [Read]}")),
        (
            "permissions that mean nothing",
            agent(
                "permission_mode: ask\nask_timeout: 0s\npermissions: {allow: ['Bash(a && b)', 'Read(x)'], denny: [x]}",
            ),
        ),
        ("a way around permissions", agent("permission_mode: ask\nallowed_tools: [Bash]")),
        (
            "the name of the fleet's own MCP server",
            agent("followups: {max: 3}\nmcp_servers:\n  files: {command: serve}\n  cowhand: {command: mine}"),
        ),
        ("follow-ups of nobody", agent("followups: {min_interval: 5m}")),
        ("follow-ups from an agent that is not there", agent("followups: {from: [coder, plannr]}")),
        ("the same name where there is none", agent("mcp_servers: {cowhand: {command: mine}}")),
        ("a huge size", "retention: {max_bytes: 99999999999999999999GB, max_byte: 1}".to_owned()),
        ("an empty command", agent("runtime: command\ncommand: []")),
        ("a bad schedule name", agent("schedules: {'..': {type: manual}}")),
        ("a variable without quotes", agent("instances: {max_concurrent: ${N}}")),
        ("a variable that looks odd", agent("description: ${no-name} $${HOME}")),
    ]
}

#[test]
fn a_secret_stays_out_of_the_report() {
    let text = "agents:
  - name: a
    max_turns: ${MY_TOKEN}
    timeout: ${MY_TOKEN}
    permission_mode: ${MY_TOKEN}
    session: ${MY_TOKEN}
    working_directory: [\"${MY_TOKEN}\"]
    schedules: {s: {type: '${MY_TOKEN}'}}
  - name: b
    schedules:
      s: {type: dispatch_result, schedule: '${MY_TOKEN}'}
      t: {type: agent_lifecycle, event: session_end, agent: '${MY_TOKEN}'}
";
    let loaded = load_files(&[("cowhand.yaml", text)], &[("MY_TOKEN", "canary")]);
    assert_eq!(loaded.errors(), 8, "{}", rendered(&loaded));
    assert!(!rendered(&loaded).contains("canary"), "{}", rendered(&loaded));
}

#[test]
fn a_line_with_a_secret_is_not_quoted() {
    let text = "agents:
  - name: a
    schedules:
      s: {type: webhook, secret: canary, evnts: [push]}
      t: {type: webhook, secret: [canary-in-a-list]}
    mcp_servers: {m: {env: {A: canary}, comand: x}}
";
    let report = rendered(&load_text(text));
    assert!(!report.contains("canary"), "{report}");
    assert!(report.contains("error: unknown key `evnts`\n --> cowhand.yaml:4:42"), "{report}");
}

/// One missing variable is one error, wherever it is used.
#[test]
fn each_undefined_variable_is_reported_once() {
    let text = "agents:
  - name: ${A}
  - path: ${B}/a.yaml
  - name: c
    max_turns: ${C}
    model: \"é ${D:-ok} ${D}\"
    system_prompt: |
      First line.
      Second ${E} and ${F}.
    default_prompt: >-
      Folded
      here ${G}
    schedules:
      a: {type: \"${H}\", interval: 5m}
      b: {type: interval, interval: \"${I}\"}
      c: {type: agent_lifecycle, event: session_end, agent: nobody}
fleets: [{path: \"${J}\"}]
";
    assert_eq!(
        lines(&load_text(text))
            .iter()
            .map(|line| line.replace("the environment variable", ""))
            .collect::<Vec<_>>(),
        [
            "cowhand.yaml:2:11  `A` is not set",
            "cowhand.yaml:3:11  `B` is not set",
            "cowhand.yaml:5:16  `C` is not set",
            "cowhand.yaml:6:24  `D` is not set",
            "cowhand.yaml:9:14  `E` is not set",
            "cowhand.yaml:9:23  `F` is not set",
            "cowhand.yaml:12:12  `G` is not set",
            "cowhand.yaml:14:18  `H` is not set",
            "cowhand.yaml:15:38  `I` is not set",
            "cowhand.yaml:17:18  `J` is not set",
        ]
    );
}

/// A file that is named several times is read, checked and counted once.
#[test]
fn a_shared_file_is_reported_once() {
    let text = "agents: [{path: a.yaml}, {path: ./a.yaml, overrides: {name: b}}]";
    let loaded = load_files(&[("cowhand.yaml", text), ("a.yaml", "name: a\nmodle: x\n")], &[]);
    assert_eq!(lines(&loaded), ["a.yaml:2:1 unknown key `modle`"]);
    assert!(rendered(&loaded).ends_with("1 error in 2 files"));
}

#[test]
fn circles_of_schedules_are_refused() {
    let text = "agents:
  - name: a
    schedules:
      one: {type: dispatch_result, schedule: b/two}
      self: {type: dispatch_result, schedule: a/self}
      fine: {type: dispatch_result, schedule: one}
  - name: b
    schedules:
      two: {type: dispatch_result, schedule: three}
      three: {type: dispatch_result, schedule: a/one}
";
    let errors = lines(&load_text(text)).into_iter().filter(|line| !line.contains(" is accepted, but "));
    assert_eq!(
        errors.collect::<Vec<_>>(),
        [
            "cowhand.yaml:4:46 these schedules wait for each other: a/one → b/two → b/three → a/one",
            "cowhand.yaml:5:47 `a/self` waits for itself; a job never triggers its own schedule",
        ]
    );
}

#[test]
fn a_schedule_that_listens_to_all_results_can_form_a_circle() {
    let text = "agents:
  - name: a
    schedules:
      any: {type: dispatch_result, status: failed}
      fine: {type: interval, interval: 5m}
      other: {type: dispatch_result, schedule: fine}
";
    assert!(lines(&load_text(text)).is_empty());
    let back = format!("{text}      back: {{type: dispatch_result, schedule: any}}\n");
    let cycle = "cowhand.yaml:4:7 these schedules wait for each other: a/any → a/back → a/any";
    assert_eq!(lines(&load_text(&back)), [cycle]);
    let two = format!("{text}      all: {{type: dispatch_result}}\n");
    let cycle = "cowhand.yaml:4:7 these schedules wait for each other: a/any → a/all → a/any";
    assert_eq!(lines(&load_text(&two)), [cycle]);
}

#[test]
fn command_and_runtime_must_match() {
    let loaded = load_text(
        "agents:
  - {name: a, runtime: command}
  - {name: b, command: [echo, hi]}
  - {name: c, runtime: command, command: [sh, -c, cat]}
  - {name: d, runtime: acp}
  - {name: e, runtime: acp, command: [gemini, --acp]}
",
    );
    assert_eq!(
        lines(&loaded),
        [
            "cowhand.yaml:2:24 `runtime: command` needs `command: [PROGRAM, ARGUMENT, …]`",
            "cowhand.yaml:3:24 `command` is only for `runtime: command` and `runtime: acp`",
            "cowhand.yaml:5:24 `runtime: acp` needs `command: [PROGRAM, ARGUMENT, …]`",
        ]
    );
}

#[test]
fn a_bad_schedule_name_is_not_hidden_by_other_mistakes() {
    let text = "agents:
  - name: a
    schedules:
      \"\": {type: interval, interval: 5x}
      t: {type: interval, interval: 1h, retry: {on: [erorr, rate_limited]}}
";
    let lines = lines(&load_text(text));
    assert_eq!(lines.len(), 3, "{lines:#?}");
    assert!(lines[0].starts_with("cowhand.yaml:4:7 \"\" is not a valid schedule name"), "{lines:#?}");
    assert!(lines[2].starts_with("cowhand.yaml:5:54 `erorr` is not one of `error`, "), "{lines:#?}");
}

#[test]
fn an_end_before_the_start_is_refused() {
    let text = "agents:
  - name: a
    schedules:
      s: {type: manual, start_at: 2026-02-01T00:00:00Z, end_at: 2026-01-01T00:00:00Z}
";
    let lines = lines(&load_text(text));
    assert_eq!(lines.len(), 1, "{lines:#?}");
    assert!(
        lines[0].starts_with("cowhand.yaml:4:7 `end_at` (2026-01-01T00:00:00Z) is not after"),
        "{lines:#?}"
    );
}

#[test]
fn a_secret_under_a_misspelt_name_is_not_shown() {
    let text = "agents:
  - name: a
    api_token: hunter2
    schedules:
      s: {type: webhook, secert: hunter2}
";
    let shown = rendered(&load_text(text));
    assert!(shown.contains("unknown key `secert`") && shown.contains("unknown key `api_token`"), "{shown}");
    assert!(!shown.contains("hunter2"), "{shown}");
}

/// The message contains no part of the address, whose password may be anywhere in it.
#[test]
fn store_addresses_that_no_start_can_use_are_refused() {
    for (address, says) in [
        ("postgres://u:hunter22@127.0.0.1:99999/x", "the port of this address"),
        ("postgres://u:hunter/22@h/x", "this address has an `@`"),
        ("postgres://u:2024/hunter22@h/x", "this address has an `@`"),
        ("postgres://u:p@hunter/22@h/x", "this address has an `@`"),
        ("postgres://u@h/x?pasword=hunter22", "this address has a parameter that cowhand does not know"),
        ("postgres://u:hunter22@h/x?sslmode=bogus", "`sslmode` of this address is not one of disable, allow"),
    ] {
        let loaded = load_text(&format!("store: {address}\nagents: []\n"));
        let found = rendered(&loaded);
        assert!(loaded.errors() == 1 && found.contains(says), "{found}");
        assert!(!found.contains("hunter") && !found.contains("22"), "{found}");
    }
    assert_eq!(load_text("store: postgres://u:p@h:5432/x?sslmode=require\nagents: []\n").errors(), 0);
}
