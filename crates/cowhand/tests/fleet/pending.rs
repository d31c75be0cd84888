//! Jobs that have not started: every verb that shows them also shows what they wait for.

use jiff::{SignedDuration, Timestamp};

use super::{Scene, wait_until};

/// Returns the output without line breaks, which depend on the width of the terminal.
fn said(scene: &Scene, arguments: &[&str]) -> String {
    scene.run(arguments).stdout.split_whitespace().collect::<Vec<_>>().join(" ")
}

#[test]
fn pending_job_shows_what_it_waits_for() {
    let scene = Scene::with(
        "agents:
  - name: a
    runtime: command
    command: [sleep, '600']
    schedules:
      often: {type: interval, interval: 1s, when_command: [sh, -c, 'while [ ! -e ready ]; do sleep 0.05; done']}
      asked: {type: manual}
",
    );
    scene.start();
    let first = scene.json(&["trigger", "a", "asked"])["id"].as_str().unwrap().to_owned();
    wait_until("the first to run", || (scene.json(&["job", &first])["status"] == "running").then_some(()));
    scene.write("ready", "");
    let second = wait_until("the second to be made", || {
        let jobs = scene.json(&["jobs", "--status", "pending"]);
        jobs[0]["id"].as_str().map(str::to_owned)
    });
    let place = "the only place of a is taken (`max_concurrent`); it is the next";
    let why = said(&scene, &["why", "a/often"]);
    assert!(why.contains(&format!("It waits: {second} is pending: {place}.")), "{why}");
    assert!(!why.contains("its previous"), "{why}");
    let shown = scene.json(&["schedule", "show", "a/often"]);
    assert_eq!(shown["skip_reason"], "at_capacity", "{shown}");
    let list = said(&scene, &["schedule", "list"]);
    assert!(!list.contains("already_running") && list.contains("is pending"), "{list}");
    let status = said(&scene, &["status"]);
    assert!(status.contains(&format!("waits: {second} of a: {place}")), "{status}");
    assert_eq!(scene.run(&["stop", "--timeout", "0"]).code, Some(0));
    let nobody = "no daemon runs; it starts when a daemon does";
    let why = said(&scene, &["why", "a/often"]);
    assert!(why.contains(&format!("It waits: {second} is pending: {nobody}.")), "{why}");
    let list = said(&scene, &["schedule", "list"]);
    assert!(!list.contains("already_running") && list.contains("is pending"), "{list}");
    let status = said(&scene, &["status"]);
    assert!(status.contains(&format!("waits: {second} of a: {nobody}")), "{status}");
    assert!(said(&scene, &["job", &second]).contains(nobody));
}

#[test]
fn a_retry_that_is_due_while_no_daemon_runs_is_explained() {
    let scene = Scene::with(
        "agents:
  - name: a
    runtime: command
    command: [sh, -c, 'exit 3']
    retry: {max_attempts: 3, backoff: 3s, on: [error]}
    schedules:
      often: {type: interval, interval: 1h}
",
    );
    scene.start();
    let id = wait_until("the retry", || {
        let jobs = scene.json(&["jobs", "--status", "pending"]);
        let id = jobs[0]["id"].as_str()?.to_owned();
        (scene.json(&["job", &id])["waits"]["reason"] == "requeued").then_some(id)
    });
    scene.kill_daemon();
    let message = wait_until("the retry to be due", || {
        let waits = scene.json(&["job", &id])["waits"].take();
        let message = waits["message"].as_str().map(str::to_owned);
        message.filter(|message| message.contains("the retry has been due since"))
    });
    assert!(
        message.starts_with("attempt ") && message.contains("exit code 3; the retry has been due"),
        "{message}"
    );
    let nobody = "and waits: no daemon runs; it starts when a daemon does";
    assert!(message.ends_with(nobody), "{message}");
    for arguments in [&["why", "a/often"][..], &["status"], &["job", &id]] {
        let said = said(&scene, arguments);
        assert!(
            said.contains("exit code 3; the retry has been due since") && said.contains(nobody),
            "{said}"
        );
        assert!(!said.contains("its previous"), "{said}");
    }
    let shown = scene.json(&["schedule", "show", "a/often"]);
    assert_eq!((&shown["skip_reason"], &shown["skip_note_reason"]), (&"requeued".into(), &"requeued".into()));
}

#[test]
fn pending_retry_names_original_job() {
    let scene = Scene::with(
        "agents:
  - name: a
    runtime: command
    command: [sh, -c, 'if [ -e block ]; then while [ ! -e go ]; do sleep 0.05; done; fi']
    schedules: {asked: {type: manual}}
",
    );
    scene.start();
    let made = |arguments: &[&str]| scene.json(arguments)["id"].as_str().unwrap().to_owned();
    let first = made(&["trigger", "a"]);
    wait_until("it to end", || (scene.json(&["job", &first])["status"] == "completed").then_some(()));
    scene.write("block", "");
    let busy = made(&["trigger", "a"]);
    wait_until("the place to be taken", || {
        (scene.json(&["job", &busy])["status"] == "running").then_some(())
    });
    let retry = made(&["retry", &first]);
    let logs = scene.run(&["logs", &retry]).stdout;
    assert!(
        logs.contains(&format!("{retry} pending, a retry of {first}: the only place of a is taken")),
        "{logs}"
    );
    let listed = scene.json(&["jobs", "--status", "pending"]);
    assert_eq!(listed[0]["waits"]["reason"], "at_capacity", "{listed}");
    scene.write("go", "");
}

#[test]
fn status_names_the_job_that_gets_the_next_place() {
    let scene = Scene::with(
        "agents:
  - name: a
    runtime: command
    command: [sleep, '600']
",
    );
    scene.start();
    let made = || scene.json(&["trigger", "a"])["id"].as_str().unwrap().to_owned();
    let first = made();
    wait_until("the first to run", || (scene.json(&["job", &first])["status"] == "running").then_some(()));
    let next = made();
    // Create more jobs than `status` reads at once.
    for _ in 0..21 {
        made();
    }
    let status = said(&scene, &["status"]);
    let expected =
        format!("waits: {next} of a: the only place of a is taken (`max_concurrent`); it is the next");
    assert!(status.contains(&expected), "{status}");
    assert_eq!(status.matches("waits: ").count(), 1, "{status}");
    assert_eq!(scene.json(&["status"])["agents"][0]["next_job"], next.as_str());
}

#[test]
fn a_retry_that_waits_for_a_budget_names_its_failure() {
    let scene = Scene::with(
        r#"agents:
  - name: a
    runtime: command
    command: [sh, -c, "echo '{\"type\":\"system\",\"subtype\":\"usage\",\"model\":\"m\",\"usage\":{\"input_tokens\":1000,\"cost_usd\":0.05}}'; exit 3"]
    budget: {per_month_usd: 0.08}
    retry: {max_attempts: 3, backoff: 1s, on: [error]}
    schedules: {s: {type: manual}}
"#,
    );
    scene.start();
    let id = scene.json(&["trigger", "a", "s"])["id"].as_str().unwrap().to_owned();
    let waits = wait_until("the retry to wait for the budget", || {
        let mut job = scene.json(&["job", &id]);
        let waits = job["waits"].take();
        (waits["reason"] == "over_budget" && job["attempt"] == 1).then_some(waits)
    });
    let failed = "attempt 1 failed and will be retried: exit code 3";
    let message = waits["message"].as_str().unwrap();
    assert!(message.starts_with(&format!("{failed}; the retry waits: ")), "{message}");
    assert!(said(&scene, &["status"]).contains(failed));
    let why = said(&scene, &["why", "a/s"]);
    assert!(why.contains(&format!("A job waits for a retry: {id}: {failed}.")), "{why}");
}

/// `a/h` and `a/j` fire when a job of `up/m` ends, and wait for their calendar.
fn with_calendars(h: &str, j: &str) -> String {
    format!(
        "agents:
  - name: up
    runtime: command
    command: ['true']
    schedules: {{m: {{type: manual, prompt: Go.}}}}
  - name: a
    runtime: command
    command: [cat]
    schedules:
      h: {{type: dispatch_result, schedule: up/m, prompt: h{h}}}
      j: {{type: dispatch_result, schedule: up/m, prompt: j{j}}}
"
    )
}

#[test]
fn pending_job_follows_changed_calendar() {
    let days = (0..3).map(|day| (Timestamp::now() + SignedDuration::from_hours(24 * day)).to_string());
    let days: Vec<String> = days.map(|day| day[..10].to_owned()).collect();
    let excluded = format!(", exclude_dates: [{}]", days.join(", "));
    let scene = Scene::with(&with_calendars(&excluded, ", start_at: 2100-01-01T00:00:00Z"));
    scene.start();
    scene.run(&["trigger", "up/m", "--wait"]);
    let pending = || scene.json(&["jobs", "--agent", "a", "--status", "pending"]);
    wait_until("both jobs to be made", || (pending().as_array().unwrap().len() == 2).then_some(()));
    for job in pending().as_array().unwrap() {
        assert_eq!(job["waits"]["reason"], "outside_hours", "{job}");
        assert!(said(&scene, &["status"]).contains(job["id"].as_str().unwrap()));
    }

    scene.write("cowhand.yaml", &with_calendars("", ", start_at: 2090-01-01T00:00:00Z"));
    assert_eq!(scene.run(&["reload"]).code, Some(0));
    wait_until("the job of h to run", || {
        (scene.json(&["jobs", "--agent", "a", "--status", "completed"])[0]["schedule"] == "h").then_some(())
    });
    let moved = &pending()[0];
    assert_eq!((&moved["schedule"], &moved["not_before"]), (&"j".into(), &"2090-01-01T00:00:00Z".into()));
    assert!(scene.run(&["events"]).stdout.contains("job:rescheduled"));

    // Without a daemon, the job keeps its earliest start, and the verbs say so.
    assert_eq!(scene.run(&["stop"]).code, Some(0));
    scene.write("cowhand.yaml", &with_calendars("", ""));
    let waits = "it waits for a calendar that was changed";
    let job = &pending()[0];
    assert!(job["waits"]["message"].as_str().is_some_and(|message| message.starts_with(waits)), "{job}");
    for verb in [&["status"][..], &["why", "a/j"], &["job", job["id"].as_str().unwrap()]] {
        assert!(said(&scene, verb).contains(waits), "{verb:?}: {}", said(&scene, verb));
    }
    scene.start();
    wait_until("the job of j to run", || pending().as_array().unwrap().is_empty().then_some(()));
}

#[test]
fn due_schedule_that_waits_is_shown() {
    let scene = Scene::with(
        "agents:
  - name: a
    runtime: command
    command: [sleep, '600']
    schedules:
      one: {type: manual}
      two: {type: interval, interval: 1s, start_at: START}
"
        .replace("START", &(Timestamp::now() + SignedDuration::from_secs(4)).to_string())
        .as_str(),
    );
    scene.start();
    scene.run(&["trigger", "a/one"]);
    wait_until("two to be due", || {
        scene.json(&["schedule", "show", "a/two"])["due_since"].as_str().map(|_| ())
    });
    let next = said(&scene, &["schedule", "next"]);
    assert!(next.contains("no time of a next firing is known: a/two was due "), "{next}");
    assert!(next.contains(" and waits: "), "{next}");
    let next = said(&scene, &["schedule", "next", "a/two"]);
    assert!(next.contains("a/two has no next firing: it was due "), "{next}");
    wait_until("`status` to show it", || {
        said(&scene, &["status"]).contains("waits: a/two was due ").then_some(())
    });
    assert_eq!(scene.run(&["stop", "--timeout", "0"]).code, Some(0));
    let next = said(&scene, &["schedule", "next", "a/two"]);
    assert!(!next.contains("next tick"), "{next}");
}
