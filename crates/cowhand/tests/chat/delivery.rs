//! Messages run once and in order. A message to a busy agent waits. Until its job starts, the message can be edited and
//! cancelled.

use cowhand_testing::discord::FakeDiscordMessage;
use cowhand_testing::slack::BOT_USER;
use cowhand_testing::slack::FakeSlackState;
use cowhand_testing::wait_until;
use serde_json::Value;

use crate::reliable::{PRINT_TEXT, helper, to_discord_bot, to_slack_bot};
use crate::scene::{ANN, SLACK_CHANNEL, Scene};

/// `helper` repeats the text when there is a file `go`.
fn fleet() -> String {
    let program = format!("text=$({PRINT_TEXT}); while [ ! -e go ]; do sleep 0.05; done; echo \"did $text\"");
    helper(&program, 1, "")
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_message_that_is_delivered_again_runs_once() {
    let scene = Scene::started(&fleet()).await;
    scene.write("go", "");
    let ts = scene.mention_on_slack("one");
    scene.slack.redeliver(&ts);
    scene.wait_for_slack("did one").await;
    scene.slack.redeliver(&ts);
    scene.slack.wait_until_acknowledged().await;
    scene.mention_on_discord("two");
    scene.wait_for_discord("did two").await;
    // A new session reads the history, which contains the message.
    scene.discord.invalidate(false);
    scene.discord.wait_for("a new session", |fake| (fake.connections().0 == 2).then_some(())).await;
    scene.mention_on_slack("three");
    scene.mention_on_discord("four");
    scene.wait_for_slack("did three").await;
    scene.wait_for_discord("did four").await;
    scene.wait_until_answered();
    for text in ["did one", "did two", "did three", "did four"] {
        scene.assert_posted_once(text);
    }
    assert_eq!(scene.jobs().len(), 4);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_waiting_message_shows_its_position_and_can_be_changed() {
    let scene = Scene::started(&fleet()).await;
    scene.mention_on_discord("first");
    wait_until("the first job to run", || (scene.jobs().first()?["status"] == "running").then_some(()));
    let second = scene.mention_on_discord("second");
    let third = scene.mention_on_discord("third");
    let fourth = scene.mention_on_discord("fourth");
    let note = async |message: &str, text: &str| {
        scene
            .discord
            .wait_for(text, |_| {
                let posts = scene.discord_posts().into_iter();
                let mut of_message = posts.filter(|post| post.reply_to.as_deref() == Some(message));
                of_message.find(|post| post.content.contains(text))
            })
            .await
    };
    note(&second, "number 1 in the queue").await;
    note(&third, "number 2 in the queue").await;
    let last: FakeDiscordMessage = note(&fourth, "number 3 in the queue").await;
    assert!(last.components.to_string().contains("cancel:"), "{last:?}");
    scene.discord.edit(&second, &to_discord_bot("second, corrected"));
    scene.discord.delete(&third);
    note(&fourth, "number 2 in the queue").await;
    scene.write("go", "");
    scene.wait_for_discord("did first").await;
    scene.wait_for_discord("did second, corrected").await;
    scene.wait_for_discord("did fourth").await;
    scene.wait_until_answered();
    let posts = scene.discord_posts();
    let texts: Vec<&str> = posts.iter().map(|post| post.content.as_str()).collect();
    let place = |text: &str| texts.iter().position(|post| post.contains(text));
    assert!(
        place("did first") < place("did second") && place("did second") < place("did fourth"),
        "{texts:#?}"
    );
    assert_eq!(place("did third"), None, "{texts:#?}");
    assert!(!texts.iter().any(|text| text.contains("in the queue")), "every note is replaced: {texts:#?}");
    assert!(place("removed from the queue").is_some(), "{texts:#?}");
    let jobs: Vec<Value> = scene.jobs().iter().map(|job| job["status"].clone()).collect();
    assert_eq!(jobs, ["completed", "completed", "cancelled", "completed"]);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_edit_of_a_message_that_is_being_handled_holds_up_no_other_message() {
    let scene = Scene::started(&fleet()).await;
    scene.write("go", "");
    // The reply to this command waits for an hour.
    scene.slack.rate_limit("chat.postMessage", 1, 3600);
    let slow = scene.mention_on_slack("!ping");
    let is_tried = |state: &mut FakeSlackState| {
        state.calls.iter().any(|call| call.method == "chat.postMessage").then_some(())
    };
    scene.slack.wait_for("the reply", is_tried).await;
    scene.slack.edit(SLACK_CHANNEL, &slow, &to_slack_bot("!ping again"));
    scene.slack.say_direct(ANN, "hello");
    let is_answer = |post: &Value| post["text"].as_str().is_some_and(|text| text.contains("did hello"));
    scene.slack.wait_for_post(&scene.slack.direct_channel(ANN), is_answer).await;
    scene.slack.wait_until_acknowledged().await;
}

/// The patterns and the filter of a schedule apply to the text of an edit, too.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_edit_that_the_schedule_does_not_take_cancels_the_job() {
    let schedules = "    schedules:
      deploys: {type: chat, patterns: ['^deploy'], prompt: 'Deploy: {{ body }}'}
      reviews: {type: chat, patterns: ['review'], filter: {title: '^review'}, prompt: 'Review: {{ body }}'}
";
    let scene = Scene::started(&format!("{}{schedules}", fleet())).await;
    scene.mention_on_slack("first");
    wait_until("the first job to run", || (scene.jobs().first()?["status"] == "running").then_some(()));
    for (number, words, edited, schedule) in [
        (2, "deploy staging", "drop the database", "deploys"),
        (3, "review this", "do not review this", "reviews"),
        (4, "deploy production", "deploy everything", "deploys"),
    ] {
        let ts = scene.mention_on_slack(words);
        wait_until("the job to wait", || (scene.jobs().len() == number).then_some(()));
        scene.slack.edit(SLACK_CHANNEL, &ts, &to_slack_bot(edited));
        let is_taken = number == 4;
        let job = scene.wait_for("the edit", &["jobs"], |jobs| {
            let job = &jobs[0];
            let is_changed = job["prompt"].as_str().is_some_and(|prompt| prompt.contains(edited));
            (is_changed || job["status"] == "cancelled").then(|| job.clone())
        });
        assert_eq!((&job["schedule"], job["status"] == "pending"), (&schedule.into(), is_taken), "{job}");
        if !is_taken {
            assert!(!job["prompt"].as_str().unwrap().contains(edited), "{job}");
            let told =
                format!("After your edit, schedule `helper/{schedule}` does not take your message any more");
            let is_told = |post: &Value| {
                let text = post["text"].as_str().unwrap_or_default();
                post["thread_ts"] == *ts && post["user"] == BOT_USER && text.contains(&told)
            };
            scene.slack.wait_for_post(SLACK_CHANNEL, is_told).await;
        }
    }
}
