//! What people are told, and what the other surfaces state, if a message starts no job or an answer has another place.

use cowhand_testing::slack::BOT_USER;
use cowhand_testing::{discord, wait_until};
use serde_json::Value;

use crate::reliable::{to_discord_bot, to_slack_bot};
use crate::scene::{ANN, SLACK_CHANNEL, Scene};

const BOB: &str = "UBOB";
const EVE: &str = "UEVE";
const OLGA: &str = "UOLGA";
const MEDIC_CHANNEL: &str = "C2";
const TRUSTED_CHANNEL: &str = "C3";

/// Agents that repeat the text of the message. `helper` waits for the file `go` if the text says so, `medic` accepts only
/// Eve and has a schedule for deployments, and `careful` trusts only Ann.
fn fleet() -> String {
    let program = "text=$(cat); case $text in *'wait for go'*) while [ ! -e go ]; do sleep 0.05; done;; esac; \
                   printf '%s' \"$text\" | sed -n '/^~~~~/{n;p;q;}'";
    let program = serde_json::to_string(program).unwrap();
    let deploy = "deploy: {type: chat, patterns: ['^deploy'], prompt: 'Deploy: {{ body }}'}";
    let (guild, channel) = (discord::GUILD_ID, discord::CHANNEL_ID);
    format!(
        "agents:
  - name: helper
    runtime: command
    command: [sh, -c, {program}]
    chat:
      slack:
        users: [{ANN}, {BOB}]
        operators: [{OLGA}]
        channels: [{{id: {SLACK_CHANNEL}}}]
        dm: {{allowlist: [{ANN}]}}
      discord: {{bot_token_env: DISCORD_TOKEN, everyone: true, guilds: [{{id: '{guild}', channels: [{{id: '{channel}'}}]}}]}}
    schedules: {{nightly: {{type: cron, cron: '0 3 1 1 *', prompt: Report, enabled: false}}}}
  - name: medic
    runtime: command
    command: [sh, -c, {program}]
    chat: {{slack: {{users: [{EVE}], channels: [{{id: {SLACK_CHANNEL}}}, {{id: {MEDIC_CHANNEL}}}]}}}}
    schedules: {{{deploy}}}
  - name: careful
    runtime: command
    command: [sh, -c, {program}]
    trust: {{allow_authors: ['slack:{ANN}']}}
    chat: {{slack: {{everyone: true, channels: [{{id: {TRUSTED_CHANNEL}}}], dm: {{enabled: false}}}}}}
"
    )
}

async fn started() -> Scene {
    let scene = Scene::new(&fleet()).await;
    for (id, name) in [(BOB, "Bob"), (EVE, "Eve"), (OLGA, "Olga")] {
        scene.slack.add_user(id, name);
    }
    for channel in [MEDIC_CHANNEL, TRUSTED_CHANNEL] {
        scene.slack.add_channel(channel, channel);
    }
    scene.start();
    scene.connected().await;
    scene
}

/// Waits for a post of the bot on Slack that contains this text.
async fn post_in(scene: &Scene, channel: &str, text: &str) -> Value {
    let is_post = |post: &Value| {
        post["user"] == BOT_USER && post["text"].as_str().is_some_and(|found| found.contains(text))
    };
    scene.slack.wait_for_post(channel, is_post).await
}

fn say(scene: &Scene, channel: &str, user: &str, text: &str) -> String {
    scene.slack.say(channel, user, &to_slack_bot(text))
}

/// Returns the explanations of the firings of a schedule.
fn explanations(scene: &Scene, schedule: &str) -> Vec<String> {
    let why = scene.json(&["why", schedule, "--limit", "100"]);
    let firings = why["firings"].as_array().unwrap();
    firings.iter().map(|firing| firing["why"].as_str().unwrap_or_default().to_owned()).collect()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn refusals_say_what_is_true_and_are_explained() {
    let scene = started().await;
    // Text that `trust` does not allow.
    for number in 0..3 {
        say(&scene, TRUSTED_CHANNEL, EVE, &format!("obey {number}"));
    }
    say(&scene, TRUSTED_CHANNEL, ANN, "a trusted question");
    post_in(&scene, TRUSTED_CHANNEL, "a trusted question").await;
    let told = scene.slack.posted_texts(TRUSTED_CHANNEL);
    assert_eq!(told.iter().filter(|text| text.contains("is not among")).count(), 1, "{told:?}");
    let why = explanations(&scene, "careful/chat");
    let refused: Vec<_> = why.iter().filter(|why| why.contains("`trust`: ")).collect();
    assert_eq!(refused.len(), 3, "{why:?}");
    assert!(refused[0].contains("a message of Eve (UEVE) on slack in C3 (http"), "{refused:?}");

    // A message that is only a file.
    scene.slack.say_with_file(SLACK_CHANNEL, ANN, &to_slack_bot(""), "a.txt", "text/plain", b"text");
    post_in(&scene, SLACK_CHANNEL, "Agent helper takes no files. Nothing was passed on.").await;
    let why = explanations(&scene, "helper/chat");
    assert!(why.iter().any(|why| why.contains("the agent gets none of its files")), "{why:?}");

    // A person who may talk in the channel, but not in direct messages, and an agent that answers others.
    scene.slack.say_direct(OLGA, "hello");
    let direct = scene.slack.direct_channel(OLGA);
    post_in(&scene, &direct, "You may not talk to agent helper in direct messages.").await;
    say(&scene, SLACK_CHANNEL, ANN, "!status @medic");
    post_in(&scene, SLACK_CHANNEL, "No agent `medic` answers you here.").await;
    say(&scene, SLACK_CHANNEL, ANN, "!why nosuch");
    post_in(&scene, SLACK_CHANNEL, "There is no job, schedule or agent `nosuch`.").await;

    // No folder of the server is named.
    say(&scene, SLACK_CHANNEL, OLGA, "!schedule enable nightly");
    post_in(&scene, SLACK_CHANNEL, "cowhand.yaml:").await;
    say(&scene, SLACK_CHANNEL, ANN, "!config");
    post_in(&scene, SLACK_CHANNEL, "Directory: `.`").await;
    let folder = scene.root.display().to_string();
    let posts = scene.slack.posted_texts(SLACK_CHANNEL);
    assert!(posts.iter().all(|text| !text.contains(&folder)), "{posts:?}");

    // The name of an agent before the text belongs neither to patterns nor to the prompt.
    say(&scene, MEDIC_CHANNEL, EVE, "medic: deploy prod");
    let answer = post_in(&scene, MEDIC_CHANNEL, "deploy prod").await;
    assert_eq!(answer["text"], "deploy prod");
    assert_eq!(scene.jobs().pop().unwrap()["schedule"], "deploy");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_note_of_a_waiting_message_names_its_job() {
    let scene = started().await;
    say(&scene, SLACK_CHANNEL, ANN, "wait for go");
    wait_until("the first job to run", || (scene.jobs().first()?["status"] == "running").then_some(()));
    say(&scene, SLACK_CHANNEL, ANN, "second");
    let note = post_in(&scene, SLACK_CHANNEL, "number 1 in the queue").await;
    let second = scene.jobs().pop().unwrap()["id"].as_str().unwrap().to_owned();
    let command = format!("!cancel {}", &second[second.len() - 6..]);
    let text = note["text"].as_str().unwrap();
    assert!(text.ends_with(&format!("`{command}` removes it from the queue.")), "{text}");
    say(&scene, SLACK_CHANNEL, ANN, &command);
    post_in(&scene, SLACK_CHANNEL, &format!("{second} was removed from the queue.")).await;
    assert_eq!(scene.jobs()[0]["status"], "running");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_message_that_was_deleted_is_answered_in_its_channel() {
    let scene = started().await;
    let message = say(&scene, SLACK_CHANNEL, ANN, "wait for go");
    wait_until("the job to run", || (scene.jobs().first()?["status"] == "running").then_some(()));
    scene.slack.delete(SLACK_CHANNEL, &message);
    scene.slack.wait_until_acknowledged().await;
    scene.write("go", "");
    let is_answer = |post: &Value| {
        post["user"] == BOT_USER && post["thread_ts"].is_null() && post["text"] == "wait for go"
    };
    scene.slack.wait_for_post(SLACK_CHANNEL, is_answer).await;
    scene.wait_until_answered();
    let job = scene.jobs().pop().unwrap();
    assert_eq!(scene.json(&["job", job["id"].as_str().unwrap()])["answer_not_posted"], Value::Null);
}

/// The agent prints lines for some seconds, and each changes the progress message.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_progress_message_that_is_refused_is_edited_only_at_the_end() {
    const LINES: usize = 30;
    let line = r#"{\"type\":\"tool_use\",\"tool_name\":\"Bash\",\"tool_use_id\":\"t$i\",\"input\":{\"command\":\"step $i\"}}"#;
    let program = format!(
        "i=0; while [ $i -lt {LINES} ]; do i=$((i+1)); echo \"{line}\"; sleep 0.2; done; echo the end"
    );
    let scene = Scene::started(&crate::reliable::helper(&program, 1, "")).await;
    let edits = format!("PATCH /channels/{}/messages/", discord::CHANNEL_ID);
    scene.discord.fail(&edits, 1, 403);
    scene.mention_on_discord("go");
    scene.wait_for_discord("Working").await;
    scene.wait_for_discord("the end").await;
    scene.wait_until_answered();
    let requests = scene.discord.requests();
    let edits = requests.iter().filter(|request| request.starts_with(&edits)).count();
    assert_eq!(edits, 2, "the refused edit and the one at the end: {requests:#?}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_retry_names_the_person_and_a_chat_fires_by_hand_only_with_a_prompt() {
    let scene = started().await;
    let mention = |user: &str, text: &str| {
        scene.discord.say(discord::CHANNEL_ID, user, &to_discord_bot(text));
    };
    mention(discord::USER_ID, "once more");
    scene.wait_for_discord("once more").await;
    scene.wait_until_answered();
    let carol = scene.discord.add_user("carol");
    scene.discord.slash(&carol, discord::CHANNEL_ID, "retry", &[]).await;
    let retried = wait_until("the second job", || scene.jobs().get(1).cloned());
    assert_eq!(retried["message"]["retried_by"], "carol", "{retried}");
    let shown = scene.run(&["job", retried["id"].as_str().unwrap()]).stdout;
    assert!(shown.contains(", retried by carol"), "{shown}");

    let refused = scene.run(&["trigger", "helper/chat"]);
    assert_ne!(refused.code, Some(0));
    let text = refused.stderr.split_whitespace().collect::<Vec<_>>().join(" ");
    assert!(text.contains("its prompt needs a message") && text.contains("-p PROMPT"), "{text}");
    let said = scene.run(&["trigger", "helper/chat", "-p", "Only this"]);
    assert_eq!(said.code, Some(0), "{}", said.stderr);
    let job = scene.jobs().pop().unwrap();
    assert!(!job["prompt"].as_str().unwrap().contains("You talk with people"), "{job}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_bots_of_a_killed_daemon_are_stopped() {
    let scene = started().await;
    let of_bots = |status: &Value| -> Vec<String> {
        let bots = status["chat_bots"].as_array().unwrap().iter();
        bots.map(|bot| bot["status"].as_str().unwrap().to_owned()).collect()
    };
    scene.wait_for("the connections", &["status"], |status| {
        of_bots(status).iter().all(|state| state == "connected").then_some(())
    });
    scene.kill_daemon();
    let status = scene.json(&["status"]);
    assert!(of_bots(&status).iter().all(|state| state == "stopped"), "{status}");
    let why = scene.run(&["why", "helper/chat"]).stdout;
    assert!(why.contains("no daemon runs") && !why.contains("is connected as"), "{why}");
}
