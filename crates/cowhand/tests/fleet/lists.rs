//! JSON answers contain every list, even an empty one, so that a program need not check whether a list exists.

use serde_json::json;

use super::Scene;

#[test]
fn empty_lists_are_in_the_json() {
    let scene = Scene::with("agents:\n  - {name: a, runtime: command, command: ['true']}\n");
    scene.start();
    let status = scene.json(&["status"]);
    for list in [
        "parked",
        "given_up",
        "untold",
        "gone",
        "gone_schedules",
        "skipped_files",
        "unfinished_workspaces",
        "undelivered_notifications",
    ] {
        assert_eq!(status[list], json!([]), "{list}: {status}");
    }
    let job = scene.json(&["trigger", "a", "--wait"]);
    let job = scene.json(&["job", job["id"].as_str().unwrap()]);
    for list in ["asks", "denials", "followed_by", "hooks"] {
        assert_eq!(job[list], json!([]), "{list}: {job}");
    }
    let stopped = scene.json(&["stop"]);
    assert_eq!((&stopped["unsettled"], &stopped["cancelled"]), (&json!([]), &json!([])), "{stopped}");
}
