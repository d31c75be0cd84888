//! `/metrics`, checked with Prometheus' own tool.

use std::io::Write;
use std::process::{Command, Stdio};
use std::time::Duration;

use serde_json::Value;

use crate::{Scene, answer};

async fn metrics(scene: &Scene, token: &str) -> String {
    let response = scene.ask("GET", "/metrics").bearer_auth(token).send().await.unwrap();
    assert_eq!(response.status(), 200);
    assert!(response.headers()["content-type"].to_str().unwrap().starts_with("text/plain"));
    response.text().await.unwrap()
}

/// Checks names, units and forms; any output of the tool is a failure.
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
async fn metrics_count_jobs_firings_tokens_and_cost() {
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

    // Counters only grow, and spending is known after a restart.
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

/// Names that dashboards and alerts use do not change by accident.
#[tokio::test]
async fn metric_names_do_not_change() {
    let scene = Scene::new();
    let token = scene.token("prometheus", "read");
    let text = metrics(&scene, &token).await;
    for line in ["cowhand_nodes{state=\"ready\"} 1", "cowhand_nodes{state=\"gone\"} 0"] {
        assert!(text.contains(line), "{line}\n{text}");
    }
    let names: Vec<_> = text.lines().filter_map(|line| line.strip_prefix("# ")).collect();
    insta::assert_snapshot!(names.join("\n"));
}

#[tokio::test]
async fn hooks_are_counted_by_outcome() {
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

/// Metrics of budgets, providers, asks and breakers.
#[tokio::test]
async fn metrics_show_budgets_providers_asks_and_pauses() {
    // Use a zone in which it is about noon, so that no day ends during the test.
    let hours = 12 - jiff::Timestamp::now().to_zoned(jiff::tz::TimeZone::UTC).hour();
    let zone = format!("Etc/GMT{}{}", if hours > 0 { '-' } else { '+' }, hours.abs());
    let scene = Scene::of(
        &r#"
server: {listen: "127.0.0.1:0"}
budget: {per_job_usd: 1, per_month_usd: 100, timezone: ZONE}
providers: {account: {max_concurrent: 3}}
agents:
  - name: spender
    runtime: command
    command: [sh, -c, 'printf "{\"type\":\"system\",\"subtype\":\"usage\",\"model\":\"m\",\"usage\":{\"input_tokens\":1000,\"cost_usd\":0.25}}\n"; while [ -e hold ] && [ ! -e go ]; do sleep 0.05; done']
    budget: {per_day_usd: 20, per_job_tokens: 5000, per_day_tokens: 50000}
  - name: limited
    provider: account
    runtime: command
    command: [sh, -c, 'printf "{\"type\":\"result\",\"is_error\":true,\"result\":\"You have hit your usage limit. Try again in 1 day.\"}\n"']
  - name: asker
    provider: other-account
    fleet_tools: true
    runtime: command
    command: [sh, -c, 'printf %s "$COWHAND_JOB_TOKEN" > token.new; mv token.new token; while [ ! -e go ]; do sleep 0.05; done']
  - name: broken
    runtime: command
    command: [sh, -c, "exit 1"]
    breaker: {failures: 1, pause: 1h}
    schedules: {often: {type: interval, interval: 1s}}
"#
        .replace("ZONE", &zone),
    );
    let token = scene.token("prometheus", "read");
    assert_eq!(scene.run(&["trigger", "spender", "--wait"]).0, 0);
    std::fs::write(scene.path("hold"), "").unwrap();
    assert_eq!(scene.run(&["trigger", "spender"]).0, 0);
    assert_eq!(scene.run(&["trigger", "limited"]).0, 0);
    let (_, asker, _) = scene.run(&["trigger", "asker", "--json"]);
    let asker: Value = serde_json::from_str(&asker).unwrap();
    scene.until("the asker to have its token", || scene.path("token").exists());
    ask(&scene, asker["id"].as_str().unwrap());
    let wanted = [
        (r#"cowhand_budget_limit{agent="",window="month",unit="usd"}"#, 100.0),
        (r#"cowhand_budget_spent{agent="",window="month",unit="usd"}"#, 0.5),
        (r#"cowhand_budget_reserved{agent="",window="month",unit="usd"}"#, 1.75),
        (r#"cowhand_budget_limit{agent="spender",window="day",unit="tokens"}"#, 50000.0),
        (r#"cowhand_budget_spent{agent="spender",window="day",unit="tokens"}"#, 2000.0),
        (r#"cowhand_budget_spent{agent="spender",window="day",unit="usd"}"#, 0.5),
        (r#"cowhand_budget_reserved{agent="spender",window="day",unit="usd"}"#, 0.75),
        (r#"cowhand_provider_places{provider="account"}"#, 3.0),
        (r#"cowhand_provider_jobs{provider="account"}"#, 0.0),
        (r#"cowhand_provider_jobs{provider="other-account"}"#, 1.0),
        (r#"cowhand_provider_parked_until_timestamp_seconds{provider="other-account"}"#, 0.0),
        (r#"cowhand_job_parks_total{agent="limited",provider="account"}"#, 1.0),
        (r#"cowhand_asks{agent="asker"}"#, 1.0),
        (r#"cowhand_asks{agent="broken"}"#, 0.0),
        (r#"cowhand_schedule_pauses_total{agent="broken",schedule="often"}"#, 1.0),
        (r#"cowhand_schedule_status{agent="broken",schedule="often",status="paused"}"#, 1.0),
    ]
    .map(|(sample, value)| format!("{sample} {value}"));
    let text = all_there(&scene, &token, &wanted).await;
    promtool(&text);
    let parked = value(&text, r#"cowhand_provider_parked_until_timestamp_seconds{provider="account"}"#);
    #[expect(clippy::cast_precision_loss, reason = "seconds")]
    let in_a_day = parked - jiff::Timestamp::now().as_second() as f64;
    assert!((85_000.0..=86_400.0).contains(&in_a_day), "{in_a_day}");
    // A person answers.
    let (_, asks, _) = scene.run(&["asks", "--json"]);
    let asks: Value = serde_json::from_str(&asks).unwrap();
    assert_eq!(scene.run(&["deny", asks[0]["id"].as_str().unwrap()]).0, 0);
    let wanted =
        [r#"cowhand_asks{agent="asker"} 0"#, r#"cowhand_asks_total{agent="asker",outcome="denied"} 1"#];
    promtool(&all_there(&scene, &token, &wanted.map(str::to_owned)).await);
    std::fs::write(scene.path("go"), "").unwrap();
}

/// Waits until the metrics have all these lines, and returns them.
async fn all_there(scene: &Scene, token: &str, wanted: &[String]) -> String {
    let patience = std::time::Instant::now() + Duration::from_mins(1);
    loop {
        let text = metrics(scene, token).await;
        let missing: Vec<_> =
            wanted.iter().filter(|sample| !text.lines().any(|line| line == **sample)).collect();
        if missing.is_empty() {
            return text;
        }
        assert!(std::time::Instant::now() < patience, "{missing:#?} in\n{text}");
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
}

/// Creates an ask with the token of its own job, as an agent does.
fn ask(scene: &Scene, job: &str) {
    let token = std::fs::read_to_string(scene.path("token")).unwrap();
    let given = r#"{"attempt":1,"key":"k","tool":"Bash","input":{"command":"ls"}}"#;
    let mut socket = std::os::unix::net::UnixStream::connect(scene.path(".cowhand/sock")).unwrap();
    let head = format!(
        "authorization: Bearer {token}\r\nhost: x\r\nconnection: close\r\ncontent-length: {}",
        given.len()
    );
    write!(socket, "POST /api/v1/jobs/{job}/asks HTTP/1.1\r\n{head}\r\n\r\n{given}").unwrap();
    let mut answer = String::new();
    std::io::Read::read_to_string(&mut socket, &mut answer).unwrap();
    assert!(answer.starts_with("HTTP/1.1 2"), "{answer}");
}
