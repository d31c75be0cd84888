//! Hooks that misbehave: recorded, bounded, and the schedule is on time.

use std::path::Path;
use std::time::Duration;

use crate::{Scene, left_over, states, text, until};

fn fleet(hooks: &str) -> String {
    format!(
        "agents:\n  - name: worker\n    runtime: command\n    command: [echo, done]\n    hooks:\n      after_run:\n{hooks}\n"
    )
}

/// Processes with this word among their arguments.
fn with_argument(word: &str) -> usize {
    let processes = std::fs::read_dir("/proc").unwrap().flatten();
    let arguments = processes.filter_map(|entry| std::fs::read(entry.path().join("cmdline")).ok());
    arguments.filter(|line| line.split(|byte| *byte == 0).any(|argument| argument == word.as_bytes())).count()
}

#[test]
fn one_that_hangs_is_ended_with_all_that_it_started() {
    // Neither listens to a request, and one has a session of its own.
    let hang = r#"        - {type: shell, timeout: 700, command: "trap '' TERM; setsid sh -c 'trap \"\" TERM; while :; do sleep 31417; done' & echo here; while :; do sleep 31417; done"}
        - {type: shell, command: "echo after"}"#;
    let mut scene = Scene::new(&fleet(hang));
    scene.start();
    let job = scene.trigger("worker");
    until("the hook to hang", || (with_argument("31417") >= 2).then_some(()));
    let hooks = scene.hooks(&job);
    assert_eq!(states(&hooks), ["failed", "completed"], "{hooks:?}");
    assert!(text(&hooks[0], "reason").starts_with("it ran longer than 700ms and was ended"), "{hooks:?}");
    assert_eq!(text(&hooks[0], "said"), "here", "what it said before is kept");
    assert_eq!(with_argument("31417"), 0);
    assert_eq!(scene.events(&job), ["hook:failed", "hook:completed"]);
}

#[test]
fn one_that_floods_costs_neither_disk_nor_rows() {
    let mut scene = Scene::new(&fleet(
        r#"        - {type: shell, timeout: 60000, command: "echo begin; head -c 300000000 /dev/zero | tr '\\0' x; yes | head -c 100000000 >&2; echo over > over"}"#,
    ));
    scene.start();
    let job = scene.trigger("worker");
    let mut most = 0;
    until("the flood to be over", || {
        let folder = scene.path(&format!(".cowhand/attempts/{job}.hook1"));
        most = most.max(size(&folder));
        scene.path("over").exists().then_some(())
    });
    let hooks = scene.hooks(&job);
    assert_eq!(states(&hooks), ["completed"], "it was not held up: {hooks:?}");
    let said = text(&hooks[0], "said");
    assert!(said.starts_with("begin\nxxx") && said.ends_with("bytes cut …]"), "{}", &said[said.len() - 60..]);
    assert!(said.len() <= 16 << 10, "{} bytes are written down", said.len());
    assert!((1..300_000).contains(&most), "{most} bytes on disk");
}

fn size(folder: &Path) -> u64 {
    let entries = std::fs::read_dir(folder).into_iter().flatten().flatten();
    entries.filter_map(|entry| entry.metadata().ok()).map(|found| found.len()).sum()
}

#[test]
fn what_one_leaves_behind_is_ended() {
    let mut scene = Scene::new(&fleet(
        r#"        - {type: shell, command: "for i in $(seq 40); do setsid sleep 27182 & done; echo forked"}
        - {type: shell, command: "exit 1"}
        - {type: shell, command: "no-such-program-at-all"}
        - {type: shell, command: "kill -9 $$"}"#,
    ));
    scene.start();
    let hooks = scene.after("worker");
    assert_eq!(states(&hooks), ["completed", "failed", "failed", "failed"]);
    assert_eq!(text(&hooks[0], "reason"), "40 process(es) that it left behind were ended");
    assert_eq!(with_argument("27182"), 0);
    assert_eq!(text(&hooks[1], "reason"), "exit code 1");
    assert_eq!(text(&hooks[2], "reason"), "exit code 127");
    assert!(text(&hooks[2], "said").contains("not found"), "{hooks:?}");
    assert_eq!(text(&hooks[3], "reason"), "ended by signal 9");
}

#[test]
fn schedules_are_on_time_whatever_hooks_do() {
    let mut scene = Scene::new(
        r#"
agents:
  - name: worker
    runtime: command
    command: [echo, done]
    schedules: {often: {type: interval, interval: 1s}}
    hooks:
      after_run:
        - {type: shell, timeout: 20000, command: "sleep 20"}
        - {type: webhook, url: "http://127.0.0.1:9/", allow_private: true}
"#,
    );
    scene.start();
    let jobs = until("five jobs of the schedule", || {
        let jobs = scene.json(&["jobs", "--agent", "worker"]).as_array().unwrap().clone();
        let ended = jobs.iter().filter(|job| job["status"] == "completed").count();
        (ended >= 5).then_some(jobs)
    });
    let at = |value: &serde_json::Value| value.as_str().unwrap().parse::<jiff::Timestamp>().unwrap();
    let mut times: Vec<_> = jobs
        .iter()
        .filter(|job| job["status"] == "completed")
        .map(|job| (at(&job["run_started_at"]), at(&job["finished_at"])))
        .collect();
    times.sort_unstable();
    for pair in times.windows(2) {
        let late = pair[1].0.duration_since(pair[0].1) - jiff::SignedDuration::from_secs(1);
        eprintln!("started {late:?} after it was due");
        assert!(late.unsigned_abs() < Duration::from_millis(1500), "it was {late:?} late");
    }
    // The hooks of the first job still run, though five jobs have come and gone.
    let first = jobs.last().unwrap()["id"].as_str().unwrap();
    assert_eq!(scene.json(&["job", first])["hooks"][0]["state"], "running");
    scene.kill();
    assert!(!left_over(scene.folder.path()).is_empty(), "keepers see to what is left");
}
