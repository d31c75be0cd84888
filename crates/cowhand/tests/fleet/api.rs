//! The API over the socket, and the one form of its errors.

use std::io::{Read, Write};
use std::os::unix::net::UnixStream;

use super::Scene;

/// Sends a request; returns it with the status line and the body.
pub(super) fn ask(scene: &Scene, method: &str, path: &str, given: &str) -> String {
    let mut socket = UnixStream::connect(scene.root.join(".cowhand/sock")).unwrap();
    let length = given.len();
    let head = format!("host: x\r\nconnection: close\r\ncontent-length: {length}");
    socket
        .write_all(format!("{method} /api/v1/{path} HTTP/1.1\r\n{head}\r\n\r\n{given}").as_bytes())
        .unwrap();
    let mut answer = String::new();
    socket.read_to_string(&mut answer).unwrap();
    let (head, body) = answer.split_once("\r\n\r\n").unwrap();
    format!("{method} {path} {given}\n{}\n{body}\n", head.lines().next().unwrap())
}

#[test]
fn api_errors_have_one_form() {
    let scene = Scene::started();
    let asked = [
        ("GET", "nothing", ""),
        ("DELETE", "jobs", ""),
        ("GET", "jobs?status=asleep", ""),
        ("GET", "jobs/..%2F..%2Fsecret", ""),
        ("GET", "jobs/job-2026-01-01-abc123", ""),
        ("POST", "agents/worker/trigger", "{"),
        ("POST", "agents/worker/trigger", r#"{"promt":"x"}"#),
        ("POST", "agents/worker/trigger", r#"{"idempotency_key":"x"}"#),
        ("POST", "agents/nobody/trigger", ""),
        ("POST", "schedules/worker/no%20such/fire", ""),
        ("POST", "stop", r#"{"timeout_seconds":-1}"#),
    ];
    let answers = asked.map(|(method, path, body)| ask(&scene, method, path, body));
    insta::assert_snapshot!(answers.join("\n"));
}

#[test]
fn cancel_of_ended_job_answers_already_stopped() {
    let scene = Scene::started();
    let job = scene.json(&["trigger", "worker", "--wait"]);
    let id = job["id"].as_str().unwrap();
    let answer = ask(&scene, "POST", &format!("jobs/{id}/cancel"), "");
    assert!(answer.contains("409 Conflict") && answer.contains(r#""code":"already_stopped""#), "{answer}");
    scene.assert_shows(&job, "and does not change");
}

#[test]
fn job_list_continues_after_cursor() {
    let scene = Scene::started();
    for _ in 0..3 {
        scene.run(&["trigger", "worker", "--wait"]);
    }
    let page = |after: &str| {
        let answer = ask(&scene, "GET", &format!("jobs?limit=2{after}"), "");
        serde_json::from_str::<serde_json::Value>(answer.lines().nth(2).unwrap()).unwrap()
    };
    let first = page("");
    let cursor = first["next_cursor"].as_str().unwrap();
    let second = page(&format!("&after={cursor}"));
    assert_eq!(first["items"].as_array().unwrap().len(), 2);
    assert_eq!(second["items"].as_array().unwrap().len(), 1);
    assert_eq!(second["next_cursor"], serde_json::Value::Null);
}

#[test]
fn a_schedule_may_have_any_name() {
    let scene = Scene::with(
        "agents:
  - name: a
    runtime: command
    command: [cat]
    schedules: {'every day / late ü?': {type: manual, prompt: Late.}}
",
    );
    scene.start();
    let name = "a/every day / late ü?";
    assert_eq!(scene.json(&["schedule", "show", name])["schedule"], "every day / late ü?");
    assert_eq!(scene.json(&["trigger", "a", "every day / late ü?", "--wait"])["summary"], "Late.");
    assert_eq!(scene.json(&["why", name])["firings"][0]["outcome"], "ran");
}

/// Returns the body of an answer, as JSON.
fn json_of(answer: &str) -> serde_json::Value {
    serde_json::from_str(answer.lines().nth(2).unwrap()).unwrap()
}

/// A masked id would not work in a command, so the advice contains a placeholder instead.
#[test]
fn advice_has_a_placeholder_for_an_id_with_a_secret() {
    let scene = Scene::with(
        "agents:
  - name: a
    runtime: command
    command: ['true']
    env: {SERVICE_TOKEN: canary-in-env}
    work_source: {type: files, path: qa}
  - {name: b, runtime: command, command: ['true'], work_source: {type: files, path: qb}}
",
    );
    for folder in ["qa", "qb"] {
        std::fs::create_dir(scene.root.join(folder)).unwrap();
        scene.write(&format!("{folder}/canary-in-env.md"), "---\ntitle: One\n---\nText.\n");
    }
    scene.start();
    let claim = || ask(&scene, "POST", "work/files-canary-in-env/claim", r#"{"agent": "b"}"#);
    assert!(claim().contains("200 OK"));
    let message = json_of(&claim())["detail"].as_str().unwrap().to_owned();
    assert!(
        message.contains("`cowhand work release ITEM --agent b` releases it (the id contains a secret"),
        "{message}"
    );
    assert!(!message.contains("canary-in-env"), "{message}");
}

#[test]
fn schedule_includes_firings_on_request() {
    let scene = Scene::with(
        "agents:
  - {name: a, runtime: command, command: ['true'], schedules: {s: {type: manual}}}
",
    );
    scene.start();
    for _ in 0..3 {
        scene.run(&["trigger", "a", "s", "--wait"]);
    }
    let get = |path: &str| json_of(&ask(&scene, "GET", path, ""));
    let both = get("schedules/a/s?firings=2");
    assert_eq!(both["firings"], get("schedules/a/s/firings?limit=2")["items"]);
    assert_eq!(both["firings"].as_array().unwrap().len(), 2);
    assert_eq!(both["schedule"], "s");
    assert_eq!(get("schedules/a/s")["firings"], serde_json::Value::Null);
}
