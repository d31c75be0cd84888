//! A `when_command` that does not answer ends with the daemon, and does not delay `stop`.

use std::fs;

use super::{Scene, has_ended, kill_and_wait, wait_until};

/// The command waits for ever, and so does its child in its own session.
const HANGING: &str = r#"
agents:
  - name: a
    runtime: command
    command: ["true"]
    schedules:
      s:
        type: interval
        interval: 1s
        when_command: [sh, -c, "setsid sh -c 'echo $$ >> pids; exec sleep 4321' & echo $$ >> pids; exec sleep 4321"]
"#;

fn pids(scene: &Scene) -> Vec<rustix::process::Pid> {
    let text = fs::read_to_string(scene.root.join("pids")).unwrap_or_default();
    text.lines().filter_map(|line| rustix::process::Pid::from_raw(line.parse().ok()?)).collect()
}

fn hanging(scene: &Scene) -> Vec<rustix::process::Pid> {
    fs::remove_file(scene.root.join("pids")).ok();
    scene.start();
    wait_until("it to be asked", || Some(pids(scene)).filter(|pids| pids.len() == 2))
}

#[test]
fn hanging_when_command_ends_with_daemon() {
    let scene = Scene::with(HANGING);
    let asked = hanging(&scene);
    let daemon = scene.daemon().unwrap();
    let stopped = scene.run(&["stop"]);
    assert_eq!((stopped.code, stopped.stdout.as_str()), (Some(0), "stopped\n"), "{}", stopped.stderr);
    assert!(has_ended(daemon), "`stop` answers when the process is gone");
    assert!(asked.iter().all(|pid| has_ended(*pid)), "and all that it ran");
    let asked = hanging(&scene);
    kill_and_wait(scene.daemon().unwrap());
    wait_until("the end of what a killed daemon ran", || {
        asked.iter().all(|pid| has_ended(*pid)).then_some(())
    });
}

/// The last lines of the command are in the ledger and in the error, without secrets.
#[test]
fn output_of_when_command_is_shown_without_secrets() {
    let scene = Scene::with(
        r#"
agents:
  - name: a
    runtime: command
    command: ["true"]
    env: {MY_TOKEN: canary-secret-of-the-agent}
    schedules:
      says-no:
        type: interval
        interval: 1s
        when_command: [sh, -c, "seq 100000; echo first canary-secret-of-the-agent; echo the branch is busy >&2; exit 3"]
      fails:
        type: interval
        interval: 1s
        when_command: [sh, -c, "echo no such file canary-secret-of-the-agent >&2; exit 127"]
"#,
    );
    scene.start();
    let firing = wait_until("a firing", || {
        let why = scene.json(&["why", "a/says-no"]);
        Some(why["firings"][0].clone()).filter(|firing| firing["outcome"] == "skipped")
    });
    let why = firing["why"].as_str().unwrap();
    for words in ["`when_command` rejected it", "100000", "first ", "the branch is busy"] {
        assert!(why.contains(words), "{words} in {why}");
    }
    assert!(!why.contains("canary") && why.len() < 1_000, "{why}");
    let shown = wait_until("an error", || {
        let shown = scene.json(&["schedule", "show", "a/fails"]);
        shown["last_error"].as_str().map(str::to_owned)
    });
    assert!(shown.contains("code 127") && shown.contains("no such file"), "{shown}");
    assert!(!shown.contains("canary"), "{shown}");
    let said = scene.run(&["why", "a/fails"]).stdout;
    assert!(said.contains("no such file"), "{said}");
}
