//! Command targets.

use std::fs;

use cowhand_testing::process::left_over;
use serde_json::Value;

use crate::{FLAKY, Scene, wait_until};

fn scene(command: &str, timeout: &str) -> Scene {
    let target = format!("{{type: command, command: [sh, -c, '{command}'], timeout: {timeout}}}");
    Scene::new(&format!(
        "notify: {{disk_low: 1B, targets: {{run: {target}}}, rules: [{{to: [run], kinds: [job_failed]}}]}}\n{FLAKY}"
    ))
}

#[test]
fn a_command_reads_the_notification_from_its_standard_input() {
    let mut scene = scene("cat >> got; echo >> got", "10s");
    scene.start();
    scene.job("flaky/s");
    wait_until("the command", || (scene.states() == ["sent opened"]).then_some(()));
    let got: Value = serde_json::from_str(scene.read("got").trim()).unwrap();
    assert_eq!(
        (got["title"].as_str(), got["target"].as_str(), got["number"].as_i64()),
        (Some("flaky/s failed"), Some("run"), Some(1))
    );
    assert!(!scene.read("got").contains("canary"), "{}", scene.read("got"));
    let left = fs::read_dir(scene.path(".cowhand/notifications")).unwrap().count();
    assert_eq!(left, 0, "the input is removed");
}

#[test]
fn a_command_that_hangs_is_ended_with_all_its_processes() {
    let mut scene = scene("sleep 1000 & echo started > got; sleep 1000", "1s");
    scene.start();
    let (code, report) = scene.output(&["notify", "test", "run"]);
    assert_eq!((code, report.as_str()), (Some(5), "run: not sent: no answer within 1s\n"));
    assert_eq!(scene.read("got"), "started\n");
    let is_sleep = |pid: &rustix::process::Pid| {
        let line = fs::read_to_string(format!("/proc/{}/cmdline", pid.as_raw_nonzero())).unwrap_or_default();
        line.starts_with("sleep")
    };
    wait_until("its processes to end", || {
        (!left_over(scene.folder.path()).iter().any(is_sleep)).then_some(())
    });
}

#[test]
fn a_command_that_fails_is_tried_again() {
    let mut scene = scene("test -e works || { echo not yet; exit 3; }", "10s");
    scene.start();
    scene.job("flaky/s");
    let failed = wait_until("a failed try", || {
        let all = scene.notifications();
        all.into_iter().find(|view| view["last_error"].is_string())
    });
    assert_eq!(failed["last_error"], "its exit code is not 0; it printed: not yet");
    fs::write(scene.path("works"), "").unwrap();
    // A successful test makes the notification due.
    assert_eq!(scene.run(&["notify", "test"]), "run: sent\n");
    scene.wait_for_states(&["sent opened", "sent test"]);
}
