//! `doctor` uses the environment of the daemon that starts the agents, not that of the terminal.

use std::fs;
use std::os::unix::fs::PermissionsExt;

use serde_json::Value;

use super::Scene;

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
