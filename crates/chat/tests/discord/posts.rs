//! Posts, edits, reactions, history, files and rate limits.

use std::time::{Duration, Instant};

use cowhand_chat::{Button, ButtonStyle, ChatError, Connector as _, OutgoingFile, Post};
use cowhand_core::chat::{ChatAttachment, ChatPlace};
use cowhand_testing::discord::{BOT_ID, CHANNEL_ID, FakeDiscord, GUILD_ID, USER_ID};
use jiff::{SignedDuration, Timestamp};

use crate::harness::{connected, general, post_of, settings, settings_with_waits};
use cowhand_chat::discord::DiscordConnector;

async fn connector() -> (FakeDiscord, DiscordConnector) {
    let fake = FakeDiscord::start().await;
    let connector = DiscordConnector::new(settings(&fake)).unwrap();
    (fake, connector)
}

fn button(label: &str, value: &str, style: ButtonStyle) -> Button {
    Button { label: label.to_owned(), value: value.to_owned(), style }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_post_in_a_thread_that_was_deleted_is_in_its_channel() {
    let (fake, connector) = connector().await;
    let place = ChatPlace { thread: Some("404".to_owned()), ..general() };
    let posted = connector.post(&Post { place, ..post_of("k1", "answer") }).await.unwrap();
    let messages = fake.messages(CHANNEL_ID);
    assert_eq!((messages[0].id.as_str(), messages[0].content.as_str()), (posted.id.as_str(), "answer"));
}

#[tokio::test(flavor = "multi_thread")]
async fn a_post_has_reply_files_and_buttons_and_pings_nobody() {
    let (fake, connector) = connector().await;
    let question = fake.say(CHANNEL_ID, USER_ID, "question");
    let post = Post {
        reply_to: Some(question.clone()),
        buttons: (0..7).map(|n| button(&format!("b{n}"), &format!("v{n}"), ButtonStyle::Approve)).collect(),
        files: vec![OutgoingFile { name: "log.txt".to_owned(), content: b"\r\n--x\0 content".to_vec() }],
        ..post_of("k1", &format!("@everyone <@{USER_ID}> done"))
    };
    let posted = connector.post(&post).await.unwrap();
    assert!(!posted.is_repeated);
    let message = &fake.messages(CHANNEL_ID)[1];
    assert_eq!((&message.id, message.reply_to.as_ref()), (&posted.id, Some(&question)));
    assert_eq!(message.files[0].content, b"\r\n--x\0 content");
    assert_eq!(message.files[0].name, "log.txt");
    assert!(message.mentioned_users.is_empty() && !message.mentions_everyone);
    let rows = message.components.as_array().unwrap();
    assert_eq!((rows.len(), rows[0]["components"].as_array().unwrap().len()), (2, 5));
    assert_eq!(rows[0]["components"][0]["style"], 3);

    connector.edit(&general(), &posted.id, "@everyone edited", &[]).await.unwrap();
    let message = &fake.messages(CHANNEL_ID)[1];
    assert_eq!((message.content.as_str(), message.edits), ("@everyone edited", 1));
    assert_eq!(message.components, serde_json::json!([]));
}

#[tokio::test(flavor = "multi_thread")]
async fn discord_fetches_no_address_of_a_post_or_an_edit() {
    let (fake, connector) = connector().await;
    let text = "https://evil.example/?d=DATA and [text](https://evil.example/2)";
    let files = vec![OutgoingFile { name: "log.txt".to_owned(), content: b"content".to_vec() }];
    let posted = connector.post(&post_of("k1", text)).await.unwrap();
    connector.post(&Post { files, ..post_of("k2", text) }).await.unwrap();
    connector.edit(&general(), &posted.id, &format!("{text} again"), &[]).await.unwrap();
    // The message of a version of cowhand without the flag.
    let old = fake.say(CHANNEL_ID, BOT_ID, "old");
    connector.edit(&general(), &old, text, &[]).await.unwrap();
    assert_eq!(fake.fetched_links(), Vec::<String>::new());
    assert_eq!(fake.messages(CHANNEL_ID).len(), 3);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_post_whose_answer_is_lost_is_made_once() {
    let fake = FakeDiscord::start().await;
    // A repeated post is recognised by the time since it was made.
    let connector = DiscordConnector::new(settings_with_waits(&fake)).unwrap();
    fake.fail_after_effect("POST /channels", 2, 502);
    connector.post(&post_of("k1", "one")).await.unwrap();
    assert_eq!(fake.messages(CHANNEL_ID).len(), 1);

    // The platform executes the request of the first call, and answers all its tries with an error.
    fake.fail_after_effect("POST /channels", 4, 502);
    let post = post_of("k2", "two");
    let error = connector.post(&post).await.unwrap_err();
    assert!(matches!(error, ChatError::Unavailable { .. }), "{error}");
    let posted = connector.post(&post).await.unwrap();
    assert!(posted.is_repeated);
    assert_eq!(fake.messages(CHANNEL_ID)[1].id, posted.id);
    assert_eq!(fake.messages(CHANNEL_ID).len(), 2);
}

#[tokio::test(flavor = "multi_thread")]
async fn an_old_post_is_found_in_the_history() {
    let (fake, connector) = connector().await;
    let question = fake.say(CHANNEL_ID, USER_ID, "question");
    let first_tried_at = Timestamp::now() - SignedDuration::from_mins(5);
    let post = Post { first_tried_at, reply_to: Some(question), ..post_of("k1", "one\n") };
    let first = connector.post(&post).await.unwrap();
    fake.forget_nonces();
    // More than one page of other messages follows.
    for number in 0..120 {
        fake.say(CHANNEL_ID, USER_ID, &format!("chatter {number}"));
    }
    let again = connector.post(&post).await.unwrap();
    assert_eq!((again.id, again.is_repeated), (first.id.clone(), true));
    // The same text that answers no message is another post.
    let other = connector.post(&Post { reply_to: None, key: "k2".to_owned(), ..post.clone() }).await.unwrap();
    assert_ne!(other.id, first.id);
}

#[tokio::test(flavor = "multi_thread")]
async fn an_old_post_is_looked_up_by_the_clock_of_the_platform() {
    let (fake, connector) = connector().await;
    let minutes = SignedDuration::from_mins;
    // The clock of this machine is an hour ahead. The first try was five minutes ago.
    fake.set_clock_offset(-minutes(65));
    let post = Post { first_tried_at: Timestamp::now() - minutes(5), ..post_of("k1", "one") };
    let first = connector.post(&Post { first_tried_at: Timestamp::now(), ..post.clone() }).await.unwrap();
    fake.forget_nonces();
    fake.set_clock_offset(-minutes(60));
    let again = connector.post(&post).await.unwrap();
    assert_eq!((again.id, again.is_repeated), (first.id.clone(), true));
    // Messages before the first try are not compared.
    let later = Post { first_tried_at: Timestamp::now() - minutes(2), ..post.clone() };
    assert!(!connector.post(&later).await.unwrap().is_repeated);
    // If the clock was set back, the first try seems to be still to come.
    fake.forget_nonces();
    let set_back = Post { first_tried_at: Timestamp::now() + minutes(5), ..post };
    assert!(connector.post(&set_back).await.unwrap().is_repeated);
}

#[tokio::test(flavor = "multi_thread")]
async fn an_old_post_is_found_if_the_answered_message_was_deleted() {
    let (fake, connector) = connector().await;
    let question = fake.say(CHANNEL_ID, USER_ID, "question");
    let other = fake.say(CHANNEL_ID, USER_ID, "another question");
    fake.delete(&question);
    let first_tried_at = Timestamp::now() - SignedDuration::from_mins(5);
    let post = Post { first_tried_at, reply_to: Some(question), ..post_of("k1", "one") };
    let first = connector.post(&post).await.unwrap();
    fake.forget_nonces();
    let again = connector.post(&post).await.unwrap();
    assert_eq!((again.id, again.is_repeated), (first.id.clone(), true));
    // The answered message of this post exists, so the post is another one.
    let answer = Post { reply_to: Some(other), key: "k2".to_owned(), ..post };
    assert!(!connector.post(&answer).await.unwrap().is_repeated);
}

#[tokio::test(flavor = "multi_thread")]
async fn missed_messages_of_threads_are_found_if_their_channel_cannot_be_read() {
    let (fake, connector) = connector().await;
    let before_all = Timestamp::now() - SignedDuration::from_secs(1);
    let (thread, _) = fake.say_in_thread(CHANNEL_ID, USER_ID, "in the thread");
    let forum = format!("GET /channels/{CHANNEL_ID}/messages");
    fake.fail(&forum, 2, 403);
    let missed = connector.missed(&general(), &[thread], before_all, 10).await.unwrap();
    let texts: Vec<String> = missed.into_iter().map(|message| message.text).collect();
    assert_eq!(texts, ["in the thread"]);
    let error = connector.missed(&general(), &[], before_all, 10).await.unwrap_err();
    assert!(matches!(error, ChatError::Refused { .. }), "{error}");
}

#[tokio::test(flavor = "multi_thread")]
async fn reactions_are_added_and_removed() {
    let (fake, connector) = connector().await;
    let message = fake.say(CHANNEL_ID, USER_ID, "hello");
    for emoji in ["eyes", ":white_check_mark:", "🚀", "blob:123456789012345678"] {
        connector.react(&general(), &message, emoji, true).await.unwrap();
        connector.react(&general(), &message, emoji, true).await.unwrap();
    }
    let reactions: Vec<String> = fake.reactions(&message).into_iter().map(|(emoji, _)| emoji).collect();
    assert_eq!(reactions, ["👀", "✅", "🚀", "blob:123456789012345678"]);
    connector.react(&general(), &message, "eyes", false).await.unwrap();
    connector.react(&general(), &message, "eyes", false).await.unwrap();
    assert_eq!(fake.reactions(&message).len(), 3);
    let error = connector.react(&general(), &message, "no_such_emoji", true).await.unwrap_err();
    assert!(error.to_string().contains("Unknown Emoji"), "{error}");
    fake.delete(&message);
    connector.react(&general(), &message, "eyes", false).await.unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn typing_is_shown() {
    let (fake, connector) = connector().await;
    connector.show_typing(&general()).await.unwrap();
    assert_eq!(fake.typing_count(CHANNEL_ID), 1);
}

#[tokio::test(flavor = "multi_thread")]
async fn history_returns_the_newest_messages_in_order() {
    let (fake, connector) = connector().await;
    let role = fake.add_role(GUILD_ID, "testers");
    fake.give_role(GUILD_ID, USER_ID, &role);
    let before_all = Timestamp::now() - SignedDuration::from_secs(1);
    for number in 0..250 {
        fake.say(CHANNEL_ID, USER_ID, &format!("<@{BOT_ID}> {number}"));
    }
    let texts = |messages: Vec<cowhand_core::chat::ChatMessage>| -> Vec<String> {
        messages.into_iter().map(|message| message.text).collect()
    };
    let all = connector.history(&general(), Some(before_all), None, 1000).await.unwrap();
    assert!(all.iter().all(|message| message.mentions_bot && message.author.roles == [role.as_str()]));
    assert_eq!(texts(all.clone()), (0..250).map(|number| number.to_string()).collect::<Vec<_>>());
    let newest = connector.history(&general(), None, None, 3).await.unwrap();
    assert_eq!(texts(newest), ["247", "248", "249"]);
    let (after, before) = (all[0].sent_at, all[249].sent_at);
    let between = connector.history(&general(), Some(after), Some(before), 1000).await.unwrap();
    assert!(between.iter().all(|message| message.sent_at > after && message.sent_at < before));
    let (thread, _) = fake.say_in_thread(CHANNEL_ID, USER_ID, "in the thread");
    let place = ChatPlace { thread: Some(thread), ..general() };
    let messages = connector.history(&place, None, None, 10).await.unwrap();
    assert_eq!(messages[0].place, place);
    assert_eq!(texts(messages), ["in the thread"]);
    let (channel, _) = fake.say_direct(USER_ID, "psst");
    let direct = ChatPlace { space: None, channel, thread: None, is_direct: true };
    assert_eq!(texts(connector.history(&direct, None, None, 10).await.unwrap()), ["psst"]);
}

#[tokio::test(flavor = "multi_thread")]
async fn downloads_have_a_limit_and_come_only_from_the_platform() {
    let mut running = connected().await;
    running.fake.say_with_file(CHANNEL_ID, USER_ID, "", "big.bin", "", &vec![7; 3 << 20]);
    // The real size counts, and not the stated size.
    let file = ChatAttachment { bytes: 1, ..running.next_message().await.attachments.remove(0) };
    let download = |url: &str, limit| {
        let file = ChatAttachment { url: url.to_owned(), ..file.clone() };
        let connector = running.connector.clone();
        async move { connector.download(&file, limit).await }
    };
    assert_eq!(download(&file.url, 1 << 20).await, Err(ChatError::TooLarge { limit: 1 << 20 }));
    assert_eq!(download(&file.url, 3 << 20).await.unwrap().len(), 3 << 20);
    for url in [
        "http://127.0.0.1:1/x",
        "http://cdn.discordapp.com/x",
        "https://cdn.discordapp.com.example.org/x",
        "https://example.org@localhost/x",
        "file:///etc/passwd",
        "nonsense",
    ] {
        let error = download(url, 10).await.unwrap_err();
        assert!(matches!(error, ChatError::Refused { .. }), "{url}: {error}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn rate_limits_are_waited_for() {
    let (fake, connector) = connector().await;
    for is_global in [false, true] {
        if is_global {
            fake.rate_limit_globally(1, 0.4);
        } else {
            fake.rate_limit("POST /channels", 1, 0.4);
        }
        let began = Instant::now();
        connector.post(&post_of(&format!("k{is_global}"), "text")).await.unwrap();
        assert!(began.elapsed() >= Duration::from_millis(400));
    }
    assert_eq!(fake.requests(), ["POST /channels/100000000000000004/messages"; 4]);
    fake.rate_limit("POST /channels", 1, 1000.0);
    let error = connector.post(&post_of("k3", "text")).await.unwrap_err();
    let retry_after = Duration::from_secs(1000);
    assert_eq!(error, ChatError::RateLimited { platform: "Discord", retry_after });
    // The limit is known, so the next call makes no request.
    fake.requests();
    let error = connector.post(&post_of("k3", "text")).await.unwrap_err();
    assert!(matches!(error, ChatError::RateLimited { .. }), "{error}");
    assert_eq!(fake.requests(), [] as [&str; 0]);
    assert_eq!(fake.messages(CHANNEL_ID).len(), 2);
}

#[tokio::test(flavor = "multi_thread")]
async fn refusals_contain_the_message_of_the_platform() {
    let (fake, connector) = connector().await;
    let place = ChatPlace { channel: "100000000000000999".to_owned(), ..general() };
    let error = connector.post(&Post { place, ..post_of("k1", "x") }).await.unwrap_err();
    assert!(error.to_string().contains("Unknown Channel (status 404, code 10003)"), "{error}");
    fake.fail("POST /channels", 1, 403);
    let error = connector.post(&post_of("k1", "x")).await.unwrap_err();
    assert!(matches!(error, ChatError::Refused { .. }), "{error}");
    fake.fail("POST /channels", 2, 503);
    connector.post(&post_of("k1", "x")).await.unwrap();
}
