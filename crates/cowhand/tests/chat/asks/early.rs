//! Messages that are handled late, when the asks of their conversation are not those that their authors have read.

use std::sync::Arc;

use axum::Router;
use axum::http::StatusCode;
use tokio::net::TcpListener;
use tokio::sync::Semaphore;

use super::*;

/// Starts a transcription service that answers nothing before it has permits, and returns its address. While a voice
/// message waits for it, the later messages of the channel wait, too.
async fn slow_service() -> (Arc<Semaphore>, String) {
    let permits = Arc::new(Semaphore::new(0));
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let url = format!("http://{}", listener.local_addr().unwrap());
    let of_service = Arc::clone(&permits);
    let router = Router::new().fallback(async move || {
        of_service.acquire().await.unwrap().forget();
        StatusCode::BAD_REQUEST
    });
    tokio::spawn(async move { axum::serve(listener, router).await.unwrap() });
    (permits, url)
}

/// A conversation of `alice` with the agent on Discord.
struct Talk {
    scene: Scene,
    permits: Arc<Semaphore>,
    channel: String,
}

impl Talk {
    /// Starts the fleet, and lets `alice` write something to the agent.
    async fn begun(words: &str) -> Self {
        let (permits, url) = slow_service().await;
        let scene = prepared().await;
        let voice =
            format!("{OUTPUT}, voice: {{enabled: true, api_url: '{url}', api_key_env: DISCORD_TOKEN}}");
        let fleet = format!("server: {{enabled: false}}\n{}", fleet().replace(OUTPUT, &voice));
        scene.write("cowhand.yaml", &fleet);
        scene.write("call-twice", &bash("git push"));
        scene.write("call-twice-then", &bash_call("t2", "rm -rf work"));
        scene.start();
        scene.connected().await;
        let (channel, _) = scene.discord.say_direct(ALICE, words);
        Self { scene, permits, channel }
    }

    async fn post(&self, words: &str) -> FakeDiscordMessage {
        let find = |fake: &discord::FakeDiscord| {
            let mut messages = fake.messages(&self.channel).into_iter();
            messages.find(|message| message.author == discord::BOT_ID && message.content.contains(words))
        };
        self.scene.discord.wait_for(words, find).await
    }

    /// Writes these messages behind a voice message that is handled until [`Self::go_on`].
    fn say_behind_voice(&self, words: &[&str]) {
        self.scene.discord.say_voice(&self.channel, ALICE, b"SOUND");
        for words in words {
            self.scene.discord.say_direct(ALICE, words);
        }
    }

    fn go_on(&self) {
        self.permits.add_permits(1);
    }

    async fn press(&self, post: &FakeDiscordMessage, button: usize) -> String {
        let value = discord_buttons(post)[button].clone();
        self.scene.discord.press_forged(ALICE, &self.channel, &post.id, &value).await
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_late_word_does_not_answer_the_next_ask() {
    let talk = Talk::begun("call-twice").await;
    let first = talk.post("git push").await;
    talk.say_behind_voice(&["yes"]);
    let pressed = talk.press(&first, 0).await;
    assert!(pressed.contains("was allowed by alice"), "{pressed}");
    let second = talk.post("rm -rf work").await;
    talk.go_on();
    // The word was meant for the first ask, which alice has answered with the button.
    talk.post("Your answer came too late.").await;
    let open = talk.scene.open_ask();
    assert!(open.ends_with(".2"), "{open}");
    let pressed = talk.press(&second, 1).await;
    assert!(pressed.contains("was denied by alice"), "{pressed}");
    talk.post("It was denied.").await;
    assert_eq!(talk.scene.jobs().len(), 1, "the word becomes no job");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_message_that_was_written_before_the_ask_answers_nothing() {
    let talk = Talk::begun("call-wait").await;
    talk.scene.wait_for("the job", &["jobs"], |jobs| (jobs[0]["status"] == "running").then_some(()));
    talk.say_behind_voice(&["yes", "look at the tests, too"]);
    talk.scene.write("call-wait", &bash("git push"));
    let ask = talk.post("git push").await;
    talk.go_on();
    talk.post("and it starts no job: it was written before the whole of").await;
    talk.post("so it is a new message for the agent: it was written before the whole of").await;
    talk.scene.open_ask();
    let pressed = talk.press(&ask, 1).await;
    assert!(pressed.contains("was denied by alice"), "{pressed}");
    talk.post("There was nothing to ask.").await;
    assert_eq!(talk.scene.jobs().len(), 2, "the word becomes no job");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_late_word_does_not_answer_another_ask_of_the_same_time() {
    let talk = Talk::begun("call-push").await;
    let first = talk.post("git push").await;
    talk.scene.discord.say_direct(ALICE, "asker: call-which");
    talk.post("Which **branch**?").await;
    talk.say_behind_voice(&["yes"]);
    let pressed = talk.press(&first, 0).await;
    assert!(pressed.contains("was allowed by alice"), "{pressed}");
    talk.go_on();
    talk.post("and it starts no job: several asks were open here.").await;
    let open = talk.scene.json(&["asks"]);
    assert_eq!(open.as_array().unwrap().len(), 1, "{open}");
    assert_eq!(open[0]["agent"], "asker", "{open}");
}
