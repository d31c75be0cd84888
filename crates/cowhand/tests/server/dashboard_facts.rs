//! Facts on pages: counts, next firings, actors, definitions of schedules, and links that work.

use serde_json::{Value, json};

use crate::{Scene, answer};

const FLEET: &str = r#"
server: {listen: "127.0.0.1:0"}
agents:
  - name: busy
    runtime: command
    command: [sh, -c, "while ! [ -e done ]; do sleep 0.1; done"]
    default_prompt: Work.
  - name: fails
    runtime: command
    command: [sh, -c, "exit 3"]
    schedules: {by-hand: {type: manual, prompt: Work.}}
  - name: worker
    runtime: command
    command: [sh, -c, cat]
    default_prompt: The prompt of the agent.
    schedules:
      nightly: {type: cron, cron: "30 2 * * *", timezone: Europe/Berlin, prompt: "Look over the <day>.", active_hours: {start: "01:00", end: "05:00"}}
      hook: {type: webhook, secret: "canary-own-secret-of-a-webhook", prompt: "x"}
      plain: {type: interval, interval: 7h}
"#;

async fn page(scene: &Scene, token: &str, path: &str) -> (u16, String, String) {
    let answer = scene.ask("GET", path).bearer_auth(token).send().await.unwrap();
    let kind = answer.headers()["content-type"].to_str().unwrap().to_owned();
    (answer.status().as_u16(), kind, answer.text().await.unwrap())
}

#[tokio::test]
async fn all_waiting_jobs_are_counted() {
    let scene = Scene::of(FLEET);
    let token = scene.token("boss", "admin");
    for number in 0..61 {
        let body = json!({ "prompt": format!("job {number}") });
        let asked =
            scene.ask("POST", "/api/v1/agents/busy/trigger").bearer_auth(&token).body(body.to_string());
        assert_eq!(answer(asked).await.0, 201);
    }
    scene.until("one to run", || {
        let status: Value = serde_json::from_str(&scene.run(&["status", "--json"]).1).unwrap();
        status["running"] == 1
    });
    let (_, status) = answer(scene.ask("GET", "/api/v1/status").bearer_auth(&token)).await;
    assert_eq!((&status["queued"], &status["agents"][0]["queued"]), (&json!(60), &json!(60)));
    let (_, _, text) = page(&scene, &token, "/").await;
    for expected in ["<span>1 running</span>", "<span>60 waiting</span>", "10 of 60", "All 60"] {
        assert!(text.contains(expected), "{expected} in {text}");
    }
    std::fs::write(scene.path("done"), "").unwrap();
}

#[tokio::test]
async fn wrong_addresses_get_an_error_page() {
    let scene = Scene::of(FLEET);
    let token = scene.token("reader", "read");
    let cases = [
        ("/nope", 404),
        ("/nope/and/more", 404),
        ("/agents/nobody", 404),
        ("/jobs?status=bogus", 400),
        ("/jobs?colour=red", 400),
        ("/usage?colour=red", 400),
        ("/usage?since=yesterday", 400),
        ("/events?before=x", 400),
        ("/events?colour=red", 400),
        ("/jobs/job-2026-01-05-abc123?view=bogus", 400),
    ];
    for (path, expected) in cases {
        let (code, kind, text) = page(&scene, &token, path).await;
        assert!(code == expected && kind.starts_with("text/html"), "{path}: {code} {kind} {text}");
        assert!(text.contains("Back to the fleet"), "{path}: {text}");
    }
    let (code, kind, _) = page(&scene, &token, "/api/v1/nope").await;
    assert_eq!(
        (code, kind.starts_with("application/")),
        (404, true),
        "the API answers in its own shape: {kind}"
    );
    let stranger = scene.ask("GET", "/nope").send().await.unwrap();
    assert_eq!(stranger.status().as_u16(), 401, "strangers are not told what there is");
    assert!(stranger.headers()["content-type"].to_str().unwrap().starts_with("text/html"));
}

#[tokio::test]
async fn cancelled_job_shows_who_cancelled_it() {
    let scene = Scene::of(FLEET);
    let token = scene.token("boss", "admin");
    let mut jobs = Vec::new();
    for _ in 0..2 {
        let asked = scene.ask("POST", "/api/v1/agents/busy/trigger").bearer_auth(&token).body("{}");
        jobs.push(answer(asked).await.1["id"].as_str().unwrap().to_owned());
    }
    scene.until("one to run", || {
        let job: Value = serde_json::from_str(&scene.run(&["job", &jobs[0], "--json"]).1).unwrap();
        job["status"] == "running"
    });
    // A waiting job is cancelled with a token, and a running one by the owner of the fleet.
    let asked = scene.ask("POST", &format!("/api/v1/jobs/{}/cancel", jobs[1])).bearer_auth(&token);
    assert_eq!(answer(asked).await.0, 200);
    let (code, _, said) = scene.run(&["cancel", &jobs[0]]);
    assert_eq!(code, 0, "{said}");
    let cancelled =
        |id: &str| -> Value { serde_json::from_str(&scene.run(&["job", id, "--json"]).1).unwrap() };
    scene.until("the running one to end", || cancelled(&jobs[0])["status"] == "cancelled");
    assert_eq!(cancelled(&jobs[1])["cancelled_by"]["name"], "boss");
    assert_eq!(cancelled(&jobs[0])["cancelled_by"]["who"], "person");
    let (_, _, text) = page(&scene, &token, &format!("/jobs/{}", jobs[1])).await;
    assert!(text.contains("<dt>Cancelled by</dt><dd class=\"any\">token boss from 127.0.0.1</dd>"), "{text}");
    let (_, said, _) = scene.run(&["job", &jobs[1]]);
    assert!(said.contains("cancelled by") && said.contains("token boss from 127.0.0.1"), "{said}");
}

#[tokio::test]
async fn a_schedule_shows_its_definition() {
    let scene = Scene::of(FLEET);
    let token = scene.token("reader", "read");
    let (_, _, nightly) = page(&scene, &token, "/schedules/worker/nightly").await;
    for expected in ["30 2 * * *", "Europe/Berlin", "Look over the &lt;day&gt;.", "05:00"] {
        assert!(nightly.contains(expected), "{expected} in {nightly}");
    }
    let (_, _, hook) = page(&scene, &token, "/schedules/worker/hook").await;
    assert!(hook.contains(&format!("{}/hooks/worker/hook", scene.url)), "{hook}");
    assert!(!hook.contains("canary"), "no secret: {hook}");
    let (_, _, plain) = page(&scene, &token, "/schedules/worker/plain").await;
    assert!(plain.contains("<code class=\"any\">7h</code>"), "{plain}");
    assert!(plain.contains("The prompt of the agent."), "{plain}");
}

#[tokio::test]
async fn the_ledger_shows_how_jobs_ended() {
    let scene = Scene::of(FLEET);
    let token = scene.token("reader", "read");
    for _ in 0..2 {
        assert_eq!(scene.run(&["trigger", "fails", "by-hand", "--wait"]).0, 1);
    }
    let (_, _, text) = page(&scene, &token, "/schedules/fails/by-hand").await;
    let ledger = text.split("id=\"ledger\"").nth(1).unwrap();
    assert_eq!(ledger.matches("class=\"status s-failed\"").count(), 2, "{ledger}");
    assert!(!ledger.contains("s-ran"), "nothing that failed looks as if it had gone well: {ledger}");
}

/// The page of a removed agent shows its remaining jobs, and all links to it work.
#[tokio::test]
async fn removed_agent_has_a_page() {
    let scene = Scene::of(FLEET);
    let token = scene.token("reader", "read");
    assert_eq!(scene.run(&["trigger", "busy"]).0, 0);
    assert_eq!(scene.run(&["trigger", "fails", "by-hand", "--wait"]).0, 1);
    scene.until("it to run", || scene.run(&["jobs", "--agent", "busy"]).1.contains("running"));
    let rest =
        "server: {listen: \"127.0.0.1:0\"}\nagents: [{name: other, runtime: command, command: ['true']}]\n";
    std::fs::write(scene.path("cowhand.yaml"), rest).unwrap();
    assert_eq!(scene.run(&["reload"]).0, 0);
    for (path, advice) in [
        ("/agents/busy", "cowhand cancel --agent busy"),
        ("/agents/fails", "cowhand jobs --agent fails"),
        ("/schedules/fails/by-hand", "cowhand jobs --agent fails"),
    ] {
        let (code, _, text) = page(&scene, &token, path).await;
        assert_eq!(code, 200, "{path}: {text}");
        for words in ["not in the config any more", advice, "href=\"/jobs/job-"] {
            assert!(text.contains(words), "{path}: {words} in {text}");
        }
        assert!(!text.contains("/trigger"), "{path}: nobody can run it: {text}");
    }
    let (_, _, text) = page(&scene, &token, "/").await;
    assert!(text.contains("href=\"/agents/busy\""), "{text}");
    let (_, _, text) = page(&scene, &token, "/jobs?agent=fails").await;
    for option in ["value=\"other\">other", "value=\"busy\">busy", "value=\"fails\" selected>fails"] {
        assert!(text.contains(&format!("<option {option}</option>")), "{option} in {text}");
    }
    for path in ["/agents/nobody", "/schedules/nobody/by-hand", "/schedules/fails/never"] {
        assert_eq!(page(&scene, &token, path).await.0, 404, "{path}");
    }
    let (_, _, metrics) = page(&scene, &token, "/metrics").await;
    let running = "cowhand_jobs{agent=\"busy\",status=\"running\"} 1";
    assert!(metrics.lines().any(|line| line == running), "{metrics}");
    std::fs::write(scene.path("done"), "").unwrap();
}

/// A firing was accepted and cannot be prepared. Then its schedule is removed from the config, and later its agent.
#[tokio::test]
async fn firing_of_removed_schedule_stays_on_pages() {
    const HEAD: &str = "server: {listen: \"127.0.0.1:0\"}\nagents:\n";
    const OTHER: &str = "  - {name: other, runtime: command, command: ['true']}\n";
    const AGENT: &str = "  - name: a\n    runtime: command\n    command: ['true']\n";
    const SCHEDULE: &str =
        "    schedules: {s: {type: interval, interval: 1s, when_command: [no-such-program]}}\n";
    let scene = Scene::of(&format!("{HEAD}{OTHER}{AGENT}{SCHEDULE}"));
    let token = scene.token("boss", "admin");
    scene.until("it to be held up", || scene.run(&["status"]).1.contains("not prepared"));
    std::fs::write(scene.path("cowhand.yaml"), format!("{HEAD}{OTHER}{AGENT}")).unwrap();
    assert_eq!(scene.run(&["reload"]).0, 0);
    for path in ["/", "/agents/a", "/schedules/a/s"] {
        let (code, _, text) = page(&scene, &token, path).await;
        assert_eq!(code, 200, "{path}: {text}");
        for words in ["1 accepted firing without a job", "adopt: s"] {
            assert!(text.contains(words), "{path}: {words} in {text}");
        }
    }
    std::fs::write(scene.path("cowhand.yaml"), format!("{HEAD}{OTHER}")).unwrap();
    assert_eq!(scene.run(&["reload"]).0, 0);
    for path in ["/", "/agents/a", "/schedules/a/s"] {
        let (code, _, text) = page(&scene, &token, path).await;
        assert_eq!(code, 200, "{path}: {text}");
        assert!(
            text.contains("1 accepted firing without a job; the agent a is not in the config any more"),
            "{path}: {text}"
        );
    }
}

#[tokio::test]
async fn pages_of_a_renamed_agent_show_its_running_job() {
    let config = |agent: &str, adopt: &str| {
        format!(
            "server: {{listen: \"127.0.0.1:0\"}}\nagents:\n  - {{name: {agent}, runtime: command, command: [sleep, '60'], \
             schedules: {{m: {{type: manual{adopt}}}}}}}\n"
        )
    };
    let scene = Scene::of(&config("old", ""));
    let token = scene.token("boss", "admin");
    let job: Value = serde_json::from_str(&scene.run(&["trigger", "old", "m", "--json"]).1).unwrap();
    let id = job["id"].as_str().unwrap();
    scene.until("its start", || scene.run(&["job", id]).1.contains("running"));
    std::fs::write(scene.path("cowhand.yaml"), config("new", ", adopt: old/m")).unwrap();
    assert_eq!(scene.run(&["reload"]).0, 0);
    for path in ["/", "/agents/old", "/agents/new"] {
        let (code, _, text) = page(&scene, &token, path).await;
        assert_eq!(code, 200, "{path}: {text}");
        assert!(text.contains("takes a place of new"), "{path}: {text}");
        for wrong in ["all ended", "It has run nothing yet"] {
            assert!(!text.contains(wrong), "{path}: {text}");
        }
    }
}

/// Three schedules whose calendar never lets them fire, and one that can fire.
const NEVER: &str = r#"
server: {listen: "127.0.0.1:0"}
agents:
  - name: a
    runtime: command
    command: ["true"]
    schedules:
      night: {type: cron, cron: "0 3 * * *", timezone: UTC, active_hours: {start: "09:00", end: "17:00"}}
      feast: {type: cron, cron: "0 9 24 12 *", timezone: UTC, end_at: "2999-12-25T00:00:00Z", active_hours: {start: "10:00", end: "11:00"}}
      hook: {type: webhook, allow_unsigned: true, start_at: "2990-01-02T10:00:00Z", end_at: "2990-01-02T11:00:00Z", exclude_dates: ["2990-01-01", "2990-01-02", "2990-01-03"]}
      day: {type: cron, cron: "0 3,12 * * *", timezone: UTC, active_hours: {start: "09:00", end: "17:00"}}
"#;

#[tokio::test]
async fn a_schedule_that_can_never_fire_is_named_everywhere() {
    let scene = Scene::of(NEVER);
    let token = scene.token("reader", "read");
    let hours = "its `active_hours` allow none of its times";
    for (name, reason) in [
        ("night", Some(hours)),
        ("feast", Some(hours)),
        ("hook", Some("its `exclude_dates` and `end_at` allow no time")),
        ("day", None),
    ] {
        let of = |said: &str| -> String {
            let lines: Vec<&str> =
                said.split_inclusive('\n').filter(|line| line.contains(&format!("a/{name}"))).collect();
            lines.concat()
        };
        let row = |page: String| -> String {
            let rows = page.split("<tr>").filter(|row| row.contains(&format!("/schedules/a/{name}\"")));
            rows.collect()
        };
        let full = format!("a/{name}");
        let (_, json, _) = scene.run(&["schedule", "show", &full, "--json"]);
        let view: Value = serde_json::from_str(&json).unwrap();
        let surfaces = [
            ("config check", of(&scene.run(&["config", "check"]).2)),
            ("why", scene.run(&["why", &full]).1),
            ("schedule list", of(&scene.run(&["schedule", "list"]).1)),
            ("schedule show", view["never_fires"].as_str().unwrap_or_default().to_owned()),
            ("status", of(&scene.run(&["status"]).1)),
            ("its page", page(&scene, &token, &format!("/schedules/a/{name}")).await.2),
            ("the page of its agent", row(page(&scene, &token, "/agents/a").await.2)),
            ("the page of the fleet", row(page(&scene, &token, "/").await.2)),
        ];
        for (surface, said) in surfaces {
            match reason {
                Some(reason) => {
                    let said = said.replace("<code>", "`").replace("</code>", "`");
                    assert!(said.contains(reason), "{name}, {surface}: {said}");
                    assert!(!said.contains("Z is skipped"), "{name}, {surface}: {said}");
                }
                None => assert!(!said.contains("can never"), "{name}, {surface}: {said}"),
            }
        }
        let (_, out, error) = scene.run(&["schedule", "next", &full]);
        let is_by_clock = name != "hook";
        let expected = reason.filter(|_| is_by_clock);
        assert!(expected.is_none_or(|reason| out.contains(reason)), "{name}: {out}{error}");
    }
}
