//! Messages to real agents while they run.

use std::fs;

use rustix::process::{Pid, Signal, kill_process};
use serde_json::{Value, json};

use super::asks::kill_daemon;
use super::{Cli, Scene, status_and_error, wait_until};

/// Declares each test for Claude Code and for two agents of the Agent Client Protocol.
macro_rules! for_each_steered {
    ($($story:ident),+ $(,)?) => {
        mod claude { $(#[test] fn $story() { super::$story(crate::Cli::Claude); })+ }
        mod gemini_acp { $(#[test] fn $story() { super::$story(crate::Cli::GeminiAcp); })+ }
        mod opencode_acp { $(#[test] fn $story() { super::$story(crate::Cli::OpencodeAcp); })+ }
    };
}

for_each_steered!(
    running_agent_gets_a_message,
    message_interrupts_the_turn,
    message_survives_a_killed_daemon,
    message_after_the_keeper_was_killed_is_the_next_turn,
);

const MESSAGE: &str = "Mind the roan calf. SCENARIO:text";

/// Starts a job whose agent waits in a tool until the file `go` exists.
fn at_the_gate(scene: &Scene) -> String {
    let id = scene.trigger("Begin. SCENARIO:gate");
    wait_until("the tool to run", || scene.root.join("desk/up").exists().then_some(()));
    id
}

fn open_the_gate(scene: &Scene) {
    scene.write("desk/go", "");
}

fn kill_keeper(scene: &Scene, job: &str) {
    let keeper = scene.root.join(format!(".cowhand/attempts/{job}.1/keeper.json"));
    let keeper: Value = serde_json::from_str(&fs::read_to_string(keeper).unwrap()).unwrap();
    let keeper = Pid::from_raw(keeper["pid"].as_i64().unwrap().try_into().unwrap()).unwrap();
    kill_process(keeper, Signal::KILL).unwrap();
}

fn messages(scene: &Scene, job: &str) -> Vec<Value> {
    scene.json(&["job", job])["messages"].as_array().unwrap().clone()
}

fn states(scene: &Scene, job: &str) -> Vec<String> {
    messages(scene, job).iter().map(|message| message["state"].as_str().unwrap().to_owned()).collect()
}

/// Returns the lines of the output that show messages.
fn shown(scene: &Scene, job: &Value) -> Vec<Value> {
    scene.output(job).into_iter().filter(|line| line["subtype"] == "steering").collect()
}

/// Returns how often the last request of the conversation contains the message.
fn times_in_conversation(scene: &Scene) -> usize {
    let served = scene.models.served();
    let last = served.iter().rfind(|served| served.body.to_string().contains("roan calf"));
    last.map_or(0, |served| served.body.to_string().matches("roan calf").count())
}

/// Checks that the agent got the message once, in its first attempt, and completed its job.
fn assert_delivered_once(scene: &Scene, id: &str) {
    let job = scene.finished(id);
    assert_eq!(status_and_error(&job), ["completed", "success", ""], "{job:#}\n{:#?}", scene.output(&job));
    assert_eq!(job["attempt"], 1);
    let messages = messages(scene, id);
    assert_eq!(messages.len(), 1, "{messages:#?}");
    assert_eq!((&messages[0]["state"], &messages[0]["attempt"]), (&json!("delivered"), &json!(1)));
    let shown = shown(scene, &job);
    assert_eq!(shown.len(), 1, "{:#?}", scene.output(&job));
    assert_eq!(shown[0]["content"], MESSAGE);
    assert_eq!(times_in_conversation(scene), 1);
    assert_eq!(scene.json(&["jobs"]).as_array().unwrap().len(), 1, "there is no next turn");
}

fn running_agent_gets_a_message(cli: Cli) {
    let scene = Scene::new(cli);
    let id = at_the_gate(&scene);
    let sent = scene.json(&["say", &id, MESSAGE]);
    assert_eq!(
        (&sent["route"], &sent["state"], &sent["number"]),
        (&json!("live"), &json!("pending"), &json!(1))
    );
    assert_eq!(scene.json(&["status"])["messages"], 1);
    open_the_gate(&scene);
    assert_delivered_once(&scene, &id);
    let events = scene.command(&["events", "--json"]).output().unwrap();
    let events = String::from_utf8(events.stdout).unwrap();
    assert!(events.contains("job:message\"") && events.contains("job:message_settled"), "{events}");
    let logs = scene.command(&["logs", &id]).output().unwrap();
    assert!(String::from_utf8_lossy(&logs.stdout).contains(&format!(": {MESSAGE}")));
    let refused = scene.command(&["say", &id, "Too late."]).output().unwrap();
    assert_eq!(refused.status.code(), Some(5));
    assert!(String::from_utf8_lossy(&refused.stderr).contains("has ended (completed)"));
}

fn message_interrupts_the_turn(cli: Cli) {
    let scene = Scene::new(cli);
    let id = at_the_gate(&scene);
    scene.json(&["say", &id, MESSAGE, "--interrupt"]);
    // The gate stays closed: only the end of the turn lets the agent go on.
    assert_delivered_once(&scene, &id);
}

fn message_survives_a_killed_daemon(cli: Cli) {
    let scene = Scene::new(cli);
    let id = at_the_gate(&scene);
    let start =
        |fault: &str| scene.command(&["start", "-d", "--no-server"]).env("COWHAND_FAULT", fault).output();
    let say = || scene.command(&["say", &id, MESSAGE, "--idempotency-key", "k"]).output().unwrap();
    let wait_for_fault = || {
        wait_until("the daemon to reach the fault", || {
            // A daemon that ends in this moment may not answer.
            let status = scene.command(&["status", "--json"]).output().unwrap();
            let status: Value = serde_json::from_slice(&status.stdout).ok()?;
            status["daemon"]["running"].eq(&false).then_some(())
        });
        assert_eq!(states(&scene, &id), ["pending"]);
    };
    kill_daemon(&scene);
    assert!(start("message-stored").unwrap().status.success());
    assert!(!say().status.success(), "the daemon ends before it answers");
    wait_for_fault();
    // The next daemon passes the message on, and ends before it does.
    start("message-passed").unwrap();
    wait_for_fault();
    assert!(start("message-confirmed").unwrap().status.success());
    assert!(say().status.success(), "the request can be repeated");
    open_the_gate(&scene);
    wait_for_fault();
    assert!(start("").unwrap().status.success());
    assert_delivered_once(&scene, &id);
}

fn message_after_the_keeper_was_killed_is_the_next_turn(cli: Cli) {
    let scene = Scene::new(cli);
    let id = at_the_gate(&scene);
    kill_keeper(&scene, &id);
    scene.json(&["say", &id, MESSAGE]);
    open_the_gate(&scene);
    let job = scene.finished(&id);
    let message = messages(&scene, &id).remove(0);
    assert_eq!(message["state"], "next_turn", "{message:#}\n{:#?}", scene.output(&job));
    let next = scene.finished(message["next_job"].as_str().unwrap());
    assert_eq!(status_and_error(&next), ["completed", "success", ""], "{next:#}\n{:#?}", scene.output(&next));
    assert_eq!((&next["prompt"], &next["continues"]), (&json!(MESSAGE), &json!(id)));
    if cli != Cli::GeminiAcp {
        // `gemini --acp` empties a session that it loads within the minute in which the session began.
        assert_eq!(next["session_id"], job["session_id"]);
    }
    assert_eq!(times_in_conversation(&scene), 1);
}

#[test]
fn next_turn_continues_in_the_workspace() {
    let scene = Scene::with(Cli::Claude, &json!({"isolation": "worktree"}));
    for arguments in [vec!["init", "-q"], vec!["add", "-A"], vec!["commit", "-qm", "first"]] {
        let mut git = std::process::Command::new("git");
        git.args(["-c", "user.name=t", "-c", "user.email=t@example.com"]).args(arguments);
        assert!(git.current_dir(scene.root.join("desk")).status().unwrap().success());
    }
    let id = scene.trigger("Begin. SCENARIO:gate");
    let workspace = format!(".cowhand/workspaces/{id}");
    wait_until("the tool to run", || scene.root.join(&workspace).join("up").exists().then_some(()));
    kill_keeper(&scene, &id);
    scene.json(&["say", &id, MESSAGE]);
    scene.write(&format!("{workspace}/go"), "");
    let job = scene.finished(&id);
    let message = messages(&scene, &id).remove(0);
    let next = scene.finished(message["next_job"].as_str().unwrap());
    assert_eq!(status_and_error(&next), ["completed", "success", ""], "{next:#}\n{:#?}", scene.output(&next));
    assert_eq!(next["session_id"], job["session_id"], "{:#?}", scene.output(&next));
}
