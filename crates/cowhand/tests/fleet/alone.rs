//! Commands without a daemon that need one, or that need a config without errors.

use super::{Scene, wait_until};

const SLEEPER: &str = "agents:
  - name: a
    runtime: command
    command: [sleep, '600']
    schedules: {'-x': {type: manual, prompt: Go.}}
";

#[test]
fn verbs_that_need_a_daemon_say_so_at_once() {
    let scene = Scene::with(SLEEPER);
    scene.start();
    let id = scene.json(&["trigger", "a/-x"])["id"].as_str().unwrap().to_owned();
    wait_until("the job to run", || (scene.job(&id)["status"] == "running").then_some(()));
    assert_eq!(scene.run(&["stop", "--keep-agents"]).code, Some(0));
    let all = scene.run(&["cancel", "--all"]);
    assert_eq!(all.code, Some(4), "{}", all.stderr);
    assert!(!all.stderr.contains("--yes"), "{}", all.stderr);
    let deleted = scene.run(&["job", "delete", &id]);
    assert_eq!(deleted.code, Some(5), "{}", deleted.stderr);
    assert!(deleted.stderr.contains("no daemon runs"), "{}", deleted.stderr);
    scene.start();
    assert_eq!(scene.run(&["cancel", &id, "--yes"]).code, Some(0));
    assert_eq!(scene.run(&["cancel", "--all"]).stdout, "no job matches\n");
}

#[test]
fn schedules_of_a_config_with_errors_cannot_be_read() {
    let scene = Scene::with(&format!("{SLEEPER}: ["));
    for verb in [
        &["schedule", "list"][..],
        &["schedule", "list", "--json"],
        &["schedule", "next"],
        &["schedule", "next", "--json"],
        &["schedule", "next", "a/-x"],
        &["schedule", "show", "a/-x"],
        &["why", "a/-x"],
    ] {
        let said = scene.run(verb);
        assert_eq!(said.code, Some(3), "{verb:?}: {}{}", said.stdout, said.stderr);
        assert!(said.stderr.contains("the config has errors"), "{verb:?}: {}", said.stderr);
    }
}
