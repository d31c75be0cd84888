//! The web chat over the API: rights, messages that are sent once, the order of the queue, sessions, and crashes.

use std::fs;
use std::os::unix::fs::PermissionsExt;

use cowhand_testing::wait_until;
use rusqlite::Connection;
use serde_json::{Value, json};

use crate::{Scene, answer};

/// Fake Claude Code. It begins a new session with the id of its job, continues a session, or copies it.
const CLAUDE: &str = r#"#!/bin/sh
session=$COWHAND_JOB_ID
while [ $# -gt 0 ]; do
    case $1 in
    --resume) session=$2; of=$2 ;;
    --fork-session) session=$COWHAND_JOB_ID ;;
    esac
    shift
done
IFS= read -r prompt
echo "{\"type\":\"system\",\"subtype\":\"init\",\"session_id\":\"$session\"}"
echo "{\"type\":\"result\",\"subtype\":\"success\",\"is_error\":false,\"result\":\"from ${of:-nothing}\",\"session_id\":\"$session\"}"
"#;

const FLEET: &str = r#"
server: {listen: "127.0.0.1:0"}
agents:
  - name: talker
    runtime: claude
    session: {policy: continue}
  - name: waiter
    runtime: command
    command: [sh, -c, "cat; while ! [ -e done ]; do sleep 0.1; done"]
  - {name: silent, runtime: command, command: [cat], web_chat: {enabled: false}}
  - name: taken
    runtime: command
    command: [cat]
    schedules: {web-chat: {type: manual, prompt: Mine.}}
"#;

/// A fleet with a client whose token may trigger agents.
struct Chat {
    scene: Scene,
    token: String,
}

impl Chat {
    fn new() -> Self {
        let mut chat = Self { scene: Scene::prepared(FLEET), token: String::new() };
        let program = chat.scene.path("claude");
        fs::write(&program, CLAUDE).unwrap();
        fs::set_permissions(&program, fs::Permissions::from_mode(0o755)).unwrap();
        let folder = program.parent().unwrap().display().to_string();
        chat.scene.set_variable("PATH", &format!("{folder}:{}", std::env::var("PATH").unwrap()));
        chat.scene.start(&[]);
        chat.token = chat.scene.token("person", "operate");
        chat
    }

    async fn post(&self, path: &str, body: Value) -> (u16, Value) {
        let request = self.scene.ask("POST", &format!("/api/v1/{path}")).bearer_auth(&self.token);
        answer(request.body(body.to_string())).await
    }

    async fn get(&self, path: &str) -> Value {
        let (status, found) =
            answer(self.scene.ask("GET", &format!("/api/v1/{path}")).bearer_auth(&self.token)).await;
        assert_eq!(status, 200, "{path}: {found}");
        found
    }

    /// Begins a conversation and returns its id and its job.
    async fn begin(&self, with: Value, text: &str) -> (String, String) {
        let mut body = with;
        body["text"] = json!(text);
        let (status, sent) = self.post("conversations", body).await;
        assert_eq!(status, 201, "{sent}");
        (id(&sent), sent["message"]["job"]["id"].as_str().unwrap().to_owned())
    }

    /// Sends a message in a conversation and returns its job.
    async fn say(&self, conversation: &str, text: &str) -> String {
        let (status, sent) =
            self.post(&format!("conversations/{conversation}/messages"), json!({"text": text})).await;
        assert_eq!(status, 201, "{sent}");
        sent["message"]["job"]["id"].as_str().unwrap().to_owned()
    }

    async fn messages(&self, conversation: &str) -> Vec<Value> {
        let found = self.get(&format!("conversations/{conversation}/messages")).await;
        found["items"].as_array().unwrap().clone()
    }

    fn job(&self, id: &str) -> Value {
        let (code, out, said) = self.scene.run(&["job", id, "--json"]);
        assert_eq!(code, 0, "{said}");
        serde_json::from_str(&out).unwrap()
    }

    fn ended(&self, id: &str) -> Value {
        wait_until("the job to end", || Some(self.job(id)).filter(|job| job["finished_at"].is_string()))
    }

    async fn until_state(&self, conversation: &str, state: &str) {
        loop {
            let found = self.get(&format!("conversations/{conversation}")).await;
            if found["state"] == state {
                return;
            }
            tokio::time::sleep(std::time::Duration::from_millis(20)).await;
        }
    }
}

fn id(sent: &Value) -> String {
    sent["conversation"]["id"].as_str().unwrap().to_owned()
}

fn session(job: &Value) -> &str {
    job["session_id"].as_str().unwrap()
}

#[tokio::test]
async fn a_token_that_may_trigger_can_write_and_others_can_read() {
    let chat = Chat::new();
    let (conversation, _) = chat.begin(json!({"agent": "waiter"}), "secret plans").await;
    let reader = chat.scene.token("reader", "read");
    let writes = [
        ("conversations".to_owned(), json!({"agent": "waiter", "text": "x"})),
        (format!("conversations/{conversation}/messages"), json!({"text": "x"})),
        (format!("conversations/{conversation}/reset"), json!({})),
    ];
    for (path, body) in &writes {
        let request = || chat.scene.ask("POST", &format!("/api/v1/{path}")).body(body.to_string());
        let (status, refused) = answer(request().bearer_auth(&reader)).await;
        assert_eq!((status, refused["code"].as_str()), (403, Some("forbidden")), "{path}: {refused}");
        assert_eq!(answer(request()).await.0, 401, "{path}");
    }
    for path in [
        "conversations".to_owned(),
        format!("conversations/{conversation}"),
        format!("conversations/{conversation}/messages"),
    ] {
        let request = || chat.scene.ask("GET", &format!("/api/v1/{path}"));
        let (status, found) = answer(request().bearer_auth(&reader)).await;
        assert_eq!(status, 200, "{path}: {found}");
        assert!(found.to_string().contains("secret plans"), "{path}: {found}");
        assert_eq!(answer(request()).await.0, 401, "{path}");
    }
    let messages = chat.messages(&conversation).await;
    assert_eq!(messages.len(), 1, "{messages:?}");
    assert_eq!(messages[0]["sender"]["name"], "person", "{messages:?}");
    chat.scene.end_jobs();
}

#[tokio::test]
async fn a_repeated_message_runs_once() {
    let chat = Chat::new();
    let begin = json!({"agent": "waiter", "text": "first", "key": "k1"});
    let all = futures_util::future::join_all((0..8).map(|_| chat.post("conversations", begin.clone()))).await;
    let new = all.iter().filter(|(status, _)| *status == 201).count();
    assert_eq!(new, 1, "{all:?}");
    assert!(
        all.iter().all(|(status, sent)| matches!(status, 200 | 201) && id(sent) == id(&all[0].1)),
        "{all:?}"
    );
    let path = format!("conversations/{}/messages", id(&all[0].1));
    let more = json!({"text": "second", "key": "k2"});
    let all = futures_util::future::join_all((0..8).map(|_| chat.post(&path, more.clone()))).await;
    assert_eq!(all.iter().filter(|(status, _)| *status == 201).count(), 1, "{all:?}");
    assert_eq!(chat.scene.jobs().len(), 2);
    // The same key for another agent, and another key, are other messages.
    assert_eq!(
        chat.post("conversations", json!({"agent": "talker", "text": "first", "key": "k1"})).await.0,
        201
    );
    assert_eq!(chat.post(&path, json!({"text": "second", "key": "k3"})).await.0, 201);
    chat.scene.end_jobs();
}

#[tokio::test]
async fn messages_wait_in_their_order_and_can_be_cancelled() {
    let chat = Chat::new();
    let (conversation, first) = chat.begin(json!({"agent": "waiter"}), "first words\nof the person").await;
    chat.until_state(&conversation, "running").await;
    let second = chat.say(&conversation, "second").await;
    let third = chat.say(&conversation, "third").await;
    let messages = chat.messages(&conversation).await;
    let shown = |messages: &[Value]| -> Vec<Value> {
        messages.iter().map(|one| json!([one["text"], one["state"], one["position"]])).collect()
    };
    assert_eq!(
        shown(&messages),
        [
            json!(["third", "waiting", 2]),
            json!(["second", "waiting", 1]),
            json!(["first words\nof the person", "running", null])
        ]
    );
    assert!(messages[0]["waits"]["message"].is_string(), "{messages:?}");
    let listed = chat.get("conversations?agent=waiter").await;
    let one = &listed["items"][0];
    assert_eq!(
        json!([one["title"], one["state"], one["waiting"], one["running"], one["messages"]]),
        json!(["first words", "running", 2, first, 3])
    );
    // The messages are firings of one schedule, with a ledger.
    let (code, why, said) = chat.scene.run(&["why", "waiter/web-chat", "--json"]);
    assert_eq!(code, 0, "{said}");
    assert_eq!(serde_json::from_str::<Value>(&why).unwrap()["firings"].as_array().unwrap().len(), 3, "{why}");
    let job = chat.job(&second);
    assert_eq!(
        json!([job["trigger_type"], job["schedule"], job["conversation"], job["prompt"]]),
        json!(["web", "web-chat", conversation, "second"])
    );
    assert_eq!(chat.post(&format!("jobs/{second}/cancel"), json!({})).await.0, 200);
    assert_eq!(
        shown(&chat.messages(&conversation).await)[..2],
        [json!(["third", "waiting", 1]), json!(["second", "cancelled", null])]
    );
    chat.scene.end_jobs();
    let (first, third) = (chat.ended(&first), chat.ended(&third));
    assert!(first["finished_at"].as_str() <= third["finished_at"].as_str());
    chat.until_state(&conversation, "answered").await;
    // A page of the list continues after the last message of the previous page.
    let page = chat.get(&format!("conversations/{conversation}/messages?limit=2")).await;
    assert_eq!(page["next_cursor"], "2", "{page}");
    let page = chat.get(&format!("conversations/{conversation}/messages?limit=2&after=2")).await;
    assert_eq!(json!([page["items"][0]["number"], page["next_cursor"]]), json!([1, null]), "{page}");
    // A removed job takes its message with it, and the last one its conversation.
    for (job, left) in [(&first["id"], 2), (&third["id"], 1)] {
        assert_eq!(chat.scene.run(&["job", "delete", job.as_str().unwrap()]).0, 0);
        assert_eq!(chat.messages(&conversation).await.len(), left);
    }
    assert_eq!(chat.scene.run(&["job", "delete", &second]).0, 0);
    let gone =
        chat.scene.ask("GET", &format!("/api/v1/conversations/{conversation}")).bearer_auth(&chat.token);
    assert_eq!(answer(gone).await.0, 404);
}

#[tokio::test]
async fn each_conversation_has_its_own_session() {
    let chat = Chat::new();
    let (code, out, said) = chat.scene.run(&["trigger", "talker", "-p", "by hand", "--wait", "--json"]);
    assert_eq!(code, 0, "{said}");
    let by_hand: Value = serde_json::from_str(&out).unwrap();
    let (one, job) = chat.begin(json!({"agent": "talker"}), "hello").await;
    let first = chat.ended(&job);
    assert_ne!(session(&first), session(&by_hand), "the session of the agent is not used");
    let second = chat.ended(&chat.say(&one, "go on").await);
    assert_eq!(session(&second), session(&first));
    let (_, job) = chat.begin(json!({"agent": "talker"}), "something else").await;
    assert_ne!(session(&chat.ended(&job)), session(&first), "another conversation");
    // A reset begins a new session, and later messages continue it.
    assert_eq!(chat.post(&format!("conversations/{one}/reset"), json!({})).await.0, 200);
    let third = chat.ended(&chat.say(&one, "again").await);
    assert_ne!(session(&third), session(&first));
    assert_eq!(session(&chat.ended(&chat.say(&one, "and again").await)), session(&third));
    let (_, events, _) = chat.scene.run(&["events", "--audit", "--json"]);
    assert!(events.contains("conversation:reset"), "{events}");
    // A session that was not used for longer than the limit is not continued.
    let store = Connection::open(chat.scene.path(".cowhand/store.db")).unwrap();
    let day = 25_i64 * 3_600 * 1_000_000;
    store.execute("update jobs set finished_at = finished_at - ?1 where agent = 'talker'", [day]).unwrap();
    drop(store);
    let expired = chat.ended(&chat.say(&one, "a day later").await);
    assert_ne!(session(&expired), session(&third));
}

#[tokio::test]
async fn a_conversation_continues_a_copy_of_a_finished_job() {
    let chat = Chat::new();
    let (code, out, said) = chat.scene.run(&["trigger", "talker", "-p", "by hand", "--wait", "--json"]);
    assert_eq!(code, 0, "{said}");
    let parent: Value = serde_json::from_str(&out).unwrap();
    let with = || json!({"job": parent["id"]});
    let (conversation, job) = chat.begin(with(), "what did you do?").await;
    let first = chat.ended(&job);
    assert_eq!(first["summary"], format!("from {}", session(&parent)), "{first}");
    assert_ne!(session(&first), session(&parent), "the job is not changed");
    let second = chat.ended(&chat.say(&conversation, "go on").await);
    assert_eq!(session(&second), session(&first), "the conversation continues its own session");
    assert_eq!(chat.get(&format!("conversations/{conversation}")).await["continues"], parent["id"]);
    let (other, job) = chat.begin(with(), "from the same job").await;
    assert_ne!(other, conversation);
    assert_eq!(chat.ended(&job)["summary"], format!("from {}", session(&parent)));
    // After a reset, the session of the job does not count any more.
    assert_eq!(chat.post(&format!("conversations/{other}/reset"), json!({})).await.0, 200);
    assert_eq!(chat.ended(&chat.say(&other, "afresh").await)["summary"], "from nothing");
    let (_, waiting) = chat.begin(json!({"agent": "waiter"}), "run").await;
    let (status, refused) = chat.post("conversations", json!({"job": waiting, "text": "x"})).await;
    assert_eq!(status, 409, "{refused}");
    chat.scene.end_jobs();
}

#[tokio::test]
async fn wrong_messages_are_refused() {
    let chat = Chat::new();
    let long = "x".repeat(100_001);
    let no_agent = json!({"agent": "nobody", "text": "x"});
    for (path, body, status, said) in [
        ("conversations", json!({"agent": "waiter", "text": " \n"}), 400, "the message is empty"),
        ("conversations", json!({"agent": "waiter", "text": long}), 400, "at most 100000 bytes"),
        ("conversations", json!({"agent": "waiter", "text": "x", "key": ""}), 400, "idempotency key"),
        ("conversations", json!({"text": "x"}), 400, "either an `agent` or a `job`"),
        (
            "conversations",
            json!({"agent": "waiter", "job": "job-2026-01-05-aaaaaa", "text": "x"}),
            400,
            "either",
        ),
        ("conversations", json!({"agent": "waiter", "text": "x", "more": 1}), 400, "more"),
        ("conversations", no_agent, 404, "nobody"),
        ("conversations", json!({"job": "job-2026-01-05-aaaaaa", "text": "x"}), 404, "job-2026-01-05-aaaaaa"),
        ("conversations", json!({"agent": "silent", "text": "x"}), 409, "web_chat"),
        ("conversations", json!({"agent": "taken", "text": "x"}), 409, "web_chat"),
        ("conversations/nowhere/messages", json!({"text": "x"}), 404, "no conversation nowhere"),
        ("conversations/nowhere/reset", json!({}), 404, "no conversation nowhere"),
    ] {
        let (found, refused) = chat.post(path, body).await;
        assert_eq!(found, status, "{said}: {refused}");
        assert!(refused["detail"].as_str().unwrap().contains(said), "{said}: {refused}");
    }
    assert_eq!(chat.scene.jobs().len(), 0);
    // A person turns the web chat of an agent off and on.
    let (conversation, _) = chat.begin(json!({"agent": "waiter"}), "x").await;
    assert_eq!(chat.scene.run(&["schedule", "disable", "waiter/web-chat"]).0, 0);
    let path = format!("conversations/{conversation}/messages");
    let (status, refused) = chat.post(&path, json!({"text": "y"})).await;
    assert_eq!(status, 409, "{refused}");
    assert!(refused["detail"].as_str().unwrap().contains("schedule enable waiter/web-chat"), "{refused}");
    assert_eq!(chat.scene.run(&["schedule", "enable", "waiter/web-chat"]).0, 0);
    assert_eq!(chat.post(&path, json!({"text": "y"})).await.0, 201);
    let (_, check, said) = chat.scene.run(&["config", "check"]);
    assert!(format!("{check}{said}").contains("it has a schedule `web-chat`"), "{check}{said}");
    chat.scene.end_jobs();
}

#[tokio::test]
async fn after_a_crash_a_message_has_exactly_one_job() {
    for (point, is_stored) in [("web_message_received", false), ("web_message_stored", true)] {
        let mut chat = Chat::new();
        let (conversation, first) = chat.begin(json!({"agent": "waiter"}), "before").await;
        chat.scene.kill();
        chat.scene.set_variable("COWHAND_FAULT", point);
        chat.scene.start(&[]);
        let path = format!("conversations/{conversation}/messages");
        let request = chat.scene.ask("POST", &format!("/api/v1/{path}")).bearer_auth(&chat.token);
        let body = json!({"text": "during the crash", "key": "k"});
        assert!(request.body(body.to_string()).send().await.is_err(), "{point}: the daemon is killed");
        chat.scene.kill();
        chat.scene.set_variable("COWHAND_FAULT", "none");
        chat.scene.start(&[]);
        assert_eq!(chat.messages(&conversation).await.len(), 1 + usize::from(is_stored), "{point}");
        let (status, sent) = chat.post(&path, body).await;
        assert_eq!(status, if is_stored { 200 } else { 201 }, "{point}: {sent}");
        assert_eq!(chat.scene.jobs().len(), 2, "{point}");
        let job = sent["message"]["job"]["id"].as_str().unwrap();
        chat.scene.end_jobs();
        chat.ended(&first);
        assert_eq!(chat.ended(job)["prompt"], "during the crash");
        chat.until_state(&conversation, "answered").await;
        assert_eq!(chat.messages(&conversation).await.len(), 2, "{point}");
    }
}
