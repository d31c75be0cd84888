//! Voice messages become text.

use std::sync::{Arc, Mutex};

use axum::Router;
use axum::body::Bytes;
use axum::extract::State;
use axum::http::{HeaderMap, StatusCode, Uri};
use cowhand_testing::discord;
use cowhand_testing::slack::BOT_USER;
use tokio::net::TcpListener;

use crate::scene::{ANN, SLACK_CHANNEL, Scene, everyone};

const KEY: &str = "canary-speech-key";

/// Requests that the service has received: path, authorization and body. The service answers what `answer` contains.
#[derive(Debug, Default)]
pub(crate) struct Service {
    requests: Vec<(String, String, String)>,
    pub(crate) answer: (u16, String),
}

pub(crate) type SharedService = Arc<Mutex<Service>>;

async fn transcribe(
    State(service): State<SharedService>,
    uri: Uri,
    headers: HeaderMap,
    body: Bytes,
) -> (StatusCode, String) {
    let mut service = service.lock().unwrap();
    let authorization = headers["authorization"].to_str().unwrap().to_owned();
    service.requests.push((
        uri.path().to_owned(),
        authorization,
        String::from_utf8_lossy(&body).into_owned(),
    ));
    let (status, answer) = service.answer.clone();
    (StatusCode::from_u16(status).unwrap(), answer)
}

/// Starts a transcription service, and returns its address.
pub(crate) async fn service() -> (SharedService, String) {
    let service = SharedService::default();
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let url = format!("http://{}", listener.local_addr().unwrap());
    let router = Router::new().fallback(transcribe).with_state(Arc::clone(&service));
    tokio::spawn(async move { axum::serve(listener, router).await.unwrap() });
    (service, url)
}

async fn posted(scene: &Scene, part: &str) -> String {
    let find = |fake: &discord::FakeDiscord| {
        let messages = fake.messages(discord::CHANNEL_ID).into_iter();
        let mut of_bot = messages.filter(|message| message.author == discord::BOT_ID);
        of_bot.find(|message| message.content.contains(part)).map(|message| message.content)
    };
    scene.discord.wait_for(&format!("a message with {part:?}"), find).await
}

/// The daemon is killed after the first transcription; the message is not lost.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn voice_messages_are_transcribed() {
    let (service, url) = service().await;
    let voice =
        format!(", voice: {{enabled: true, api_url: '{url}', api_key_env: SPEECH_KEY, language: de}}");
    let chat = everyone("", &voice)
        .replace("channels: [{id: '", "default_channel_mode: auto, channels: [{mode: auto, id: '");
    let scene = Scene::new(&format!(
        "agents:\n  - {{name: helper, runtime: command, command: [sh, -c, cat], chat: {chat}}}\n"
    ))
    .await;
    scene.write(".env", &format!("SPEECH_KEY={KEY}\n"));
    service.lock().unwrap().answer = (200, r#"{"text": " count the *sheep* "}"#.to_owned());
    let fault = "chat_transcribed";
    let started =
        scene.command(&["start", "-d", "--no-server"]).env("COWHAND_FAULT", fault).output().unwrap();
    assert!(started.status.success(), "{started:?}");
    scene.connected().await;
    let daemon = scene.daemon().unwrap();
    scene.discord.say_voice(discord::CHANNEL_ID, discord::USER_ID, b"SOUND");
    cowhand_testing::wait_until("the daemon to be killed", || {
        cowhand_testing::process::has_ended(daemon).then_some(())
    });
    scene.start();
    let echo = posted(&scene, "Transcript:").await;
    assert!(echo.contains(r"count the \*sheep\*"), "{echo}");
    let answer = posted(&scene, "Transcript of a voice message: count the").await;
    assert!(answer.contains("alice"), "{answer}");
    let requests = std::mem::take(&mut service.lock().unwrap().requests);
    assert_eq!(requests.len(), 2, "the first one was before the crash");
    let (path, authorization, body) = &requests[1];
    assert_eq!((path.as_str(), authorization.clone()), ("/v1/audio/transcriptions", format!("Bearer {KEY}")));
    for part in ["name=\"model\"\r\n\r\nwhisper-1", "name=\"language\"\r\n\r\nde", "SOUND"] {
        assert!(body.contains(part), "{part}: {body}");
    }

    // What the service says about a failure does not contain the key.
    for (answer, said) in [
        (
            (400, format!(r#"{{"error": {{"message": "bad {KEY} audio"}}}}"#)),
            "refused the request: status 400 Bad Request bad",
        ),
        (
            (401, format!(r#"{{"error": {{"message": "wrong key {KEY}"}}}}"#)),
            "does not accept the key in SPEECH",
        ),
        ((200, r#"{"text": "  "}"#.to_owned()), "found no words in the voice message"),
        ((200, "?".to_owned()), "an answer without a text"),
    ] {
        service.lock().unwrap().answer = answer;
        scene.discord.say_voice(discord::CHANNEL_ID, discord::USER_ID, b"SOUND");
        let refusal = posted(&scene, said).await;
        assert!(refusal.starts_with("Your voice message could not be transcribed"), "{refusal}");
    }
    assert_eq!(scene.jobs().len(), 1, "a refused message starts no job");
    assert!(!scene.log().contains(KEY));
    let messages = scene.discord.messages(discord::CHANNEL_ID);
    assert!(messages.iter().all(|message| !message.content.contains(KEY)));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn voice_messages_are_refused_without_a_service() {
    let auto =
        |voice: &str| everyone("", voice).replace("channels: [{id: '", "channels: [{mode: auto, id: '");
    let fleet = |chat: String| {
        format!("agents:\n  - {{name: helper, runtime: command, command: [cat], chat: {chat}}}\n")
    };
    let scene = Scene::started(&fleet(auto(""))).await;
    scene.discord.say_voice(discord::CHANNEL_ID, discord::USER_ID, b"SOUND");
    posted(&scene, "Agent helper takes no voice messages. Please write your message.").await;
    scene.run(&["stop"]);
    let voice = ", voice: {enabled: true, api_key_env: SPEECH_KEY}";
    scene.write("cowhand.yaml", &format!("server: {{enabled: false}}\n{}", fleet(auto(voice))));
    scene.start();
    scene.connected().await;
    scene.discord.say_voice(discord::CHANNEL_ID, discord::USER_ID, b"SOUND");
    posted(&scene, "SPEECH").await;
    assert_eq!(scene.jobs().len(), 0);
}

/// A file of Slack is downloaded with the token of the bot. A sound that somebody uploads is a file, not a message.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn voice_messages_of_slack_are_transcribed() {
    let (service, url) = service().await;
    service.lock().unwrap().answer = (200, r#"{"text": "count the sheep"}"#.to_owned());
    let voice = format!(", voice: {{enabled: true, api_url: '{url}', api_key_env: SPEECH_KEY}}");
    let chat = everyone(&voice, "");
    let scene = Scene::new(&format!(
        "agents:\n  - {{name: helper, runtime: command, command: [sh, -c, cat], chat: {chat}}}\n"
    ))
    .await;
    scene.write(".env", &format!("SPEECH_KEY={KEY}\n"));
    scene.start();
    scene.connected().await;
    let direct = scene.slack.direct_channel(ANN);
    scene.slack.say_voice(&direct, ANN, "", b"SOUND");
    let has = |part: &'static str| {
        move |post: &serde_json::Value| post["text"].as_str().is_some_and(|text| text.contains(part))
    };
    scene.slack.wait_for_post(&direct, has("Transcript: count the sheep")).await;
    let answer =
        scene.slack.wait_for_post(&direct, has("Transcript of a voice message: count the sheep")).await;
    assert!(answer["text"].as_str().unwrap().contains("Ann"), "{answer}");
    // In a channel, it can contain a mention.
    let mention = format!("<@{BOT_USER}>");
    scene.slack.say_voice(SLACK_CHANNEL, ANN, &mention, b"SOUND");
    scene.slack.wait_for_post(SLACK_CHANNEL, has("Transcript of a voice message: count the sheep")).await;
    scene.slack.say_with_file(
        SLACK_CHANNEL,
        ANN,
        &format!("{mention} listen"),
        "a.m4a",
        "audio/mp4",
        b"SOUND",
    );
    scene.slack.wait_for_post(SLACK_CHANNEL, has("takes no files")).await;
    let requests = std::mem::take(&mut service.lock().unwrap().requests);
    assert_eq!(requests.len(), 2);
    assert!(requests.iter().all(|(_, _, body)| body.contains("SOUND") && body.contains("audio_message.m4a")));
}

/// A transcription costs money, whether it succeeds or not.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn voice_messages_count_for_the_rate_before_they_are_transcribed() {
    let (service, url) = service().await;
    let keys = format!(
        ", rate: {{messages: 3, per: 1h}}, voice: {{enabled: true, api_url: '{url}', api_key_env: SPEECH_KEY}}"
    );
    let chat = everyone("", &keys).replace("channels: [{id: '", "channels: [{mode: auto, id: '");
    let scene = Scene::new(&format!(
        "agents:\n  - {{name: helper, runtime: command, command: [sh, -c, echo done], chat: {chat}}}\n"
    ))
    .await;
    scene.write(".env", &format!("SPEECH_KEY={KEY}\n"));
    scene.start();
    scene.connected().await;
    let transcript = "many words ".repeat(5_000);
    let answers = [r#"{"text": "  "}"#.to_owned(), format!(r#"{{"text": "{transcript}"}}"#)];
    for (answer, said) in answers.into_iter().zip(["found no words", "Transcript: many words"]) {
        service.lock().unwrap().answer = (200, answer);
        scene.discord.say_voice(discord::CHANNEL_ID, discord::USER_ID, b"SOUND");
        posted(&scene, said).await;
    }
    posted(&scene, "more characters are not shown. The agent gets the whole transcript.").await;
    let long = scene.discord.messages(discord::CHANNEL_ID).into_iter().map(|message| message.content);
    assert!(
        long.filter(|text| text.contains("many words")).count() <= 4,
        "a long transcript makes few posts"
    );
    posted(&scene, "done").await;
    service.lock().unwrap().answer = (200, r#"{"text": ""}"#.to_owned());
    for _ in 0..3 {
        scene.discord.say_voice(discord::CHANNEL_ID, discord::USER_ID, b"SOUND");
    }
    posted(&scene, "You may send 3 messages in 1h.").await;
    scene.discord.say(discord::CHANNEL_ID, discord::USER_ID, "a written message");
    scene.wait_for("the last refusal", &["why", "helper/chat", "--limit", "100"], |why| {
        let firings = why["firings"].as_array().unwrap().iter();
        let refused = firings.filter(|firing| firing["why"].to_string().contains("too many messages"));
        (refused.count() == 3).then_some(())
    });
    assert_eq!(service.lock().unwrap().requests.len(), 3);
    assert_eq!(scene.jobs().len(), 1);
}
