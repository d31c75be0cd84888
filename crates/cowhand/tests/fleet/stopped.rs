//! Attempts that are being stopped when the daemon dies.

use std::fs;
use std::path::PathBuf;
use std::process::Command;

use rustix::process::{Pid, Signal, kill_process};
use serde_json::Value;

use crate::{Scene, kill_and_wait, left_over, wait_until};

/// The agent writes a file when it is asked to stop, and delays its end; if there is a file `quick` it ends
/// at once.
const SLOW: &str = r#"
agents:
  - name: slow
    runtime: command
    command: [sh, -c, "[ ! -e quick ] || exit 0; trap 'echo > asked' TERM INT; echo > up; while [ ! -e end ]; do sleep 0.05; done"]
    timeout: LIMIT
    MORE
"#;

fn fleet(limit: &str, more: &str) -> String {
    SLOW.replace("LIMIT", limit).replace("MORE", more)
}

/// Starts an attempt that exceeds its timeout and is asked to stop; returns the daemon that asked. The
/// timeout is set only when the agent is up, by a new daemon.
fn asked_to_stop(more: &str, trigger: bool) -> (Scene, Pid) {
    let scene = Scene::with(&fleet("1h", more));
    scene.start();
    if trigger {
        scene.json(&["trigger", "slow"]);
    }
    wait_until("it to run", || scene.root.join("up").exists().then_some(()));
    scene.kill_daemon();
    scene.write("cowhand.yaml", &fleet("1s", more));
    scene.start();
    let daemon = scene.daemon().unwrap();
    wait_until("it to be asked", || scene.root.join("asked").exists().then_some(()));
    (scene, daemon)
}

/// Kills the daemon, and then lets the attempt end. The next daemon has other limits.
fn stopped_by_one_who_died(more: &str, trigger: bool) -> Scene {
    let (scene, daemon) = asked_to_stop(more, trigger);
    kill_and_wait(daemon);
    scene.write("end", "");
    wait_until("its keeper to say how it ended", || {
        attempt(&scene).join("ending.json").exists().then_some(())
    });
    scene.write("cowhand.yaml", &fleet("1h", more));
    scene
}

/// Returns the folder of the only attempt.
fn attempt(scene: &Scene) -> PathBuf {
    let attempts: Vec<_> = fs::read_dir(scene.root.join(".cowhand/attempts")).unwrap().flatten().collect();
    assert_eq!(attempts.len(), 1, "{attempts:?}");
    attempts[0].path()
}

/// Waits for the end of the job.
fn ended(scene: &Scene) -> Value {
    wait_until("it to end", || {
        let jobs = scene.json(&["jobs"]);
        Some(jobs[0].clone()).filter(|job| job["finished_at"].is_string())
    })
}

#[test]
fn lifecycle_verbs_print_json() {
    let scene = Scene::new();
    let started = scene.json(&["start", "-d", "--no-server"]);
    assert_eq!((&started["running"], &started["url"]), (&true.into(), &serde_json::Value::Null));
    assert_eq!(scene.json(&["clear", "worker"])["name"], "worker");
    assert_eq!(scene.json(&["backup", "kept.db"])["jobs"], 0);
    let restarted = scene.json(&["restart"]);
    assert!(restarted["pid"].is_u64() && restarted["pid"] != started["pid"], "{restarted}");
    let (job, _) = scene.waiting_job();
    let kept = serde_json::json!({"cancelled": [], "running": 1, "unsettled": []});
    assert_eq!(scene.json(&["stop", "--keep-agents"]), kept);
    scene.start();
    let stopped = scene.json(&["stop", "--timeout", "0"]);
    assert_eq!((&stopped["cancelled"][0]["job"], &stopped["running"]), (&job.into(), &0.into()));
    let restored = scene.json(&["restore", "kept.db"]);
    assert_eq!((&restored["file"], &restored["jobs"]), (&"kept.db".into(), &0.into()));
    assert!(restored["replaced"].as_str().unwrap().contains("store.db.replaced-"), "{restored}");
    std::fs::create_dir(scene.root.join("new")).unwrap();
    assert_eq!(scene.json(&["-c", "new", "init"])["file"], "new/cowhand.yaml");
}

#[test]
fn agent_that_ignores_stop_after_timeout_is_killed() {
    let (scene, _) = asked_to_stop("", true);
    let job = ended(&scene);
    assert_eq!((&job["status"], &job["exit_reason"]), (&"failed".into(), &"timeout".into()), "{job:#}");
    assert_eq!(job["error"]["message"], "it ran longer than 1s and had to be killed", "{job:#}");
}

#[test]
fn timeout_is_retried_after_daemon_was_killed() {
    let scene = stopped_by_one_who_died("retry: {max_attempts: 2, backoff: 1s, on: [timeout]}", true);
    scene.write("quick", "");
    scene.start();
    let job = ended(&scene);
    assert_eq!((&job["status"], &job["attempt"]), (&"completed".into(), &2.into()), "{job:#}");
}

#[test]
fn timeout_counts_for_breaker_after_daemon_was_killed() {
    let more = "breaker: {failures: 1, pause: 1h}\n    schedules: {often: {type: interval, interval: 1s}}";
    let scene = stopped_by_one_who_died(more, false);
    scene.start();
    let job = ended(&scene);
    assert_eq!((&job["status"], &job["error"]["kind"]), (&"failed".into(), &"timeout".into()), "{job:#}");
    assert_eq!(job["error"]["message"], "it ran longer than 1s", "{job:#}");
    let why = scene.json(&["why", "slow/often"]);
    assert_eq!(why["schedule"]["status"], "paused", "{why:#}");
}

/// A cancelled job stays cancelled, even if no process is left that could report its end.
#[test]
fn cancelled_job_stays_cancelled_after_daemon_was_killed() {
    let scene = Scene::with(&fleet("1h", ""));
    scene.start();
    let daemon = scene.daemon().unwrap();
    let job = scene.json(&["trigger", "slow"])["id"].as_str().unwrap().to_owned();
    wait_until("it to run", || scene.root.join("up").exists().then_some(()));
    let keeper = fs::read(attempt(&scene).join("keeper.json")).unwrap();
    let keeper = serde_json::from_slice::<Value>(&keeper).unwrap()["pid"].as_i64().unwrap();
    let keeper = Pid::from_raw(keeper.try_into().unwrap()).unwrap();
    // The verb returns when the job has ended, which does not happen here.
    let cancel = scene.spawn(&["cancel", &job]);
    wait_until("it to be asked", || scene.root.join("asked").exists().then_some(()));
    kill_and_wait(daemon);
    kill_process(keeper, Signal::KILL).unwrap();
    drop(cancel);
    wait_until("all of it to be gone", || {
        let left = left_over(scene.folder.path());
        for pid in &left {
            let _ = kill_process(*pid, Signal::KILL);
        }
        left.is_empty().then_some(())
    });
    assert!(!attempt(&scene).join("ending.json").exists(), "nobody saw how it ended");
    assert_eq!(scene.job(&job)["status"], "running", "nobody settled it");
    scene.start();
    let job = wait_until("it to end", || Some(scene.job(&job)).filter(|job| job["finished_at"].is_string()));
    assert_eq!(job["status"], "cancelled", "{job:#}");
}

/// The state of the jobs cannot be read, and is reported as unknown, not as empty.
#[test]
fn stop_reports_unknown_state_of_jobs() {
    for json in [false, true] {
        let scene = Scene::started();
        scene.waiting_job();
        fs::write(scene.root.join(".cowhand/node"), "").unwrap();
        let said = if json {
            let said = scene.json(&["stop", "--timeout", "0"]);
            assert_eq!((&said["cancelled"], &said["running"]), (&Value::Null, &Value::Null), "{said}");
            said["problem"].as_str().unwrap().to_owned()
        } else {
            let said = scene.run(&["stop", "--timeout", "0"]);
            assert_eq!(said.code, Some(0), "{}", said.stderr);
            let words = "stopped; the state of the jobs is unknown: ";
            assert!(said.stdout.starts_with(words), "{}", said.stdout);
            said.stdout
        };
        assert!(said.contains("cannot read the name of this node"), "{said}");
    }
}

/// The daemon is gone, so nobody has recorded the end of the job.
#[test]
fn verbs_without_daemon_say_that_a_running_job_has_ended() {
    let scene = Scene::with(&fleet("1h", ""));
    scene.start();
    scene.json(&["trigger", "slow"]);
    wait_until("it to run", || scene.root.join("up").exists().then_some(()));
    let waiting = scene.json(&["trigger", "slow"])["id"].as_str().unwrap().to_owned();
    scene.kill_daemon();
    let note = "the attempt of 1 job has ended or never began, and the next start ends or continues the job";
    assert!(!scene.run(&["status"]).stdout.contains(note), "it still runs");
    let status = scene.json(&["status"]);
    assert_eq!((&status["running"], &status["unsettled"]), (&1.into(), &0.into()), "{status:#}");
    scene.write("end", "");
    wait_until("its keeper to say how it ended", || {
        attempt(&scene).join("ending.json").exists().then_some(())
    });
    for verb in [&["status"][..], &["doctor"], &["jobs"], &["agents"], &["schedule", "list"]] {
        let said = scene.run(verb);
        let said = said.stdout + &said.stderr;
        assert_eq!(said.split_whitespace().collect::<Vec<_>>().join(" ").matches(note).count(), 1, "{said}");
    }
    let status = scene.json(&["status"]);
    let agent = &status["agents"][0];
    assert_eq!((&status["running"], &status["unsettled"]), (&0.into(), &1.into()), "{status:#}");
    assert_eq!((&agent["running"], &agent["unsettled"]), (&0.into(), &1.into()), "{status:#}");
    assert!(scene.run(&["status"]).stdout.contains("not settled: the attempt of 1 job has ended"));
    let found = scene.json(&["doctor"]);
    let is_finding = |finding: &&Value| finding["what"] == "jobs" && finding["warning"] == true;
    assert!(found.as_array().unwrap().iter().any(|finding| is_finding(&finding)), "{found:#}");
    let jobs = scene.json(&["jobs"]);
    let ended = jobs.as_array().unwrap().iter().find(|job| job["unsettled"] == true).unwrap();
    assert_eq!(ended["status"], "running");
    let ended = ended["id"].as_str().unwrap();
    let list = scene.run(&["jobs"]).stdout;
    let row = list.lines().find(|line| line.contains(ended)).unwrap();
    assert!(row.contains("unsettled") && !row.contains("running"), "{list}");
    let shown = scene.run(&["job", ended]).stdout;
    assert!(
        shown.contains("unsettled: its attempt has ended, and the next start ends or retries the job"),
        "{shown}"
    );
    let said = scene.run(&["job", &waiting]).stdout;
    assert!(said.contains("no daemon runs; it starts when a daemon does"), "{said}");
}

/// Note about a schedule whose only job is unsettled.
const NOT_SETTLED: &str =
    "the attempt of its job has ended or never began, and the next start ends or continues the job";

/// `why` and `schedule list` agree with `status` about a schedule whose job has ended while no daemon runs.
#[test]
fn schedule_of_an_ended_job_is_not_running_without_a_daemon() {
    let scene = Scene::with(
        "agents:\n  - name: slow\n    runtime: command\n    command: [sh, -c, 'touch up; while [ ! -e end ]; do sleep 0.05; done']\n    \
         default_prompt: Work.\n    schedules:\n      often: {type: interval, interval: 1h}\n",
    );
    scene.start();
    wait_until("it to run", || scene.root.join("up").exists().then_some(()));
    scene.kill_daemon();
    assert!(scene.run(&["why", "slow/often"]).stdout.contains("slow/often is running now."));
    scene.write("end", "");
    wait_until("its keeper to say how it ended", || {
        attempt(&scene).join("ending.json").exists().then_some(())
    });
    let said = scene.run(&["why", "slow/often"]).stdout;
    let row = said.lines().find(|line| line.contains("it was due")).unwrap();
    assert!(said.contains("is on, and not running now") && row.contains("unsettled"), "{said}");
    assert!(words(&said).contains(NOT_SETTLED), "{said}");
    let list = scene.run(&["schedule", "list"]).stdout;
    assert!(words(&list).contains(NOT_SETTLED), "{list}");
    assert!(!list.contains("running"), "{list}");
    let next = scene.run(&["schedule", "next", "slow/often"]).stdout;
    assert!(words(&next).contains(NOT_SETTLED), "{next}");
    let view = scene.json(&["schedule", "list"]);
    assert_eq!((&view[0]["status"], &view[0]["unsettled"]), (&"idle".into(), &1.into()), "{view:#}");
}

/// An agent that starts only when its `setup` has found the file `go`. The number of its runs is in the file `runs`.
const SET_UP: &str = r#"
agents:
  - name: worker
    runtime: command
    command: [sh, -c, "echo ran >> ROOT/runs"]
    isolation: {kind: worktree, setup: [sh, -c, "echo > ROOT/up; while [ ! -e ROOT/go ]; do sleep 0.05; done"]}
    schedules: {by-hand: {type: manual, prompt: Work.}}
"#;

/// The daemon is gone while it prepares an attempt. The attempt never began, so the next start continues the job. The
/// same holds after `restore`, which leaves no folder of the attempts that the store has.
#[test]
fn job_whose_attempt_never_began_is_not_shown_as_ended() {
    for restored in [false, true] {
        let scene = Scene::new();
        scene.write("cowhand.yaml", &SET_UP.replace("ROOT", &scene.root.display().to_string()));
        let git = |arguments: &[&str]| {
            let git = Command::new("git").arg("-C").arg(&scene.root).args(arguments).status().unwrap();
            assert!(git.success());
        };
        git(&["init", "-q"]);
        git(&["-c", "user.name=a", "-c", "user.email=a@b", "commit", "-q", "--allow-empty", "-m", "first"]);
        scene.start();
        if restored {
            assert_eq!(scene.run(&["backup", "saved.db"]).code, Some(0));
            assert_eq!(scene.run(&["stop"]).code, Some(0));
            assert_eq!(scene.run(&["restore", "saved.db"]).code, Some(0));
            scene.start();
        }
        let job = scene.json(&["trigger", "worker/by-hand"])["id"].as_str().unwrap().to_owned();
        wait_until("its setup to run", || scene.root.join("up").exists().then_some(()));
        scene.kill_daemon();
        let view = scene.job(&job);
        assert_eq!((&view["unsettled"], &view["never_began"]), (&true.into(), &true.into()), "{view:#}");
        assert_eq!(scene.json(&["jobs"])[0]["never_began"], true);
        let sentence = "its attempt never began, and the next start continues the job";
        for verb in ["job", "logs"] {
            let said = scene.run(&[verb, &job]).stdout;
            assert!(words(&said).contains(sentence) && !said.contains("ended"), "{said}");
        }
        for verb in [&["jobs"][..], &["status"], &["why", "worker/by-hand"]] {
            let said = scene.run(verb).stdout;
            assert!(said.contains("unsettled") && !said.contains("is running now"), "{said}");
        }
        let status = scene.json(&["status"]);
        assert_eq!((&status["running"], &status["unsettled"]), (&0.into(), &1.into()), "{status:#}");
        scene.write("go", "");
        scene.start();
        let job = ended(&scene);
        assert_eq!((&job["status"], &job["attempt"]), (&"completed".into(), &2.into()), "{job:#}");
        assert_eq!(fs::read_to_string(scene.root.join("runs")).unwrap(), "ran\n");
    }
}

/// An attempt that failed while no daemon ran is retried by the next daemon, so its job has not ended.
#[test]
fn job_that_is_retried_at_start_is_not_shown_as_ended() {
    let scene = stopped_by_one_who_died("retry: {max_attempts: 2, backoff: 1s, on: [timeout]}", true);
    let job = scene.json(&["jobs"])[0]["id"].as_str().unwrap().to_owned();
    let sentence = "its attempt has ended, and the next start ends or retries the job";
    for verb in ["job", "logs"] {
        let said = scene.run(&[verb, &job]).stdout;
        assert!(words(&said).contains(sentence), "{said}");
    }
    assert_eq!(scene.job(&job)["never_began"], Value::Null);
    for verb in ["jobs", "status"] {
        let said = scene.run(&[verb]);
        assert!(
            !words(&said.stdout).contains("job has ended, and the next start settles"),
            "{}",
            said.stdout
        );
        assert!(
            !words(&said.stderr).contains("job has ended, and the next start settles"),
            "{}",
            said.stderr
        );
    }
}

/// Returns a text on one line, so that breaks of lines do not matter.
fn words(text: &str) -> String {
    text.split_whitespace().collect::<Vec<_>>().join(" ")
}
