//! After a kill of the daemon, the next start leaves no worktree and no branch.

use std::fs;

use rustix::process::{Signal, kill_process, test_kill_process};
use serde_json::json;

use super::{Scene, status_and_error, wait_until};

/// Declares a test for each place, in each kind of workspace.
macro_rules! killed_anywhere_nothing_stale_is_left {
    ($($place:ident),+ $(,)?) => {
        mod worktree { $(#[test] fn $place() { super::killed_at("worktree", stringify!($place)); })+ }
        mod clone { $(#[test] fn $place() { super::killed_at("clone", stringify!($place)); })+ }
    };
}

killed_anywhere_nothing_stale_is_left!(
    workspace_noted,
    workspace_made,
    launched,
    ended,
    diffed,
    settled,
    workspace_removed,
);

fn killed_at(kind: &str, place: &str) {
    let isolation = json!({"isolation": {"kind": kind, "cleanup": "always"}});
    let scene = Scene::new("echo x > made", &isolation);
    scene.start_with(&[("COWHAND_FAULT", &place.replace('_', "-"))]);
    let daemon = scene.daemon().unwrap();
    // The daemon may die before it answers.
    let _ = scene.command(&["trigger", "coder"]).output().unwrap();
    wait_until("the planned fault", || test_kill_process(daemon).is_err().then_some(()));
    scene.start();
    let id = scene.json(&["jobs"])[0]["id"].as_str().unwrap().to_owned();
    let job = scene.finished(&id);
    assert_eq!(status_and_error(&job), ["completed", "", ""], "{kind} {place}");
    scene.assert_clean();
    assert!(scene.diff(&id).contains("+++ b/made"), "{kind} {place}");
}

#[test]
fn ten_jobs_continue_after_daemon_is_killed() {
    let script = "echo x > made; touch $SCENE/up.$COWHAND_JOB_ID; \
        while [ ! -e $SCENE/go ]; do sleep 0.05; done; test -e made";
    let settings = json!({
        "instances": {"max_concurrent": 10}, "isolation": {"kind": "worktree", "cleanup": "always"},
    });
    let scene = Scene::started(script, &settings);
    let jobs: Vec<String> = (0..10).map(|_| scene.trigger()).collect();
    for job in &jobs {
        wait_until("all to be at work", || scene.root.join(format!("up.{job}")).exists().then_some(()));
    }
    assert_eq!(scene.worktrees(), 11);
    let daemon = scene.daemon().unwrap();
    kill_process(daemon, Signal::KILL).unwrap();
    wait_until("the daemon to be dead", || test_kill_process(daemon).is_err().then_some(()));
    fs::write(scene.root.join("go"), "").unwrap();
    scene.start();
    for job in &jobs {
        assert_eq!(status_and_error(&scene.finished(job)), ["completed", "", ""]);
    }
    scene.assert_clean();
}
