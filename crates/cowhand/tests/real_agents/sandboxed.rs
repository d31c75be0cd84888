//! The same programs in a sandbox: they reach their model and their sessions, and nothing else.

use serde_json::{Value, json};

use super::models::{Models, Scenario};
use super::{Cli, Scene, status_and_error, wait_until};

/// Declares the tests for programs that work in a sandbox: `opencode acp` listens on a port, which no sandbox
/// network allows.
macro_rules! for_each_held {
    ($($name:ident: $cli:ident),+ $(,)?) => {
        $(mod $name {
            #[test] fn in_landlock() { super::in_landlock(crate::Cli::$cli); }
            #[test] fn in_bubblewrap() { super::in_bubblewrap(crate::Cli::$cli); }
        })+
    };
}

for_each_held!(claude: Claude, codex: Codex, gemini: Gemini, opencode: Opencode, gemini_acp: GeminiAcp);

fn enclosed(cli: Cli, sandbox: impl FnOnce(&Models) -> Value) -> Scene {
    let models = Models::start();
    let (url, mut sandbox) = (models.url(), sandbox(&models));
    // In these tests, the config of OpenCode is in this file.
    sandbox["read"] = json!(["../home/opencode.json"]);
    Scene::at(cli, models, &url, &json!({"sandbox": sandbox, "session": {"policy": "continue"}}))
}

/// Runs a tool, then a second job that continues the session, which was kept in the program's own folder.
fn works(scene: &Scene) {
    let job = scene.run("SCENARIO:tool");
    let output = scene.output(&job);
    assert_eq!(status_and_error(&job), ["completed", "success", ""], "{job:#}\n{output:#?}");
    // Other tests cover how the Gemini CLI reports tools and sessions by ACP.
    if scene.cli == Cli::GeminiAcp {
        return;
    }
    let answer = output.iter().find(|line| line["type"] == "tool_result").expect("an answer of the tool");
    assert!(answer["result"].to_string().contains("from-the-tool"), "{output:#?}");
    let next = scene.run("Say hello.");
    assert_eq!(status_and_error(&next), ["completed", "success", ""], "{next:#}");
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

/// The key reaches the model and never the agent: not its variables, not its arguments, no file.
fn keys_stay_outside(cli: Cli) {
    let key = format!("canary-{}-key", std::process::id());
    let models = Models::start();
    let url = models.url();
    let sandbox = json!({"kind": "bubblewrap", "credentials": "outside", "read": ["../home/opencode.json"]});
    let settings = json!({
        "sandbox": sandbox, "session": {"policy": "continue"}, "env": {"OPENAI_BASE_URL": format!("{url}/v1")},
    });
    let scene = Scene::build(cli, models, &url, &settings, "", &key);
    // Remove the provider from OpenCode's own file, so that OpenCode gets it only from cowhand's settings.
    let file = scene.root.join("home/opencode.json");
    let mut told: Value = serde_json::from_str(&std::fs::read_to_string(&file).unwrap()).unwrap();
    told["provider"]["fake"].as_object_mut().unwrap().shift_remove("options");
    std::fs::write(&file, told.to_string()).unwrap();
    works(&scene);
    let keys: Vec<_> = scene.models.served().into_iter().filter_map(|served| served.key).collect();
    let header = match cli {
        Cli::Claude => "x-api-key: ",
        Cli::Gemini | Cli::GeminiAcp => "x-goog-api-key: ",
        Cli::Codex | Cli::Opencode | Cli::OpencodeAcp => "authorization: Bearer ",
    };
    assert!(!keys.is_empty() && keys.iter().all(|sent| *sent == format!("{header}{key}")), "{keys:?}");
    let id = scene.trigger("SCENARIO:slow");
    let seen = wait_until("the program", || {
        let processes = super::left_over(scene.folder.path()).into_iter().filter_map(|pid| {
            let read = |file: &str| std::fs::read(format!("/proc/{}/{file}", pid.as_raw_nonzero())).ok();
            let words = read("cmdline")?;
            let is_daemon = String::from_utf8_lossy(&words).contains("start");
            (!is_daemon).then(|| [words, read("environ").unwrap_or_default()].concat())
        });
        let all = String::from_utf8_lossy(&processes.flatten().collect::<Vec<u8>>()).into_owned();
        let asked = scene.models.served().iter().any(|served| served.scenario == Scenario::Slow);
        (asked && all.contains("withheld-by-cowhand")).then_some(all)
    });
    assert!(!seen.contains(&key), "{}", seen.replace('\0', "\n"));
    let files = super::canaries::files(&scene.root);
    assert!(files.len() > 10, "{files:?}");
    for file in files {
        let holds = |text: &Vec<u8>| memchr::memmem::find(text, key.as_bytes()).is_some();
        assert!(!std::fs::read(&file).is_ok_and(|text| holds(&text)), "{} holds the key", file.display());
    }
    scene.command(&["cancel", &id]).output().unwrap();
    scene.finished(&id);
}

#[test]
fn claude_works_with_key_outside_sandbox() {
    keys_stay_outside(Cli::Claude);
}

#[test]
fn codex_works_with_key_outside_sandbox() {
    keys_stay_outside(Cli::Codex);
}

#[test]
fn gemini_works_with_key_outside_sandbox() {
    keys_stay_outside(Cli::Gemini);
}

#[test]
fn gemini_by_acp_works_with_key_outside_sandbox() {
    keys_stay_outside(Cli::GeminiAcp);
}

#[test]
fn opencode_works_with_key_outside_sandbox() {
    keys_stay_outside(Cli::Opencode);
}
