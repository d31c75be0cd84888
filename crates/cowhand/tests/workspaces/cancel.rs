//! Jobs that are cancelled while git makes their workspace.

use serde_json::{Value, json};

use super::crash::slow_scene;
use super::{Scene, left_over, wait_until};

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
        let daemon = scene.daemon().unwrap();
        wait_until("git to be gone", || {
            left_over(scene.folder.path()).iter().all(|pid| *pid == daemon).then_some(())
        });
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
