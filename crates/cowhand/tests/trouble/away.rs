//! A daemon that is stopped while the server of its store is away.

use std::fs;
use std::io::{BufRead, BufReader, Write};
use std::net::TcpListener;
use std::os::unix::net::UnixListener;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use super::http::{deliver, get, get_with_token};
use super::store::statuses;
use super::{COWHAND, FLEET, Fleet, refused, wait_for};
use cowhand_testing::postgres::Postgres;

/// Binds a socket in the place of the server. It accepts connections and never answers, like a server that hangs.
fn silent_in_place_of(url: &str) -> UnixListener {
    let socket = socket(url);
    fs::remove_file(&socket).ok();
    UnixListener::bind(socket).unwrap()
}

fn socket(url: &str) -> PathBuf {
    let folder = url.split("host=").nth(1).unwrap().split('&').next().unwrap();
    Path::new(folder).join(".s.PGSQL.5432")
}

#[test]
fn stop_waits_limited_time_for_silent_store_server() {
    let mut server = Postgres::start();
    let mut fleet = Fleet::of(&format!("store: {}\n", server.url()));
    fleet.start();
    for delivery in ["1", "2"] {
        assert_eq!(deliver(fleet.place(), "waiter/hook", delivery).unwrap().status, 202);
    }
    wait_for("a job to run", || statuses(&fleet).iter().any(|status| status == "running"));
    server.stop();
    let silent = silent_in_place_of(&server.url());
    let stop = fleet.run(&["stop", "--timeout", "0"]);
    let (stdout, stderr) = (String::from_utf8_lossy(&stop.stdout), String::from_utf8_lossy(&stop.stderr));
    assert_eq!(stop.status.code(), Some(0), "{stdout}{stderr}{}", fleet.log());
    let note = "the daemon waits for its store for 10s at most, and the next start settles the jobs";
    assert!(stderr.split_whitespace().collect::<Vec<_>>().join(" ").contains(note), "{stderr}");
    assert!(stdout.contains("the state of the jobs is unknown"), "{stdout}");
    fleet.ended();
    let log = fleet.log();
    assert!(log.contains("the next start settles the jobs whose end could not be written"), "{log}");
    assert!(log.contains("its outcome is not stored; the next start of the daemon settles it"), "{log}");
    drop(silent);
    fs::remove_file(socket(&server.url())).unwrap();
    server.start_again();
    fleet.start();
    wait_for("the job that ran to be settled", || {
        statuses(&fleet).iter().any(|status| status == "cancelled")
    });
}

/// A stop does not wait for connections that were open when the server became silent, nor for the timeout of agents
/// that have already ended.
#[test]
fn stop_does_not_wait_for_open_connections_or_ended_agents() {
    let server = Postgres::start();
    let mut fleet = Fleet::of(&format!("store: {}\n", server.url()));
    fleet.start();
    assert_eq!(deliver(fleet.place(), "waiter/hook", "1").unwrap().status, 202);
    wait_for("a job to run", || statuses(&fleet) == ["running"]);
    server.freeze();
    // Requests that wait for the store hold connections of its pool.
    let waiting = [(); 4].map(|()| {
        let place = fleet.place().to_owned();
        std::thread::spawn(move || deliver(&place, "a/hook", "2").map(|answer| answer.status))
    });
    fleet.let_go();
    let attempts = fleet.path().join(".cowhand/attempts");
    wait_for("the agent to end", || {
        fs::read_dir(&attempts).unwrap().flatten().any(|entry| entry.path().join("ending.json").exists())
    });
    let stop = Command::new("timeout")
        .args(["120", COWHAND, "stop", "--timeout", "600", "-c"])
        .arg(fleet.path())
        .output()
        .unwrap();
    let (stdout, stderr) = (String::from_utf8_lossy(&stop.stdout), String::from_utf8_lossy(&stop.stderr));
    assert_eq!(stop.status.code(), Some(0), "{stdout}{stderr}{}", fleet.log());
    assert!(stdout.contains("the state of the jobs is unknown"), "{stdout}");
    fleet.ended();
    for request in waiting {
        assert_ne!(request.join().unwrap().unwrap_or(503), 202);
    }
    server.thaw();
    fleet.start();
    wait_for("the job to be settled", || statuses(&fleet).iter().any(|status| status == "completed"));
}

/// A refused connection is an answer. cowhand waits only for a server that is silent.
#[test]
fn refused_connection_to_store_server_is_reported() {
    let mut server = Postgres::start();
    let mut fleet = Fleet::of(&format!("store: {}\n", server.url()));
    fleet.start();
    server.stop();
    drop(silent_in_place_of(&server.url()));
    let answer = deliver(fleet.place(), "a/hook", "1").unwrap();
    assert_eq!(answer.status, 503, "{answer:?}");
    assert!(answer.body.contains("Connection refused"), "{answer:?}");
    assert_eq!(get(fleet.place(), "/readyz").unwrap().status, 503);
    let stop = fleet.run(&["stop"]);
    assert_eq!(stop.status.code(), Some(0), "{stop:?}{}", fleet.log());
    fleet.ended();
}

/// Each request to a daemon whose store is away takes a while.
#[test]
fn doctor_requests_status_once() {
    let fleet = Fleet::prepared();
    fs::create_dir(fleet.path().join(".cowhand")).unwrap();
    let daemon = UnixListener::bind(fleet.path().join(".cowhand/sock")).unwrap();
    let asked = std::sync::Arc::new(std::sync::Mutex::new(Vec::new()));
    let requests = std::sync::Arc::clone(&asked);
    // A fake daemon whose store does not answer.
    std::thread::spawn(move || {
        for stream in daemon.incoming().flatten() {
            let mut request = String::new();
            BufReader::new(&stream).read_line(&mut request).unwrap();
            requests.lock().unwrap().push(request);
            let body =
                r#"{"title":"x","status":503,"code":"store_unavailable","detail":"the store is away"}"#;
            let head = "HTTP/1.1 503 Service Unavailable\r\nconnection: close\r\ncontent-type: application/problem+json";
            write!(&stream, "{head}\r\ncontent-length: {}\r\n\r\n{body}", body.len()).ok();
        }
    });
    let doctor = fleet.run(&["doctor"]);
    let text = String::from_utf8_lossy(&doctor.stdout);
    assert!(text.contains("FAIL  store: the store is away"), "{text}");
    assert!(text.contains("daemon: running, but its store cannot be read"), "{text}");
    let asked = asked.lock().unwrap();
    assert_eq!(asked.iter().filter(|line| line.contains("/status")).count(), 1, "{asked:?}");
}

/// Verbs and `start` name the address of a server that accepts connections and never answers.
#[test]
fn error_names_silent_store_server() {
    let silent = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = silent.local_addr().unwrap();
    let verbs = [&["status"][..], &["jobs"], &["start", "--no-server"], &["start", "-d", "--no-server"]];
    let running = verbs.map(|verb| {
        let folder = tempfile::tempdir().unwrap();
        let config = format!("store: postgres://cowhand:hunter2@{address}/fleet\n{FLEET}");
        fs::write(folder.path().join("cowhand.yaml"), config).unwrap();
        // Without a limit of its own, the verb would never end.
        let mut command = Command::new("timeout");
        command
            .args(["60", COWHAND, "-c"])
            .arg(folder.path())
            .args(verb)
            .stdout(Stdio::piped())
            .stderr(Stdio::piped());
        (verb, folder, command.spawn().unwrap())
    });
    for (verb, _folder, child) in running {
        let output = child.wait_with_output().unwrap();
        let message =
            String::from_utf8_lossy(&output.stderr).split_whitespace().collect::<Vec<_>>().join(" ");
        let output = std::process::Output { stderr: message.clone().into_bytes(), ..output };
        let server = format!("postgres://{address}/fleet, has not answered within 10 seconds");
        refused(&output, 6, &[&server, "check that a PostgreSQL server runs there"]);
        assert!(!message.contains("hunter2"), "{verb:?}: {message}");
    }
}

/// A browser that is logged in gets a page that names the server, and the script gets the same error as before.
#[test]
fn pages_stay_pages_while_the_server_is_frozen() {
    let server = Postgres::start();
    let mut fleet = Fleet::of(&format!("store: {}\n", server.url()));
    fleet.start();
    let token =
        String::from_utf8(fleet.run(&["token", "create", "reader", "--scope", "read"]).stdout).unwrap();
    let token = token.lines().find(|line| line.starts_with("cow_")).unwrap().to_owned();
    server.freeze();
    for (path, start) in [("/", "<!DOCTYPE html>"), ("/jobs", "<!DOCTYPE html>"), ("/api/v1/status", "{\"")] {
        let answer = get_with_token(fleet.place(), path, &token).unwrap();
        assert_eq!(answer.status, 503, "{path}: {answer:?}");
        assert!(answer.body.starts_with(start), "{path}: {answer:?}");
        assert!(answer.body.contains("does not answer"), "{path}: {answer:?}");
    }
    server.thaw();
    assert_eq!(get_with_token(fleet.place(), "/", &token).unwrap().status, 200);
}

/// Without a daemon, `status` reads the store itself. Even if it cannot read the store, it shows that no daemon runs.
#[test]
fn status_says_that_no_daemon_runs_although_the_server_is_away() {
    let mut server = Postgres::start();
    let mut fleet = Fleet::of(&format!("store: {}\n", server.url()));
    fleet.start();
    assert_eq!(fleet.run(&["stop"]).status.code(), Some(0));
    fleet.ended();
    server.stop();
    let verbs: [&[&str]; 6] =
        [&["status"], &["status", "a"], &["status", "--json"], &["why", "a"], &["jobs"], &["trigger", "a"]];
    for verb in verbs {
        let output = fleet.run(verb);
        refused(
            &output,
            6,
            &["no daemon runs, and the store cannot be read: cannot open the store at postgres://"],
        );
        let is_shown = verb[0] == "status" && !verb.contains(&"--json");
        let shown = if is_shown { "daemon: not running; the store cannot be read\n" } else { "" };
        assert_eq!(String::from_utf8_lossy(&output.stdout), shown, "{verb:?}");
    }
}
