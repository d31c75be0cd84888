//! The order of the answers of a conversation: an answer that has nothing to post yet does not hold up later answers, and
//! the end of an answer is posted when the platform can be reached again.

use cowhand_testing::wait_until;

use crate::reliable::{PRINT_TEXT, helper};
use crate::scene::Scene;

/// Keys of a schedule of type `chat` that takes the messages with this word.
fn special(keys: &str) -> String {
    format!(
        "    schedules: {{special: {{type: chat, pattern: special, prompt: '~~~~~\n{{{{ body }}}}', {keys}}}}}\n"
    )
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_job_that_waits_for_its_next_attempt_holds_up_no_later_answer() {
    let program =
        format!("text=$({PRINT_TEXT}); [ \"$text\" != first ] || [ -e go ] || exit 1; echo \"did $text\"");
    let retry = "    retry: {max_attempts: 2, backoff: 1h}\n";
    let scene = Scene::started(&format!("{}{retry}", helper(&program, 4, ""))).await;
    scene.mention_on_discord("first");
    let waits = "select count(*) || '' from jobs where status = 'pending' and attempt = 1";
    wait_until("the first job to wait", || (scene.query(waits) == ["1"]).then_some(()));
    scene.mention_on_discord("second");
    scene.wait_for_discord("did second").await;
    assert_eq!(scene.query(waits), ["1"]);
    // The message can still be answered.
    scene.write("go", "");
    let job = scene.jobs()[0]["id"].as_str().unwrap().to_owned();
    assert_eq!(scene.run(&["cancel", &job]).code, Some(0));
    scene.wait_for_discord("was stopped").await;
    scene.wait_until_answered();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_message_whose_schedule_was_removed_holds_up_no_later_answer() {
    let gate = "when_command: [sh, -c, 'while [ ! -e checked ]; do sleep 0.05; done']";
    let fleet = helper(&format!("echo did $({PRINT_TEXT})"), 4, "");
    let scene = Scene::started(&format!("{fleet}{}", special(gate))).await;
    scene.mention_on_slack("elsewhere");
    scene.mention_on_discord("special");
    let preparing = "select count(*) || '' from firings where outcome = 'preparing'";
    wait_until("the firing to be prepared", || (scene.query(preparing) == ["1"]).then_some(()));
    scene.kill_daemon();
    scene.write("cowhand.yaml", &format!("server: {{enabled: false}}\n{fleet}"));
    scene.start();
    scene.connected().await;
    scene.mention_on_discord("second");
    scene.wait_for_discord("did second").await;
    scene.wait_for_discord("started no job").await;
    scene.wait_until_answered();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_reason_why_nothing_ran_is_posted_after_an_outage() {
    let fleet = helper(&format!("echo did $({PRINT_TEXT})"), 4, "");
    let mut scene = Scene::new(&format!("{fleet}{}", special("when_command: [sh, -c, exit 1]"))).await;
    scene.set("COWHAND_WAITS", "slack_pace,chat_retry");
    scene.start();
    scene.connected().await;
    // More failures than one reply is tried.
    scene.slack.fail("chat.postMessage", 22);
    scene.mention_on_slack("special");
    scene.wait_for_slack("started no job").await;
    scene.wait_until_answered();
    scene.assert_posted_once("started no job");
}
