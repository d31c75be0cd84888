//! Job tokens over TCP: each is valid only for its own job, while that runs.

use std::fs;

use serde_json::{Value, json};

use crate::{Scene, answer};

const FLEET: &str = r#"
server: {listen: "127.0.0.1:0"}
agents:
  - name: one
    runtime: command
    command: [sh, -c, 'printf %s "$COWHAND_JOB_TOKEN" > one.new; mv one.new one.token; while ! [ -e done ]; do sleep 0.05; done']
    followups: {max: 5}
    schedules: {by-hand: {type: manual, prompt: Work.}}
  - name: other
    runtime: command
    command: [sh, -c, 'printf %s "$COWHAND_JOB_TOKEN" > other.new; mv other.new other.token; while ! [ -e done ]; do sleep 0.05; done']
"#;

/// Endpoints for job tokens, with the status of a request without a body.
const FOR_JOBS: [(&str, &str, u16); 6] = [
    ("get", "/api/v1/jobs/{job}", 200),
    ("get", "/api/v1/jobs/{job}/asks/{number}", 404),
    ("post", "/api/v1/jobs/{job}/asks", 400),
    ("post", "/api/v1/jobs/{job}/files", 400),
    ("post", "/api/v1/jobs/{job}/followups", 400),
    ("post", "/api/v1/jobs/{job}/report", 400),
];

fn up(scene: &Scene, agent: &str) -> (String, String) {
    let (code, job, said) = scene.run(&["trigger", agent, "--json"]);
    assert_eq!(code, 0, "{said}");
    let job: Value = serde_json::from_str(&job).unwrap();
    let file = scene.path(&format!("{agent}.token"));
    scene.until("the agent to be up", || file.exists());
    (job["id"].as_str().unwrap().to_owned(), fs::read_to_string(file).unwrap())
}

/// Fills the placeholders of a path with plausible values.
fn filled(path: &str, job: &str) -> String {
    let mut path = path.replace("{job}", job).replace("{ask}", &format!("{job}.1"));
    for (place, value) in [
        ("{number}", "1"),
        ("{agent}", "one"),
        ("{schedule}", "by-hand"),
        ("{item}", "files-x"),
        ("{name}", "all"),
        ("{provider}", "claude"),
        ("{conversation}", "c-1"),
        ("{node}", "n-1"),
    ] {
        path = path.replace(place, value);
    }
    assert!(!path.contains('{'), "{path}");
    path
}

#[tokio::test]
async fn job_token_opens_only_endpoints_of_its_job() {
    let scene = Scene::of(FLEET);
    let admin = scene.token("all", "admin");
    let ((one, token), (other, _)) = (up(&scene, "one"), up(&scene, "other"));
    let (_, description) = answer(scene.ask("GET", "/api/v1/openapi.json").bearer_auth(&admin)).await;
    let mut seen = 0;
    for (path, methods) in description["paths"].as_object().unwrap() {
        for method in methods.as_object().unwrap().keys() {
            let ask = |job: &str, method: &str| {
                scene.ask(&method.to_uppercase(), &filled(path, job)).bearer_auth(&token)
            };
            let own = FOR_JOBS.iter().find(|(known, at, _)| known == method && at == path);
            let expected = own.map_or(403, |(.., expected)| *expected);
            let (status, said) = answer(ask(&one, method)).await;
            assert_eq!(status, expected, "{method} {path} {said}");
            // The same endpoint of another job is refused.
            let (status, said) = answer(ask(&other, method)).await;
            assert_eq!(status, 403, "{method} {path} {said}");
            if own.is_none() && method == "get" {
                assert_eq!(answer(ask(&one, "head")).await.0, 403, "HEAD {path}");
            }
            seen += usize::from(own.is_some());
        }
    }
    assert_eq!(seen, FOR_JOBS.len(), "all of them are there");
    for (path, expected) in [("/metrics", 403), ("/api/v1/nothing", 403), ("/", 401), ("/jobs", 401)] {
        assert_eq!(answer(scene.ask("GET", path).bearer_auth(&token)).await.0, expected, "{path}");
    }
    let odd = format!("/api/v1/jobs/{one}/../{other}");
    assert_eq!(answer(scene.ask("GET", &odd).bearer_auth(&token)).await.0, 403);
    let odd = format!("/api/v1/jobs/{one}%2f..%2f{other}");
    assert_eq!(answer(scene.ask("GET", &odd).bearer_auth(&token)).await.0, 403);
    // Allowed requests had an effect, and refused ones had none.
    let report = json!({"attempt": 1, "outcome": "done", "summary": "Over TCP."});
    let path = format!("/api/v1/jobs/{one}/report");
    let (status, said) = answer(scene.ask("POST", &path).bearer_auth(&token).body(report.to_string())).await;
    assert_eq!((status, &said["summary"]), (200, &json!("Over TCP.")));
    for (endpoint, given, expected) in [
        ("report", json!({"outcome": "done", "summary": "x"}), "the field `attempt` is missing"),
        ("followups", json!({"key": "k", "prompt": "x"}), "the field `attempt` is missing"),
        ("asks", json!({"key": "k", "question": "x"}), "the field `attempt` is missing"),
        ("files", json!({"key": "k", "file_path": "x"}), "the field `attempt` is missing"),
        ("files", json!({"attempt": 1, "key": "k", "file_path": "x"}), "answers no chat message"),
        (
            "followups",
            json!({"attempt": 1, "key": "k", "prompt": "x", "agent": "../x"}),
            r#"\"../x\" is not a valid name"#,
        ),
    ] {
        let path = format!("/api/v1/jobs/{one}/{endpoint}");
        let (code, said) = answer(scene.ask("POST", &path).bearer_auth(&token).body(given.to_string())).await;
        assert_eq!(code, 400, "{endpoint}: {said}");
        assert!(said.to_string().contains(expected), "{endpoint}: {said}");
    }
    let (_, jobs) = answer(scene.ask("GET", "/api/v1/jobs").bearer_auth(&admin)).await;
    let standing: Vec<_> =
        jobs["items"].as_array().unwrap().iter().map(|job| job["status"].as_str().unwrap()).collect();
    assert_eq!(standing, ["running", "running"], "{jobs}");
    let (_, audit) = answer(scene.ask("GET", "/api/v1/events?limit=1000").bearer_auth(&admin)).await;
    let by_job = |event: &&Value| event["by"]["who"] == "job" && event["type"] != "access:refused";
    let done: Vec<_> = audit["items"].as_array().unwrap().iter().filter(by_job).collect();
    assert_eq!(done.len(), 1, "{done:?}");
    assert_eq!((&done[0]["type"], &done[0]["by"]["job"]), (&json!("job:reported"), &json!(one)));
    // Each endpoint is recorded once, as on the owner's socket.
    let reload =
        |event: &&Value| event["type"] == "access:refused" && event.to_string().contains("/api/v1/reload");
    let refused: Vec<_> = audit["items"].as_array().unwrap().iter().filter(reload).collect();
    assert_eq!(refused.len(), 1, "{audit}");
    assert_eq!(refused[0]["by"], json!({"who": "job", "job": one}));

    for forged in [
        format!("{token}x"),
        token.replace(&one, &other),
        token.replace(".1.", ".2."),
        token[..token.len() - 1].to_owned(),
    ] {
        let (status, said) =
            answer(scene.ask("GET", &format!("/api/v1/jobs/{one}")).bearer_auth(&forged)).await;
        assert_eq!(status, 401, "{forged} {said}");
    }
    scene.end_jobs();
    scene.until("the job to end", || {
        let (_, job, _) = scene.run(&["job", &one, "--json"]);
        serde_json::from_str::<Value>(&job).unwrap()["finished_at"].is_string()
    });
    let (status, said) = answer(scene.ask("GET", &format!("/api/v1/jobs/{one}")).bearer_auth(&token)).await;
    assert_eq!(status, 401, "its attempt has ended: {said}");
}

#[tokio::test]
async fn unknown_parameters_and_invalid_bodies_are_refused() {
    let scene = Scene::of(FLEET);
    let admin = scene.token("all", "admin");
    let (_, description) = answer(scene.ask("GET", "/api/v1/openapi.json").bearer_auth(&admin)).await;
    let job = "job-2026-01-05-a1b2c3";
    for (path, methods) in description["paths"].as_object().unwrap() {
        for method in methods.as_object().unwrap().keys() {
            let ask = |behind: &str| {
                let path = format!("{}{behind}", filled(path, job));
                scene.ask(&method.to_uppercase(), &path).bearer_auth(&admin)
            };
            let (status, said) = answer(ask("?no_such=1")).await;
            assert_eq!(status, 400, "{method} {path} {said}");
            if method != "get" {
                for body in [b"{".as_slice(), b"\xff\xfe", b"[]", br#"{"no_such":1}"#] {
                    let (status, said) = answer(ask("").body(body)).await;
                    let is_only_for_jobs = ["asks", "files", "followups", "report"]
                        .iter()
                        .any(|last| path.starts_with("/api/v1/jobs/") && path.ends_with(last));
                    let expected = if is_only_for_jobs { 403 } else { 400 };
                    assert_eq!(status, expected, "{method} {path} {said}");
                }
            }
        }
    }
    let enable = scene.ask("POST", "/api/v1/schedules/one/by-hand/enable").bearer_auth(&admin).body("{}");
    assert_eq!(answer(enable).await.0, 200, "an empty object asks for nothing");
}
