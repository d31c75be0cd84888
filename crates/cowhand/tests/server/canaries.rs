//! Secrets are planted wherever people put them, and then all output of this program is searched for them.

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::process::Command;

use serde_json::Value;

use crate::{NEW, OLD, Scene, answer};

/// Secrets are in the config, in `.env` and in the environment; each has its own name, so that a find shows
/// its origin.
const FLEET: &str = r#"
server: {listen: "127.0.0.1:0"}
agents:
  - name: worker
    runtime: command
    # It says all that it was given, in every way.
    command: [sh, -c, "cat; env; env >&2; printf '{\"type\":\"result\",\"result\":\"%s\"}\\n' \"$SERVICE_TOKEN\"; printf '\"%s' \"$HOOK_NEW\""]
    env: {SERVICE_TOKEN: canary-in-agent-env, FROM_FILE: "${DOT_ENV_TOKEN}"}
    default_prompt: Work.
    mcp_servers:
      search: {command: search, env: {SEARCH_KEY: canary-in-mcp-env}}
      remote: {url: "http://me:canary-in-mcp-url@127.0.0.1:9/mcp", headers: {Authorization: canary-in-mcp-header}}
    hooks:
      after_run:
        - {type: webhook, url: "http://me:canary-in-hook-url@127.0.0.1:9/hook", allow_private: true, headers: {Authorization: canary-in-hook-header}}
    schedules:
      by-hand: {type: manual, prompt: "Work on https://me:canary-in-prompt-url@127.0.0.1/ now."}
      hook: {type: webhook, secret_env: "HOOK_NEW, HOOK_OLD", prompt: Look.}
      literal: {type: webhook, secret: canary-in-schedule, prompt: Look.}
  - name: taker
    runtime: command
    command: [sh, -c, cat]
    work_source: {type: github, repo: acme/api, api_url: "http://127.0.0.1:9", auth: {token_env: WORK_ACCESS}}
    schedules:
      issues: {type: interval, interval: 1h, prompt: Work.}
"#;

/// Prefix of all planted secrets.
const CANARY: &str = "canary-";

struct Search {
    /// Places of finds.
    found: Vec<String>,
    searched: usize,
    /// Secrets that are created during the test.
    more: Vec<String>,
}

impl Search {
    fn look(&mut self, place: &str, text: &str) {
        self.searched += 1;
        let secrets = self.more.iter().map(String::as_str).chain([CANARY]);
        for secret in secrets.filter(|secret| text.contains(*secret)) {
            let at = text.find(secret).unwrap();
            let around: String = text[at..].chars().take(60).collect();
            self.found.push(format!("{place}: {around}"));
        }
    }

    /// Searches every file except the database and those that the test itself wrote.
    fn look_through(&mut self, folder: &Path) {
        for entry in fs::read_dir(folder).unwrap().flatten() {
            let path = entry.path();
            let name = path.file_name().unwrap().to_string_lossy().into_owned();
            if path.is_dir() {
                self.look_through(&path);
            } else if path.is_file() && !name.starts_with("store.db") {
                let text = String::from_utf8_lossy(&fs::read(&path).unwrap()).into_owned();
                self.look(&path.display().to_string(), &text);
            }
        }
    }
}

fn addresses(document: &Value, job: &str) -> Vec<String> {
    let paths = document["paths"].as_object().unwrap().iter();
    let read = paths.filter(|(_, methods)| methods["get"].is_object()).map(|(path, _)| path);
    let named = |path: &String| {
        path.replace("{agent}", "worker")
            .replace("{schedule}", "literal")
            .replace("{job}", job)
            .replace("{item}", "github-1")
            .replace("{name}", "tester")
    };
    read.map(named).collect()
}

#[tokio::test]
async fn no_secret_is_ever_shown() {
    let mut scene = Scene::prepared(FLEET);
    let dotenv = format!(
        "HOOK_NEW={NEW}\nDOT_ENV_TOKEN=canary-in-dot-env\nGITHUB_TOKEN=canary-in-dot-env-github\nWORK_ACCESS=canary-of-work-source\n"
    );
    fs::write(scene.path(".env"), dotenv).unwrap();
    scene.set_variable("ANTHROPIC_API_KEY", "canary-in-environment");
    scene.start(&["--log-format", "json"]);
    let token = scene.token("tester", "admin");
    let (_, link, _) = scene.run(&["dashboard"]);
    let code = link.trim().rsplit('/').next().unwrap().to_owned();
    let mut search = Search { found: Vec::new(), searched: 0, more: vec![token.clone(), code] };

    // Successes and failures of all kinds that produce output.
    let (_, job, _) = scene.run(&["trigger", "worker", "-p", "Hello.", "--wait", "--json"]);
    let _ = scene.run(&["trigger", "worker", "by-hand", "--wait"]);
    let job = serde_json::from_str::<Value>(&job).unwrap()["id"].as_str().map(str::to_owned);
    let job = job.unwrap_or_else(|| scene.jobs()[0]["id"].as_str().unwrap().to_owned());
    let (_, said, _) = scene.run(&["logs", &job]);
    for masked in
        ["SERVICE_TOKEN=***", "FROM_FILE=***", "HOOK_NEW=***", "ANTHROPIC_API_KEY=***", "WORK_ACCESS=***"]
    {
        assert!(said.contains(masked), "{masked}: {said}");
    }
    assert_eq!(answer(scene.deliver("literal", "{}")).await.0, 401);
    assert_eq!(answer(scene.deliver("hook", "{}").header("x-gitlab-token", "wrong")).await.0, 401);
    assert_eq!(answer(scene.deliver("hook", "{}").header("x-gitlab-token", OLD)).await.0, 202);
    assert_eq!(
        answer(scene.deliver("literal", "{}").header("x-gitlab-token", "canary-in-schedule")).await.0,
        202
    );
    let config = fs::read_to_string(scene.path("cowhand.yaml")).unwrap();
    fs::write(
        scene.path("cowhand.yaml"),
        config.replace("secret: canary-in-schedule", "secret: [canary-in-schedule]"),
    )
    .unwrap();
    let (code, said, wrong) = scene.run(&["reload"]);
    assert_eq!(code, 3, "{said} {wrong}");
    search.look("reload of a bad config", &format!("{said}{wrong}"));
    fs::write(scene.path("cowhand.yaml"), config).unwrap();

    let (status, document) = answer(scene.ask("GET", "/api/v1/openapi.json").bearer_auth(&token)).await;
    assert_eq!(status, 200);
    let pages = ["/", "/jobs", "/work", "/timeline", "/usage", "/events", "/settings", "/agents/worker"];
    let pages = pages.map(str::to_owned).into_iter();
    let pages = pages.chain(["/schedules/worker/literal".into(), format!("/jobs/{job}"), "/metrics".into()]);
    let mut good = 0;
    for address in addresses(&document, &job).into_iter().chain(pages) {
        let response = scene.ask("GET", &address).bearer_auth(&token).send().await.unwrap();
        good += u32::from(response.status().is_success());
        for (name, value) in response.headers() {
            search.look(&format!("{address} {name}"), &String::from_utf8_lossy(value.as_bytes()));
        }
        search.look(&address, &response.text().await.unwrap());
    }
    assert!(good > 25, "only {good} addresses answered");
    for verb in [
        &["status"][..],
        &["agents"],
        &["schedule", "list", "--json"],
        &["schedule", "show", "worker/literal"],
        &["why", "worker/literal"],
        &["events", "--json", "--limit", "1000"],
        &["jobs", "--json"],
        &["job", &job],
        &["logs", &job],
        &["work", "list"],
        &["config", "show"],
        &["config", "check", "--json"],
        &["token", "list", "--json"],
        &["doctor"],
    ] {
        let (_, out, err) = scene.run(verb);
        search.look(&verb.join(" "), &format!("{out}{err}"));
    }
    scene.kill();
    search.look_through(&scene.path(".cowhand"));
    search.look("the log", &scene.log());
    assert!(search.searched > 100, "only {} places were searched", search.searched);
    assert_eq!(search.found, Vec::<String>::new());
}

/// A variable with a secret is part of paths, arguments and names of hooks, and an agent makes files that are named
/// after it.
const PLACES: &str = r#"
server: {listen: "127.0.0.1:0"}
agents:
  - name: maker
    runtime: command
    command: [sh, -c, 'mkdir ig; echo "*" > ig/.gitignore; echo 1 > "ig/$PLACE_TOKEN"; mkdir "nest-$PLACE_TOKEN"; cd "nest-$PLACE_TOKEN"; git init -q .; echo 1 > f']
    pass_env: [PLACE_TOKEN]
    working_directory: repo
    isolation: {kind: worktree, cleanup: always}
    default_prompt: Work.
  - name: gated
    runtime: command
    command: ["true"]
    schedules: {m: {type: manual, prompt: Work., when_command: ["/no/${PLACE_TOKEN}"]}}
  - name: absent
    runtime: command
    command: ["/nonexistent/${PLACE_TOKEN}"]
    default_prompt: Work.
  - name: queue
    runtime: command
    command: ["true"]
    work_source: {type: files, path: "tasks-${PLACE_TOKEN}"}
    schedules: {m: {type: interval, interval: 1s, prompt: Work.}}
  - name: boxed
    runtime: command
    command: ["true"]
    sandbox: {kind: bubblewrap, read: ["/nope/${PLACE_TOKEN}"]}
    default_prompt: Work.
  - name: elsewhere
    runtime: command
    command: ["true"]
    working_directory: "/nodir/${PLACE_TOKEN}"
    default_prompt: Work.
  - name: hooked
    runtime: command
    command: [sh, -c, 'ln -sf /etc/passwd "m-$PLACE_TOKEN.json"; kill -9 $$']
    pass_env: [PLACE_TOKEN]
    metadata_file: "m-${PLACE_TOKEN}.json"
    default_prompt: Work.
    hooks:
      after_run:
        - {type: shell, name: "hk-${PLACE_TOKEN}", command: "echo x; exit 1"}
        - {type: webhook, url: "http://${PLACE_TOKEN}.invalid/x", retries: 0}
"#;

/// Looks at the output of every verb that names a place, a command or a hook.
fn look_at_verbs(scene: &Scene, search: &mut Search, when: &str) {
    let jobs: Vec<String> = scene.jobs().iter().map(|job| job["id"].as_str().unwrap().to_owned()).collect();
    let of_jobs =
        jobs.iter().flat_map(|job| [vec!["job", job], vec!["job", job, "--json"], vec!["logs", job]]);
    let fixed = [
        "status",
        "status --json",
        "agents",
        "agents --json",
        "schedule list",
        "why gated/m",
        "why queue/m",
        "why queue/m --json",
        "events --json --limit 1000",
        "events",
        "jobs",
        "work list",
        "work list --json",
        "config show",
        "config check",
        "config check --json",
        "doctor",
        "doctor --json",
        "trigger absent --wait",
        "reload",
    ];
    let fixed = fixed.iter().map(|verb| verb.split(' ').collect::<Vec<_>>());
    for verb in fixed.chain(of_jobs) {
        let (_, out, err) = scene.run(&verb);
        search.look(&format!("{} ({when})", verb.join(" ")), &format!("{out}{err}"));
    }
}

#[tokio::test]
async fn secrets_in_paths_commands_and_names_of_hooks_are_masked() {
    for format in ["text", "json"] {
        let mut scene = Scene::prepared(PLACES);
        let git = |arguments: &[&str]| {
            let identity = ["-c", "user.name=t", "-c", "user.email=t@example.org", "-C", "repo"];
            let status =
                Command::new("git").args(identity).args(arguments).current_dir(scene.path("")).status();
            assert!(status.unwrap().success());
        };
        fs::create_dir(scene.path("repo")).unwrap();
        git(&["init", "-q"]);
        git(&["commit", "-q", "--allow-empty", "-m", "first"]);
        scene.set_variable("PLACE_TOKEN", "canary-in-a-place");
        let mut search = Search { found: Vec::new(), searched: 0, more: Vec::new() };
        scene.start(&["--log-format", format]);
        for agent in ["maker", "absent", "boxed", "elsewhere", "hooked"] {
            let (_, out, err) = scene.run(&["trigger", agent, "--wait"]);
            search.look(&format!("trigger {agent}"), &format!("{out}{err}"));
        }
        let (_, out, err) = scene.run(&["trigger", "gated", "m"]);
        search.look("trigger gated", &format!("{out}{err}"));
        scene.until("the log has all warnings", || {
            let log = scene.log();
            ["is a nested repository", "cannot start", "tasks-"].iter().all(|part| log.contains(part))
        });
        look_at_verbs(&scene, &mut search, "with a daemon");
        let token = scene.token("tester", "admin");
        for address in
            ["/api/v1/status", "/api/v1/agents", "/api/v1/agents/elsewhere", "/api/v1/work", "/metrics"]
        {
            let response = scene.ask("GET", address).bearer_auth(&token).send().await.unwrap();
            search.look(address, &response.text().await.unwrap());
        }
        scene.kill();
        look_at_verbs(&scene, &mut search, "without a daemon");
        search.look("the log", &scene.log());
        search.look_through(&scene.path(".cowhand/jobs"));
        search.look("state.yaml", &fs::read_to_string(scene.path(".cowhand/state.yaml")).unwrap());
        assert_eq!(search.found, Vec::<String>::new());
    }
}

const SPEAKERS: &str = r#"
server: {listen: "127.0.0.1:0"}
agents:
  - {name: gemini, runtime: gemini, default_prompt: Speak.}
  - {name: claude, runtime: claude, partial_messages: true, default_prompt: Speak.}
"#;

/// Output of programs in pieces; the first half of each secret contains no other secret.
const SPEECHES: [(&str, &[&str]); 2] = [
    (
        "gemini",
        &[
            r#"{"type":"init","session_id":"238a8f3d-b2bf-462d-8a9e-03093de7a936"}"#,
            r#"{"type":"message","role":"assistant","content":"It is canary-","delta":true}"#,
            r#"{"type":"message","role":"assistant","content":"in-pieces, is it not, can","delta":true}"#,
            r#"{"type":"result","status":"success"}"#,
        ],
    ),
    (
        "claude",
        &[
            r#"{"type":"stream_event","event":{"type":"content_block_delta","index":0,"delta":{"type":"text_delta","text":"It is canary-"}}}"#,
            r#"{"type":"stream_event","event":{"type":"content_block_delta","index":1,"delta":{"type":"input_json_delta","partial_json":"{\"command\":\"canary-in"}}}"#,
            r#"{"type":"stream_event","event":{"type":"content_block_delta","index":0,"delta":{"type":"text_delta","text":"in-pieces, is it not, can"}}}"#,
            r#"{"type":"stream_event","event":{"type":"content_block_delta","index":1,"delta":{"type":"input_json_delta","partial_json":"-pieces\"}"}}}"#,
            r#"{"type":"stream_event","event":{"type":"content_block_stop","index":0}}"#,
            r#"{"type":"stream_event","event":{"type":"content_block_stop","index":1}}"#,
            r#"{"type":"assistant","message":{"id":"m","content":[{"type":"text","text":"It is canary-in-pieces, is it not, can"}]}}"#,
            r#"{"type":"result","subtype":"success","is_error":false,"result":"It is canary-in-pieces, is it not, can"}"#,
        ],
    ),
];

/// No line contains the whole secret, and the joined lines do not either.
#[tokio::test]
async fn secret_split_over_two_messages_is_masked() {
    let mut scene = Scene::prepared(SPEAKERS);
    fs::create_dir(scene.path("bin")).unwrap();
    for (name, lines) in SPEECHES {
        let program = scene.path(&format!("bin/{name}"));
        let script = format!("#!/bin/sh\nhead -n 1 >/dev/null\ncat <<'END'\n{}\nEND\n", lines.join("\n"));
        fs::write(&program, script).unwrap();
        fs::set_permissions(&program, fs::Permissions::from_mode(0o755)).unwrap();
    }
    let path = std::env::var("PATH").unwrap();
    scene.set_variable("PATH", &format!("{}:{path}", scene.path("bin").display()));
    scene.set_variable("SERVICE_TOKEN", "canary-in-pieces");
    scene.start(&[]);
    let token = scene.token("tester", "admin");
    let mut search = Search { found: Vec::new(), searched: 0, more: Vec::new() };
    for (name, _) in SPEECHES {
        let (code, job, wrong) = scene.run(&["trigger", name, "--wait", "--json"]);
        assert_eq!(code, 0, "{name}: {job}{wrong}");
        let job: Value = serde_json::from_str(&job).unwrap();
        assert_eq!(job["summary"], "It is ***, is it not, can", "{name}: {job:#}");
        let id = job["id"].as_str().unwrap();
        let followed = scene.run(&["logs", id, "--follow"]).1;
        // The text is shown once, although parts of it were held back. The last line is written by cowhand.
        let said = followed.lines().filter(|line| !line.starts_with("──"));
        let told = said.filter(|line| line.contains("It is ***, is it not, can")).count();
        assert_eq!(told, 1, "{name}: {followed}");
        search.look("logs --follow", &followed);
        for address in
            [format!("/api/v1/jobs/{id}"), format!("/api/v1/jobs/{id}/output"), format!("/jobs/{id}")]
        {
            let response = scene.ask("GET", &address).bearer_auth(&token).send().await.unwrap();
            assert!(response.status().is_success(), "{address}");
            search.look(&address, &response.text().await.unwrap());
        }
    }
    scene.kill();
    search.look_through(&scene.path(".cowhand"));
    assert_eq!(search.found, Vec::<String>::new());
}
