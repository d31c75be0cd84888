//! The warnings of `start` about the config.

use super::Scene;

/// Config with the old name of a key and a value without effect: warnings, not errors.
const WARNED: &str = "agents:
  - {name: a, runtime: command, command: ['true'], model: opus}
";

#[test]
fn warnings_of_the_config_are_shown_and_logged() {
    let scene = Scene::with(WARNED);
    let checked = scene.run(&["config", "check"]);
    assert_eq!(checked.code, Some(0), "{}", checked.stderr);
    let warning = checked.stderr.lines().find(|line| line.starts_with("warning")).unwrap();
    let text = warning.split_once(": ").unwrap().1;
    let started = scene.run(&["start", "-d", "--no-server"]);
    assert_eq!((started.code, started.stdout.as_str()), (Some(0), "ready\n"));
    assert!(started.stderr.contains(warning), "{}", started.stderr);
    assert_eq!(scene.log().matches(text).count(), 1, "{}", scene.log());
    assert!(
        scene.log().lines().any(|line| line.contains("WARN") && line.contains("cowhand.yaml:2:")),
        "{}",
        scene.log()
    );
    let restarted = scene.run(&["restart", "--no-server"]);
    assert!(restarted.stderr.contains(warning), "{}", restarted.stderr);
}
