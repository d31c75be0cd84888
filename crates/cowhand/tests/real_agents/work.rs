//! Jobs with a text answer, and with a tool.

use serde_json::{Value, json};

use super::models::Scenario;
use super::{Cli, Scene, USED, for_each_cli, status_and_error, tokens};

for_each_cli!(a_text, a_tool, keys_reach_the_model, doctor_knows_it);

fn a_text(cli: Cli) {
    let scene = Scene::new(cli);
    let job = scene.run("Say hello.");
    assert_eq!(status_and_error(&job), ["completed", "success", ""], "{job:#}");
    assert_eq!(job["summary"], "Hello from the model.");
    assert!(job["session_id"].is_string(), "{job:#}");
    assert_eq!(tokens(&job), USED, "{job:#}");
    let cost = job["usage"]["total_cost_usd"].as_f64().unwrap();
    if cli == Cli::Claude {
        assert!(cost > 0.0, "{job:#}");
    } else {
        // OpenCode reports this cost itself. For the other programs, cowhand calculates it from the prices.
        assert!((cost - 0.000_95).abs() < 1e-9, "{job:#}");
    }
    let output = scene.output(&job);
    let said = |line: &&Value| line["type"] == "assistant" && line["partial"] != true;
    let said: Vec<_> = output.iter().filter(said).map(|line| line["content"].clone()).collect();
    assert_eq!(said, ["Hello from the model."], "{output:#?}");
}

fn a_tool(cli: Cli) {
    let scene = Scene::new(cli);
    let job = scene.run("SCENARIO:tool");
    assert_eq!(status_and_error(&job), ["completed", "success", ""], "{job:#}");
    assert_eq!(job["summary"], "The tool has answered.");
    // In this protocol OpenCode reports the dollars of the whole turn, and the tokens of its last step.
    let steps = if cli == Cli::OpencodeAcp { 1 } else { 2 };
    assert_eq!(tokens(&job), USED.map(|tokens| tokens * steps), "{job:#}");
    if cli == Cli::OpencodeAcp {
        let cost = job["usage"]["total_cost_usd"].as_f64().unwrap();
        assert!((cost - 0.0019).abs() < 1e-9, "{job:#}");
    }
    let output = scene.output(&job);
    let one = |kind: &str| {
        let found: Vec<_> = output.iter().filter(|line| line["type"] == kind).collect();
        assert_eq!(found.len(), 1, "{kind}: {output:#?}");
        found[0]
    };
    let (call, answer) = (one("tool_use"), one("tool_result"));
    // The Gemini CLI reports only the title of the call, and not the answer of the tool.
    let input = if cli == Cli::GeminiAcp { "title" } else { "command" };
    assert!(call["input"][input].as_str().unwrap().contains("echo from-the-tool"), "{call:#}");
    assert_eq!((&answer["tool_use_id"], &answer["success"]), (&call["tool_use_id"], &json!(true)));
    assert!(call["tool_use_id"].is_string(), "{call:#}");
    assert!(cli == Cli::GeminiAcp || answer["result"].to_string().contains("from-the-tool"), "{answer:#}");
    let asked = scene.models.served().iter().filter(|served| served.scenario == Scenario::Tool).count();
    assert!(asked >= 2, "{asked}");
}

/// The model's name and the system prompt reach the model; MCP servers are started with their secrets, which
/// are in no arguments.
fn keys_reach_the_model(cli: Cli) {
    let script = "printf %s \"$TOKEN\" > mcp-token; exit 3";
    let server = json!({"command": "sh", "args": ["-c", script], "env": {"TOKEN": "canary-in-a-server"}});
    // The protocol has no field for a system prompt; `config check` says so.
    let (mut settings, words) = if cli.is_acp() {
        (json!({}), "SCENARIO:slow")
    } else {
        (json!({"system_prompt": "You are a patient cowhand."}), "You are a patient cowhand.")
    };
    if cli != Cli::Gemini {
        settings["mcp_servers"] = json!({ "broken": server });
    }
    let scene = Scene::with(cli, &settings);
    let id = scene.trigger("SCENARIO:slow");
    super::wait_until("the model to be asked", || (!scene.models.served().is_empty()).then_some(()));
    let arguments = super::left_over(scene.folder.path())
        .into_iter()
        .map(|pid| std::fs::read(format!("/proc/{}/cmdline", pid.as_raw_nonzero())).unwrap_or_default());
    let arguments = arguments.map(|words| String::from_utf8_lossy(&words).into_owned()).collect::<String>();
    assert!(arguments.contains(cli.name()), "{arguments}");
    assert!(!arguments.contains("canary"), "{arguments}");
    let asked = super::wait_until("the prompt to be served", || {
        let requests = scene.models.served();
        requests.into_iter().find(|served| served.body.to_string().contains(words))
    });
    let model = cli.model().rsplit('/').next().unwrap();
    assert!(
        asked.path.contains(model) || asked.body["model"] == model,
        "{} {}",
        asked.path,
        asked.body["model"]
    );
    if cli != Cli::Gemini {
        let file = scene.root.join("desk/mcp-token");
        super::wait_until("the server to be started", || {
            let token = std::fs::read_to_string(&file).ok()?;
            (token == "canary-in-a-server").then_some(())
        });
    }
    scene.json(&["cancel", &id]);
    let job = scene.finished(&id);
    assert_eq!(status_and_error(&job)[..2], ["cancelled", "cancelled"], "{job:#}");
    let private = scene.root.join(format!(".cowhand/attempts/{id}.1/private"));
    assert!(!private.exists(), "the server's secrets are still in {}", private.display());
}

fn doctor_knows_it(cli: Cli) {
    let scene = Scene::new(cli);
    let findings = scene.json(&["doctor"]);
    let agent = findings.as_array().unwrap().iter().find(|finding| finding["what"] == "agent coder").unwrap();
    assert_eq!((&agent["ok"], &agent["warning"]), (&json!(true), &json!(false)), "{agent:#}");
    let version = match cli {
        Cli::Claude => "claude 2.1.325 at ",
        Cli::Codex => "codex 0.166.0 at ",
        Cli::Gemini => "gemini 0.61.0 at ",
        Cli::Opencode => "opencode 1.18.33 at ",
        Cli::GeminiAcp => "gemini-cli 0.61.0 at ",
        Cli::OpencodeAcp => "OpenCode 1.18.33 at ",
    };
    assert!(agent["detail"].as_str().unwrap().starts_with(version), "{agent:#}");
}

/// Partial messages come while the model answers; the whole message comes once.
#[test]
fn claude_sends_partial_messages() {
    let scene = Scene::with(Cli::Claude, &json!({"partial_messages": true}));
    let job = scene.run("Say hello.");
    assert_eq!(status_and_error(&job), ["completed", "success", ""], "{job:#}");
    assert_eq!(job["summary"], "Hello from the model.");
    assert_eq!(tokens(&job), USED, "{job:#}");
    let output = scene.output(&job);
    let said = |partial: bool| {
        let of =
            output.iter().filter(|line| line["type"] == "assistant" && (line["partial"] == true) == partial);
        of.filter_map(|line| line["content"].as_str()).collect::<Vec<_>>()
    };
    assert_eq!(said(false), ["Hello from the model."], "{output:#?}");
    assert_eq!(said(true).concat(), "Hello from the model.", "{output:#?}");
    assert!(said(true).len() > 1, "{output:#?}");
    let seen = scene.command(&["logs", job["id"].as_str().unwrap()]).output().unwrap();
    assert_eq!(
        String::from_utf8(seen.stdout).unwrap().matches("Hello from the model.").count(),
        2,
        "and the summary"
    );
}
