//! Shell completions of names in the fleet, by the program itself.

use super::Scene;

/// Returns the completions of the last of these words.
fn completed(scene: &Scene, words: &[&str]) -> Vec<String> {
    let mut command = scene.command(&["--"]);
    command.arg("cowhand").args(words);
    command.env("COWHAND_COMPLETE", "bash").env("_CLAP_COMPLETE_INDEX", words.len().to_string());
    command.env("_CLAP_COMPLETE_COMP_TYPE", "9").env("_CLAP_COMPLETE_SPACE", "true").env("_CLAP_IFS", "\n");
    let output = command.output().unwrap();
    let said = String::from_utf8(output.stderr).unwrap();
    assert!(output.status.success() && said.is_empty(), "{said}");
    let offered = String::from_utf8(output.stdout).unwrap();
    let mut offered: Vec<_> =
        offered.lines().filter(|word| !word.starts_with('-')).map(str::to_owned).collect();
    offered.sort();
    offered
}

#[test]
fn agents_schedules_and_jobs_are_completed() {
    let scene = Scene::started();
    let job = scene.json(&["trigger", "worker", "tidy", "--wait"])["id"].as_str().unwrap().to_owned();
    for daemon in [true, false] {
        let is = |words: &[&str], expected: &[&str]| {
            assert_eq!(completed(&scene, words), expected, "{words:?}, daemon: {daemon}");
        };
        is(&["trig"], &["trigger"]);
        is(&["trigger", "w"], &["waiter", "worker", "worker/nightly", "worker/tidy"]);
        is(&["trigger", "worker", ""], &["nightly", "tidy"]);
        is(&["status", "b"], &["broken"]);
        is(&["jobs", "--agent", "wo"], &["worker"]);
        is(&["why", "worker/"], &["worker/nightly", "worker/tidy"]);
        is(&["schedule", "enable", "worker/t"], &["worker/tidy"]);
        is(&["job", "job-"], &[&job]);
        is(&["cancel", "job-"], &[]);
        is(&["retry", &job[..12]], &[&job]);
        is(&["job", &job[15..18]], &[&job[15..]]);
        assert!(completed(&scene, &["logs", ""]).contains(&job));
        let file = scene.root.join("cowhand.yaml");
        is(&["-c", file.to_str().unwrap(), "trigger", "bro"], &["broken"]);
        is(&["-c", "nowhere", "trigger", ""], &[]);
        if daemon {
            assert_eq!(scene.run(&["stop"]).code, Some(0));
        }
    }
    assert!(!scene.run(&["status"]).stdout.is_empty());
}

#[test]
fn completion_scripts_call_the_program() {
    let scene = Scene::new();
    for shell in ["bash", "zsh", "fish", "elvish", "powershell"] {
        let said = scene.run(&["completions", shell]);
        assert_eq!(said.code, Some(0), "{}", said.stderr);
        assert!(
            said.stdout.contains("COWHAND_COMPLETE") && said.stdout.contains("cowhand"),
            "{}",
            said.stdout
        );
    }
}
