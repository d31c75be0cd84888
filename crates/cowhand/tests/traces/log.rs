//! `--log-format json`: each line is always an object, and none contains a secret.

use std::fs;

use serde_json::Value;

use crate::{AGENTS, Scene};

fn lines(log: &str) -> Vec<Value> {
    let read = |line: &str| serde_json::from_str(line).unwrap_or_else(|_| panic!("no JSON: {line}"));
    let lines: Vec<Value> = log.lines().map(read).collect();
    for line in &lines {
        line["timestamp"].as_str().unwrap().parse::<jiff::Timestamp>().unwrap();
        assert!(["ERROR", "WARN", "INFO"].contains(&line["level"].as_str().unwrap()), "{line}");
        assert!(!line["message"].as_str().unwrap().is_empty(), "{line}");
    }
    lines
}

#[test]
fn each_log_line_is_a_json_object() {
    let mut scene = Scene::prepared(AGENTS).with("OTEL_EXPORTER_OTLP_ENDPOINT", "canary:4317");
    scene.start(&["--log-format", "json"]);
    let job = scene.job(&["coder", "by-hand"]);
    scene.job(&["broken"]);
    // A report of many lines is one line of the log.
    fs::write(
        scene.path("cowhand.yaml"),
        format!("{AGENTS}  - name: coder\n    env: {{A: canary-new}}\n    x: 1\n"),
    )
    .unwrap();
    scene.run(&["reload"]);
    scene.until_logged("the config was refused");
    scene.stop();
    let log = scene.log();
    assert!(!log.contains("canary"), "{log}");
    let lines = lines(&log);
    let says = |message: &str| lines.iter().filter(|line| line["message"] == message).collect::<Vec<_>>();
    for message in ["started", "settled"] {
        let said = says(message);
        let of_job = said.iter().find(|line| line["job"] == job.as_str());
        let of_job = of_job.unwrap_or_else(|| panic!("{message} of {job}: {log}"));
        assert_eq!(of_job["agent"], "coder");
    }
    assert_eq!(says("settled")[1]["status"], "failed");
    assert_eq!(says("stopped").len(), 1);
}

#[test]
fn error_of_failed_start_is_a_json_object() {
    let scene = Scene::prepared("agents: [{name: a, env: {A: canary-env}, colour: red}]\n");
    let (code, out, said) = scene.run(&["start", "--log-format", "json"]);
    assert_eq!((code, out.as_str()), (Some(3), ""));
    let lines = lines(&said);
    assert_eq!((lines.len(), &lines[0]["level"]), (1, &"ERROR".into()));
    assert!(lines[0]["message"].as_str().unwrap().contains("colour"), "{said}");
    assert!(!said.contains("canary"), "{said}");
    // A person who starts the daemon in the background gets the error as text.
    let (code, _, said) = scene.run(&["start", "-d", "--log-format", "json"]);
    assert_eq!(code, Some(3));
    assert!(said.starts_with("error: ") && said.contains("colour") && !said.contains("\"level\""), "{said}");
}
