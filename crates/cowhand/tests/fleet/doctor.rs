//! `doctor` uses the environment of the daemon that starts the agents, not the environment of the terminal.

use std::fs;
use std::os::unix::fs::PermissionsExt;

use serde_json::Value;

use super::{Scene, wait_until};

const FLEET: &str = "agents:
  - name: a
    runtime: command
    command: [only-here]
    schedules: {hook: {type: webhook, secret_env: HOOK_SECRET, prompt: Look.}}
";

fn finding(scene: &Scene, path: &str, secret: Option<&str>, what: &str) -> Value {
    let mut command = scene.command(&["doctor", "--json"]);
    command.env("PATH", path).envs(secret.map(|secret| ("HOOK_SECRET", secret)));
    let output = command.output().unwrap();
    let findings: Value = serde_json::from_slice(&output.stdout).unwrap();
    let found = findings.as_array().unwrap().iter().find(|finding| finding["what"] == what);
    found.unwrap_or_else(|| panic!("no {what}: {findings:#}")).clone()
}

#[test]
fn doctor_uses_environment_of_running_daemon() {
    let scene = Scene::with(FLEET);
    let program = scene.root.join("bin/only-here");
    fs::create_dir_all(program.parent().unwrap()).unwrap();
    fs::write(&program, "#!/bin/sh\n").unwrap();
    fs::set_permissions(&program, fs::Permissions::from_mode(0o755)).unwrap();
    let own = std::env::var("PATH").unwrap();
    let with = format!("{}:{own}", scene.root.join("bin").display());
    let start = |path: &str, secret: Option<&str>| {
        let mut command = scene.command(&["start", "-d", "--no-server"]);
        command.env("PATH", path).envs(secret.map(|secret| ("HOOK_SECRET", secret)));
        assert!(command.output().unwrap().status.success());
    };
    // No daemon runs, so `doctor` uses its own environment, in which a daemon would be started.
    assert_eq!(finding(&scene, &with, Some("x"), "agent a")["ok"], true);
    assert_eq!(finding(&scene, &own, None, "agent a")["ok"], false);
    start(&own, None);
    let agent = finding(&scene, &with, Some("x"), "agent a");
    assert_eq!(agent["ok"], false, "the daemon does not find it: {agent}");
    let hook = finding(&scene, &with, Some("x"), "webhook a/hook");
    assert_eq!(hook["ok"], false, "the daemon has no secret: {hook}");
    assert_eq!(scene.run(&["stop"]).code, Some(0));
    start(&with, Some("x"));
    assert_eq!(finding(&scene, &own, None, "agent a")["ok"], true, "the daemon finds it");
    assert_eq!(finding(&scene, &own, None, "webhook a/hook")["ok"], true, "the daemon has it");
    let said = scene.run(&["doctor"]).stdout;
    assert!(said.contains("as the daemon sees them"), "{said}");
}

/// A variable that only the daemon has is not an error for the daemon.
#[test]
fn variable_of_the_running_daemon_may_be_unset_here() {
    let scene = Scene::with(&FLEET.replace("Look.", "'Look at ${HOOK_SECRET}.'"));
    let config = || finding(&scene, "/usr/bin:/bin", None, "config");
    assert_eq!(config()["ok"], false);
    let mut command = scene.command(&["start", "-d", "--no-server"]);
    assert!(command.env("HOOK_SECRET", "x").output().unwrap().status.success());
    let accepted = config();
    assert_eq!((&accepted["ok"], &accepted["warning"]), (&true.into(), &true.into()), "{accepted}");
    let detail = accepted["detail"].as_str().unwrap();
    assert!(detail.starts_with("the running daemon accepts it"), "{detail}");
}

const STOPPED: &str = "agents:
  - name: a
    runtime: command
    command: [cat]
    schedules:
      custom: {type: custom, name: nix}
      issues:
        type: github_issues
        owner: o
        repo: r
        api_url: http://127.0.0.1:9
        poll_interval: 1h
        auth: {token_env: NOT_SET_TOKEN}
        trust: {strangers: allow}
";

/// `doctor` reports schedules that cannot fire, before and after an error has stopped them.
#[test]
fn doctor_reports_schedules_that_an_error_stops() {
    let scene = Scene::with(STOPPED);
    let path = std::env::var("PATH").unwrap();
    let detail = |what: &str| {
        let found = finding(&scene, &path, None, what);
        assert_eq!(found["ok"], false, "{found}");
        found["detail"].as_str().unwrap().to_owned()
    };
    for is_running in [false, true] {
        if is_running {
            scene.start();
        }
        let custom = detail("schedule a/custom");
        assert!(custom.contains("no trigger is registered under the name \"nix\""), "{custom}");
        let issues = detail("schedule a/issues");
        assert!(issues.contains("NOT_SET_TOKEN is not set"), "{issues}");
    }
    let stopped = |name: &str| {
        let address = format!("a/{name}");
        wait_until("the error", || {
            (scene.json(&["schedule", "show", &address])["status"] == "error").then_some(())
        });
    };
    stopped("custom");
    stopped("issues");
    let why = scene.run(&["why", "a/custom"]).stdout;
    let why = why.split_whitespace().collect::<Vec<_>>().join(" ");
    assert!(why.contains("Correct the cause first"), "{why}");
    assert!(why.contains("a program with the cowhand library registers triggers"), "{why}");

    // The token can be used at once, although the daemon has not noticed the new file.
    scene.write(".env", "NOT_SET_TOKEN=ghp_12345678901234567890\n");
    let enabled = scene.run(&["schedule", "enable", "a/issues"]);
    assert_eq!(enabled.code, Some(0), "{}", enabled.stderr);
    wait_until("the first poll", || {
        let view = scene.json(&["schedule", "show", "a/issues"]);
        assert_ne!(view["status"], "error", "{view}");
        view["last_error"].is_string().then_some(())
    });
}

/// The cause is gone and the schedule is still stopped: `doctor` names the command that starts it. A daemon would start
/// it when it loads the config.
#[test]
fn doctor_names_command_for_stopped_schedule() {
    let scene = Scene::with(STOPPED);
    scene.start();
    wait_until("the error", || {
        (scene.json(&["schedule", "show", "a/issues"])["status"] == "error").then_some(())
    });
    assert_eq!(scene.run(&["stop"]).code, Some(0));
    scene.write(".env", "NOT_SET_TOKEN=ghp_12345678901234567890\n");
    let path = std::env::var("PATH").unwrap();
    let found = finding(&scene, &path, None, "schedule a/issues");
    let detail = found["detail"].as_str().unwrap();
    assert_eq!(found["ok"], false, "{found}");
    assert!(detail.contains("`cowhand schedule enable a/issues` starts it again"), "{found}");
}

#[test]
fn doctor_reports_workspaces_that_cannot_be_made() {
    let scene = Scene::with(
        "agents:
  - name: a
    runtime: command
    command: ['true']
    isolation: {kind: worktree, setup: [no-such-setup]}
",
    );
    let own = std::env::var("PATH").unwrap();
    let detail = || finding(&scene, &own, None, "isolation of a")["detail"].as_str().unwrap().to_owned();
    let said = detail();
    assert!(said.contains("not a git repository") && said.contains("`setup`: no-such-setup"), "{said}");
    let made = std::process::Command::new("git").args(["init", "-q"]).arg(&scene.root).status().unwrap();
    assert!(made.success());
    let said = detail();
    assert!(said.contains("its jobs cannot start: ") && !said.contains("not a git repository"), "{said}");
}

#[test]
fn missing_built_in_program_has_advice_that_works() {
    let agent =
        |runtime: &str| format!("  - {{name: {runtime}, runtime: {runtime}, env: {{PATH: /nowhere}}}}\n");
    let runtimes = ["claude", "codex", "gemini", "opencode"];
    let agents: String = runtimes.iter().map(|runtime| agent(runtime)).collect();
    let scene = Scene::with(&format!("agents:\n{agents}"));
    let found: Value = serde_json::from_str(&scene.run(&["doctor", "--json"]).stdout).unwrap();
    for runtime in runtimes {
        let what = format!("agent {runtime}");
        let finding = found.as_array().unwrap().iter().find(|finding| finding["what"] == *what).unwrap();
        let detail = finding["detail"].as_str().unwrap();
        assert!(detail.contains("was not found on PATH; install it, or add its folder to PATH"), "{detail}");
        assert!(!detail.contains("in the config"), "no key has its path: {detail}");
    }
}
