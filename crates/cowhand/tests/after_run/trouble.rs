//! Hooks that misbehave are recorded and bounded, and the schedule continues.

use std::path::Path;
use std::time::Duration;

use rustix::process::Pid;

use crate::{Scene, left_over, states, text, wait_at_most, wait_until};

fn fleet(hooks: &str) -> String {
    format!(
        "agents:\n  - name: worker\n    runtime: command\n    command: [echo, done]\n    hooks:\n      after_run:\n{hooks}\n"
    )
}

/// Counts the processes of this test with this argument.
fn with_argument(scene: &Scene, word: &str) -> usize {
    let ours = left_over(scene.folder.path()).into_iter().map(Pid::as_raw_nonzero);
    let arguments = ours.filter_map(|pid| std::fs::read(format!("/proc/{pid}/cmdline")).ok());
    arguments.filter(|line| line.split(|byte| *byte == 0).any(|argument| argument == word.as_bytes())).count()
}

#[test]
fn hanging_hook_is_killed_with_its_processes() {
    // Both processes ignore SIGTERM, and one of them has its own session.
    let hang = r#"        - {type: shell, timeout: 8000, command: "trap '' TERM; setsid sh -c 'trap \"\" TERM; while :; do sleep 31417; done' & echo here; while :; do sleep 31417; done"}
        - {type: shell, command: "echo after"}"#;
    let mut scene = Scene::new(&fleet(hang));
    scene.start();
    let job = scene.trigger("worker");
    wait_until("the hook to hang", || (with_argument(&scene, "31417") >= 2).then_some(()));
    let hooks = scene.hooks(&job);
    assert_eq!(states(&hooks), ["failed", "completed"], "{hooks:?}");
    assert!(text(&hooks[0], "reason").starts_with("it ran longer than 8s and was ended"), "{hooks:?}");
    assert_eq!(text(&hooks[0], "said"), "here", "what it said before is kept");
    assert_eq!(with_argument(&scene, "31417"), 0);
    assert_eq!(scene.events(&job), ["hook:failed", "hook:completed"]);
}

#[test]
fn large_hook_output_is_cut() {
    let mut scene = Scene::new(&fleet(
        r#"        - {type: shell, timeout: 240000, command: "echo begin; head -c 300000000 /dev/zero | tr '\\0' x; yes | head -c 100000000 >&2; echo over > over"}"#,
    ));
    scene.start();
    let job = scene.trigger("worker");
    let mut most = 0;
    wait_at_most(Duration::from_mins(4), "the flood to be over", || {
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
fn processes_left_by_hook_are_killed() {
    let mut scene = Scene::new(&fleet(
        r#"        - {type: shell, command: "for i in $(seq 40); do setsid sleep 27182 & done; echo forked"}
        - {type: shell, command: "exit 1"}
        - {type: shell, command: "no-such-program-at-all"}
        - {type: shell, command: "kill -9 $$"}"#,
    ));
    scene.start();
    let hooks = scene.hooks_after_run("worker");
    assert_eq!(states(&hooks), ["completed", "failed", "failed", "failed"]);
    assert_eq!(text(&hooks[0], "reason"), "40 processes that it left behind were ended");
    assert_eq!(with_argument(&scene, "27182"), 0);
    assert_eq!(text(&hooks[1], "reason"), "exit code 1");
    assert_eq!(text(&hooks[2], "reason"), "exit code 127");
    assert!(text(&hooks[2], "said").contains("not found"), "{hooks:?}");
    assert_eq!(text(&hooks[3], "reason"), "ended by signal 9");
}

#[test]
fn schedule_fires_while_its_hooks_hang() {
    let mut scene = Scene::new(
        r#"
agents:
  - name: worker
    runtime: command
    command: [echo, done]
    schedules: {often: {type: interval, interval: 1s}}
    hooks:
      after_run:
        - {type: shell, timeout: 3600000, command: "while [ ! -e on ]; do sleep 0.1; done"}
        - {type: webhook, url: "http://127.0.0.1:9/", allow_private: true}
"#,
    );
    scene.start();
    let ended = || {
        let jobs = scene.json(&["jobs", "--agent", "worker", "--status", "completed"]);
        jobs.as_array().unwrap().clone()
    };
    let first = wait_until("the first job", || ended().last()?["id"].as_str().map(str::to_owned));
    let hook = || scene.json(&["job", &first])["hooks"][0]["state"].clone();
    wait_until("its hook to run", || (hook() == "running").then_some(()));
    // None of the hooks can end before there is a file `on`.
    let before = ended().len();
    wait_until("five more jobs of the schedule", || (ended().len() >= before + 5).then_some(()));
    assert_eq!(hook(), "running");
    scene.kill();
    assert!(!left_over(scene.folder.path()).is_empty(), "keepers see to what is left");
}
