//! The job socket accepts only job tokens, under any load.

use std::fs;
use std::io::{ErrorKind, Read, Write};
use std::os::unix::fs::PermissionsExt;
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};

use serde_json::{Value, json};

use super::asks::{FLEET, send, send_to, token_of};
use super::{Scene, wait_until};

fn socket(scene: &Scene) -> PathBuf {
    scene.root.join(".cowhand/talk/job.sock")
}

/// Returns every method of every endpoint, with the job filled in.
fn endpoints(scene: &Scene, job: &str) -> Vec<(String, String)> {
    let (_, description) =
        send_to(&scene.root.join(".cowhand/sock"), None, "GET", "/api/v1/openapi.json", &Value::Null);
    let mut all = Vec::new();
    for (path, methods) in description["paths"].as_object().unwrap() {
        let filled: String = path
            .split('/')
            .map(|part| match part {
                "{job}" => job.to_owned(),
                "{ask}" => format!("{job}.1"),
                "{agent}" => "other".to_owned(),
                part if part.starts_with('{') => "1".to_owned(),
                part => part.to_owned(),
            })
            .collect::<Vec<_>>()
            .join("/");
        all.extend(methods.as_object().unwrap().keys().map(|method| (method.to_uppercase(), filled.clone())));
    }
    assert!(all.len() > 40, "{all:?}");
    all
}

#[test]
fn job_socket_accepts_only_job_tokens() {
    let scene = Scene::with(FLEET);
    scene.start();
    let ((one, token), (other, _)) = (token_of(&scene, "one"), token_of(&scene, "other"));
    let socket = socket(&scene);
    let rights = |path: &Path| fs::metadata(path).unwrap().permissions().mode() & 0o777;
    assert_eq!((rights(&socket), rights(socket.parent().unwrap())), (0o600, 0o700));
    assert_eq!(fs::read_dir(socket.parent().unwrap()).unwrap().count(), 1, "there is nothing else");
    let admin = scene.run(&["token", "create", "all", "--scope", "admin"]).stdout.trim().to_owned();
    assert!(admin.starts_with("cow_"), "{admin}");
    let own = [
        ("GET".to_owned(), format!("/api/v1/jobs/{one}")),
        ("GET".to_owned(), format!("/api/v1/jobs/{one}/asks/1")),
        ("POST".to_owned(), format!("/api/v1/jobs/{one}/asks")),
        ("POST".to_owned(), format!("/api/v1/jobs/{one}/files")),
        ("POST".to_owned(), format!("/api/v1/jobs/{one}/followups")),
        ("POST".to_owned(), format!("/api/v1/jobs/{one}/report")),
    ];
    let mut all = endpoints(&scene, &one);
    all.extend([("GET".into(), "/".into()), ("GET".into(), "/metrics".into()), ("GET".into(), "/x".into())]);
    for (method, path) in &all {
        let ask = |token: Option<&str>| send_to(&socket, token, method, path, &Value::Null).0;
        assert_eq!(ask(None), 401, "{method} {path}");
        assert_eq!(ask(Some(&admin)), 401, "{method} {path}");
        let is_own = own.contains(&(method.clone(), path.clone()));
        let status = ask(Some(&token));
        assert_eq!(status != 403 && status != 401, is_own, "{method} {path}: {status}");
    }
    for (method, path) in endpoints(&scene, &other) {
        assert_eq!(send_to(&socket, Some(&token), &method, &path, &Value::Null).0, 403, "{method} {path}");
    }
    let jobs = scene.json(&["jobs"]);
    assert!(jobs.as_array().unwrap().iter().all(|job| job["status"] == "running"), "{jobs}");
    assert_eq!(jobs.as_array().unwrap().len(), 2);
    assert_eq!(scene.run(&["stop", "--timeout", "0"]).code, Some(0));
    assert!(!socket.exists(), "a daemon that ends leaves none");
}

/// The environment of an agent names the socket, however long the path of the state folder is.
#[test]
fn agent_reaches_job_socket_by_its_environment() {
    let agent = r#"
agents:
  - name: one
    runtime: command
    command: [sh, -c, 'env > environment; curl -s --unix-socket "$COWHAND_SOCKET" -H "authorization: Bearer $COWHAND_JOB_TOKEN" "http://x/api/v1/jobs/$COWHAND_JOB_ID"']
"#;
    for path in ["", &"a-folder-with-a-long-name/".repeat(6)] {
        let scene = Scene::beneath(path, agent);
        scene.start();
        let job = scene.json(&["trigger", "one", "--wait"]);
        let said = scene.run(&["logs", job["id"].as_str().unwrap()]).stdout;
        assert!(said.contains(&format!("\"id\":{}", job["id"])), "{said}");
        let environment = fs::read_to_string(scene.root.join("environment")).unwrap();
        assert!(!environment.contains("COWHAND_STATE="), "{environment}");
        assert!(!environment.contains(".cowhand/sock"), "{environment}");
    }
}

/// Returns the peak memory of the daemon, in MB.
fn most_memory(scene: &Scene) -> u64 {
    let pid = scene.daemon().unwrap().as_raw_nonzero();
    let status = fs::read_to_string(format!("/proc/{pid}/status")).unwrap();
    let line = status.lines().find_map(|line| line.strip_prefix("VmHWM:")).unwrap();
    line.trim().trim_end_matches(" kB").parse::<u64>().unwrap() / 1024
}

#[test]
fn flood_of_job_socket_does_not_block_daemon() {
    let scene = Scene::with(FLEET);
    scene.start();
    let ((one, token), (other, others)) = (token_of(&scene, "one"), token_of(&scene, "other"));
    let socket = socket(&scene);
    let get = |job: &str, token: &str| {
        send_to(&socket, Some(token), "GET", &format!("/api/v1/jobs/{job}"), &Value::Null).0
    };
    // Many silent clients: they are disconnected, and clients that wait behind them are answered.
    let silent: Vec<_> = (0..600).map(|_| UnixStream::connect(&socket).unwrap()).collect();
    assert_eq!(send(&scene, None, "GET", "status", &Value::Null).0, 200, "people have a socket of their own");
    let mut last = silent.last().unwrap();
    last.set_nonblocking(true).unwrap();
    let waits = last.read(&mut [0]).is_err_and(|error| error.kind() == ErrorKind::WouldBlock);
    assert!(waits, "it was answered before them");
    assert_eq!(get(&other, &others), 200, "after a while");
    drop(silent);

    // Many admitted requests wait: this job has reached its limit, and the other job is still answered.
    let asked = json!({"attempt": 1, "key": "k", "question": "Which?"});
    let (status, _) = send_to(&socket, Some(&token), "POST", &format!("/api/v1/jobs/{one}/asks"), &asked);
    assert_eq!(status, 200);
    let head =
        format!("GET /api/v1/jobs/{one}/asks/1?wait=30 HTTP/1.1\r\nhost: x\r\nauthorization: Bearer {token}");
    let wait = |_| {
        let mut stream = UnixStream::connect(&socket).unwrap();
        stream.write_all(format!("{head}\r\n\r\n").as_bytes()).unwrap();
        stream.set_nonblocking(true).unwrap();
        stream
    };
    let mut waiting: Vec<UnixStream> = (0..80).map(wait).collect();
    let mut refused = 0;
    wait_until("the job to have enough", || {
        waiting.retain_mut(|stream| {
            let mut said = [0; 64];
            let Ok(read) = stream.read(&mut said) else { return true };
            let said = String::from_utf8_lossy(&said[..read]).into_owned();
            assert!(said.starts_with("HTTP/1.1 429"), "{said}");
            refused += 1;
            false
        });
        (refused == 16).then_some(())
    });
    assert_eq!((get(&one, &token), get(&other, &others)), (429, 200));
    drop(waiting);
    wait_until("its turns to come back", || (get(&one, &token) == 200).then_some(()));

    // The body of a refused request is not read. The body of an admitted request is read only up to the limit.
    for (token, expected) in [(None, "401"), (Some(&token), "413")] {
        let shown = token.map(|token| format!("authorization: Bearer {token}\r\n")).unwrap_or_default();
        let mut stream = UnixStream::connect(&socket).unwrap();
        let head =
            format!("POST /api/v1/jobs/{one}/asks HTTP/1.1\r\nhost: x\r\n{shown}content-length: 1073741824");
        stream.write_all(format!("{head}\r\n\r\n").as_bytes()).unwrap();
        let part = vec![b'x'; 1 << 20];
        // Write until the connection is closed.
        let megabytes = (0..1024).take_while(|_| stream.write_all(&part).is_ok()).count();
        assert!(megabytes < 64, "{megabytes} MB were taken");
        let mut said = String::new();
        // The rest of the answer may be lost with the unread body.
        let _ = stream.read_to_string(&mut said);
        assert!(said.is_empty() || said.contains(expected), "{said}");
    }
    assert_eq!(get(&other, &others), 200);
    let memory = most_memory(&scene);
    assert!(memory < 250, "{memory} MB");
}

/// A job whose agent was removed from the config continues to run, and its token is still masked.
#[test]
fn token_of_job_with_removed_agent_is_masked() {
    let fleet = r#"
agents:
  - name: waiter
    runtime: command
    command: [sh, -c, "echo $COWHAND_JOB_TOKEN > token; echo $$ > pid; while [ ! -e go ]; do sleep 0.05; done; echo it is $COWHAND_JOB_TOKEN"]
"#;
    let scene = Scene::with(fleet);
    scene.start();
    let (job, _) = scene.waiting_job();
    assert_eq!(scene.run(&["stop", "--keep-agents"]).code, Some(0));
    scene.write("cowhand.yaml", &fleet.replace("waiter", "other"));
    scene.start();
    scene.go();
    let job =
        wait_until("the job to end", || Some(scene.job(&job)).filter(|job| job["status"] == "completed"));
    let token = fs::read_to_string(scene.root.join("token")).unwrap();
    let jsonl = scene.root.join(format!(".cowhand/jobs/{}.jsonl", job["id"].as_str().unwrap()));
    let said = fs::read_to_string(jsonl).unwrap();
    assert!(said.contains("it is ***"), "{said}");
    assert!(
        token.len() > 20 && !said.contains(token.trim()) && !job.to_string().contains(token.trim()),
        "{said}"
    );
}

/// Without the socket an agent could not ask, and every use of a tool would be denied. So the agent is not started.
#[test]
fn agent_is_not_started_without_job_socket() {
    let fleet =
        "agents: [{name: worker, runtime: command, command: [sh, -c, touch ran], followups: {max: 1}}]\n";
    let scene = Scene::with(fleet);
    scene.start();
    let talk = scene.root.join(".cowhand/talk");
    fs::remove_dir_all(&talk).unwrap();
    fs::write(&talk, "").unwrap();
    let job = scene.json(&["trigger", "worker"])["id"].as_str().unwrap().to_owned();
    let job = wait_until("the job to end", || Some(scene.job(&job)).filter(|job| job["status"] == "failed"));
    assert_eq!(job["error"]["kind"], "start_failed", "{job:#}");
    let why = job["error"]["message"].as_str().unwrap();
    assert!(
        why.contains("the agent needs the job socket to reach the fleet, but the folder of the socket"),
        "{why}"
    );
    assert!(!scene.root.join("ran").exists());
}
