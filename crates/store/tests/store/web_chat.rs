//! The web chat: a message, its firing and its job are stored together and once, and leave together.

use cowhand_core::firing::{Decision, NewFiring};
use cowhand_core::id::{AgentName, JobId};
use cowhand_core::job::{JobStatus, TriggerType};
use cowhand_core::policy::Retry;
use cowhand_core::retention::RetentionLimit;
use cowhand_core::roster::Agent;
use cowhand_core::schedule::ScheduleRecord;
use cowhand_core::steering::SteeringRoute;
use cowhand_core::trigger::Occurrence;
use cowhand_store::{NewJobMessage, NewWebConversation, NewWebMessage, Store, WebMessageSent};
use uuid::Uuid;

use crate::conformance::{claim, completed, event_types};
use crate::{TestDb, at, new_job, on_both, roster};

on_both! {
    a_message_is_stored_with_its_job_once,
    concurrent_messages_have_different_numbers,
    a_reset_counts_for_later_messages,
    the_conversations_with_the_newest_messages_come_first,
    a_conversation_continues_a_job_until_it_has_a_session,
    a_removed_job_takes_its_message_with_it,
    a_message_for_the_next_turn_belongs_to_the_conversation,
}

fn agent(name: &str) -> AgentName {
    name.parse().unwrap()
}

fn message(conversation: &str, agent_name: &str, key: Option<&str>, second: i64) -> NewWebMessage {
    let agent = Agent::new(agent(agent_name));
    let schedule = &agent.web_chat.as_ref().unwrap().schedule;
    let occurrence = format!("web:{conversation}:{second}:{}", key.unwrap_or_default());
    let mut job = new_job();
    (job.agent, job.schedule) = (agent.name.clone(), Some(schedule.name.clone()));
    job.trigger_type = TriggerType::Web;
    NewWebMessage {
        conversation: conversation.to_owned(),
        begin: None,
        agent: agent.name.clone(),
        key: key.map(str::to_owned),
        text: format!("text {second} \u{0}"),
        schedule: ScheduleRecord::new(&agent.name, schedule, at(second)),
        firing: NewFiring {
            schedule: schedule.id,
            key: Occurrence::Manual(&occurrence).key(0),
            due: at(second),
            decision: Decision::Run(job),
            note: None,
        },
    }
}

fn first(conversation: &str, agent: &str, key: Option<&str>, second: i64) -> NewWebMessage {
    let begin =
        NewWebConversation { title: format!("title of {conversation}"), continues: None, confined: None };
    NewWebMessage { begin: Some(begin), ..message(conversation, agent, key, second) }
}

/// Sends a message and returns its number and its job.
async fn send(store: &Store, message: NewWebMessage, second: i64) -> (u32, JobId) {
    match store.send_web_message(message, at(second)).await.unwrap() {
        WebMessageSent::New(message, job) => {
            assert_eq!(message.job, *job.id());
            (message.number, message.job)
        }
        other => panic!("{other:?}"),
    }
}

async fn end(store: &Store, job: &JobId, session: Option<&str>, second: i64) {
    let job = store.job(job.clone()).await.unwrap().unwrap();
    let (job, epoch) = claim(store, &job, second).await;
    if let Some(session) = session {
        store.set_session(job.id().clone(), epoch, session.to_owned(), at(second)).await.unwrap();
    }
    store.settle(job.id().clone(), epoch, completed(), Retry::default(), at(second)).await.unwrap();
}

async fn a_message_is_stored_with_its_job_once(db: TestDb) {
    let store = db.open().await;
    store.load_schedules(roster(&[]), at(0)).await.unwrap();
    let unknown = store.send_web_message(message("c1", "coder", None, 1), at(1)).await.unwrap();
    assert_eq!(unknown, WebMessageSent::NoConversation);
    let (number, job) = send(&store, first("c1", "coder", Some("k"), 1), 1).await;
    assert_eq!(number, 1);
    let again = store.send_web_message(first("c1", "coder", Some("k"), 1), at(2)).await.unwrap();
    let WebMessageSent::Existing(existing, same) = again else { panic!("{again:?}") };
    assert_eq!((existing.number, same.id()), (1, &job));
    assert_eq!(event_types(&store).await, ["schedule:fired", "job:created"]);
    let (number, _) = send(&store, message("c1", "coder", Some("other"), 3), 3).await;
    assert_eq!(number, 2);
    let messages = store.web_messages("c1".into(), u32::MAX, 10).await.unwrap();
    let shown: Vec<_> = messages.iter().map(|(message, job)| (message.number, job.status())).collect();
    assert_eq!(shown, [(2, JobStatus::Pending), (1, JobStatus::Pending)]);
    // PostgreSQL cannot store NUL.
    assert_eq!(messages[1].0.text, "text 1 \u{fffd}");
    assert_eq!(messages[1].1.chat(), Some("web c1"));
    assert_eq!(store.web_message_of_job(job).await.unwrap(), Some(messages[1].0.clone()));
    // A reload keeps the schedule, which the config does not list.
    store.load_schedules(roster(&[]), at(4)).await.unwrap();
    let schedule = message("c1", "coder", None, 5).firing.schedule;
    assert_eq!(store.schedule(schedule).await.unwrap().unwrap().absent_since, None);
    let conversation = store.web_conversation("c1".into()).await.unwrap().unwrap();
    assert_eq!((conversation.last_number, conversation.updated_at), (2, at(3)));
}

async fn concurrent_messages_have_different_numbers(db: TestDb) {
    let store = db.open().await;
    let sent = (0..20).map(|second| {
        let key = format!("k{}", second / 2);
        store.send_web_message(first("c1", "coder", Some(&key), second / 2), at(9))
    });
    let sent = futures_util::future::join_all(sent).await;
    let mut numbers: Vec<u32> = Vec::new();
    for sent in sent {
        match sent.unwrap() {
            WebMessageSent::New(message, _) => numbers.push(message.number),
            WebMessageSent::Existing(..) => {}
            other => panic!("{other:?}"),
        }
    }
    numbers.sort_unstable();
    assert_eq!(numbers, (1..=10).collect::<Vec<_>>());
}

async fn a_reset_counts_for_later_messages(db: TestDb) {
    let store = db.open().await;
    assert_eq!(store.reset_web_conversation("c1".into(), at(0)).await.unwrap(), None);
    send(&store, first("c1", "coder", None, 1), 1).await;
    let reset = store.reset_web_conversation("c1".into(), at(2)).await.unwrap().unwrap();
    assert_eq!(reset.resets, 1);
    send(&store, message("c1", "coder", None, 3), 3).await;
    let messages = store.web_messages("c1".into(), u32::MAX, 10).await.unwrap();
    let shown: Vec<_> = messages.iter().map(|(message, job)| (message.resets, job.chat())).collect();
    assert_eq!(shown, [(1, Some("web c1 1")), (0, Some("web c1"))]);
    assert!(event_types(&store).await.contains(&"conversation:reset"));
}

async fn the_conversations_with_the_newest_messages_come_first(db: TestDb) {
    let store = db.open().await;
    for (second, conversation, agent) in
        [(1, "c1", "coder"), (2, "c2", "other"), (3, "c3", "coder"), (3, "c4", "coder")]
    {
        send(&store, first(conversation, agent, None, second), second).await;
    }
    let (_, job) = send(&store, message("c1", "coder", None, 5), 5).await;
    end(&store, &job, None, 6).await;
    let list = async |agent: Option<&str>, after: Option<&str>, limit| {
        let after = match after {
            Some(id) => store.web_conversation(id.into()).await.unwrap(),
            None => None,
        };
        let found = store.web_conversations(agent.map(self::agent), after, limit).await.unwrap();
        found.into_iter().map(|(one, _)| one.id).collect::<Vec<_>>()
    };
    assert_eq!(list(None, None, 9).await, ["c1", "c4", "c3", "c2"]);
    assert_eq!(list(None, Some("c4"), 1).await, ["c3"]);
    assert_eq!(list(Some("coder"), None, 2).await, ["c1", "c4"]);
    assert_eq!(list(Some("coder"), Some("c4"), 2).await, ["c3"]);
    let found = store.web_conversations(None, None, 1).await.unwrap();
    let states: Vec<_> = found[0].1.iter().map(|job| job.status).collect();
    assert_eq!(states, [JobStatus::Completed, JobStatus::Pending], "the newest first");
}

async fn a_conversation_continues_a_job_until_it_has_a_session(db: TestDb) {
    let store = db.open().await;
    let parent: JobId = "job-2026-01-05-a1b2c3".parse().unwrap();
    let begin = NewWebConversation { title: "t".into(), continues: Some(parent.clone()), confined: None };
    let (_, one) =
        send(&store, NewWebMessage { begin: Some(begin), ..message("c1", "coder", None, 1) }, 1).await;
    let continues =
        async |job: &JobId| store.web_conversation_continues("c1".into(), job.clone()).await.unwrap();
    assert_eq!(continues(&one).await, Some(parent.clone()));
    // The first job was cancelled without a session.
    store.cancel(one, at(2)).await.unwrap();
    let (_, two) = send(&store, message("c1", "coder", None, 3), 3).await;
    assert_eq!(continues(&two).await, Some(parent.clone()));
    end(&store, &two, Some("s-2"), 4).await;
    assert_eq!(continues(&two).await, Some(parent), "for another attempt of the same job");
    let (_, three) = send(&store, message("c1", "coder", None, 5), 5).await;
    assert_eq!(continues(&three).await, None);
}

async fn a_removed_job_takes_its_message_with_it(db: TestDb) {
    let store = db.open().await;
    let (_, one) = send(&store, first("c1", "coder", Some("k"), 1), 1).await;
    let (_, two) = send(&store, message("c1", "coder", None, 2), 2).await;
    for job in [&one, &two] {
        end(&store, job, None, 3).await;
    }
    store.prune(vec![(one, RetentionLimit::MaxAge)], at(4)).await.unwrap();
    let left = store.web_messages("c1".into(), u32::MAX, 10).await.unwrap();
    assert_eq!(left.iter().map(|(message, _)| message.number).collect::<Vec<_>>(), [2]);
    // The key stays used, so a request that arrives late does not run again.
    let late = store.send_web_message(message("c1", "coder", Some("k"), 1), at(5)).await.unwrap();
    assert_eq!(late, WebMessageSent::Removed);
    store.prune(vec![(two, RetentionLimit::MaxAge)], at(6)).await.unwrap();
    assert_eq!(store.web_conversation("c1".into()).await.unwrap(), None);
}

async fn a_message_for_the_next_turn_belongs_to_the_conversation(db: TestDb) {
    let store = db.open().await;
    let (_, one) = send(&store, first("c1", "coder", None, 1), 1).await;
    let job = store.job(one.clone()).await.unwrap().unwrap();
    let (_, epoch) = claim(&store, &job, 2).await;
    let late = NewJobMessage {
        job: one.clone(),
        uuid: Uuid::from_u128(1),
        key: None,
        text: "and this".into(),
        interrupt: false,
        route: SteeringRoute::NextTurn,
    };
    store.send_message(late, at(3)).await.unwrap();
    store.settle(one, epoch, completed(), Retry::default(), at(4)).await.unwrap();
    let messages = store.web_messages("c1".into(), u32::MAX, 10).await.unwrap();
    let shown: Vec<_> =
        messages.iter().map(|(one, job)| (one.number, one.text.as_str(), job.chat())).collect();
    assert_eq!(shown, [(2, "and this", Some("web c1")), (1, "text 1 \u{fffd}", Some("web c1"))]);
    assert_eq!(messages[0].1.trigger_type(), TriggerType::Web);
}
