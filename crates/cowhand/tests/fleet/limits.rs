//! A provider that is used up: the jobs that wait for it, the messages, and `unpark`; agents that share a limit.

use crate::{Scene, wait_until};

/// Two agents of one provider. Until there is a file `more`, it refuses requests for a day.
const FLEET: &str = r#"
agents:
  - name: first
    provider: shared
    runtime: command
    command: &asks [sh, -c, 'if [ -e more ]; then echo fine; else printf "{\"type\":\"result\",\"is_error\":true,\"result\":\"You have hit your usage limit. Try again in 1 day.\"}\n"; fi']
    schedules: {nightly: {type: manual, prompt: Work.}}
  - name: second
    provider: shared
    runtime: command
    command: *asks
    default_prompt: Work.
    schedules:
      idle: {type: manual, prompt: Work.}
      yearly: {type: cron, cron: '@yearly', prompt: Work.}
  - {name: other, runtime: command, command: [sh, -c, cat], default_prompt: Work.}
"#;

#[test]
fn used_up_provider_holds_jobs_until_unpark() {
    let scene = Scene::with(FLEET);
    scene.start();
    let refused = scene.run(&["unpark", "shared"]);
    assert_eq!(refused.code, Some(5), "{}", refused.stderr);
    assert!(refused.stderr.contains("shared is not parked"), "{}", refused.stderr);
    let unknown = scene.run(&["unpark", "nobody"]);
    assert!(unknown.code == Some(5) && unknown.stderr.contains("\"nobody\""), "{}", unknown.stderr);

    let first = scene.json(&["trigger", "first", "nightly"])["id"].as_str().unwrap().to_owned();
    wait_until("it to be sent away", || (scene.job(&first)["parks"] == 1).then_some(()));
    let second = scene.json(&["trigger", "second"])["id"].as_str().unwrap().to_owned();
    assert_eq!(
        scene.json(&["trigger", "other", "--wait"])["status"],
        "completed",
        "it has nothing to do with it"
    );

    let used_up = "shared is used up: You have hit your usage limit. Try again in 1 day.";
    let status = scene.run(&["status"]).stdout;
    assert!(status.contains("used up: shared takes jobs again in "), "{status}");
    assert!(status.contains("Try again in 1 day."), "{status}");
    for job in [&first, &second] {
        let shown = scene.run(&["job", job]).stdout;
        assert!(shown.contains("pending") && shown.contains(used_up), "{shown}");
        assert!(!shown.contains("next attempt"), "nobody knows that: {shown}");
        let until = scene.job(job)["waits"]["until"].as_str().unwrap().parse::<jiff::Timestamp>().unwrap();
        assert!(shown.contains(&format!("until        {until:.0} (in ")), "{shown}");
        assert_eq!(scene.job(job)["waits"]["reason"], "usage_limit");
    }
    let why = scene.run(&["why", "first/nightly"]).stdout;
    assert!(why.contains(used_up), "{why}");
    let idle = scene.run(&["why", "second/idle"]).stdout;
    assert!(idle.contains("A job of this schedule would wait, until ") && idle.contains(used_up), "{idle}");
    let yearly = scene.run(&["why", "second/yearly"]).stdout;
    let yearly = yearly.split_whitespace().collect::<Vec<_>>().join(" ");
    assert!(yearly.contains(&format!("If it were due now, its job would wait: {used_up}")), "{yearly}");
    let list = scene.run(&["schedule", "list"]).stdout;
    let of_idle = list.lines().find(|line| line.contains("second/idle")).unwrap();
    assert!(of_idle.contains("usage_limit: shared is used up"), "{list}");
    let next = scene.run(&["schedule", "next"]).stdout;
    let next = next.split_whitespace().collect::<Vec<_>>().join(" ");
    let until = scene.job(&first)["waits"]["until"].as_str().unwrap().parse::<jiff::Timestamp>().unwrap();
    let note = format!("jobs of second/yearly wait until {until:.0} at the latest: {used_up}");
    assert!(next.contains(&note), "{next}");
    let next = scene.run(&["schedule", "next", "second/yearly"]).stdout;
    assert!(next.split_whitespace().collect::<Vec<_>>().join(" ").contains(&note), "{next}");
    let events = scene.run(&["events", "--limit", "100"]).stdout;
    assert!(events.contains("job:parked"), "{events}");

    // The provider has more capacity now.
    std::fs::write(scene.root.join("more"), "").unwrap();
    assert_eq!(scene.run(&["unpark", "shared"]).stdout, "shared takes jobs again.\n");
    for job in [&first, &second] {
        wait_until("it to go on", || (scene.job(job)["status"] == "completed").then_some(()));
    }
    assert!(!scene.run(&["status"]).stdout.contains("used up"));
    let audit = scene.run(&["events", "--audit"]).stdout;
    assert!(audit.contains("provider:unparked"), "{audit}");
}

#[test]
fn on_limit_fail_fails_the_job() {
    let scene = Scene::with(&format!("providers: {{shared: {{on_limit: fail}}}}\n{FLEET}"));
    scene.start();
    let job = scene.run(&["trigger", "second", "--wait", "--json"]);
    let job: serde_json::Value = serde_json::from_str(&job.stdout).unwrap();
    assert_eq!((&job["status"], &job["error"]["kind"]), (&"failed".into(), &"rate_limited".into()));
}

#[test]
fn fallback_runs_job_of_used_up_provider() {
    let fallback = r#"    fallback:
      - {provider: spare, command: [sh, -c, "echo $WHO: $(cat)"], env: {WHO: the spare one}}
    default_prompt: Work.
"#;
    let scene = Scene::with(&FLEET.replacen("    schedules:", &format!("{fallback}    schedules:"), 1));
    scene.start();
    let first = scene.json(&["trigger", "first", "nightly"])["id"].as_str().unwrap().to_owned();
    // A job that has begun continues its session if possible; a command has none.
    let job = wait_until("it to end", || Some(scene.job(&first)).filter(|job| job["status"] == "completed"));
    assert_eq!((&job["parks"], &job["summary"]), (&1.into(), &"the spare one: Work.".into()));
    let said = scene.run(&["logs", &first]).stdout;
    let note = "the usage limit of its provider is reached; this attempt uses the fallback command";
    assert!(said.contains(note), "{said}");
    // The next job uses the fallback at once.
    let next = scene.json(&["trigger", "first", "--wait"]);
    assert_eq!((&next["status"], &next["summary"]), (&"completed".into(), &"the spare one: Work.".into()));
    assert_eq!(next["parks"], serde_json::Value::Null);
}

/// The first agent always has a waiting job. Without turns, it would take each free slot, or each free part of the
/// budget.
#[test]
fn agents_that_share_a_limit_all_get_their_turn() {
    let agents = r#"
agents:
  - name: busy
    runtime: command
    provider: shared
    command: [sleep, "1.1"]
    budget: {per_job_usd: 600}
    schedules: {tick: {type: cron, cron: '* * * * * *', overlap: queue}}
  - {name: other, runtime: command, provider: shared, command: [echo, done], budget: {per_job_usd: 600}}
"#;
    for limit in ["providers: {shared: {max_concurrent: 1}}", "budget: {per_day_usd: 1000}"] {
        let scene = Scene::with(&format!("{limit}\n{agents}"));
        scene.start();
        wait_until("the busy agent runs its second job", || {
            let ended = scene.run(&["jobs", "--agent", "busy", "--status", "completed"]).stdout;
            let running = scene.run(&["jobs", "--agent", "busy", "--status", "running"]).stdout;
            (ended.contains("completed") && running.contains("running")).then_some(())
        });
        let done = scene.run(&["trigger", "other", "--wait"]);
        assert_eq!(done.code, Some(0), "{limit}: {}", done.stderr);
    }
}
