//! Fallbacks for a provider that is used up, and the work that they have begun.
//!
//! Two programs imitate Claude Code and Codex. Claude is used up until there is a file `claude-open`; Codex runs a
//! tool, and is then used up until there is a file `codex-open`. Each program appends its prompt to the file `asked`.
//! Claude gets its prompt in a line of JSON, and its input stays open.

use std::fs;
use std::os::unix::fs::PermissionsExt;

use serde_json::{Value, json};

use crate::{Scene, wait_until};

const CLAUDE: &str = r#"#!/bin/sh
read -r line
echo "claude: $(echo "$line" | sed 's/.*"content":"\([^"]*\)".*/\1/')" >> "$ROOT/asked"
echo '{"type":"system","subtype":"init","session_id":"c-1"}'
if [ -e "$ROOT/claude-open" ]; then
  echo '{"type":"result","subtype":"success","is_error":false,"result":"Claude did it.","session_id":"c-1"}'
else
  echo '{"type":"result","subtype":"success","is_error":true,"api_error_status":429,"result":"You have hit your limit. Try again in 1 day.","session_id":"c-1","usage":{"input_tokens":0,"output_tokens":0},"modelUsage":{}}'
fi
"#;

const CODEX: &str = r#"#!/bin/sh
echo "codex: $(cat) [$(echo "$*" | grep -o 'resume [a-z0-9-]*')]" >> "$ROOT/asked"
echo '{"type":"thread.started","thread_id":"x-1"}'
echo '{"type":"turn.started"}'
if [ -e "$ROOT/slow" ]; then
  echo up > "$ROOT/up"
  while [ ! -e "$ROOT/go" ]; do sleep 0.05; done
fi
if [ -e "$ROOT/codex-open" ]; then
  echo '{"type":"item.completed","item":{"id":"item_2","type":"agent_message","text":"Codex did it."}}'
  echo '{"type":"turn.completed","usage":{"input_tokens":20,"cached_input_tokens":0,"output_tokens":10}}'
  exit 0
fi
echo '{"type":"item.started","item":{"id":"item_1","type":"command_execution","command":"deploy","aggregated_output":"","exit_code":null,"status":"in_progress"}}'
echo deployed >> "$ROOT/deployed"
echo '{"type":"item.completed","item":{"id":"item_1","type":"command_execution","command":"deploy","aggregated_output":"","exit_code":0,"status":"completed"}}'
echo '{"type":"error","message":"You have hit your usage limit. Try again in 2 days."}'
echo '{"type":"turn.failed","error":{"message":"You have hit your usage limit. Try again in 2 days."}}'
exit 1
"#;

/// Starts a fleet: `coder` is Claude with Codex as fallback; `plain` is Claude without a fallback.
fn fleet(more: &Value) -> Scene {
    let scene = Scene::with("");
    for (name, text) in [("claude", CLAUDE), ("codex", CODEX)] {
        let program = scene.root.join("bin").join(name);
        fs::create_dir_all(program.parent().unwrap()).unwrap();
        fs::write(&program, text).unwrap();
        fs::set_permissions(&program, fs::Permissions::from_mode(0o755)).unwrap();
    }
    let root = scene.root.display();
    let path = format!("{root}/bin:{}", std::env::var("PATH").unwrap());
    let env = json!({"ROOT": root.to_string(), "PATH": path, "HOME": root.to_string()});
    let agent = |name: &str, fallback: Value| {
        json!({
            "name": name, "runtime": "claude", "env": env, "default_prompt": "Deploy.",
            "permission_mode": "bypassPermissions", "fallback": fallback,
            "schedules": {"by-hand": {"type": "manual", "prompt": "Deploy."}},
        })
    };
    let agents = [agent("coder", json!([{"runtime": "codex"}])), agent("plain", json!([]))];
    let mut fleet = json!({"agents": agents});
    fleet.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
    // JSON is valid YAML, but the scene adds its own line, so each key is on its own line.
    let keys = fleet.as_object().unwrap().iter().map(|(key, value)| format!("{key}: {value}\n"));
    scene.write("cowhand.yaml", &keys.collect::<String>());
    scene.start();
    scene
}

impl Scene {
    fn lines(&self, name: &str) -> Vec<String> {
        let text = fs::read_to_string(self.root.join(name)).unwrap_or_default();
        text.lines().map(str::to_owned).collect()
    }
}

#[test]
fn fallback_finishes_job_that_it_began() {
    let scene = fleet(&json!({}));
    let job = scene.json(&["trigger", "coder", "by-hand"])["id"].as_str().unwrap().to_owned();
    // Claude refuses the job before any work, so Codex may take it. Codex runs its tool, and is then used up.
    wait_until("both to be used up", || (scene.job(&job)["parks"] == 2).then_some(()));
    let asked = ["claude: Deploy.", "codex: Deploy. []"];
    assert_eq!(scene.lines("asked"), asked);
    // Both providers are used up. The job waits for Codex, because only Codex has the session.
    let waits = |job: &str| scene.job(job)["waits"]["message"].as_str().unwrap().to_owned();
    assert!(waits(&job).starts_with("codex is used up: "), "{}", waits(&job));

    scene.write("claude-open", "");
    assert_eq!(scene.run(&["unpark", "claude"]).code, Some(0));
    // Agents are planned in order: when `plain` runs, `coder` has already been planned.
    let other = scene.json(&["trigger", "plain", "--wait"]);
    assert_eq!(other["summary"], "Claude did it.", "{other:#}");
    assert_eq!(scene.lines("asked").len(), 3, "{:?}", scene.lines("asked"));
    let shown = scene.run(&["job", &job]).stdout;
    assert!(shown.contains("pending") && shown.contains("codex is used up: "), "{shown}");
    assert!(!shown.contains("claude is used up"), "{shown}");
    let why = scene.run(&["why", "coder/by-hand"]).stdout;
    assert!(why.contains("codex is used up: "), "{why}");

    scene.write("codex-open", "");
    assert_eq!(scene.run(&["unpark", "codex"]).code, Some(0));
    let ended = wait_until("it to end", || Some(scene.job(&job)).filter(|job| job["status"] == "completed"));
    assert_eq!(ended["summary"], "Codex did it.", "{ended:#}");
    assert_eq!(scene.lines("deployed"), ["deployed"], "finished work is not done again");
    let asked = scene.lines("asked");
    let last = asked.last().unwrap();
    assert!(last.starts_with("codex: Your provider's usage limit stopped you here."), "{last}");
    assert!(last.ends_with("[resume x-1]"), "{last}");
}

/// A new daemon recognises the runtime with which an attempt was started.
#[test]
fn restarted_daemon_recognises_fallback_of_attempt() {
    let scene = fleet(&json!({"providers": {"codex": {"on_limit": "fail"}}}));
    scene.write("slow", "");
    let job = scene.json(&["trigger", "coder"])["id"].as_str().unwrap().to_owned();
    wait_until("Codex to be up", || scene.root.join("up").exists().then_some(()));
    scene.kill_daemon();
    scene.start();
    scene.write("go", "");
    // The job waits for limits of Claude, but not for those of Codex.
    let ended =
        wait_until("it to be over", || Some(scene.job(&job)).filter(|job| job["status"] != "running"));
    assert_eq!(
        (&ended["status"], &ended["error"]["kind"]),
        (&"failed".into(), &"rate_limited".into()),
        "{ended:#}"
    );
    assert_eq!(ended["parks"], 1, "{ended:#}");
}

/// Another account continues the session while the first one is still used up, so neither prompt nor output states that
/// a limit has ended.
#[test]
fn fallback_account_is_not_told_that_limit_has_ended() {
    let scene = fleet(&json!({}));
    let text = fs::read_to_string(scene.root.join("cowhand.yaml")).unwrap();
    let text = text.replace(r#""fallback":[{"runtime":"codex"}]"#, r#""fallback":[{"provider":"second"}]"#);
    fs::write(scene.root.join("cowhand.yaml"), text).unwrap();
    assert_eq!(scene.run(&["reload"]).code, Some(0));
    let job = scene.json(&["trigger", "coder", "by-hand"])["id"].as_str().unwrap().to_owned();
    wait_until("both accounts to be used up", || (scene.job(&job)["parks"] == 2).then_some(()));
    let asked = scene.lines("asked");
    assert_eq!(asked.len(), 2, "{asked:?}");
    assert!(asked[1].starts_with("claude: Your provider's usage limit stopped you here."), "{asked:?}");
    let said = scene.run(&["logs", &job]).stdout;
    assert!(
        said.contains("a usage limit stopped the previous attempt; this attempt continues its session"),
        "{said}"
    );
    assert!(said.contains("this attempt uses the fallback claude of the provider second"), "{said}");
    for text in [&asked[1], &said] {
        assert!(!text.contains("has ended") && !text.contains("where it began"), "{text}");
    }
}
