//! Jobs that are cancelled, or exceed their `timeout`, while git makes their workspace or `setup` runs.

use serde_json::{Value, json};

use super::crash::slow_scene;
use super::{Scene, left_over, status_and_error, wait_until};

/// Rules of an agent that leaves a file when it starts.
fn settings(kind: &str) -> Value {
    json!({
        "isolation": {"kind": kind}, "retry": {"max_attempts": 3, "backoff": "1s"},
        "instances": {"max_concurrent": 2},
    })
}

/// Starts a fleet, and a job whose workspace git is making.
fn making(kind: &str, delay: &str) -> (Scene, String) {
    let scene = slow_scene(kind, delay);
    scene.write_fleet("touch $SCENE/ran", &settings(kind));
    scene.start();
    let id = scene.trigger();
    wait_until("git to write files", || scene.root.join("up").exists().then_some(()));
    (scene, id)
}

impl Scene {
    fn assert_not_started(&self, id: &str) {
        let job = self.finished(id);
        let ended = (job["status"].as_str(), job["termination"].as_str(), job["attempt"].as_i64());
        assert_eq!(ended, (Some("cancelled"), Some("not_started"), Some(1)), "{job:#}");
        assert!(!self.root.join("ran").exists(), "{job:#}");
    }

    fn assert_only_daemon(&self) {
        let daemon = self.daemon().unwrap();
        wait_until("git to be gone", || {
            left_over(self.folder.path()).iter().all(|pid| *pid == daemon).then_some(())
        });
    }
}

#[test]
fn cancel_ends_git_that_makes_workspace() {
    // The last two filters fail when they are stopped, or do not end at once.
    for (kind, delay) in [
        ("worktree", "sleep 300"),
        ("clone", "sleep 300"),
        ("worktree", "trap 'exit 1' TERM; sleep 300 & wait"),
        ("clone", "trap '' TERM; sleep 300"),
    ] {
        let (scene, id) = making(kind, delay);
        assert!(scene.command(&["cancel", &id]).output().unwrap().status.success());
        scene.assert_not_started(&id);
        scene.assert_clean();
        scene.assert_only_daemon();
    }
}

#[test]
fn timeout_ends_preparation() {
    // A preparation that fails because it is ended still counts as too slow.
    for (kind, delay, setup) in [
        ("worktree", "sleep 300", "true"),
        ("clone", "trap 'exit 1' TERM; sleep 300 & wait", "true"),
        ("worktree", "true", "sleep 300"),
    ] {
        let scene = slow_scene(kind, delay);
        let isolation = json!({"kind": kind, "cleanup": "always", "setup": ["sh", "-c", setup]});
        let settings = json!({"isolation": isolation, "timeout": "2s", "retry": {"max_attempts": 1}});
        scene.write_fleet("touch $SCENE/ran", &settings);
        scene.start();
        let job = scene.run();
        let message = "its preparation took longer than 2s (`timeout`), so its agent was not started";
        assert_eq!(status_and_error(&job), ["failed", "timeout", message], "{kind} {setup}");
        assert_eq!(job["exit_reason"], "timeout", "{job:#}");
        assert!(!scene.root.join("ran").exists(), "{job:#}");
        scene.assert_clean();
        scene.assert_only_daemon();
    }
}

#[test]
fn job_that_waits_for_git_of_another_job_can_be_cancelled() {
    let (scene, first) = making("worktree", "sleep 300");
    let second = scene.trigger();
    wait_until("the second job", || (scene.job(&second)["status"] == "running").then_some(()));
    assert!(scene.command(&["cancel", &second]).output().unwrap().status.success());
    scene.assert_not_started(&second);
    assert_eq!(scene.job(&first)["status"], "running");
    assert!(scene.command(&["cancel", &first]).output().unwrap().status.success());
    scene.assert_not_started(&first);
    scene.assert_clean();
}

#[test]
fn stop_ends_git_that_makes_workspace() {
    let (scene, id) = making("worktree", "sleep 300");
    let said = scene.command(&["stop", "--timeout", "0"]).output().unwrap();
    assert!(said.status.success(), "{}", String::from_utf8_lossy(&said.stderr));
    wait_until("git to be gone", || left_over(scene.folder.path()).is_empty().then_some(()));
    scene.assert_not_started(&id);
    scene.start();
    scene.assert_clean();
}
