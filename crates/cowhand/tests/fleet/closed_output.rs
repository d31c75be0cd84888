//! Standard output that nobody reads, or that cannot be written.

use std::fs::OpenOptions;
use std::process::{Output, Stdio};

use rustix::process::{Pid, Signal, kill_process};

use super::{RunResult, Running, Scene, wait_until};

/// Returns the writing end of a pipe whose reader has gone.
fn closed() -> Stdio {
    let (reader, writer) = std::io::pipe().unwrap();
    drop(reader);
    writer.into()
}

fn full() -> Stdio {
    OpenOptions::new().write(true).open("/dev/full").unwrap().into()
}

fn run(scene: &Scene, arguments: &[&str], stdout: Stdio) -> RunResult {
    let Output { status, stderr, .. } = scene.command(arguments).stdout(stdout).output().unwrap();
    RunResult { code: status.code(), stdout: String::new(), stderr: String::from_utf8(stderr).unwrap() }
}

/// A daemon in the foreground does not need a reader of its output.
#[test]
fn daemon_continues_without_standard_output() {
    for output in [closed, full] {
        let scene = Scene::new();
        let mut command = scene.command(&["start", "--no-server"]);
        let child = command.stdout(output()).stderr(Stdio::piped()).spawn().unwrap();
        let daemon = Running { child, stdout: None };
        wait_until("the daemon to run", || {
            scene.json(&["status"])["daemon"]["running"].as_bool().filter(|it| *it)
        });
        assert_eq!(scene.json(&["trigger", "worker", "--wait"])["status"], "completed");
        kill_process(Pid::from_child(&daemon.child), Signal::TERM).unwrap();
        let said = daemon.end();
        assert_eq!(said.code, Some(0), "{}", said.stderr);
        assert!(
            said.stderr.contains("the daemon is ready, but standard output cannot be written"),
            "{}",
            said.stderr
        );
    }
}

/// The error names the completed action, so that a script that sees exit code 6 does not repeat it.
#[test]
fn completed_action_is_reported_when_output_cannot_be_written() {
    let scene = Scene::new();
    let done = |arguments: &[&str], expected: &str| {
        let said = run(&scene, arguments, full());
        assert_eq!(said.code, Some(6), "{arguments:?}: {}", said.stderr);
        for text in ["cannot write to standard output: No space left", "this change was made", expected] {
            assert!(said.stderr.contains(text), "{arguments:?}: {text:?} in {}", said.stderr);
        }
    };
    done(&["start", "-d", "--no-server"], "the daemon was started, pid ");
    done(&["trigger", "worker"], "the job was accepted as job-");
    done(&["trigger", "worker", "--json"], "the job was accepted as job-");
    let jobs = scene.json(&["jobs"]);
    assert_eq!(jobs.as_array().unwrap().len(), 2, "{jobs:#}");
    let (waiting, _) = scene.waiting_job();
    done(&["cancel", &waiting], &format!("{waiting} is cancelled"));
    done(&["retry", &waiting], "the job was accepted as job-");
    done(&["cancel", "--all", "--yes"], "1 job cancelled");
    done(&["schedule", "disable", "worker/nightly"], "worker/nightly is disabled");
    done(&["schedule", "enable", "worker/nightly", "--json"], "worker/nightly is idle");
    done(&["clear", "worker"], "The sessions of worker are cleared.");
    done(&["reload"], "reloaded; agents: 3");
    done(&["job", "delete", &waiting], &format!("{waiting} is deleted"));
    done(&["prune", "--max-jobs", "1"], "removed");
    done(&["restart"], "the daemon was started, pid ");
    done(&["backup", "copy"], "copy: ");
    done(&["stop"], "stopped");
    done(&["restore", "copy"], "restored ");
    done(&["-c", "other.yaml", "init"], "wrote other.yaml");
    let read = run(&scene, &["jobs"], full());
    assert!(read.code == Some(6) && !read.stderr.contains("this change was made"), "{}", read.stderr);
}

#[test]
fn token_is_revoked_if_it_cannot_be_printed() {
    let scene = Scene::started();
    for output in [full(), closed()] {
        let said = run(&scene, &["token", "create", "unseen", "--scope", "read"], output);
        assert_eq!(said.code, Some(6), "{}", said.stderr);
        assert!(
            said.stderr.contains("the token unseen could not be shown, so it was revoked"),
            "{}",
            said.stderr
        );
    }
    let tokens = scene.json(&["token", "list"]);
    let tokens = tokens.as_array().unwrap();
    assert_eq!(tokens.len(), 2);
    assert!(tokens.iter().all(|token| token["revoked_at"].is_string()), "{tokens:?}");
    let revoked = run(&scene, &["token", "create", "seen", "--scope", "read"], Stdio::null());
    assert_eq!(revoked.code, Some(0));
    let said = run(&scene, &["token", "revoke", "seen"], full());
    assert!(said.stderr.contains("this change was made: seen is revoked"), "{}", said.stderr);
}

/// A verb finishes its work even if nobody reads its output.
#[test]
fn retry_handles_all_jobs_when_output_is_closed() {
    let scene = Scene::started();
    for _ in 0..3 {
        assert_eq!(scene.run(&["trigger", "broken", "--wait"]).code, Some(1));
    }
    let said = run(&scene, &["retry", "--agent", "broken", "--yes"], closed());
    assert_eq!(said.code, Some(0), "{}", said.stderr);
    let jobs = scene.json(&["jobs"]);
    let retried = jobs.as_array().unwrap().iter().filter(|job| job["retry_of"].is_string()).count();
    assert_eq!(retried, 3, "{jobs:#}");
}
