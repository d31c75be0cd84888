//! A folder that herdctl used: the first start continues from its state.

use std::fs;
use std::process::Command;

use jiff::{SignedDuration, Timestamp, ToSpan};
use serde_json::{Value, json};

use super::{Scene, wait_until};

/// Agent file of herdctl; the command replaces the agent's program, which is not installed here.
const AGENT: &str = r#"
name: coder
runtime: command
command: [sh, -c, "echo worked; env > environment"]
instances: {max_concurrent: 10}
schedules:
"#;

/// Known secret of the fleet.
const CANARY: &str = "canary-of-the-past";
const SESSION: &str = "5f0c6f9e-0000-4000-8000-000000000001";

struct Past {
    scene: Scene,
}

impl Past {
    /// Creates a fleet with these schedules, and the state that herdctl wrote about each of them.
    fn new(schedules: &[(&str, String, Value)]) -> Self {
        let scene = Scene::with("agents: []");
        fs::remove_file(scene.root.join("cowhand.yaml")).unwrap();
        scene.write("herdctl.yaml", "version: 1\nagents:\n  - path: agent.yaml\n");
        let written: Vec<_> =
            schedules.iter().map(|(name, trigger, _)| format!("  {name}: {trigger}")).collect();
        scene.write("agent.yaml", &format!("{AGENT}{}\n", written.join("\n")));
        for folder in ["jobs", "sessions"] {
            fs::create_dir_all(scene.root.join(".herdctl").join(folder)).unwrap();
        }
        let states: serde_json::Map<_, _> =
            schedules.iter().map(|(name, _, state)| ((*name).to_owned(), state.clone())).collect();
        let state = json!({"fleet": {}, "agents": {"coder": {"status": "idle", "schedules": states}}});
        scene.write(".herdctl/state.yaml", &state.to_string());
        Self { scene }
    }

    fn add_job(&self, id: &str, changes: &Value) {
        let mut job = json!({
            "id": id, "agent": "coder", "schedule": "hourly", "trigger_type": "schedule", "status": "completed",
            "exit_reason": "success", "session_id": SESSION, "forked_from": null,
            "started_at": "2026-08-01T10:00:00.000Z", "finished_at": "2026-08-01T10:05:00.000Z",
            "duration_seconds": 300, "prompt": format!("Look around with {CANARY}."), "summary": "All well.", "output_file": format!("{id}.jsonl"),
            "usage": {"per_model": {"opus": {"input_tokens": 5, "output_tokens": 7}}, "num_turns": 2, "total_cost_usd": 0.25},
        });
        for (key, value) in changes.as_object().unwrap() {
            job[key] = value.clone();
        }
        self.scene.write(&format!(".herdctl/jobs/{id}.yaml"), &job.to_string());
        let line = json!({"type": "assistant", "content": format!("said by {id} {CANARY}"), "timestamp": "2026-08-01T10:01:00.000Z"});
        self.scene.write(&format!(".herdctl/jobs/{id}.jsonl"), &format!("{line}\n"));
    }

    /// Returns all files of `.herdctl` with their contents.
    fn untouched(&self) -> Vec<(String, Vec<u8>)> {
        let mut files = Vec::new();
        for folder in ["", "jobs", "sessions"] {
            for entry in fs::read_dir(self.scene.root.join(".herdctl").join(folder)).unwrap() {
                let path = entry.unwrap().path();
                if path.is_file() {
                    files.push((path.display().to_string(), fs::read(&path).unwrap()));
                }
            }
        }
        files.sort();
        files
    }

    fn imports(&self) -> Vec<Value> {
        let events = self.scene.run(&["events", "--json", "--after", "0"]).stdout;
        let events = events.lines().map(|line| serde_json::from_str::<Value>(line).unwrap());
        events.filter(|event| event["type"] == "fleet:imported").collect()
    }
}

fn of_minutes(minutes: i64) -> String {
    format!("{{type: interval, interval: {minutes}m, prompt: Work.}}")
}

/// Returns a cron expression that matches one day of the year, at a quarter past three.
fn on_the_day(at: Timestamp) -> String {
    let day = at.to_zoned(jiff::tz::TimeZone::UTC);
    format!("{{type: cron, cron: 15 3 {} {} *, timezone: UTC, prompt: Work.}}", day.day(), day.month())
}

/// Returns when herdctl would run a schedule next, by its own rule: the next time after the last run.
/// Schedules that never ran or that are late run at once, but a cron schedule that never ran waits for its
/// time. None means at once.
fn herdctls_next(interval: i64, last: Option<Timestamp>, now: Timestamp) -> Option<Timestamp> {
    last.map(|last| last + SignedDuration::from_mins(interval)).filter(|next| *next > now)
}

#[test]
fn schedules_continue_from_state_of_herdctl() {
    let now = Timestamp::from_millisecond(Timestamp::now().as_millisecond()).unwrap();
    let ago = |minutes: i64| now - minutes.minutes();
    let ran = |minutes: i64| json!({"last_run_at": ago(minutes).to_string(), "status": "idle"});
    let past = Past::new(&[
        ("recent", of_minutes(60), ran(20)),
        ("overdue", of_minutes(61), ran(120)),
        ("never", of_minutes(62), json!({"status": "idle"})),
        (
            "disabled",
            of_minutes(63),
            json!({"last_run_at": (now - 90.minutes()).to_string(), "status": "disabled", "last_error": format!("boom {CANARY}")}),
        ),
        ("missed", on_the_day(now - 48.hours()), ran(5 * 24 * 60)),
        ("done", on_the_day(now - 48.hours()), ran(24 * 60)),
        ("unknown", on_the_day(now - 48.hours()), json!({"status": "idle"})),
    ]);
    let before = past.untouched();
    past.scene.write(".env", &format!("API_TOKEN={CANARY}\n"));
    past.scene.start();
    let jobs = wait_until("what is due to run", || {
        let jobs = past.scene.json(&["jobs", "--status", "completed"]);
        (jobs.as_array().unwrap().len() == 3).then_some(jobs)
    });
    let mut ran: Vec<&str> =
        jobs.as_array().unwrap().iter().map(|job| job["schedule"].as_str().unwrap()).collect();
    ran.sort_unstable();
    assert_eq!(ran, ["missed", "never", "overdue"], "the same that herdctl would run at once");
    let schedules = past.scene.json(&["schedule", "list"]);
    let of = |name: &str| {
        schedules.as_array().unwrap().iter().find(|schedule| schedule["schedule"] == name).unwrap().clone()
    };
    let next = |name: &str| of(name)["next_run_at"].as_str().map(|at| at.parse::<Timestamp>().unwrap());
    assert_eq!(next("recent"), herdctls_next(60, Some(ago(20)), now));
    for (name, interval, last) in [("overdue", 61, Some(ago(120))), ("never", 62, None)] {
        assert_eq!(herdctls_next(interval, last, now), None, "{name} runs at once");
    }
    assert_eq!((of("disabled")["status"].as_str(), next("disabled")), (Some("disabled"), None));
    let store = fs::read(past.scene.root.join(".cowhand/store.db")).unwrap();
    let wal = fs::read(past.scene.root.join(".cowhand/store.db-wal")).unwrap_or_default();
    let stored = String::from_utf8_lossy(&[store, wal].concat()).into_owned();
    assert!(
        stored.contains("boom ***") && !stored.contains(&format!("boom {CANARY}")),
        "the error of a schedule is stored without its secret"
    );
    for name in ["done", "unknown"] {
        assert!(next(name).unwrap() > now + SignedDuration::from_hours(24 * 300), "{name}: {:?}", next(name));
    }
    assert_eq!(past.scene.json(&["jobs"]).as_array().unwrap().len(), 3, "nothing ran beside them");
    assert_eq!(past.untouched(), before, "herdctl's own files stay as they are");
}

#[test]
fn jobs_and_sessions_of_herdctl_are_imported() {
    let past = Past::new(&[("hourly", "{type: manual}".to_owned(), json!({"status": "idle"}))]);
    past.add_job("job-2026-08-01-aaaaaa", &json!({}));
    past.add_job("job-2026-08-02-bbbbbb", &json!({
        "started_at": "2026-08-02T10:00:00.000Z", "status": "failed", "exit_reason": "timeout", "trigger_type": "spawned",
        "finished_at": "2026-08-02T11:00:00.000Z",
    }));
    past.add_job("job-2026-08-03-cccccc", &json!({
        "started_at": "2026-08-03T10:00:00.000Z", "finished_at": null, "status": "running", "exit_reason": null, "usage": null,
    }));
    past.scene.write(".herdctl/jobs/job-2026-08-04-dddddd.yaml", "id: [broken");
    // An agent of herdctl could have put a link there.
    let linked = past.scene.root.join(".herdctl/jobs/job-2026-08-03-cccccc.jsonl");
    fs::remove_file(&linked).unwrap();
    std::os::unix::fs::symlink("/etc/passwd", &linked).unwrap();
    past.scene.write(".env", &format!("A_TOKEN={CANARY}\n"));
    let pointer = |agent: &str, session: &str| {
        json!({"agent_name": agent, "session_id": session, "created_at": "2026-08-01T10:00:00Z", "job_count": 3,
            "last_used_at": "2026-08-03T10:00:00Z", "mode": "autonomous", "working_directory": past.scene.root})
    };
    past.scene.write(".herdctl/sessions/coder.json", &pointer("coder", SESSION).to_string());
    past.scene.write(".herdctl/sessions/gone.json", &pointer("gone", "another-session").to_string());
    let said = past.scene.run(&["start", "-d", "--no-server"]);
    assert_eq!(said.code, Some(0), "{}", said.stderr);
    let note = "note: imported from .herdctl: 4 jobs, 2 sessions, 0 last runs and 0 disabled schedules; .herdctl itself is not changed\n";
    assert!(said.stderr.ends_with(note), "{}", said.stderr);
    let shown = |id: &str| {
        let job = past.scene.job(id);
        let error = job["error"]["kind"].as_str().unwrap_or("none").to_owned();
        format!("{} {} {error} {}", job["status"], job["exit_reason"], job["trigger_type"])
    };
    assert_eq!(shown("job-2026-08-01-aaaaaa"), r#""completed" "success" none "schedule""#);
    assert_eq!(shown("job-2026-08-02-bbbbbb"), r#""failed" "timeout" timeout "manual""#);
    assert_eq!(shown("job-2026-08-03-cccccc"), r#""failed" "error" lost "schedule""#);
    let logs = past.scene.run(&["logs", "job-2026-08-01-aaaaaa"]).stdout;
    assert!(logs.contains("said by job-2026-08-01-aaaaaa ***"), "{logs}");
    assert_eq!(past.scene.job("job-2026-08-01-aaaaaa")["prompt"], "Look around with ***.");
    assert!(!past.scene.root.join(".cowhand/jobs/job-2026-08-03-cccccc.jsonl").exists());
    assert!(
        past.scene.log().contains("the output of job-2026-08-03-cccccc is not imported"),
        "{}",
        past.scene.log()
    );
    assert!(past.scene.root.join(".cowhand/jobs/job-2026-08-01-aaaaaa.yaml").exists());
    assert!(
        past.scene.log().contains("jobs/job-2026-08-04-dddddd.yaml is not imported"),
        "{}",
        past.scene.log()
    );
    let resume = past.scene.json(&["resume", "job-2026-08-03-cccccc"]);
    assert_eq!(resume["session_id"], SESSION);
    let usage = past.scene.json(&["usage", "--since", "2026-08-01", "--until", "2026-08-31"]);
    assert!(usage.to_string().contains("0.5"), "both jobs that cost something are counted: {usage}");
    past.scene.run(&["stop"]);
    past.scene.start();
    assert_eq!(past.imports().len(), 1, "a second start imports nothing");
    assert_eq!(past.scene.json(&["jobs"]).as_array().unwrap().len(), 4);
}

#[test]
fn next_start_finishes_interrupted_import() {
    for place in ["import_copied", "imported"] {
        let past = Past::new(&[("hourly", of_minutes(60), json!({"status": "disabled"}))]);
        past.add_job("job-2026-08-01-aaaaaa", &json!({}));
        let mut start = past.scene.command(&["start", "--no-server"]);
        assert!(!start.env("COWHAND_FAULT", place).output().unwrap().status.success(), "{place}");
        past.scene.start();
        assert_eq!(past.imports().len(), 1, "{place}");
        assert_eq!(past.scene.json(&["jobs"]).as_array().unwrap().len(), 1, "{place}");
        assert_eq!(past.scene.json(&["schedule", "show", "coder/hourly"])["status"], "disabled", "{place}");
    }
}

#[test]
fn start_with_fresh_imports_nothing() {
    let past = Past::new(&[("hourly", of_minutes(60), json!({"status": "disabled"}))]);
    past.add_job("job-2026-08-01-aaaaaa", &json!({}));
    let said = past.scene.run(&["start", "-d", "--no-server", "--fresh"]);
    assert_eq!((said.code, said.stdout.as_str()), (Some(0), "ready\n"), "{}", said.stderr);
    past.scene.run(&["stop"]);
    past.scene.start();
    assert_eq!(past.imports(), Vec::<Value>::new(), "the decision is remembered");
    assert_eq!(past.scene.json(&["schedule", "show", "coder/hourly"])["status"], "idle");
}

#[test]
fn start_refuses_running_herdctl_and_unreadable_state() {
    let past = Past::new(&[("hourly", of_minutes(60), json!({"status": "disabled"}))]);
    let mut herdctl = Command::new("sleep").arg("600").spawn().unwrap();
    past.scene.write(".herdctl/herdctl.pid", &herdctl.id().to_string());
    let said = past.scene.run(&["start", "-d", "--no-server"]);
    herdctl.kill().unwrap();
    assert_eq!(said.code, Some(5), "{}", said.stderr);
    let message = format!("names process {} (sleep 600); stop it with `herdctl stop`", herdctl.id());
    assert!(said.stderr.contains(&message), "{}", said.stderr);
    // A zombie process counts as dead.
    past.scene.write(".herdctl/state.yaml", "agents:\n  coder: {schedules: {hourly: {last_run_at: soon}}}\n");
    let said = past.scene.run(&["start", "-d", "--no-server"]);
    herdctl.wait().unwrap();
    assert_eq!(said.code, Some(6), "{}", said.stderr);
    assert!(
        said.stderr.contains("agents.coder.schedules.hourly: `last_run_at: soon` cannot be read"),
        "{}",
        said.stderr
    );
    assert!(said.stderr.contains("cowhand start --fresh"), "{}", said.stderr);
    let said = past.scene.run(&["start", "-d", "--no-server", "--fresh"]);
    assert_eq!(said.code, Some(0), "{}", said.stderr);
}

#[test]
fn agent_of_herdctl_gets_whole_daemon_environment() {
    let past = Past::new(&[("hourly", "{type: manual}".to_owned(), json!({}))]);
    let check = past.scene.run(&["config", "check"]);
    assert!(
        check.stderr.contains("note: agents of a herdctl.yaml get the daemon's whole environment"),
        "{}",
        check.stderr
    );
    let environment = |past: &Past| {
        let mut start = past.scene.command(&["start", "-d", "--no-server"]);
        start.env("GITHUB_TOKEN", "canary-token").env("COWHAND_LOG", "info");
        assert!(start.output().unwrap().status.success());
        assert_eq!(past.scene.run(&["trigger", "coder", "--wait"]).code, Some(0));
        past.scene.run(&["stop"]);
        fs::read_to_string(past.scene.root.join("environment")).unwrap()
    };
    let inherited = environment(&past);
    assert!(inherited.contains("GITHUB_TOKEN=canary-token"), "{inherited}");
    assert!(!inherited.contains("COWHAND_LOG"), "{inherited}");
    let agent = fs::read_to_string(past.scene.root.join("agent.yaml")).unwrap();
    past.scene.write("agent.yaml", &format!("{agent}\npass_env: [OTHER]\n"));
    let minimal = environment(&past);
    assert!(!minimal.contains("canary-token"), "{minimal}");
    let check = past.scene.run(&["config", "check"]);
    assert!(!check.stderr.contains("whole environment"), "{}", check.stderr);
}

/// The file was renamed to cowhand's name before the first start, so nothing would be imported.
#[test]
fn unimported_state_is_reported_before_first_start() {
    let past = Past::new(&[("nightly", "{type: manual}".to_owned(), json!({"status": "disabled"}))]);
    let scene = &past.scene;
    fs::rename(scene.root.join("herdctl.yaml"), scene.root.join("cowhand.yaml")).unwrap();
    for verb in [&["config", "check"][..], &["doctor"], &["start", "-d", "--no-server"]] {
        let said = scene.run(verb);
        let text = said.stdout + &said.stderr;
        assert!(text.contains(".herdctl contains the state of herdctl"), "{verb:?}: {text}");
    }
    assert_eq!(scene.run(&["stop"]).code, Some(0));
    let again = scene.run(&["start", "-d", "--no-server"]);
    assert!(!again.stderr.contains(".herdctl"), "it has begun: {}", again.stderr);
    assert_eq!(scene.run(&["stop"]).code, Some(0));
    scene.write(".herdctl/herdctl.pid", &std::process::id().to_string());
    let refused = scene.run(&["start", "-d", "--no-server"]);
    assert_eq!(refused.code, Some(5), "{}", refused.stderr);
    assert!(refused.stderr.contains("herdctl is running"), "{}", refused.stderr);
}

/// A start would be refused, so the old daemon continues.
#[test]
fn restart_is_refused_while_herdctl_runs() {
    let scene = Scene::started();
    fs::create_dir(scene.root.join(".herdctl")).unwrap();
    scene.write(".herdctl/herdctl.pid", &std::process::id().to_string());
    let daemon = scene.daemon();
    let refused = scene.run(&["restart"]);
    assert_eq!(refused.code, Some(5), "{}", refused.stderr);
    for words in ["herdctl is running", "Nothing was stopped"] {
        assert!(refused.stderr.contains(words), "{}", refused.stderr);
    }
    assert_eq!(scene.daemon(), daemon);
    let doctor = scene.run(&["doctor"]);
    assert!(
        doctor.code == Some(6) && doctor.stdout.contains("FAIL  herdctl: herdctl is running"),
        "{}",
        doctor.stdout
    );
}

/// herdctl accepts webhooks without a secret; in cowhand they accept no deliveries, and all verbs report that.
#[test]
fn webhook_of_herdctl_without_secret_is_reported() {
    let past = Past::new(&[("hook", "{type: webhook}".to_owned(), json!({"status": "idle"}))]);
    let scene = &past.scene;
    let started = scene.run(&["start", "-d", "--no-server"]);
    assert_eq!(started.code, Some(0), "{}", started.stderr);
    let why = scene.run(&["why", "coder/hook"]).stdout;
    assert!(why.contains("its deliveries are refused"), "{why}");
    let doctor = scene.run(&["doctor"]).stdout;
    assert!(doctor.contains("FAIL  webhook coder/hook: it has no secret"), "{doctor}");
}
