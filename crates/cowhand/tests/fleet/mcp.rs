//! The fleet as an MCP server, called by the official client.

use std::path::Path;
use std::process::Stdio;

use serde_json::{Value, json};

use super::{Scene, wait_until};

/// Makes the calls; returns the tools and the result of each call.
fn talk(scene: &Scene, arguments: &[&str], environment: &[(&str, &str)], calls: &Value) -> Value {
    let node = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../tests/node");
    assert!(
        node.join("node_modules/@modelcontextprotocol/sdk").exists(),
        "the MCP client is not installed; scripts/test does that"
    );
    let mut command = std::process::Command::new("node");
    command.arg(node.join("mcp.mjs")).arg(calls.to_string());
    command.arg(env!("CARGO_BIN_EXE_cowhand")).args(arguments);
    command.current_dir(&scene.root).env_clear().env("PATH", std::env::var_os("PATH").unwrap());
    command.env("XDG_RUNTIME_DIR", scene.folder.path()).envs(environment.iter().copied());
    let said = command.stdin(Stdio::null()).output().unwrap();
    let (stdout, stderr) = (String::from_utf8_lossy(&said.stdout), String::from_utf8_lossy(&said.stderr));
    assert!(said.status.success(), "{stdout}{stderr}");
    serde_json::from_str(&stdout).unwrap()
}

fn names(talked: &Value) -> Vec<&str> {
    talked["tools"].as_array().unwrap().iter().map(|tool| tool["name"].as_str().unwrap()).collect()
}

/// Returns the result of a call that has to succeed.
fn answer(talked: &Value, number: usize) -> Value {
    let result = &talked["results"][number];
    assert_eq!(result["failed"], false, "{result}");
    serde_json::from_str(result["text"].as_str().unwrap()).unwrap_or_else(|_| result["text"].clone())
}

const READING: [&str; 9] = ["fleet", "schedules", "jobs", "job", "output", "why", "usage", "work", "asks"];

#[test]
fn mcp_server_without_scope_offers_only_reading_tools() {
    let scene = Scene::started();
    let job = scene.json(&["trigger", "worker", "--wait", "-p", "Say moo."]);
    let id = job["id"].as_str().unwrap();
    let calls = json!([
        ["fleet", {}],
        ["schedules", {}],
        ["jobs", {"agent": "worker", "status": "completed", "search": "moo", "limit": 5}],
        ["job", {"job": id}],
        ["output", {"job": id, "last": 1}],
        ["why", {"agent": "worker", "schedule": "tidy"}],
        ["usage", {"agent": "worker"}],
        ["work", {"all": true}],
        ["asks", {}],
        ["trigger", {"agent": "worker"}],
        ["job", {"job": "../../etc/passwd"}],
        ["job", {"job": "job-2026-01-05-nosuch"}],
        ["jobs", {"unknown": 1}],
    ]);
    let talked = talk(&scene, &["mcp"], &[], &calls);
    assert_eq!(talked["server"], "cowhand");
    assert_eq!(names(&talked), READING);
    assert_eq!(answer(&talked, 0)["agents"][0]["name"], "worker");
    assert_eq!(answer(&talked, 1)["items"][0]["schedule"], "tidy");
    assert_eq!(answer(&talked, 2)["items"][0]["id"], id);
    assert_eq!(answer(&talked, 3)["prompt"], "Say moo.");
    assert!(answer(&talked, 4).to_string().contains("Say moo."), "{}", answer(&talked, 4));
    assert_eq!(answer(&talked, 5)["schedule"]["schedule"], "tidy");
    assert_eq!(answer(&talked, 6)["agents"][0]["agent"], "worker");
    assert_eq!(answer(&talked, 7)["items"], json!([]));
    assert_eq!(answer(&talked, 8)["items"], json!([]));
    let refused = |number: usize| talked["results"][number].to_string();
    assert!(refused(9).contains("there is no tool"), "{}", refused(9));
    assert!(refused(10).contains("does not name a job"), "{}", refused(10));
    assert!(refused(11).contains("there is no job"), "{}", refused(11));
    assert!(refused(12).contains("unknown field"), "{}", refused(12));
    assert_eq!(scene.json(&["jobs"]).as_array().map(Vec::len), Some(1), "it only looked");
    for tool in talked["tools"].as_array().unwrap() {
        assert_eq!(tool["inputSchema"]["type"], "object", "{tool}");
        assert!(tool["description"].as_str().unwrap().ends_with('.'), "{tool}");
    }
}

#[test]
fn mcp_server_with_operate_scope_changes_jobs_and_schedules() {
    let scene = Scene::started();
    let schedule = json!({"agent": "worker", "schedule": "nightly"});
    let (waiting, _) = scene.waiting_job();
    let calls = json!([
        ["trigger", {"agent": "worker", "schedule": "tidy", "prompt": "Tidy twice."}],
        ["disable", schedule],
        ["cancel", {"job": waiting}],
        ["trigger", {"agent": "nobody"}],
    ]);
    let talked = talk(&scene, &["mcp", "--scope", "operate"], &[], &calls);
    let steering = ["trigger", "say", "cancel", "retry", "enable", "disable"];
    assert_eq!(names(&talked), [&READING[..], &steering].concat());
    let made = answer(&talked, 0)["id"].as_str().unwrap().to_owned();
    assert_eq!(answer(&talked, 1)["status"], "disabled");
    assert_eq!(answer(&talked, 2)["id"], waiting.as_str());
    assert!(talked["results"][3].to_string().contains("there is no agent nobody"), "{talked}");
    let ended = |id: &str| {
        wait_until("the job to end", || Some(scene.job(id)).filter(|job| job["finished_at"].is_string()))
    };
    assert_eq!(ended(&waiting)["status"], "cancelled");
    assert_eq!(ended(&made)["prompt"], "Tidy twice.");
    let talked = talk(
        &scene,
        &["mcp", "--scope", "operate"],
        &[],
        &json!([["enable", schedule], ["retry", {"job": made}]]),
    );
    assert_eq!(answer(&talked, 0)["status"], "idle");
    assert_eq!(answer(&talked, 1)["retry_of"], made.as_str());
}

const OF_JOBS: [&str; 5] = ["approve", "ask_person", "work_item", "schedule_followup", "report"];

const WORKER: &str = r#"
agents:
  - name: one
    runtime: command
    command: [sh, -c, 'printf %s "$COWHAND_JOB_TOKEN" > one.token; echo moo > result.txt; echo up; while [ ! -e go ]; do sleep 0.05; done']
    followups: {max: 1, min_interval: 1h}
    work_source: {type: files, path: tasks}
    schedules: {poll: {type: manual}}
  - name: other
    runtime: command
    command: ["true"]
"#;

/// Calls every tool of a job's agent, as its program would.
#[test]
fn an_agent_uses_every_tool_of_its_job() {
    let scene = Scene::with(WORKER);
    std::fs::create_dir(scene.root.join("tasks")).unwrap();
    scene.write("tasks/one.md", "---\ntitle: Do it\ncreated: 2024-01-01T00:00:00Z\n---\nText.\n");
    scene.start();
    let job = scene.json(&["trigger", "one", "poll"])["id"].as_str().unwrap().to_owned();
    wait_until("the agent to be up", || std::fs::metadata(scene.root.join("result.txt")).ok());
    let token = std::fs::read_to_string(scene.root.join("one.token")).unwrap();
    let socket = scene.root.join(".cowhand/talk/job.sock").display().to_string();
    let environment = [("COWHAND_JOB_TOKEN", token.as_str()), ("COWHAND_SOCKET", socket.as_str())];
    let talk_to = |calls: &Value| talk(&scene, &["mcp", "--job"], &environment, calls);
    let report = json!({"outcome": "done", "summary": "It works.", "artifacts": ["result.txt"]});
    let calls = json!([
        ["work_item", {}],
        ["schedule_followup", {"prompt": "Look again.", "after": "2h"}],
        ["schedule_followup", {"prompt": "And again."}],
        ["schedule_followup", {"prompt": "Look again.", "after": "soon"}],
        ["schedule_followup", {"prompt": " "}],
        ["schedule_followup", {"prompt": "x", "agent": "nobody"}],
        ["report", {"outcome": "needs_person", "summary": "Which one?"}],
        ["report", report],
        ["report", {"outcome": "splendid", "summary": "It works."}],
        ["report", {"outcome": "done"}],
        ["report", {"outcome": "done", "summary": "It works.", "artifacts": ["/etc/passwd"]}],
        ["work_item", {"of": "another"}],
        ["approve", {"input": {}}],
        ["nothing", {}],
    ]);
    let talked = talk_to(&calls);
    assert_eq!(names(&talked), OF_JOBS);
    assert_eq!(
        (&answer(&talked, 0)["id"], &answer(&talked, 0)["title"]),
        (&json!("files-one"), &json!("Do it"))
    );
    let followup = answer(&talked, 1).as_str().unwrap().to_owned();
    assert!(followup.contains(" will run, not before 20"), "{followup}");
    for (number, why) in [
        (2, "has 1 follow-ups, and the maximum is 1"),
        (3, "soon"),
        (4, "needs a `prompt`"),
        (5, "there is no agent nobody"),
        (8, "unknown variant `splendid`"),
        (9, "missing field `summary`"),
        (10, "no such file or folder in the directory"),
        (11, "unknown field `of`"),
        (12, "missing field `tool_name`"),
        (13, "there is no tool"),
    ] {
        let result = &talked["results"][number];
        assert!(result["failed"] == true || result["refused"].is_string(), "{number}: {result}");
        assert!(result.to_string().contains(why), "{number}: {result}");
    }
    assert_eq!(answer(&talked, 6), "reported: needs a person");
    assert_eq!(answer(&talked, 7), "reported: done");
    let told = scene.job(&job);
    for key in ["outcome", "summary", "artifacts"] {
        assert_eq!(told["report"][key], report[key], "the last one counts");
    }
    let followup = followup.split(' ').next().unwrap();
    assert_eq!(
        (&scene.job(followup)["status"], &scene.job(followup)["prompt"]),
        (&json!("pending"), &json!("Look again."))
    );
    scene.go();
    wait_until("its source to be told", || {
        let item = std::fs::read_to_string(scene.root.join("tasks/one.md")).unwrap();
        (item.contains("status: completed") && item.contains("It works.") && item.contains("result.txt"))
            .then_some(())
    });
    let talked = talk_to(&json!([["report", report], ["work_item", {}]]));
    for number in [0, 1] {
        assert!(talked["results"][number].to_string().contains("its attempt has ended"), "{talked}");
    }
}

/// The MCP server that an agent's program starts has the token of its job and of no other.
#[test]
fn an_agent_asks_with_the_token_of_its_job() {
    let scene = Scene::with(super::asks::FLEET);
    scene.start();
    let (one, token) = super::asks::token_of(&scene, "one");
    let socket = scene.root.join(".cowhand/talk/job.sock").display().to_string();
    let asker = {
        let environment = [("COWHAND_JOB_TOKEN", token.as_str()), ("COWHAND_SOCKET", socket.as_str())];
        let calls = json!([
            ["approve", {"tool_name": "Bash", "input": {"command": "ls"}, "tool_use_id": "t1"}],
            ["ask_person", {"question": "Which?"}],
            ["ask_person", {"question": " "}],
        ]);
        let answers = || {
            let ask = |kind: &str| {
                wait_until("it to ask", || {
                    let asks = scene.json(&["asks"]);
                    asks.as_array().unwrap().iter().find(|ask| ask["kind"] == kind).cloned()
                })
            };
            let tool = ask("tool")["id"].as_str().unwrap().to_owned();
            assert_eq!(scene.json(&["approve", &tool])["status"], "allowed");
            let question = ask("question")["id"].as_str().unwrap().to_owned();
            scene.json(&["answer", &question, "That one."]);
        };
        std::thread::scope(|scope| {
            let person = scope.spawn(answers);
            let talked = talk(&scene, &["mcp", "--job"], &environment, &calls);
            person.join().unwrap();
            talked
        })
    };
    assert_eq!(names(&asker), OF_JOBS);
    assert_eq!(answer(&asker, 0), json!({"behavior": "allow", "updatedInput": {"command": "ls"}}));
    assert_eq!(answer(&asker, 1), "That one.");
    assert_eq!(asker["results"][2]["failed"], true);
    // An invalid token is refused, and creates no ask.
    let forged = token.replace(&one, "job-2026-01-05-nosuch");
    let environment = [("COWHAND_JOB_TOKEN", forged.as_str()), ("COWHAND_SOCKET", socket.as_str())];
    let calls =
        json!([["approve", {"tool_name": "Bash", "input": {}}], ["ask_person", {"question": "Which?"}]]);
    let talked = talk(&scene, &["mcp", "--job"], &environment, &calls);
    assert_eq!(answer(&talked, 0)["behavior"], "deny");
    assert_eq!(talked["results"][1]["failed"], true, "{talked}");
    assert_eq!(scene.json(&["asks"]), json!([]));
    // An agent does not have the rights of the fleet's owner.
    let said = scene.command(&["mcp", "--scope", "operate"]).env("COWHAND_JOB_ID", &one).output().unwrap();
    assert_eq!(said.status.code(), Some(5));
    assert_eq!(scene.run(&["mcp", "--job"]).code, Some(6), "outside a job there is no such thing");
    assert_eq!(scene.run(&["mcp", "--scope", "admin"]).code, Some(2));
}
