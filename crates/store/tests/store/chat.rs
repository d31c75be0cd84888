//! Chat: messages are stored once and handled in order, answers keep their progress, and one node has each bot.

use cowhand_core::ask::AskId;
use cowhand_core::chat::posting::MessageDetails;
use cowhand_core::chat::posting::{AnswerOrigin, AnswerProgress, PostedAsk};
use cowhand_core::chat::{ChatMessage, ChatPlace, ChatPlatform, ChatUser};
use cowhand_core::firing::{Decision, NewFiring};
use cowhand_core::policy::Retry;
use cowhand_core::schedule::SkipReason;
use cowhand_core::trigger::{FiringKey, Occurrence};
use cowhand_store::{
    AnsweredJob, ChatAnswer, ChatAsk, ChatBotState, Claim, FileSent, Fired, MessageLimits, SentFile,
};
use jiff::SignedDuration;

use crate::conformance::{claim, completed};
use crate::{TestDb, at, new_job, on_both, with_schedule};

on_both! {
    a_message_is_stored_once_and_handled_in_order,
    threads_do_not_take_the_places_of_channels,
    the_time_up_to_which_messages_are_received_goes_back_only_from_the_future,
    an_edit_changes_only_a_message_that_is_not_handled,
    answers_are_found_by_conversation_and_message,
    an_ended_answer_does_not_change,
    an_open_answer_shows_its_job,
    one_node_has_a_bot,
    asks_of_a_chat_are_open_until_their_posts_are_closed,
    a_reset_counts_for_its_conversation,
    a_command_acts_on_one_thing,
    a_running_attempt_sends_each_file_once,
}

pub(crate) const BOT: &str = "slack:B1";

pub(crate) fn message(id: &str, channel: &str, second: i64) -> ChatMessage {
    ChatMessage {
        platform: ChatPlatform::Slack,
        id: id.into(),
        place: place(channel),
        author: user("U1"),
        text: format!("text of {id} \u{0}"),
        mentions_bot: true,
        reply_to: None,
        attachments: Vec::new(),
        sent_at: at(second),
        url: String::new(),
    }
}

fn place(channel: &str) -> ChatPlace {
    ChatPlace { space: None, channel: channel.into(), thread: None, is_direct: false }
}

fn user(id: &str) -> ChatUser {
    ChatUser {
        id: id.into(),
        name: "jo".into(),
        roles: Vec::new(),
        is_bot: false,
        bot_id: None,
        is_self: false,
    }
}

pub(crate) fn key(message: &str) -> FiringKey {
    Occurrence::Chat { platform: ChatPlatform::Slack, message_id: message }.key(0)
}

async fn a_message_is_stored_once_and_handled_in_order(db: TestDb) {
    let store = db.open().await;
    let (later, earlier, other) =
        (message("C1:2", "C1", 2), message("C1:1", "C1", 1), message("C2:1", "C2", 3));
    assert!(store.receive_chat_message(BOT.into(), later.clone(), at(5)).await.unwrap());
    assert!(store.receive_chat_message(BOT.into(), earlier.clone(), at(6)).await.unwrap());
    assert!(store.receive_chat_message("slack:B2".into(), other.clone(), at(7)).await.unwrap());
    assert!(!store.receive_chat_message(BOT.into(), later.clone(), at(8)).await.unwrap(), "delivered again");
    let next = async |limit| store.open_chat_messages(BOT.into(), "C1".into(), limit).await.unwrap();
    let open = async |bot: &str, id: &str| store.open_chat_message(bot.into(), id.into()).await.unwrap();
    assert_eq!(store.open_chat_channels(BOT.into()).await.unwrap(), ["C1"]);
    assert_eq!(next(1).await, ["C1:1"]);
    assert_eq!(next(3).await, ["C1:1", "C1:2"]);
    let received = open(BOT, "C1:1").await.unwrap();
    assert_eq!((received.received_at, received.message), (at(6), earlier.clone()));

    assert!(store.chat_message_handled(BOT.into(), "C1:1".into()).await.unwrap());
    assert_eq!(open(BOT, "C1:1").await, None);
    assert!(!store.chat_message_handled(BOT.into(), "C1:1".into()).await.unwrap());
    assert!(
        !store.receive_chat_message(BOT.into(), earlier, at(9)).await.unwrap(),
        "handled, and delivered again"
    );
    assert_eq!(next(3).await, ["C1:2"]);
    let channels = store.chat_channels(BOT.into(), at(0), 10).await.unwrap();
    let channels: Vec<_> = channels.iter().map(|seen| (seen.place.channel.as_str(), seen.sent_at)).collect();
    assert_eq!(channels, [("C1", at(2))], "the newest message, and only of this bot");
    assert!(store.chat_channels(BOT.into(), at(3), 10).await.unwrap().is_empty());

    assert_eq!(store.forget_chat_messages(at(100)).await.unwrap(), 1, "only the handled message");
    assert_eq!(open("slack:B2", "C2:1").await.unwrap().message, other);
    assert!(store.chat_channels(BOT.into(), at(0), 10).await.unwrap().is_empty());
}

async fn threads_do_not_take_the_places_of_channels(db: TestDb) {
    let store = db.open().await;
    store.receive_chat_message(BOT.into(), message("D1:1", "D1", 1), at(1)).await.unwrap();
    for number in 2..8 {
        let mut reply = message(&format!("C1:{number}"), "C1", number);
        reply.place.thread = Some(format!("t{number}"));
        store.receive_chat_message(BOT.into(), reply, at(number)).await.unwrap();
    }
    let channels = store.chat_channels(BOT.into(), at(0), 2).await.unwrap();
    let places: Vec<_> = channels.iter().map(|seen| (seen.place.channel.as_str(), seen.sent_at)).collect();
    assert_eq!(places, [("C1", at(7)), ("D1", at(1))]);
    assert!(channels.iter().all(|seen| seen.place.thread.is_none()));
    let threads = async |channel: &str, since: i64| -> Vec<String> {
        let threads = store.chat_threads(BOT.into(), channel.into(), at(since), 3).await.unwrap();
        threads.into_iter().filter_map(|seen| seen.place.thread).collect()
    };
    assert_eq!(threads("C1", 0).await, ["t7", "t6", "t5"]);
    assert_eq!(threads("C1", 7).await, ["t7"]);
    assert!(threads("D1", 0).await.is_empty());
}

async fn the_time_up_to_which_messages_are_received_goes_back_only_from_the_future(db: TestDb) {
    let store = db.open().await;
    let until = async || store.chat_received_until(BOT.into()).await.unwrap();
    assert_eq!(until().await, None);
    for (set, now, expected) in [(5, 6, 5), (3, 6, 5), (8, 9, 8), (4, 7, 4)] {
        store.set_chat_received_until(BOT.into(), at(set), at(now)).await.unwrap();
        assert_eq!(until().await, Some(at(expected)));
    }
}

async fn an_edit_changes_only_a_message_that_is_not_handled(db: TestDb) {
    let store = db.open().await;
    store.receive_chat_message(BOT.into(), message("C1:1", "C1", 1), at(5)).await.unwrap();
    let edited = ChatMessage { text: "new".into(), ..message("C1:1", "C1", 1) };
    assert!(store.edit_chat_message(BOT.into(), edited.clone()).await.unwrap());
    let open = store.open_chat_message(BOT.into(), "C1:1".into()).await.unwrap();
    assert_eq!(open.unwrap().message.text, "new");
    store.chat_message_handled(BOT.into(), "C1:1".into()).await.unwrap();
    assert!(!store.edit_chat_message(BOT.into(), edited.clone()).await.unwrap());
    let unknown = ChatMessage { id: "C1:9".into(), ..edited };
    assert!(!store.edit_chat_message(BOT.into(), unknown).await.unwrap());
}

pub(crate) fn answer(
    schedule: cowhand_core::id::ScheduleId,
    id: &str,
    conversation: &str,
    second: i64,
) -> ChatAnswer {
    let origin = AnswerOrigin {
        platform: ChatPlatform::Slack,
        place: place("C1"),
        message: id.into(),
        author: user("U1"),
        repeated_by: None,
        text: "text".into(),
        details: MessageDetails::default(),
        url: String::new(),
    };
    ChatAnswer {
        schedule,
        key: key(id),
        agent: "coder".parse().unwrap(),
        origin,
        conversation: conversation.into(),
        created_at: at(second),
        progress: AnswerProgress::default(),
        waiting_note: None,
        node: None,
    }
}

async fn answers_are_found_by_conversation_and_message(db: TestDb) {
    let (store, schedule) = with_schedule(&db).await;
    let (first, second, other) = (
        answer(schedule, "C1:1", "slack C1", 1),
        answer(schedule, "C1:2", "slack C1", 2),
        answer(schedule, "C1:3", "slack C1/3", 3),
    );
    for answer in [&second, &first, &other, &first] {
        store.open_chat_answer(answer.clone(), None, MessageLimits::default()).await.unwrap();
    }
    let coder = || first.agent.clone();
    let open = async || {
        let open = store.open_answers().await.unwrap();
        open.into_iter().map(|open| (open.conversation, open.key, open.job)).collect::<Vec<_>>()
    };
    let expected = |answer: &ChatAnswer, job| (answer.conversation.clone(), answer.key.clone(), job);
    let undelivered = || AnsweredJob::NotDelivered;
    assert_eq!(open().await, [&first, &second, &other].map(|answer| expected(answer, undelivered())));
    let all_open = store.open_chat_answers(coder(), "slack C1".into(), 9).await.unwrap();
    assert_eq!(all_open, [first.clone(), second.clone()]);

    // An answer with a progress does not count as waiting.
    let waiting = async || {
        let answers = store.waiting_chat_answers(at(3), 10).await.unwrap();
        answers.into_iter().map(|answer| answer.origin.message).collect::<Vec<_>>()
    };
    assert_eq!(waiting().await, ["C1:1", "C1:2"]);
    let progress = AnswerProgress { posted: 1, ..AnswerProgress::default() };
    let save = async |progress: &AnswerProgress, node: &str, before: Option<&str>| {
        let (key, before) = (first.key.clone(), before.map(str::to_owned));
        store.save_chat_answer(schedule, key, progress.clone(), node.into(), before).await.unwrap()
    };
    assert!(save(&progress, "n2", None).await);
    assert!(!save(&AnswerProgress::default(), "n1", None).await, "node n2 has continued the answer");
    assert!(save(&progress, "n1", Some("n2")).await);
    assert!(!save(&AnswerProgress::default(), "n2", Some("n2")).await, "node n1 has continued the answer");
    assert_eq!(waiting().await, ["C1:2"]);
    let save_note =
        async |key: &FiringKey| store.save_waiting_note(schedule, key.clone(), "C1:77".into()).await.unwrap();
    assert!(save_note(&second.key).await);
    assert!(!save_note(&first.key).await, "a note after the begin of the answer would stay");
    let saved = ChatAnswer { progress, node: Some("n1".into()), ..first.clone() };
    assert_eq!(store.chat_answer(schedule, first.key.clone()).await.unwrap(), Some(saved.clone()));

    store.end_chat_answer(schedule, first.key.clone(), at(9)).await.unwrap();
    let second = ChatAnswer { waiting_note: Some("C1:77".into()), ..second };
    assert_eq!(open().await, [&second, &other].map(|answer| expected(answer, undelivered())));
    assert_eq!(store.chat_answers_of_message("C1:1".into()).await.unwrap(), std::slice::from_ref(&saved));
    let of_conversation = store.chat_answers_of_conversation(coder(), "slack C1".into(), 10).await.unwrap();
    assert_eq!(of_conversation, [second, saved]);
    let firing = NewFiring {
        schedule,
        key: first.key.clone(),
        due: at(1),
        decision: Decision::Run(new_job()),
        note: None,
    };
    let Fired::Recorded(Some(job)) = store.fire_once(firing, at(2)).await.unwrap() else { panic!() };
    assert_eq!(store.chat_answer_of_job(job.id().clone()).await.unwrap().map(|one| one.key), Some(first.key));

    assert_eq!(store.forget_chat_answers(at(9)).await.unwrap(), 0);
    assert_eq!(store.forget_chat_answers(at(10)).await.unwrap(), 1);
}

async fn an_ended_answer_does_not_change(db: TestDb) {
    let (store, schedule) = with_schedule(&db).await;
    let ended = answer(schedule, "C1:1", "slack C1", 1);
    store.open_chat_answer(ended.clone(), None, MessageLimits::default()).await.unwrap();
    store.end_chat_answer(schedule, ended.key.clone(), at(2)).await.unwrap();
    let progress = AnswerProgress { posted: 9, ..AnswerProgress::default() };
    let saved = store.save_chat_answer(schedule, ended.key.clone(), progress, "n1".into(), None);
    assert!(!saved.await.unwrap());
    store.open_chat_answer(ended.clone(), None, MessageLimits::default()).await.unwrap();
    assert_eq!(store.chat_answer(schedule, ended.key.clone()).await.unwrap(), Some(ended));
    assert!(store.open_answers().await.unwrap().is_empty());
}

async fn an_open_answer_shows_its_job(db: TestDb) {
    let (store, schedule) = with_schedule(&db).await;
    let open = answer(schedule, "C1:1", "slack C1", 1);
    store.open_chat_answer(open.clone(), None, MessageLimits::default()).await.unwrap();
    let found = async || {
        let one = store.answered_job(schedule, open.key.clone()).await.unwrap();
        let all = store.open_answers().await.unwrap();
        assert_eq!(all.len(), 1);
        assert_eq!(all[0].job, one);
        let of_conversation = store.open_answers_of(all[0].agent.clone(), "slack C1".into()).await.unwrap();
        assert_eq!(of_conversation, all);
        (all[0].job_id.clone(), one)
    };
    assert_eq!(found().await, (None, AnsweredJob::NotDelivered));
    let decision = Decision::Run(new_job());
    let firing = NewFiring { schedule, key: open.key.clone(), due: at(1), decision, note: None };
    let Fired::Recorded(Some(job)) = store.fire_once(firing, at(2)).await.unwrap() else { panic!() };
    let id = || Some(job.id().clone());
    assert_eq!(found().await, (id(), AnsweredJob::Pending { node: None }));
    let (_, epoch) = claim(&store, &job, 3).await;
    let (_, AnsweredJob::Running { node: Some(node) }) = found().await else { panic!() };
    store.settle(job.id().clone(), epoch, completed(), Retry::default(), at(4)).await.unwrap();
    assert_eq!(found().await, (id(), AnsweredJob::Ended { node: Some(node), at: Some(at(4)) }));
    let skipped = answer(schedule, "C1:2", "slack C1", 2);
    store.open_chat_answer(skipped.clone(), None, MessageLimits::default()).await.unwrap();
    let decision = Decision::Skip(SkipReason::Disabled);
    let firing = NewFiring { schedule, key: skipped.key.clone(), due: at(1), decision, note: None };
    store.fire_once(firing, at(5)).await.unwrap();
    assert_eq!(store.answered_job(schedule, skipped.key).await.unwrap(), AnsweredJob::NotRun);
}

async fn one_node_has_a_bot(db: TestDb) {
    let store = db.open().await;
    let used_by = || (ChatPlatform::Discord, vec!["coder".parse().unwrap()]);
    let lease = SignedDuration::from_secs(30);
    let hold_at = async |node: &str, second| {
        store.hold_chat_bot("b".into(), node.into(), used_by(), lease, at(second)).await.unwrap()
    };
    let hold = async |node: &str| hold_at(node, 0).await;
    assert!(hold("n1").await);
    assert!(!hold("n2").await, "the other node has it");
    assert!(hold("n1").await, "a renewal");
    store.set_chat_bot_inbox("b".into(), "discord:7".into()).await.unwrap();
    let connected = ChatBotState::Connected { account: "cow".into() };
    store.set_chat_bot_state("b".into(), "n2".into(), ChatBotState::Stopped, at(1)).await.unwrap();
    store.set_chat_bot_state("b".into(), "n1".into(), connected.clone(), at(2)).await.unwrap();
    let state = async || {
        let bots = store.chat_bots().await.unwrap();
        (bots[0].node.clone(), bots[0].state.clone(), bots[0].changed_at)
    };
    assert_eq!(state().await, ("n1".to_owned(), connected.clone(), at(2)), "only its node records the state");
    assert!(hold("n1").await);
    assert_eq!(state().await.1, connected, "a renewal keeps the state");
    store.release_chat_bot("b".into(), "n1".into(), at(3)).await.unwrap();
    assert_eq!(state().await.1, ChatBotState::Stopped);
    assert!(hold_at("n2", 3).await);
    assert_eq!(state().await.0, "n2");
    let is_of = async |node: &str| store.is_chat_bot_of("b".into(), node.into()).await.unwrap();
    assert_eq!((is_of("n1").await, is_of("n2").await), (false, true));
    assert!(!hold_at("n1", 32).await);
    assert!(hold_at("n1", 33).await, "its lease has expired");
    let inbox = store.chat_bots().await.unwrap()[0].inbox.clone();
    assert_eq!(inbox.as_deref(), Some("discord:7"), "the account does not change with the node");
    store.drop_chat_bot("b".into()).await.unwrap();
    assert!(store.chat_bots().await.unwrap().is_empty());
}

async fn asks_of_a_chat_are_open_until_their_posts_are_closed(db: TestDb) {
    let store = db.open().await;
    let ask = |number| AskId { job: "job-2026-01-05-a1b2c3".parse().unwrap(), number };
    let tried = PostedAsk {
        agent: "coder".parse().unwrap(),
        platform: ChatPlatform::Slack,
        place: place("C1"),
        is_answerable: true,
        messages: Vec::new(),
        is_complete: false,
        tried_at: Some(at(1)),
    };
    let posted = PostedAsk { messages: vec!["C1:1".into()], tried_at: None, ..tried.clone() };
    let row = |number, posted: &PostedAsk, is_closed| ChatAsk {
        id: ask(number),
        posted: posted.clone(),
        is_closed,
    };
    store.save_chat_ask(ask(1), tried.clone()).await.unwrap();
    store.save_chat_ask(ask(1), posted.clone()).await.unwrap();
    store.save_chat_ask(ask(2), tried.clone()).await.unwrap();
    assert_eq!(store.open_chat_asks().await.unwrap(), [row(1, &posted, false), row(2, &tried, false)]);
    store.save_ask_reply(ask(1), "C1:2".into()).await.unwrap();
    store.close_chat_ask(ask(1)).await.unwrap();
    assert_eq!(store.open_chat_asks().await.unwrap(), [row(2, &tried, false)]);
    assert_eq!(store.chat_ask(ask(1)).await.unwrap(), Some(row(1, &posted, true)));
    assert_eq!(store.chat_ask(ask(3)).await.unwrap(), None);
    assert_eq!(store.chat_asks_of(ask(1).job).await.unwrap().len(), 2);
    assert_eq!(store.chat_asks_of_reply("C1:2".into()).await.unwrap(), [row(1, &posted, true)]);
    assert_eq!(store.chat_asks_of_reply("C1:1".into()).await.unwrap(), []);
}

async fn a_reset_counts_for_its_conversation(db: TestDb) {
    let store = db.open().await;
    let coder = || "coder".parse().unwrap();
    let resets = async |chat: &str| store.chat_resets(coder(), chat.into()).await.unwrap();
    assert_eq!(resets("slack C1").await, 0);
    let reset = async |call: &str, second| {
        store.reset_chat(call.into(), coder(), "slack C1".into(), at(second)).await.unwrap()
    };
    assert!(reset("slack 1", 1).await);
    assert!(!reset("slack 1", 2).await, "the same command again");
    assert!(reset("slack 2", 3).await);
    assert_eq!((resets("slack C1").await, resets("slack C2").await), (2, 0));
}

async fn a_command_acts_on_one_thing(db: TestDb) {
    let store = db.open().await;
    let decide = async |call: &str, target: &str| {
        store.decide_chat_call(call.into(), target.into(), at(1)).await.unwrap()
    };
    assert_eq!(store.chat_call("slack 1".into()).await.unwrap(), None);
    assert_eq!(decide("slack 1", "job 1").await, "job 1");
    assert_eq!(decide("slack 1", "job 2").await, "job 1", "the same command again");
    assert_eq!(decide("slack 2", "job 2").await, "job 2");
    assert_eq!(store.chat_call("slack 1".into()).await.unwrap().as_deref(), Some("job 1"));
    store.forget_chat_messages(at(2)).await.unwrap();
    assert_eq!(store.chat_call("slack 1".into()).await.unwrap(), None);
}

async fn a_running_attempt_sends_each_file_once(db: TestDb) {
    let store = db.open().await;
    let job = store.add_job(new_job(), at(1)).await.unwrap();
    let send = async |key: &str, line, attempt| {
        let file = SentFile {
            job: job.id().clone(),
            number: 0,
            key: key.into(),
            node: "n1".into(),
            name: format!("{key}.txt"),
            message: String::new(),
            after_line: line,
            created_at: at(3),
            tried_at: None,
        };
        store.send_chat_file(file, attempt, 3).await.unwrap()
    };
    assert_eq!(send("a", 5, 1).await, FileSent::NotRunning);
    let lease = SignedDuration::from_mins(1);
    let claim = store.claim(job.id().clone(), 100, "n1".into(), lease, at(2)).await.unwrap();
    assert!(matches!(claim, Claim::Claimed { .. }));
    assert_eq!(send("a", 5, 1).await, FileSent::Made(1));
    assert_eq!(send("b", 2, 1).await, FileSent::Made(2));
    assert_eq!(send("a", 9, 1).await, FileSent::Made(1), "sent again");
    assert_eq!(send("c", 5, 2).await, FileSent::NotRunning);
    assert_eq!(send("c", 5, 1).await, FileSent::Made(3));
    assert_eq!(send("d", 6, 1).await, FileSent::TooMany);
    assert_eq!(store.count_chat_files(job.id().clone()).await.unwrap(), 3);
    let known = async |key: &str| store.chat_file_of_key(job.id().clone(), key.into()).await.unwrap();
    assert_eq!((known("b").await.as_deref(), known("d").await), (Some("b.txt"), None));
    let left = async |node: &str| {
        let files = store.unposted_chat_files(job.id().clone(), node.into()).await.unwrap();
        files.into_iter().map(|file| (file.number, file.after_line, file.tried_at)).collect::<Vec<_>>()
    };
    assert_eq!(left("n1").await, [(2, 2, None), (1, 5, None), (3, 5, None)]);
    assert_eq!(left("n2").await, []);
    for second in [4, 5] {
        store.chat_file_tried(job.id().clone(), 2, at(second)).await.unwrap();
    }
    store.chat_file_posted(job.id().clone(), 1, at(6)).await.unwrap();
    assert_eq!(left("n1").await, [(2, 2, Some(at(4))), (3, 5, None)]);
    assert_eq!(send("a", 5, 1).await, FileSent::Made(1), "sent again after it was posted");
}
