//! `permission_mode: ask` with a real agent of the Agent Client Protocol, whose requests come through cowhand's client.

use serde_json::{Value, json};

use super::asks::{ask, kill_daemon};
use super::{Cli, Scene, status_and_error};

/// Starts a scene with an open ask. OpenCode asks nothing unless its own config requires it.
fn asking() -> (Scene, String, Value) {
    let scene = Scene::with(Cli::GeminiAcp, &json!({"permission_mode": "ask", "allowed_tools": null}));
    let id = scene.trigger("SCENARIO:write");
    let asked = ask(&scene);
    assert_eq!((&asked["job"], &asked["status"]), (&json!(id), &json!("open")), "{asked:#}");
    assert!(asked.to_string().contains("touch was-here.txt"), "{asked:#}");
    assert!(!was_here(&scene), "it asks first");
    (scene, id, asked)
}

fn was_here(scene: &Scene) -> bool {
    scene.root.join("desk/was-here.txt").exists()
}

#[test]
fn acp_ask_can_be_approved_after_daemon_was_killed() {
    let (scene, id, asked) = asking();
    kill_daemon(&scene);
    let said = scene.command(&["start", "-d", "--no-server"]).output().unwrap();
    assert!(said.status.success(), "{}", String::from_utf8_lossy(&said.stderr));
    scene.json(&["approve", asked["id"].as_str().unwrap()]);
    let job = scene.finished(&id);
    assert_eq!(status_and_error(&job), ["completed", "success", ""], "{job:#}\n{:#?}", scene.output(&job));
    assert_eq!((&job["attempt"], was_here(&scene)), (&json!(1), true), "{:#?}", scene.output(&job));
}

#[test]
fn denied_acp_ask_prevents_use_of_tool() {
    let (scene, id, asked) = asking();
    scene.json(&["deny", asked["id"].as_str().unwrap(), "--message", "not before noon"]);
    let job = scene.finished(&id);
    assert!(!was_here(&scene), "{job:#}\n{:#?}", scene.output(&job));
}
