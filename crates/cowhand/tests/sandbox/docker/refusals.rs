//! Features that containers or the engine do not support: the job fails before anything runs, with the
//! reason.

use std::fs;
use std::io::{Read, Write};
use std::os::unix::fs::PermissionsExt;
use std::os::unix::net::UnixListener;
use std::thread;

use serde_json::{Value, json};

use super::super::refusals::refused;
use super::super::{Podman, Scene, User};
use super::plain;
use cowhand_testing::podman::IMAGE;

fn at(socket: &std::path::Path, image: &str) -> Scene {
    let sandbox = json!({"kind": "docker", "image": image, "socket": socket});
    Scene::new(User::Root, "touch ran", &json!({ "sandbox": sandbox }))
}

#[test]
fn missing_image_is_refused() {
    let podman = Podman::start();
    let mut scene = at(&podman.socket(), "registry.example/not-there:7");
    let why = refused(&mut scene);
    assert!(
        why.contains("`sandbox: docker` cannot be enforced: the image registry.example/not-there:7"),
        "{why}"
    );
    assert!(why.contains("`docker pull registry.example/not-there:7`"), "{why}");
    let doctor = scene.command(&["doctor"]).output().unwrap();
    let said = String::from_utf8_lossy(&doctor.stdout).into_owned();
    assert!(
        said.contains(
            "FAIL  sandbox, docker: the image registry.example/not-there:7 does not exist on this machine"
        ),
        "{said}"
    );
    assert!(said.contains("these agents cannot start: wild") && !doctor.status.success(), "{said}");
}

/// A wrong image or socket concerns only the agents that name it, and programs of an image are not looked for on this
/// machine.
#[test]
fn doctor_names_only_the_agents_of_a_wrong_image_or_socket() {
    let podman = Podman::start();
    let scene = at(&podman.socket(), IMAGE);
    let agent = |name: &str, socket: &std::path::Path, image: &str| {
        let sandbox = json!({"kind": "docker", "image": image, "socket": socket});
        json!({"name": name, "runtime": "command", "command": ["/only/in/the/image"], "sandbox": sandbox})
    };
    let nowhere = scene.path("nowhere.sock");
    let agents = [
        agent("good", &podman.socket(), IMAGE),
        agent("no-image", &podman.socket(), "registry.example/not-there:7"),
        agent("no-engine", &nowhere, IMAGE),
    ];
    scene.write("fleet/cowhand.yaml", &json!({"agents": agents, "server": {"enabled": false}}).to_string());
    let doctor = scene.command(&["doctor"]).output().unwrap();
    let said = String::from_utf8_lossy(&doctor.stdout).into_owned();
    assert!(!doctor.status.success(), "{said}");
    for (words, agents) in [
        ("registry.example/not-there:7 does not exist", "these agents cannot start: no-image"),
        ("no engine listens at", "these agents cannot start: no-engine"),
    ] {
        let line = said.lines().find(|line| line.contains(words)).unwrap_or_else(|| panic!("{said}"));
        assert!(line.trim_end().ends_with(agents), "{line}");
    }
    let line = said.lines().find(|line| line.contains("agent good")).unwrap();
    assert!(line.contains("ok") && line.contains("in a container of"), "{line}");
    assert!(!said.contains("/only/in/the/image does not exist"), "{said}");
}

#[test]
fn doctor_shows_engine_and_its_version() {
    let podman = Podman::start();
    let scene = at(&podman.socket(), IMAGE);
    let doctor = scene.command(&["doctor"]).output().unwrap();
    let said = String::from_utf8_lossy(&doctor.stdout).into_owned();
    let line = said.lines().find(|line| line.contains("sandbox, docker")).unwrap();
    assert!(line.contains("ok") && line.contains("Libpod/") && line.contains(", API 1."), "{line}");
    assert!(line.ends_with(&format!("at {}", podman.socket().display())), "{line}");
}

#[test]
fn missing_engine_is_refused() {
    let folder = tempfile::tempdir().unwrap();
    let socket = folder.path().join("sock");
    let why = refused(&mut at(&socket, IMAGE));
    assert!(
        why.contains(&format!("no engine listens at {}: start Docker or Podman", socket.display())),
        "{why}"
    );
    // A socket file without a listener.
    drop(UnixListener::bind(&socket).unwrap());
    let why = refused(&mut at(&socket, IMAGE));
    assert!(why.contains("no engine listens at"), "{why}");
}

/// The environment names the engine, if the config does not.
#[test]
fn docker_host_names_the_engine() {
    let podman = Podman::start();
    let scene = |host: String| {
        let agent = json!({"sandbox": {"kind": "docker", "image": IMAGE}});
        Scene::new(User::Root, "touch ran", &agent).with("DOCKER_HOST", host)
    };
    let mut here = scene(format!("unix://{}", podman.socket().display()));
    here.start();
    let (job, said) = here.run();
    assert_eq!(job["status"], "completed", "{job:#}\n{said}");
    let why = refused(&mut scene("tcp://127.0.0.1:2375".to_owned()));
    assert!(why.contains("only an engine on this machine"), "{why}");
}

#[test]
fn closed_engine_socket_is_refused() {
    let podman = Podman::start();
    fs::set_permissions(podman.socket(), fs::Permissions::from_mode(0o600)).unwrap();
    let sandbox = json!({"kind": "docker", "image": IMAGE, "socket": podman.socket()});
    let mut scene = Scene::new(User::Nobody, "touch ran", &json!({ "sandbox": sandbox }));
    let why = refused(&mut scene);
    assert!(why.contains("this user has no access to"), "{why}");
}

/// Starts a fake engine that answers each request in this way, or never.
fn engine(
    answer: Option<&'static [(&'static str, &'static str)]>,
) -> (tempfile::TempDir, std::path::PathBuf) {
    let folder = tempfile::tempdir().unwrap();
    let socket = folder.path().join("sock");
    let listener = UnixListener::bind(&socket).unwrap();
    thread::spawn(move || {
        let mut held = Vec::new();
        for stream in listener.incoming().flatten() {
            let mut stream = stream;
            let mut request = [0; 4096];
            let count = stream.read(&mut request).unwrap_or_default();
            let request = String::from_utf8_lossy(&request[..count]).into_owned();
            let found = answer.and_then(|answers| answers.iter().find(|(path, _)| request.contains(path)));
            if let Some((_, answer)) = found {
                stream.write_all(answer.as_bytes()).ok();
            } else {
                held.push(stream);
            }
        }
    });
    (folder, socket)
}

const PING: (&str, &str) = ("_ping", "HTTP/1.1 200 OK\r\nApi-Version: 1.52\r\nContent-Length: 2\r\n\r\nOK");

#[test]
fn silent_engine_is_refused() {
    let (_folder, socket) = engine(None);
    let why = refused(&mut at(&socket, IMAGE));
    assert!(why.contains("does not answer within 10s"), "{why}");
}

#[test]
fn socket_without_docker_api_is_refused() {
    for (answer, word) in [
        (&[("", "SSH-2.0-OpenSSH\r\n")][..], "gave an unexpected answer"),
        (&[("", "HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n")][..], "names no version of the Docker API"),
        (&[PING, ("", "HTTP/1.1 200 OK\r\nContent-Length: 1\r\n\r\n{")][..], "gave an unexpected answer"),
    ] {
        let (_folder, socket) = engine(Some(answer));
        let why = refused(&mut at(&socket, IMAGE));
        assert!(why.contains(word), "{why}");
    }
}

/// The message of the engine is shown, in any form.
#[test]
fn message_of_refusing_engine_is_shown() {
    for (status, body, word) in [
        (
            500,
            "{\"message\":\"its disk is\\nall full\"}",
            "the engine refused the request (500): its disk is all full",
        ),
        (403, "go away!\n", "the engine refused the request (403): go away!"),
    ] {
        let answer = format!("HTTP/1.1 {status} No\r\nContent-Length: {}\r\n\r\n{body}", body.len());
        let answers: &'static [(&str, &str)] = Box::leak(Box::new([PING, ("/v1.44/images/", answer.leak())]));
        let (_folder, socket) = engine(Some(answers));
        let why = refused(&mut at(&socket, IMAGE));
        assert!(why.contains(word), "{why}");
    }
}

/// The missing program is noticed only when it is started inside the container.
#[test]
fn program_missing_in_image_fails_job() {
    let mut scene = plain(User::Root, "touch ran", &json!({"command": ["perl", "-e", "1"]}));
    scene.start();
    let (job, said) = scene.run();
    assert_eq!(job["status"], "failed", "{job:#}\n{said}");
    assert!(job["error"]["message"].as_str().unwrap().contains("No such file"), "{job:#}\n{said}");
    scene.nothing_is_left();
}

/// The mistake is noticed only when the engine creates the container. Nothing has run by then.
#[test]
fn container_that_cannot_be_created_fails_job() {
    let mut scene =
        plain(User::Root, "touch ran", &json!({"docker": {"enabled": true, "tmpfs": ["/x:no-such-word"]}}));
    let why = refused(&mut scene);
    assert!(why.contains("`sandbox: docker` cannot be enforced: the engine refused the request"), "{why}");
    assert!(why.contains("no-such-word"), "{why}");
    scene.nothing_is_left();
}

#[test]
fn protected_paths_are_refused() {
    for (sandbox, word) in [
        (json!({"write": ["~/.ssh"]}), "which is always hidden from agents"),
        (json!({"read": ["~/.ssh/id"]}), "which is always hidden from agents"),
        (json!({"write": ["~/.."]}), "the home of this user"),
        (json!({"read": ["../fleet/.cowhand"]}), "which is always hidden from agents"),
        (json!({"read": ["../nowhere"]}), "cannot be used"),
    ] {
        let why = refused(&mut plain(User::Root, "touch ran", &json!({ "sandbox": sandbox })));
        assert!(why.contains(word), "{sandbox}: {why}");
    }
    let mut scene = plain(User::Root, "touch ran", &json!({}));
    let socket = scene.engine().socket();
    scene.set(&json!({"sandbox": {"kind": "docker", "image": IMAGE, "socket": socket, "write": [socket]}}));
    let why = refused(&mut scene);
    assert!(why.contains("which is always hidden from agents"), "{why}");
}

/// With herdctl's key `docker` the config is accepted with a warning, and the job fails. With the key `sandbox` the
/// config is refused.
#[test]
fn job_channel_and_acp_are_refused_in_container() {
    let acp: Value = json!({"runtime": "acp"});
    for (more, word) in [
        (json!({"followups": {"max": 1}}), "need a socket of the fleet"),
        (acp, "needs cowhand's ACP client"),
    ] {
        let mut agent = json!({"docker": {"enabled": true, "image": IMAGE}});
        agent.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
        let mut scene = Scene::new(User::Root, "touch ran", &agent);
        let why = refused(&mut scene);
        assert!(why.contains(word), "{agent}: {why}");
        let check = scene.command(&["config", "check"]).output().unwrap();
        let said = String::from_utf8_lossy(&check.stderr).into_owned();
        assert!(check.status.success() && said.contains(word), "{agent}: {said}");
    }
}
