//! Asks of agents over the API, with the tokens of their jobs.

use std::fs;
use std::io::{Read, Write};
use std::os::unix::fs::PermissionsExt;
use std::os::unix::net::UnixStream;
use std::path::Path;

use serde_json::{Value, json};

use super::{Scene, wait_until};

/// Fleet whose agents store their token from the environment and wait for `go`.
pub(super) const FLEET: &str = r#"
agents:
  - name: one
    runtime: command
    command: [sh, -c, 'printf %s "$COWHAND_JOB_TOKEN" > one.token; echo up; while [ ! -e go ]; do sleep 0.05; done; echo "my token is $COWHAND_JOB_TOKEN"']
    env: {API_SECRET: canary-in-an-input}
    fleet_tools: true
    ask_timeout: 1h
  - name: other
    runtime: command
    command: [sh, -c, 'printf %s "$COWHAND_JOB_TOKEN" > other.token; echo up; while [ ! -e go ]; do sleep 0.05; done']
"#;

pub(super) fn token_of(scene: &Scene, agent: &str) -> (String, String) {
    let job = scene.json(&["trigger", agent])["id"].as_str().unwrap().to_owned();
    let token = wait_until("the agent to be up", || {
        fs::read_to_string(scene.root.join(format!("{agent}.token"))).ok().filter(|token| !token.is_empty())
    });
    (job, token)
}

/// Sends a request to the daemon's socket; returns the status and the body.
pub(super) fn send(
    scene: &Scene,
    token: Option<&str>,
    method: &str,
    path: &str,
    given: &Value,
) -> (u16, Value) {
    send_to(&scene.root.join(".cowhand/sock"), token, method, &format!("/api/v1/{path}"), given)
}

pub(super) fn send_to(
    socket: &Path,
    token: Option<&str>,
    method: &str,
    path: &str,
    given: &Value,
) -> (u16, Value) {
    let mut socket = UnixStream::connect(socket).unwrap();
    let given = if given.is_null() { String::new() } else { given.to_string() };
    let shown = token.map(|token| format!("authorization: Bearer {token}\r\n")).unwrap_or_default();
    let head = format!("{shown}host: x\r\nconnection: close\r\ncontent-length: {}", given.len());
    socket.write_all(format!("{method} {path} HTTP/1.1\r\n{head}\r\n\r\n{given}").as_bytes()).unwrap();
    let mut answer = String::new();
    socket.read_to_string(&mut answer).unwrap();
    let (head, body) = answer.split_once("\r\n\r\n").unwrap();
    let status = head.split(' ').nth(1).unwrap().parse().unwrap();
    (status, serde_json::from_str(body).unwrap_or(Value::Null))
}

fn wants(command: &str) -> Value {
    json!({"attempt": 1, "key": "k", "tool": "Bash", "input": {"command": command}})
}

#[test]
fn job_token_is_valid_only_for_its_running_job() {
    let scene = Scene::with(FLEET);
    scene.start();
    let ((one, token), (other, others_token)) = (token_of(&scene, "one"), token_of(&scene, "other"));
    let rights = fs::metadata(scene.root.join(".cowhand/job-key")).unwrap().permissions().mode();
    assert_eq!(rights & 0o777, 0o600);
    let own = format!("jobs/{one}/asks");
    let (status, made) = send(&scene, Some(&token), "POST", &own, &wants("ls"));
    assert_eq!((status, &made["verdict"]), (200, &json!("asked")), "{made}");
    let number = made["ask"]["id"].as_str().unwrap().rsplit_once('.').unwrap().1.to_owned();
    for (token, method, path, given, expected) in [
        (&token, "GET", format!("jobs/{one}/asks/{number}"), Value::Null, 200),
        (&token, "POST", format!("jobs/{other}/asks"), wants("ls"), 403),
        (&others_token, "GET", format!("jobs/{one}/asks/{number}"), Value::Null, 403),
        (&others_token, "POST", own.clone(), wants("ls"), 403),
        (&token, "POST", format!("asks/{one}.{number}/answer"), json!({"answer": "allow"}), 403),
        (&token, "GET", format!("jobs/{one}"), Value::Null, 200),
        (&token, "GET", format!("jobs/{other}"), Value::Null, 403),
        (&token, "POST", format!("jobs/{other}/followups"), json!({}), 403),
        (&token, "GET", format!("jobs/{one}/../{other}/asks/1"), Value::Null, 403),
        (&token, "POST", format!("jobs/{one}/cancel"), Value::Null, 403),
        (&token, "GET", "jobs".to_owned(), Value::Null, 403),
        (&token, "GET", "status".to_owned(), Value::Null, 403),
        (&token, "POST", "agents/other/trigger".to_owned(), Value::Null, 403),
        (&format!("{token}x"), "POST", own.clone(), wants("ls"), 401),
        (&token.replace(&one, &other), "POST", format!("jobs/{other}/asks"), wants("ls"), 401),
        (&token.replace(".1.", ".2."), "POST", own.clone(), wants("ls"), 401),
    ] {
        let (status, answer) = send(&scene, Some(token), method, &path, &given);
        assert_eq!(status, expected, "{method} {path} {answer}");
    }
    assert_eq!(scene.json(&["asks"]).as_array().unwrap().len(), 1);
    fs::write(scene.root.join("go"), "").unwrap();
    let job =
        wait_until("the job to end", || Some(scene.job(&one)).filter(|job| job["finished_at"].is_string()));
    assert_eq!(job["status"], "completed", "{job:#}");
    let (status, _) = send(&scene, Some(&token), "POST", &own, &wants("ls"));
    assert_eq!(status, 401, "its attempt has ended");
    assert_eq!(job["asks"][0]["status"], "ended");
    let said = scene.run(&["logs", &one]).stdout;
    assert!(said.contains("my token is ***") && !said.contains("cowjob_"), "{said}");
}

#[test]
fn asks_are_shown_and_answered_by_verbs() {
    let scene = Scene::with(FLEET);
    scene.start();
    let (one, token) = token_of(&scene, "one");
    let secret = wants("curl -H 'x: canary-in-an-input' \u{1b}[2J");
    let path = format!("jobs/{one}/asks");
    let (_, made) = send(&scene, Some(&token), "POST", &path, &secret);
    let id = made["ask"]["id"].as_str().unwrap().to_owned();
    let (_, again) = send(&scene, Some(&token), "POST", &path, &secret);
    assert_eq!(again, made, "who lost the connection asks the same");
    let (_, another) = send(&scene, Some(&token), "POST", &path, &wants("rm -rf /"));
    assert_ne!(another["ask"]["id"], made["ask"]["id"], "the same name for something else is another ask");
    let question = json!({"attempt": 1, "key": "q", "question": "Which?"});
    let (_, question) = send(&scene, Some(&token), "POST", &path, &question);
    let question = question["ask"]["id"].as_str().unwrap().to_owned();

    let everything = [
        scene.run(&["asks", "--json"]).stdout,
        scene.run(&["asks"]).stdout,
        scene.run(&["asks", &id]).stdout,
        scene.run(&["events"]).stdout,
        scene.run(&["job", &one, "--json"]).stdout,
    ];
    for shown in &everything {
        assert!(!shown.contains("canary"), "{shown}");
    }
    assert!(everything[2].contains("x: ***") && !everything[2].contains('\u{1b}'), "{}", everything[2]);
    let shown = [
        scene.shown(&["status"]),
        scene.shown(&["asks"]),
        scene.shown(&["answer", &id, "words"]),
        scene.shown(&["approve", &question]),
        scene.shown(&["approve", &id, "--message", "be quick"]),
        scene.shown(&["deny", &id]),
        scene.shown(&["answer", &question, "That one."]),
        scene.shown(&["approve", &format!("{one}.99")]),
        scene.shown(&["approve", "nothing"]),
    ];
    scene.snapshot("asks", &shown);
    let job = scene.run(&["job", &one]).stdout;
    for told in [
        "asks         Bash curl -H 'x: ***' ‹U+001B›[2J: allowed by ",
        "asks         Bash rm -rf /: no answer yet; without one it is denied in ",
        "asks         Which?: answered by ",
    ] {
        assert!(job.contains(told), "{told}: {job}");
    }
    let open = scene.run(&["asks", another["ask"]["id"].as_str().unwrap()]).stdout;
    assert!(open.contains(&format!("cowhand approve {one}.2")), "{open}");
    let answered = scene.json(&["asks", &question]);
    assert_eq!((&answered["by"]["who"], &answered["message"]), (&json!("person"), &json!("That one.")));
    let audit = scene.run(&["events", "--audit"]).stdout;
    assert_eq!((audit.matches("ask:made").count(), audit.matches("ask:answered").count()), (3, 2), "{audit}");
    let inside = scene.command(&["approve", &id]).env("COWHAND_JOB_ID", &one).output().unwrap();
    assert_eq!(inside.status.code(), Some(5));
    let with_options =
        |options: &[&str]| json!({"attempt": 1, "key": "o", "question": "Which?", "options": options});
    for (path, given, expected) in [
        (format!("jobs/{one}/asks"), json!({"attempt": 2, "key": "k", "question": "Which?"}), 409),
        (format!("jobs/{one}/asks"), json!({"attempt": 1, "key": "", "question": "Which?"}), 400),
        (format!("jobs/{one}/asks"), json!({"attempt": 1, "key": "k"}), 400),
        (format!("jobs/{one}/asks"), with_options(&["a\nb"]), 400),
        (format!("jobs/{one}/asks"), with_options(&["x"; 11]), 400),
        (format!("asks/{id}/answer"), json!({}), 400),
        (format!("asks/{id}/answer"), json!({"answer": "text"}), 400),
        ("asks/x/answer".to_owned(), json!({"answer": "allow"}), 400),
    ] {
        let sender = path.starts_with("jobs/").then_some(token.as_str());
        let (status, answer) = send(&scene, sender, "POST", &path, &given);
        assert_eq!(status, expected, "{path} {given} {answer}");
    }
}

/// The events and `job` attribute asks, reports and follow-ups to the agent, so no other caller may make them.
#[test]
fn nobody_speaks_for_an_agent() {
    let scene = Scene::with(FLEET);
    scene.start();
    let (one, _) = token_of(&scene, "one");
    for (endpoint, given) in [
        ("asks", json!({"attempt": 1, "key": "k", "question": "Which?"})),
        ("report", json!({"attempt": 1, "outcome": "done", "summary": "It works."})),
        ("followups", json!({"attempt": 1, "key": "k", "prompt": "Go on."})),
    ] {
        let (status, answer) = send(&scene, None, "POST", &format!("jobs/{one}/{endpoint}"), &given);
        assert_eq!(status, 403, "{endpoint} {answer}");
        assert!(answer["detail"].as_str().unwrap().contains("only the agent of a running job"), "{answer}");
    }
    let job = scene.job(&one);
    assert_eq!((job.get("report"), &job["asks"]), (None, &json!([])), "{job:#}");
}

/// Without a daemon, the expiry of an ask is not recorded, but every verb shows it.
#[test]
fn overdue_ask_has_expired_without_a_daemon() {
    let scene = Scene::with(&FLEET.replace("ask_timeout: 1h", "ask_timeout: 2s"));
    scene.start();
    let (one, token) = token_of(&scene, "one");
    let (status, made) = send(&scene, Some(&token), "POST", &format!("jobs/{one}/asks"), &wants("ls"));
    assert_eq!(status, 200, "{made}");
    scene.kill_daemon();
    let id = made["ask"]["id"].as_str().unwrap().to_owned();
    wait_until("the ask to expire", || (scene.json(&["asks", &id])["status"] == "expired").then_some(()));
    assert_eq!(scene.run(&["asks"]).stdout, "no open asks\n");
    assert_eq!(scene.json(&["asks", "--all"])[0]["status"], "expired");
    let job = scene.run(&["job", &one]).stdout;
    assert!(job.contains("no person answered in time") && !job.contains("no answer yet"), "{job}");
    fs::write(scene.root.join("go"), "").unwrap();
}

/// An agent that may not ask cannot suspend its timeouts with an ask.
#[test]
fn agent_without_the_right_to_ask_is_refused_and_timed_out() {
    let fleet = FLEET.replace("fleet_tools: true", "timeout: 5s").replace("    ask_timeout: 1h\n", "");
    let scene = Scene::with(&fleet);
    scene.start();
    let (one, token) = token_of(&scene, "one");
    let (status, answer) = send(&scene, Some(&token), "POST", &format!("jobs/{one}/asks"), &wants("ls"));
    assert_eq!(status, 403, "{answer}");
    assert!(answer["detail"].as_str().unwrap().contains("the agent one may not ask"), "{answer}");
    let job =
        wait_until("the job to end", || Some(scene.job(&one)).filter(|job| job["finished_at"].is_string()));
    assert_eq!((&job["status"], &job["error"]["kind"]), (&json!("failed"), &json!("timeout")), "{job:#}");
    assert_eq!(scene.json(&["asks", "--all"]), json!([]));
}

/// The agent asks once and does not request the answer, so both timeouts count.
#[test]
fn ask_without_a_wait_suspends_no_timeout() {
    for (rule, kind) in [("timeout: 6s", "timeout"), ("idle_timeout: 6s", "idle")] {
        let scene = Scene::with(&FLEET.replace("ask_timeout: 1h", &format!("{rule}\n    ask_timeout: 1h")));
        scene.start();
        let (one, token) = token_of(&scene, "one");
        let (status, made) = send(&scene, Some(&token), "POST", &format!("jobs/{one}/asks"), &wants("ls"));
        assert_eq!(status, 200, "{made}");
        let job = wait_until("the job to end", || {
            // A person who looks at the ask is not the agent that waits for it.
            send(&scene, None, "GET", &format!("jobs/{one}/asks/1"), &Value::Null);
            Some(scene.job(&one)).filter(|job| job["finished_at"].is_string())
        });
        assert_eq!((&job["status"], &job["error"]["kind"]), (&json!("failed"), &json!(kind)), "{job:#}");
    }
}

/// Lets an agent ask, and then starts a daemon with shorter timeouts. The timeouts cannot expire before the ask,
/// however slow the agent is.
fn asked(rules: [&str; 2]) -> (Scene, String, String, Value) {
    let fleet = |rules: &str| FLEET.replace("ask_timeout: 1h", rules);
    let scene = Scene::with(&fleet(rules[0]));
    scene.start();
    let (one, token) = token_of(&scene, "one");
    let (_, made) = send(&scene, Some(&token), "POST", &format!("jobs/{one}/asks"), &wants("ls"));
    assert_eq!(made["verdict"], "asked", "{made}");
    scene.kill_daemon();
    scene.write("cowhand.yaml", &fleet(rules[1]));
    scene.start();
    (scene, one, token, made)
}

/// An agent that waits for a person may be silent for longer than its idle timeout; any other agent is ended.
#[test]
fn open_ask_suspends_idle_timeout() {
    let (scene, one, token, made) = asked(["ask_timeout: 1h", "idle_timeout: 2s\n    ask_timeout: 1h"]);
    let (_, waited) = send(&scene, Some(&token), "GET", &format!("jobs/{one}/asks/1?wait=5"), &Value::Null);
    assert_eq!(waited["status"], "open", "{waited}");
    assert_eq!(scene.job(&one)["status"], "running", "after five seconds of silence");
    scene.json(&["approve", made["ask"]["id"].as_str().unwrap()]);
    let job =
        wait_until("the job to end", || Some(scene.job(&one)).filter(|job| job["finished_at"].is_string()));
    assert_eq!((&job["status"], &job["error"]["kind"]), (&json!("failed"), &json!("idle")), "{job:#}");
}

/// The timeout of the attempt is shorter than that of the ask. The ask expires, and the attempt still has its
/// whole time.
#[test]
fn open_ask_suspends_attempt_timeout() {
    let (scene, one, token, _) = asked(["ask_timeout: 8s", "timeout: 6s\n    ask_timeout: 8s"]);
    let path = format!("jobs/{one}/asks/1?wait=30");
    let (_, waited) = send(&scene, Some(&token), "GET", &path, &Value::Null);
    assert_eq!(waited["status"], "expired", "{waited}");
    let job =
        wait_until("the job to end", || Some(scene.job(&one)).filter(|job| job["finished_at"].is_string()));
    assert_eq!((&job["status"], &job["error"]["kind"]), (&json!("failed"), &json!("timeout")), "{job:#}");
    let took = job["duration_seconds"].as_u64().unwrap();
    assert!(took >= 13, "8 seconds of waiting and 6 of its own, but it took {took}");
}

/// Agent of the Agent Client Protocol that asks once, and records the answer.
const ACP: &str = r#"
say() { printf '%s\n' "$1"; }
hear() { IFS= read -r heard || exit 9; }
answer() { say '{"jsonrpc":"2.0","id":'"$1"',"result":'"$2"'}'; }
hear; answer 1 '{"protocolVersion":1,"agentInfo":{"name":"scripted","version":"1"},"agentCapabilities":{}}'
hear; answer 2 '{"sessionId":"s-1"}'
hear
say '{"jsonrpc":"2.0","id":"p1","method":"session/request_permission","params":{"sessionId":"s-1","toolCall":{"toolCallId":"t1","title":"t","kind":"execute","rawInput":{"command":"'"$WANTS"'"}},"options":[{"optionId":"yes","name":"Yes","kind":"allow_once"},{"optionId":"no","name":"No","kind":"reject_once"}]}}'
hear
case "$heard" in *'"yes"'*) word=allowed;; *'"no"'*) word=refused;; *'"cancelled"'*) word=cancelled;; *) word=lost;; esac
echo "$word" > heard
say '{"jsonrpc":"2.0","method":"session/update","params":{"sessionId":"s-1","update":{"sessionUpdate":"agent_message_chunk","content":{"type":"text","text":"'"$word"'"}}}}'
answer 3 '{"stopReason":"end_turn"}'
cat > /dev/null
"#;

fn acp(wants: &str) -> Scene {
    let agent = json!({
        "name": "one", "runtime": "acp", "command": ["sh", "agent.sh"], "env": {"WANTS": wants},
        "permission_mode": "ask", "permissions": {"allow": ["execute(cargo *)"], "deny": ["execute(rm *)"]},
    });
    // JSON is valid YAML. The scene adds its own line about the server after it.
    let scene = Scene::with(&format!("agents: {}", json!([agent])));
    scene.write("agent.sh", ACP);
    scene.start();
    scene
}

#[test]
fn permission_rules_answer_acp_agent() {
    for (wants, expected) in
        [("cargo test", "allowed"), ("cargo test && rm -rf /", "refused"), ("rm x", "refused")]
    {
        let scene = acp(wants);
        let job = scene.json(&["trigger", "one", "--wait"]);
        assert_eq!(
            (&job["status"], &job["summary"]),
            (&json!("completed"), &json!(expected)),
            "{wants} {job:#}"
        );
        assert_eq!(scene.json(&["asks", "--all"]), json!([]));
    }
}

#[test]
fn ask_of_acp_agent_survives_daemon_restart() {
    let scene = acp("git push");
    let id = scene.json(&["trigger", "one"])["id"].as_str().unwrap().to_owned();
    let asked = wait_until("it to ask", || scene.json(&["asks"]).as_array().unwrap().first().cloned());
    assert_eq!((&asked["tool"], &asked["input"]["command"]), (&json!("execute"), &json!("git push")));
    scene.kill_daemon();
    scene.start();
    scene.json(&["approve", asked["id"].as_str().unwrap()]);
    let job =
        wait_until("the job to end", || Some(scene.job(&id)).filter(|job| job["finished_at"].is_string()));
    assert_eq!((&job["status"], &job["summary"]), (&json!("completed"), &json!("allowed")), "{job:#}");
    assert_eq!(job["asks"].as_array().unwrap().len(), 1);
}

/// The cancellation does not wait for an open ask.
#[test]
fn acp_agent_with_open_ask_can_be_cancelled() {
    let scene = acp("git push");
    let id = scene.json(&["trigger", "one"])["id"].as_str().unwrap().to_owned();
    wait_until("it to ask", || scene.json(&["asks"]).as_array().unwrap().first().cloned());
    let job = scene.json(&["cancel", &id]);
    assert_eq!(job["status"], "cancelled", "{job:#}");
    assert_eq!(fs::read_to_string(scene.root.join("heard")).unwrap(), "cancelled\n");
    assert_eq!(scene.job(&id)["asks"][0]["status"], "ended");
}

/// Without a daemon, nobody records the end of an attempt. Its asks are not shown as open.
#[test]
fn asks_of_an_attempt_that_ended_without_a_daemon_are_not_open() {
    let scene = Scene::with(FLEET);
    scene.start();
    let (one, token) = token_of(&scene, "one");
    let (_, made) = send(&scene, Some(&token), "POST", &format!("jobs/{one}/asks"), &wants("ls"));
    let ask = made["ask"]["id"].as_str().unwrap().to_owned();
    scene.kill_daemon();
    assert_eq!(scene.json(&["asks", &ask])["status"], "open", "its attempt still runs");
    fs::write(scene.root.join("go"), "").unwrap();
    wait_until("the attempt to end", || (scene.job(&one)["unsettled"] == true).then_some(()));
    let seen = scene.json(&["asks", &ask]);
    assert_eq!(seen["status"], "ended", "{seen}");
    assert!(seen["answered_at"].is_string(), "{seen}");
    assert_eq!(scene.json(&["asks"]), json!([]));
    assert_eq!(scene.json(&["asks", "--all"])[0]["status"], "ended");
    assert_eq!(scene.job(&one)["asks"][0]["status"], "ended");
    assert_eq!(scene.json(&["status"])["asks"], 0);
    let said = scene.run(&["status"]).stdout;
    assert!(!said.contains("waits for an answer"), "{said}");
}
