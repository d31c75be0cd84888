//! The restrictions of a schedule also apply to follow-ups of its jobs, and after the schedule was removed from the
//! config.

use std::fs;

use serde_json::{Value, json};

use super::asks::send;
use super::{Scene, wait_until};

/// Script that tries to write outside of its directory, asks for a follow-up for itself, and fails the second
/// time.
const WAKES_ITSELF: &str = r#"
echo ran >> heard
(echo x > ../"free-$(wc -l < heard)") 2> /dev/null
curl -s --unix-socket "$COWHAND_SOCKET" -H "authorization: Bearer $COWHAND_JOB_TOKEN" \
  -H 'content-type: application/json' -d '{"attempt":1,"key":"k","prompt":"Again."}' \
  "http://x/api/v1/jobs/$COWHAND_JOB_ID/followups" > asked-"$(wc -l < heard)"
[ "$(wc -l < heard)" = 1 ]
"#;

/// The rules of the schedule apply to a follow-up. But a follow-up is not a firing, so neither its end nor its failure
/// counts for the schedule.
#[test]
fn followup_keeps_restrictions_of_its_schedule() {
    let agent = json!({
        "name": "one", "runtime": "command", "command": ["sh", "ask.sh"], "working_directory": "desk",
        "followups": {"max": 1, "min_interval": "1s"},
        "schedules": {"poll": {
            "type": "interval", "interval": "1h", "prompt": "Go.", "sandbox": "bubblewrap", "breaker": {"failures": 1},
        }},
    });
    let scene = Scene::with(&format!("agents: {}", json!([agent])));
    fs::create_dir(scene.root.join("desk")).unwrap();
    scene.write("desk/ask.sh", WAKES_ITSELF);
    scene.start();
    let jobs = wait_until("both jobs to end", || {
        let jobs = scene.json(&["jobs"]);
        let all = jobs.as_array().unwrap();
        (all.len() == 2 && all.iter().all(|job| job["finished_at"].is_string())).then_some(jobs)
    });
    let heard = fs::read_to_string(scene.root.join("desk/heard")).unwrap();
    assert_eq!(heard, "ran\nran\n", "{jobs:#}");
    for run in ["free-1", "free-2"] {
        assert!(!scene.root.join(run).exists(), "{run} {jobs:#}");
    }
    let (second, first) = (&jobs[0], &jobs[1]);
    assert_eq!((&first["status"], &second["status"]), (&json!("completed"), &json!("failed")), "{jobs:#}");
    assert_eq!((&first["schedule"], &second["schedule"]), (&json!("poll"), &json!("poll")));
    assert_eq!((&first["trigger_type"], &second["trigger_type"]), (&json!("schedule"), &json!("manual")));
    let schedule = scene.json(&["schedule", "show", "one/poll"]);
    let time = |value: &Value| value.as_str().unwrap().parse::<jiff::Timestamp>().unwrap();
    // A schedule counts from the time at which the end of its job was noticed.
    let last_run = time(&schedule["last_run_at"]);
    let (end, next_end) = (time(&first["finished_at"]), time(&second["finished_at"]));
    assert!(end <= last_run && last_run < next_end, "{schedule:#}");
    assert_eq!(
        (&schedule["status"], &schedule["last_error"]),
        (&json!("idle"), &Value::Null),
        "{schedule:#}"
    );
}

/// Agent of the Agent Client Protocol that stores its token and waits for `go`.
const WAITS: &str = r#"
say() { printf '%s\n' "$1"; }
hear() { IFS= read -r heard || exit 9; }
answer() { say '{"jsonrpc":"2.0","id":'"$1"',"result":'"$2"'}'; }
hear; answer 1 '{"protocolVersion":1,"agentInfo":{"name":"scripted","version":"1"},"agentCapabilities":{}}'
hear; answer 2 '{"sessionId":"s-1"}'
hear
printf %s "$COWHAND_JOB_TOKEN" > token
while [ ! -e go ]; do sleep 0.05; done
answer 3 '{"stopReason":"end_turn"}'
cat > /dev/null
"#;

fn fleet(schedules: &Value) -> String {
    let agent = json!({
        "name": "one", "runtime": "acp", "command": ["sh", "agent.sh"], "permission_mode": "ask",
        "permissions": {"allow": ["execute(cargo *)"], "deny": ["execute(rm *)"]}, "schedules": schedules,
    });
    format!("agents: {}", json!([agent]))
}

/// Starts a job of the schedule `narrow`; returns it with its token.
fn narrow() -> (Scene, String, String) {
    let scene = Scene::with(&fleet(&json!({
        "narrow": {"type": "manual", "prompt": "Go.", "permissions": {"deny": ["execute(cargo publish *)"]}},
        "wide": {"type": "manual", "prompt": "Go."},
    })));
    scene.write("agent.sh", WAITS);
    scene.start();
    let job = scene.json(&["trigger", "one", "narrow"])["id"].as_str().unwrap().to_owned();
    let token = wait_until("the agent to be up", || {
        fs::read_to_string(scene.root.join("token")).ok().filter(|token| !token.is_empty())
    });
    (scene, job, token)
}

fn verdict(scene: &Scene, job: &str, token: &str, command: &str) -> Value {
    let wants = json!({"attempt": 1, "key": command, "tool": "execute", "input": {"command": command}});
    let (status, heard) = send(scene, Some(token), "POST", &format!("jobs/{job}/asks"), &wants);
    assert_eq!(status, 200, "{heard}");
    heard["verdict"].clone()
}

#[test]
fn jobs_of_removed_schedule_stay_restricted() {
    let (scene, job, token) = narrow();
    for (command, expected) in [("cargo test", "allowed"), ("cargo publish", "denied"), ("rm x", "denied")] {
        assert_eq!(verdict(&scene, &job, &token, command), expected, "{command}");
    }
    let waits = scene.json(&["trigger", "one", "narrow"])["id"].as_str().unwrap().to_owned();
    scene.write("cowhand.yaml", &fleet(&json!({"wide": {"type": "manual", "prompt": "Go."}})));
    assert_eq!(scene.run(&["reload"]).code, Some(0));
    // The rules of the schedule are unknown now, so a person is asked; the agent's own rules still apply.
    for (command, expected) in [("cargo test", "asked"), ("cargo publish", "asked"), ("rm x", "denied")] {
        assert_eq!(verdict(&scene, &job, &token, command), expected, "{command}");
    }
    fs::write(scene.root.join("go"), "").unwrap();
    wait_until("the job to end", || Some(scene.job(&job)).filter(|job| job["finished_at"].is_string()));
    let waiting =
        wait_until("the other to wait", || scene.job(&waits)["waits"]["message"].as_str().map(str::to_owned));
    assert!(waiting.starts_with("its schedule is no longer in the config"), "{waiting}");
    let said = scene.run(&["retry", &job]);
    assert_eq!(said.code, Some(5), "{}{}", said.stdout, said.stderr);
    assert!(said.stderr.contains("narrow"), "{}", said.stderr);
    assert_eq!(scene.json(&["jobs"]).as_array().unwrap().len(), 2, "no third job");
    // The job is not lost: it continues when its schedule comes back.
    assert_eq!(scene.job(&waits)["status"], "pending");
    scene.write("cowhand.yaml", &fleet(&json!({"narrow": {"type": "manual", "prompt": "Go."}})));
    assert_eq!(scene.run(&["reload"]).code, Some(0));
    let done = wait_until("the other to end", || {
        Some(scene.job(&waits)).filter(|job| job["finished_at"].is_string())
    });
    assert_eq!(done["status"], "completed", "{done:#}");
}

/// Repeated denials give one event, and one line with a count.
#[test]
fn denials_are_recorded_and_counted() {
    let (scene, job, token) = narrow();
    for command in ["rm x", "rm y", "cargo publish", "rm z"] {
        assert_eq!(verdict(&scene, &job, &token, command), "denied", "{command}");
    }
    let audit = scene.run(&["events", "--audit"]).stdout;
    assert_eq!(audit.matches("ask:denied").count(), 2, "{audit}");
    let events = scene.run(&["events", "--json"]).stdout;
    assert!(events.contains(r#""type":"ask:denied","tool":"execute","rule":"execute(rm *)""#), "{events}");
    let shown = scene.run(&["job", &job]).stdout;
    for line in [
        "denied       execute, by the rule execute(rm *), 3 times\n",
        "denied       execute, by the rule execute(cargo publish *)\n",
    ] {
        assert!(shown.contains(line), "{shown}");
    }
    let denials = scene.job(&job)["denials"].clone();
    assert_eq!((&denials[0]["times"], &denials[1]["times"]), (&json!(3), &json!(1)), "{denials:#}");
    fs::write(scene.root.join("go"), "").unwrap();
    wait_until("the job to end", || Some(scene.job(&job)).filter(|job| job["finished_at"].is_string()));
}
