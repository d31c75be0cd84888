//! The fleet, and how it reaches its states.

use std::fs;
use std::os::unix::fs::PermissionsExt;

use serde_json::{Value, json};

use super::told;
use crate::{Scene, answer};

/// `holder` keeps its place until there is a file `go`; `limited` meets a limit of its provider for a day;
/// `saver` has used its provider up to its reserve;
/// `closer` leaves its item's file in a state in which the result cannot be written into it.
const FLEET: &str = r#"
server: {listen: "127.0.0.1:0"}
budget: {timezone: ZONE}
providers: {claude: {reserve: 20%}}
agents:
  - name: steady
    description: Ends well
    runtime: command
    command: [sh, -c, cat]
    default_prompt: Work.
    instances: {max_concurrent: 4}
    schedules:
      nightly: {type: cron, cron: "30 HOUR * * *", timezone: Europe/Berlin, prompt: Work.}
      office: {type: cron, cron: "15 EARLIER,HOUR * * *", timezone: UTC, active_hours: {start: "HOUR:00", end: "HOUR:30"}, prompt: Work.}
      often: {type: interval, interval: 9h, prompt: Work.}
      later: {type: interval, interval: 9h, start_at: "2199-01-01T00:00:00Z", prompt: Work.}
      switched: {type: cron, cron: "30 HOUR * * *", timezone: UTC, prompt: Work.}
      in-file: {type: cron, cron: "30 HOUR * * *", timezone: UTC, enabled: false, prompt: Work.}
      by-hand: {type: manual, prompt: Work.}
      hook: {type: webhook, allow_unsigned: true, prompt: Work.}
      over: {type: cron, cron: "30 HOUR * * *", timezone: UTC, end_at: "2024-01-01T00:00:00Z", prompt: Work.}
      once: {type: delay, run_at: "2024-01-01T00:00:00Z", prompt: Work.}
      gives-up: {type: github_issues, owner: o, repo: r, prompt: x, auth: {token_env: NO_SUCH_VARIABLE}}
  - name: broken
    runtime: command
    command: [sh, -c, "echo this cannot work >&2; exit 3"]
    breaker: {failures: 2, pause: 1h}
    schedules:
      fails: {type: interval, interval: 1s, prompt: Work.}
      fails-at-night: {type: cron, cron: "30 HOUR * * *", timezone: UTC, prompt: Work.}
  - name: poor
    runtime: command
    command: [sh, -c, "echo '{\"type\":\"system\",\"subtype\":\"usage\",\"model\":\"m\",\"usage\":{\"input_tokens\":1000,\"output_tokens\":50,\"cost_usd\":0.04}}'"]
    budget: {per_day_usd: 0.05}
    default_prompt: Work.
    schedules:
      costs: {type: cron, cron: "30 HOUR * * *", timezone: UTC, prompt: Work.}
  - name: limited
    provider: shared
    runtime: command
    command: [sh, -c, 'printf "{\"type\":\"result\",\"is_error\":true,\"result\":\"You have hit your usage limit. Try again in 1 day.\"}\n"']
    schedules:
      parked: {type: manual, prompt: Work.}
      parks: {type: cron, cron: "30 HOUR * * *", timezone: UTC, prompt: Work.}
  - name: saver
    runtime: claude
    env: {PATH: "PROGRAMS:/usr/bin:/bin"}
    permission_mode: bypassPermissions
    schedules:
      reports: {type: manual, prompt: Work.}
      after: {type: dispatch_result, schedule: saver/reports, prompt: Work.}
  - name: holder
    runtime: command
    command: [sh, -c, "while ! [ -e go ]; do sleep 0.1; done"]
    default_prompt: Hold.
    schedules:
      full: {type: interval, interval: 9h, prompt: Work.}
  - name: runner
    runtime: command
    command: [sh, -c, "while ! [ -e go ]; do sleep 0.1; done"]
    schedules:
      runs: {type: interval, interval: 9h, prompt: Work.}
  - name: worker
    runtime: command
    command: [sh, -c, "while ! [ -e go ]; do sleep 0.1; done"]
    work_source: {type: files, path: tasks}
    schedules:
      poll: {type: manual, prompt: Work.}
  - name: unlucky
    runtime: command
    command: [sh, -c, "exit 3"]
    work_source: {type: files, path: hard}
    schedules:
      hard: {type: manual, prompt: Work.}
  - name: closer
    runtime: command
    command: [sh, -c, "printf -- '---\\nstatus: [' > closed/fourth.md"]
    work_source: {type: files, path: closed}
    schedules:
      close: {type: manual, prompt: Work.}
  - name: asker
    runtime: command
    command: [sh, -c, 'printf %s "$COWHAND_JOB_TOKEN" > token.new; mv token.new token; while ! [ -e go ]; do sleep 0.1; done']
    fleet_tools: true
    default_prompt: Ask.
"#;

/// Imitates Claude Code: reports that 90% of the 5-hour window of its account are used.
const CLAUDE: &str = r#"#!/bin/sh
resets=$(($(date +%s) + 7200))
echo '{"type":"system","subtype":"init","session_id":"c-1"}'
echo '{"type":"rate_limit_event","rate_limit_info":{"rateLimitType":"five_hour","utilization":0.9,"resetsAt":'$resets'}}'
echo '{"type":"result","subtype":"success","is_error":false,"result":"Done.","session_id":"c-1"}'
"#;

/// Schedule, status and the reason why it does not fire now.
pub(super) const STATES: [(&str, &str, Option<&str>); 22] = [
    ("steady/nightly", "idle", Some("not_due")),
    ("steady/office", "idle", Some("not_due")),
    ("steady/often", "idle", Some("not_due")),
    ("steady/later", "idle", Some("not_due")),
    ("steady/switched", "disabled", Some("disabled")),
    ("steady/in-file", "disabled", Some("disabled")),
    ("steady/by-hand", "idle", Some("unsupported_type")),
    ("steady/hook", "idle", Some("unsupported_type")),
    ("steady/once", "finished", Some("not_due")),
    ("steady/over", "finished", Some("not_due")),
    ("steady/gives-up", "error", Some("disabled")),
    ("broken/fails", "paused", Some("paused")),
    ("poor/costs", "idle", Some("not_due")),
    ("limited/parked", "idle", Some("usage_limit")),
    ("limited/parks", "idle", Some("not_due")),
    ("saver/reports", "idle", Some("unsupported_type")),
    ("saver/after", "idle", Some("reserve_reached")),
    ("holder/full", "idle", Some("at_capacity")),
    ("runner/runs", "running", Some("already_running")),
    ("worker/poll", "running", Some("unsupported_type")),
    ("unlucky/hard", "idle", Some("unsupported_type")),
    ("closer/close", "idle", Some("unsupported_type")),
];

/// Starts a fleet in every state, in which nothing changes by itself for a while.
pub(super) async fn driven() -> Scene {
    let mut scene = Scene::prepared(&fleet());
    let programs = scene.path("programs");
    fs::create_dir(&programs).unwrap();
    fs::write(programs.join("claude"), CLAUDE).unwrap();
    fs::set_permissions(programs.join("claude"), fs::Permissions::from_mode(0o755)).unwrap();
    let fleet = fleet().replace("PROGRAMS", programs.to_str().unwrap());
    for folder in ["tasks", "hard", "closed"] {
        fs::create_dir(scene.path(folder)).unwrap();
    }
    for name in ["tasks/first", "tasks/second", "hard/third", "closed/fourth"] {
        let text = format!("---\ntitle: Do {name}\ncreated: 2024-01-01T00:00:00Z\n---\nText.\n");
        fs::write(scene.path(&format!("{name}.md")), text).unwrap();
    }
    // Trigger both jobs before anything fires, so that the second gets no place.
    fs::write(scene.path("cowhand.yaml"), without_full(&fleet)).unwrap();
    scene.start(&[]);
    told(&scene, &["trigger", "holder"]);
    let waiting = told(&scene, &["trigger", "holder"])["id"].as_str().unwrap().to_owned();
    fs::write(scene.path("cowhand.yaml"), &fleet).unwrap();
    assert_eq!(scene.run(&["reload"]).0, 0);
    told(&scene, &["trigger", "steady", "--wait"]);
    let (code, out, _) = scene.run(&["trigger", "broken", "--wait"]);
    assert_eq!(code, 1, "{out}");
    let cancelled = told(&scene, &["trigger", "holder"])["id"].as_str().unwrap().to_owned();
    told(&scene, &["cancel", &cancelled]);
    told(&scene, &["trigger", "poor", "--wait"]);
    told(&scene, &["trigger", "poor"]);
    told(&scene, &["trigger", "limited", "parked"]);
    told(&scene, &["trigger", "saver", "reports", "--wait"]);
    told(&scene, &["trigger", "worker", "poll"]);
    told(&scene, &["trigger", "unlucky", "hard"]);
    told(&scene, &["trigger", "closer", "close"]);
    told(&scene, &["schedule", "disable", "steady/switched"]);
    ask(&scene).await;
    scene.until("every schedule to be in its state", || in_their_states(&scene));
    scene.until("an item to be given up", || {
        told(&scene, &["status"])["given_up"].as_array().is_some_and(|items| items.len() == 1)
    });
    scene.until("an item whose result cannot be written", || {
        let items = told(&scene, &["work", "list", "--all"]);
        items.as_array().unwrap().iter().any(|item| item["last_error"].is_string())
    });
    scene.until("the jobs to stand", || {
        let job = |id: &str| told(&scene, &["job", id])["status"].clone();
        job(&waiting) == "pending" && job(&cancelled) == "cancelled"
    });
    // At last, write an invalid config.
    fs::write(scene.path("cowhand.yaml"), format!("{fleet}\nnonsense: true\n")).unwrap();
    scene.until("the config to be refused", || {
        told(&scene, &["status"])["daemon"]["config_refused_at"].is_string()
    });
    scene
}

fn in_their_states(scene: &Scene) -> bool {
    let views = told(scene, &["schedule", "list"]);
    let views = views.as_array().unwrap();
    let rests = |view: &Value| view["preparing"] == false;
    views.iter().all(rests)
        && STATES.iter().all(|(name, status, reason)| {
            let view = views.iter().find(|view| super::name_of(view) == *name).unwrap();
            view["status"] == *status && view["skip_reason"] == json!(reason)
        })
}

/// Returns the config. All times of day are half a day from now, in a zone in which it is about noon: nothing
/// falls due and no day ends during the test.
fn fleet() -> String {
    let hour = jiff::Timestamp::now().to_zoned(jiff::tz::TimeZone::UTC).hour();
    let offset = 12 - hour;
    let zone = format!("Etc/GMT{}{}", if offset > 0 { '-' } else { '+' }, offset.abs());
    let ahead = |hours| format!("{:02}", (hour + hours) % 24);
    FLEET.replace("HOUR", &ahead(12)).replace("EARLIER", &ahead(6)).replace("ZONE", &zone)
}

fn without_full(fleet: &str) -> String {
    let lines: Vec<&str> = fleet.lines().filter(|line| !line.contains("full: {")).collect();
    (lines.join("\n") + "\n")
        .replace("    default_prompt: Hold.\n    schedules:\n", "    default_prompt: Hold.\n")
}

/// Creates an open ask, as an agent does.
async fn ask(scene: &Scene) {
    let job = told(scene, &["trigger", "asker"])["id"].as_str().unwrap().to_owned();
    scene.until("the agent to be up", || scene.path("token").exists());
    let token = fs::read_to_string(scene.path("token")).unwrap();
    let wants = json!({ "attempt": 1, "key": "k", "tool": "Bash", "input": { "command": "git push" } });
    let asked =
        scene.ask("POST", &format!("/api/v1/jobs/{job}/asks")).bearer_auth(token).body(wants.to_string());
    let (code, made) = answer(asked).await;
    assert_eq!((code, &made["verdict"]), (200, &json!("asked")), "{made}");
}
