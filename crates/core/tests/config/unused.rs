//! Settings that cannot work are rejected, and settings without effect are reported. Correct settings beside them cause
//! no message.

use super::mistakes::{agent, schedule};
use super::{lines, load_files, load_text};

/// Expected result for a file: no problem, one warning, or one error that contains this text.
enum Answer {
    Nothing,
    Warning(&'static str),
    Error(&'static str),
}
use Answer::{Error, Nothing, Warning};

#[track_caller]
fn answered(case: &str, files: &[(&str, &str)], expected: &Answer) {
    let loaded = load_files(files, &[]);
    let helps = loaded.problems.iter().map(|problem| problem.help.clone().unwrap_or_default());
    let lines: Vec<String> =
        lines(&loaded).into_iter().zip(helps).map(|(line, help)| line + " " + &help).collect();
    let (errors, warnings, words) = match expected {
        Nothing => (0, 0, ""),
        Warning(words) => (0, 1, *words),
        Error(words) => (1, 0, *words),
    };
    assert_eq!((loaded.errors(), loaded.warnings()), (errors, warnings), "{case}: {lines:#?}");
    assert!(lines.iter().all(|line| line.contains(words)), "{case}: {lines:#?}");
}

fn all(cases: &[(String, Answer)]) {
    for (text, expected) in cases {
        answered(text, &[("cowhand.yaml", text)], expected);
    }
}

fn command(more: &str) -> String {
    format!("agents:\n  - {{name: a, runtime: command, command: [sh], working_directory: desk, {more}}}\n")
}

#[test]
fn keys_of_the_root_file_are_reported_in_other_files() {
    let root = "fleets: [{path: sub/cowhand.yaml}]";
    for (sub, expected) in [
        ("agents: [{name: a, default_prompt: Go.}]", Nothing),
        ("retention: {max_age: 1d}\ndefaults: {budget: {per_day_usd: 1}}", Nothing),
        ("budget: ~", Nothing),
        ("budget: {per_day_usd: 5}", Error("this budget has no effect `defaults: {budget: …}`")),
        ("providers: {claude: {max_concurrent: 1}}", Warning("only the root file's `providers` counts")),
        ("prices: {m: {input: 1, output: 2}}", Warning("only the root file's `prices` counts")),
        ("server: {listen: 127.0.0.1:1}", Warning("only the root file's `server` counts")),
        ("store: postgres://localhost/x", Warning("only the root file's `store` counts")),
        ("traces: {endpoint: 'http://127.0.0.1:4318'}", Warning("only the root file's `traces` counts")),
    ] {
        answered(sub, &[("cowhand.yaml", root), ("sub/cowhand.yaml", sub)], &expected);
    }
    let laid_over = "fleets: [{path: sub/cowhand.yaml, overrides: {budget: {per_day_usd: 1}}}]";
    let loaded = load_files(
        &[("cowhand.yaml", laid_over), ("sub/cowhand.yaml", "agents: [{name: a, default_prompt: Go.}]")],
        &[],
    );
    assert_eq!(loaded.problems.len(), 1, "{:?}", lines(&loaded));
    assert_eq!(loaded.problems[0].key, "fleets[0].overrides.budget");
    answered("of the root", &[("cowhand.yaml", "budget: {per_day_usd: 5}")], &Nothing);
}

#[test]
fn a_work_source_without_a_schedule_is_reported() {
    let source = "work_source: {type: files, path: tasks}";
    let own = "schedules: {s: {type: manual, work_source: {type: files, path: others}}}";
    all(&[
        (command(source), Warning("nothing takes items from this `work_source`")),
        (command(&format!("{source}, {own}")), Warning("nothing takes items from this `work_source`")),
        (command(&format!("{source}, schedules: {{s: {{type: manual}}}}")), Nothing),
        (command("work_source: ~"), Nothing),
    ]);
    let shared = format!(
        "defaults: {{{source}}}\nagents:\n  - {{name: a, runtime: command, command: [sh], working_directory: x}}\n  \
         - {{name: b, runtime: command, command: [sh], working_directory: x, schedules: {{s: {{type: manual}}}}}}\n"
    );
    all(&[(shared, Nothing)]);
    // The agent `a` uses the labels in `defaults`, so the key in `defaults` has an effect.
    let merged = "defaults: {work_source: {type: github, labels: {ready: go}}}\nagents:\n  \
                  - {name: a, default_prompt: Go., work_source: {repo: o/r}, schedules: {s: {type: interval, interval: 5m}}}\n  \
                  - {name: b, runtime: claude, default_prompt: Go.}\n";
    let loaded = load_text(merged);
    let lines = lines(&loaded);
    let is_reported =
        |line: &String| line.contains("nothing takes items") || line.contains("no schedule inherits it");
    assert!(!lines.iter().any(is_reported), "{merged}: {lines:?}");
}

#[test]
fn a_work_source_in_defaults_that_no_schedule_inherits_is_reported() {
    let defaults = "defaults: {work_source: {type: files, path: tasks}}";
    let with = |agent: &str| format!("{defaults}\n{}", command(agent));
    let unused = || {
        Warning("this `work_source` has no effect: only schedules take items, and no schedule inherits it")
    };
    let own = "work_source: {type: files, path: others}";
    all(&[
        (with("default_prompt: Go."), unused()),
        (with(&format!("schedules: {{s: {{type: manual, {own}}}}}")), unused()),
        (with(&format!("{own}, schedules: {{s: {{type: manual}}}}")), unused()),
        (with("schedules: {s: {type: manual, work_source: ~}}"), unused()),
        (with("schedules: {s: {type: manual}}"), Nothing),
        (with("schedules: {s: {type: manual, work_source: {path: others}}}"), Nothing),
        (with("work_source: {path: others}, schedules: {s: {type: manual}}"), Nothing),
        (format!("{defaults}\nagents: []"), Nothing),
    ]);
    let loaded = load_text(&with("default_prompt: Go."));
    assert_eq!(loaded.problems[0].key, "defaults.work_source");
    // An agent of a sub-fleet inherits the defaults of the fleet above it.
    let above = format!("{defaults}\nfleets: [{{path: sub/cowhand.yaml}}]");
    let below = command("schedules: {s: {type: manual}}");
    answered("in a sub-fleet", &[("cowhand.yaml", &above), ("sub/cowhand.yaml", &below)], &Nothing);
}

#[test]
fn timing_keys_without_effect_on_a_type_are_reported() {
    let types = [
        ("type: cron, cron: '0 3 * * *'", [true, true, true, true]),
        ("type: interval, interval: 1h", [false, false, false, true]),
        ("type: delay, in: 1h", [false, false, false, false]),
        ("type: manual", [false, false, false, false]),
        ("type: webhook, allow_unsigned: true", [false, false, false, false]),
    ];
    let keys = ["misfire: skip", "max_lateness: 2h", "overlap: queue", "jitter: 5"];
    for (kind, works) in types {
        for (key, works) in keys.into_iter().zip(works) {
            let name = key.split(':').next().unwrap();
            let text = schedule(&format!("{{{kind}, {key}, prompt: Go.}}"));
            let loaded = load_text(&text);
            assert_eq!(
                (loaded.errors(), loaded.warnings()),
                (0, usize::from(!works)),
                "{kind}, {key}: {:?}",
                lines(&loaded)
            );
            let lines = lines(&loaded).join("\n");
            let expected = match (name, kind.contains("interval")) {
                ("overlap", true) => "`overlap` has almost no effect on an `interval`".to_owned(),
                ("overlap", false) => {
                    "`overlap` has no effect here: only schedules of type `cron` or `interval` use it"
                        .to_owned()
                }
                _ => format!("`{name}` has no effect here"),
            };
            assert!(works || lines.contains(&expected), "{lines}");
        }
    }
    // `skip` is the default.
    all(&[(schedule("{type: interval, interval: 1h, overlap: skip, prompt: Go.}"), Nothing)]);
    // A key in `defaults` that one schedule uses is not reported.
    let defaults = "defaults: {overlap: queue, misfire: skip}\n";
    let both = schedule("{type: cron, cron: '0 3 * * *', prompt: Go.}\n  t: {type: manual, prompt: Go.}");
    all(&[(format!("{defaults}{both}"), Nothing)]);
    let loaded = load_text(&format!("{defaults}{}", schedule("{type: manual, prompt: Go.}")));
    assert_eq!(loaded.warnings(), 2, "{:?}", lines(&loaded));
}

/// An `overlap` in `defaults` is reported like an `overlap` of the schedule itself, unless a `cron` schedule uses it.
#[test]
fn an_inherited_overlap_without_effect_is_reported() {
    let interval = "{type: interval, interval: 1h, prompt: Go.}";
    let effect = "`overlap` has almost no effect on an `interval`";
    let cases = [
        (interval.to_owned(), true),
        (format!("{interval}\n  t: {interval}"), true),
        (format!("{interval}\n  t: {{type: manual, prompt: Go.}}"), true),
        (format!("{interval}\n  t: {{type: webhook, allow_unsigned: true, prompt: Go.}}"), true),
        (format!("{interval}\n  t: {{type: cron, cron: '0 3 * * *', prompt: Go.}}"), false),
    ];
    for (schedules, is_reported) in cases {
        for policy in ["queue", "allow", "cancel_previous"] {
            let loaded = load_text(&format!("defaults: {{overlap: {policy}}}\n{}", schedule(&schedules)));
            let lines = lines(&loaded);
            assert_eq!(loaded.warnings(), usize::from(is_reported), "{schedules}: {lines:?}");
            assert_eq!(lines.join("\n").contains(effect), is_reported, "{schedules}: {lines:?}");
        }
    }
    all(&[(format!("defaults: {{overlap: skip}}\n{}", schedule(interval)), Nothing)]);
}

#[test]
fn sandbox_rules_without_a_sandbox_are_refused() {
    let kind = "needs a `kind` that can enforce it";
    all(&[
        (command("sandbox: {kind: none, network: off}"), Error(kind)),
        (command("sandbox: {kind: none, network: {hosts: [a.com]}}"), Error(kind)),
        (command("sandbox: {kind: none, write: [x]}"), Error(kind)),
        (command("sandbox: {kind: none, read: []}"), Error(kind)),
        (command("sandbox: {kind: none, credentials: outside}"), Error(kind)),
        (command("sandbox: {kind: none, network: on, memory: 1GB, pids: 50, cpu: 1}"), Nothing),
        (command("sandbox: none"), Nothing),
        (
            command("sandbox: landlock, schedules: {s: {type: manual, sandbox: {kind: none, network: off}}}"),
            Error(kind),
        ),
        // Keys of `defaults` also count, unless a plain value replaces the whole map.
        (
            format!(
                "defaults: {{sandbox: {{kind: landlock, network: off}}}}\n{}",
                command("sandbox: {kind: none}")
            ),
            Error(kind),
        ),
        (
            format!("defaults: {{sandbox: {{kind: landlock, network: off}}}}\n{}", command("sandbox: none")),
            Nothing,
        ),
    ]);
}

#[test]
fn sandboxes_in_which_no_agent_can_start_are_reported() {
    let socket = "does not give to agents; use `sandbox: bubblewrap`";
    all(&[
        (command("sandbox: {kind: bubblewrap, write: [/]}"), Error("the sandbox would protect nothing in it")),
        (command("sandbox: {kind: landlock, write: [x, '~/']}"), Error("the sandbox would protect nothing in it")),
        (command("sandbox: {kind: landlock, write: ['~/x', /srv]}"), Nothing),
        (command("sandbox: {kind: none, memory: 4}"), Error("the minimum is 4MB")),
        (command("sandbox: {kind: none, memory: 1MB}"), Error("the minimum is 4MB")),
        (command("sandbox: {kind: none, memory: 4MB}"), Nothing),
        (command("sandbox: {kind: bubblewrap, credentials: outside}"), Error("is not supported for `runtime: command`")),
        (
            agent("runtime: acp\ncommand: [opencode, acp]\nsandbox: {kind: bubblewrap, credentials: outside}"),
            Error("is not supported for `runtime: acp`"),
        ),
        (agent("runtime: acp\ncommand: [gemini, --acp]\nsandbox: {kind: bubblewrap, credentials: outside}"), Nothing),
        (agent("sandbox: {kind: bubblewrap, credentials: outside}"), Nothing),
        (
            agent("fallback: [{runtime: command, command: [sh]}]\nsandbox: {kind: bubblewrap, credentials: outside}"),
            Error("is not supported for `runtime: command`"),
        ),
        (command("followups: {max: 1}, sandbox: landlock"), Error(socket)),
        (command("fleet_tools: true, sandbox: {kind: docker, image: a}"), Error(socket)),
        (agent("permission_mode: ask\nsandbox: {kind: landlock, network: on}"), Error(socket)),
        (command("fleet_tools: true, schedules: {s: {type: manual, sandbox: landlock}}"), Error(socket)),
        (command("fleet_tools: true, docker: {enabled: true, image: a}"), Warning(socket)),
        (command("fleet_tools: true, sandbox: bubblewrap"), Nothing),
        (command("fleet_tools: false, sandbox: landlock"), Nothing),
        (
            agent("runtime: acp\ncommand: [opencode, acp]\nsandbox: {kind: docker, image: a, network: on}"),
            Error("needs cowhand's ACP client, which images do not contain"),
        ),
        (agent("sandbox: {kind: landlock, network: on}"), Warning("cowhand.yaml is in the directory of this agent")),
        (agent("sandbox: {kind: landlock, network: on}\nworking_directory: ./"), Warning("cowhand.yaml is in the directory")),
        (agent("sandbox: {kind: landlock, network: on}\nisolation: worktree"), Nothing),
        (agent("sandbox: {kind: bubblewrap, network: on}"), Nothing),
        (command("sandbox: {kind: landlock, network: {ports: [0]}}"), Error("0 is too small; the smallest is 1")),
        (command("sandbox: {kind: docker, image: -v}"), Error("for example `node:22`")),
        (command("sandbox: {kind: docker, image: a b}"), Error("for example `node:22`")),
        (command("sandbox: {kind: bubblewrap, image: a}"), Warning("`image` has no effect without `kind: docker`")),
        (
            "defaults: {sandbox: {image: a, socket: /x}}\nagents:\n  - {name: a, sandbox: {kind: docker, network: on}}\n  \
             - {name: b, working_directory: desk, sandbox: {kind: landlock, network: on}}\n"
                .to_owned(),
            Nothing,
        ),
    ]);
}

#[test]
fn rules_that_a_runtime_cannot_enforce_are_reported() {
    all(&[
        (command("permission_mode: ask"), Error("`runtime: command` does not, so the agent is not started")),
        (command("permission_mode: plan"), Error("cannot enforce `permission_mode`")),
        (command("permission_mode: acceptEdits"), Warning("a command does not support permission modes")),
        (command("denied_tools: [Bash]"), Error("cannot enforce `denied_tools`")),
        (command("tools: [Read]"), Error("cannot enforce `tools`")),
        // An empty list forbids nothing.
        (command("tools: []"), Warning("`tools: []` allows all tools")),
        (agent("tools: []"), Warning("`tools: []` allows all tools")),
        (agent("runtime: acp\ncommand: [gemini, --acp]\ntools: []"), Warning("`tools: []` allows all tools")),
        (agent("tools: [Read]\nallowed_tools: []\ndenied_tools: []"), Nothing),
        (command("denied_tools: []"), Nothing),
        (agent("runtime: codex\ndenied_tools: [Bash]"), Error("cannot enforce `denied_tools`")),
        (agent("runtime: gemini\npermission_mode: ask"), Error("`runtime: gemini` does not")),
        (agent("denied_tools: [Bash]\nfallback: [{runtime: codex}]"), Error("cannot enforce `denied_tools`")),
        (agent("permission_mode: ask\ndenied_tools: [Bash]"), Nothing),
    ]);
    let text = agent("runtime: codex\nmcp_servers: {far: {url: 'https://h/x?key=canary'}}");
    let loaded = load_text(&text);
    assert_eq!(loaded.errors(), 1, "{:?}", lines(&loaded));
    assert!(loaded.problems[0].on_secret_line);
}

#[test]
fn invalid_or_ineffective_trust_is_reported() {
    all(&[
        (agent("trust: {min_permission: write, strangers: allow}"), Warning("accepts text of everybody")),
        (agent("trust: {allow_authors: [ann], strangers: allow}"), Warning("accepts text of everybody")),
        (agent("trust: {strangers: allow, forks: refuse}"), Nothing),
        (agent("trust: {allow_authors: ['@ann']}"), Error("`ann`, not `@ann`")),
        (agent("trust: {allow_authors: ['*']}"), Error("whole names, without `*`")),
        (agent("trust: {allow_authors: ['dependabot[bot]', ann-b]}"), Nothing),
        (
            agent("trust: {min_permission: write, repos: [nothing]}"),
            Error("for example `my-org/app` or `my-org/*`"),
        ),
    ]);
}

#[test]
fn permissions_without_effect_are_reported() {
    let asks = |permissions: &str| agent(&format!("permission_mode: ask\npermissions: {permissions}"));
    let both = |own: &str, schedule: &str| {
        asks(&format!("{own}\nschedules:\n  s: {{type: manual, permissions: {schedule}}}"))
    };
    let narrows = "a schedule can only restrict";
    all(&[
        (asks("{allow: ['Bash(sudo *)']}"), Warning("`Bash(sudo *)` has no effect")),
        (asks("{allow: ['Bash(find * -exec *)']}"), Warning("has no effect")),
        (asks("{allow: ['Bash(~/bin/x)']}"), Warning("has no effect")),
        (
            asks("{allow: [Bash, Read, 'Bash(cargo *)', 'Bash(git:*)', 'Bash(ls)', 'Bash(* --version)']}"),
            Nothing,
        ),
        (asks("{deny: ['Bash(sudo *)'], ask: ['Bash(sudo *)']}"), Nothing),
        (both("{deny: [Write]}", "{allow: [Read]}"), Warning(narrows)),
        (both("{allow: []}", "{allow: [Read]}"), Warning(narrows)),
        (both("{allow: [Read, Write]}", "{allow: [Read]}"), Nothing),
        (both("{deny: [Write]}", "{deny: [Read]}"), Nothing),
        // Without rules of the agent, the rules of the schedule apply.
        (
            agent("permission_mode: ask\nschedules:\n  s: {type: manual, permissions: {allow: [Read]}}"),
            Nothing,
        ),
        (agent("ask_timeout: 5m"), Warning("`ask_timeout` has no effect")),
        (agent("ask_timeout: 5m\nfleet_tools: true"), Nothing),
        (agent("ask_timeout: 5m\npermission_mode: ask"), Nothing),
        (
            "defaults: {ask_timeout: 5m}\nagents: [{name: a}, {name: b, permission_mode: ask}]".to_owned(),
            Nothing,
        ),
        ("defaults: {ask_timeout: 5m}\nagents: [{name: a}, {name: b}]".to_owned(), Warning("`ask_timeout`")),
    ]);
}

#[test]
fn unreachable_limits_are_reported() {
    let without = "has no effect without `empty_runs`";
    all(&[
        (agent("budget: {per_day_usd: 5, per_month_usd: 4}"), Warning("`per_day_usd` is more than `per_month_usd`")),
        (agent("budget: {per_job_usd: 5, per_day_usd: 4}"), Warning("`per_job_usd` is more than `per_day_usd`")),
        (agent("budget: {per_job_usd: 5, per_month_usd: 4}"), Warning("`per_job_usd` is more than")),
        (agent("budget: {per_job_tokens: 5, per_day_tokens: 4}"), Warning("`per_job_tokens` is more than")),
        ("budget: {per_day_usd: 5, per_month_usd: 4}".to_owned(), Warning("`per_day_usd` is more than")),
        (agent("budget: {per_job_usd: 4, per_day_usd: 4, per_month_usd: 4}"), Nothing),
        (
            "defaults: {budget: {per_day_usd: 5}}\nagents: [{name: a}, {name: b, budget: {per_month_usd: 90}}, {name: c, budget: {per_month_usd: 4}}]"
                .to_owned(),
            Nothing,
        ),
        (schedule("{type: manual, breaker: {empty_usd: 1}}"), Warning(without)),
        (schedule("{type: manual, breaker: {empty_within: 1h, empty_runs: 0}}"), Warning(without)),
        (schedule("{type: manual, breaker: {empty_usd: 1, empty_runs: 2}}"), Nothing),
        (
            "defaults: {breaker: {empty_usd: 1}}\nagents:\n  - name: a\n    schedules:\n      s: {type: manual}\n      \
             t: {type: manual, breaker: {empty_runs: 2}}\n"
                .to_owned(),
            Nothing,
        ),
        (agent("followups: {max: 3, expires: 30s}"), Warning("no follow-up is possible: `expires` (30s) is shorter than `min_interval` (1m)")),
        (agent("followups: {max: 3, min_interval: 8d}"), Warning("no follow-up is possible: `expires` (7d) is shorter than `min_interval` (8d)")),
        (agent("followups: {max: 3, min_interval: 1h, expires: 1h}"), Nothing),
        (agent("default_prompt: Go.\nretry: {max_attempts: 3, on: []}"), Warning("no job is retried")),
        (agent("default_prompt: Go.\nretry: {on: [error]}"), Nothing),
        (agent("default_prompt: Go.\nhooks: {after_run: [{type: shell, command: x, on_events: []}]}"), Warning("to run it after every job")),
        (agent("default_prompt: Go.\nhooks: {on_error: [{type: shell, command: x, on_events: []}]}"), Warning("to run it after every failed job")),
        (agent("default_prompt: Go.\nhooks: {on_error: [{type: shell, command: x, on_events: [failed]}]}"), Nothing),
        ("prices: {m: {input: 1e30, output: 2}}".to_owned(), Error("1e30 is too large; the largest is 1000000")),
    ]);
}

#[test]
fn unused_providers_are_reported() {
    let with = |provider: &str, agent: &str| {
        format!(
            "providers: {{{provider}: {{max_concurrent: 1}}}}\nagents: [{{name: a, default_prompt: Go.{agent}}}]"
        )
    };
    all(&[
        (with("claude", ""), Nothing),
        (with("cluade", ""), Warning("so its limits have no effect did you mean `claude`?")),
        (with("gpu", ""), Warning("so its limits have no effect agents here use `claude`")),
        (with("gpu", ", provider: gpu"), Nothing),
        (with("codex", ", fallback: [{runtime: codex}]"), Nothing),
        ("providers: {claude: {max_concurrent: 1}}".to_owned(), Nothing),
        // The providers that an invalid agent uses are not known.
        (with("gpu", ", provider: gpu, max_turns: x"), Error("expected a whole number")),
    ]);
}

#[test]
fn reserves_without_reports_are_reported() {
    let with = |provider: &str, agents: &str| format!("providers: {{p: {provider}}}\nagents: [{agents}]");
    let agent =
        |name: &str, runtime: &str| format!("{{name: {name}, provider: p, default_prompt: Go., {runtime}}}");
    let (claude, gemini) = (agent("a", "runtime: claude"), agent("b", "runtime: gemini"));
    let command = agent("c", "runtime: command, command: [cat]");
    let none = |names: &str| Warning(names.to_owned().leak());
    let hours =
        |reserve: &str| format!("{{reserve_hours: [{{start: '09:00', end: '18:00', reserve: {reserve}}}]}}");
    all(&[
        (with("{reserve: 20%}", &claude), Nothing),
        (with("{reserve: 20%}", &format!("{gemini}, {claude}")), Nothing),
        (with("{reserve: 20%}", &gemini), none("its agents have the runtime `gemini`")),
        (with("{reserve: 20%}", &format!("{gemini}, {command}")), none("the runtime `command` or `gemini`")),
        (with("{reserve: 0%}", &gemini), Nothing),
        (with(&hours("50 %"), &gemini), none("has no effect")),
        (with(&hours("50 %"), &claude), Nothing),
        (with("{reserve: 101%}", &claude), Error("use a whole number from 0% to 100%, for example 20%")),
        (with("{reserve: half}", &claude), Error("use a whole number from 0% to 100%, for example 20%")),
        (with("{reserve: 0.2}", &claude), Error("use a whole number from 0% to 100%, for example 20%")),
        (with("{reserve: 20}", &claude), Error("use a whole number from 0% to 100%, for example 20%")),
        (with(&hours("20"), &claude), Error("use a whole number from 0% to 100%, for example 20%")),
        (with("{reserve_hours: [{start: '09:00', reserve: 20%}]}", &claude), Error("`end`")),
        (
            with("{reserve_hours: [{start: '9', end: '18:00', reserve: 20%}]}", &claude),
            Error("is not a time of day"),
        ),
    ]);
}

#[test]
fn words_of_other_programs_get_a_hint() {
    let milliseconds = "of a hook is in milliseconds";
    all(&[
        (agent("sandbox: off"), Error("write `none` for no sandbox")),
        (agent("sandbox: false"), Error("write `none` for no sandbox")),
        (agent("sandbox: {kind: off}"), Error("write `none` for no sandbox")),
        (agent("sandbox: true"), Error("name a kind of sandbox")),
        (agent("breaker: off"), Error("`breaker: {failures: 0}` turns it off")),
        (schedule("{type: manual, breaker: false}"), Error("`breaker: {failures: 0}` turns it off")),
        (
            agent("breaker: {threshold: 3}"),
            Error("it is one of `failures`, `pause`, `empty_runs`, `empty_usd` or `empty_within`"),
        ),
        (agent("breaker: {failure: 3}"), Error("did you mean `failures`?")),
        (agent("budget: {timezone: UTC}"), Error("`timezone` belongs to `budget` of the root file")),
        (agent("budget: {per_week_usd: 1}"), Error("a budget is for a job, a day or a month")),
        (agent("budget: {per_dya_usd: 1}"), Error("did you mean `per_day_usd`?")),
        (agent("hooks: {after_run: [{type: shell, command: x, timeout: 30s}]}"), Error(milliseconds)),
        (
            agent("hooks: {on_error: [{type: webhook, url: 'http://a.com', timeout: 1m}]}"),
            Error(milliseconds),
        ),
    ]);
}

#[test]
fn a_schedule_that_widens_its_agents_sandbox_is_reported() {
    let both = |agents: &str, own: &str| {
        command(&format!("sandbox: {agents}, schedules: {{s: {{type: manual, sandbox: {own}}}}}"))
    };
    let closed = "all or part of this has no effect: a schedule can only restrict";
    all(&[
        (both("landlock", "{kind: landlock, network: on}"), Warning(closed)),
        (both("landlock", "{kind: landlock, write: [/srv]}"), Warning(closed)),
        (both("{kind: landlock, write: [/srv]}", "{kind: landlock, write: [/srv/a, /opt]}"), Warning(closed)),
        (both("{kind: landlock, write: [/srv]}", "{kind: landlock, write: [/srv/a]}"), Nothing),
        (both("{kind: landlock, read: [/srv]}", "{kind: landlock, read: [/]}"), Warning(closed)),
        (both("{kind: landlock, network: on}", "{kind: landlock, network: {ports: [443]}}"), Nothing),
        (
            both(
                "{kind: bubblewrap, network: {hosts: ['*.a.com', b.com]}}",
                "{kind: bubblewrap, network: {hosts: [b.com, x.a.com]}}",
            ),
            Nothing,
        ),
        (
            both(
                "{kind: bubblewrap, network: {hosts: [b.com]}}",
                "{kind: bubblewrap, network: {hosts: [b.com, c.com]}}",
            ),
            Warning(closed),
        ),
        (both("landlock", "{kind: landlock, network: off}"), Nothing),
        (both("none", "{kind: landlock, network: on, write: [/srv]}"), Nothing),
        (both("{kind: landlock, network: on}", "landlock"), Nothing),
    ]);
}

#[test]
fn secrets_in_names_paths_and_arguments_are_reported() {
    for (agent, expected) in [
        ("env: {API_TOKEN: '${API_TOKEN}'}", None),
        ("command: [sh, '${HOME}/x']", None),
        ("command: [curl, '-H', 'auth: ${API_TOKEN}']", Some("cowhand.yaml:2:")),
        ("command: [sh], mcp_servers: {m: {command: x, args: ['--key=${API_TOKEN}']}}", Some("`API_TOKEN`")),
        (
            "command: [sh], hooks: {after_run: [{type: shell, command: 'notify ${API_TOKEN}'}]}",
            Some("hooks.after_run[0].command"),
        ),
        ("command: [sh], isolation: {kind: worktree, setup: [sh, '${API_TOKEN}']}", Some("`env`")),
        ("command: [sh], schedules: {s: {type: manual, when_command: [x, '${API_TOKEN}']}}", Some("`ps`")),
        (
            "command: [sh], schedules: {s: {type: manual, work_source: {type: files, path: 'q/${API_TOKEN}'}}}",
            Some("`ps`"),
        ),
    ] {
        let text = format!("agents:\n  - {{name: a, runtime: command, working_directory: desk, {agent}}}\n");
        let loaded = load_files(&[("cowhand.yaml", &text)], &[("API_TOKEN", "t0k3n-value"), ("HOME", "/h")]);
        let all: Vec<String> = loaded.problems.iter().map(|problem| format!("{problem:?}")).collect();
        let found: Vec<String> =
            lines(&loaded).into_iter().filter(|line| line.contains("other users")).collect();
        assert_eq!(found.len(), usize::from(expected.is_some()), "{agent}: {all:#?}");
        for (line, words) in found.iter().zip(expected) {
            let help = loaded.problems.iter().find_map(|problem| problem.help.clone()).unwrap_or_default();
            assert!(
                line.contains("warning: ") && format!("{line} {help} {all:?}").contains(words),
                "{agent}: {all:#?}"
            );
            assert!(!line.contains("t0k3n-value"), "{line}");
        }
    }
}

#[test]
fn paths_of_hooks_and_headers_without_a_collector_are_reported() {
    let hook =
        |when: &str| command(&format!("hooks: {{after_run: [{{type: shell, command: x, when: {when}}}]}}"));
    let traces = |traces: &str| format!("traces: {traces}\n{}", command("description: x"));
    all(&[
        (hook("metadata.notify"), Nothing),
        (hook("metadata.items.0"), Nothing),
        (hook("a..b"), Warning("is not a path such as `metadata.shouldNotify`")),
        (hook("'a == b'"), Warning("so this hook never runs")),
        (traces("{endpoint: 'http://127.0.0.1:4318', headers: {x-key: abc}}"), Nothing),
        (traces("{}"), Nothing),
        (traces("{headers: {x-key: abc}}"), Warning("have no effect without `endpoint`")),
    ]);
}
