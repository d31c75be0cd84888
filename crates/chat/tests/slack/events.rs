//! Messages, edits and deletions.

use cowhand_chat::{Connector, EventReply};
use cowhand_core::chat::ChatEvent;
use serde_json::json;

use crate::{Scene, place, post};

#[tokio::test]
async fn mention_in_channel_is_one_message_with_readable_text() {
    let mut scene = Scene::start().await;
    let ts = scene.slack.say(
        "C1",
        "U1",
        "<@UBOT> ask <@U2> in <#C2|random> about <https://a.example/?a=1&amp;b=2|the docs> &amp; &lt;code&gt;",
    );
    let message = scene.next_message().await;
    assert_eq!(message.id, format!("C1:{ts}"));
    assert_eq!(message.text, "ask @Eve in #random about the docs (https://a.example/?a=1&b=2) & <code>");
    assert!(message.mentions_bot && !message.place.is_direct && message.attachments.is_empty());
    assert_eq!((message.place.channel.as_str(), message.place.thread.as_deref()), ("C1", None));
    assert_eq!(message.place.space.as_deref(), Some("T1"));
    assert_eq!((message.author.id.as_str(), message.author.name.as_str()), ("U1", "Ada"));
    assert!(!message.author.is_bot && !message.author.is_self);
    assert!(message.url.ends_with(&format!("/archives/C1/p{}", ts.replace('.', ""))), "{}", message.url);

    // The message also arrived as app_mention; it is not passed on twice.
    scene.slack.say("C1", "U2", "next");
    let next = scene.next_message().await;
    assert_eq!((next.text.as_str(), next.mentions_bot), ("next", false));
    scene.slack.wait_until_acknowledged().await;
}

#[tokio::test]
async fn mention_in_private_channel_arrives_without_history_scope() {
    let mut scene = Scene::start().await;
    scene.slack.scopes(&["app_mentions:read", "chat:write"]);
    scene.slack.say("G1", "U1", "unseen");
    scene.slack.say("G1", "U1", "<@UBOT> seen");
    let message = scene.next_message().await;
    assert_eq!((message.text.as_str(), message.mentions_bot), ("seen", true));
    assert_eq!((message.author.id.as_str(), message.author.name.as_str()), ("U1", "U1"));
}

#[tokio::test]
async fn thread_direct_message_and_bots_are_recognised() {
    let mut scene = Scene::start().await;
    let parent = scene.slack.say_as_bot("C1", "B7", "build failed");
    let message = scene.next_message().await;
    assert!(message.author.is_bot && !message.author.is_self);
    assert_eq!((message.author.id.as_str(), message.author.name.as_str()), ("B7", "App B7"));

    scene.slack.say_in_thread("C1", &parent, "U1", "why?");
    let message = scene.next_message().await;
    assert_eq!(message.place.thread.as_deref(), Some(parent.as_str()));
    assert!(!message.mentions_bot);

    scene.slack.say_direct("U1", "hello");
    let message = scene.next_message().await;
    assert!(message.place.is_direct && !message.mentions_bot);
    scene.slack.say_direct("U1", "<@UBOT> hello again");
    let message = scene.next_message().await;
    assert_eq!((message.text.as_str(), message.mentions_bot), ("hello again", true));
}

#[tokio::test]
async fn reply_in_thread_of_bot_is_no_mention_and_own_messages_are_marked() {
    let mut scene = Scene::start().await;
    let id = scene.connector.post(&post(place("C1", None), "k1", "I am the bot")).await.unwrap().id;
    let own = scene.next_message().await;
    assert_eq!(own.id, id);
    assert!(own.author.is_self && own.author.is_bot);
    scene.slack.say_in_thread("C1", id.split_once(':').unwrap().1, "U1", "thanks");
    assert!(!scene.next_message().await.mentions_bot);
}

#[tokio::test]
async fn edits_and_deletions_are_passed_on_and_previews_are_not() {
    let mut scene = Scene::start().await;
    let (first, second) = (scene.slack.say("C1", "U1", "one"), scene.slack.say("C1", "U1", "two"));
    scene.next_message().await;
    scene.next_message().await;
    scene.slack.unfurl("C1", &first);
    scene.slack.edit("C1", &first, "<@UBOT> one, edited");
    let ChatEvent::Edited(edited) = scene.next().await else { panic!("not an edit") };
    assert_eq!((edited.id, edited.text.as_str()), (format!("C1:{first}"), "one, edited"));
    assert!(edited.mentions_bot);

    scene.slack.delete("C1", &first);
    assert_eq!(scene.next().await, ChatEvent::Deleted { message: format!("C1:{first}") });
    // A message with replies becomes a placeholder.
    scene.slack.say_in_thread("C1", &second, "U2", "reply");
    scene.next_message().await;
    scene.slack.delete("C1", &second);
    assert_eq!(scene.next().await, ChatEvent::Deleted { message: format!("C1:{second}") });
}

#[tokio::test]
async fn notices_and_unknown_events_are_acknowledged_and_not_passed_on() {
    let mut scene = Scene::start().await;
    scene.slack.notice("C1", "U2", "channel_join");
    scene
        .slack
        .send_event("C1", json!({ "subtype": "channel_topic", "user": "U2", "ts": "1.2", "text": "x" }));
    scene.slack.send_event("C1", json!({ "subtype": "message_changed" }));
    scene.slack.say("C1", "U1", "hello");
    assert_eq!(scene.next_message().await.text, "hello");
    scene.slack.wait_until_acknowledged().await;
}

#[tokio::test]
async fn files_are_attachments() {
    let mut scene = Scene::start().await;
    scene.slack.say_with_file("C1", "U1", "<@UBOT> read", "a b.csv", "text/csv; charset=utf-8", b"1,2");
    let message = scene.next_message().await;
    let file = &message.attachments[0];
    assert_eq!((file.name.as_str(), file.media_type.as_str(), file.bytes), ("a b.csv", "text/csv", 3));
    let content = scene.connector.download(file, 3).await.unwrap();
    assert_eq!(content, b"1,2");
}

#[tokio::test]
async fn event_is_acknowledged_only_after_it_is_stored() {
    let mut scene = Scene::start().await;
    scene.slack.say("C1", "U1", "one");
    scene.slack.say("C2", "U1", "two");
    let first = scene.receive().await;
    assert_eq!(scene.slack.unacknowledged(), 2);
    assert!(scene.events.try_recv().is_err(), "the next event waits for the reply");
    first.reply.send(EventReply::Stored).unwrap();
    let second = scene.receive().await;
    scene.slack.wait_until_unacknowledged(1).await;
    second.reply.send(EventReply::Stored).unwrap();
    scene.slack.wait_until_acknowledged().await;
}

#[tokio::test]
async fn event_that_was_not_stored_arrives_again_with_the_same_id() {
    let mut scene = Scene::start().await;
    scene.slack.state().acknowledge_within = std::time::Duration::from_millis(100);
    let ts = scene.slack.say("C1", "U1", "<@UBOT> one");
    let mut dropped = 0;
    // It arrives as a message and as a mention, and neither is stored.
    while dropped < 2 {
        let received = scene.receive().await;
        assert!(matches!(&received.event, ChatEvent::Message(message) if message.id == format!("C1:{ts}")));
        drop(received);
        dropped += 1;
    }
    assert_eq!(scene.next_message().await.id, format!("C1:{ts}"));
    scene.slack.wait_until_acknowledged().await;
}

#[tokio::test]
async fn redelivered_event_has_the_same_id() {
    let mut scene = Scene::start().await;
    let ts = scene.slack.say("C1", "U1", "one");
    let first = scene.next_message().await;
    scene.slack.redeliver(&ts);
    assert_eq!(scene.next_message().await, first);
}

#[tokio::test]
async fn messages_of_a_burst_arrive_in_order() {
    let mut scene = Scene::start().await;
    for number in 0..200 {
        scene.slack.say(["C1", "C2"][number % 2], "U1", &format!("message {number}"));
    }
    for number in 0..200 {
        assert_eq!(scene.next_message().await.text, format!("message {number}"));
    }
    scene.slack.wait_until_acknowledged().await;
}

#[tokio::test]
async fn an_app_has_the_ids_of_its_user_and_of_its_bot() {
    let mut scene = Scene::start().await;
    scene.slack.say_as_app("C1", "U7", "B7", "build failed");
    let author = scene.next_message().await.author;
    assert_eq!((author.id.as_str(), author.bot_id.as_deref(), author.is_bot), ("U7", Some("B7"), true));
}

/// Everybody in the workspace can write a message with many ids. The next message does not wait for the names of all.
#[tokio::test]
async fn only_some_names_of_a_message_are_looked_up() {
    let mut scene = Scene::start().await;
    let ids: Vec<String> = (0..3_000).map(|number| format!("<@UX{number}>")).collect();
    scene.slack.say("C1", "U1", &format!("{} <@U2>", ids.join(" ")));
    let message = scene.next_message().await;
    assert!(message.text.contains("@UX2999 @U2"), "{}", &message.text[message.text.len() - 40..]);
    // The author and twenty of the ids.
    assert_eq!(scene.slack.calls("users.info").len(), 21);
    scene.slack.say("C1", "U1", "<@U2> hello");
    assert_eq!(scene.next_message().await.text, "@Eve hello");
}
