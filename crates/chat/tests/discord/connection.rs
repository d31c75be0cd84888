//! Connecting, connecting again, and the end of the connection.

use cowhand_chat::discord::{DiscordConnector, DiscordSettings};
use cowhand_chat::{ChatError, ConnectionEnd, ConnectionState, Connector as _};
use cowhand_core::chat::ChatEvent;
use cowhand_core::chat::settings::ActivityKind;
use cowhand_testing::discord::{BOT_TOKEN, CHANNEL_ID, FakeDiscord, USER_ID};

use crate::harness::{Running, connected, general, post_of, settings, start};

fn refused(end: ConnectionEnd) -> String {
    match end {
        ConnectionEnd::Refused { reason } => {
            assert!(!reason.contains(BOT_TOKEN));
            reason
        }
        ConnectionEnd::Stopped => panic!("stopped"),
    }
}

/// Returns the texts of the next messages. Skips the events that report a new connection.
async fn next_texts(running: &mut Running, count: usize) -> Vec<String> {
    let mut texts = Vec::new();
    while texts.len() < count {
        match running.next().await {
            ChatEvent::Message(message) => texts.push(message.text),
            ChatEvent::Connected(_) => {}
            event => panic!("{event:?}"),
        }
    }
    texts
}

#[tokio::test(flavor = "multi_thread")]
async fn a_requested_reconnect_resumes_the_session() {
    let mut running = connected().await;
    running.fake.reconnect();
    running.fake.wait_for("the resumed session", |fake| (fake.connections() == (1, 1)).then_some(())).await;
    running.next_connected().await;
    running.fake.say(CHANNEL_ID, USER_ID, "after");
    assert_eq!(running.next_message().await.text, "after");
}

#[tokio::test(flavor = "multi_thread")]
async fn an_invalid_session_is_resumed_or_begun_anew() {
    let mut running = connected().await;
    running.fake.invalidate(true);
    running.next_connected().await;
    assert_eq!(running.fake.connections(), (1, 1));
    running.fake.invalidate(false);
    running.next_connected().await;
    assert_eq!(running.fake.connections(), (2, 1));
    running.fake.say(CHANNEL_ID, USER_ID, "after");
    assert_eq!(next_texts(&mut running, 1).await, ["after"]);
}

#[tokio::test(flavor = "multi_thread")]
async fn messages_of_an_interruption_arrive_once() {
    let mut running = connected().await;
    running.fake.say(CHANNEL_ID, USER_ID, "0");
    // This message is read, but not confirmed, when the connection is lost.
    let unconfirmed = running.next_received().await;
    running.fake.say(CHANNEL_ID, USER_ID, "1");
    running.fake.drop_connections();
    for number in 2..5 {
        running.fake.say(CHANNEL_ID, USER_ID, &number.to_string());
    }
    drop(unconfirmed.reply);
    running.fake.wait_for("the resumed session", |fake| (fake.connections().1 == 1).then_some(())).await;
    running.fake.say(CHANNEL_ID, USER_ID, "5");
    assert_eq!(next_texts(&mut running, 6).await, ["0", "1", "2", "3", "4", "5"]);
    assert_eq!(running.fake.connections(), (1, 1));
}

#[tokio::test(flavor = "multi_thread")]
async fn the_state_names_the_problem_of_the_connection() {
    let fake = FakeDiscord::start().await;
    fake.fail("GET /gateway/bot", 4, 503);
    let settings = settings(&fake);
    let mut running = start(fake, settings);
    let mut state = running.connector.state();
    let has_problem =
        |state: &ConnectionState| matches!(state, ConnectionState::Connecting { problem: Some(_) });
    state.wait_for(has_problem).await.unwrap();
    running.next_connected().await;
    assert!(matches!(&*state.borrow(), ConnectionState::Connected(bot) if bot.name == "cowhand"));
    running.fake.close_connections(4000);
    running.next_connected().await;
    assert!(matches!(&*state.borrow(), ConnectionState::Connected(_)));
}

#[tokio::test(flavor = "multi_thread")]
async fn a_revoked_token_ends_the_connection() {
    let running = connected().await;
    let state = running.connector.state();
    running.fake.revoke_token();
    let (fake, end) = running.end().await;
    assert!(refused(end).contains("does not accept the token"));
    assert!(matches!(&*state.borrow(), ConnectionState::Refused { .. }));
    assert_eq!(fake.connections(), (1, 0));
}

#[tokio::test(flavor = "multi_thread")]
async fn a_refused_request_ends_the_connection_too() {
    let running = connected().await;
    let connector = running.connector.clone();
    running.fake.fail("POST /channels", 1, 401);
    let error = connector.post(&post_of("k1", "x")).await.unwrap_err();
    assert!(matches!(error, ChatError::Revoked { .. }), "{error}");
    let (fake, end) = running.end().await;
    assert!(refused(end).contains("token"));
    // No further request is made.
    fake.requests();
    assert_eq!(connector.post(&post_of("k1", "x")).await.unwrap_err(), error);
    assert_eq!(fake.requests(), [] as [&str; 0]);
}

#[tokio::test(flavor = "multi_thread")]
async fn the_next_connection_tries_a_refused_token_again() {
    let mut running = connected().await;
    running.fake.fail("POST /channels", 1, 401);
    running.connector.post(&post_of("k1", "x")).await.unwrap_err();
    assert!(refused(running.ended().await).contains("token"));
    running.run_again();
    running.next_connected().await;
    running.connector.post(&post_of("k1", "x")).await.unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn a_dropped_run_is_not_connected() {
    let mut running = connected().await;
    let mut state = running.connector.state();
    running.abort();
    state.wait_for(|state| !matches!(state, ConnectionState::Connected(_))).await.unwrap();
    running.run_again();
    running.next_connected().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_wrong_token_and_a_missing_intent_are_refused() {
    let fake = FakeDiscord::start().await;
    let wrong = DiscordSettings { bot_token: "wrong".to_owned(), ..settings(&fake) };
    let (fake, end) = start(fake, wrong).end().await;
    assert!(refused(end).contains("token"));
    assert_eq!(fake.requests(), ["GET /gateway/bot"]);

    let fake = FakeDiscord::start().await;
    fake.refuse_intents();
    let settings = settings(&fake);
    let (_, end) = start(fake, settings).end().await;
    let reason = refused(end);
    assert!(reason.contains("message content intent") && reason.contains("enable"), "{reason}");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_used_up_limit_of_sessions_is_respected() {
    let fake = FakeDiscord::start().await;
    fake.limit_session_starts(0);
    let settings = settings(&fake);
    let running = start(fake, settings);
    let mut state = running.connector.state();
    let is_limited = |state: &ConnectionState| matches!(state, ConnectionState::Connecting { problem: Some(problem) } if problem.contains("too often"));
    state.wait_for(is_limited).await.unwrap();
    let (fake, end) = running.stop().await;
    assert_eq!((fake.connections(), end), ((0, 0), ConnectionEnd::Stopped));
}

#[tokio::test(flavor = "multi_thread")]
async fn a_dropped_receiver_ends_the_connection() {
    let running = connected().await;
    let (fake, end) = running.stop().await;
    assert_eq!(end, ConnectionEnd::Stopped);
    fake.wait_for("the closed connection", |fake| (fake.open_connections() == 0).then_some(())).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn the_bot_shows_its_presence() {
    for (kind, field, number) in [(ActivityKind::Watching, "name", 3), (ActivityKind::Custom, "state", 4)] {
        let fake = FakeDiscord::start().await;
        let settings = DiscordSettings { presence: Some((kind, "the herd".to_owned())), ..settings(&fake) };
        let mut running = start(fake, settings);
        running.next_connected().await;
        let presence = running.fake.presence().unwrap();
        assert_eq!((presence["type"].as_u64(), presence[field].as_str()), (Some(number), Some("the herd")));
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn the_token_is_not_shown() {
    let fake = FakeDiscord::start().await;
    let settings = settings(&fake);
    let connector = DiscordConnector::new(settings.clone()).unwrap();
    assert!(!format!("{settings:?} {connector:?}").contains(BOT_TOKEN));
    for token in ["", "a\nb"] {
        let error =
            DiscordConnector::new(DiscordSettings { bot_token: token.to_owned(), ..settings.clone() });
        assert!(matches!(error, Err(ChatError::Revoked { .. })), "{error:?}");
    }
    drop(fake);
    let error = connector.show_typing(&general()).await.unwrap_err();
    assert!(matches!(&error, ChatError::Unavailable { .. }), "{error}");
    assert!(!error.to_string().contains(BOT_TOKEN));
}
