//! Steps of the wall clock while a daemon runs, and while none runs. libfaketime sets the wall clock; the boot clock is
//! not changed.

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};

use jiff::{Timestamp, ToSpan};
use serde_json::Value;

use super::{RunResult, Scene, wait_until};

/// Fleet whose programs see a wall clock that the test sets.
struct Stepped {
    scene: Scene,
    offset: PathBuf,
}

impl Stepped {
    fn with(fleet: &str) -> Self {
        let scene = Scene::with(fleet);
        let offset = scene.folder.path().join("offset");
        fs::write(&offset, "+0s").unwrap();
        Self { scene, offset }
    }

    fn run(&self, arguments: &[&str]) -> RunResult {
        let mut command = self.scene.command(arguments);
        command
            .env("LD_PRELOAD", library())
            .env("FAKETIME_TIMESTAMP_FILE", &self.offset)
            .env("FAKETIME_NO_CACHE", "1")
            .env("FAKETIME_DONT_FAKE_MONOTONIC", "1")
            .env("NO_FAKE_STAT", "1");
        let output = command.output().unwrap();
        let text = |bytes| String::from_utf8(bytes).unwrap();
        RunResult { code: output.status.code(), stdout: text(output.stdout), stderr: text(output.stderr) }
    }

    fn json(&self, arguments: &[&str]) -> Value {
        let said = self.run(&[arguments, &["--json"]].concat());
        assert_eq!(said.code, Some(0), "{arguments:?}: {}{}", said.stdout, said.stderr);
        serde_json::from_str(&said.stdout).unwrap()
    }

    fn start(&self) {
        let said = self.run(&["start", "-d", "--no-server"]);
        assert_eq!((said.code, said.stdout.as_str()), (Some(0), "ready\n"), "{}", said.stderr);
    }

    /// Sets the wall clock to this offset from the right time. The file is replaced atomically, because other processes
    /// read it at any time.
    fn set_clock(&self, offset: &str) {
        let new = self.offset.with_extension("new");
        fs::write(&new, offset).unwrap();
        fs::rename(new, &self.offset).unwrap();
    }

    fn completed(&self) -> usize {
        let jobs = self.json(&["jobs", "--limit", "200"]);
        jobs.as_array().unwrap().iter().filter(|job| job["status"] == "completed").count()
    }

    fn steps(&self) -> Vec<i64> {
        let events = self.run(&["events", "--json", "--limit", "1000"]);
        let events = events.stdout.lines().map(|line| serde_json::from_str::<Value>(line).unwrap());
        let steps = events.filter(|event| event["type"] == "clock:stepped");
        steps.map(|event| event["seconds"].as_i64().unwrap()).collect()
    }

    /// Returns due time and outcome of each firing, the newest first.
    fn firings(&self, schedule: &str) -> Vec<(Timestamp, String)> {
        let why = self.json(&["why", schedule, "--limit", "1000"]);
        let row = |row: &Value| {
            let outcome = row["outcome"].as_str().unwrap();
            let outcome =
                row["reason"].as_str().map_or(outcome.to_owned(), |why| format!("{outcome}: {why}"));
            (row["due"].as_str().unwrap().parse().unwrap(), outcome)
        };
        why["firings"].as_array().unwrap().iter().map(row).collect()
    }
}

fn library() -> PathBuf {
    let places = ["/usr/lib/x86_64-linux-gnu", "/usr/lib/aarch64-linux-gnu", "/usr/lib64", "/usr/lib"];
    let file = |place: &&str| Path::new(place).join("faketime/libfaketimeMT.so.1");
    let found = places.iter().map(file).find(|file| file.exists());
    found.expect("libfaketime is not installed; scripts/test installs the package `faketime`")
}

const OFTEN: &str = "
agents:
  - name: worker
    runtime: command
    command: ['true']
    schedules:
      often: {type: interval, interval: 1s}
";

#[test]
fn interval_fires_after_clock_is_set_back() {
    let fleet = Stepped::with(OFTEN);
    fleet.start();
    wait_until("two runs", || (fleet.completed() >= 2).then_some(()));
    fleet.set_clock("-600s");
    let before = fleet.completed();
    wait_until("runs after the step", || (fleet.completed() >= before + 2).then_some(()));
    assert_eq!(fleet.steps(), [-600]);
    let log = fleet.scene.log();
    assert_eq!(log.matches("the wall clock was set back by").count(), 1, "{log}");
    // A step while no daemon runs is handled too.
    assert_eq!(fleet.run(&["stop"]).code, Some(0));
    fleet.set_clock("-1200s");
    fleet.start();
    let before = fleet.completed();
    wait_until("runs after the restart", || (fleet.completed() >= before + 2).then_some(()));
    assert_eq!(fleet.steps(), [-600, -600]);
    let view = fleet.json(&["schedule", "show", "worker/often"]);
    assert_eq!(view["last_error"], Value::Null);
    assert_eq!(fleet.run(&["stop"]).code, Some(0));
}

const SLOW: &str = "
agents:
  - name: waiter
    runtime: command
    command: [sh, -c, 'echo up; while [ ! -e go ]; do sleep 0.05; done; echo went']
    timeout: 1h
    idle_timeout: 15m
";

#[test]
fn clock_set_forward_does_not_time_out_jobs() {
    let fleet = Stepped::with(SLOW);
    fleet.start();
    let job = fleet.json(&["trigger", "waiter"])["id"].as_str().unwrap().to_owned();
    let output = format!(".cowhand/jobs/{job}.jsonl");
    wait_until("its output", || {
        fs::read_to_string(fleet.scene.root.join(&output)).ok()?.contains("up").then_some(())
    });
    fleet.set_clock("+7200s");
    let status = || fleet.json(&["job", &job])["status"].as_str().unwrap().to_owned();
    wait_until("the step to be noticed", || {
        assert_eq!(status(), "running");
        (fleet.steps() == [7200]).then_some(())
    });
    // The daemon checks the attempt twice a second; a new daemon starts its own checks.
    assert_eq!(fleet.run(&["restart"]).code, Some(0));
    fleet.set_clock("+14400s");
    wait_until("the second step", || {
        assert_eq!(status(), "running");
        (fleet.steps() == [7200, 7200]).then_some(())
    });
    fs::write(fleet.scene.root.join("go"), "").unwrap();
    wait_until("its end", || (status() != "running").then_some(()));
    let ended = fleet.json(&["job", &job]);
    assert_eq!((ended["status"].as_str(), ended["error"].is_null()), (Some("completed"), true), "{ended}");
}

fn every_two_seconds(misfire: &str) -> String {
    format!(
        "
agents:
  - name: worker
    runtime: command
    command: ['true']
    instances: {{max_concurrent: 4}}
    schedules:
      tick: {{type: cron, cron: '*/2 * * * * *', timezone: UTC, misfire: {misfire}}}
"
    )
}

/// Kills the daemon after a run, lets 95 s pass, starts it again, and counts the outcomes of the due times in
/// between.
fn after_an_outage(misfire: &str) -> BTreeMap<String, usize> {
    let fleet = Stepped::with(&every_two_seconds(misfire));
    fleet.start();
    wait_until("a run", || (fleet.completed() >= 1).then_some(()));
    let pid = fleet.json(&["status"])["daemon"]["pid"].as_i64().unwrap();
    super::kill_and_wait(rustix::process::Pid::from_raw(pid.try_into().unwrap()).unwrap());
    let last = fleet.firings("worker/tick")[0].0;
    fleet.set_clock("+95s");
    fleet.start();
    let started = wait_until("the view of the state", || {
        let state = fs::read_to_string(fleet.scene.root.join(".cowhand/state.yaml")).ok()?;
        let line = state.lines().find_map(|line| line.trim().strip_prefix("started_at: "))?;
        line.trim_matches(['"', '\'']).parse::<Timestamp>().ok().filter(|started| *started > last)
    });
    let later = |rows: &[(Timestamp, String)]| rows.first().is_some_and(|(due, _)| *due >= started);
    let rows = wait_until("a firing after the outage", || {
        Some(fleet.firings("worker/tick")).filter(|rows| later(rows))
    });
    let mut counts = BTreeMap::new();
    for (_, outcome) in rows.into_iter().filter(|(due, _)| *due > last && *due < started) {
        *counts.entry(outcome).or_default() += 1;
    }
    counts
}

#[test]
fn run_all_fires_each_due_time_of_outage() {
    let counts = after_an_outage("run_all");
    assert_eq!(counts.keys().collect::<Vec<_>>(), ["ran"], "{counts:?}");
    assert!(counts["ran"] >= 46, "{counts:?}");
}

#[test]
fn skip_drops_all_due_times_of_outage() {
    let counts = after_an_outage("skip");
    assert_eq!(counts.keys().collect::<Vec<_>>(), ["missed"], "{counts:?}");
    assert!(counts["missed"] >= 46, "{counts:?}");
}

#[test]
fn run_once_fires_once_after_outage() {
    let counts = after_an_outage("run_once");
    assert_eq!(
        counts.get("ran").copied().unwrap_or_default() + counts["coalesced"],
        counts.values().sum::<usize>()
    );
    assert!(counts["coalesced"] >= 45, "{counts:?}");
}

/// While no daemon runs, the verbs show the missed due times and what will happen to them. After the start, `why` shows
/// what happened to them.
#[test]
fn missed_due_times_are_shown_before_and_after_start() {
    for (misfire, then) in [("run_once", "one run makes up for that"), ("skip", "they are skipped")] {
        let fleet = Stepped::with(&every_two_seconds(misfire));
        fleet.start();
        wait_until("a run", || (fleet.completed() >= 1).then_some(()));
        assert_eq!(fleet.run(&["stop"]).code, Some(0));
        fleet.set_clock("+95s");
        for verb in [&["why", "worker/tick"][..], &["status"], &["schedule", "list"], &["schedule", "next"]] {
            let said = fleet.run(verb).stdout.split_whitespace().collect::<Vec<_>>().join(" ");
            assert!(said.contains("times were missed since 2"), "{verb:?}: {said}");
            assert!(said.contains(then), "{verb:?}: {said}");
            assert!(!said.contains("It is not due"), "{said}");
        }
        fleet.start();
        let made_up = |row: &Value| {
            row["why"]
                .as_str()
                .is_some_and(|why| why.starts_with("its time was missed") && why.contains("makes up for it"))
        };
        let missed = |row: &Value| row["outcome"] == "missed";
        wait_until("what becomes of them", || {
            let rows = fleet.json(&["why", "worker/tick", "--limit", "100"])["firings"].take();
            let rows = rows.as_array().unwrap();
            let told = if misfire == "skip" { rows.iter().any(missed) } else { rows.iter().any(made_up) };
            told.then_some(())
        });
    }
}

/// The pause of a schedule ends while no daemon runs.
#[test]
fn no_paused_schedule_tries_again_in_the_past() {
    let fleet = Stepped::with(
        "agents:
  - name: worker
    runtime: command
    command: [sh, -c, 'exit 3']
    breaker: {failures: 1, pause: 1h}
    schedules:
      often: {type: interval, interval: 1s, prompt: Work.}
",
    );
    fleet.start();
    let is_paused = || fleet.json(&["schedule", "show", "worker/often"])["status"] == "paused";
    wait_until("the schedule to pause", || is_paused().then_some(()));
    let verbs = [
        &["schedule", "next"][..],
        &["schedule", "next", "worker/often"],
        &["schedule", "list"],
        &["status"],
        &["why", "worker/often"],
    ];
    let said = |verb: &[&str]| fleet.run(verb).stdout.split_whitespace().collect::<Vec<_>>().join(" ");
    for verb in verbs {
        assert!(!said(verb).contains("if a daemon runs by then"), "{verb:?}: {}", said(verb));
    }
    assert_eq!(fleet.run(&["stop"]).code, Some(0));
    for verb in verbs {
        assert!(said(verb).contains("if a daemon runs by then"), "{verb:?}: {}", said(verb));
    }
    fleet.set_clock("+7200s");
    for verb in verbs {
        let said = said(verb);
        let again = "tries again when a daemon runs";
        assert!(
            said.contains(again) || said.contains("nothing fires by the clock before a daemon runs"),
            "{verb:?}: {said}"
        );
        for word in ["tries again at 2", "tries again now", "before 2", "if a daemon runs by then"] {
            assert!(!said.contains(word), "{verb:?}: {word} in {said}");
        }
    }
}

/// The `end_at` of a schedule, and the time of a delay, pass while no daemon runs.
#[test]
fn missed_times_before_end_are_shown_and_made_up() {
    let now = Timestamp::now();
    let (due, end) = (now + 30.minutes(), now + 2.hours());
    let dates = [now, now + 24.hours(), now + 48.hours()].map(|at| at.strftime("%Y-%m-%d").to_string());
    let fleet = Stepped::with(&format!(
        "agents:
  - name: worker
    runtime: command
    command: [sh, -c, cat]
    default_prompt: Work.
    schedules:
      cron: {{type: cron, cron: '*/10 * * * *', end_at: '{end}'}}
      bounded: {{type: delay, run_at: '{due}', end_at: '{end}'}}
      plain: {{type: delay, run_at: '{due}'}}
      closed: {{type: delay, run_at: '{due}', exclude_dates: ['{}']}}
",
        dates.join("', '")
    ));
    fleet.start();
    assert_eq!(fleet.run(&["stop"]).code, Some(0));
    fleet.set_clock("+10800s");
    let said = |verb: &[&str]| fleet.run(verb).stdout.split_whitespace().collect::<Vec<_>>().join(" ");
    for (name, words) in [
        ("cron", &["is on, and not running now", "times were missed since 2"][..]),
        ("bounded", &["is on, and not running now", "it fires when a daemon starts"]),
        (
            "plain",
            &["was missed, because no daemon ran or the daemon was stopping; it fires when a daemon starts"],
        ),
        ("closed", &["because the day is one of its `exclude_dates`; it waits until 2"]),
    ] {
        let why = said(&["why", &format!("worker/{name}")]);
        for word in words.iter().chain(&["It is late: "]) {
            assert!(why.contains(word), "{name}: {word} in {why}");
        }
        for word in ["It is not due", "never been due", "would not run", "has finished"] {
            assert!(!why.contains(word), "{name}: {word} in {why}");
        }
        for verb in [&["status"][..], &["schedule", "list"], &["schedule", "next"]] {
            let said = said(verb);
            assert!(said.contains(words.last().unwrap()), "{name}, {verb:?}: {said}");
        }
    }
    fleet.start();
    wait_until("the missed firings", || (fleet.completed() >= 3).then_some(()));
    for name in ["cron", "bounded", "plain"] {
        let rows = fleet.json(&["why", &format!("worker/{name}"), "--limit", "100"])["firings"].take();
        let ran = rows.as_array().unwrap().iter().filter(|row| row["outcome"] == "ran").count();
        assert!(ran >= 1, "{name}: {rows:#}");
        assert!(said(&["why", &format!("worker/{name}")]).contains("has finished"), "{name}");
    }
    assert!(said(&["why", "worker/closed"]).contains("and waits: the day is one of its `exclude_dates`"));
}

#[test]
fn status_shows_no_future_start_after_clock_is_set_back() {
    let fleet = Stepped::with(OFTEN);
    fleet.start();
    fleet.set_clock("-172800s");
    let said = fleet.run(&["status"]).stdout;
    assert!(said.contains("started ") && !said.contains("started in"), "{said}");
}
