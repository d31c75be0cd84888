//! Messages, edits and deletions.

use cowhand_chat::EventReply;
use cowhand_core::chat::ChatEvent;
use cowhand_testing::discord::{BOT_ID, BOT_ROLE_ID, CHANNEL_ID, GUILD_ID, USER_ID};

use crate::harness::{connected, general, post_of};
use cowhand_chat::Connector as _;

#[tokio::test(flavor = "multi_thread")]
async fn a_message_has_readable_text_and_its_author() {
    let mut running = connected().await;
    let fake = &running.fake;
    let (bob, role) = (fake.add_user("bob"), fake.add_role(GUILD_ID, "testers"));
    fake.give_role(GUILD_ID, USER_ID, &role);
    let text = format!("<@{BOT_ID}> ask <@{bob}> of <@&{role}> in <#{CHANNEL_ID}> <:ok:123456789012345678>");
    let id = fake.say(CHANNEL_ID, USER_ID, &text);
    let message = running.next_message().await;
    assert_eq!(message.text, "ask @bob of @testers in #general :ok:");
    assert_eq!((message.id.as_str(), &message.place), (id.as_str(), &general()));
    assert!(message.mentions_bot);
    assert_eq!((message.author.name.as_str(), message.author.id.as_str()), ("alice", USER_ID));
    assert_eq!(message.author.roles, [role]);
    assert!(!message.author.is_bot && !message.author.is_self);
    assert_eq!(message.url, format!("https://discord.com/channels/{GUILD_ID}/{CHANNEL_ID}/{id}"));
}

#[tokio::test(flavor = "multi_thread")]
async fn a_role_of_the_bot_and_a_pinging_reply_mention_it() {
    let mut running = connected().await;
    let posted = running.connector.post(&post_of("k1", "an answer")).await.unwrap();
    assert!(running.next_message().await.author.is_self);
    running.fake.say(CHANNEL_ID, USER_ID, &format!("<@&{BOT_ROLE_ID}> hello"));
    running.fake.reply_to(&posted.id, USER_ID, "thanks", true);
    running.fake.reply_to(&posted.id, USER_ID, "quiet thanks", false);
    let role = running.fake.add_role(GUILD_ID, "other");
    running.fake.say(CHANNEL_ID, USER_ID, &format!("<@&{role}> hello"));
    running.fake.give_role(GUILD_ID, BOT_ID, &role);
    running.fake.say(CHANNEL_ID, USER_ID, &format!("<@&{role}> hello"));
    let mut found = Vec::new();
    for _ in 0..5 {
        let message = running.next_message().await;
        let is_reply = message.reply_to.as_ref() == Some(&posted.id);
        found.push((message.text, message.mentions_bot, is_reply));
    }
    let expected = [
        ("hello", true, false),
        ("thanks", true, true),
        ("quiet thanks", false, true),
        ("@other hello", false, false),
        ("hello", true, false),
    ];
    assert_eq!(found, expected.map(|(text, mentions, is_reply)| (text.to_owned(), mentions, is_reply)));
}

#[tokio::test(flavor = "multi_thread")]
async fn threads_and_direct_messages_have_their_places() {
    let mut running = connected().await;
    let (thread, _) = running.fake.say_in_thread(CHANNEL_ID, USER_ID, "in a thread");
    let message = running.next_message().await;
    assert_eq!(message.place.channel, CHANNEL_ID);
    assert_eq!(message.place.thread.as_deref(), Some(thread.as_str()));
    assert!(message.url.contains(&thread), "{}", message.url);

    let unknown = running.fake.create_unknown_thread(CHANNEL_ID, "unknown");
    running.fake.say(&unknown, USER_ID, "in another thread");
    let place = running.next_message().await.place;
    assert_eq!((place.channel.as_str(), place.thread.as_deref()), (CHANNEL_ID, Some(unknown.as_str())));

    let (channel, _) = running.fake.say_direct(USER_ID, "psst");
    let message = running.next_message().await;
    assert_eq!((message.place.channel.as_str(), message.place.is_direct), (channel.as_str(), true));
    assert_eq!((message.place.space, message.text.as_str()), (None, "psst"));
}

#[tokio::test(flavor = "multi_thread")]
async fn edits_and_deletions_are_events() {
    let mut running = connected().await;
    let id = running.fake.say(CHANNEL_ID, USER_ID, "see https://example.org");
    running.next_message().await;
    running.fake.unfurl(&id);
    running.fake.edit(&id, "new text");
    let edited = running.next_edit().await;
    assert_eq!((edited.text.as_str(), edited.id.as_str()), ("new text", id.as_str()));
    running.fake.delete(&id);
    assert_eq!(running.next().await, ChatEvent::Deleted { message: id });
    let ids: Vec<String> = (0..2).map(|_| running.fake.say(CHANNEL_ID, USER_ID, "spam")).collect();
    running.fake.delete_all(&ids);
    for _ in 0..2 {
        running.next_message().await;
    }
    for id in ids {
        assert_eq!(running.next().await, ChatEvent::Deleted { message: id });
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn files_and_voice_messages_are_attachments() {
    let mut running = connected().await;
    running.fake.say_with_file(CHANNEL_ID, USER_ID, "look", "a.txt", "text/plain; charset=utf-8", b"content");
    let message = running.next_message().await;
    let file = &message.attachments[0];
    assert_eq!((file.name.as_str(), file.media_type.as_str(), file.bytes), ("a.txt", "text/plain", 7));
    assert!(!file.is_voice);
    assert_eq!(running.connector.download(file, 7).await.unwrap(), b"content");
    running.fake.say_voice(CHANNEL_ID, USER_ID, b"sound");
    assert!(running.next_message().await.attachments[0].is_voice);
}

#[tokio::test(flavor = "multi_thread")]
async fn other_bots_are_marked_and_notices_are_ignored() {
    let mut running = connected().await;
    running.fake.announce_member(CHANNEL_ID, USER_ID);
    running.fake.say_as_bot(CHANNEL_ID, "beep");
    let message = running.next_message().await;
    assert_eq!(message.text, "beep");
    assert!(message.author.is_bot && !message.author.is_self);
}

#[tokio::test(flavor = "multi_thread")]
async fn the_next_message_waits_for_the_confirmation() {
    let mut running = connected().await;
    for number in 0..20 {
        running.fake.say(CHANNEL_ID, USER_ID, &format!("message {number}"));
    }
    let first = running.next_received().await;
    // A dropped reply does not confirm the message, so it comes again, before all others.
    drop(first.reply);
    for number in 0..20 {
        let received = running.next_received().await;
        match &received.event {
            ChatEvent::Message(message) => assert_eq!(message.text, format!("message {number}")),
            event => panic!("{event:?}"),
        }
        received.reply.send(EventReply::Stored).unwrap();
    }
}
