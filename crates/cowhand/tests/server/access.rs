//! Tokens, scopes and access to endpoints.

use cowhand::store::{NewToken, Store};
use cowhand_core::server::Scope;
use jiff::{SignedDuration, Timestamp};
use ring::digest::{SHA256, digest};
use serde_json::json;

use crate::{Scene, answer, hex};

#[tokio::test]
async fn only_valid_tokens_are_accepted() {
    let scene = Scene::new();
    let good = scene.token("good", "read");
    let revoked = scene.token("gone", "admin");
    assert_eq!(scene.run(&["token", "revoke", "gone"]).0, 0);
    let expired = "cow_expired";
    let store = Store::open(scene.path(".cowhand/store.db").to_str().unwrap()).await.unwrap();
    let hash = hex(digest(&SHA256, expired.as_bytes()).as_ref());
    let now = Timestamp::now();
    let end = Some(now - SignedDuration::from_secs(1));
    let new = NewToken { name: "old".parse().unwrap(), scope: Scope::Admin, hash, expires_at: end };
    store.add_token(new, now - SignedDuration::from_hours(1)).await.unwrap().unwrap();

    for (authorization, expected) in [
        (None, 401),
        (Some(String::new()), 401),
        (Some("Bearer".to_owned()), 401),
        (Some("Bearer cow_wrong".to_owned()), 401),
        (Some(format!("Bearer {}", &good[..good.len() - 1])), 401),
        (Some(format!("Basic {good}")), 401),
        (Some(good.clone()), 401),
        (Some(format!("Bearer {revoked}")), 401),
        (Some(format!("Bearer {expired}")), 401),
        (Some(format!("Bearer {good}")), 200),
        (Some(format!("bearer {good}")), 200),
    ] {
        let mut request = scene.ask("GET", "/api/v1/status");
        if let Some(value) = &authorization {
            request = request.header("authorization", value);
        }
        let (status, body) = answer(request).await;
        assert_eq!(status, expected, "{authorization:?} {body}");
        if status == 401 {
            assert_eq!(body["code"], "unauthorized");
        }
    }
    // Callers without a token do not learn whether an endpoint exists.
    assert_eq!(answer(scene.ask("GET", "/api/v1/nothing")).await.0, 401);
    assert_eq!(answer(scene.ask("GET", "/api/v1/nothing").bearer_auth(&good)).await.0, 404);
    assert_eq!(answer(scene.ask("GET", "/")).await.0, 401);

    let (_, tokens, _) = scene.run(&["token", "list", "--json"]);
    let tokens: Vec<serde_json::Value> = serde_json::from_str(&tokens).unwrap();
    let used: Vec<_> = tokens
        .iter()
        .map(|token| (token["name"].as_str().unwrap(), token["last_used_at"].is_string()))
        .collect();
    assert_eq!(used, [("old", false), ("good", true), ("gone", false)]);
}

#[tokio::test]
async fn each_endpoint_requires_its_scope() {
    let scene = Scene::new();
    let tokens = ["read", "operate", "admin"].map(|scope| scene.token(&format!("for-{scope}"), scope));
    // An allowed request may still find nothing, but is not refused for its scope.
    for (method, path, least) in [
        ("GET", "status", 0),
        ("GET", "jobs", 0),
        ("GET", "schedules/worker/by-hand", 0),
        ("POST", "agents/worker/trigger", 1),
        ("POST", "agents/worker/clear", 1),
        ("POST", "schedules/worker/by-hand/disable", 1),
        ("POST", "schedules/worker/by-hand/enable", 1),
        ("POST", "schedules/worker/by-hand/fire", 1),
        ("POST", "firings/cancel", 1),
        ("POST", "jobs/job-2026-01-01-abc123/cancel", 1),
        ("POST", "jobs/job-2026-01-01-abc123/retry", 1),
        ("POST", "jobs/job-2026-01-01-abc123/fork", 1),
        ("POST", "work/files:1/claim", 1),
        ("POST", "work/files:1/release", 1),
        ("POST", "work/files:1/complete", 1),
        ("POST", "reload", 1),
        ("DELETE", "jobs/job-2026-01-01-abc123", 2),
        ("GET", "tokens", 2),
        ("POST", "tokens", 2),
        ("POST", "tokens/nobody/revoke", 2),
        ("POST", "prune", 2),
        ("POST", "login", 2),
        ("POST", "stop", 2),
    ] {
        for (rank, token) in tokens.iter().enumerate() {
            let (status, body) =
                answer(scene.ask(method, &format!("/api/v1/{path}")).bearer_auth(token)).await;
            assert_eq!(status == 403, rank < least, "{method} {path} as {rank}: {status} {body}");
            assert_ne!(status, 401, "{method} {path} as {rank}");
        }
    }
}

#[tokio::test]
async fn unknown_hosts_and_origins_are_refused() {
    let scene = Scene::new();
    let token = scene.token("t", "read");
    let port = scene.url.rsplit_once(':').unwrap().1;
    for (host, origin, expected) in [
        (format!("localhost:{port}"), None, 200),
        ("fleet.example.org".to_owned(), None, 200),
        ("fleet.example.org".to_owned(), Some("https://fleet.example.org"), 200),
        ("fleet.example.org".to_owned(), Some("https://evil.example.org"), 403),
        ("localhost".to_owned(), Some("null"), 403),
        ("evil.example.org".to_owned(), None, 421),
        (format!("localhost.evil.org:{port}"), None, 421),
    ] {
        for (method, path) in [("GET", "/api/v1/status"), ("OPTIONS", "/api/v1/status")] {
            let mut request = scene.ask(method, path).bearer_auth(&token).header("host", &host);
            if let Some(origin) = origin {
                request = request.header("origin", origin);
            }
            let response = request.send().await.unwrap();
            assert!(response.headers().keys().all(|name| !name.as_str().starts_with("access-control")));
            if method == "GET" {
                assert_eq!(response.status().as_u16(), expected, "{host} {origin:?}");
            } else {
                assert_ne!(response.status().as_u16(), 200, "no preflight is answered");
            }
        }
        let hook = scene.deliver("unsigned", "x").header("host", &host);
        let hook = if let Some(origin) = origin { hook.header("origin", origin) } else { hook };
        assert_eq!(answer(hook).await.0 < 300, expected == 200, "a webhook by {host} {origin:?}");
    }
    assert_eq!(scene.raw(b"GET /api/v1/status HTTP/1.1\r\n\r\n"), 421);
}

#[tokio::test]
async fn only_wrong_tokens_are_rate_limited() {
    let scene = Scene::new();
    let good = scene.token("good", "read");
    let mut last = None;
    for _ in 0..40 {
        let response = scene.ask("GET", "/api/v1/status").bearer_auth("cow_wrong").send().await.unwrap();
        last = Some((response.status().as_u16(), response.headers().contains_key("retry-after")));
    }
    assert_eq!(last, Some((429, true)));
    assert_eq!(answer(scene.ask("GET", "/api/v1/status").bearer_auth(&good)).await.0, 200);
}

#[tokio::test]
async fn large_and_invalid_bodies_are_refused() {
    let scene = Scene::new();
    let token = scene.token("t", "operate");
    let trigger =
        |body: Vec<u8>| scene.ask("POST", "/api/v1/agents/worker/trigger").bearer_auth(&token).body(body);
    let (status, body) = answer(trigger(b"{".to_vec())).await;
    assert_eq!((status, &body["code"]), (400, &json!("bad_request")));
    let head = format!(
        "POST /api/v1/agents/worker/trigger HTTP/1.1\r\nhost: localhost\r\nauthorization: Bearer {token}\r\n\
         content-length: 1000000000\r\n\r\n"
    );
    assert_eq!(scene.raw(head.as_bytes()), 413);
}

#[tokio::test]
async fn tokens_are_created_shown_once_and_revoked() {
    let scene = Scene::new();
    let made = scene.token("ci", "operate");
    assert!(made.starts_with("cow_") && made.len() == 47, "{made}");
    assert_ne!(scene.token("cd", "operate"), made);
    for (arguments, code, message) in [
        (&["token", "create", "ci", "--scope", "read"][..], 5, "there is a token ci already"),
        (&["token", "create", "x", "--scope", "root"], 2, "expected one of read, operate, admin"),
        (&["token", "create", "x"], 2, "--scope"),
        (&["token", "create", "a/b", "--scope", "read"], 2, "not a valid name"),
        (&["token", "create", "x", "--scope", "read", "--expires", "soon"], 2, "soon"),
        (&["token", "revoke", "nobody"], 5, "there is no token nobody in use"),
    ] {
        let (exit, _, said) = scene.run(arguments);
        assert!(exit == code && said.contains(message), "{arguments:?}: {exit} {said}");
    }
    let (_, listed, _) = scene.run(&["token", "list"]);
    let (_, json, _) = scene.run(&["token", "list", "--json"]);
    let database = std::fs::read(scene.path(".cowhand/store.db")).unwrap();
    let log = std::fs::read(scene.path(".cowhand/store.db-wal")).unwrap_or_default();
    for place in [listed.as_bytes(), json.as_bytes(), scene.log().as_bytes(), &database, &log] {
        assert!(!place.windows(made.len()).any(|part| part == made.as_bytes()));
    }
    assert!(listed.contains("operate") && listed.contains("never"), "{listed}");
    // A name is free again after its token is revoked, and the old token stays invalid.
    assert_eq!(scene.run(&["token", "revoke", "ci"]).0, 0);
    let again = scene.token("ci", "read");
    let status = async |token: &str| answer(scene.ask("GET", "/api/v1/status").bearer_auth(token)).await.0;
    assert_eq!((status(&made).await, status(&again).await), (401, 200));
    // The API can create tokens too, and requires the scope `admin`.
    let admin = scene.token("admin", "admin");
    let asked =
        scene.ask("POST", "/api/v1/tokens").bearer_auth(&admin).body(r#"{"name":"x","expires_in":"30d"}"#);
    let (code, body) = answer(asked).await;
    assert_eq!((code, &body["scope"], body["expires_at"].is_string()), (200, &json!("read"), true), "{body}");
}
