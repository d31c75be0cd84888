//! The daemon ends while the firing of `cowhand trigger` is prepared. The firing is stored, so the command reports it as
//! accepted, and its job is created once.

use std::fs;

use serde_json::Value;

use super::{Running, Scene, wait_until};

/// The firing has a job when there is a file `ready`.
const GATED: &str = r#"
agents:
  - name: a
    runtime: command
    command: ["true"]
    schedules:
      s: {type: manual, when_command: [sh, -c, "echo >>asked; while [ ! -e ready ]; do sleep 0.05; done"]}
"#;

/// Triggers the schedule, and returns the command when the firing is being prepared.
fn triggered(scene: &Scene, options: &[&str]) -> Running {
    fs::remove_file(scene.root.join("asked")).ok();
    let running = scene.spawn(&[&["trigger", "a/s"], options].concat());
    wait_until("the preparation", || scene.root.join("asked").exists().then_some(()));
    running
}

/// Checks that the next daemon creates one job for the only firing.
fn one_job_comes(scene: &Scene) {
    scene.write("ready", "");
    if scene.json(&["status"])["daemon"]["pid"].is_null() {
        scene.start();
    }
    wait_until("the end of the job", || {
        let jobs = scene.json(&["jobs"]);
        (jobs[0]["status"] == "completed").then_some(())
    });
    assert_eq!(scene.json(&["jobs"]).as_array().unwrap().len(), 1);
    assert_eq!(scene.json(&["why", "a/s"])["firings"].as_array().unwrap().len(), 1);
}

fn ended_daemon(scene: &Scene, is_killed: bool) {
    if is_killed {
        scene.kill_daemon();
    } else {
        assert_eq!(scene.run(&["stop"]).code, Some(0));
    }
}

#[test]
fn firing_is_reported_as_accepted() {
    for is_killed in [false, true] {
        let scene = Scene::with(GATED);
        scene.start();
        let running = triggered(&scene, &[]);
        ended_daemon(&scene, is_killed);
        let said = running.end();
        assert_eq!(said.code, Some(0), "{}{}", said.stdout, said.stderr);
        let text = said.stdout.split_whitespace().collect::<Vec<_>>().join(" ");
        for words in
            ["was accepted, and has no job yet", "`cowhand why a/s` shows it", "`cowhand cancel --agent a"]
        {
            assert!(text.contains(words), "{words} in {text}");
        }
        one_job_comes(&scene);
    }
}

#[test]
fn repeated_key_returns_the_accepted_firing() {
    let scene = Scene::with(GATED);
    scene.start();
    let options = ["--idempotency-key", "k1", "--json"];
    let running = triggered(&scene, &options);
    ended_daemon(&scene, false);
    let said = running.end();
    assert_eq!(said.code, Some(0), "{}{}", said.stdout, said.stderr);
    let firing: Value = serde_json::from_str(&said.stdout).unwrap();
    assert_eq!((&firing["status"], &firing["id"]), (&"preparing".into(), &Value::Null), "{firing}");
    scene.start();
    let again = scene.json(&["trigger", "a/s", "--idempotency-key", "k1"]);
    assert_eq!((&again["firing"], &again["id"]), (&firing["firing"], &Value::Null), "{again}");
    one_job_comes(&scene);
}

#[test]
fn wait_continues_with_the_next_daemon() {
    for is_killed in [false, true] {
        let scene = Scene::with(GATED);
        scene.start();
        let running = triggered(&scene, &["--wait"]);
        ended_daemon(&scene, is_killed);
        scene.write("ready", "");
        scene.start();
        let said = running.end();
        assert_eq!(said.code, Some(0), "{}{}", said.stdout, said.stderr);
        assert!(said.stdout.contains("completed"), "{}", said.stdout);
        one_job_comes(&scene);
    }
}

/// Without a next daemon, the message names the key with which the command can be repeated.
#[test]
fn wait_without_next_daemon_says_how_to_find_the_firing() {
    let scene = Scene::with(GATED);
    scene.start();
    let running = triggered(&scene, &["--wait", "--idempotency-key", "k1"]);
    ended_daemon(&scene, true);
    let said = running.end();
    assert_eq!(said.code, Some(4), "{}{}", said.stdout, said.stderr);
    for words in ["waiting for it", "`cowhand why a/s` shows it", "`--idempotency-key k1`"] {
        assert!(said.stderr.contains(words), "{words} in {}", said.stderr);
    }
    one_job_comes(&scene);
}
