//! A fleet after `restore` continues from the moment of the backup, whatever happened later.

use std::fs;

use super::{Scene, wait_until};

/// `one` works on one job at a time, until there is a file `go`; each run writes a line.
const ONE: &str = r#"
agents:
  - name: one
    runtime: command
    command: [sh, -c, "echo $COWHAND_JOB_ID | tee -a runs; while [ ! -e go ]; do sleep 0.05; done"]
    hooks: {after_run: [{type: shell, command: "echo $COWHAND_JOB_ID >> hooks"}]}
"#;

#[test]
fn job_pending_at_backup_runs_after_restore() {
    let scene = Scene::with(ONE);
    scene.start();
    let trigger = || scene.json(&["trigger", "one"])["id"].as_str().unwrap().to_owned();
    let lines = |name: &str| fs::read_to_string(scene.root.join(name)).unwrap_or_default();
    let times = |name: &str, job: &str| lines(name).lines().filter(|line| *line == job).count();
    let first = trigger();
    wait_until("the first to run", || (times("runs", &first) == 1).then_some(()));
    let (second, third) = (trigger(), trigger());
    assert_eq!(scene.run(&["backup", "saved.db"]).code, Some(0));
    let later = trigger();
    assert_eq!(scene.run(&["cancel", &third]).code, Some(0));
    scene.go();
    let ended = |job: &str| !scene.job(job)["finished_at"].is_null();
    wait_until("their ends", || [&second, &third, &later].iter().all(|job| ended(job)).then_some(()));
    wait_until("their hooks", || {
        [&first, &second, &later].iter().all(|job| times("hooks", job) == 1).then_some(())
    });
    assert_eq!(scene.run(&["stop"]).code, Some(0));
    assert_eq!(scene.run(&["restore", "saved.db"]).code, Some(0));
    assert!(!scene.root.join(format!(".cowhand/jobs/{later}.yaml")).exists(), "the store does not know it");
    scene.start();
    wait_until("their ends", || [&first, &second, &third].iter().all(|job| ended(job)).then_some(()));
    for job in [&first, &second, &third] {
        assert_eq!(scene.job(job)["status"], "completed", "{}", scene.job(job));
    }
    assert_eq!([&first, &second, &third].map(|job| times("runs", job)), [1, 2, 1], "{}", lines("runs"));
    let said = scene.run(&["logs", &second, "--result"]).stdout;
    assert_eq!(said.trim(), second, "of this run alone");
    let kept = fs::read_dir(scene.root.join(".cowhand")).unwrap().flatten().map(|entry| entry.path());
    let mut kept = kept.filter(|path| path.to_string_lossy().ends_with("Z.jobs"));
    assert!(kept.next().unwrap().join(format!("{second}.jsonl")).is_file());
    wait_until("the hook of this history", || (times("hooks", &second) == 2).then_some(()));
}

/// The outcome of an attempt is known, also if the attempt ended after the backup. Without the file `outcomes.jsonl`,
/// the outcome is lost, and the job does not run again.
#[test]
fn job_running_at_backup_keeps_outcome_after_restore() {
    for kept in [true, false] {
        let scene = Scene::started();
        let (job, _) = scene.waiting_job();
        assert_eq!(scene.run(&["backup", "saved.db"]).code, Some(0));
        scene.go();
        let ended =
            wait_until("its end", || Some(scene.job(&job)).filter(|job| !job["finished_at"].is_null()));
        assert_eq!((&ended["status"], &ended["summary"]), (&"completed".into(), &"went".into()), "{ended}");
        assert_eq!(scene.run(&["stop"]).code, Some(0));
        assert_eq!(scene.run(&["restore", "saved.db"]).code, Some(0));
        if !kept {
            fs::remove_file(scene.root.join(".cowhand/outcomes.jsonl")).unwrap();
        }
        // The restored store has the job as running, but nothing of it runs any more.
        let status = scene.json(&["status"]);
        assert_eq!((&status["running"], &status["unsettled"]), (&0.into(), &1.into()), "{status}");
        assert!(scene.run(&["job", &job]).stdout.contains("unsettled: its attempt has ended"));
        scene.start();
        let again =
            wait_until("its end", || Some(scene.job(&job)).filter(|job| !job["finished_at"].is_null()));
        if kept {
            for field in ["status", "summary", "exit_reason", "finished_at", "error"] {
                assert_eq!(again[field], ended[field], "{field}");
            }
        } else {
            assert_eq!(
                (&again["status"], &again["error"]["kind"]),
                (&"failed".into(), &"lost".into()),
                "{again}"
            );
            let message = again["error"]["message"].as_str().unwrap();
            assert!(message.starts_with("lost: the store was restored"), "{message}");
        }
    }
}

/// A job that is created while the backup is made is not in the copy of the store, so its output is left out.
#[test]
fn backup_has_output_only_of_its_jobs() {
    let scene = Scene::started();
    scene.run(&["trigger", "worker", "--wait"]);
    let later = scene.root.join(".cowhand/jobs/job-2026-01-05-abc123.jsonl");
    fs::write(later, "{\"type\":\"assistant\",\"content\":\"later\"}\n").unwrap();
    let counts = scene.json(&["backup", "saved.db"]);
    assert_eq!((&counts["jobs"], &counts["outputs"]), (&1.into(), &1.into()), "{counts}");
}
