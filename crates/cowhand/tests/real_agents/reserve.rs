//! The usage windows that real programs report, and the reserve of their provider.

use serde_json::{Value, json};

use super::{Cli, Scene, wait_until};

fn reports_windows(cli: Cli) {
    // Only subscription accounts get reports about windows.
    let env = match cli {
        Cli::Claude => json!({"ANTHROPIC_API_KEY": "", "CLAUDE_CODE_OAUTH_TOKEN": "fake"}),
        _ => json!({}),
    };
    let scene = Scene::with(cli, &json!({"env": env}));
    scene.change(|fleet| {
        fleet["providers"] = json!({cli.name(): {"reserve": "20%"}});
        fleet["agents"][0]["schedules"] = json!({
            "work": {"type": "manual", "prompt": "SCENARIO:windows"},
            "after": {"type": "dispatch_result", "schedule": "work", "prompt": "SCENARIO:text"},
        });
    });
    let done = scene.json(&["trigger", "coder", "work", "--wait"]);
    assert_eq!(done["status"], "completed", "{done:#}");
    let windows = wait_until("the windows", || {
        let usage = scene.json(&["status"])["provider_usage"][0].clone();
        usage["reached"].is_object().then(|| usage["windows"].as_array().unwrap().clone())
    });
    let shown: Vec<(&Value, &Value)> =
        windows.iter().map(|window| (&window["window"], &window["used_percent"])).collect();
    assert_eq!(shown, [(&json!("five_hour"), &json!(90.0)), (&json!("weekly"), &json!(40.0))]);
    let held = wait_until("the automatic job to wait", || {
        let jobs = scene.json(&["jobs", "--schedule", "after"]);
        jobs.get(0).filter(|job| job["waits"]["reason"] == "reserve_reached").cloned()
    });
    assert_eq!(held["status"], "pending", "{held:#}");
    let by_hand = scene.json(&["trigger", "coder", "-p", "SCENARIO:text", "--wait"]);
    assert_eq!(by_hand["status"], "completed", "{by_hand:#}");
}

#[test]
fn claude_reports_windows_of_its_account() {
    reports_windows(Cli::Claude);
}

#[test]
fn codex_reports_windows_of_its_account() {
    reports_windows(Cli::Codex);
}
