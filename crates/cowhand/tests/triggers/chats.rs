//! Chats: with `per_chat`, the messages of one chat continue one session.

use std::fs;
use std::os::unix::fs::PermissionsExt;

use cowhand::fleet::{Delivered, Fleet, JobChanges, Stop, TriggerRequest, Triggered};
use cowhand::trigger::Registry;
use cowhand_core::chat::posting::MessageDetails;
use cowhand_core::delivery::{Delivery, Message};
use cowhand_core::id::JobId;
use cowhand_core::job::{Job, JobStatus};
use cowhand_core::roster::Agent;
use cowhand_core::runtime::Runtime;
use cowhand_core::session::SessionPolicy;
use cowhand_core::trigger::ChatPlatform;

use crate::{FleetFolder, name, on_both, wait_for, with_schedule};

on_both!(each_chat_goes_on_with_its_own_session, one_message_of_a_chat_at_a_time);

/// Fake Claude Code that answers with the session to resume, or a new one named after its job. It waits for a
/// file `go` if the prompt asks it to.
const CLAUDE: &str = r#"#!/bin/sh
session=$COWHAND_JOB_ID
while [ $# -gt 0 ]; do
    if [ "$1" = --resume ]; then session=$2; fi
    shift
done
read -r said
case $said in *patient*) while ! [ -e go ]; do sleep 0.02; done ;; esac
echo "{\"type\":\"system\",\"subtype\":\"init\",\"session_id\":\"$session\"}"
echo "{\"type\":\"result\",\"subtype\":\"success\",\"is_error\":false,\"result\":\"done\",\"session_id\":\"$session\"}"
"#;

fn agent(home: &FleetFolder) -> Agent {
    let program = home.path().join("claude");
    fs::write(&program, CLAUDE).unwrap();
    fs::set_permissions(&program, fs::Permissions::from_mode(0o755)).unwrap();
    let mut agent = home.agent("a");
    agent.max_concurrent = 3;
    agent.program.runtime = Runtime::Claude;
    agent.program.command = Vec::new();
    let path = format!("{}:{}", home.path().display(), std::env::var("PATH").unwrap());
    agent.program.env.insert("PATH".to_owned(), path);
    agent.session.policy = SessionPolicy::PerChat;
    with_schedule(agent, "chat", r#"{"type":"chat"}"#, "{{body}}")
}

async fn say(fleet: &Fleet, id: &str, channel: &str, thread: Option<&str>, text: &str) -> JobId {
    let delivery = Delivery::Chat(Message {
        platform: ChatPlatform::Slack,
        id: id.to_owned(),
        channel: channel.to_owned(),
        thread: thread.map(str::to_owned),
        author: "ann".to_owned(),
        text: text.to_owned(),
        url: String::new(),
        details: MessageDetails::default(),
    });
    match fleet.deliver(&name("a"), &"chat".parse().unwrap(), delivery).await.unwrap() {
        Delivered::New(job) => job.id().clone(),
        other => panic!("{other:?}"),
    }
}

async fn ended(fleet: &Fleet, id: &JobId) -> Job {
    let job = async || fleet.store().job(id.clone()).await.unwrap().unwrap();
    wait_for("the job ends", async || {
        !matches!(job().await.status(), JobStatus::Pending | JobStatus::Running)
    })
    .await;
    let job = job().await;
    assert_eq!(job.status(), JobStatus::Completed, "{job:?}");
    job
}

async fn each_chat_goes_on_with_its_own_session(home: FleetFolder) {
    let fleet = home.start(vec![agent(&home)], Registry::default()).await;
    let answer = async |id: &str, channel: &str, thread: Option<&str>| {
        ended(&fleet, &say(&fleet, id, channel, thread, "hello").await).await
    };
    let session = |job: &Job| job.session_id().unwrap().to_owned();
    let first = answer("1", "C1", None).await;
    assert_eq!((first.chat(), session(&first)), (Some("slack C1"), first.id().to_string()));
    let other = answer("2", "C2", None).await;
    assert_eq!(session(&other), other.id().as_str(), "another channel");
    let thread = answer("3", "C1", Some("9.1")).await;
    assert_eq!(session(&thread), thread.id().as_str(), "a thread is a conversation of its own");
    for (id, channel, thread, before) in
        [("4", "C1", None, &first), ("5", "C2", None, &other), ("6", "C1", Some("9.1"), &thread)]
    {
        assert_eq!(session(&answer(id, channel, thread).await), session(before), "{channel} {thread:?}");
    }
    // A job without a chat starts a new session; a retry stays in its chat.
    let by_hand = fleet.trigger(&name("a"), TriggerRequest::default()).await.unwrap();
    let Triggered::New(by_hand) = by_hand else { panic!("{by_hand:?}") };
    let by_hand = ended(&fleet, by_hand.id()).await;
    assert_eq!((by_hand.chat(), session(&by_hand)), (None, by_hand.id().to_string()));
    let again = fleet.retry(other.id(), JobChanges::default()).await.unwrap();
    assert_eq!(session(&ended(&fleet, again.id()).await), session(&other));
    fleet.stop(Stop::KeepAgents).await.unwrap();
}

/// The second message of a chat waits for the job of the first; messages of other chats do not wait.
async fn one_message_of_a_chat_at_a_time(home: FleetFolder) {
    let fleet = home.start(vec![agent(&home)], Registry::default()).await;
    let first = say(&fleet, "1", "C1", None, "be patient").await;
    let status = async |id: &JobId| fleet.store().job(id.clone()).await.unwrap().unwrap().status();
    wait_for("the first runs", async || status(&first).await == JobStatus::Running).await;
    let second = say(&fleet, "2", "C1", None, "hello").await;
    let elsewhere = say(&fleet, "3", "C2", None, "hello").await;
    ended(&fleet, &elsewhere).await;
    assert_eq!(status(&second).await, JobStatus::Pending);
    fs::write(home.path().join("go"), "").unwrap();
    let (first, second) = (ended(&fleet, &first).await, ended(&fleet, &second).await);
    assert_eq!(second.session_id(), first.session_id());
    fleet.stop(Stop::KeepAgents).await.unwrap();
}
