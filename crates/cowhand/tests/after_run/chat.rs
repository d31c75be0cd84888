//! Messages to Discord and Slack.

use serde_json::json;

use crate::server::{Server, TOKEN};
use crate::{Scene, states, text};

const FLEET: &str = r#"
agents:
  - name: worker
    runtime: command
    command: [sh, -c, "echo 'done for <!channel> & @everyone'"]
    hooks:
      after_run:
        - {type: discord, channel_id: "4711", bot_token_env: DISCORD_TOKEN}
        - {type: slack, channel_id: C0815}
        - {type: discord, channel_id: general, bot_token_env: DISCORD_TOKEN}
        - {type: slack, channel_id: general, bot_token_env: SLACK_BOT_TOKEN}
        - {type: slack, channel_id: C0815, bot_token_env: WRONG_TOKEN}
        - {type: discord, channel_id: "4711", bot_token_env: NO_TOKEN}
"#;

fn scene(server: &Server) -> Scene {
    let scene = Scene::new(FLEET)
        .with("COWHAND_DISCORD_API", format!("{}/discord/", server.url))
        .with("COWHAND_SLACK_API", format!("{}/slack/", server.url))
        .with("DISCORD_TOKEN", TOKEN)
        .with("WRONG_TOKEN", "something else");
    std::fs::write(scene.path(".env"), format!("SLACK_BOT_TOKEN={TOKEN}\n")).unwrap();
    scene
}

#[test]
fn chat_messages_are_sent_once_and_refusals_are_reported() {
    let server = Server::start();
    // Both servers answer 429 once.
    server.kept.lock().unwrap().slower = 1;
    let mut scene = scene(&server);
    scene.start();
    let job = scene.trigger("worker");
    let hooks = scene.hooks(&job);
    assert_eq!(
        states(&hooks),
        ["completed", "completed", "failed", "failed", "failed", "failed"],
        "{hooks:?}"
    );
    assert_eq!(hooks[0]["tries"], 2, "it was asked to be slower");
    let discord = server.messages("4711");
    assert_eq!(discord.len(), 1);
    let embed = &discord[0]["embeds"][0];
    assert_eq!(embed["title"], "worker: completed");
    assert_eq!(embed["description"], "done for <!channel> & @everyone");
    assert!(text(&embed["footer"], "text").starts_with(&job), "{embed}");
    assert_eq!(discord[0]["allowed_mentions"], json!({ "parse": [] }));
    let slack = server.messages("C0815");
    assert_eq!(slack.len(), 1);
    assert_eq!(slack[0]["attachments"][0]["text"], "done for &lt;!channel&gt; &amp; @everyone");
    assert_eq!(text(&hooks[2], "reason"), "it answered 404 Not Found");
    assert_eq!(text(&hooks[3], "reason"), "Slack answered: channel_not_found");
    assert_eq!(text(&hooks[4], "reason"), "Slack answered: invalid_auth");
    assert_eq!(text(&hooks[5], "reason"), "the environment variable NO_TOKEN is not set");
}

/// The addresses of the bots need no variable, and only hooks with the token of a bot use its address.
#[test]
fn messages_use_the_address_of_the_bot_with_the_same_token() {
    let server = Server::start();
    let fleet = r#"
agents:
  - name: worker
    runtime: command
    command: [sh, -c, "echo done"]
    hooks:
      after_run:
        - {type: discord, channel_id: "4711", bot_token_env: DISCORD_TOKEN}
        - {type: slack, channel_id: C0815}
        - {type: slack, channel_id: C0815, bot_token_env: OTHER_TOKEN}
  - name: talker
    runtime: command
    command: ["true"]
    chat:
      discord: {bot_token_env: DISCORD_TOKEN, api_url: 'SERVER/discord', users: [1], guilds: []}
      slack: {bot_token_env: SLACK_BOT_TOKEN, api_url: 'SERVER/slack/', users: [U1]}
"#;
    let mut scene = Scene::new(&fleet.replace("SERVER", &server.url))
        .with("COWHAND_SLACK_API", format!("{}/other/", server.url))
        .with("DISCORD_TOKEN", TOKEN)
        .with("SLACK_BOT_TOKEN", TOKEN)
        .with("OTHER_TOKEN", TOKEN);
    scene.start();
    let job = scene.trigger("worker");
    let hooks = scene.hooks(&job);
    assert_eq!(states(&hooks)[..2], ["completed", "completed"], "{hooks:?}");
    assert_eq!(server.messages("4711").len(), 1);
    assert_eq!(server.messages("C0815").len(), 1);
    assert_eq!(server.asked("/other/chat.postMessage").len(), 1, "{hooks:?}");
}

#[test]
fn message_sent_before_crash_is_not_duplicated() {
    let server = Server::start();
    let mut scene = scene(&server);
    scene.start_and_die("hook_ended");
    let job = scene.trigger("worker");
    assert!(!scene.ended().success());
    assert_eq!(server.messages("4711").len(), 1, "it was sent, and nobody wrote that down");
    scene.start();
    assert_eq!(states(&scene.hooks(&job))[0], "completed");
    assert_eq!(server.asked("/discord/api/v10/channels/4711/messages").len(), 2, "so it is sent again");
    assert_eq!(server.messages("4711").len(), 1, "and Discord knows it by its nonce");
}
