//! The numbers of a chat for `status` and the metrics.

use cowhand_core::chat::ChatPlatform;
use cowhand_core::chat::posting::AnswerProgress;
use cowhand_core::id::JobId;
use cowhand_store::{ChatCounts, MessageLimits};

use crate::chat::{BOT, answer, key, message};
use crate::{TestDb, at, on_both, with_schedule};

on_both! {
    open_answers_and_messages_that_are_not_handled_are_counted,
    answers_of_which_a_part_was_refused_are_counted,
}

async fn open_answers_and_messages_that_are_not_handled_are_counted(db: TestDb) {
    let (store, schedule) = with_schedule(&db).await;
    assert_eq!(store.chat_counts(at(0)).await.unwrap(), ChatCounts::default());
    for id in ["C1:1", "C1:2"] {
        store.receive_chat_message(BOT.into(), message(id, "C1", 1), at(1)).await.unwrap();
        store
            .open_chat_answer(answer(schedule, id, "slack C1", 1), None, MessageLimits::default())
            .await
            .unwrap();
    }
    let counts = async || {
        let counts = store.chat_counts(at(0)).await.unwrap();
        let of_coder = ("coder".parse().unwrap(), ChatPlatform::Slack);
        (counts.open_answers.get(&of_coder).copied(), counts.unhandled_messages.get(BOT).copied())
    };
    assert_eq!(counts().await, (Some(2), Some(2)));
    store.chat_message_handled(BOT.into(), "C1:1".into()).await.unwrap();
    store.end_chat_answer(schedule, key("C1:1"), at(2)).await.unwrap();
    assert_eq!(counts().await, (Some(1), Some(1)));
    store.chat_message_handled(BOT.into(), "C1:2".into()).await.unwrap();
    store.end_chat_answer(schedule, key("C1:2"), at(2)).await.unwrap();
    assert_eq!(counts().await, (None, None));
}

async fn answers_of_which_a_part_was_refused_are_counted(db: TestDb) {
    let (store, schedule) = with_schedule(&db).await;
    for (second, id) in [(1, "C1:1"), (2, "C1:2"), (3, "C1:3")] {
        let opened = answer(schedule, id, "slack C1", second);
        store.open_chat_answer(opened, None, MessageLimits::default()).await.unwrap();
    }
    let save = async |id: &str, progress: AnswerProgress| {
        assert!(store.save_chat_answer(schedule, key(id), progress, "n1".into(), None).await.unwrap());
    };
    let job: JobId = "job-2026-01-05-a1b2c3".parse().unwrap();
    let refused = |reason: &str, second, job| {
        let mut progress = AnswerProgress { job, ..AnswerProgress::default() };
        progress.note_refusal(reason.into(), at(second));
        progress
    };
    save("C1:1", refused("first", 10, None)).await;
    save("C1:2", refused("second", 20, Some(job.clone()))).await;
    save("C1:3", AnswerProgress::default()).await;
    // The end of the answer keeps the refusal.
    store.end_chat_answer(schedule, key("C1:2"), at(21)).await.unwrap();
    let counts = async |since| {
        let counts = store.chat_counts(at(since)).await.unwrap().refused_answers;
        counts.into_values().map(|refused| (refused.count, refused.last_reason, refused.last_job)).next()
    };
    assert_eq!(counts(10).await, Some((2, "second".to_owned(), Some(job.clone()))));
    assert_eq!(counts(11).await, Some((1, "second".to_owned(), Some(job))));
    assert_eq!(counts(21).await, None);
}
