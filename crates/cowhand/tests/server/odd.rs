//! Unusual input: numbers that are too large, paths that are not UTF-8, missing methods.

use serde_json::{Value, json};

use crate::{Scene, answer};

const FLEET: &str = r#"
server: {listen: "127.0.0.1:0"}
agents:
  - {name: worker, runtime: command, command: [cat], default_prompt: x}
"#;

/// Output with numbers that exceed every counter.
const TOLD: &str = r#"{"type":"assistant","content":"a","model":"m","usage":{"input_tokens":18446744073709551615,"output_tokens":18446744073709551615,"cost_usd":1e300}}
{"type":"assistant","content":"b","model":"n","usage":{"input_tokens":18446744073709551615,"output_tokens":7,"cost_usd":1e300}}"#;

#[tokio::test]
async fn huge_usage_numbers_are_limited_everywhere() {
    let scene = Scene::of(FLEET);
    let token = scene.token("reader", "read");
    let (code, job, said) = scene.run(&["trigger", "worker", "-p", TOLD, "--wait", "--json"]);
    assert_eq!(code, 0, "{said}");
    let job: Value = serde_json::from_str(&job).unwrap();
    let of = |model: &str, kind: &str| job["usage"]["per_model"][model][kind].as_u64().unwrap_or_default();
    let most = 1_000_000_000_000_u64;
    assert_eq!((of("m", "input_tokens"), of("n", "input_tokens")), (most, 0), "{job:#}");
    assert_eq!((of("m", "output_tokens"), of("n", "output_tokens")), (most, 0), "{job:#}");
    assert_eq!(job["usage"]["total_cost_usd"], 1_000_000.0, "{job:#}");
    let (_, usage) = answer(scene.ask("GET", "/api/v1/usage").bearer_auth(&token)).await;
    assert_eq!(usage["total"]["input_tokens"], most, "{usage:#}");
    assert_eq!(usage["total"]["cost_usd"], 1_000_000.0, "{usage:#}");
    let metrics =
        scene.ask("GET", "/metrics").bearer_auth(&token).send().await.unwrap().text().await.unwrap();
    let tokens = r#"cowhand_tokens_total{agent="worker",model="m",kind="input"} 1000000000000"#;
    assert!(metrics.lines().any(|line| line == tokens), "{metrics}");
    for page in [format!("/jobs/{}", job["id"].as_str().unwrap()), "/usage".to_owned(), "/".to_owned()] {
        let shown = scene.ask("GET", &page).bearer_auth(&token).send().await.unwrap();
        assert_eq!(shown.status(), 200, "{page}: {}", scene.log());
    }
}

#[tokio::test]
async fn every_refusal_is_a_problem_document() {
    let scene = Scene::of(FLEET);
    let token = scene.token("boss", "admin");
    for (method, path, code) in [
        ("GET", "/api/v1/jobs/%ff%fe", 400),
        ("POST", "/api/v1/agents/%ff/trigger", 400),
        ("GET", "/api/v1/agents/a/schedules/%80", 400),
        ("GET", "/jobs/%ff", 400),
        ("GET", "/login/%ff", 400),
        ("POST", "/readyz", 405),
        ("DELETE", "/healthz", 405),
        ("POST", "/login/x", 405),
        ("PUT", "/api/v1/jobs", 405),
    ] {
        let answer = scene.ask(method, path).bearer_auth(&token).send().await.unwrap();
        let kind = answer.headers().get("content-type").map(|kind| kind.to_str().unwrap().to_owned());
        assert_eq!(answer.status().as_u16(), code, "{method} {path}");
        assert_eq!(kind.as_deref(), Some("application/problem+json"), "{method} {path}");
        let said: Value = serde_json::from_str(&answer.text().await.unwrap()).unwrap();
        assert_eq!(said["status"], code, "{method} {path}: {said}");
    }
}

#[tokio::test]
async fn refusal_names_missing_field() {
    let scene = Scene::of(FLEET);
    let tokens = [scene.token("boss", "admin"), scene.token("reader", "read")];
    let (_, job, _) = scene.run(&["trigger", "worker", "-p", "x", "--wait", "--json"]);
    let id = serde_json::from_str::<Value>(&job).unwrap()["id"].as_str().unwrap().to_owned();
    for (path, body) in [
        ("report", json!({"outcome": "done", "summary": "x"})),
        ("followups", json!({"key": "k", "prompt": "x"})),
        ("asks", json!({"key": "k", "question": "x"})),
        ("files", json!({"key": "k", "file_path": "x"})),
    ] {
        for token in &tokens {
            let asked = scene.ask("POST", &format!("/api/v1/jobs/{id}/{path}")).bearer_auth(token);
            let (code, said) = answer(asked.body(body.to_string())).await;
            assert_eq!(code, 403, "{path}: {said}");
            assert!(said.to_string().contains("only the agent of a running job"), "{path}: {said}");
        }
    }
}
