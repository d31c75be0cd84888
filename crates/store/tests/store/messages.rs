//! Steering messages: they are sent once, delivered once, and settled with their job.

use cowhand_core::actor::Actor;
use cowhand_core::attempt::Settlement;
use cowhand_core::id::JobId;
use cowhand_core::job::{JobStatus, Outcome};
use cowhand_core::policy::Retry;
use cowhand_core::retention::RetentionLimit;
use cowhand_core::steering::{
    MAX_STEERING_MESSAGES, MAX_WAITING_MESSAGE_BYTES, SteeringMessage, SteeringRoute, SteeringState,
    SteeringStatus,
};
use cowhand_store::{Claim, JobFilter, MessageSent, NewJobMessage, Removal, Settled, Store, audit};
use jiff::SignedDuration;
use uuid::Uuid;

use crate::conformance::event_types;
use crate::{TestDb, at, hand_job, on_both, with_schedule};

on_both! {
    a_message_is_sent_once_for_each_key,
    a_delivered_message_stays_delivered,
    messages_that_wait_go_to_the_next_attempt,
    messages_that_wait_at_the_end_become_the_next_turn,
    messages_to_a_cancelled_job_are_dropped,
    an_ended_or_cancelled_job_takes_no_messages,
    messages_are_limited,
    a_job_with_a_live_next_turn_is_kept,
}

async fn pending(store: &Store) -> JobId {
    store.add_job(hand_job(), at(1)).await.unwrap().id().clone()
}

async fn start(store: &Store, job: &JobId) -> i64 {
    let lease = SignedDuration::from_mins(1);
    match store.claim(job.clone(), 100, "n1".into(), lease, at(2)).await.unwrap() {
        Claim::Claimed { epoch, .. } => epoch,
        other => panic!("{other:?}"),
    }
}

fn new(job: &JobId, text: &str, key: Option<&str>) -> NewJobMessage {
    NewJobMessage {
        job: job.clone(),
        uuid: Uuid::now_v7(),
        key: key.map(str::to_owned),
        text: text.to_owned(),
        interrupt: false,
        route: SteeringRoute::Live,
    }
}

async fn send(store: &Store, job: &JobId, text: &str) -> SteeringMessage {
    match store.send_message(new(job, text, None), at(3)).await.unwrap() {
        MessageSent::Sent(message) => message,
        other => panic!("{other:?}"),
    }
}

fn completed() -> Outcome {
    Outcome::Completed { summary: None }
}

async fn settle(store: &Store, job: &JobId, epoch: i64, settlement: Settlement, retry: Retry) {
    let settled = store.settle(job.clone(), epoch, settlement, retry, at(9)).await.unwrap();
    assert!(matches!(settled, Settled::Done(_)), "{settled:?}");
}

async fn states(store: &Store, job: &JobId) -> Vec<SteeringStatus> {
    let messages = store.messages_of(job.clone()).await.unwrap();
    messages.iter().map(|message| message.state.status()).collect()
}

async fn a_message_is_sent_once_for_each_key(db: TestDb) {
    let (store, _) = with_schedule(&db).await;
    let job = pending(&store).await;
    let jo = Actor::Person { uid: 7, name: Some("jo".into()) };
    let sent = store.send_message(new(&job, "one \u{0} nul", Some("k")), at(3));
    let MessageSent::Sent(first) = audit::by(jo.clone(), sent).await.unwrap() else { panic!() };
    assert_eq!((first.number, &first.by, &first.state), (1, &Some(jo), &SteeringState::Pending));
    let again = store.send_message(new(&job, "another text", Some("k")), at(4)).await.unwrap();
    let [stored] = &store.messages_of(job.clone()).await.unwrap()[..] else { panic!() };
    assert_eq!(again, MessageSent::Existing(stored.clone()));
    assert_eq!((stored.uuid, stored.text.as_str()), (first.uuid, "one \u{fffd} nul"));
    let second = send(&store, &job, "two").await;
    assert_eq!(second.number, 2);
    assert_eq!(store.waiting_messages().await.unwrap(), [(job, 2)].into());
    assert_eq!(event_types(&store).await.iter().filter(|kind| **kind == "job:message").count(), 2);
}

async fn a_delivered_message_stays_delivered(db: TestDb) {
    let (store, _) = with_schedule(&db).await;
    let job = pending(&store).await;
    let epoch = start(&store, &job).await;
    let (one, two) = (send(&store, &job, "one").await, send(&store, &job, "two").await);
    let deliver = |epoch, at| store.messages_delivered(job.clone(), epoch, vec![one.uuid, Uuid::nil()], at);
    deliver(epoch - 1, at(4)).await.unwrap();
    assert_eq!(states(&store, &job).await, [SteeringStatus::Pending; 2], "an old epoch changes nothing");
    deliver(epoch, at(5)).await.unwrap();
    deliver(epoch, at(6)).await.unwrap();
    let messages = store.messages_of(job.clone()).await.unwrap();
    assert_eq!(messages[0].state, SteeringState::Delivered { settled_at: at(5), attempt: 1 });
    let settlement = Settlement { delivered: vec![one.uuid, two.uuid], ..completed().into() };
    settle(&store, &job, epoch, settlement, Retry::default()).await;
    let messages = store.messages_of(job.clone()).await.unwrap();
    assert_eq!(messages[0].state, SteeringState::Delivered { settled_at: at(5), attempt: 1 });
    assert_eq!(messages[1].state, SteeringState::Delivered { settled_at: at(9), attempt: 1 });
    assert_eq!(store.jobs(JobFilter::default(), 10).await.unwrap().len(), 1, "there is no next turn");
    let settled = event_types(&store).await.into_iter().filter(|kind| *kind == "job:message_settled");
    assert_eq!(settled.count(), 2);
}

async fn messages_that_wait_go_to_the_next_attempt(db: TestDb) {
    let (store, _) = with_schedule(&db).await;
    let job = pending(&store).await;
    let epoch = start(&store, &job).await;
    let (one, two) = (send(&store, &job, "one").await, send(&store, &job, "two").await);
    let retry = Retry { max_attempts: 2, ..Retry::default() };
    let lost = Settlement { delivered: vec![one.uuid], ..Outcome::lost("lost").into() };
    settle(&store, &job, epoch, lost, retry).await;
    assert_eq!(store.job(job.clone()).await.unwrap().unwrap().status(), JobStatus::Pending);
    assert_eq!(states(&store, &job).await, [SteeringStatus::Delivered, SteeringStatus::Pending]);
    let lease = SignedDuration::from_mins(1);
    let Claim::Claimed { epoch, .. } =
        store.claim(job.clone(), 9, "n1".into(), lease, at(9999)).await.unwrap()
    else {
        panic!()
    };
    store.messages_delivered(job.clone(), epoch, vec![two.uuid], at(9999)).await.unwrap();
    let messages = store.messages_of(job).await.unwrap();
    assert_eq!(messages[1].state, SteeringState::Delivered { settled_at: at(9999), attempt: 2 });
}

async fn messages_that_wait_at_the_end_become_the_next_turn(db: TestDb) {
    let (store, _) = with_schedule(&db).await;
    let job = pending(&store).await;
    let epoch = start(&store, &job).await;
    send(&store, &job, "one").await;
    send(&store, &job, "two").await;
    settle(&store, &job, epoch, completed().into(), Retry::default()).await;
    let messages = store.messages_of(job.clone()).await.unwrap();
    let SteeringState::NextTurn { next_job, .. } = &messages[0].state else { panic!("{messages:?}") };
    assert_eq!(messages[1].state, messages[0].state, "both are in the same prompt");
    let next = store.job(next_job.clone()).await.unwrap().unwrap();
    assert_eq!((next.status(), next.prompt()), (JobStatus::Pending, Some("one\n\ntwo")));
    let ended = store.job(job.clone()).await.unwrap().unwrap();
    assert_eq!((next.agent(), next.schedule()), (ended.agent(), ended.schedule()));
    assert_eq!(store.turn_before(next_job.clone()).await.unwrap(), Some(job.clone()));
    assert_eq!(store.turn_before(job).await.unwrap(), None);
    assert!(store.waiting_messages().await.unwrap().is_empty());
}

async fn messages_to_a_cancelled_job_are_dropped(db: TestDb) {
    let (store, _) = with_schedule(&db).await;
    let (waiting, running) = (pending(&store).await, pending(&store).await);
    let epoch = start(&store, &running).await;
    for job in [&waiting, &running] {
        send(&store, job, "one").await;
        store.cancel(job.clone(), at(4)).await.unwrap();
    }
    // The agent completed its work before it was stopped.
    settle(&store, &running, epoch, completed().into(), Retry::default()).await;
    for job in [&waiting, &running] {
        assert_eq!(states(&store, job).await, [SteeringStatus::Dropped]);
    }
    assert_eq!(store.jobs(JobFilter::default(), 10).await.unwrap().len(), 2, "there is no next turn");
}

async fn an_ended_or_cancelled_job_takes_no_messages(db: TestDb) {
    let (store, _) = with_schedule(&db).await;
    let job = pending(&store).await;
    let epoch = start(&store, &job).await;
    let first = store.send_message(new(&job, "one", Some("k")), at(3)).await.unwrap();
    store.cancel(job.clone(), at(4)).await.unwrap();
    assert_eq!(store.send_message(new(&job, "two", None), at(5)).await.unwrap(), MessageSent::Cancelling);
    settle(&store, &job, epoch, completed().into(), Retry::default()).await;
    let refused = store.send_message(new(&job, "two", None), at(10)).await.unwrap();
    assert!(matches!(refused, MessageSent::Ended(_)), "{refused:?}");
    let repeated = store.send_message(new(&job, "one", Some("k")), at(10)).await.unwrap();
    let (MessageSent::Sent(first), MessageSent::Existing(repeated)) = (first, repeated) else { panic!() };
    assert_eq!(first.uuid, repeated.uuid, "a repeated request gets its answer also after the end");
}

async fn messages_are_limited(db: TestDb) {
    let (store, _) = with_schedule(&db).await;
    let (many, large) = (pending(&store).await, pending(&store).await);
    send(&store, &large, &"x".repeat(MAX_WAITING_MESSAGE_BYTES)).await;
    assert_eq!(store.send_message(new(&large, "x", None), at(3)).await.unwrap(), MessageSent::TooLarge);
    for _ in 0..MAX_STEERING_MESSAGES {
        send(&store, &many, "x").await;
    }
    assert_eq!(store.send_message(new(&many, "x", None), at(3)).await.unwrap(), MessageSent::TooMany);
}

async fn a_job_with_a_live_next_turn_is_kept(db: TestDb) {
    let (store, _) = with_schedule(&db).await;
    let job = pending(&store).await;
    let epoch = start(&store, &job).await;
    send(&store, &job, "one").await;
    settle(&store, &job, epoch, completed().into(), Retry::default()).await;
    let next = store.messages_of(job.clone()).await.unwrap().remove(0);
    let SteeringState::NextTurn { next_job, .. } = next.state else { panic!() };
    assert!(store.ended_jobs(None).await.unwrap().is_empty());
    let removal = store.remove_job(job.clone(), at(10)).await.unwrap();
    assert_eq!(removal, Removal::InUse { by: next_job.clone() });
    let epoch = start(&store, &next_job).await;
    settle(&store, &next_job, epoch, completed().into(), Retry::default()).await;
    let limit = RetentionLimit::MaxAge;
    assert_eq!(store.prune(vec![(job.clone(), limit)], at(11)).await.unwrap().len(), 1);
    assert!(store.messages_of(job).await.unwrap().is_empty());
}
