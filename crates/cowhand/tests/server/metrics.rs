//! `/metrics`, as Prometheus' own tool reads it.

use std::io::Write;
use std::process::{Command, Stdio};
use std::time::Duration;

use crate::{Scene, answer};

async fn metrics(scene: &Scene, token: &str) -> String {
    let response = scene.ask("GET", "/metrics").bearer_auth(token).send().await.unwrap();
    assert_eq!(response.status(), 200);
    assert!(response.headers()["content-type"].to_str().unwrap().starts_with("text/plain"));
    response.text().await.unwrap()
}

/// It complains about names, units and forms; anything it says is too much.
fn promtool(text: &str) {
    let mut command = Command::new("promtool");
    command.args(["check", "metrics"]).stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
    let mut child =
        command.spawn().unwrap_or_else(|error| panic!("promtool (scripts/test installs it): {error}"));
    child.stdin.take().unwrap().write_all(text.as_bytes()).unwrap();
    let output = child.wait_with_output().unwrap();
    let said = [output.stdout, output.stderr].concat();
    assert!(output.status.success() && said.is_empty(), "{}", String::from_utf8_lossy(&said));
}

fn value(text: &str, sample: &str) -> f64 {
    let line = text.lines().find_map(|line| line.strip_prefix(sample)?.strip_prefix(' '));
    line.unwrap_or_else(|| panic!("no {sample} in\n{text}")).parse().unwrap()
}

#[tokio::test]
async fn the_fleet_in_numbers() {
    let mut scene = Scene::new();
    let token = scene.token("prometheus", "read");
    assert_eq!(answer(scene.ask("GET", "/metrics")).await.0, 401);
    let said = r#"{"type":"result","subtype":"success","is_error":false,"result":"done","total_cost_usd":0.5,"modelUsage":{"a \"big\"\\one":{"inputTokens":10,"outputTokens":5,"costUSD":0.5}}}"#;
    assert_eq!(scene.run(&["trigger", "worker", "-p", said, "--wait"]).0, 0);
    assert_eq!(scene.run(&["trigger", "worker", "by-hand", "--wait"]).0, 0);
    assert_eq!(scene.run(&["trigger", "waiter", "-p", "x"]).0, 0);
    let running = r#"cowhand_jobs{agent="waiter",status="running"} 1"#;
    let text = loop {
        let text = metrics(&scene, &token).await;
        if text.lines().any(|line| line == running) {
            break text;
        }
        tokio::time::sleep(Duration::from_millis(20)).await;
    };
    promtool(&text);
    for (sample, expected) in [
        (r#"cowhand_firings_total{agent="worker",schedule="by-hand",outcome="ran",reason=""}"#, 1.0),
        (r#"cowhand_jobs_total{agent="worker",status="completed",exit_reason="success"}"#, 2.0),
        (r#"cowhand_attempts_total{agent="worker"}"#, 2.0),
        (r#"cowhand_jobs{agent="waiter",status="pending"}"#, 0.0),
        (r#"cowhand_tokens_total{agent="worker",model="a \"big\"\\one",kind="input"}"#, 10.0),
        (r#"cowhand_cost_dollars_total{agent="worker",model="a \"big\"\\one"}"#, 0.5),
        ("cowhand_firing_lateness_seconds_count", 1.0),
        ("cowhand_job_wait_seconds_count", 3.0),
        (r#"cowhand_job_duration_seconds_bucket{agent="worker",le="+Inf"}"#, 2.0),
    ] {
        assert!((value(&text, sample) - expected).abs() < 1e-9, "{sample}");
    }
    assert!(value(&text, r#"cowhand_store_seconds_count{operation="write"}"#) > 0.0);
    assert!(value(&text, "process_resident_memory_bytes") > 1e6);

    // Counters may only grow, and what was spent is known over a restart.
    assert_eq!(scene.run(&["trigger", "worker", "by-hand", "--wait"]).0, 0);
    let later = metrics(&scene, &token).await;
    assert!((value(&later, r#"cowhand_attempts_total{agent="worker"}"#) - 3.0).abs() < 1e-9);
    scene.end_jobs();
    scene.kill();
    scene.start(&[]);
    let after = metrics(&scene, &token).await;
    promtool(&after);
    let spent = r#"cowhand_cost_dollars_total{agent="worker",model="a \"big\"\\one"}"#;
    assert!((value(&after, spent) - 0.5).abs() < 1e-9);
}

/// What dashboards and alerts are made of is not changed by accident.
#[tokio::test]
async fn the_names() {
    let scene = Scene::new();
    let token = scene.token("prometheus", "read");
    let text = metrics(&scene, &token).await;
    let names: Vec<_> = text.lines().filter_map(|line| line.strip_prefix("# ")).collect();
    insta::assert_snapshot!(names.join("\n"));
}

#[tokio::test]
async fn hooks_are_counted_by_what_became_of_them() {
    let scene = Scene::of(
        r#"
server: {listen: "127.0.0.1:0"}
agents:
  - name: worker
    runtime: command
    command: [sh, -c, cat]
    hooks:
      after_run:
        - {type: shell, command: "true"}
        - {type: shell, command: "exit 3"}
        - {type: shell, command: "true", when: metadata.nothing}
"#,
    );
    let token = scene.token("prometheus", "read");
    for _ in 0..2 {
        assert_eq!(scene.run(&["trigger", "worker", "-p", "x", "--wait"]).0, 0);
    }
    let sample = |outcome: &str| {
        format!(r#"cowhand_hooks_total{{agent="worker",kind="shell",outcome="{outcome}"}} 2"#)
    };
    let wanted = ["completed", "failed", "skipped"].map(sample);
    let text = loop {
        let text = metrics(&scene, &token).await;
        if wanted.iter().all(|sample| text.lines().any(|line| line == sample)) {
            break text;
        }
        tokio::time::sleep(Duration::from_millis(20)).await;
    };
    promtool(&text);
}
