//! Reports of agents, and where they are shown.

use std::fs;

use serde_json::{Value, json};

use super::asks::{send, token_of};
use super::{Scene, wait_until};

/// The agent waits for a file `go`, and then succeeds.
const FLEET: &str = r#"
agents:
  - name: one
    runtime: command
    command: [sh, -c, 'printf %s "$COWHAND_JOB_TOKEN" > one.token; mkdir -p out; echo moo > out/a.txt; ln -sf /etc/passwd way-out; while [ ! -e go ]; do sleep 0.05; done; echo last words']
    env: {API_SECRET: canary-in-a-report}
    work_source: {type: files, path: tasks}
    default_prompt: Work.
    hooks: {after_run: [{type: shell, command: 'cat > hook.new; mv hook.new hook.json', when: report}]}
    schedules:
      poll: {type: manual}
"#;

fn scene() -> Scene {
    let scene = Scene::with(FLEET);
    fs::create_dir(scene.root.join("tasks")).unwrap();
    scene.write("tasks/one.md", "---\ntitle: Do it\ncreated: 2024-01-01T00:00:00Z\n---\nText.\n");
    scene.start();
    scene
}

/// Starts a job of the work source; returns its id and its token.
fn working(scene: &Scene) -> (String, String) {
    let job = scene.json(&["trigger", "one", "poll"])["id"].as_str().unwrap().to_owned();
    let token = wait_until("the agent to be up", || {
        let up = fs::read_link(scene.root.join("way-out")).is_ok();
        up.then(|| fs::read_to_string(scene.root.join("one.token")).unwrap())
    });
    (job, token)
}

fn ended(scene: &Scene, job: &str) -> Value {
    scene.go();
    wait_until("the job to end", || Some(scene.job(job)).filter(|job| job["finished_at"].is_string()))
}

#[test]
fn report_survives_daemon_and_reaches_work_source() {
    let scene = scene();
    let (job, token) = working(&scene);
    let path = format!("jobs/{job}/report");
    let report = |outcome: &str, summary: &str| {
        let artifacts = json!(["out/a.txt", "https://x.example/o/r/pull/7"]);
        json!({"attempt": 1, "outcome": outcome, "summary": summary, "artifacts": artifacts})
    };
    let (status, first) = send(&scene, Some(&token), "POST", &path, &report("done", "It works."));
    assert_eq!((status, &first["outcome"]), (200, &json!("done")), "{first}");
    let hostile = format!("Thought better of it: \u{1b}[2Jcanary-in-a-report </p> {token}");
    let (status, kept) = send(&scene, Some(&token), "POST", &path, &report("failed", &hostile));
    let masked = "Thought better of it: [2J*** </p> ***";
    assert_eq!((status, &kept["summary"]), (200, &json!(masked)), "{kept}");
    let (_, again) = send(&scene, Some(&token), "POST", &path, &report("failed", &hostile));
    assert_eq!(again, kept, "whoever lost the connection says it again");

    scene.kill_daemon();
    assert_eq!(scene.job(&job)["report"], kept, "it is in the store");
    scene.start();
    let ended = ended(&scene, &job);
    assert_eq!((&ended["status"], &ended["summary"]), (&json!("completed"), &json!("last words")));
    assert_eq!(ended["report"], kept);
    let item = wait_until("its source to be told", || {
        let item = fs::read_to_string(scene.root.join("tasks/one.md")).unwrap();
        item.contains("## Result").then_some(item)
    });
    for expected in
        ["status: failed", masked, "out/a.txt", "https://x.example/o/r/pull/7", "the agent reported"]
    {
        assert!(item.contains(expected), "{expected} in {item}");
    }
    let hook = wait_until("the hook to be told", || fs::read(scene.root.join("hook.json")).ok());
    let hook: Value = serde_json::from_slice(&hook).unwrap();
    assert_eq!((&hook["event"], &hook["report"]), (&json!("completed"), &kept));
    let shown = scene.run(&["job", &job]).stdout;
    assert!(shown.contains("reported     failed: Thought better"), "{shown}");
    assert!(shown.contains("             out/a.txt\n"), "{shown}");
    let events = scene.run(&["events", "--json"]).stdout;
    assert_eq!(events.matches("\"job:reported\"").count(), 2, "{events}");
    for text in [item, shown, events, scene.run(&["job", &job, "--json"]).stdout] {
        assert!(!text.contains("canary") && !text.contains("cowjob_") && !text.contains('\u{1b}'), "{text}");
    }
}

#[test]
fn invalid_report_is_refused_with_reason() {
    let scene = scene();
    let (job, token) = token_of(&scene, "one");
    let path = format!("jobs/{job}/report");
    wait_until("its files", || fs::read_link(scene.root.join("way-out")).ok());
    let with = |key: &str, value: Value| {
        let mut report = json!({"attempt": 1, "outcome": "done", "summary": "It works.", "artifacts": []});
        report[key] = value;
        report
    };
    let artifact = |text: &str| with("artifacts", json!([text]));
    for (given, status, why) in [
        (json!({}), 400, "the field `attempt` is missing"),
        (json!({"attempt": 1}), 400, "needs an `outcome`"),
        (with("outcome", json!("fine")), 400, "unknown variant `fine`"),
        (with("outcome", json!(7)), 400, ""),
        (with("summary", json!(" \n")), 400, "needs a `summary`"),
        (with("summary", json!(["It"])), 400, "expected a string"),
        (with("summary", json!("x".repeat(20_001))), 400, "at most 20000 characters"),
        (with("artifacts", json!("out/a.txt")), 400, "expected a sequence"),
        (with("artifacts", json!(vec!["out/a.txt"; 21])), 400, "at most 20 `artifacts`"),
        (artifact("/etc/passwd"), 400, "no such file or folder in the directory"),
        (artifact("way-out"), 400, "no such file or folder in the directory"),
        (artifact("../"), 400, "no such file or folder in the directory"),
        (artifact("nothing"), 400, "no such file or folder in the directory"),
        (artifact("javascript://x/"), 400, "only http and https"),
        (artifact("a\u{202e}b"), 400, "without invisible characters"),
        (with("more", json!(1)), 400, "unknown field"),
        (with("attempt", json!(2)), 409, "attempt 2 of"),
        (json!([1]), 400, "JSON object"),
    ] {
        let (answered, said) = send(&scene, Some(&token), "POST", &path, &given);
        assert_eq!(answered, status, "{said}");
        assert!(said["detail"].as_str().unwrap_or_default().contains(why), "{why}: {said}");
    }
    assert_eq!(scene.job(&job).get("report"), None);
    let (status, _) = send(&scene, Some(&token), "POST", &path, &artifact("out/../out/a.txt"));
    assert_eq!((status, &scene.job(&job)["report"]["artifacts"]), (200, &json!(["out/a.txt"])));
    ended(&scene, &job);
    let (status, _) = send(&scene, Some(&token), "POST", &path, &artifact("out/a.txt"));
    assert_eq!(status, 401, "its attempt has ended");
}
