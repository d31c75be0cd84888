//! Asks: a running attempt makes them, they are answered once, and they end if nobody answers or the attempt ends.

use cowhand_core::actor::Actor;
use cowhand_core::ask::{Ask, AskAnswer, AskRefused, AskState, AskStatus, AskSubject, Denial};
use cowhand_core::event::Fact;
use cowhand_core::id::JobId;
use cowhand_core::job::Outcome;
use cowhand_core::policy::Retry;
use cowhand_core::retention::RetentionLimit;
use cowhand_store::audit;
use cowhand_store::{AskAnswered, AskMade, Claim, Store};
use jiff::SignedDuration;
use serde_json::json;

use crate::conformance::event_types;
use crate::{TestDb, at, hand_job, no_such_job, on_both, with_schedule};

on_both! {
    an_ask_is_made_once_and_answered_once,
    an_unanswered_ask_expires,
    the_end_of_an_attempt_ends_its_asks,
    an_ask_that_expired_before_the_end_of_its_attempt_stays_expired,
    only_an_attempt_that_runs_can_ask,
    of_two_answers_one_counts,
    an_agent_cannot_ask_without_end,
    denials_are_counted_and_limited,
}

async fn running(store: &Store) -> (JobId, i64) {
    let job = store.add_job(hand_job(), at(1)).await.unwrap();
    let lease = SignedDuration::from_mins(1);
    match store.claim(job.id().clone(), 100, "n1".into(), lease, at(2)).await.unwrap() {
        Claim::Claimed { job, epoch } => (job.id().clone(), epoch),
        other => panic!("{other:?}"),
    }
}

fn tool() -> AskSubject {
    AskSubject::Tool { tool: "Bash".into(), input: json!({ "command": "ls \u{0}" }) }
}

async fn ask(store: &Store, job: &JobId, key: &str) -> Ask {
    match store.make_ask(job.clone(), 1, key.into(), tool(), at(100), at(3)).await.unwrap() {
        AskMade::Made(ask) => ask,
        other => panic!("{other:?}"),
    }
}

async fn an_ask_is_made_once_and_answered_once(db: TestDb) {
    let (store, _) = with_schedule(&db).await;
    let (job, _) = running(&store).await;
    let first = ask(&store, &job, "k1").await;
    assert_eq!((first.id.number, first.attempt, &first.what), (1, 1, &tool()));
    assert_eq!(ask(&store, &job, "k1").await, first, "the same key is the same ask");
    let second = ask(&store, &job, "k2").await;
    assert_eq!(store.open_asks(10).await.unwrap(), [first.clone(), second.clone()]);

    let jo = Actor::Person { uid: 7, name: Some("jo".into()) };
    let allow = AskAnswer::Allow { message: Some("be quick".into()) };
    let answered = audit::by(jo.clone(), store.answer_ask(first.id.clone(), allow, at(4))).await.unwrap();
    let AskAnswered::Done(answered) = answered else { panic!("{answered:?}") };
    let AskState::Allowed(said) = &answered.state else { panic!("{answered:?}") };
    assert_eq!((said.by.as_ref(), said.message.as_deref()), (Some(&jo), Some("be quick")));
    assert_eq!(store.ask(first.id.clone()).await.unwrap(), Some(answered.clone()));
    assert_eq!(ask(&store, &job, "k1").await, answered, "who asks again hears the answer");

    let again = store.answer_ask(first.id.clone(), AskAnswer::Deny { message: None }, at(5)).await.unwrap();
    let over = AskRefused::Over { id: first.id.clone(), status: AskStatus::Allowed };
    assert_eq!(again, AskAnswered::Refused(over));
    let words = store.answer_ask(second.id.clone(), AskAnswer::Text("x".into()), at(5)).await.unwrap();
    assert_eq!(words, AskAnswered::Refused(AskRefused::NeedsVerdict(second.id.clone())));
    assert_eq!(store.open_asks(10).await.unwrap(), [second]);
    assert_eq!(store.asks_of(job).await.unwrap().len(), 2);
    assert_eq!(store.last_asks(1).await.unwrap().len(), 1);
    assert_eq!(event_types(&store).await[2..], ["ask:made", "ask:made", "ask:answered"]);
    let event = store.events_after(0, 100).await.unwrap().pop().unwrap();
    assert_eq!(event.by, Some(jo));
    assert_eq!(event.fact, Fact::AskAnswered { ask: first.id, status: AskStatus::Allowed });
}

async fn an_unanswered_ask_expires(db: TestDb) {
    let (store, _) = with_schedule(&db).await;
    let (job, _) = running(&store).await;
    let made = ask(&store, &job, "k").await;
    store.expire_asks(at(99)).await.unwrap();
    assert_eq!(store.ask(made.id.clone()).await.unwrap().unwrap().state, AskState::Open);
    let late = store.answer_ask(made.id.clone(), AskAnswer::Allow { message: None }, at(100)).await.unwrap();
    let over = AskRefused::Over { id: made.id.clone(), status: AskStatus::Expired };
    assert_eq!(late, AskAnswered::Refused(over), "also before anybody wrote down that it is over");
    let jo = Actor::Person { uid: 7, name: Some("jo".into()) };
    audit::by(jo, store.expire_asks(at(100))).await.unwrap();
    store.expire_asks(at(101)).await.unwrap();
    let state = store.ask(made.id).await.unwrap().unwrap().state;
    assert_eq!(state, AskState::Expired { answered_at: at(100) });
    assert_eq!(event_types(&store).await[2..], ["ask:made", "ask:expired"]);
    let event = store.events_after(0, 100).await.unwrap().pop().unwrap();
    assert_eq!(event.by, None, "nobody asked for it");
}

async fn the_end_of_an_attempt_ends_its_asks(db: TestDb) {
    let (store, _) = with_schedule(&db).await;
    let (job, epoch) = running(&store).await;
    let open = ask(&store, &job, "k1").await;
    let answered = ask(&store, &job, "k2").await;
    store.answer_ask(answered.id.clone(), AskAnswer::Deny { message: None }, at(4)).await.unwrap();
    let outcome = Outcome::Completed { summary: None };
    store.settle(job.clone(), epoch, outcome, Retry::default(), at(5)).await.unwrap();
    let states: Vec<_> =
        store.asks_of(job.clone()).await.unwrap().iter().map(|ask| ask.state.status()).collect();
    assert_eq!(states, [AskStatus::Ended, AskStatus::Denied]);
    let late = store.answer_ask(open.id.clone(), AskAnswer::Allow { message: None }, at(6)).await.unwrap();
    assert!(matches!(late, AskAnswered::Refused(AskRefused::Over { status: AskStatus::Ended, .. })));
    assert_eq!(store.open_asks(10).await.unwrap(), []);
    // Asks are removed with their job.
    store.prune(vec![(job.clone(), RetentionLimit::MaxAge)], at(7)).await.unwrap();
    assert_eq!(store.ask(open.id.clone()).await.unwrap(), None);
    let gone = store.answer_ask(open.id, AskAnswer::Allow { message: None }, at(8)).await.unwrap();
    assert_eq!(gone, AskAnswered::NoAsk);
}

/// No daemon ran when the ask expired, so its expiry is recorded with the end of the attempt.
async fn an_ask_that_expired_before_the_end_of_its_attempt_stays_expired(db: TestDb) {
    let (store, _) = with_schedule(&db).await;
    let (job, epoch) = running(&store).await;
    let made = ask(&store, &job, "k").await;
    let outcome = Outcome::Completed { summary: None };
    store.settle(job, epoch, outcome, Retry::default(), at(200)).await.unwrap();
    let state = store.ask(made.id.clone()).await.unwrap().unwrap().state;
    assert_eq!(state, AskState::Expired { answered_at: at(100) });
    let events = store.events_after(0, 100).await.unwrap();
    let expired = Fact::AskExpired { ask: made.id, status: AskStatus::Expired };
    assert!(events.iter().any(|event| event.fact == expired && event.by.is_none()), "{events:?}");
}

async fn only_an_attempt_that_runs_can_ask(db: TestDb) {
    let (store, _) = with_schedule(&db).await;
    let waiting = store.add_job(hand_job(), at(1)).await.unwrap();
    let (running, _) = running(&store).await;
    for (job, attempt) in [(waiting.id(), 1), (waiting.id(), 0), (&running, 2), (&running, 0)] {
        let made = store.make_ask(job.clone(), attempt, "k".into(), tool(), at(100), at(3)).await.unwrap();
        assert_eq!(made, AskMade::NotRunning, "{attempt}");
    }
    let made = store.make_ask(no_such_job(), 1, "k".into(), tool(), at(100), at(3)).await;
    assert!(made.is_err());
}

async fn of_two_answers_one_counts(db: TestDb) {
    let (store, _) = with_schedule(&db).await;
    let (job, _) = running(&store).await;
    for round in 0..10 {
        let made = ask(&store, &job, &format!("k{round}")).await;
        let answer = |answer: AskAnswer| {
            let (store, id) = (store.clone(), made.id.clone());
            tokio::spawn(async move { store.answer_ask(id, answer, at(4)).await.unwrap() })
        };
        let both = [answer(AskAnswer::Allow { message: None }), answer(AskAnswer::Deny { message: None })];
        let mut done = 0;
        for one in both {
            done += usize::from(matches!(one.await.unwrap(), AskAnswered::Done(_)));
        }
        assert_eq!(done, 1);
    }
}

async fn an_agent_cannot_ask_without_end(db: TestDb) {
    let (store, _) = with_schedule(&db).await;
    let (job, _) = running(&store).await;
    for number in 0..50 {
        ask(&store, &job, &format!("k{number}")).await;
    }
    let more = store.make_ask(job.clone(), 1, "more".into(), tool(), at(100), at(3)).await.unwrap();
    assert_eq!(more, AskMade::TooMany);
    assert_eq!(ask(&store, &job, "k0").await.id.number, 1, "what it asked before is still known");
}

/// An agent that repeats a denied use does not fill the table or the event log.
async fn denials_are_counted_and_limited(db: TestDb) {
    let (store, _) = with_schedule(&db).await;
    let (job, epoch) = running(&store).await;
    let deny = async |tool: &str, attempt: u32, now: i64| {
        store.denied(job.clone(), attempt, tool.to_owned(), "Bash(rm *)".into(), at(now)).await.unwrap();
    };
    for now in 3..6 {
        deny("Bash", 1, now).await;
    }
    deny("Bash", 2, 6).await;
    let (tool, rule) = ("Bash".to_owned(), "Bash(rm *)".to_owned());
    let one = Denial { tool, rule, times: 3, first_at: at(3), last_at: at(5) };
    assert_eq!(store.denials_of(job.clone()).await.unwrap(), [one], "another attempt does not run");
    assert_eq!(event_types(&store).await[2..], ["ask:denied"]);
    for number in 0..200 {
        deny(&format!("tool{number}"), 1, 7).await;
    }
    assert_eq!(store.denials_of(job.clone()).await.unwrap().len(), 100);
    let types = event_types(&store).await;
    assert_eq!(types.iter().filter(|name| **name == "ask:denied").count(), 100);
    let done = Outcome::Completed { summary: None };
    store.settle(job.clone(), epoch, done, Retry::default(), at(8)).await.unwrap();
    store.prune(vec![(job.clone(), RetentionLimit::MaxAge)], at(9)).await.unwrap();
    assert_eq!(store.denials_of(job).await.unwrap(), []);
}
