//! History and downloads.

use cowhand_chat::{ChatError, Connector};
use cowhand_core::chat::ChatAttachment;
use jiff::Timestamp;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpListener;

use crate::{Scene, connector, place, workspace};

fn time(ts: &str) -> Timestamp {
    let micros: i64 = ts.replace('.', "").parse().unwrap();
    Timestamp::from_microsecond(micros).unwrap()
}

#[tokio::test]
async fn history_has_newest_messages_between_two_times() {
    let slack = workspace().await;
    let connector = connector(&slack.url());
    let mut sent = Vec::new();
    for number in 0..450 {
        sent.push(slack.say("C1", "U1", &format!("{number}")));
    }
    slack.notice("C1", "U2", "channel_join");
    slack.say_in_thread("C1", &sent[0], "U1", "in a thread");
    let texts = async |after: Option<&str>, before: Option<&str>, limit: usize| -> Vec<String> {
        let messages = connector.history(&place("C1", None), after.map(time), before.map(time), limit).await;
        messages.unwrap().into_iter().map(|message| message.text).collect()
    };
    assert_eq!(texts(None, None, 3).await, ["447", "448", "449"]);
    assert_eq!(texts(Some(&sent[446]), None, 100).await, ["447", "448", "449"]);
    assert_eq!(texts(Some(&sent[5]), Some(&sent[9]), 2).await, ["7", "8"]);
    let all = texts(None, None, 1_000).await;
    assert_eq!((all.len(), all[0].as_str(), all[449].as_str()), (450, "0", "449"));
}

#[tokio::test]
async fn history_of_a_thread_has_its_newest_messages() {
    let slack = workspace().await;
    let connector = connector(&slack.url());
    let parent = slack.say("C1", "U1", "parent");
    let mut sent = Vec::new();
    for number in 0..250 {
        sent.push(slack.say_in_thread("C1", &parent, "U2", &format!("{number}")));
    }
    slack.say("C1", "U1", "outside");
    let texts = async |after: Option<&str>, limit: usize| -> Vec<String> {
        let messages = connector.history(&place("C1", Some(&parent)), after.map(time), None, limit).await;
        messages.unwrap().into_iter().map(|message| message.text).collect()
    };
    assert_eq!(texts(None, 2).await, ["248", "249"]);
    let all = texts(None, 1_000).await;
    assert_eq!((all.len(), all[0].as_str(), all[250].as_str()), (251, "parent", "249"));
    assert_eq!(texts(Some(&sent[247]), 10).await, ["248", "249"]);
}

#[tokio::test]
async fn download_has_a_limit_whatever_size_is_stated() {
    let mut scene = Scene::start().await;
    scene.slack.say_with_file("C1", "U1", "", "a.bin", "application/octet-stream", &vec![7; 100_000]);
    let mut file = scene.next_message().await.attachments.remove(0);
    file.bytes = 1;
    let error = scene.connector.download(&file, 99_999).await.unwrap_err();
    assert_eq!(error, ChatError::TooLarge { limit: 99_999 });
    assert_eq!(scene.connector.download(&file, 100_000).await.unwrap().len(), 100_000);
    scene.slack.scopes(&["chat:write"]);
    let error = scene.connector.download(&file, 100_000).await.unwrap_err();
    assert!(error.to_string().contains("files:read"), "{error}");
}

/// Answers requests with chunks and without a length. Returns its address and the text of the first request.
async fn other_server() -> (String, tokio::task::JoinHandle<String>) {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let url = format!("http://{}/secret.txt", listener.local_addr().unwrap());
    let server = tokio::spawn(async move {
        let (mut stream, _) = listener.accept().await.unwrap();
        let mut request = vec![0; 4096];
        let length = stream.read(&mut request).await.unwrap();
        stream.write_all(b"HTTP/1.1 200 OK\r\nconnection: close\r\n\r\nfrom elsewhere").await.unwrap();
        String::from_utf8_lossy(&request[..length]).into_owned()
    });
    (url, server)
}

#[tokio::test]
async fn token_is_not_sent_to_other_hosts() {
    let mut scene = Scene::start().await;
    let (url, server) = other_server().await;
    let file = ChatAttachment {
        id: "F9".to_owned(),
        name: "a.txt".to_owned(),
        media_type: "text/plain".to_owned(),
        bytes: 1,
        url: url.clone(),
        is_voice: false,
    };
    let error = scene.connector.download(&file, 100).await.unwrap_err();
    assert!(matches!(error, ChatError::Refused { .. }), "{error:?}");

    // Slack may redirect only to its own hosts.
    scene.slack.say_with_file("C1", "U1", "", "a.txt", "text/plain", b"x");
    let file = scene.next_message().await.attachments.remove(0);
    for target in [url.replace("http:", "https:"), url] {
        scene.slack.state().file_redirect = Some(target);
        let error = scene.connector.download(&file, 100).await.unwrap_err();
        assert!(error.to_string().contains("outside of Slack"), "{error}");
    }
    assert!(!server.is_finished(), "nobody has sent a request");

    // A redirect to its own host does not carry the token either, so that Slack shows its login page.
    let own = scene.slack.url().replace("/api/", "/response/none");
    scene.slack.state().file_redirect = Some(own);
    let error = scene.connector.download(&file, 100).await.unwrap_err();
    assert!(error.to_string().contains("HTTP status 4"), "{error}");
}
