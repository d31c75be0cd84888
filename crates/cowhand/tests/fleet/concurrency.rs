//! Agents run in parallel, each within its own limit.

use std::fmt::Write as _;
use std::fs;

use super::{Scene, wait_until};

/// Fleet in which each run writes `+` when it begins and `-` when it ends, so that the file shows how many
/// ran at once. None of them ends before there is a file `on`.
const FLEET: &str = r#"
agents:
  - name: left
    runtime: command
    command: [sh, -c, "echo left >> ran"]
    schedules: {tick: {type: interval, interval: 1s}}
  - name: right
    runtime: command
    command: [sh, -c, "echo right >> ran"]
    schedules: {tick: {type: interval, interval: 1s}}
  - name: slow
    runtime: command
    command: [sh, -c, "while [ ! -e go ]; do sleep 0.05; done"]
    schedules: {long: {type: interval, interval: 1d}}
  - name: many
    runtime: command
    command: [sh, -c, "echo + >> many; while [ ! -e on ]; do sleep 0.05; done; echo - >> many"]
    instances: {max_concurrent: 2}
    schedules:
      a: {type: interval, interval: 1s}
      b: {type: interval, interval: 1s}
      c: {type: interval, interval: 1s}
"#;

#[test]
fn agents_run_in_parallel_within_their_limits() {
    let scene = Scene::with(FLEET);
    scene.start();
    for _ in 0..3 {
        assert_eq!(scene.run(&["trigger", "many"]).code, Some(0));
    }
    let count = |file: &str, word: &str| {
        let text = std::fs::read_to_string(scene.root.join(file)).unwrap_or_default();
        text.lines().filter(|line| *line == word).count()
    };
    let turned_away = |log: &str| {
        let said = |schedule| log.contains(&format!("Skipping many/{schedule}: at max capacity (2/2)"));
        ["a", "b", "c"].into_iter().any(said)
    };
    wait_until("two to run and a third to be turned away", || {
        (count("many", "+") == 2 && turned_away(&scene.log())).then_some(())
    });
    scene.write("on", "");
    for agent in ["left", "right"] {
        wait_until("the quick ones to run again and again", || (count("ran", agent) >= 3).then_some(()));
    }
    wait_until("the many to have run", || (count("many", "-") >= 6).then_some(()));
    let slow = scene.json(&["jobs", "--agent", "slow"]);
    assert_eq!(
        (slow.as_array().unwrap().len(), slow[0]["status"].as_str()),
        (1, Some("running")),
        "all the while"
    );
    let (mut now, mut most) = (0, 0);
    for line in std::fs::read_to_string(scene.root.join("many")).unwrap().lines() {
        now += if line == "+" { 1 } else { -1 };
        most = most.max(now);
    }
    assert_eq!(most, 2, "two at once, and never three");
}

/// A schedule needs memory only for its config and for reading it; only running jobs need more.
#[test]
fn idle_schedules_use_little_memory() {
    let kilobytes = |count: usize| {
        let mut fleet = String::from("agents:\n");
        for agent in 0..count / 10 {
            writeln!(
                fleet,
                "  - name: a{agent}\n    runtime: command\n    command: ['true']\n    schedules:"
            )
            .unwrap();
            for schedule in 0..10 {
                writeln!(
                    fleet,
                    "      s{schedule}: {{type: cron, cron: 0 0 1 1 *, prompt: Happy new year.}}"
                )
                .unwrap();
            }
        }
        let scene = Scene::with(&fleet);
        scene.start();
        let pid = scene.daemon().unwrap().as_raw_nonzero();
        let status = fs::read_to_string(format!("/proc/{pid}/status")).unwrap();
        let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:")).unwrap().to_owned();
        line.split_whitespace().next().unwrap().parse::<u64>().unwrap()
    };
    let (few, many) = (kilobytes(10), kilobytes(500));
    assert!(many < few + 25_000, "{few} KB with ten schedules, {many} KB with five hundred");
}

/// A schedule that queues a job every second, each longer than a second, does not prevent another schedule of the agent
/// from running.
#[test]
fn queued_jobs_do_not_starve_other_schedules() {
    let scene = Scene::with(
        r#"
agents:
  - name: a
    runtime: command
    command: [sh, -c, "echo $COWHAND_SCHEDULE >> ran; sleep 1.5"]
    schedules:
      queue: {type: cron, cron: "* * * * * *", overlap: queue}
      other: {type: interval, interval: 1s}
"#,
    );
    scene.start();
    let ran = || fs::read_to_string(scene.root.join("ran")).unwrap_or_default();
    wait_until("both to run several times", || {
        let count = |name: &str| ran().lines().filter(|line| *line == name).count();
        (count("queue") >= 4 && count("other") >= 3).then_some(())
    });
    let waiting = scene.json(&["jobs", "--schedule", "queue", "--status", "pending"]);
    assert!(!waiting.as_array().unwrap().is_empty(), "the queue is not empty: {}", ran());
    assert!(!ran().contains("queue\nqueue\nqueue\nqueue"), "they take turns: {}", ran());
}

/// A retry is not fired by its schedule, but it is a job of it, as a job by hand is.
#[test]
fn running_retry_counts_as_job_of_its_schedule() {
    let scene = Scene::with(
        "agents:
  - name: a
    runtime: command
    command: [sh, -c, 'while [ ! -e go ]; do sleep 0.05; done']
    instances: {max_concurrent: 2}
    schedules:
      cr: {type: cron, cron: '0 0 1 1 *', timezone: UTC}
      often: {type: interval, interval: 1s}
",
    );
    scene.write("go", "");
    scene.start();
    let first = scene.json(&["trigger", "a", "cr", "--wait"])["id"].as_str().unwrap().to_owned();
    let fired = wait_until("the interval", || {
        let jobs = scene.json(&["jobs", "--schedule", "often", "--status", "completed"]);
        jobs[0]["id"].as_str().map(str::to_owned)
    });
    assert_eq!(scene.run(&["schedule", "disable", "a/often"]).code, Some(0));
    wait_until("all to end", || {
        scene.json(&["jobs", "--status", "running"]).as_array().unwrap().is_empty().then_some(())
    });
    fs::remove_file(scene.root.join("go")).unwrap();
    for (job, name) in [(first, "a/cr"), (fired, "a/often")] {
        let again = scene.json(&["retry", &job])["id"].as_str().unwrap().to_owned();
        wait_until("the retry to run", || (scene.job(&again)["status"] == "running").then_some(()));
        scene.run(&["schedule", "enable", name]);
        assert_eq!(scene.json(&["schedule", "show", name])["status"], "running", "{name}");
    }
    let view = wait_until("the interval to be due", || {
        let view = scene.json(&["schedule", "show", "a/often"]);
        view["due_since"].is_string().then_some(view)
    });
    assert_eq!(view["skip_reason"], "already_running", "{view}");
    let said = scene.run(&["why", "a/often"]).stdout;
    assert!(said.contains("a/often is running"), "{said}");
    scene.write("go", "");
}
