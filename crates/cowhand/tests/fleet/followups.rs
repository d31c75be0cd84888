//! Follow-ups: their bounds, their refusals, and the secrets in their prompts.

use std::fs;

use serde_json::json;

use super::{Scene, wait_until};

/// Script of an agent that requests a job of the agent `$OTHER`, and stores the answer.
const ASKS: &str = r#"
curl -s --unix-socket "$COWHAND_SOCKET" -H "authorization: Bearer $COWHAND_JOB_TOKEN" \
  -H 'content-type: application/json' -d '{"attempt":1,"key":"k","agent":"'"$OTHER"'","prompt":"Your turn."}' \
  "http://x/api/v1/jobs/$COWHAND_JOB_ID/followups" >> heard
echo >> heard
"#;

#[test]
fn mutual_followups_stop_at_followups_max() {
    let agent = |name: &str, other: &str| {
        json!({
            "name": name, "runtime": "command", "command": ["sh", "ask.sh"], "env": {"OTHER": other},
            "followups": {"max": 3, "min_interval": "1s", "from": [other]},
            "schedules": {"poll": {"type": "manual", "prompt": "Go."}},
        })
    };
    let alone =
        json!({"name": "alone", "runtime": "command", "command": ["sh", "ask.sh"], "env": {"OTHER": "ping"}});
    let mut pushy = alone.clone();
    (pushy["name"], pushy["followups"]) = (json!("pushy"), json!({"max": 9}));
    pushy["schedules"] = json!({"poll": {"type": "manual", "prompt": "Go."}});
    let agents = json!([agent("ping", "pong"), agent("pong", "ping"), alone, pushy]);
    let scene = Scene::with(&format!("agents: {agents}"));
    scene.write("ask.sh", ASKS);
    scene.start();
    scene.json(&["trigger", "ping", "--wait"]);
    let bound = "this chain of jobs has 3 follow-ups, and the maximum is 3 (`followups.max`)";
    wait_until("the chain to end", || {
        fs::read_to_string(scene.root.join("heard")).ok().filter(|heard| heard.contains(bound))
    });
    let jobs = wait_until("all jobs to end", || {
        let jobs = scene.json(&["jobs"]);
        let ended = jobs.as_array().unwrap().iter().all(|job| job["status"] == "completed");
        ended.then_some(jobs)
    });
    let agents: Vec<_> =
        jobs.as_array().unwrap().iter().rev().map(|job| job["agent"].as_str().unwrap()).collect();
    assert_eq!(agents, ["ping", "pong", "ping", "pong"]);
    let said = scene.run(&["events", "--json"]).stdout;
    assert_eq!(said.matches("\"job:followup\"").count(), 3, "{said}");
    assert!(said.contains("\"followup:refused\"") && said.contains(bound), "{said}");

    let id = |number: usize| jobs[number]["id"].as_str().unwrap();
    let (last, before, first) = (scene.job(id(0)), scene.job(id(1)), scene.job(id(3)));
    assert_eq!((&last["follows"], &before["followed_by"]), (&jobs[1]["id"], &json!([id(0)])));
    assert_eq!((&last["followup_refused"]["message"], &first.get("follows")), (&json!(bound), &None));
    let shown = scene.run(&["job", id(0)]).stdout;
    assert!(shown.contains(&format!("follows      {}\n", id(1))), "{shown}");
    assert!(shown.contains(&format!("refused      no follow-up: {bound}\n")), "{shown}");
    let why = scene.run(&["why", "pong/poll"]).stdout;
    assert!(
        why.contains(&format!("pong requested a follow-up in {}", id(0))) && why.contains(bound),
        "{why}"
    );
    assert!(!scene.run(&["why", "ping/poll"]).stdout.contains("follow-up"), "only whoever was refused");

    // An agent without its own `followups` is refused, even if other agents have `followups`.
    scene.json(&["trigger", "alone", "--wait"]);
    let heard = fs::read_to_string(scene.root.join("heard")).unwrap();
    assert!(heard.contains("it has no `followups.max` in its config"), "{heard}");
    assert_eq!(scene.json(&["jobs"]).as_array().unwrap().len(), 5);

    // A request for an unknown agent is refused, and shown as every other refusal.
    scene.write("ask.sh", &ASKS.replace("\"$OTHER\"", "nobody"));
    let job = scene.json(&["trigger", "ping", "--wait"])["id"].as_str().unwrap().to_owned();
    let unknown = "nobody is not an agent of this fleet";
    let shown = scene.run(&["job", &job]).stdout;
    assert!(shown.contains(&format!("refused      no follow-up: {unknown}\n")), "{shown}");
    assert!(scene.run(&["why", "ping/poll"]).stdout.contains(unknown));
    assert!(scene.run(&["events", "--json"]).stdout.contains(unknown));
    scene.json(&["job", "delete", &job]);
    scene.write("ask.sh", ASKS);

    // An agent accepts follow-ups only from the agents in its `followups.from`.
    let job = scene.json(&["trigger", "pushy", "--wait"]);
    let closed = "ping takes no follow-ups from pushy: pushy is not among `followups.from` of ping";
    let heard = fs::read_to_string(scene.root.join("heard")).unwrap();
    assert!(heard.contains(closed), "{heard}");
    assert_eq!(scene.json(&["jobs"]).as_array().unwrap().len(), 6);
    let shown = scene.run(&["job", job["id"].as_str().unwrap()]).stdout;
    assert!(shown.contains(&format!("refused      no follow-up: {closed}\n")), "{shown}");
    let why = scene.run(&["why", "pushy/poll"]).stdout;
    assert!(why.contains(closed), "{why}");
}

/// Known secrets are removed from the prompt of a follow-up.
#[test]
fn secrets_are_removed_from_followup_prompts() {
    let agent = json!({
        "name": "leaky", "runtime": "command", "command": ["sh", "ask.sh"], "env": {"API_SECRET": "canary-in-a-prompt"},
        "followups": {"max": 1, "min_interval": "1h"},
        "schedules": {"poll": {"type": "manual", "prompt": "Go."}},
    });
    let scene = Scene::with(&format!("agents: [{agent}]"));
    scene.write(
        "ask.sh",
        &ASKS.replace("\"$OTHER\"", "leaky").replace("Your turn.", "Use '\"$API_SECRET\"' now."),
    );
    scene.start();
    scene.json(&["trigger", "leaky", "--wait"]);
    let jobs = scene.run(&["jobs", "--json"]).stdout;
    assert!(jobs.contains("Use ") && jobs.contains(" now."), "{jobs}");
    assert!(!jobs.contains("canary-in-a-prompt"), "{jobs}");
}
