//! Webhooks: their signatures, their results, and that no accepted delivery is lost.

use cowhand_testing::wait_until;
use futures_util::future::join_all;
use jiff::Timestamp;
use serde_json::{Value, json};

use crate::{FLEET, NEW, OLD, Scene, answer, hmac};

const BODY: &[u8] = br#"{"action":"opened","issue":{"number":7}}"#;

#[tokio::test]
async fn signatures_of_each_scheme_are_checked() {
    let scene = Scene::new();
    let now = Timestamp::now().as_second();
    let old = now - 301;
    let github = |secret: &str| vec![("x-hub-signature-256", format!("sha256={}", hmac(secret, &[BODY])))];
    let slack = |secret: &str, time: i64| {
        let signature = hmac(secret, &[b"v0:", time.to_string().as_bytes(), b":", BODY]);
        vec![
            ("x-slack-signature", format!("v0={signature}")),
            ("x-slack-request-timestamp", time.to_string()),
        ]
    };
    let stripe = |secret: &str, time: i64| {
        let signature = hmac(secret, &[time.to_string().as_bytes(), b".", BODY]);
        vec![("stripe-signature", format!("t={time},v1={signature}"))]
    };
    let gitlab = |secret: &str| vec![("x-gitlab-token", secret.to_owned())];
    let cut = |mut headers: Vec<(&'static str, String)>| {
        headers[0].1.pop();
        headers
    };
    for (headers, expected) in [
        (github(OLD), 202),
        // This delivery has the other secret and a repeated body.
        (github(NEW), 200),
        (github("guess"), 401),
        (cut(github(OLD)), 401),
        (vec![], 401),
        (vec![("x-hub-signature-256", String::new())], 401),
        (slack(NEW, now), 200),
        (slack(NEW, old), 401),
        (slack("guess", now), 401),
        (cut(slack(NEW, now)), 401),
        (stripe(OLD, now), 200),
        (stripe(OLD, old), 401),
        (stripe("guess", now), 401),
        (cut(stripe(OLD, now)), 401),
        (gitlab(OLD), 200),
        (gitlab("guess"), 401),
        (cut(gitlab(OLD)), 401),
    ] {
        let mut request = scene.deliver("hook", BODY);
        for (name, value) in &headers {
            request = request.header(*name, value);
        }
        let (status, body) = answer(request).await;
        assert_eq!(status, expected, "{headers:?} {body}");
    }
    // Half of the signed body.
    let half = scene.deliver("hook", &BODY[..20]).header("x-hub-signature-256", &github(OLD)[0].1);
    assert_eq!(answer(half).await.0, 401);
    assert_eq!(scene.jobs().len(), 1);
    let log = scene.log();
    assert!(log.contains("the signature is wrong") && log.contains("five minutes"), "{log}");
    assert!(!log.contains("canary"), "{log}");
}

#[tokio::test]
async fn each_delivery_gets_its_status() {
    let scene = Scene::new();
    let said = |status: u16, word: &str| (status, word.to_owned());
    for (schedule, id, event, body, expected) in [
        ("issues", "1", "ping", &b"{}"[..], said(200, "pong")),
        ("issues", "2", "issues", BODY, said(202, "accepted")),
        ("issues", "2", "issues", BODY, said(200, "duplicate")),
        ("issues", "3", "issues", BODY, said(202, "accepted")),
        ("issues", "4", "push", BODY, said(202, "filtered")),
        ("issues", "4", "push", BODY, said(200, "duplicate")),
        ("hook", "2", "issues", BODY, said(202, "accepted")),
        // Any payload is accepted, whatever its content.
        ("hook", "5", "push", b"\xff\xfe\x00", said(202, "accepted")),
        ("hook", "6", "push", b"{\"half\":", said(202, "accepted")),
        ("hook", "7", "push", b"", said(202, "accepted")),
        ("off", "8", "push", BODY, said(404, "not_found")),
        ("unset", "9", "push", BODY, said(500, "unavailable")),
        ("by-hand", "10", "push", BODY, said(422, "not_a_webhook")),
        ("nothing", "11", "push", BODY, said(404, "not_found")),
        ("..%2fhook", "12", "push", BODY, said(404, "not_found")),
    ] {
        let (status, body) = answer(scene.github(schedule, id, event, body)).await;
        let word = body["status"].as_str().or(body["code"].as_str()).unwrap_or_default();
        assert_eq!((status, word.to_owned()), expected, "{schedule} {id} {body}");
    }
    let why: Value = serde_json::from_str(&scene.run(&["why", "worker/issues", "--json"]).1).unwrap();
    let mut firings = why["firings"].as_array().unwrap().iter();
    let filtered = firings.find(|firing| firing["reason"] == "filtered").unwrap();
    assert_eq!(filtered["why"], "its `events` rejected it");
    // A sender that does not know the secret does not learn that the schedule is turned off.
    assert_eq!(answer(scene.deliver("off", "x")).await.0, 401);
    assert_eq!(answer(scene.ask("POST", "/hooks/nobody/hook").body("x")).await.0, 404);
    assert_eq!(answer(scene.ask("GET", "/hooks/worker/hook")).await.0, 405);
    for path in ["/hooks/worker/hook/", "/hooks/worker", "/hooks"] {
        let (status, body) = answer(scene.ask("POST", path).body("x")).await;
        assert_eq!((status, body["code"].as_str()), (404, Some("not_found")), "{path} {body}");
    }
    let schedules: Vec<_> = scene.jobs().iter().map(|job| job["schedule"].clone()).collect();
    assert_eq!(schedules, ["issues", "issues", "hook", "hook", "hook", "hook"].map(Value::from));
    assert!(scene.log().contains("NOT_THERE"));
}

#[tokio::test]
async fn event_uuid_of_gitlab_identifies_delivery() {
    let scene = Scene::new();
    let send = async |id: &str| {
        let request = scene.deliver("hook", BODY).header("x-gitlab-token", NEW);
        let request = request.header("x-gitlab-event-uuid", id).header("x-gitlab-event", "Push Hook");
        answer(request).await.0
    };
    assert_eq!((send("a").await, send("a").await, send("b").await), (202, 200, 202));
}

#[tokio::test]
async fn unsigned_deliveries_are_accepted_only_on_loopback() {
    let mut scene = Scene::new();
    assert_eq!(answer(scene.deliver("unsigned", BODY)).await.0, 202);
    scene.kill();
    scene.start_anywhere();
    let (status, body) = answer(scene.deliver("unsigned", "other")).await;
    assert_eq!((status, &body["code"]), (401, &json!("unauthorized")), "{body}");
    assert_eq!(answer(scene.github("hook", "1", "push", BODY)).await.0, 202);
}

#[tokio::test]
async fn large_bodies_and_many_wrong_secrets_are_refused() {
    let scene = Scene::new();
    let head = "POST /hooks/worker/hook HTTP/1.1\r\nhost: localhost\r\n";
    assert_eq!(scene.raw(format!("{head}content-length: 1000000000\r\n\r\n").as_bytes()), 413);
    // This body has neither a length nor an end.
    let most = 25 << 20;
    let mut endless = format!("{head}transfer-encoding: chunked\r\n\r\n{:x}\r\n", most + 1).into_bytes();
    endless.resize(endless.len() + most + 1, b' ');
    assert_eq!(scene.raw(&endless), 413);
    let mut last = None;
    for _ in 0..40 {
        let wrong = scene.deliver("hook", BODY).header("x-gitlab-token", "guess").send().await.unwrap();
        last = Some((wrong.status().as_u16(), wrong.headers().contains_key("retry-after")));
    }
    assert_eq!(last, Some((429, true)));
    // A sender that knows the secret is not limited by senders that do not know it.
    assert_eq!(answer(scene.github("hook", "1", "push", BODY)).await.0, 202);
}

#[tokio::test]
async fn accepted_deliveries_survive_kill_of_daemon() {
    let mut scene = Scene::new();
    let mut taken = Vec::new();
    for round in 0..3 {
        let (status, body) = answer(scene.github("hook", &format!("d-{round}"), "push", BODY)).await;
        scene.kill();
        assert_eq!(status, 202);
        taken.push(body["job"].clone());
        scene.start(&[]);
        let jobs: Vec<_> = scene.jobs().iter().map(|job| job["id"].clone()).collect();
        assert_eq!(jobs, taken);
        let again = answer(scene.github("hook", &format!("d-{round}"), "push", BODY)).await;
        assert_eq!(again, (200, json!({"status": "duplicate"})));
    }
}

#[tokio::test]
async fn concurrent_duplicate_deliveries_make_one_job() {
    let scene = Scene::new();
    let sent = (0..200).map(|_| answer(scene.github("hook", "same", "push", BODY)));
    let mut statuses: Vec<u16> = join_all(sent).await.into_iter().map(|(status, _)| status).collect();
    statuses.sort_unstable();
    assert_eq!(statuses, [vec![200; 199], vec![202]].concat());
    assert_eq!(scene.jobs().len(), 1);
}

#[tokio::test]
async fn challenge_of_slack_is_answered_only_if_signed() {
    let scene = Scene::new();
    let body = br#"{"type":"url_verification","challenge":"c-4711","token":"x"}"#;
    let time = Timestamp::now().as_second().to_string();
    let send = async |schedule: &str, secret: &str| {
        let signature = hmac(secret, &[b"v0:", time.as_bytes(), b":", body]);
        let request = scene.deliver(schedule, body).header("x-slack-signature", format!("v0={signature}"));
        answer(request.header("x-slack-request-timestamp", &time)).await
    };
    assert_eq!(send("hook", NEW).await, (200, json!({"challenge": "c-4711"})));
    assert_eq!(send("hook", "guess").await.0, 401);
    assert!(scene.jobs().is_empty(), "nothing runs for it");
    // Without a signature, the same body is an ordinary delivery, if the schedule accepts unsigned deliveries.
    let (status, said) = answer(scene.deliver("unsigned", body)).await;
    assert_eq!((status, &said["status"]), (202, &json!("accepted")));
}

#[tokio::test]
async fn missing_webhook_secret_is_reported_before_first_delivery() {
    let mut scene = Scene::new();
    let said = "its deliveries are refused, because no secret is set: set NOT_THERE";
    let (_, why, _) = scene.run(&["why", "worker/unset"]);
    assert!(why.contains(said), "{why}");
    assert!(scene.log().contains(said), "{}", scene.log());
    let (_, status, _) = scene.run(&["status"]);
    let status = status.split_whitespace().collect::<Vec<_>>().join(" ");
    assert!(status.contains(&format!("refuses deliveries: worker/unset: {said}")), "{status}");
    let token = scene.token("reader", "read");
    for path in ["/", "/agents/worker", "/schedules/worker/unset"] {
        let page = scene.ask("GET", path).bearer_auth(&token).send().await.unwrap().text().await.unwrap();
        assert!(page.contains("its deliveries are refused, because no secret is set"), "{path}: {page}");
    }
    let (code, doctor, _) = scene.run(&["doctor"]);
    assert_eq!(code, 6);
    assert!(doctor.contains("FAIL  webhook worker/unset: NOT_THERE is not set"), "{doctor}");
    assert!(doctor.contains("ok    webhook worker/hook: its secret is set"), "{doctor}");
    let (_, _, check) = scene.run(&["config", "check"]);
    assert!(
        check.contains("the environment variable NOT_THERE with the secret of this webhook is not set"),
        "{check}"
    );
    // When the variable is set, deliveries are accepted.
    scene.kill();
    std::fs::write(scene.path(".env"), format!("HOOK_NEW={NEW}\nNOT_THERE={OLD}\n")).unwrap();
    scene.start(&[]);
    let (_, why, _) = scene.run(&["why", "worker/unset"]);
    assert!(!why.contains("refused"), "{why}");
    assert_eq!(answer(scene.github("unset", "1", "push", BODY)).await.0, 202);
}

#[tokio::test]
async fn delivery_to_webhook_without_secret_is_not_called_unsigned() {
    let mut scene = Scene::prepared("");
    std::fs::remove_file(scene.path("cowhand.yaml")).unwrap();
    let agent = "name: worker\nruntime: command\ncommand: ['true']\nschedules: {open: {type: webhook, prompt: Look.}}\n";
    std::fs::write(scene.path("worker.yaml"), agent).unwrap();
    std::fs::write(scene.path("herdctl.yaml"), "version: 1\nagents:\n  - path: worker.yaml\n").unwrap();
    scene.start(&["--listen", "127.0.0.1:0"]);
    for request in [scene.deliver("open", BODY), scene.deliver("open", BODY).header("x-gitlab-token", OLD)] {
        let (status, said) = answer(request).await;
        assert_eq!((status, &said["code"]), (500, &json!("unavailable")), "{said}");
    }
    assert!(scene.log().contains("a webhook cannot be checked: it has no `secret_env`"), "{}", scene.log());
}

#[tokio::test]
async fn unsigned_webhook_outside_loopback_is_reported() {
    let mut scene = Scene::prepared(FLEET);
    scene.start_anywhere();
    let (status, _) = answer(scene.deliver("unsigned", BODY)).await;
    assert_eq!(status, 401);
    let said = "`allow_unsigned` has an effect only on loopback, and the server listens on 0.0.0.0:";
    wait_until("`why` to say it", || scene.run(&["why", "worker/unsigned"]).1.contains(said).then_some(()));
    let (_, list, _) = scene.run(&["schedule", "list", "--json"]);
    assert!(list.contains(said), "{list}");
    let (code, doctor, _) = scene.run(&["doctor"]);
    assert_eq!(code, 6);
    assert!(doctor.contains("FAIL  webhook worker/unsigned: every delivery is refused"), "{doctor}");
    // The address comes from the command line, so a change of the config would not help.
    assert!(doctor.contains("or run `cowhand restart --listen 127.0.0.1:"), "{doctor}");
    // On loopback, the note is removed.
    scene.kill();
    scene.start(&[]);
    wait_until("`why` to forget it", || {
        (!scene.run(&["why", "worker/unsigned"]).1.contains("refused")).then_some(())
    });
    assert_eq!(answer(scene.deliver("unsigned", BODY)).await.0, 202);
}

#[tokio::test]
async fn deliveries_share_the_places_of_their_agent() {
    let mut scene = Scene::prepared(
        r#"
server: {listen: "127.0.0.1:0"}
agents:
  - name: worker
    runtime: command
    command: [sh, -c, "cat > /dev/null; while test -e busy; do sleep 0.05; done"]
    instances: {max_concurrent: 2}
    schedules:
      check: {type: interval, interval: 1h, prompt: Check.}
      alert: {type: webhook, secret_env: HOOK_OLD, prompt: "Alert: {{payload.alert}}"}
"#,
    );
    std::fs::write(scene.path("busy"), "").unwrap();
    scene.start(&[]);
    let statuses = || -> Vec<String> {
        scene.jobs().iter().map(|job| job["status"].as_str().unwrap().to_owned()).collect()
    };
    scene.until("the first check runs", || statuses() == ["running"]);
    for number in 0..4 {
        let body = format!(r#"{{"alert":{number}}}"#);
        let sent = scene.github("alert", &number.to_string(), "alert", body.as_bytes());
        assert_eq!(answer(sent).await.0, 202);
    }
    let is_full = || statuses() == ["running", "running", "pending", "pending", "pending"];
    scene.until("both places are taken", is_full);
    std::fs::remove_file(scene.path("busy")).unwrap();
    scene.until("all have run", || {
        let statuses = statuses();
        let count = |status: &str| statuses.iter().filter(|found| *found == status).count();
        assert!(count("running") <= 2, "{statuses:?}");
        count("completed") == 5
    });
}

/// Returns a config with a schedule that pauses itself after one failure, for this time at first.
fn fragile(pause: &str) -> String {
    format!(
        r#"
server: {{listen: "127.0.0.1:0"}}
agents:
  - name: worker
    runtime: command
    command: [sh, -c, "echo $COWHAND_JOB_ID >> ran; [ -e mended ]"]
    instances: {{max_concurrent: 9}}
    breaker: {{failures: 1, pause: {pause}}}
    schedules:
      hook: {{type: webhook, secret_env: HOOK_OLD, prompt: Look.}}
      asking: {{type: webhook, secret_env: HOOK_OLD, prompt: Look., when_command: ["true"]}}
"#
    )
}

/// Waits for the event of the pause, and returns its end.
fn pause(scene: &Scene) -> Timestamp {
    let mut until = None;
    scene.until("the schedule pauses", || {
        let (_, out, _) = scene.run(&["events", "--json", "--limit", "1000"]);
        let mut events = out.lines().map(|line| serde_json::from_str::<Value>(line).unwrap());
        let paused = events.find(|event| event["type"] == "schedule:paused");
        until = paused.map(|event| event["until"].as_str().unwrap().parse().unwrap());
        until.is_some()
    });
    until.unwrap()
}

/// Ends the pause in the store and starts a new daemon, so that the test does not wait for an hour.
fn pass_the_pause(scene: &mut Scene) {
    scene.kill();
    let store = rusqlite::Connection::open(scene.path(".cowhand/store.db")).unwrap();
    let passed = "update schedules set paused_until = 0, pause_boot = null where paused_until > 0";
    assert_eq!(store.execute(passed, []).unwrap(), 1, "it pauses");
    drop(store);
    scene.start(&[]);
}

/// Deliveries of a paused schedule are kept; when the pause ends, one of them runs first.
#[tokio::test]
async fn deliveries_during_pause_wait_for_its_end() {
    let mut scene = Scene::of(&fragile("1h"));
    let ran = |scene: &Scene| std::fs::read_to_string(scene.path("ran")).unwrap_or_default().lines().count();
    assert_eq!(answer(scene.github("hook", "d1", "issues", BODY)).await.0, 202);
    pause(&scene);
    let mut jobs = Vec::new();
    for id in ["d2", "d3", "d4"] {
        let (status, body) = answer(scene.github("hook", id, "issues", BODY)).await;
        assert_eq!((status, &body["status"]), (202, &"accepted".into()), "{body}");
        jobs.push(body["job"].as_str().unwrap().to_owned());
        assert_eq!(answer(scene.github("hook", id, "issues", BODY)).await.0, 200, "once");
    }
    let job = |scene: &Scene, id: &str| -> Value {
        serde_json::from_str(&scene.run(&["job", id, "--json"]).1).unwrap()
    };
    let waits = |scene: &Scene, id: &str| {
        let job = job(scene, id);
        assert_eq!(
            (&job["status"], &job["waits"]["reason"]),
            (&"pending".into(), &"paused".into()),
            "{job:#}"
        );
        let said = job["waits"]["message"].as_str().unwrap();
        assert!(said.starts_with("its schedule has paused itself: "), "{said}");
    };
    for id in &jobs {
        waits(&scene, id);
    }
    // One of them is tried after the pause, whatever caused the pause to end.
    pass_the_pause(&mut scene);
    scene.until("the first probe has failed", || job(&scene, &jobs[0])["status"] == "failed");
    for id in &jobs[1..] {
        waits(&scene, id);
    }
    assert_eq!(ran(&scene), 2, "the first of all, and the probe");
    std::fs::write(scene.path("mended"), "").unwrap();
    pass_the_pause(&mut scene);
    scene.until("all are done", || jobs[1..].iter().all(|id| job(&scene, id)["status"] == "completed"));
    assert_eq!(ran(&scene), 4, "each once");
    // A disabled schedule accepts nothing.
    assert_eq!(scene.run(&["schedule", "disable", "worker/hook"]).0, 0);
    assert_eq!(answer(scene.github("hook", "d5", "issues", BODY)).await.0, 404);
}

/// A schedule that is turned off during its pause runs what it had accepted, one probe at a time.
#[tokio::test]
async fn deliveries_accepted_before_disable_run_after_the_pause() {
    let mut scene = Scene::of(&fragile("1h"));
    assert_eq!(answer(scene.github("hook", "d1", "issues", BODY)).await.0, 202);
    pause(&scene);
    for id in ["d2", "d3", "d4"] {
        assert_eq!(answer(scene.github("hook", id, "issues", BODY)).await.0, 202);
    }
    assert_eq!(scene.run(&["schedule", "disable", "worker/hook"]).0, 0);
    let statuses = |scene: &Scene| -> Vec<String> {
        scene.jobs().iter().map(|job| job["status"].as_str().unwrap().to_owned()).collect()
    };
    let said = scene.run(&["why", "worker/hook"]).1.split_whitespace().collect::<Vec<_>>().join(" ");
    let expected = "3 waiting jobs of it will not start yet: its schedule had paused itself before it was disabled: \
                    one job failed: ";
    assert!(said.contains(expected) && said.contains(". The pause ends in "), "{said}");
    assert!(said.contains(", and then the oldest of them can start"), "the probe, not all three: {said}");
    // All surfaces have the reason and the end of the pause.
    let list = scene.run(&["schedule", "list"]).1.split_whitespace().collect::<Vec<_>>().join(" ");
    assert!(list.contains(expected) && list.contains("; the pause ends in "), "{list}");
    let view: Value =
        serde_json::from_str(&scene.run(&["schedule", "show", "worker/hook", "--json"]).1).unwrap();
    assert!(view["skip_note"].as_str().unwrap().contains(expected), "{view}");
    let jobs: Value = serde_json::from_str(&scene.run(&["jobs", "--json"]).1).unwrap();
    for job in jobs.as_array().unwrap().iter().filter(|job| job["status"] == "pending") {
        assert_eq!(job["waits"]["until"], view["skip_until"], "{job}");
        assert!(job["waits"]["message"].as_str().unwrap().contains("disabled: one job failed: "), "{job}");
    }
    let token = scene.token("reader", "read");
    let page = scene.ask("GET", "/schedules/worker/hook").bearer_auth(&token).send().await.unwrap();
    let page = page.text().await.unwrap();
    assert!(page.contains("had paused itself before it was disabled: one job failed"), "{page}");
    assert!(page.contains("The pause ends <time"), "{page}");
    pass_the_pause(&mut scene);
    scene.until("the first probe has failed", || {
        statuses(&scene) == ["failed", "failed", "pending", "pending"]
    });
    std::fs::write(scene.path("mended"), "").unwrap();
    pass_the_pause(&mut scene);
    scene.until("all are done", || statuses(&scene) == ["failed", "failed", "completed", "completed"]);
    let shown: Value =
        serde_json::from_str(&scene.run(&["schedule", "show", "worker/hook", "--json"]).1).unwrap();
    assert_eq!(shown["status"], "disabled");
}

/// A delivery that is not prepared yet waits for the end of the pause, and is shown so.
#[tokio::test]
async fn delivery_during_pause_is_not_shown_as_being_prepared() {
    let scene = Scene::of(&fragile("1h"));
    assert_eq!(answer(scene.github("asking", "d1", "issues", BODY)).await.0, 202);
    pause(&scene);
    assert_eq!(answer(scene.github("asking", "d2", "issues", BODY)).await.0, 202);
    let said: Value = serde_json::from_str(&scene.run(&["why", "worker/asking", "--json"]).1).unwrap();
    let schedule = &said["schedule"];
    assert_eq!((&schedule["status"], &schedule["preparing"]), (&"paused".into(), &false.into()), "{said:#}");
    let mut firings = said["firings"].as_array().unwrap().iter();
    let waits = firings.find(|firing| firing["outcome"] == "preparing").unwrap();
    assert_eq!(waits["why"], "its schedule is paused, and it waits for the end of the pause");
}

/// A delivery to a schedule with `when_command` is prepared only after the pause.
#[tokio::test]
async fn delivery_with_when_command_waits_for_end_of_pause() {
    let scene = Scene::of(&fragile("3s"));
    assert_eq!(answer(scene.github("asking", "d1", "issues", BODY)).await.0, 202);
    let until = pause(&scene);
    std::fs::write(scene.path("mended"), "").unwrap();
    let (status, body) = answer(scene.github("asking", "d2", "issues", BODY)).await;
    assert_eq!((status, &body["status"], &body["job"]), (202, &"accepted".into(), &Value::Null), "{body}");
    scene.until("it is done", || scene.jobs().last().unwrap()["status"] == "completed");
    let jobs = scene.jobs();
    let statuses: Vec<&Value> = jobs.iter().map(|job| &job["status"]).collect();
    assert_eq!(statuses, ["failed", "completed"]);
    let began: Timestamp = jobs[1]["started_at"].as_str().unwrap().parse().unwrap();
    assert!(began >= until, "{began} is before {until}");
}

/// Returns a config whose schedules cannot prepare their firings before `when_command` is `[true]`.
fn unprepared(enabled: bool, command: &str) -> String {
    format!(
        r#"
server: {{listen: "127.0.0.1:0"}}
agents:
  - name: worker
    runtime: command
    command: ["true"]
    schedules:
      asking: {{type: webhook, secret_env: HOOK_OLD, enabled: {enabled}, when_command: ["{command}"]}}
      often: {{type: interval, interval: 1s, enabled: {enabled}, when_command: ["{command}"]}}
"#
    )
}

/// A delivery that was accepted while the schedule was on runs, whichever way the schedule is turned off. A firing by
/// the clock is skipped.
#[tokio::test]
async fn accepted_delivery_runs_after_schedule_is_disabled() {
    for in_file in [false, true] {
        let scene = Scene::of(&unprepared(true, "no-such-program"));
        let why =
            |name: &str| -> Value { serde_json::from_str(&scene.run(&["why", name, "--json"]).1).unwrap() };
        assert_eq!(answer(scene.github("asking", "d1", "issues", BODY)).await.0, 202);
        for name in ["worker/asking", "worker/often"] {
            scene.until("it is held up", || why(name)["schedule"]["last_error"].is_string());
        }
        if in_file {
            std::fs::write(scene.path("cowhand.yaml"), unprepared(false, "no-such-program")).unwrap();
            assert_eq!(scene.run(&["reload"]).0, 0);
        } else {
            for name in ["worker/asking", "worker/often"] {
                assert_eq!(scene.run(&["schedule", "disable", name]).0, 0);
            }
        }
        scene.until("the firing by the clock is skipped", || {
            let firing = why("worker/often")["firings"][0].take();
            (&firing["outcome"], &firing["reason"]) == (&"skipped".into(), &"disabled".into())
        });
        let said = scene.run(&["why", "worker/asking"]).1.split_whitespace().collect::<Vec<_>>().join(" ");
        let expected = "1 accepted firing of it will still start; `cowhand cancel --agent worker --schedule asking \
                        --status pending` cancels the waiting jobs and firings.";
        assert!(said.contains("worker/asking is turned off") && said.contains(expected), "{said}");
        std::fs::write(scene.path("cowhand.yaml"), unprepared(!in_file, "true")).unwrap();
        assert_eq!(scene.run(&["reload"]).0, 0);
        scene.until("the delivery has run", || {
            scene.jobs().iter().any(|job| job["schedule"] == "asking" && job["status"] == "completed")
        });
    }
}
