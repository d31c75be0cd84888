//! Secrets that are replaced while agents and hooks run with the old value.

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};

use super::{Scene, wait_until};

const ROTATED: &str = r#"
agents:
  - name: rot
    runtime: command
    pass_env: [DEPLOY_TOKEN]
    command: [sh, -c, "touch up; while [ ! -e go ]; do sleep 0.05; done; echo \"rot is $ROT_TOKEN and $DEPLOY_TOKEN\"; cat .env; echo \"err $ROT_TOKEN\" >&2; exit 1"]
  - name: hooked
    runtime: command
    command: [sh, -c, "echo done"]
    hooks: {after_run: [{type: shell, command: "touch up; while [ ! -e go ]; do sleep 0.05; done; echo hook has $ROT_TOKEN"}]}
  - name: worker
    runtime: command
    command: [sh, -c, cat]
"#;
const OLD: &str = "old-canary-secret-1";
const NEW: &str = "new-canary-secret-2";
const DEPLOY: &str = "deploy-canary-secret-1";

fn scene() -> Scene {
    let scene = Scene::with(ROTATED);
    scene.write(".env", &format!("ROT_TOKEN={OLD}\n"));
    let started =
        scene.command(&["start", "-d", "--no-server"]).env("DEPLOY_TOKEN", DEPLOY).output().unwrap();
    assert!(started.status.success(), "{started:?}");
    scene
}

/// Triggers a job, and waits until its agent or its hook has touched `up`.
fn begun(scene: &Scene, arguments: &[&str]) -> String {
    let job = scene.json(&[&["trigger"], arguments].concat())["id"].as_str().unwrap().to_owned();
    wait_until("it to be up", || scene.root.join("up").exists().then_some(()));
    job
}

fn wait_for_end(scene: &Scene, job: &str) {
    wait_until("the end of the job", || (scene.job(job)["status"] == "failed").then_some(()));
}

fn files_below(folder: &Path) -> Vec<PathBuf> {
    let entries = fs::read_dir(folder).into_iter().flatten().flatten();
    entries
        .flat_map(|entry| if entry.path().is_dir() { files_below(&entry.path()) } else { vec![entry.path()] })
        .collect()
}

/// Returns the files of the state folder that contain a text.
fn files_with(scene: &Scene, text: &str) -> Vec<PathBuf> {
    let has_text = |file: &PathBuf| {
        let bytes = fs::read(file).unwrap_or_default();
        bytes.windows(text.len()).any(|part| part == text.as_bytes())
    };
    files_below(&scene.root.join(".cowhand")).into_iter().filter(has_text).collect()
}

/// Returns the output of all verbs that show a job, and the view of the job.
fn shown(scene: &Scene, job: &str) -> String {
    let view = scene.root.join(format!(".cowhand/jobs/{job}.yaml"));
    let view = wait_until("the view of the job", || fs::read_to_string(&view).ok());
    let verbs = [
        &["logs", job][..],
        &["logs", job, "--json"],
        &["job", job],
        &["job", job, "--json"],
        &["jobs", "--json"],
        &["events", "--json"],
    ];
    let said = verbs.iter().map(|verb| scene.run(verb)).map(|said| said.stdout + &said.stderr);
    said.collect::<String>() + &view
}

#[track_caller]
fn assert_masked(text: &str) {
    for secret in [OLD, NEW, DEPLOY] {
        assert!(!text.contains(secret), "{secret} in {text}");
    }
}

/// The agent outlives its daemon, and the next daemon does not have the values with which the agent was started. The
/// agent has the old values, and reads the new values in the file.
#[test]
fn secrets_that_change_while_an_agent_runs_are_masked() {
    for change in ["reload", "restart", "kill"] {
        let scene = scene();
        let job = begun(&scene, &["rot", "-p", &format!("use {OLD}")]);
        for file in files_with(&scene, OLD).iter().chain(&files_with(&scene, DEPLOY)) {
            let mode = fs::metadata(file).unwrap().permissions().mode();
            assert_eq!(mode & 0o77, 0, "{}", file.display());
        }
        scene.write(".env", &format!("ROT_TOKEN={NEW}\n"));
        if change == "kill" {
            scene.kill_daemon();
            assert_masked(&scene.run(&["job", &job]).stdout);
            scene.start();
        } else {
            assert_eq!(scene.run(&[change]).code, Some(0));
        }
        assert_masked(&shown(&scene, &job));
        scene.go();
        wait_for_end(&scene, &job);
        let text = shown(&scene, &job);
        assert_masked(&text);
        assert!(text.contains("rot is *** and ***") && text.contains("err ***"), "{change}: {text}");
        assert!(text.contains("ROT_TOKEN=***"), "{change}: {text}");
        wait_until("the files with the values to be removed", || {
            // The store has the prompt as it was given.
            let left: Vec<_> =
                files_with(&scene, OLD).into_iter().chain(files_with(&scene, DEPLOY)).collect();
            let is_store = |file: &PathBuf| file.to_string_lossy().contains("store.db");
            left.iter().all(is_store).then_some(())
        });
    }
}

#[test]
fn secrets_of_a_running_hook_are_masked_by_the_next_daemon() {
    let scene = scene();
    let job = begun(&scene, &["hooked"]);
    scene.write(".env", &format!("ROT_TOKEN={NEW}\n"));
    scene.kill_daemon();
    scene.start();
    scene.go();
    let text = wait_until("the output of the hook", || {
        let text = scene.job(&job).to_string();
        text.contains("hook has").then_some(text)
    });
    assert!(text.contains("hook has ***"), "{text}");
    assert_masked(&text);
}

#[test]
fn texts_with_an_earlier_secret_stay_masked_after_a_reload() {
    let scene = scene();
    let job = scene.json(&["trigger", "worker", "-p", &format!("deploy with {OLD} please")])["id"].clone();
    let job = job.as_str().unwrap();
    wait_until("the end of the job", || (scene.job(job)["status"] == "completed").then_some(()));
    for value in [NEW, "third-canary-secret-3"] {
        scene.write(".env", &format!("ROT_TOKEN={value}\n"));
        assert_eq!(scene.run(&["reload"]).code, Some(0));
        let text = shown(&scene, job);
        assert_masked(&text);
        assert!(text.contains("deploy with *** please"), "{text}");
    }
    let other = scene.json(&["trigger", "worker", "-p", &format!("{OLD} {NEW}")])["id"].clone();
    assert_masked(&shown(&scene, other.as_str().unwrap()));
}
