//! The address of the server, and messages about an address in use.

use std::io::{Read as _, Write as _};
use std::net::{TcpListener, TcpStream};
use std::time::{Duration, Instant};

use serde_json::Value;

use crate::{OLD, Scene, hmac};

#[tokio::test]
async fn start_and_status_show_address_of_server() {
    let mut scene = Scene::new();
    let status =
        |scene: &Scene| -> Value { serde_json::from_str(&scene.run(&["status", "--json"]).1).unwrap() };
    assert_eq!(status(&scene)["daemon"]["url"], scene.url.as_str());
    let (code, _, said) = scene.run(&["start"]);
    assert!(code == 5 && said.contains("running"), "{code} {said}");
    let (code, _, said) = scene.run(&["start", "--listen", &scene.place()]);
    assert!(code == 5 && said.contains("running"), "its own port is no stranger's: {code} {said}");
    scene.kill();
    assert_eq!(status(&scene)["daemon"]["url"], Value::Null);

    let taken = TcpListener::bind("127.0.0.1:0").unwrap();
    let place = taken.local_addr().unwrap().to_string();
    for more in [&[][..], &["-d"]] {
        let (code, out, said) = scene.run(&[&["start", "--listen", &place], more].concat());
        assert!(
            code == 6 && out.is_empty() && said.contains(&place) && said.contains("--listen"),
            "{code} {said}"
        );
    }
    assert_eq!(scene.run(&["start", "--listen", "nowhere"]).0, 2);
    assert_eq!(scene.run(&["start", "--listen", &place, "--no-server"]).0, 2);

    // The background daemon prints the same line, and a restart can set a new address.
    let (code, out, said) = scene.run(&["start", "-d", "--listen", "127.0.0.1:0"]);
    assert!(code == 0 && out.starts_with("ready http://127.0.0.1:"), "{out} {said}");
    let (code, out, said) = scene.run(&["restart", "--no-server"]);
    assert_eq!((code, out.as_str()), (0, "ready\n"), "{said}");
    assert_eq!(status(&scene)["daemon"]["url"], Value::Null);
    assert_eq!(scene.run(&["stop"]).0, 0);
}

/// Returns the head of a delivery, without its body.
fn head(body: &[u8]) -> String {
    format!(
        "POST /hooks/worker/hook HTTP/1.1\r\nhost: localhost\r\nx-hub-signature-256: sha256={}\r\n\
         content-length: {}\r\n\r\n",
        hmac(OLD, &[body]),
        body.len()
    )
}

#[tokio::test]
async fn stop_finishes_begun_request_and_closes_idle_connection() {
    let mut scene = Scene::new();
    let connect = || {
        let stream = TcpStream::connect(scene.place()).unwrap();
        stream.set_read_timeout(Some(Duration::from_secs(20))).unwrap();
        stream
    };
    let (mut idle, mut half) = (connect(), connect());
    half.write_all(head(b"{}").as_bytes()).unwrap();
    // An answer shows that the server knows both connections.
    idle.write_all(b"GET /hooks/worker/hook HTTP/1.1\r\nhost: localhost\r\n\r\n").unwrap();
    let mut byte = [0; 1];
    idle.read_exact(&mut byte).unwrap();
    let mut stop = scene.command(&["stop"]).stdout(std::process::Stdio::null()).spawn().unwrap();
    // An idle connection is closed; a begun request may be finished, and is answered.
    idle.read_to_end(&mut Vec::new()).unwrap();
    half.write_all(b"{}").unwrap();
    let mut answer = String::new();
    half.read_to_string(&mut answer).unwrap();
    assert!(answer.starts_with("HTTP/1.1 503"), "{answer}");
    assert!(stop.wait().unwrap().success());
    scene.ended();
}

#[tokio::test]
async fn streams_end_with_the_server() {
    let mut scene = Scene::new();
    let token = scene.token("t", "read");
    let follow = async |accept: &str| {
        let request = scene.ask("GET", "/api/v1/events?follow=1").bearer_auth(&token);
        request.header("accept", accept).send().await.unwrap()
    };
    let (events, lines) = (follow("text/event-stream").await, follow("*/*").await);
    let mut stop = scene.command(&["stop"]).stdout(std::process::Stdio::null()).spawn().unwrap();
    let events = events.text().await.expect("it is brought to its end");
    assert!(!events.contains("event: end"), "there will be more, so a browser comes back: {events}");
    // Lines have no end marker, so they are cut off.
    assert!(lines.text().await.is_err());
    assert!(stop.wait().unwrap().success());
    scene.ended();
}

#[tokio::test]
async fn stopping_daemon_refuses_deliveries() {
    let scene = Scene::of(
        r#"
server: {listen: "127.0.0.1:0"}
agents:
  - name: worker
    runtime: command
    command: [sh, -c, "cat; while test -e busy; do sleep 0.05; done"]
    schedules:
      hook: {type: webhook, secret_env: HOOK_OLD, prompt: Look.}
"#,
    );
    std::fs::write(scene.path("busy"), "").unwrap();
    assert_eq!(crate::answer(scene.github("hook", "1", "push", b"{}")).await.0, 202);
    let running = || scene.jobs().first().is_some_and(|job| job["status"] == "running");
    scene.until("a job runs", running);
    let mut stop = scene.command(&["stop"]).stdout(std::process::Stdio::null()).spawn().unwrap();
    let patience = Instant::now() + Duration::from_mins(1);
    let mut number = 0;
    let refused = loop {
        let id = format!("more-{number}");
        let (status, body) = crate::answer(scene.github("hook", &id, "push", b"{}")).await;
        if status == 503 {
            break body;
        }
        assert!(Instant::now() < patience, "after {number} more it takes deliveries still");
        number += 1;
    };
    assert_eq!(refused["code"], "stopping");
    std::fs::remove_file(scene.path("busy")).unwrap();
    assert!(stop.wait().unwrap().success());
}

/// The default port may be in use by another program; a chosen port has to be used.
#[test]
fn second_fleet_uses_free_port_if_none_is_configured() {
    // The port is bound by this test, or by another program on this machine.
    let taken = TcpListener::bind("127.0.0.1:3232");
    let fleet = "agents: [{name: a, runtime: command, command: ['true']}]\n";
    let mut scene = Scene::prepared(fleet);
    for detached in [false, true] {
        if detached {
            let (code, out, said) = scene.run(&["start", "-d"]);
            assert_eq!(code, 0, "{said}");
            scene.url = out.trim().strip_prefix("ready ").unwrap().to_owned();
            assert!(said.contains("127.0.0.1:3232 is taken") && said.contains(&scene.place()), "{said}");
        } else {
            scene.start(&[]);
            assert!(scene.log().contains("127.0.0.1:3232 is taken"), "{}", scene.log());
        }
        assert_ne!(scene.place(), "127.0.0.1:3232");
        let status: Value = serde_json::from_str(&scene.run(&["status", "--json"]).1).unwrap();
        assert_eq!(status["daemon"]["url"], scene.url.as_str());
        assert_eq!(scene.run(&["stop"]).0, 0);
        if !detached {
            scene.ended();
        }
    }
    std::fs::write(scene.path("cowhand.yaml"), format!("server: {{listen: '127.0.0.1:3232'}}\n{fleet}"))
        .unwrap();
    let (code, _, said) = scene.run(&["start"]);
    assert!(code == 6 && said.contains("127.0.0.1:3232") && said.contains("--listen"), "{code} {said}");
    drop(taken);
}
