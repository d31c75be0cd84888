//! Posts, edits, reactions and files.

use std::time::Duration;

use cowhand_chat::{ChatError, Connector, OutgoingFile};
use cowhand_testing::slack::ALL_SCOPES;
use jiff::{SignedDuration, Timestamp};
use serde_json::Value;

use crate::{buttons, connector, place, post, workspace};

fn file(name: &str, content: &[u8]) -> OutgoingFile {
    OutgoingFile { name: name.to_owned(), content: content.to_vec() }
}

#[tokio::test]
async fn post_is_in_its_thread_with_its_key() {
    let slack = workspace().await;
    let connector = connector(&slack.url());
    let parent = slack.say("C1", "U1", "question");
    let posted =
        connector.post(&post(place("C1", Some(&parent)), "a1", "*answer* &amp; `code`")).await.unwrap();
    assert!(!posted.is_repeated);
    let message = slack.thread("C1", &parent).pop().unwrap();
    assert_eq!(format!("C1:{}", message["ts"].as_str().unwrap()), posted.id);
    assert_eq!(message["text"], "*answer* &amp; `code`");
    assert_eq!(message["metadata"]["event_payload"]["key"], "a1");
    let call = slack.calls("chat.postMessage").pop().unwrap();
    for (name, value) in
        [("parse", "none"), ("link_names", "false"), ("unfurl_links", "false"), ("thread_ts", &parent)]
    {
        assert_eq!(call.params[name], value, "{name}");
    }
}

#[tokio::test]
async fn post_in_a_thread_that_was_deleted_is_in_its_channel() {
    let slack = workspace().await;
    let connector = connector(&slack.url());
    let parent = slack.say("C1", "U1", "question");
    slack.delete("C1", &parent);
    let posted = connector.post(&post(place("C1", Some(&parent)), "a1", "answer")).await.unwrap();
    let message = slack.messages("C1").pop().unwrap();
    assert_eq!(format!("C1:{}", message["ts"].as_str().unwrap()), posted.id);
    assert_eq!((&message["text"], &message["thread_ts"]), (&"answer".into(), &Value::Null));
}

#[tokio::test]
async fn post_whose_answer_was_lost_is_found_and_not_repeated() {
    let slack = workspace().await;
    let connector = connector(&slack.url());
    let parent = slack.say("C1", "U1", "question");
    for (channel, thread) in [("C1", None), ("C1", Some(parent.as_str())), ("G1", None)] {
        slack.fail_after_effect("chat.postMessage", 1);
        let key = format!("{channel}-{}", thread.is_some());
        let posted = connector.post(&post(place(channel, thread), &key, "once")).await.unwrap();
        assert!(posted.is_repeated);
        let is_post = |message: &&Value| message["metadata"]["event_payload"]["key"] == key.as_str();
        assert_eq!(slack.messages(channel).iter().filter(is_post).count(), 1, "{key}");
    }
}

#[tokio::test]
async fn another_process_finds_the_post_of_an_earlier_one() {
    let slack = workspace().await;
    let first = connector(&slack.url());
    let parent = slack.say("C1", "U1", "question");
    let answer = post(place("C1", Some(&parent)), "a1", "once");
    let posted = first.post(&answer).await.unwrap();
    // Somebody else cannot pretend that the answer is there.
    slack.say_in_thread("C1", &parent, "U2", "a1");
    let second = connector(&slack.url());
    let again = second.post(&answer).await.unwrap();
    assert_eq!((again.id, again.is_repeated), (posted.id, true));
    // A failed post was not made, so it is made now.
    let other = second.post(&post(place("C1", Some(&parent)), "a2", "twice")).await.unwrap();
    assert!(!other.is_repeated);
    assert_eq!(slack.posted_texts("C1"), ["once", "twice"]);
}

#[tokio::test]
async fn post_is_made_after_temporary_errors() {
    let slack = workspace().await;
    let connector = connector(&slack.url());
    slack.fail("chat.postMessage", 2);
    let posted = connector.post(&post(place("C1", None), "a1", "at last")).await.unwrap();
    assert!(!posted.is_repeated);
    assert_eq!(slack.posted_texts("C1"), ["at last"]);
}

#[tokio::test]
async fn rate_limit_is_waited_for_or_reported() {
    let slack = workspace().await;
    let connector = connector(&slack.url());
    slack.rate_limit("chat.postMessage", 1, 1);
    connector.post(&post(place("C1", None), "a1", "later")).await.unwrap();
    assert_eq!(slack.posted_texts("C1"), ["later"]);
    slack.rate_limit("chat.postMessage", 1, 3600);
    let error = connector.post(&post(place("C1", None), "a2", "never")).await.unwrap_err();
    let expected = ChatError::RateLimited { platform: "Slack", retry_after: Duration::from_hours(1) };
    assert_eq!(error, expected);
    let posts = ["b1", "b2", "b3"].map(|key| post(place("C2", None), key, key));
    let [first, second, third] = &posts;
    let (first, second, third) =
        tokio::join!(connector.post(first), connector.post(second), connector.post(third));
    assert!(first.is_ok() && second.is_ok() && third.is_ok());
    assert_eq!(slack.posted_texts("C2"), ["b1", "b2", "b3"]);
}

#[tokio::test]
async fn refusals_name_method_and_reason() {
    let slack = workspace().await;
    let connector = connector(&slack.url());
    let error = connector.post(&post(place("C9", None), "a1", "x")).await.unwrap_err();
    assert_eq!(error.to_string(), "Slack refused the request: chat.postMessage: channel_not_found");
    slack.scopes(&ALL_SCOPES[..1]);
    let error = connector.post(&post(place("C1", None), "a1", "x")).await.unwrap_err();
    assert_eq!(
        error.to_string(),
        "Slack refused the request: chat.postMessage: missing_scope (needed: chat:write)"
    );
}

#[tokio::test]
async fn post_is_repeated_after_temporary_and_unknown_codes() {
    let slack = workspace().await;
    let connector = connector(&slack.url());
    for (number, code) in ["rate_limited", "team_added_to_org", "org_login_required"].into_iter().enumerate()
    {
        slack.refuse("chat.postMessage", 1, code);
        connector.post(&post(place("C1", None), &format!("t{number}"), code)).await.unwrap();
    }
    let unknown = post(place("C1", None), "a1", "at last");
    slack.refuse("chat.postMessage", 2, "new_code");
    for _ in 0..2 {
        let error = connector.post(&unknown).await.unwrap_err();
        assert!(error.is_temporary() && error.to_string().contains("new_code"), "{error}");
    }
    connector.post(&unknown).await.unwrap();
    let posted = ["rate_limited", "team_added_to_org", "org_login_required", "at last"];
    assert_eq!(slack.posted_texts("C1"), posted);

    // A code that does not end is a refusal.
    slack.refuse("chat.postMessage", 100, "new_code");
    let other = post(place("C2", None), "b1", "never");
    let mut tries = 1;
    let error = loop {
        match connector.post(&other).await.unwrap_err() {
            error if error.is_temporary() => tries += 1,
            error => break error,
        }
        assert!(tries < 100, "the post is repeated for ever");
    };
    assert_eq!(error.to_string(), "Slack refused the request: chat.postMessage: new_code");
    assert_eq!(tries, 10);
}

#[tokio::test]
async fn garbage_wait_is_limited() {
    let slack = workspace().await;
    let connector = connector(&slack.url());
    slack.rate_limit("chat.postMessage", 1, u64::MAX);
    let error = connector.post(&post(place("C1", None), "a1", "x")).await.unwrap_err();
    let retry_after = Duration::from_hours(1);
    assert_eq!(error, ChatError::RateLimited { platform: "Slack", retry_after });
}

#[tokio::test]
async fn post_is_looked_up_if_the_clock_was_set_back() {
    let slack = workspace().await;
    let connector = connector(&slack.url());
    let mut once = post(place("C1", None), "a1", "once");
    let first = connector.post(&once).await.unwrap();
    once.first_tried_at = Timestamp::now() + SignedDuration::from_hours(1);
    let again = connector.post(&once).await.unwrap();
    assert_eq!((again.id, again.is_repeated), (first.id, true));
}

#[tokio::test]
async fn long_question_with_buttons_is_accepted() {
    let slack = workspace().await;
    let connector = connector(&slack.url());
    let diff = "+ let x = 1; // changed\n".repeat(500);
    let mut ask = post(place("C1", None), "ask-1", &format!("Apply?\n```\n{diff}```"));
    ask.buttons = buttons();
    connector.post(&ask).await.unwrap();
    let message = slack.messages("C1").pop().unwrap();
    let blocks = message["blocks"].as_array().unwrap();
    let shown: String =
        blocks.iter().map(|block| block["text"]["text"].as_str().unwrap_or_default()).collect();
    assert_eq!(shown.matches("// changed").count(), 500);
    assert_eq!(blocks.last().unwrap()["elements"][1]["style"], "danger");
}

#[tokio::test]
async fn message_is_edited_and_reactions_are_set() {
    let slack = workspace().await;
    let connector = connector(&slack.url());
    let place = place("C1", None);
    let id = connector.post(&post(place.clone(), "p1", "working")).await.unwrap().id;
    let ts = id.split_once(':').unwrap().1;
    slack.fail_after_effect("chat.update", 1);
    connector.edit(&place, &id, "done", &[]).await.unwrap();
    assert_eq!(slack.posted_texts("C1"), ["done"]);
    assert_eq!(slack.messages("C1")[0]["metadata"]["event_payload"]["key"], "p1");
    for _ in 0..2 {
        connector.react(&place, &id, "👀", true).await.unwrap();
        connector.react(&place, &id, ":gear:", true).await.unwrap();
        assert_eq!(slack.reactions("C1", ts), ["eyes", "gear"]);
    }
    for _ in 0..2 {
        connector.react(&place, &id, "eyes", false).await.unwrap();
        assert_eq!(slack.reactions("C1", ts), ["gear"]);
    }
    connector.show_typing(&place).await.unwrap();
}

#[tokio::test]
async fn files_are_shared_after_the_text() {
    let slack = workspace().await;
    let connector = connector(&slack.url());
    let parent = slack.say("C1", "U1", "report?");
    let mut answer = post(place("C1", Some(&parent)), "a1", "Here.");
    answer.files = vec![file("a.txt", b"one"), file("b \"2\".txt", b"two")];
    connector.post(&answer).await.unwrap();
    let messages = slack.thread("C1", &parent);
    assert_eq!((messages.len(), &messages[1]["text"]), (3, &"Here.".into()));
    assert_eq!(messages[2]["files"].as_array().unwrap().len(), 2);
    let files = slack.files("C1");
    assert_eq!((files[0].content.as_slice(), files[1].content.as_slice()), (&b"one"[..], &b"two"[..]));
    assert_eq!(files[1].name, "b \"2\".txt");

    let mut alone = post(place("C2", None), "a2", "");
    alone.files = vec![file("c.txt", b"three")];
    connector.post(&alone).await.unwrap();
    assert_eq!(slack.messages("C2")[0]["text"], "c.txt");
}

#[tokio::test]
async fn files_are_shared_once_whatever_answer_is_lost() {
    let slack = workspace().await;
    let methods =
        ["files.getUploadURLExternal", "chat.postMessage", "files.completeUploadExternal", "files.info"];
    for (number, method) in methods.into_iter().enumerate() {
        let channel = format!("C{}", number + 10);
        slack.add_channel(&channel, &channel);
        let mut answer = post(place(&channel, None), &format!("a{number}"), "Here.");
        answer.files = vec![file("a.txt", b"one")];
        slack.fail_after_effect(method, 1);
        connector(&slack.url()).post(&answer).await.unwrap();
        // Another process repeats the post.
        assert!(connector(&slack.url()).post(&answer).await.unwrap().is_repeated);
        let messages = slack.messages(&channel);
        assert_eq!(messages.len(), 2, "{method}: {messages:#?}");
        assert_eq!(slack.files(&channel).len(), 1, "{method}");
    }
}

#[tokio::test]
async fn files_of_a_post_that_ended_after_the_text_are_shared_later() {
    let slack = workspace().await;
    let mut answer = post(place("C1", None), "a1", "Here.");
    answer.files = vec![file("a.txt", b"one")];
    slack.rate_limit("files.completeUploadExternal", 1, 3600);
    connector(&slack.url()).post(&answer).await.unwrap_err();
    assert_eq!((slack.messages("C1").len(), slack.files("C1").len()), (1, 0));
    // Slack has removed the upload in the meantime.
    slack.state().files.clear();
    assert!(connector(&slack.url()).post(&answer).await.unwrap().is_repeated);
    assert_eq!((slack.messages("C1").len(), slack.files("C1").len()), (2, 1));
    assert!(connector(&slack.url()).post(&answer).await.unwrap().is_repeated);
    assert_eq!(slack.messages("C1").len(), 2);
}
