//! Budgets and breakers from the command line.

use std::sync::OnceLock;

use serde_json::Value;

use super::{Scene, wait_until};

/// `looper` makes five calls of one cent each. It never makes the sixth, because its budget stops it. Each job of
/// `spender` costs four cents.
const FLEET: &str = r#"
budget: {timezone: ZONE}
agents:
  - name: looper
    runtime: command
    command: [sh, -c, "for call in 1 2 3 4 5; do echo $call >> calls; echo '{\"type\":\"assistant\",\"content\":\"call\",\"usage\":{\"input_tokens\":100,\"cost_usd\":0.01}}'; done; sleep 60; echo 6 >> calls"]
    budget: {per_job_usd: 0.05}
  - name: spender
    runtime: command
    command: [sh, -c, "echo '{\"type\":\"system\",\"subtype\":\"usage\",\"model\":\"m\",\"usage\":{\"input_tokens\":1000,\"output_tokens\":50,\"cost_usd\":0.04}}'"]
    budget: {per_day_usd: 0.05, per_month_tokens: 1000000}
    schedules:
      nightly: {type: cron, cron: 0 3 1 1 *, prompt: Work.}
      minutely: {type: cron, cron: "* * * * * *", prompt: Work., enabled: false}
"#;

const BROKEN: &str = r#"
agents:
  - name: broken
    runtime: command
    command: [sh, -c, "echo this cannot work, $$ >&2; [ -e mended ]"]
    breaker: {failures: 3, pause: 1h}
    schedules:
      often: {type: interval, interval: 1s}
"#;

/// Replaces dates, which differ from day to day.
fn days(text: String) -> String {
    let mut shown = text;
    for start in (0..shown.len()).rev() {
        let bytes = shown.as_bytes();
        let is_day = bytes.get(start..start + 10).is_some_and(|day| {
            day.iter().enumerate().all(|(place, byte)| {
                if matches!(place, 4 | 7) { *byte == b'-' } else { byte.is_ascii_digit() }
            })
        });
        let within = start > 0 && (bytes[start - 1].is_ascii_alphanumeric() || bytes[start - 1] == b'-');
        if is_day && !within && bytes.get(start + 10) != Some(&b'T') {
            shown.replace_range(start..start + 10, "[DAY]");
        }
    }
    let zone = zone();
    let hours: i8 = zone.trim_start_matches("Etc/GMT").parse().unwrap_or_default();
    let offset = format!(" {}{:02}:00", if hours > 0 { '-' } else { '+' }, hours.abs());
    shown.replace(zone, "[ZONE]").replace(&offset, " [OFFSET]")
}

/// Returns a time zone in which it is about noon when the test begins, so that no day ends during it.
fn zone() -> &'static str {
    static ZONE: OnceLock<String> = OnceLock::new();
    ZONE.get_or_init(|| {
        let offset = 12 - jiff::Timestamp::now().to_zoned(jiff::tz::TimeZone::UTC).hour();
        format!("Etc/GMT{}{}", if offset > 0 { '-' } else { '+' }, offset.abs())
    })
}

fn fleet() -> String {
    FLEET.replace("ZONE", zone())
}

#[test]
fn a_looping_agent_is_stopped_at_its_budget() {
    let scene = Scene::with(&fleet());
    scene.start();
    let said = scene.run(&["trigger", "looper", "--wait", "--json"]);
    assert_eq!(said.code, Some(1), "{}", said.stderr);
    let job: Value = serde_json::from_str(&said.stdout).unwrap();
    let calls = std::fs::read_to_string(scene.root.join("calls")).unwrap();
    assert_eq!(calls.lines().count(), 5, "not one call more");
    assert_eq!(
        (job["usage"]["total_cost_usd"].as_f64(), &job["error"]["kind"]),
        (Some(0.05), &"budget".into())
    );
    let id = job["id"].as_str().unwrap();
    let shown = scene.shown(&["job", id]).replace(id, "[JOB]");
    scene.snapshot("money_stopped_in_flight", &[shown]);
}

/// The agent reports one more call after the stop signal.
#[test]
fn budget_stop_names_the_amount_that_usage_shows() {
    let call = r#"echo '{\"type\":\"assistant\",\"content\":\"call\",\"usage\":{\"input_tokens\":100,\"cost_usd\":0.03}}'"#;
    let scene = Scene::with(&format!(
        r#"
agents:
  - name: looper
    runtime: command
    command: [sh, -c, "last() {{ {call}; exit 0; }}; trap last TERM; {call}; {call}; while :; do sleep 0.05; done"]
    budget: {{per_job_usd: 0.05}}
"#
    ));
    scene.start();
    let said = scene.run(&["trigger", "looper", "--wait", "--json"]);
    assert_eq!(said.code, Some(1), "{}", said.stderr);
    let job: Value = serde_json::from_str(&said.stdout).unwrap();
    assert_eq!(job["usage"]["total_cost_usd"].as_f64(), Some(0.09), "{job:#}");
    let message = job["error"]["message"].as_str().unwrap();
    assert!(message.contains("is used up: $0.09 spent"), "{message}");
    let usage = scene.run(&["usage"]).stdout;
    assert!(usage.contains("$0.09"), "{usage}");
}

#[test]
fn job_over_budget_waits_with_reason() {
    let scene = Scene::with(&fleet());
    scene.start();
    let first = scene.json(&["trigger", "spender", "--wait"]);
    assert_eq!(first["status"], "completed");
    let second = scene.json(&["trigger", "spender"])["id"].as_str().unwrap().to_owned();
    let job =
        wait_until("the job to wait", || Some(scene.job(&second)).filter(|job| job["waits"].is_object()));
    assert_eq!((&job["status"], &job["waits"]["reason"]), (&"pending".into(), &"over_budget".into()));
    let texts = [
        scene.shown(&["job", &second]).replace(&second, "[JOB]"),
        scene.shown(&["why", "spender/nightly"]),
        scene.shown(&["schedule", "list"]),
        scene.shown(&["status"]),
        scene.shown(&["usage"]),
        scene.shown(&["usage", "--by", "agent"]),
        scene.shown(&["usage", "--by", "model"]),
        scene.shown(&["usage", "--by", "schedule"]),
        scene.shown(&["usage", "--by", "job", "--agent", "spender"]),
        scene.shown(&["usage", "--by", "work-item"]),
        scene.shown(&["usage", "--since", "someday"]),
    ];
    scene.snapshot("money_over_budget", &texts.map(days));
    let third = scene.run(&["trigger", "spender"]);
    assert!(
        third.stderr.starts_with("note: the job waits: spender's daily budget of $0.05 has no room"),
        "{}",
        third.stderr
    );
    // A cron firing is skipped, and the ledger gives the reason.
    scene.write("cowhand.yaml", &fleet().replace("prompt: Work., enabled: false", "prompt: Work."));
    let skipped = wait_until("a firing to be skipped", || {
        let why = scene.json(&["why", "spender/minutely"]);
        why["firings"].as_array().unwrap().iter().find(|firing| firing["reason"] == "over_budget").cloned()
    });
    assert_eq!(skipped["outcome"], "skipped");
    let said = scene.run(&["why", "spender/minutely"]).stdout;
    let said = said.split_whitespace().collect::<Vec<_>>().join(" ");
    assert!(
        said.contains("Its due times are skipped until ") && said.contains(" It fires next in "),
        "{said}"
    );
    assert!(!said.contains("It waits"), "{said}");
    // With a larger budget, the job that waited runs.
    scene.write("cowhand.yaml", &fleet().replace("per_day_usd: 0.05", "per_day_usd: 5"));
    let job = wait_until("the job to run", || {
        Some(scene.job(&second)).filter(|job| job["finished_at"].is_string())
    });
    assert_eq!(job["status"], "completed", "{job:#}");
}

#[test]
fn failing_schedule_pauses_until_a_job_succeeds() {
    let scene = Scene::with(BROKEN);
    scene.start();
    let paused = || {
        wait_until("the schedule to pause", || {
            let why = scene.json(&["why", "broken/often"]);
            (why["schedule"]["status"] == "paused").then_some(why)
        })
    };
    let why = paused();
    assert_eq!(why["firings"].as_array().unwrap().len(), 3, "{why:#}");
    let texts = [
        scene.shown(&["why", "broken/often", "--limit", "1"]),
        scene.shown(&["schedule", "list"]),
        scene.shown(&["status", "broken"]),
    ];
    let pid = |text: String| {
        let mut shown = String::new();
        for (number, part) in text.split("cannot work, ").enumerate() {
            let part = if number == 0 {
                part
            } else {
                part.trim_start_matches(|digit: char| digit.is_ascii_digit())
            };
            shown += if number == 0 { "" } else { "cannot work, [PID]" };
            shown += part;
        }
        shown
    };
    scene.snapshot("money_paused", &texts.map(pid));
    // A person triggers the schedule before and after the repair.
    assert_eq!(scene.run(&["trigger", "broken", "often", "--wait"]).code, Some(1));
    assert_eq!(scene.json(&["why", "broken/often"])["schedule"]["status"], "paused");
    scene.write("mended", "");
    assert_eq!(scene.run(&["trigger", "broken", "often", "--wait"]).code, Some(0));
    let status = scene.json(&["why", "broken/often"])["schedule"]["status"].clone();
    assert!(status == "idle" || status == "running", "{status}");
    let kinds = scene.run(&["events", "--json", "--limit", "1000"]).stdout;
    assert!(kinds.contains("\"schedule:paused\"") && kinds.contains("\"schedule:resumed\""), "{kinds}");
    // `schedule enable` also ends a pause.
    std::fs::remove_file(scene.root.join("mended")).unwrap();
    paused();
    assert_eq!(scene.run(&["schedule", "enable", "broken/often"]).code, Some(0));
    assert_ne!(scene.json(&["why", "broken/often"])["schedule"]["status"], "paused");
}

/// Tokens of a model without a known price count as those of an expensive model, and the job still completes.
#[test]
fn tokens_without_price_count_as_expensive() {
    let fleet = r#"
agents:
  - name: talker
    runtime: command
    command: [sh, -c, "echo '{\"type\":\"assistant\",\"content\":\"hm\",\"model\":\"m\",\"usage\":{\"input_tokens\":4000}}'"]
    budget: {per_day_usd: 0.5}
"#;
    let scene = Scene::with(fleet);
    scene.start();
    let run = || -> Value {
        serde_json::from_str(&scene.run(&["trigger", "talker", "--wait", "--json"]).stdout).unwrap()
    };
    let job = run();
    assert_eq!(
        (&job["status"], job["usage"]["total_cost_usd"].as_f64(), job["usage"]["assumed_usd"].as_f64()),
        (&"completed".into(), None, Some(0.4)),
        "{job:#}"
    );
    assert_eq!(job["usage"]["per_model"]["m"]["input_tokens"], 4000, "{job:#}");
    let told = scene.run(&["job", job["id"].as_str().unwrap()]).stdout;
    assert!(told.contains("≤ $0.40, 4,000 tokens"), "{told}");
    assert!(
        told.contains(
            "$0.40 of that is assumed, because the price of m is not known; add it to `prices` of the root file"
        ),
        "{told}"
    );
    let usage = scene.json(&["usage"]);
    for sum in ["/total", "/agents/0", "/schedules/0", "/models/0", "/jobs/0"] {
        let sum = usage.pointer(sum).unwrap();
        assert_eq!((&sum["cost_usd"], &sum["assumed_usd"]), (&0.4.into(), &0.4.into()), "{usage:#}");
    }
    for by in ["day", "agent", "model", "schedule", "job"] {
        let shown = scene.run(&["usage", "--by", by]).stdout;
        assert_eq!(shown.matches("≤ $0.40").count(), 2, "{shown}");
        assert!(shown.contains("($0.40 of it assumed)"), "{shown}");
    }
    // The second job uses the rest of the budget, and the third waits.
    assert_eq!(run()["usage"]["assumed_usd"].as_f64(), Some(0.1));
    scene.run(&["trigger", "talker"]);
    let waits = wait_until("a job to wait", || {
        let jobs = scene.json(&["jobs", "--status", "pending"]);
        scene.json(&["job", jobs[0]["id"].as_str()?])["waits"]["message"].as_str().map(str::to_owned)
    });
    assert!(waits.contains("talker's daily budget of $0.50 is used up"), "{waits}");
    // Without a limit in dollars nothing is assumed.
    scene.write("cowhand.yaml", &fleet.replace("per_day_usd: 0.5", "per_day_tokens: 100000"));
    assert_eq!(scene.run(&["reload"]).code, Some(0));
    assert_eq!(run()["usage"]["assumed_usd"], Value::Null);
    scene.write(
        "cowhand.yaml",
        &format!("prices: {{m: {{input: 100, output: 1}}}}{fleet}").replace("0.5", "9"),
    );
    assert_eq!(scene.run(&["reload"]).code, Some(0));
    assert_eq!(run()["usage"]["total_cost_usd"].as_f64(), Some(0.4));
}

/// The agent uses no tools, and costs money each time.
#[test]
fn schedule_pauses_after_jobs_without_tool_use() {
    let scene = Scene::with(
        r#"
agents:
  - name: talker
    runtime: command
    command: [sh, -c, "[ ! -e tools ] || echo '{\"type\":\"tool_use\",\"tool_name\":\"sh\"}'; echo '{\"type\":\"assistant\",\"content\":\"hm\",\"usage\":{\"input_tokens\":9,\"cost_usd\":0.01}}'"]
    breaker: {empty_runs: 2, empty_usd: 0.02}
    schedules:
      often: {type: interval, interval: 1s}
"#,
    );
    scene.write("tools", "");
    scene.start();
    let schedule = || scene.json(&["schedule", "show", "talker/often"]);
    wait_until("three jobs that do something", || {
        (scene.json(&["jobs", "--status", "completed"]).as_array()?.len() >= 3).then_some(())
    });
    assert_ne!(schedule()["status"], "paused");
    std::fs::remove_file(scene.root.join("tools")).unwrap();
    let paused =
        wait_until("the schedule to pause", || Some(schedule()).filter(|view| view["status"] == "paused"));
    let why = paused["skip_note"].as_str().unwrap();
    assert_eq!(why, "2 jobs in a row used no tool and cost $0.02");
}

/// There is no repository for a workspace, so no attempt can start.
#[test]
fn a_schedule_whose_jobs_cannot_start_pauses() {
    let scene = Scene::with(
        r"
agents:
  - name: stuck
    runtime: command
    command: [sh, -c, cat]
    isolation: worktree
    breaker: {failures: 2, pause: 1h}
    schedules:
      often: {type: interval, interval: 1s}
",
    );
    scene.start();
    let schedule = || scene.json(&["schedule", "show", "stuck/often"]);
    let paused =
        wait_until("the schedule to pause", || Some(schedule()).filter(|view| view["status"] == "paused"));
    let why = paused["skip_note"].as_str().unwrap();
    assert!(why.starts_with("2 jobs in a row failed the same way: "), "{why}");
    assert!(why.ends_with("(start_failed)"), "{why}");
    assert_eq!(scene.json(&["jobs"]).as_array().unwrap().len(), 2);
}

/// Tokens without a known price are not shown as free.
#[test]
fn tokens_without_price_are_not_shown_as_free() {
    let scene = Scene::with(
        r#"
agents:
  - name: quiet
    runtime: command
    command: [sh, -c, "echo '{\"type\":\"system\",\"subtype\":\"usage\",\"model\":\"m\",\"usage\":{\"input_tokens\":1000}}'"]
"#,
    );
    scene.start();
    scene.json(&["trigger", "quiet", "--wait"]);
    for by in ["day", "agent", "model", "schedule", "job"] {
        let said = scene.run(&["usage", "--by", by]).stdout;
        assert!(said.contains("no price reported, 1,000 tokens, 1 attempt") && !said.contains('$'), "{said}");
    }
    let usage = scene.json(&["usage"]);
    assert_eq!((&usage["jobs"][0]["tokens"], &usage["jobs"][0]["cost_usd"]), (&1000.into(), &Value::Null));
}

/// All lists and the budgets contain what the running attempt has reported so far. After its end, they show the same.
#[test]
fn usage_contains_what_running_attempts_have_reported() {
    let scene = Scene::with(&format!(
        r#"
budget: {{per_day_usd: 1, timezone: {}}}
agents:
  - name: slow
    runtime: command
    command: [sh, -c, "echo '{{\"type\":\"assistant\",\"content\":\"call\",\"model\":\"m\",\"usage\":{{\"input_tokens\":1000,\"cost_usd\":0.2}}}}'; while [ ! -e go ]; do sleep 0.05; done"]
    work_source: {{type: files, path: tasks}}
    schedules:
      tasks: {{type: interval, interval: 1h, prompt: Work.}}
"#,
        zone()
    ));
    std::fs::create_dir(scene.root.join("tasks")).unwrap();
    scene.write("tasks/one.md", "---\ntitle: Mend the roof\n---\nMend it.\n");
    scene.start();
    let yesterday = || {
        let day = jiff::Timestamp::now().to_zoned(jiff::tz::TimeZone::get(zone()).unwrap()).date();
        day.yesterday().unwrap().to_string()
    };
    let check = |usage: &Value, state: &str| {
        for sum in
            ["/total", "/agents/0", "/schedules/0", "/models/0", "/work_items/0", "/jobs/0", "/days/29"]
        {
            let shown = usage.pointer(sum).unwrap_or_else(|| panic!("{sum}: {usage:#}"));
            assert_eq!(shown["cost_usd"], 0.2, "{state} {sum}: {usage:#}");
            if sum != "/models/0" {
                assert_eq!(shown["attempts"], 1, "{state} {sum}: {usage:#}");
            }
        }
        assert_eq!(
            (&usage["budgets"][0]["spent"], &usage["jobs"][0]["status"]),
            (&0.2.into(), &state.into())
        );
        for by in ["day", "agent", "model", "schedule", "work-item", "job"] {
            let said = scene.run(&["usage", "--by", by]).stdout;
            assert!(said.contains("$0.20, 1,000 tokens, 1 attempt"), "{said}");
            assert_eq!(said.matches("$0.20").count(), 3, "the sum, the row and the budget: {said}");
        }
        // Days without now.
        let past = scene.json(&["usage", "--until", &yesterday()]);
        assert_eq!(
            (&past["total"]["attempts"], &past["jobs"], &past["work_items"]),
            (&0.into(), &Value::Array(vec![]), &Value::Array(vec![]))
        );
        assert_eq!(scene.json(&["usage", "--agent", "slow"])["jobs"].as_array().unwrap().len(), 1);
    };
    let usage = wait_until("the first report", || {
        Some(scene.json(&["usage"])).filter(|usage| usage["total"]["cost_usd"] == 0.2)
    });
    check(&usage, "running");
    scene.write("go", "");
    let usage = wait_until("the end of the job", || {
        Some(scene.json(&["usage"])).filter(|usage| usage["jobs"][0]["status"] == "completed")
    });
    check(&usage, "completed");
}

/// Every sum has the field, as the lists of jobs do. The tool `usage` for assistants gives the same answer.
#[test]
fn a_cost_that_is_not_known_is_null_in_usage() {
    let scene = Scene::started();
    assert_eq!(scene.run(&["trigger", "worker", "--wait"]).code, Some(0));
    let usage = scene.json(&["usage"]);
    for sum in ["/total", "/agents/0", "/days/0", "/schedules/0"] {
        let cost = usage.pointer(&format!("{sum}/cost_usd"));
        assert_eq!(cost, Some(&Value::Null), "{sum}: {usage}");
    }
}

/// The job that `cancel_previous` cancels has reserved the whole budget.
#[test]
fn job_that_reserved_the_budget_is_cancelled_by_its_successor() {
    for budget in [
        "budget: {per_day_usd: 5}\nagents:\n  - name: one",
        "agents:\n  - name: one\n    budget: {per_day_usd: 5}",
    ] {
        let scene = Scene::with(&format!(
            "{budget}
    runtime: command
    command: [sleep, '600']
    schedules: {{cp: {{type: cron, cron: '* * * * * *', overlap: cancel_previous, prompt: Go.}}}}
"
        ));
        scene.start();
        wait_until("two jobs to be cancelled by their successors", || {
            let cancelled = scene.json(&["jobs", "--status", "cancelled"]);
            (cancelled.as_array().unwrap().iter().filter(|job| !job["started_at"].is_null()).count() >= 2)
                .then_some(())
        });
    }
}

/// A job that a person started gets the place of a job that `cancel_previous` cancels.
#[test]
fn job_by_hand_is_not_overtaken_by_jobs_that_replace_each_other() {
    let scene = Scene::with(
        "agents:
  - name: a
    runtime: command
    command: [sh, -c, 'grep -q hand || sleep 600']
    schedules:
      cp: {type: cron, cron: '* * * * * *', overlap: cancel_previous, prompt: clock}
      m: {type: manual, prompt: hand}
",
    );
    scene.start();
    wait_until("the place to be taken", || {
        (!scene.json(&["jobs", "--status", "running"]).as_array().unwrap().is_empty()).then_some(())
    });
    let by_hand = scene.json(&["trigger", "a", "m", "--wait"]);
    assert_eq!(by_hand["status"], "completed", "{by_hand}");
}

const PAUSED_OVER_BUDGET: &str = r#"
budget: {timezone: ZONE}
agents:
  - name: a
    runtime: command
    command: [sh, -c, "echo '{\"type\":\"system\",\"subtype\":\"usage\",\"model\":\"m\",\"usage\":{\"input_tokens\":1,\"cost_usd\":0.5}}'; exit 1"]
    budget: {per_day_usd: 0.9}
    breaker: {failures: 1, pause: 1m}
    schedules: {c: {type: cron, cron: '* * * * * *', prompt: Go.}}
"#;

/// A schedule that is paused, and whose budget is used up for longer than the pause, tries again when the budget is
/// renewed.
#[test]
fn paused_schedule_over_budget_names_the_later_time() {
    let scene = Scene::with(&PAUSED_OVER_BUDGET.replace("ZONE", zone()));
    scene.start();
    let view = wait_until("the pause", || {
        let view = scene.json(&["schedule", "show", "a/c"]);
        (view["status"] == "paused").then_some(view)
    });
    let note = view["skip_note"].as_str().unwrap();
    assert!(note.contains("; its pause ends at ") && note.contains("daily budget of $0.90"), "{note}");
}
