//! Failures of the model, of the connection to it, and cancellations.

use serde_json::{Value, json};

use super::{Cli, Scene, for_each_cli, status_and_error, wait_until};

for_each_cli!(
    errors_of_the_model,
    nobody_listens,
    a_stream_is_cut,
    cancelled_while_it_speaks,
    cancelled_while_its_tool_runs,
);

fn errors_of_the_model(cli: Cli) {
    let scene = Scene::new(cli);
    // Otherwise the job would wait for the end of the limit.
    scene.change(|fleet| fleet["providers"] = json!({cli.name(): {"on_limit": "fail"}}));
    for code in [400, 401, 429, 500, 529] {
        let job = scene.run(&format!("SCENARIO:err{code}"));
        let limited = matches!(code, 429 | 529);
        let kind = if limited { "rate_limited" } else { "reported" };
        assert_eq!(status_and_error(&job), ["failed", "error", kind], "{code}: {job:#}");
        // Codex has its own message for an error of the server.
        if !(cli == Cli::Codex && code == 500) {
            let message = job["error"]["message"].as_str().unwrap();
            assert!(message.contains(&code.to_string()), "{code}: {message}");
        }
        let output = scene.output(&job);
        assert!(output.iter().any(|line| line["type"] == "error"), "{code}: {output:#?}");
    }
}

const GIVES_UP: [&str; 3] = ["failed", "error", "reported"];
const TIMED_OUT: [&str; 3] = ["failed", "timeout", "timeout"];

/// Returns a short timeout for programs that never end by themselves.
fn timeout(expected: [&str; 3]) -> Value {
    if expected == TIMED_OUT { json!({"timeout": "20s"}) } else { json!({}) }
}

/// Some programs give up, and some retry without end. The latter are ended by cowhand's timeout.
fn nobody_listens(cli: Cli) {
    let expected = match cli {
        Cli::Claude | Cli::Gemini | Cli::GeminiAcp => GIVES_UP,
        Cli::Codex | Cli::Opencode | Cli::OpencodeAcp => TIMED_OUT,
    };
    let scene = Scene::alone(cli, &timeout(expected));
    let job = scene.run("Say hello.");
    assert_eq!(status_and_error(&job), expected, "{job:#}");
}

fn a_stream_is_cut(cli: Cli) {
    let expected = match cli {
        Cli::Claude | Cli::Codex | Cli::Gemini | Cli::GeminiAcp => GIVES_UP,
        // The program retries without end, with a longer pause each time.
        Cli::Opencode | Cli::OpencodeAcp => TIMED_OUT,
    };
    let scene = Scene::with(cli, &timeout(expected));
    let job = scene.run("SCENARIO:cut");
    assert_eq!(status_and_error(&job), expected, "{job:#}");
}

fn cancelled_while_it_speaks(cli: Cli) {
    let scene = Scene::new(cli);
    let id = scene.trigger("SCENARIO:slow");
    wait_until("the model to speak", || (!scene.models.served().is_empty()).then_some(()));
    scene.json(&["cancel", &id]);
    let job = scene.finished(&id);
    assert_eq!(status_and_error(&job)[..2], ["cancelled", "cancelled"], "{job:#}");
    let asked = scene.models.served().len();
    assert_eq!(scene.run("Say hello.")["status"], "completed");
    let after = scene.models.served().split_off(asked);
    assert!(after.iter().all(|served| !served.body.to_string().contains("SCENARIO:slow")), "it went on");
}

/// The tool's child has its own session, and is ended too.
fn cancelled_while_its_tool_runs(cli: Cli) {
    let scene = Scene::new(cli);
    let id = scene.trigger("SCENARIO:setsid");
    wait_until("the tool's child to be there", || {
        let pid = std::fs::read_to_string(scene.root.join("desk/child.pid")).ok()?;
        (!pid.trim().is_empty()).then_some(())
    });
    scene.json(&["cancel", &id]);
    let job = scene.finished(&id);
    assert_eq!(status_and_error(&job)[..2], ["cancelled", "cancelled"], "{job:#}");
    let said: Vec<Value> = scene.output(&job);
    assert!(said.iter().all(|line| line["content"] != "The tool has answered."), "{said:#?}");
}
