//! Endpoints that the command line does not use.

use serde_json::{Value, json};

use crate::{Scene, answer};

async fn get(scene: &Scene, token: &str, path: &str) -> (u16, Value) {
    answer(scene.ask("GET", path).bearer_auth(token)).await
}

#[tokio::test]
async fn health_endpoints_need_no_token() {
    let scene = Scene::new();
    for path in ["/healthz", "/readyz"] {
        assert_eq!(answer(scene.ask("GET", path)).await, (200, json!("ok\n")), "{path}");
    }
    let token = scene.token("reader", "read");
    let (status, health) = get(&scene, &token, "/api/v1/health").await;
    assert_eq!((status, &health["store"], &health["takes_work"]), (200, &json!(true), &json!(true)));
    // A running job delays the end of the daemon.
    assert_eq!(scene.run(&["trigger", "waiter", "-p", "x"]).0, 0);
    scene.until("the job to run", || scene.jobs()[0]["status"] == "running");
    assert_eq!(
        answer(scene.ask("POST", "/api/v1/stop").bearer_auth(scene.token("boss", "admin"))).await.0,
        200
    );
    assert_eq!(answer(scene.ask("GET", "/readyz")).await, (503, json!("stopping\n")));
    assert_eq!(answer(scene.ask("GET", "/healthz")).await.0, 200);
    scene.end_jobs();
}

#[tokio::test]
async fn timeline_shows_past_and_planned_firings() {
    let scene = Scene::new();
    let token = scene.token("reader", "read");
    assert_eq!(scene.run(&["trigger", "worker", "by-hand", "--wait"]).0, 0);
    let (status, timeline) = get(&scene, &token, "/api/v1/timeline").await;
    assert_eq!(status, 200, "{timeline}");
    let lane = |name: &str| {
        let lanes = timeline["schedules"].as_array().unwrap();
        lanes.iter().find(|lane| lane["schedule"] == name).unwrap()
    };
    let fired = &lane("by-hand")["firings"][0];
    assert_eq!((&fired["outcome"], &fired["job_status"]), (&json!("ran"), &json!("completed")));
    assert!(fired["started_at"].is_string() && fired["finished_at"].is_string());
    let planned = lane("nightly")["planned"].as_array().unwrap();
    assert_eq!(planned.len(), 1, "one night in the next 24 hours: {planned:?}");
    assert_eq!(lane("off")["planned"], json!([]));

    let (_, next) = get(&scene, &token, "/api/v1/schedules/worker/nightly/next?count=3").await;
    assert_eq!(next["items"].as_array().unwrap().len(), 3);
    assert_eq!(next["items"][0], planned[0]);
    assert_eq!(get(&scene, &token, "/api/v1/schedules/worker/by-hand/next").await.1["items"], json!([]));
    for (path, expected) in [
        ("/api/v1/timeline?from=2026-01-02T00:00:00Z&to=2026-01-01T00:00:00Z", 400),
        ("/api/v1/timeline?from=2026-01-01T00:00:00Z&to=2027-01-01T00:00:00Z", 400),
        ("/api/v1/timeline?agent=worker", 200),
        ("/api/v1/timeline?agnet=worker", 400),
        ("/api/v1/schedules/worker/nothing/next", 404),
        ("/api/v1/schedules/worker/nightly/next?count=0", 400),
    ] {
        assert_eq!(get(&scene, &token, path).await.0, expected, "{path}");
    }
}

#[tokio::test]
async fn usage_sums_reported_costs_and_tokens() {
    let scene = Scene::new();
    let token = scene.token("reader", "read");
    let said = r#"{"type":"result","subtype":"success","is_error":false,"result":"done","num_turns":2,"total_cost_usd":0.5,"modelUsage":{"big":{"inputTokens":10,"outputTokens":5,"costUSD":0.4},"small":{"inputTokens":1,"outputTokens":1,"costUSD":0.1}}}"#;
    for _ in 0..2 {
        assert_eq!(scene.run(&["trigger", "worker", "-p", said, "--wait"]).0, 0);
    }
    let (status, usage) = get(&scene, &token, "/api/v1/usage").await;
    assert_eq!(status, 200, "{usage}");
    assert_eq!((&usage["total"]["attempts"], &usage["total"]["cost_usd"]), (&json!(2), &json!(1.0)));
    assert_eq!(usage["days"].as_array().unwrap().len(), 30);
    assert_eq!(usage["agents"][0]["agent"], "worker");
    let models: Vec<_> = usage["models"]
        .as_array()
        .unwrap()
        .iter()
        .map(|model| (&model["model"], &model["cost_usd"]))
        .collect();
    assert_eq!(models, [(&json!("big"), &json!(0.8)), (&json!("small"), &json!(0.2))]);
    let (_, none) = get(&scene, &token, "/api/v1/usage?agent=waiter").await;
    assert_eq!(none["total"]["attempts"], 0);
    assert_eq!(get(&scene, &token, "/api/v1/usage?since=2020-01-01").await.0, 400);
    assert_eq!(get(&scene, &token, "/api/v1/usage?since=yesterday").await.0, 400);
}

#[tokio::test]
async fn nodes_config_and_job_search_are_served() {
    let scene = Scene::new();
    let token = scene.token("reader", "read");
    let (_, nodes) = get(&scene, &token, "/api/v1/nodes").await;
    assert_eq!((nodes["items"].as_array().unwrap().len(), &nodes["items"][0]["is_this"]), (1, &json!(true)));
    assert_eq!(scene.run(&["trigger", "waiter", "-p", "Mend 100% of it"]).0, 0);
    let (_, nodes) = get(&scene, &token, "/api/v1/nodes").await;
    assert_eq!(nodes["items"].as_array().unwrap().len(), 1, "{nodes}");

    let (status, config) = get(&scene, &token, "/api/v1/config").await;
    assert_eq!((status, &config["agents"][0]["name"]), (200, &json!("worker")));

    for (query, expected) in
        [("search=mend", 1), ("search=100%25", 1), ("search=1_0", 0), ("search=nothing", 0)]
    {
        let (status, jobs) = get(&scene, &token, &format!("/api/v1/jobs?{query}")).await;
        assert_eq!((status, jobs["items"].as_array().unwrap().len()), (200, expected), "{query} {jobs}");
    }
    scene.end_jobs();
}
