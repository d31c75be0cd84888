//! The reserve of a provider: automatic jobs wait for the reset of a usage window, and jobs by hand start meanwhile.
//!
//! A program imitates Claude Code. It reports the usage windows that the file `windows` contains, if there is one. With
//! the prompt `Later.`, it waits while there is a file `slow`, and fails if there is a file `fails`.

use std::fs;
use std::os::unix::fs::PermissionsExt;

use cowhand_testing::postgres::Postgres;
use jiff::Timestamp;
use serde_json::{Value, json};

use crate::{Scene, wait_until};

const CLAUDE: &str = r#"#!/bin/sh
read -r line
prompt=$(echo "$line" | sed 's/.*"content":"\([^"]*\)".*/\1/')
echo '{"type":"system","subtype":"init","session_id":"c-1"}'
if [ -e "$ROOT/windows" ]; then
  echo "{\"type\":\"rate_limit_event\",\"rate_limit_info\":$(cat "$ROOT/windows"),\"session_id\":\"c-1\"}"
fi
while [ "$prompt" = Later. ] && [ -e "$ROOT/slow" ]; do sleep 0.05; done
if [ "$prompt" = Later. ] && [ -e "$ROOT/fails" ]; then exit 3; fi
echo '{"type":"result","subtype":"success","is_error":false,"result":"Done.","session_id":"c-1"}'
"#;

/// Two agents of one provider that keeps 20% of its windows. `first` has a schedule that each end of a job of
/// `second/work` fires.
const FLEET: &str = r"
providers: {claude: {reserve: 20 %}}
agents:
  - name: first
    runtime: claude
    env: &env {ROOT: 'ROOT', PATH: 'ROOT/bin:PATH', HOME: 'ROOT'}
    permission_mode: bypassPermissions
    default_prompt: Later.
    schedules:
      after: {type: dispatch_result, schedule: second/work, prompt: Later.}
  - name: second
    runtime: claude
    env: *env
    permission_mode: bypassPermissions
    schedules:
      work: {type: manual, prompt: Work.}
";

fn fleet(store: &str, change: impl Fn(String) -> String) -> Scene {
    let scene = Scene::with("");
    let program = scene.root.join("bin/claude");
    fs::create_dir_all(program.parent().unwrap()).unwrap();
    fs::write(&program, CLAUDE).unwrap();
    fs::set_permissions(&program, fs::Permissions::from_mode(0o755)).unwrap();
    let text = FLEET.replace("PATH'", &format!("{}'", std::env::var("PATH").unwrap()));
    let text = change(text.replace("ROOT'", &format!("{}'", scene.root.display())));
    let text = text.replace("'ROOT/", &format!("'{}/", scene.root.display()));
    scene.write("cowhand.yaml", &format!("{store}{text}"));
    scene.start();
    scene
}

/// Sets the windows that the program reports: the used part of the 5-hour window, and its reset in seconds.
fn report(scene: &Scene, used: f64, resets_in: i64) -> Timestamp {
    let resets = Timestamp::from_second(Timestamp::now().as_second() + resets_in).unwrap();
    let five = json!({"utilization": used, "resetsAt": resets.as_second(), "status": "allowed"});
    let week = json!({"utilization": 0.25, "resetsAt": resets.as_second() + 86_400});
    let info = json!({"status": "allowed", "unifiedWindows": {"five_hour": five, "seven_day": week}});
    scene.write("windows", &info.to_string());
    resets
}

/// Returns the job of `first/after`.
fn automatic_job(scene: &Scene) -> Option<Value> {
    let jobs = scene.json(&["jobs", "--agent", "first", "--schedule", "after"]);
    assert!(jobs.as_array().unwrap().len() < 2, "{jobs:#}");
    jobs.get(0).cloned()
}

fn holds_automatic_jobs_back(store: &str) {
    let scene = fleet(store, |text| text);
    let resets = report(&scene, 0.835, 2 * 3_600);
    assert_eq!(scene.json(&["trigger", "second", "work", "--wait"])["status"], "completed");
    let waits = |scene: &Scene| {
        let waits = automatic_job(scene)?["waits"].clone();
        (waits["reason"] == "reserve_reached").then_some(waits)
    };
    let waiting = wait_until("the automatic job to wait", || waits(&scene));
    let sentence = "claude keeps 20% of its 5-hour window for jobs by hand and from chats (`reserve`), and 83.5% is used";
    assert_eq!((&waiting["message"], &waiting["until"]), (&json!(sentence), &json!(resets.to_string())));
    let id = automatic_job(&scene).unwrap()["id"].as_str().unwrap().to_owned();
    shows_reserve(&scene, &id, resets, sentence);

    // The state survives the death of the daemon, and jobs by hand start, also those of the agent whose job waits.
    scene.kill_daemon();
    assert!(waits(&scene).is_some(), "without a daemon");
    scene.start();
    let by_hand = scene.json(&["trigger", "first", "--wait"]);
    assert_eq!(by_hand["status"], "completed", "{by_hand:#}");
    let retried = scene.json(&["retry", by_hand["id"].as_str().unwrap(), "--wait"]);
    assert_eq!(retried["status"], "completed", "{retried:#}");
    let forked = scene.json(&["fork", by_hand["id"].as_str().unwrap(), "-p", "More.", "--wait"]);
    assert_eq!(forked["status"], "completed", "{forked:#}");
    assert!(waits(&scene).is_some());
    let refused = scene.run(&["unpark", "claude"]);
    assert!(refused.code == Some(5) && refused.stderr.contains("a smaller `reserve`"), "{}", refused.stderr);

    // A new report moves the reset; the job starts at that time.
    let resets = report(&scene, 0.9, 4);
    assert_eq!(scene.json(&["trigger", "first", "--wait"])["status"], "completed");
    let done = wait_until("the automatic job to run", || {
        Some(scene.job(&id)).filter(|job| job["status"] == "completed")
    });
    let began: Timestamp = done["run_started_at"].as_str().unwrap().parse().unwrap();
    assert!(began >= resets, "{began} {resets}");
    let status = scene.run(&["status"]).stdout;
    assert!(!status.contains("reserve reached"), "{status}");
    let events = scene.run(&["events", "--limit", "1000"]).stdout;
    assert!(events.contains("provider:reserved"), "{events}");
}

/// Checks that every verb shows the reserve.
fn shows_reserve(scene: &Scene, job: &str, resets: Timestamp, sentence: &str) {
    let shown =
        |arguments: &[&str]| scene.run(arguments).stdout.split_whitespace().collect::<Vec<_>>().join(" ");
    let in_job = shown(&["job", job]);
    assert!(in_job.contains(sentence) && in_job.contains(&format!("until {resets:.0}")), "{in_job}");
    let why = shown(&["why", "first/after"]);
    assert!(why.contains(sentence) && why.contains("It waits, and continues in"), "{why}");
    let by_hand = shown(&["why", "second/work"]);
    assert!(!by_hand.contains("reserve"), "{by_hand}");
    for verb in ["status", "agents"] {
        let text = shown(&[verb]);
        assert!(text.contains("provider claude: 5-hour window 83.5% used, resets in"), "{text}");
        assert!(text.contains("weekly window 25% used") && text.contains("; reserve 20%"), "{text}");
        assert!(text.contains("reserve reached: claude starts automatic jobs again in"), "{text}");
    }
    let usage = scene.json(&["status"])["provider_usage"][0].clone();
    assert_eq!(usage["reached"]["until"], json!(resets.to_string()), "{usage:#}");
    assert_eq!(usage["windows"][0]["used_percent"], 83.5, "{usage:#}");
    let agents = scene.json(&["agents"]);
    assert!(agents.as_array().unwrap().iter().all(|agent| agent["provider_usage"] == usage), "{agents:#}");
}

#[test]
fn reserve_holds_automatic_jobs_back_until_reset() {
    holds_automatic_jobs_back("");
}

#[test]
fn reserve_holds_automatic_jobs_back_on_postgresql() {
    let server = Postgres::start();
    holds_automatic_jobs_back(&format!("store: {}\n", server.url()));
}

/// A running job goes on; its retry by the policy is automatic, like its first attempt.
#[test]
fn reserve_stops_no_running_job_and_holds_its_retry_back() {
    let retries = |text: String| {
        let schedule = "schedule: second/work, prompt: Later.";
        text.replace(schedule, &format!("{schedule}, retry: {{max_attempts: 2, backoff: 1s}}"))
    };
    let scene = fleet("", retries);
    scene.write("slow", "");
    scene.write("fails", "");
    assert_eq!(scene.json(&["trigger", "second", "work", "--wait"])["status"], "completed");
    let running = wait_until("the automatic job to run", || {
        let jobs = scene.json(&["jobs", "--agent", "first", "--status", "running"]);
        jobs.get(0).cloned()
    });
    report(&scene, 0.95, 2 * 3_600);
    let id = running["id"].as_str().unwrap();
    let by_hand = scene.json(&["trigger", "second", "-p", "Go."]);
    wait_until("the report of the job by hand", || {
        scene.json(&["status"])["provider_usage"][0]["reached"].is_object().then_some(())
    });
    assert_eq!((&scene.job(id)["status"], &by_hand["trigger_type"]), (&json!("running"), &json!("manual")));
    fs::remove_file(scene.root.join("slow")).unwrap();
    let waits = wait_until("the retry to wait", || {
        Some(scene.job(id)["waits"].clone()).filter(|waits| waits["reason"] == "reserve_reached")
    });
    let message = waits["message"].as_str().unwrap();
    assert!(message.starts_with("attempt 1 failed and will be retried: "), "{message}");
    // Without the reserve, the retry runs.
    let config = fs::read_to_string(scene.root.join("cowhand.yaml")).unwrap();
    fs::write(scene.root.join("cowhand.yaml"), config.replace("reserve: 20 %", "reserve: 0%")).unwrap();
    assert_eq!(scene.run(&["reload"]).code, Some(0));
    wait_until("the second attempt", || (scene.job(id)["attempt"] == 2).then_some(()));
}

/// A report that nobody read before the daemon died is not lost, and counts from the time of its output.
#[test]
fn report_that_was_written_without_a_daemon_is_read() {
    let scene = fleet("", |text| text);
    scene.write("slow", "");
    let resets = report(&scene, 0.9, 2 * 3_600);
    let job = scene.json(&["trigger", "first"])["id"].as_str().unwrap().to_owned();
    wait_until("it to run", || (scene.job(&job)["status"] == "running").then_some(()));
    scene.kill_daemon();
    fs::remove_file(scene.root.join("slow")).unwrap();
    let folder = scene.root.join(".cowhand/attempts");
    wait_until("the agent to end", || {
        let mut folders = fs::read_dir(&folder).unwrap().flatten();
        folders.any(|attempt| attempt.path().join("ending.json").exists()).then_some(())
    });
    let ended = Timestamp::now();
    scene.start();
    wait_until("it to be settled", || (scene.job(&job)["status"] == "completed").then_some(()));
    let usage = scene.json(&["status"])["provider_usage"][0].clone();
    assert_eq!(usage["reached"]["until"], json!(resets.to_string()), "{usage:#}");
    let reported: Timestamp = usage["windows"][0]["reported_at"].as_str().unwrap().parse().unwrap();
    assert!(reported <= ended, "{reported} {ended}");
}
