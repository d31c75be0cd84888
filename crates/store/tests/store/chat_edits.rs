//! Edits of chat messages: of a job that has not started, of a firing that is not prepared, and of an answer.

use cowhand_core::chat::posting::AnswerOrigin;
use cowhand_core::firing::{Decision, NewFiring};
use cowhand_core::trigger::FiringContext;
use cowhand_store::{ChatEdit, Claim, Fired, MessageLimits, TakePreparing};
use jiff::SignedDuration;

use crate::chat::{answer, key};
use crate::conformance::event_types;
use crate::{TestDb, at, new_job, on_both, with_schedule};

on_both! {
    an_edit_replaces_the_prompt_of_a_job_that_has_not_started,
    an_edit_replaces_the_text_of_a_firing_that_is_not_prepared,
    an_edit_of_a_message_changes_the_answer_of_its_job,
}

fn edited(text: &str) -> (FiringContext, Option<String>) {
    let task = cowhand_core::trigger::Task { body: text.into(), ..Default::default() };
    (FiringContext { task, ..FiringContext::default() }, Some(format!("Do {text}")))
}

fn firing(schedule: cowhand_core::id::ScheduleId, decision: Decision) -> NewFiring {
    NewFiring { schedule, key: key("C1:1"), due: at(1), decision, note: None }
}

async fn an_edit_replaces_the_prompt_of_a_job_that_has_not_started(db: TestDb) {
    let (store, schedule) = with_schedule(&db).await;
    let edit =
        async |text: &str| store.edit_chat_firing(schedule, key("C1:1"), edited(text), at(3)).await.unwrap();
    assert_eq!(edit("a").await, ChatEdit::TooLate, "there is no firing");
    let fired = store.fire_once(firing(schedule, Decision::Run(new_job())), at(2)).await.unwrap();
    let Fired::Recorded(Some(job)) = fired else { panic!() };
    assert_eq!(edit("b").await, ChatEdit::Replaced);
    let prompt = async || store.job(job.id().clone()).await.unwrap().unwrap().prompt().unwrap().to_owned();
    assert_eq!(prompt().await, "Do b");
    assert!(event_types(&store).await.contains(&"job:edited"));
    let lease = SignedDuration::from_mins(1);
    let claim = store.claim(job.id().clone(), 100, "n1".into(), lease, at(4)).await.unwrap();
    assert!(matches!(claim, Claim::Claimed { .. }));
    assert_eq!(edit("c").await, ChatEdit::TooLate);
    assert_eq!(prompt().await, "Do b");
}

async fn an_edit_replaces_the_text_of_a_firing_that_is_not_prepared(db: TestDb) {
    let (store, schedule) = with_schedule(&db).await;
    store.fire_once(firing(schedule, Decision::Prepare(edited("a").0)), at(2)).await.unwrap();
    let edit = async |text: &str, second| {
        store.edit_chat_firing(schedule, key("C1:1"), edited(text), at(second)).await.unwrap()
    };
    assert_eq!(edit("b", 3).await, ChatEdit::Replaced);
    let take = async |second| {
        let taken =
            store.take_preparing(schedule, key("C1:1"), "n1".into(), at(second + 10), at(second)).await;
        let TakePreparing::Ours(preparation) = taken.unwrap() else { panic!() };
        preparation.context.task.body
    };
    assert_eq!(take(4).await, "b");
    assert_eq!(edit("c", 5).await, ChatEdit::Preparing);
    assert_eq!(edit("d", 15).await, ChatEdit::Replaced, "its lease has expired");
    assert_eq!(take(16).await, "d");
}

async fn an_edit_of_a_message_changes_the_answer_of_its_job(db: TestDb) {
    let (store, schedule) = with_schedule(&db).await;
    let fired = store.fire_once(firing(schedule, Decision::Run(new_job())), at(2)).await.unwrap();
    let Fired::Recorded(Some(job)) = fired else { panic!() };
    let of_job = async || store.chat_answer_of_job(job.id().clone()).await.unwrap();
    assert_eq!(of_job().await, None);
    let answer = answer(schedule, "C1:1", "slack C1", 1);
    store.open_chat_answer(answer.clone(), None, MessageLimits::default()).await.unwrap();
    assert_eq!(of_job().await.unwrap().origin, answer.origin);
    let edited = AnswerOrigin { text: "edited".into(), ..answer.origin };
    store.edit_chat_answer(schedule, key("C1:1"), edited.clone()).await.unwrap();
    assert_eq!(of_job().await.unwrap().origin, edited);
}
