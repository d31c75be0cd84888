//! Schedules that have ended or are turned off in their file, and their descriptions.

use std::fs;

use super::{Scene, wait_until};

const ENDED: &str = "
agents:
  - name: a
    runtime: command
    command: ['true']
    schedules:
      often: {type: cron, cron: '* * * * * *', end_at: '2020-01-01T00:00:00Z'}
      every: {type: interval, interval: 1s, end_at: '2020-01-01T00:00:00Z'}
      once: {type: delay, run_at: '2020-01-01T00:00:00Z'}
";

#[test]
fn schedule_past_its_end_is_finished_in_all_views() {
    let scene = Scene::with(ENDED);
    scene.start();
    let status = |name: &str| scene.json(&["schedule", "show", name])["status"].clone();
    wait_until("the delay to be done", || (status("a/once") == "finished").then_some(()));
    wait_until("the events", || {
        let events = scene.run(&["events", "--json", "--limit", "1000"]).stdout;
        (events.matches("\"schedule:finished\"").count() == 2).then_some(())
    });
    for name in ["a/often", "a/every"] {
        assert_eq!(status(name), "finished", "{name}");
        let why = scene.json(&["why", name]);
        assert_eq!(why["firings"].as_array().unwrap().len(), 0, "no row for what is over: {why}");
        assert_eq!(why["schedule"]["next_run_at"], serde_json::Value::Null);
        let said = scene.run(&["why", name]).stdout;
        assert!(said.contains("has finished: its `end_at` has passed"), "{said}");
        let said = scene.run(&["schedule", "enable", name]);
        assert_eq!(said.code, Some(5), "{}", said.stderr);
        assert!(said.stderr.contains("has finished: its `end_at` (2020-01-01T00:00:00Z)"), "{}", said.stderr);
    }
    let listed = scene.json(&["schedule", "list"]);
    let statuses: Vec<&str> =
        listed.as_array().unwrap().iter().map(|view| view["status"].as_str().unwrap()).collect();
    assert_eq!(statuses, ["finished", "finished", "finished"]);
    wait_until("the view of the state", || {
        let state = fs::read_to_string(scene.root.join(".cowhand/state.yaml")).ok()?;
        (state.matches("status: finished").count() == 3).then_some(())
    });
    // The state is also known without a daemon, and a later `end_at` lets the schedule continue.
    assert_eq!(scene.run(&["stop"]).code, Some(0));
    assert_eq!(status("a/often"), "finished");
    scene.write(
        "cowhand.yaml",
        &ENDED.replace("'2020-01-01T00:00:00Z'}\n      every", "'2120-01-01T00:00:00Z'}\n      every"),
    );
    scene.start();
    wait_until("a run", || (scene.json(&["jobs"])[0]["schedule"] == "often").then_some(()));
    assert_eq!(status("a/every"), "finished");
}

#[test]
fn enable_refuses_schedule_disabled_in_config() {
    let scene = Scene::with(
        "
agents:
  - name: a
    runtime: command
    command: ['true']
    schedules:
      nightly:
        type: cron
        cron: 0 3 * * *
        enabled: false
",
    );
    scene.start();
    let place = format!("{}:10", scene.root.join("cowhand.yaml").display());
    let said = scene.run(&["schedule", "enable", "a/nightly"]);
    assert_eq!(said.code, Some(5), "{}", said.stderr);
    assert!(said.stderr.contains(&format!("turned off by `enabled: false` in {place}")), "{}", said.stderr);
    let why = scene.run(&["why", "a/nightly"]).stdout;
    let why = why.split_whitespace().collect::<Vec<_>>().join(" ");
    assert!(why.contains(&format!("turned off by `enabled: false` in {place}")), "{why}");
    assert!(!why.contains("schedule enable"), "{why}");
    assert_eq!(scene.json(&["schedule", "show", "a/nightly"])["status"], "disabled");
}

/// The first job fails. The following firings are skipped by `when_command`, until the test repairs the job.
#[test]
fn last_error_stays_until_a_job_succeeds() {
    let scene = Scene::with(
        "
agents:
  - name: a
    runtime: command
    command: [sh, -c, 'test -e mended']
    schedules:
      often: {type: interval, interval: 1s, when_command: [test, '!', -e, quiet]}
",
    );
    scene.start();
    let view = || scene.json(&["schedule", "show", "a/often"]);
    wait_until("its failure", || view()["last_error"].is_string().then_some(()));
    scene.write("quiet", "");
    let skipped = || {
        let firings = scene.json(&["why", "a/often"])["firings"].clone();
        (firings[0]["reason"] == "filtered" && firings[1]["reason"] == "filtered").then_some(())
    };
    wait_until("two looks that find nothing", skipped);
    assert_eq!(view()["last_error"], "exit code 1");
    assert!(scene.run(&["why", "a/often"]).stdout.contains("exit code 1"));
    scene.write("mended", "");
    fs::remove_file(scene.root.join("quiet")).unwrap();
    wait_until("a run that goes well", || view()["last_error"].is_null().then_some(()));
}
