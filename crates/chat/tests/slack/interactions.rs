//! Slash commands and buttons.

use std::time::Duration;

use cowhand_chat::{Connector, EventReply};
use cowhand_core::chat::ChatEvent;
use cowhand_testing::slack::COMMAND_TIMED_OUT;

use crate::{Scene, buttons, place, post};

#[tokio::test]
async fn command_is_answered_in_its_acknowledgement() {
    let mut scene = Scene::start().await;
    let receive = async {
        let received = scene.events.recv().await.unwrap();
        received.reply.send(EventReply::Text("All is well.".to_owned())).unwrap();
        received.event
    };
    let (text, event) =
        tokio::join!(scene.slack.slash("U1", "C1", "/cowhand", "status &lt;now&gt;"), receive);
    let ChatEvent::Command(call) = event else { panic!("not a command: {event:?}") };
    assert_eq!((call.name.as_str(), call.argument.as_str()), ("cowhand", "status <now>"));
    assert_eq!((call.user.id.as_str(), call.user.name.as_str()), ("U1", "Ada"));
    assert_eq!((call.place.channel.as_str(), call.place.is_direct), ("C1", false));
    assert!(!call.id.is_empty());
    assert_eq!(text, "All is well.");
    assert_eq!(scene.slack.state().ephemerals, []);
}

#[tokio::test]
async fn late_answer_to_command_follows_at_the_response_url() {
    let mut scene = Scene::start().await;
    let receive = async {
        let received = scene.events.recv().await.unwrap();
        // The command is acknowledged before the answer is there.
        scene.slack.wait_until_acknowledged().await;
        received.reply.send(EventReply::Text("Here it is.".to_owned())).unwrap();
    };
    let (text, ()) = tokio::join!(scene.slack.slash("U1", "C1", "/cowhand", "usage"), receive);
    assert_eq!(text, "Here it is.");
    assert_eq!(scene.slack.state().ephemerals.len(), 1);
}

#[tokio::test]
async fn command_without_reply_is_not_acknowledged() {
    let mut scene = Scene::start().await;
    scene.slack.state().acknowledge_within = Duration::from_millis(200);
    let receive = async { drop(scene.events.recv().await.unwrap()) };
    let (text, ()) = tokio::join!(scene.slack.slash("U1", "C1", "/cowhand", "stop"), receive);
    assert_eq!(text, COMMAND_TIMED_OUT);
}

#[tokio::test]
async fn event_after_a_command_does_not_wait_for_its_reply() {
    let mut scene = Scene::start().await;
    let ts = scene.slack.say("C1", "U1", "a message");
    scene.next_message().await;
    scene.slack.press_forged("U2", "C1", &ts, "forged:allow");
    let press = scene.receive().await;
    scene.slack.say("C1", "U1", "another");
    assert_eq!(scene.next_message().await.text, "another");
    let ChatEvent::Button(button) = press.event else { panic!("not a press") };
    assert_eq!((button.value.as_str(), button.user.name.as_str()), ("forged:allow", "Eve"));
}

#[tokio::test]
async fn buttons_are_pressed_and_answered() {
    let mut scene = Scene::start().await;
    let parent = scene.slack.say("C1", "U1", "delete it");
    scene.next_message().await;
    let place = place("C1", Some(&parent));
    let mut ask = post(place.clone(), "ask-1", "Run `rm -r x`?");
    ask.buttons = buttons();
    let id = scene.connector.post(&ask).await.unwrap().id;
    scene.next_message().await;
    let ts = id.split_once(':').unwrap().1;

    let trigger = scene.slack.press("U1", "C1", ts, "ask-1:allow");
    let received = scene.receive().await;
    let ChatEvent::Button(press) = received.event else { panic!("not a press") };
    assert_eq!((press.value.as_str(), press.message.as_str()), ("ask-1:allow", id.as_str()));
    assert_eq!(
        (press.user.name.as_str(), &press.place, press.id.as_str()),
        ("Ada", &place, trigger.as_str())
    );
    received.reply.send(EventReply::Text("Allowed.".to_owned())).unwrap();
    assert_eq!(scene.slack.wait_for_answer(&trigger).await, "Allowed.");
    scene.slack.wait_until_acknowledged().await;

    scene.connector.edit(&place, &id, "Ada allowed it.", &[]).await.unwrap();
    let message = scene.slack.thread("C1", &parent).pop().unwrap();
    assert_eq!(message["text"], "Ada allowed it.");
    assert_eq!(message["blocks"].as_array().unwrap().len(), 0);
}
