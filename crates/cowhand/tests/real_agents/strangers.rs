//! Jobs of strangers: the real programs work in the default strict sandbox, and leave nothing in the home
//! that trusted jobs use.

use std::fs;
use std::io::{Read, Write};
use std::net::TcpStream;

use serde_json::{Value, json};

use super::{Cli, Scene, status_and_error, wait_until};

/// Starts a fleet that trusts ann, with a webhook; returns its address.
fn wary(cli: Cli) -> (Scene, String) {
    let scene = Scene::with(cli, &json!({}));
    scene.command(&["stop"]).output().unwrap();
    let file = scene.root.join("cowhand.yaml");
    let mut fleet: Value = serde_json::from_str(&fs::read_to_string(&file).unwrap()).unwrap();
    fleet["server"] = json!({"listen": "127.0.0.1:0"});
    let agent = &mut fleet["agents"][0];
    agent["trust"] = json!({"allow_authors": ["ann"], "strangers": "sandbox"});
    agent["schedules"] = json!({"hook": {"type": "webhook", "secret": "hush", "prompt": "SCENARIO:tool"}});
    fs::write(file, fleet.to_string()).unwrap();
    let said = scene.command(&["start", "-d"]).output().unwrap();
    let said = String::from_utf8_lossy(&said.stdout).into_owned();
    let address = said.split_once("http://").expect("where it listens").1.trim().to_owned();
    (scene, address)
}

fn deliver(address: &str, author: &str) {
    let body =
        json!({"issue": {"title": "T", "user": {"login": author}}, "sender": {"login": author}}).to_string();
    let mut stream = TcpStream::connect(address).unwrap();
    let request = format!(
        "POST /hooks/coder/hook HTTP/1.1\r\nhost: {address}\r\nx-gitlab-token: hush\r\nx-gitlab-event-uuid: {author}\r\n\
         content-type: application/json\r\ncontent-length: {}\r\nconnection: close\r\n\r\n{body}",
        body.len()
    );
    stream.write_all(request.as_bytes()).unwrap();
    let mut answer = String::new();
    stream.read_to_string(&mut answer).unwrap();
    assert!(answer.contains("accepted"), "{answer}");
}

fn works_for_strangers(cli: Cli, home: &str) {
    let (scene, address) = wary(cli);
    deliver(&address, "eve");
    let id = wait_until("the stranger's job", || {
        let jobs = scene.json(&["jobs"]);
        let jobs = jobs.as_array().or_else(|| jobs["items"].as_array()).cloned().unwrap_or_default();
        jobs.first().and_then(|job| job["id"].as_str().map(str::to_owned))
    });
    let job = scene.finished(&id);
    assert_eq!(status_and_error(&job), ["completed", "success", ""], "{job:#}\n{:#?}", scene.output(&job));
    assert_eq!(job["confined"], "eve is not among `allow_authors`");
    let its_own = scene.root.join(".cowhand/strangers/coder").join(home);
    assert!(fs::read_dir(&its_own).unwrap().next().is_some(), "{} is empty", its_own.display());
    let keys: Vec<_> = scene.models.served().into_iter().filter_map(|served| served.key).collect();
    assert!(!keys.is_empty() && keys.iter().all(|key| key.ends_with("fake")), "{keys:?}");
    let session = job["session_id"].as_str().unwrap();
    let kept = super::canaries::files(&scene.root.join("home"));
    let told = |file: &std::path::PathBuf| {
        let text = fs::read(file).unwrap_or_default();
        file.to_string_lossy().contains(session) || memchr::memmem::find(&text, session.as_bytes()).is_some()
    };
    let told: Vec<_> = kept.iter().filter(|file| told(file)).collect();
    assert!(told.is_empty(), "its session is in the home that others use: {told:?}");
}

#[test]
fn claude_works_for_strangers_in_strict_sandbox() {
    works_for_strangers(Cli::Claude, ".claude");
}

#[test]
fn gemini_works_for_strangers_in_strict_sandbox() {
    works_for_strangers(Cli::Gemini, ".gemini");
}
