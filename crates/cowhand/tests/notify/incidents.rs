//! Each kind of incident of a real fleet, and quiet hours.

use std::fs;

use jiff::tz::TimeZone;
use jiff::{Timestamp, ToSpan};
use serde_json::json;

use crate::receiver::Receiver;
use crate::{FLAKY, Scene, notify, wait_until};

const FLEET: &str = r#"
providers: {shared: {}}
agents:
  - name: pauses
    runtime: command
    command: ["false"]
    breaker: {failures: 1, pause: 1h}
    schedules: {s: {type: cron, cron: '* * * * * *', prompt: Work.}}
  - name: asker
    runtime: command
    command: [sh, -c, 'printf %s "$COWHAND_JOB_TOKEN" > token; while [ ! -e go ]; do sleep 0.05; done']
    fleet_tools: true
  - name: limited
    provider: shared
    runtime: command
    command: [sh, -c, 'if [ -e more ]; then echo fine; else printf "{\"type\":\"result\",\"is_error\":true,\"result\":\"You have hit your usage limit. Try again in 1 day.\"}\n"; fi']
  - name: spender
    runtime: command
    budget: {per_day_usd: 0.05}
    command: [sh, -c, "echo '{\"type\":\"system\",\"subtype\":\"usage\",\"model\":\"m\",\"usage\":{\"input_tokens\":1000,\"cost_usd\":0.04}}'"]
  - name: worker
    runtime: command
    command: ["false"]
    work_source: {type: files, path: tasks, max_item_attempts: 1}
    schedules: {w: {type: manual, prompt: "{{title}}"}}
"#;

/// Waits for the first message of this kind of incident, and returns its line.
fn opened(receiver: &Receiver, kind: &str) -> String {
    wait_until(&format!("{kind}, not {:?}", receiver.accepted()), || {
        let all = receiver.all();
        let is_it = |body: &serde_json::Value| body["kind"] == "opened" && body["incident"]["kind"] == kind;
        all.iter().find(|one| is_it(&one.body)).map(crate::receiver::Delivery::line)
    })
}

fn ended(receiver: &Receiver, kind: &str) -> String {
    wait_until(&format!("the end of {kind}, not {:?}", receiver.accepted()), || {
        let all = receiver.all();
        let is_it = |body: &serde_json::Value| body["kind"] == "ended" && body["incident"]["kind"] == kind;
        all.iter().find(|one| is_it(&one.body)).map(crate::receiver::Delivery::line)
    })
}

#[test]
fn each_kind_of_incident_is_reported_once() {
    let receiver = Receiver::start();
    let config = format!("{}{}", notify(&receiver, ""), FLEET);
    let mut scene = Scene::new(&config);
    fs::create_dir(scene.path("tasks")).unwrap();
    fs::write(scene.path("tasks/one.md"), "Do it.\n").unwrap();
    scene.start();
    assert_eq!(opened(&receiver, "schedule_paused"), "opened pauses/s has paused itself");
    scene.run(&["trigger", "limited"]);
    assert_eq!(opened(&receiver, "provider_parked"), "opened The provider shared has reached a usage limit");
    fs::write(scene.path("more"), "").unwrap();
    scene.run(&["unpark", "shared"]);
    assert_eq!(ended(&receiver, "provider_parked"), "ended The provider shared can be used again");
    scene.job("spender");
    assert_eq!(
        opened(&receiver, "budget_low"),
        "opened The daily budget of spender in dollars is spent to 80 %"
    );
    scene.job("worker/w");
    assert_eq!(opened(&receiver, "item_given_up"), "opened The work item files-one was given up");
    scene.run(&["work", "retry", "files-one"]);
    assert_eq!(ended(&receiver, "item_given_up"), "ended The work item files-one is no longer given up");
    let job = scene.json(&["trigger", "asker"])["id"].as_str().unwrap().to_owned();
    let token = wait_until("the token", || Some(scene.read("token")).filter(|token| !token.is_empty()));
    let ask = json!({"attempt": 1, "key": "k", "question": "Which one?"}).to_string();
    scene.request(Some(&token), "POST", &format!("jobs/{job}/asks"), &ask);
    assert_eq!(opened(&receiver, "ask_waiting"), "opened asker waits for an answer");
    scene.run(&["answer", &format!("{job}.1"), "This one."]);
    assert_eq!(ended(&receiver, "ask_waiting"), "ended The ask of asker was answered");
    fs::write(scene.path("go"), "").unwrap();
    fs::write(scene.path("cowhand.yaml"), "agents: 7\n").unwrap();
    assert_eq!(opened(&receiver, "config_refused"), "opened The config has errors and was refused");
    scene.configure(&config.replace("disk_low: 1B", "disk_low: 1000000TB"));
    assert_eq!(ended(&receiver, "config_refused"), "ended The config was accepted");
    assert!(opened(&receiver, "disk_low").starts_with("opened The disk of the node "));
    scene.configure(&config);
    assert!(ended(&receiver, "disk_low").ends_with(" has enough free space again"));
    let accepted = receiver.accepted();
    let mut once = accepted.clone();
    once.sort();
    once.dedup();
    assert_eq!(once.len(), accepted.len(), "{accepted:?}");
    let failed: Vec<&String> =
        accepted.iter().filter(|line| line.starts_with("opened worker/w failed")).collect();
    assert_eq!(failed.len(), 1, "{accepted:?}");
}

/// Returns quiet hours that began an hour ago and end in an hour.
fn quiet_now() -> String {
    let now = TimeZone::UTC.to_datetime(Timestamp::now());
    let time = |at: jiff::civil::DateTime| at.strftime("%H:%M").to_string();
    format!(
        "  quiet_hours: {{start: '{}', end: '{}', timezone: UTC, critical: true}}\n",
        time(now.checked_sub(1.hour()).unwrap()),
        time(now.checked_add(1.hour()).unwrap())
    )
}

#[test]
fn quiet_hours_hold_back_and_join_messages() {
    let receiver = Receiver::start();
    let mut scene = Scene::with_receiver(&receiver, &quiet_now());
    scene.start();
    scene.job("flaky");
    scene.job("flaky/s");
    scene.job("flaky/s");
    wait_until("both incidents", || (scene.states().len() == 2).then_some(()));
    // A critical incident passes, because the config says so.
    fs::write(scene.path("cowhand.yaml"), "agents: 7\n").unwrap();
    assert_eq!(receiver.wait_for(1), ["opened The config has errors and was refused"]);
    assert!(scene.run(&["notifications"]).contains("held"));
    assert!(scene.notifications()[1]["held_until"].is_string());
    // Without quiet hours, the rest is sent.
    scene.configure(&format!("{}{FLAKY}", notify(&receiver, "")));
    let sent = receiver.wait_for(3);
    assert!(sent.contains(&"digest 2 notifications from the quiet hours".to_owned()), "{sent:?}");
    let digest = receiver.all().into_iter().find(|one| one.body["kind"] == "digest").unwrap();
    let titles: Vec<&str> = digest.body["entries"]
        .as_array()
        .unwrap()
        .iter()
        .map(|entry| entry["title"].as_str().unwrap())
        .collect();
    assert_eq!(titles, ["flaky failed", "flaky/s failed (2 times)"]);
    wait_until("the groups", || {
        let states = scene.states();
        (states.iter().filter(|state| *state == "grouped opened").count() == 2).then_some(())
    });
}
