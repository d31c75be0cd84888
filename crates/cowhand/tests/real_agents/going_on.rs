//! Sessions that continue from job to job, according to the agent's policy.

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::PathBuf;

use serde_json::{Value, json};

use super::{Cli, Scene, for_each_cli, status_and_error, wait_until};

for_each_cli!(jobs_share_a_session, a_session_that_is_gone_is_replaced);

fn continuing() -> Value {
    json!({"session": {"policy": "continue"}})
}

fn session(job: &Value) -> &str {
    job["session_id"].as_str().expect("the job has a session")
}

/// Returns the notes of cowhand itself in the job's output.
fn notes(scene: &Scene, job: &Value) -> Vec<String> {
    let said = scene.output(job);
    let said = said.iter().filter_map(|line| line["content"].as_str()?.strip_prefix("cowhand: "));
    said.map(str::to_owned).collect()
}

/// Checks whether the request with this prompt also contained the earlier messages.
fn remembered(scene: &Scene, prompt: &str) -> bool {
    let asked = scene.models.served().into_iter().rfind(|served| served.body.to_string().contains(prompt));
    asked.expect("the model was asked").body.to_string().contains("brindled heifer")
}

fn jobs_share_a_session(cli: Cli) {
    let scene = Scene::with(cli, &continuing());
    let first = scene.run("Remember the brindled heifer.");
    scene.let_a_minute_pass();
    let second = scene.run("And now?");
    assert_eq!(status_and_error(&second), ["completed", "success", ""], "{second:#}");
    assert_eq!(session(&second), session(&first));
    assert!(remembered(&scene, "And now?"));
    assert_eq!(notes(&scene, &second), [""; 0]);

    assert!(scene.command(&["clear", "coder"]).output().unwrap().status.success());
    let third = scene.run("And then?");
    assert_ne!(session(&third), session(&first));
    assert!(!remembered(&scene, "And then?"));
}

/// Returns the folder in which the program keeps its sessions.
fn memory(scene: &Scene) -> PathBuf {
    scene.root.join("home").join(match scene.cli {
        Cli::Claude => ".claude/projects",
        Cli::Codex => ".codex/sessions",
        Cli::Gemini | Cli::GeminiAcp => ".gemini/tmp",
        Cli::Opencode | Cli::OpencodeAcp => ".local/share/opencode",
    })
}

fn a_session_that_is_gone_is_replaced(cli: Cli) {
    let scene = Scene::with(cli, &continuing());
    let first = scene.run("Remember the brindled heifer.");
    fs::remove_dir_all(memory(&scene)).unwrap();
    let second = scene.run("And now?");
    assert_eq!(status_and_error(&second), ["completed", "success", ""], "{second:#}");
    assert_eq!(second["attempt"], 1);
    assert_ne!(session(&second), session(&first));
    assert!(!remembered(&scene, "And now?"));
    let note =
        format!("the session {} no longer exists; this attempt starts a fresh session", session(&first));
    assert_eq!(notes(&scene, &second), [note]);

    // The fresh session is continued now.
    scene.let_a_minute_pass();
    let third = scene.run("And then?");
    assert_eq!(session(&third), session(&second));
}

#[test]
fn jobs_of_one_session_run_one_after_the_other() {
    let settings = json!({
        "session": {"policy": "continue"}, "instances": {"max_concurrent": 2},
        "schedules": {"ask": {"type": "manual", "prompt": "And then? SCENARIO:text"}},
    });
    let scene = Scene::with(Cli::Claude, &settings);
    scene.run("Remember the brindled heifer.");
    let slow = scene.trigger("And now? SCENARIO:slow");
    let next = scene.json(&["trigger", "coder", "ask"])["id"].as_str().unwrap().to_owned();
    wait_until("the first to be at work", || {
        scene.models.served().iter().any(|served| served.body.to_string().contains("And now?")).then_some(())
    });
    let why = scene.json(&["why", "coder/ask"]);
    assert_eq!(why["schedule"]["skip_reason"], "session_busy", "{why:#}");
    assert_eq!(scene.json(&["job", &next])["status"], "pending");
    assert!(scene.command(&["cancel", &slow]).output().unwrap().status.success());
    let (slow, next) = (scene.finished(&slow), scene.finished(&next));
    assert_eq!(slow["status"], "cancelled");
    assert_eq!(status_and_error(&next), ["completed", "success", ""], "{next:#}");
    assert_eq!(session(&next), session(&slow));
    let times = [slow["finished_at"].as_str().unwrap(), next["run_started_at"].as_str().unwrap()];
    assert!(times[0] <= times[1], "{times:?}");
    assert!(remembered(&scene, "And then?"));
}

#[test]
fn session_of_other_directory_is_not_continued() {
    let scene = Scene::with(Cli::Claude, &continuing());
    let first = scene.run("Remember the brindled heifer.");
    let fleet = fs::read_to_string(scene.root.join("cowhand.yaml")).unwrap();
    scene.write("shelf/.keep", "");
    scene.write("cowhand.yaml", &fleet.replace("\"desk\"", "\"shelf\""));
    assert!(scene.command(&["reload"]).output().unwrap().status.success());
    let second = scene.run("And now?");
    assert_eq!(status_and_error(&second), ["completed", "success", ""], "{second:#}");
    assert_ne!(session(&second), session(&first));
    let (desk, shelf) = (scene.root.join("desk"), scene.root.join("shelf"));
    let note = format!(
        "the session {} of {} is not continued: it belongs to {}, and the agent works in {}; this attempt starts a \
         fresh session",
        session(&first),
        first["id"].as_str().unwrap(),
        desk.display(),
        shelf.display()
    );
    assert_eq!(notes(&scene, &second), [note]);
}

#[test]
fn session_continues_in_its_workspace_or_starts_fresh() {
    let settings = json!({"session": {"policy": "continue"}, "isolation": "worktree"});
    let scene = Scene::with(Cli::Claude, &settings);
    let desk = scene.root.join("desk");
    for arguments in [vec!["init", "-q"], vec!["add", "-A"], vec!["commit", "-qm", "first"]] {
        let mut git = std::process::Command::new("git");
        git.args(["-c", "user.name=t", "-c", "user.email=t@example.com"]).args(arguments).current_dir(&desk);
        assert!(git.status().unwrap().success());
    }
    let first = scene.run("Remember the brindled heifer.");
    let directory = |job: &Value| {
        scene.json(&["resume", job["id"].as_str().unwrap()])["directory"].as_str().unwrap().to_owned()
    };
    let second = scene.run("And now?");
    assert_eq!(session(&second), session(&first), "{:?}", notes(&scene, &second));
    assert!(remembered(&scene, "And now?"));
    assert_eq!(directory(&second), directory(&first));
    assert!(directory(&first).ends_with(&format!(".cowhand/workspaces/{}", first["id"].as_str().unwrap())));

    // A fork works in the same directory, one at a time.
    let fork = scene.json(&["fork", second["id"].as_str().unwrap(), "-p", "And if?"]);
    let fork = scene.finished(fork["id"].as_str().unwrap());
    assert_eq!(status_and_error(&fork), ["completed", "success", ""], "{fork:#}");
    assert_eq!(directory(&fork), directory(&first));
    assert!(remembered(&scene, "And if?"));
    assert_ne!(session(&fork), session(&first));
    let again = scene.run("And still?");
    assert_eq!((session(&again), directory(&again)), (session(&first), directory(&first)));

    fs::remove_dir_all(directory(&first)).unwrap();
    let third = scene.run("And then?");
    assert_eq!(status_and_error(&third), ["completed", "success", ""], "{third:#}");
    assert_ne!(directory(&third), directory(&first));
    assert!(!remembered(&scene, "And then?"));
    assert!(
        notes(&scene, &third)[0].ends_with("is gone; this attempt starts a fresh session"),
        "{:?}",
        notes(&scene, &third)
    );
}

#[test]
fn resume_opens_session_in_its_directory() {
    let scene = Scene::with(Cli::Claude, &json!({"env": {"OWN_SETTING": "of the agent"}}));
    let slow = scene.trigger("Wait. SCENARIO:slow");
    wait_until("it to have a session", || {
        scene.json(&["job", &slow])["session_id"].is_string().then_some(())
    });
    let said = scene.command(&["resume", &slow]).output().unwrap();
    assert_eq!(said.status.code(), Some(5));
    let why = format!("{slow} is running; its session can be continued after it has ended");
    assert!(String::from_utf8_lossy(&said.stderr).contains(&why));
    scene.command(&["cancel", &slow]).output().unwrap();
    let job = scene.finished(&slow);
    let view = scene.json(&["resume", &slow]);
    assert_eq!(view["command"], json!(["claude", "--resume", session(&job)]));
    assert_eq!(view["directory"], json!(scene.root.join("desk")));

    // A script that prints its arguments replaces the program, which needs a terminal.
    let bin = scene.root.join("bin/claude");
    scene.write("bin/claude", "#!/bin/sh\necho \"$PWD $@\"; echo \"$OWN_SETTING\"\n");
    fs::set_permissions(&bin, fs::Permissions::from_mode(0o755)).unwrap();
    let path = format!("{}:{}", bin.parent().unwrap().display(), std::env::var("PATH").unwrap());
    let said = scene.command(&["resume", &slow]).env("PATH", path).output().unwrap();
    let expected =
        format!("{} --resume {}\nof the agent\n", scene.root.join("desk").display(), session(&job));
    assert_eq!(view["variables"], json!(["OWN_SETTING"]), "their values are not shown");
    assert_eq!(String::from_utf8_lossy(&said.stdout), expected);
    fs::remove_dir_all(scene.root.join("desk")).unwrap();
    let said = scene.command(&["resume", &slow]).output().unwrap();
    assert_eq!(said.status.code(), Some(5));
    assert!(String::from_utf8_lossy(&said.stderr).contains("which does not exist any more"));
}
