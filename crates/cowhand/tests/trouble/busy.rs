//! A daemon without a free file descriptor to identify its callers.

use std::io::{Read, Write};
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::process::{Command, Stdio};

use super::{COWHAND, Daemon, WAITER};

const DESCRIPTORS: usize = 64;

/// The daemon answers that it is busy and did nothing, and a verb repeats its request until it is answered.
#[test]
fn a_verb_waits_until_the_daemon_has_a_free_file_descriptor() {
    let folder = tempfile::tempdir().unwrap();
    let folder = folder.path();
    std::fs::write(folder.join("cowhand.yaml"), WAITER).unwrap();
    let script = format!("ulimit -n {DESCRIPTORS}; exec '{COWHAND}' start --no-server -c .");
    let _daemon = Daemon::start(Command::new("sh").args(["-c", &script]).current_dir(folder));
    // Connections are accepted in order, so each of these is open before the next request is handled.
    let mut idle = vec![connect(folder)];
    let answer = loop {
        let answer = ask_for_jobs(folder);
        if !answer.starts_with("HTTP/1.1 200 ") {
            break answer;
        }
        assert!(idle.len() < DESCRIPTORS, "{answer}");
        idle.push(connect(folder));
    };
    assert!(answer.starts_with("HTTP/1.1 503 "), "{answer}");
    assert!(answer.contains("\"code\":\"busy\"") && answer.contains("Too many open files"), "{answer}");
    let mut trigger = Command::new(COWHAND);
    trigger.args(["trigger", "quick", "--json"]).current_dir(folder).stdout(Stdio::piped());
    let trigger = trigger.spawn().unwrap();
    ask_for_jobs(folder);
    drop(idle);
    let output = trigger.wait_with_output().unwrap();
    assert!(output.status.success(), "{output:?}");
    let jobs = super::json(folder, &["jobs"]);
    assert_eq!(jobs.as_array().unwrap().len(), 1, "{jobs:#}");
}

fn connect(folder: &Path) -> UnixStream {
    UnixStream::connect(folder.join(".cowhand/sock")).unwrap()
}

/// Requests the list of jobs, and returns the whole answer.
fn ask_for_jobs(folder: &Path) -> String {
    let mut stream = connect(folder);
    stream.write_all(b"GET /api/v1/jobs HTTP/1.1\r\nHost: cowhand\r\nConnection: close\r\n\r\n").unwrap();
    let mut answer = String::new();
    stream.read_to_string(&mut answer).unwrap();
    answer
}
