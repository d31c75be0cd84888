//! Schedules: list, turning on and off, and reasons.

use jiff::{SignedDuration, Timestamp};

use super::{Scene, wait_until};

#[test]
fn schedule_verbs_show_state() {
    let scene = Scene::started();
    scene.run(&["trigger", "worker", "tidy", "--wait"]);
    scene.run(&["schedule", "disable", "worker/tidy"]);
    let verbs: [&[&str]; 6] = [
        &["schedule", "list"],
        &["schedule", "list", "--json"],
        &["schedule", "show", "worker/nightly"],
        &["why", "worker/tidy"],
        &["why", "worker/nightly"],
        &["schedule", "show", "worker/never"],
    ];
    scene.snapshot("schedule_verbs_show_state", &verbs.map(|verb| scene.shown(verb)));
}

/// A `dispatch_result` can name the id, so all verbs show it, and it is always the same.
#[test]
fn schedule_id_is_shown_by_list_and_show() {
    let scene = Scene::new();
    let listed = scene.json(&["schedule", "list"]);
    for schedule in listed.as_array().unwrap() {
        let name =
            format!("{}/{}", schedule["agent"].as_str().unwrap(), schedule["schedule"].as_str().unwrap());
        assert_eq!(scene.json(&["schedule", "show", &name])["id"], schedule["id"], "{name}");
        assert_eq!(schedule["id"].as_str().unwrap().len(), 36, "{name}");
    }
}

#[test]
fn disabled_schedule_stays_disabled_after_restart() {
    let scene = Scene::started();
    let status = || scene.json(&["schedule", "show", "worker/nightly"])["status"].clone();
    assert_eq!(scene.json(&["schedule", "disable", "worker/nightly"])["status"], "disabled");
    assert_eq!(scene.run(&["restart"]).code, Some(0));
    assert_eq!(status(), "disabled");
    assert_eq!(scene.run(&["reload"]).code, Some(0));
    assert_eq!(status(), "disabled");
    let by_hand = scene.json(&["trigger", "worker", "nightly", "--wait"]);
    assert_eq!(by_hand["status"], "completed", "a person can still fire it");
    assert_eq!(scene.json(&["schedule", "enable", "worker/nightly"])["status"], "idle");
    assert_eq!(scene.run(&["restart"]).code, Some(0));
    assert_eq!(status(), "idle");
}

#[test]
fn schedule_next_lists_firings() {
    let scene = Scene::with(
        "agents:
  - name: a
    runtime: command
    command: ['true']
    schedules:
      office: {type: cron, cron: 0 */6 * * *, timezone: UTC, active_hours: {start: '08:00', end: '20:00'}}
      often: {type: interval, interval: 5h, start_at: '2030-01-01T00:00:00Z'}
      asked: {type: manual}
",
    );
    let from = ["--from", "2030-01-01T00:00:00Z", "--count", "3"];
    let verbs: [&[&str]; 5] = [
        &["schedule", "next", "a/office"],
        &["schedule", "next", "a/office", "--json"],
        &["schedule", "next", "--json"],
        &["schedule", "next", "a/asked"],
        &["schedule", "next", "a/never"],
    ];
    let shown = verbs.map(|verb| scene.run(&[verb, &from].concat()));
    let shown = shown.map(|said| format!("exit: {}\n{}{}", said.code.unwrap(), said.stdout, said.stderr));
    insta::assert_snapshot!(shown.join("\n"));
}

/// Tests four of the five promised reasons. The fifth, `at_capacity`, has its own test below.
#[test]
fn why_gives_reason_for_each_idle_schedule() {
    let scene = Scene::with(
        "agents:
  - name: a
    runtime: command
    command: [sh, -c, 'while [ ! -e go ]; do sleep 0.05; done']
    chat: {slack: {users: [U1], bot_token_env: NO_TOKEN}}
    schedules:
      often: {type: interval, interval: 1h}
      yearly: {type: cron, cron: '0 0 1 1 *', timezone: UTC}
      hook: {type: webhook, allow_unsigned: true}
      talk: {type: chat}
      asked: {type: manual}
      off: {type: cron, cron: '0 0 1 1 *', enabled: false}
",
    );
    scene.start();
    super::wait_until("the first run", || (scene.json(&["jobs"])[0]["status"] == "running").then_some(()));
    let expected = [
        ("often", "already_running", "It waits: its previous job has not ended."),
        ("yearly", "not_due", "It is not due: it fires next in"),
        ("hook", "unsupported_type", "A schedule of type webhook does not fire by the clock."),
        ("talk", "unsupported_type", "A schedule of type chat does not fire by the clock."),
        ("asked", "unsupported_type", "A schedule of type manual does not fire by the clock."),
        ("off", "disabled", "a/off is turned off"),
    ];
    for (name, reason, words) in expected {
        let name = format!("a/{name}");
        assert_eq!(scene.json(&["schedule", "show", &name])["skip_reason"], reason, "{name}");
        assert_eq!(scene.json(&["why", &name])["schedule"]["skip_reason"], reason, "{name}");
        let said = scene.run(&["why", &name]).stdout;
        assert!(said.contains(words), "{name}: {said}");
    }
    scene.write("go", "");
    super::wait_until("it to be over", || {
        (scene.json(&["schedule", "show", "a/often"])["skip_reason"] == "not_due").then_some(())
    });
}

#[test]
fn next_run_at_equals_next_firing() {
    let scene = Scene::with(
        "agents:
  - name: a
    runtime: command
    command: ['true']
    schedules:
      nightly: {type: cron, cron: 0 3 * * *, timezone: UTC}
      often: {type: interval, interval: 5h, jitter: 0}
",
    );
    scene.start();
    let often = super::wait_until("the first run to end", || {
        let often = scene.json(&["schedule", "show", "a/often"]);
        often["last_run_at"].is_string().then_some(often)
    });
    let time = |value: &serde_json::Value| value.as_str().unwrap().parse::<Timestamp>().unwrap();
    assert_eq!(time(&often["next_run_at"]), time(&often["last_run_at"]) + SignedDuration::from_hours(5));
    // This could only fail if the schedule fires between the two requests.
    let nightly = scene.json(&["schedule", "show", "a/nightly"]);
    let next = scene.json(&["schedule", "next", "--cron", "0 3 * * *", "--timezone", "UTC", "--count", "1"]);
    assert_eq!(time(&nightly["next_run_at"]), time(&next[0]));
}

#[test]
fn why_reports_at_capacity() {
    let agent = "agents:
  - name: a
    runtime: command
    command: [sh, -c, 'while [ ! -e go ]; do sleep 0.05; done']
    schedules:
      first: {type: manual}
";
    let scene = Scene::with(agent);
    scene.start();
    let first = scene.json(&["trigger", "a", "first"]);
    scene.write("cowhand.yaml", &format!("{agent}      often: {{type: interval, interval: 1h}}\n"));
    scene.json(&["reload"]);
    super::wait_until("the second to wait", || {
        (scene.json(&["schedule", "show", "a/often"])["skip_reason"] == "at_capacity").then_some(())
    });
    let said = scene.run(&["why", "a/often"]).stdout;
    assert!(said.contains("and waits: all places of the agent (`max_concurrent`) are taken"), "{said}");
    scene.json(&["cancel", first["id"].as_str().unwrap()]);
    super::wait_until("its turn", || {
        (scene.json(&["why", "a/often"])["firings"][0]["outcome"] == "ran").then_some(())
    });
}

/// A run by hand does not move an interval, so it is not an own run of the schedule. All verbs use the term `own run`.
#[test]
fn run_by_hand_does_not_set_last_run() {
    let scene = Scene::started();
    scene.json(&["trigger", "worker", "tidy", "--wait"]);
    let shown = scene.json(&["schedule", "show", "worker/tidy"]);
    assert_eq!(shown["last_run_at"], serde_json::Value::Null);
    let list = scene.run(&["schedule", "list"]).stdout;
    assert!(list.contains("LAST OWN RUN"), "{list}");
    let why = scene.run(&["why", "worker/tidy"]).stdout;
    assert!(!why.contains("last run") && why.contains("fired by hand"), "{why}");
}

/// The only schedule that the clock fires is an interval whose job runs.
#[test]
fn next_firing_of_interval_counts_from_end_of_job() {
    let scene = Scene::with(
        "agents: [{name: a, runtime: command, command: [sleep, '600'], schedules: {s: {type: interval, interval: 1s}}}]",
    );
    scene.start();
    wait_until("its job to run", || {
        (scene.json(&["schedule", "show", "a/s"])["status"] == "running").then_some(())
    });
    let said = scene.run(&["schedule", "next"]).stdout.split_whitespace().collect::<Vec<_>>().join(" ");
    let expected = "no time of a next firing is known: the interval of a/s counts from the end of its running job; \
                    `cowhand why a/s` shows details";
    assert_eq!(said, expected);
    scene.run(&["cancel", "--all", "--yes"]);
}

/// A command that connects several times says only once that the config has errors.
#[test]
fn note_about_config_errors_is_printed_once() {
    let scene =
        Scene::with("agents:\n  - {name: a, schedules: {s: {type: manual, prompt: Go.}}, wrong: 1}\n");
    let said = scene.run(&["schedule", "next"]);
    assert_eq!(said.stderr.matches("the config has errors").count(), 1, "{}", said.stderr);
}

/// A person passes values for the names in the prompt of a manual schedule.
#[test]
fn trigger_inserts_values_into_prompt_of_manual_schedule() {
    let scene = Scene::with(
        "agents:
  - name: a
    runtime: command
    command: [cat]
    schedules:
      s: {type: manual, prompt: 'Fix {{ issue }} in {{ place }}.'}
      plain: {type: manual, prompt: Go.}
      whole: {type: manual, prompt: 'All: {{ metadata }}.'}
      timed: {type: cron, cron: 0 3 * * *, prompt: Go.}
",
    );
    scene.start();
    let values = ["--value", "issue=42", "--value", "place=the old = sign"];
    let job = scene.json(&[&["trigger", "a", "s"], &values[..]].concat());
    assert_eq!(job["prompt"], "Fix 42 in the old = sign.");
    let job = scene.json(&["trigger", "a", "whole", "--value", "any=1"]);
    assert!(job["prompt"].as_str().unwrap().contains("any"), "`metadata` contains every value: {job}");
    for (arguments, code, says) in [
        (&["trigger", "a", "timed"][..], 2, "only into the prompt of a `manual` schedule"),
        (&["trigger", "a"], 2, "only into the prompt of a `manual` schedule"),
        (&["trigger", "a", "s", "-p", "Own."], 2, "give no prompt of your own"),
        (&["trigger", "a", "s", "--value", "issue"], 2, "write NAME=VALUE"),
        (&["trigger", "a", "s", "--value", "a.b=1"], 2, "letters, digits and `_`"),
        (&["trigger", "a", "s", "--value", "issue=43"], 2, "the value of `issue` is given twice"),
        (&["trigger", "a", "s", "--value", "date=today"], 2, "`date` has a value already"),
        (&["trigger", "a", "s", "--value", "metadata=x"], 2, "`metadata` has a value already"),
        (
            &["trigger", "a", "s", "--value", "ticket=43"],
            2,
            "the prompt of a/s does not use `ticket`; it uses `issue`, `place`",
        ),
        (
            &["trigger", "a", "plain", "--value", "x=1"],
            2,
            "the prompt of a/plain does not use `x`, `issue`, `place`; it uses no values",
        ),
    ] {
        let said = scene.run(&[arguments, &values[..]].concat());
        let stderr = said.stderr.split_whitespace().collect::<Vec<_>>().join(" ");
        assert!(said.code == Some(code) && stderr.contains(says), "{arguments:?}: {:?} {stderr}", said.code);
    }
}

/// A fleet whose daemon never ran has no rows in its store.
#[test]
fn schedule_past_its_end_is_finished_without_a_daemon() {
    let scene = Scene::with(
        "agents:
  - name: a
    runtime: command
    command: [cat]
    schedules:
      over: {type: interval, interval: 1h, end_at: '2020-01-01T00:00:00Z', prompt: Go.}
      hand: {type: manual, end_at: '2020-01-01T00:00:00Z', prompt: Go.}
",
    );
    let shown = || {
        let views = scene.json(&["schedule", "list"]);
        let view = |view: &serde_json::Value| (view["status"].clone(), view["skip_reason"].clone());
        views.as_array().unwrap().iter().map(view).collect::<Vec<_>>()
    };
    let before = shown();
    scene.start();
    wait_until("the daemon to finish it", || (shown()[0].0 == "finished").then_some(()));
    assert_eq!(before, shown());
}

#[test]
fn enabling_schedule_past_its_end_says_what_to_do() {
    let scene = Scene::with(
        "agents:
  - name: w
    runtime: command
    command: ['true']
    schedules: {c: {type: cron, cron: 0 3 * * *, end_at: 2020-01-01T00:00:00Z}}
",
    );
    scene.start();
    let refused = || scene.run(&["schedule", "enable", "w/c"]).stderr;
    assert!(refused().contains("it fires again with a later `end_at` in its file"), "{}", refused());
    assert_eq!(scene.run(&["schedule", "disable", "w/c"]).code, Some(0));
    let advice = "set a later `end_at` in its file, and then run `cowhand schedule enable w/c`";
    assert!(refused().contains(advice) && !refused().contains("fires again"), "{}", refused());
}

#[test]
fn disabled_delay_stays_off_with_new_time() {
    let fleet = |wait: &str| {
        format!(
            "agents: [{{name: w, runtime: command, command: ['true'], schedules: {{d: {{type: delay, in: {wait}}}}}}}]"
        )
    };
    let scene = Scene::with(&fleet("1s"));
    scene.start();
    let status = || scene.json(&["schedule", "show", "w/d"])["status"].clone();
    wait_until("it to fire", || (status() == "finished").then_some(()));
    let disable = || scene.run(&["schedule", "disable", "w/d"]);
    assert_eq!(disable().code, Some(0));
    let events = scene.run(&["events", "--json"]).stdout;
    assert!(events.contains("schedule:disabled"), "{events}");
    assert_eq!(status(), "finished");
    let why = scene.run(&["why", "w/d"]).stdout.split_whitespace().collect::<Vec<_>>().join(" ");
    assert!(why.contains("after `cowhand schedule enable w/d`, because it is turned off"), "{why}");
    scene.write("cowhand.yaml", &fleet("2s"));
    assert_eq!(scene.run(&["reload"]).code, Some(0));
    assert_eq!(status(), "disabled");
    assert_eq!(scene.run(&["schedule", "enable", "w/d"]).code, Some(0));
    let ran = || scene.json(&["jobs"]).as_array().unwrap().len();
    wait_until("it to fire again", || (ran() == 2).then_some(()));
    // Enabling takes back a `disable` after the firing.
    wait_until("it to finish", || (status() == "finished").then_some(()));
    disable();
    assert_eq!(scene.run(&["schedule", "enable", "w/d"]).code, Some(0));
    assert_ne!(scene.run(&["schedule", "enable", "w/d"]).code, Some(0), "it has fired");
    scene.write("cowhand.yaml", &fleet("3s"));
    assert_eq!(scene.run(&["reload"]).code, Some(0));
    wait_until("it to fire a third time", || (ran() == 3).then_some(()));
}
