//! `permission_mode: ask` with the real Claude Code: the rules decide, or a person does.

use rustix::process::{Pid, Signal, kill_process, test_kill_process};
use serde_json::{Value, json};

use super::models::Models;
use super::{Cli, Scene, status_and_error, wait_until};

/// Starts a scene in which these rules decide, whatever the default settings allow.
fn asking(more: &Value) -> Scene {
    let mut settings =
        json!({"permission_mode": "ask", "allowed_tools": null, "permissions": {"ask": ["Bash"]}});
    for (key, value) in more.as_object().unwrap() {
        settings[key] = value.clone();
    }
    Scene::with(Cli::Claude, &settings)
}

/// Waits for the only ask of the fleet.
pub(super) fn ask(scene: &Scene) -> Value {
    wait_until("the agent to ask", || scene.json(&["asks"]).as_array().unwrap().first().cloned())
}

/// Returns the result of the tool, as the model received it.
fn result(scene: &Scene, job: &Value) -> (bool, String) {
    let output = scene.output(job);
    let results: Vec<_> = output.iter().filter(|line| line["type"] == "tool_result").collect();
    assert_eq!(results.len(), 1, "{output:#?}");
    (results[0]["success"] == true, results[0].to_string())
}

pub(super) fn kill_daemon(scene: &Scene) {
    let pid = scene.json(&["status"])["daemon"]["pid"].as_i64().unwrap();
    let pid = Pid::from_raw(pid.try_into().unwrap()).unwrap();
    kill_process(pid, Signal::KILL).unwrap();
    wait_until("the daemon to be gone", || test_kill_process(pid).is_err().then_some(()));
}

#[test]
fn ask_can_be_approved_after_daemon_was_killed() {
    let scene = asking(&json!({}));
    let id = scene.trigger("SCENARIO:tool");
    let asked = ask(&scene);
    assert_eq!(asked["tool"], "Bash");
    assert_eq!(asked["input"]["command"], "echo from-the-tool");
    assert_eq!((&asked["job"], &asked["status"], &asked["attempt"]), (&json!(id), &json!("open"), &json!(1)));
    assert_eq!(scene.json(&["status"])["asks"], 1);

    kill_daemon(&scene);
    assert_eq!(scene.json(&["asks"])[0]["id"], asked["id"], "it is known without a daemon, too");
    let said = scene.command(&["start", "-d", "--no-server"]).output().unwrap();
    assert!(said.status.success(), "{}", String::from_utf8_lossy(&said.stderr));
    assert_eq!(scene.json(&["job", &id])["status"], "running");
    let answered = scene.json(&["approve", asked["id"].as_str().unwrap(), "--message", "go on"]);
    assert_eq!(answered["status"], "allowed");

    let job = scene.finished(&id);
    assert_eq!(status_and_error(&job), ["completed", "success", ""], "{job:#}");
    assert_eq!(job["attempt"], 1);
    let (success, said) = result(&scene, &job);
    assert!(success && said.contains("from-the-tool"), "{said}");
    assert_eq!(scene.json(&["asks", "--all"]).as_array().unwrap().len(), 1, "it asked once");
    assert_eq!(scene.json(&["status"])["asks"], 0);
}

/// In a sandbox with its own network the agent can still ask, and gets the answer from the next daemon.
#[test]
fn ask_in_sandbox_can_be_approved_after_daemon_was_killed() {
    let models = Models::start();
    let url = models.url();
    let hosts = json!([format!("127.0.0.1:{}", models.port())]);
    let settings = json!({
        "permission_mode": "ask", "allowed_tools": null, "permissions": {"ask": ["Bash"]},
        "sandbox": {"kind": "bubblewrap", "network": {"hosts": hosts}},
    });
    let scene = Scene::at(Cli::Claude, models, &url, &settings);
    let id = scene.trigger("SCENARIO:tool");
    let asked = ask(&scene);
    assert_eq!(asked["input"]["command"], "echo from-the-tool");
    kill_daemon(&scene);
    let said = scene.command(&["start", "-d", "--no-server"]).output().unwrap();
    assert!(said.status.success(), "{}", String::from_utf8_lossy(&said.stderr));
    assert_eq!(scene.json(&["job", &id])["status"], "running");
    scene.json(&["approve", asked["id"].as_str().unwrap()]);
    let job = scene.finished(&id);
    assert_eq!(status_and_error(&job), ["completed", "success", ""], "{job:#}");
    let (success, said) = result(&scene, &job);
    assert!(success && said.contains("from-the-tool"), "{said}");
    assert_eq!(
        (job["attempt"].as_u64(), scene.json(&["asks", "--all"]).as_array().unwrap().len()),
        (Some(1), 1)
    );
}

#[test]
fn reason_of_denial_reaches_the_model() {
    let scene = asking(&json!({}));
    let id = scene.trigger("SCENARIO:tool");
    let asked = ask(&scene);
    scene.json(&["deny", asked["id"].as_str().unwrap(), "--message", "not before noon"]);
    let job = scene.finished(&id);
    assert_eq!(status_and_error(&job), ["completed", "success", ""], "{job:#}");
    let (success, said) = result(&scene, &job);
    assert!(!success && said.contains("a person denied it: not before noon"), "{said}");
}

#[test]
fn unanswered_ask_expires_as_denial() {
    let scene = asking(&json!({"ask_timeout": "1s"}));
    let job = scene.run("SCENARIO:tool");
    assert_eq!(status_and_error(&job), ["completed", "success", ""], "{job:#}");
    let (success, said) = result(&scene, &job);
    assert!(!success && said.contains("no person answered in time"), "{said}");
    assert_eq!(scene.json(&["asks", "--all"])[0]["status"], "expired");
}

/// The rules decide, and no person is asked.
#[test]
fn permission_rules_decide_without_ask() {
    for (permissions, expected) in [
        (json!({"allow": ["Bash(echo *)"], "ask": []}), Ok("from-the-tool")),
        (json!({"allow": ["Bash"], "deny": ["Bash(echo *)"]}), Err("denied")),
    ] {
        let scene = asking(&json!({"permissions": permissions}));
        let job = scene.run("SCENARIO:tool");
        assert_eq!(status_and_error(&job), ["completed", "success", ""], "{job:#}");
        let (success, said) = result(&scene, &job);
        assert_eq!(success, expected.is_ok(), "{said}");
        let (Ok(word) | Err(word)) = expected;
        assert!(said.contains(word), "{said}");
        assert_eq!(scene.json(&["asks", "--all"]), json!([]));
    }
}

#[test]
fn answer_to_question_reaches_the_model() {
    let scene = asking(&json!({}));
    let id = scene.trigger("SCENARIO:question");
    let asked = ask(&scene);
    assert_eq!((&asked["kind"], &asked["question"]), (&json!("question"), &json!("Which of the two?")));
    scene.json(&["answer", asked["id"].as_str().unwrap(), "The brindled one."]);
    let job = scene.finished(&id);
    assert_eq!(status_and_error(&job), ["completed", "success", ""], "{job:#}");
    let (success, said) = result(&scene, &job);
    assert!(success && said.contains("The brindled one."), "{said}");
}

/// The end of the job ends its asks, and its token is in no arguments and in no stored data.
#[test]
fn end_of_job_ends_its_asks() {
    let scene = asking(&json!({}));
    let id = scene.trigger("SCENARIO:tool");
    let asked = ask(&scene);
    for pid in super::left_over(scene.folder.path()) {
        let arguments = std::fs::read(format!("/proc/{}/cmdline", pid.as_raw_nonzero())).unwrap_or_default();
        assert!(!String::from_utf8_lossy(&arguments).contains("cowjob_"));
    }
    scene.json(&["cancel", &id]);
    let job = scene.finished(&id);
    assert_eq!(job["status"], "cancelled", "{job:#}");
    let said = scene.command(&["approve", asked["id"].as_str().unwrap()]).output().unwrap();
    assert_eq!(said.status.code(), Some(5), "{}", String::from_utf8_lossy(&said.stderr));
    assert!(String::from_utf8_lossy(&said.stderr).contains("is ended already"));
    let kept = std::fs::read_to_string(scene.root.join(format!(".cowhand/jobs/{id}.jsonl"))).unwrap();
    assert!(!kept.contains("cowjob_"), "{kept}");
}
