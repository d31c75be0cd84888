//! A trigger that fails: every verb that people ask names it, and a reload gives it the current token.

use cowhand_testing::github_lists::FakeLists;
use serde_json::Value;

use super::{Scene, wait_until};

const WHAT: &str = "schedule a/issues";

/// Creates a fleet whose trigger polls once an hour, so that only a new start of the trigger causes a second poll.
fn scene(url: &str) -> Scene {
    Scene::with(&format!(
        "agents:
  - name: a
    runtime: command
    command: [cat]
    schedules:
      issues:
        type: github_issues
        owner: o
        repo: r
        api_url: {url}
        poll_interval: 1h
        auth: {{token_env: LISTS_TOKEN}}
        prompt: Read it.
"
    ))
}

async fn github() -> FakeLists {
    let fake = FakeLists::with_issues(1).await;
    fake.fake_state.lock().unwrap().token = Some("new-token-0002");
    fake
}

fn words(text: &str) -> String {
    text.split_whitespace().collect::<Vec<_>>().join(" ")
}

fn status_line(scene: &Scene) -> Option<String> {
    let said = words(&scene.run(&["status"]).stdout);
    said.split_once("trigger fails: ").map(|(_, line)| line.to_owned())
}

fn finding(scene: &Scene) -> Option<Value> {
    let said = scene.run(&["doctor", "--json"]).stdout;
    let findings: Value = serde_json::from_str(&said).unwrap();
    findings.as_array().unwrap().iter().find(|finding| finding["what"] == WHAT).cloned()
}

fn wait_for_job(scene: &Scene) {
    wait_until("a job", || (!scene.json(&["jobs"]).as_array().unwrap().is_empty()).then_some(()));
}

/// Checks that no verb names the trigger any more.
fn assert_silent(scene: &Scene) {
    wait_until("the end of the error", || status_line(scene).is_none().then_some(()));
    assert_eq!(finding(scene), None);
    let why = words(&scene.run(&["why", "a/issues"]).stdout);
    assert!(!why.contains("401") && !why.contains("fail"), "{why}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn failing_trigger_is_named_everywhere_until_reload_brings_a_valid_token() {
    let fake = github().await;
    let scene = scene(&fake.url);
    scene.write(".env", "LISTS_TOKEN=old-token-0001\n");
    scene.start();
    let line = wait_until("the error in `status`", || status_line(&scene));
    let why = words(&scene.run(&["why", "a/issues"]).stdout);
    let found = finding(&scene).expect("`doctor` names the schedule");
    assert_eq!((&found["ok"], scene.run(&["doctor"]).code), (&Value::from(false), Some(6)), "{found}");
    for said in [line.as_str(), &why, found["detail"].as_str().unwrap()] {
        assert!(said.contains("401") && said.contains("since "), "{said}");
        assert!(said.contains("`cowhand reload`"), "{said}");
    }
    let error = &scene.json(&["schedule", "list"])[0]["trigger_error"];
    assert!(error["message"].as_str().unwrap().contains("401") && error["since"].is_string(), "{error}");
    scene.write(".env", "LISTS_TOKEN=new-token-0002\n");
    assert_eq!(scene.run(&["reload"]).code, Some(0));
    wait_for_job(&scene);
    assert_silent(&scene);
}

/// The token is valid again, and no file has changed.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn reload_and_enable_try_a_failing_trigger_again() {
    for verb in [&["reload"][..], &["schedule", "enable", "a/issues"]] {
        let fake = github().await;
        let scene = scene(&fake.url);
        scene.write(".env", "LISTS_TOKEN=old-token-0001\n");
        scene.start();
        wait_until("the error", || {
            scene.json(&["schedule", "list"])[0]["last_error"].is_string().then_some(())
        });
        fake.fake_state.lock().unwrap().token = None;
        assert_eq!(scene.run(verb).code, Some(0), "{verb:?}");
        wait_for_job(&scene);
        assert_silent(&scene);
    }
}

/// Without a token the schedule stops.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn reload_starts_a_trigger_that_stopped_without_a_token() {
    let fake = github().await;
    let scene = scene(&fake.url);
    scene.start();
    wait_until("the error", || (scene.json(&["schedule", "list"])[0]["status"] == "error").then_some(()));
    scene.write(".env", "LISTS_TOKEN=new-token-0002\n");
    assert_eq!(scene.run(&["reload"]).code, Some(0));
    wait_for_job(&scene);
    wait_until("its job to end", || (scene.json(&["schedule", "list"])[0]["status"] == "idle").then_some(()));
    assert_silent(&scene);
}
