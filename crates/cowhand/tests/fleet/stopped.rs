//! An attempt that is stopped, and a daemon that does not live to see its end.

use std::fs;

use crate::{Scene, until};

/// It says that it was asked to stop, and takes its time; once there is a file `quick` it needs none.
const SLOW: &str = r#"
agents:
  - name: slow
    runtime: command
    command: [sh, -c, "[ ! -e quick ] || exit 0; trap 'echo > asked' TERM INT; echo > up; while [ ! -e end ]; do sleep 0.05; done"]
    timeout: 3s
    MORE
"#;

/// The attempt has outrun its time, the daemon has asked for its end and died, and then it ended.
fn stopped_by_one_who_died(more: &str, trigger: bool) -> Scene {
    let scene = Scene::with(&SLOW.replace("MORE", more));
    scene.start();
    if trigger {
        scene.json(&["trigger", "slow"]);
    }
    until("it to be asked", || scene.root.join("asked").exists().then_some(()));
    scene.lose_the_daemon();
    scene.write("end", "");
    until("its keeper to say how it ended", || {
        let attempts = fs::read_dir(scene.root.join(".cowhand/attempts")).unwrap();
        attempts.flatten().any(|attempt| attempt.path().join("ending.json").exists()).then_some(())
    });
    scene
}

#[test]
fn a_timeout_stays_one_and_is_tried_again() {
    let scene = stopped_by_one_who_died("retry: {max_attempts: 2, backoff: 1s, on: [timeout]}", true);
    scene.write("quick", "");
    scene.start();
    let job = until("it to end", || {
        let jobs = scene.json(&["jobs"]);
        Some(jobs[0].clone()).filter(|job| job["finished_at"].is_string())
    });
    assert_eq!((&job["status"], &job["attempt"]), (&"completed".into(), &2.into()), "{job:#}");
}

#[test]
fn a_timeout_stays_one_and_counts() {
    let more = "breaker: {failures: 1, pause: 1h}\n    schedules: {often: {type: interval, interval: 1s}}";
    let scene = stopped_by_one_who_died(more, false);
    scene.start();
    let job = until("it to end", || {
        let jobs = scene.json(&["jobs"]);
        Some(jobs[0].clone()).filter(|job| job["finished_at"].is_string())
    });
    assert_eq!((&job["status"], &job["error"]["kind"]), (&"failed".into(), &"timeout".into()), "{job:#}");
    assert_eq!(job["error"]["message"], "it ran longer than 3s", "{job:#}");
    let why = scene.json(&["why", "slow/often"]);
    assert_eq!(why["schedule"]["status"], "paused", "{why:#}");
}

/// Whoever was cancelled is cancelled, also if nobody is left to say how it ended.
#[test]
fn a_cancelled_one_stays_cancelled() {
    let scene = Scene::with(&SLOW.replace("timeout: 3s", "timeout: 1h").replace("MORE", ""));
    scene.start();
    let job = scene.json(&["trigger", "slow"])["id"].as_str().unwrap().to_owned();
    until("it to run", || scene.root.join("up").exists().then_some(()));
    assert_eq!(scene.run(&["cancel", &job]).code, Some(0));
    until("it to be asked", || scene.root.join("asked").exists().then_some(()));
    scene.lose_the_daemon();
    for keeper in crate::left_over(scene.folder.path()) {
        let _ = rustix::process::kill_process(keeper, rustix::process::Signal::KILL);
    }
    scene.start();
    let job = until("it to end", || Some(scene.job(&job)).filter(|job| job["finished_at"].is_string()));
    assert_eq!(job["status"], "cancelled", "{job:#}");
}
