//! The same programs, held: they reach their model and their sessions, and nothing else.

use serde_json::{Value, json};

use super::models::Models;
use super::{Cli, Scene, came_to, for_each_cli, until};

for_each_cli!(in_landlock, in_bubblewrap);

fn enclosed(cli: Cli, sandbox: impl FnOnce(&Models) -> Value) -> Scene {
    let models = Models::start();
    let (url, mut sandbox) = (models.url(), sandbox(&models));
    // Where its config is, in these tests.
    sandbox["read"] = json!(["../home/opencode.json"]);
    Scene::at(cli, models, &url, &json!({"sandbox": sandbox, "session": {"policy": "continue"}}))
}

/// A tool, then a second job that goes on with the session: it was kept where the program keeps its own.
fn works(scene: &Scene) {
    let job = scene.run("SCENARIO:tool");
    let output = scene.output(&job);
    assert_eq!(came_to(&job), ["completed", "success", ""], "{job:#}\n{output:#?}");
    let answer = output.iter().find(|line| line["type"] == "tool_result").expect("an answer of the tool");
    assert!(answer["result"].to_string().contains("from-the-tool"), "{output:#?}");
    let next = scene.run("Say hello.");
    assert_eq!(came_to(&next), ["completed", "success", ""], "{next:#}");
    assert_eq!(next["session_id"], job["session_id"], "{:#?}", scene.output(&next));
}

fn in_landlock(cli: Cli) {
    let scene = enclosed(cli, |models| json!({"kind": "landlock", "network": {"ports": [models.port()]}}));
    works(&scene);
}

fn in_bubblewrap(cli: Cli) {
    let scene = enclosed(
        cli,
        |models| json!({"kind": "bubblewrap", "network": {"hosts": [format!("127.0.0.1:{}", models.port())]}}),
    );
    works(&scene);
}

/// The key reaches the model and never the agent.
fn keys_stay_outside(cli: Cli) {
    let scene = enclosed(cli, |_| json!({"kind": "bubblewrap", "credentials": "outside"}));
    works(&scene);
    let keys: Vec<_> = scene.models.served().into_iter().filter_map(|served| served.key).collect();
    let header = if cli == Cli::Claude { "x-api-key: fake" } else { "x-goog-api-key: fake" };
    assert!(!keys.is_empty() && keys.iter().all(|key| key == header), "{keys:?}");
    let id = scene.trigger("SCENARIO:slow");
    let variables = until("the program", || {
        let processes = super::left_over(scene.folder.path()).into_iter().filter_map(|pid| {
            let pid = pid.as_raw_nonzero();
            let words = std::fs::read(format!("/proc/{pid}/cmdline")).ok()?;
            let is_daemon = String::from_utf8_lossy(&words).contains("start");
            (!is_daemon).then(|| std::fs::read(format!("/proc/{pid}/environ")).unwrap_or_default())
        });
        let all: Vec<u8> = processes.flatten().collect();
        let all = String::from_utf8_lossy(&all).into_owned();
        all.contains("withheld-by-cowhand").then_some(all)
    });
    assert!(!variables.contains("_API_KEY=fake"), "{}", variables.replace('\0', "\n"));
    scene.command(&["cancel", &id]).output().unwrap();
    scene.finished(&id);
}

#[test]
fn claude_without_its_key() {
    keys_stay_outside(Cli::Claude);
}

#[test]
fn gemini_without_its_key() {
    keys_stay_outside(Cli::Gemini);
}
