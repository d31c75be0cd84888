//! Connections: replaced, lost, refused.

use cowhand_chat::{ChatError, ConnectionEnd, ConnectionState, Connector, EventReply};
use cowhand_core::chat::ChatEvent;
use cowhand_testing::slack::FakeSlackState;

use crate::{Scene, place, post, workspace};

fn is_connected(state: &ConnectionState) -> bool {
    matches!(state, ConnectionState::Connected(_))
}

#[tokio::test]
async fn announced_end_opens_another_connection_first() {
    let mut scene = Scene::start().await;
    for (reason, number) in [("warning", 1), ("refresh_requested", 2)] {
        let opened = scene.slack.calls("apps.connections.open").len();
        // An event that the old connection delivered is acknowledged there.
        scene.slack.say("C1", "U1", &format!("before {number}"));
        let before = scene.receive().await;
        scene.slack.disconnect(reason);
        before.reply.send(EventReply::Stored).unwrap();
        scene
            .slack
            .wait_for("another connection", |state| {
                let calls = state.calls.iter().filter(|call| call.method == "apps.connections.open").count();
                (calls > opened).then_some(())
            })
            .await;
        scene.slack.wait_for_connections(1).await;
        scene.slack.say("C1", "U1", &format!("after {number}"));
        // No event `Connected` arrives, because no message can be missing.
        assert_eq!(scene.next_message().await.text, format!("after {number}"));
        assert!(is_connected(&scene.connector.state().borrow()));
    }
    scene.slack.wait_until_acknowledged().await;
}

#[tokio::test]
async fn lost_connection_is_opened_again() {
    let mut scene = Scene::start().await;
    scene.slack.fail("apps.connections.open", 2);
    scene.slack.drop_connections();
    scene.wait_for_state(|state| !is_connected(state)).await;
    assert!(matches!(scene.next().await, ChatEvent::Connected(_)));
    scene.wait_for_state(is_connected).await;
    scene.slack.say("C1", "U1", "hello");
    assert_eq!(scene.next_message().await.text, "hello");
}

#[tokio::test]
async fn connection_that_ends_before_the_next_one_is_open_is_announced() {
    let mut scene = Scene::start().await;
    // The next connection is opened after a second.
    scene.slack.rate_limit("apps.connections.open", 1, 1);
    scene.slack.disconnect("warning");
    let is_called = |state: &mut FakeSlackState| {
        let calls = state.calls.iter().filter(|call| call.method == "apps.connections.open").count();
        (calls > 1).then_some(())
    };
    scene.slack.wait_for("the next connection", is_called).await;
    scene.slack.drop_connections();
    scene.wait_for_state(|state| !is_connected(state)).await;
    assert!(matches!(scene.next().await, ChatEvent::Connected(_)));
    scene.wait_for_state(is_connected).await;
}

#[tokio::test]
async fn dropped_run_is_not_connected_and_the_next_one_is_announced() {
    let mut scene = Scene::start().await;
    scene.run.abort();
    scene.wait_for_state(|state| !is_connected(state)).await;
    scene.slack.wait_for_connections(0).await;
    let (sender, events) = tokio::sync::mpsc::channel(100);
    let connector = scene.connector.clone();
    scene.run = tokio::spawn(async move { connector.run(sender).await });
    scene.events = events;
    assert!(matches!(scene.next().await, ChatEvent::Connected(_)));
}

#[tokio::test]
async fn refused_token_is_tried_again_with_the_next_connection_or_later() {
    let slack = workspace().await;
    let connector = crate::connector(&slack.url());
    slack.state().accepts_tokens = false;
    let first = post(place("C1", None), "k", "x");
    assert!(matches!(connector.post(&first).await, Err(ChatError::Revoked { .. })));
    slack.state().accepts_tokens = true;
    let calls = slack.state().calls.len();
    assert!(matches!(connector.post(&first).await, Err(ChatError::Revoked { .. })));
    assert_eq!(slack.state().calls.len(), calls, "no request is made meanwhile");
    // This connector does not run, because another node has the lease.
    tokio::time::pause();
    tokio::time::advance(std::time::Duration::from_mins(10)).await;
    tokio::time::resume();
    connector.post(&first).await.unwrap();
}

#[tokio::test]
async fn silent_connection_counts_as_lost() {
    let mut scene = Scene::start().await;
    scene.slack.freeze_connections();
    // The paused clock advances when every task waits.
    tokio::time::pause();
    scene.wait_for_state(|state| !is_connected(state)).await;
    tokio::time::resume();
    assert!(matches!(scene.next().await, ChatEvent::Connected(_)));
    scene.slack.wait_for_connections(1).await;
}

#[tokio::test]
async fn revoked_token_ends_the_connection() {
    let scene = Scene::start().await;
    scene.slack.revoke_tokens();
    let end = scene.run.await.unwrap();
    assert!(matches!(&end, ConnectionEnd::Refused { reason } if reason.contains("token_revoked")), "{end:?}");
    let state = scene.connector.state().borrow().clone();
    assert!(matches!(state, ConnectionState::Refused { .. }), "{state:?}");
    let error = scene.connector.post(&post(place("C1", None), "k", "x")).await.unwrap_err();
    assert!(matches!(error, ChatError::Revoked { .. }), "{error:?}");
}

#[tokio::test]
async fn request_that_finds_a_revoked_token_ends_the_connection() {
    let scene = Scene::start().await;
    scene.slack.state().accepts_tokens = false;
    let error = scene.connector.post(&post(place("C1", None), "k", "x")).await.unwrap_err();
    assert!(matches!(error, ChatError::Revoked { .. }), "{error:?}");
    assert!(matches!(scene.run.await.unwrap(), ConnectionEnd::Refused { .. }));
}

#[tokio::test]
async fn disabled_socket_mode_ends_the_connection_with_advice() {
    let scene = Scene::start().await;
    scene.slack.disconnect("link_disabled");
    let end = scene.run.await.unwrap();
    assert!(matches!(&end, ConnectionEnd::Refused { reason } if reason.contains("enable it")), "{end:?}");
    assert_eq!(scene.slack.calls("apps.connections.open").len(), 1);
}

#[tokio::test]
async fn connection_ends_when_nobody_receives_events() {
    let scene = Scene::of(workspace().await).await;
    drop(scene.events);
    assert_eq!(scene.run.await.unwrap(), ConnectionEnd::Stopped);
    scene.slack.wait_for_connections(0).await;
}

#[tokio::test]
async fn tokens_are_not_shown() {
    let scene = Scene::start().await;
    let shown = format!("{:?}", scene.connector);
    assert!(!shown.contains("xoxb") && !shown.contains("xapp"), "{shown}");
    let settings = cowhand_chat::slack::SlackSettings {
        bot_token: "xoxb-secret\n1".to_owned(),
        app_token: "xapp-secret".to_owned(),
        api_url: None,
    };
    let shown = format!("{settings:?} {:?}", cowhand_chat::slack::SlackConnector::new(settings.clone()));
    assert!(!shown.contains("secret"), "{shown}");
}
