//! The audit: every way of access records its actor.

use serde_json::Value;

use crate::{OLD, Scene, answer};

fn asked(scene: &Scene) -> Vec<(String, String)> {
    let (code, out, err) = scene.run(&["events", "--audit", "--json", "--limit", "1000"]);
    assert_eq!(code, 0, "{err}");
    let events = out.lines().map(|line| serde_json::from_str::<Value>(line).unwrap());
    let word = |value: &Value| value.as_str().unwrap_or_default().to_owned();
    events
        .map(|event| {
            let by = &event["by"];
            let name = if by["browser"] == true { "a browser".to_owned() } else { word(&by["name"]) };
            let from = word(&by["from"]);
            (format!("{} {name} {from}", word(&by["who"])).trim().to_owned(), word(&event["type"]))
        })
        .collect()
}

#[tokio::test]
async fn audit_records_actor_of_each_kind_of_access() {
    let mut scene = Scene::new();
    let me = String::from_utf8(std::process::Command::new("id").arg("-un").output().unwrap().stdout).unwrap();
    let me = format!("person {}", me.trim());
    let token = scene.token("ci", "operate");
    assert_eq!(scene.run(&["trigger", "worker", "by-hand", "--wait"]).0, 0);
    assert_eq!(scene.run(&["schedule", "disable", "worker/nightly"]).0, 0);
    let fire = scene.ask("POST", "/api/v1/schedules/worker/by-hand/fire").bearer_auth(&token);
    assert_eq!(answer(fire).await.0, 201);
    assert_eq!(answer(scene.deliver("hook", "{}").header("x-gitlab-token", OLD)).await.0, 202);
    let (_, link, _) = scene.run(&["dashboard"]);
    let link = link.trim().to_owned();
    let browser = reqwest::Client::builder().redirect(reqwest::redirect::Policy::none()).build().unwrap();
    let came_in = browser.get(&link).send().await.unwrap();
    let cookie = came_in.headers()["set-cookie"].to_str().unwrap().split(';').next().unwrap().to_owned();
    let enable = scene.ask("POST", "/api/v1/schedules/worker/nightly/enable");
    assert_eq!(answer(enable.header("cookie", cookie).header("x-cowhand", "1")).await.0, 200);
    assert_eq!(scene.run(&["reload"]).0, 0);
    assert_eq!(scene.run(&["token", "revoke", "ci"]).0, 0);

    let expected = [
        (me.as_str(), "token:created"),
        (&me, "schedule:fired"),
        (&me, "schedule:disabled"),
        ("token ci 127.0.0.1", "schedule:fired"),
        ("sender  127.0.0.1", "schedule:fired"),
        ("link  127.0.0.1", "token:created"),
        ("token a browser 127.0.0.1", "schedule:enabled"),
        (&me, "fleet:reloaded"),
        (&me, "token:revoked"),
    ];
    let found = asked(&scene);
    let mut rest = found.iter();
    for (who, what) in expected {
        assert!(rest.any(|(by, kind)| by == who && kind == what), "{who} {what} in {found:#?}");
    }
    // Later events of the job are caused by the fleet itself, so they are not in the audit.
    assert!(!found.iter().any(|(_, what)| what == "job:started" || what == "job:completed"), "{found:#?}");
    let (_, people, _) = scene.run(&["events", "--audit", "--limit", "1"]);
    assert!(people.contains("token:revoked") && people.trim_end().ends_with("ci"), "{people}");
    assert!(people.contains(me.trim_start_matches("person ")), "{people}");

    // The audit is also known after a restart, and includes the stop.
    assert_eq!(scene.run(&["stop"]).0, 0);
    scene.ended();
    scene.start(&[]);
    let after = asked(&scene);
    assert_eq!(after[..found.len()], found[..]);
    assert_eq!(after.last(), Some(&(me, "fleet:stopping".to_owned())));
}
