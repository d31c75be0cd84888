//! The fakes of Slack and Discord as a program, to try the chat of a fleet without an account.
//!
//! `cargo run -p cowhand-testing --example chat_platforms` prints the variables for the environment of the daemon and
//! reads one command in each line. `help` lists the commands.

#![expect(clippy::print_stdout, clippy::unwrap_used, reason = "a program for people who develop cowhand")]

use std::io::{BufRead, stdin};
use std::sync::Arc;

use cowhand_testing::discord::{self, FakeDiscord};
use cowhand_testing::slack::{self, FakeSlack};
use serde_json::Value;

const SLACK_CHANNEL: &str = "C1";
const HELP: &str = "\
PLATFORM is slack or discord. USER is any word on Slack (a new word is a new person), and an id on Discord.
  PLATFORM say USER TEXT            write in the channel; @bot in the text mentions the bot
  PLATFORM thread ID USER TEXT      write in a thread: below the message ID on Slack, in the thread ID on Discord
  PLATFORM dm USER TEXT             write to the bot
  PLATFORM file USER PATH TEXT      write in the channel with a file
  PLATFORM edit ID TEXT             edit a message of a person
  PLATFORM delete ID                delete a message of a person
  PLATFORM press USER ID VALUE      press a button; ID is the message with the button, VALUE is free
  PLATFORM slash USER COMMAND [ARG] call a slash command (Slack: /cowhand COMMAND ARG, Discord: ARG is NAME=VALUE)
  PLATFORM bot TEXT                 let another bot write in the channel
  PLATFORM show [CHANNEL]           print the messages of a channel; after a dm: the channel that it printed
  PLATFORM revoke                   refuse the tokens from now on
  PLATFORM drop                     end all connections
  discord user NAME                 add a person and print the id
  slack user ID NAME                add a person
  quit";

#[tokio::main(flavor = "multi_thread", worker_threads = 2)]
async fn main() {
    std::panic::set_hook(Box::new(|panic| {
        println!("error: {}", panic.payload_as_str().unwrap_or("the command did not work"));
    }));
    let (slack, discord) = (Arc::new(FakeSlack::start().await), Arc::new(FakeDiscord::start().await));
    slack.add_channel(SLACK_CHANNEL, "general");
    println!("SLACK_BOT_TOKEN={} SLACK_APP_TOKEN={}", slack::BOT_TOKEN, slack::APP_TOKEN);
    println!("COWHAND_SLACK_API={}", slack.url());
    println!("DISCORD_TOKEN={}", discord::BOT_TOKEN);
    println!("COWHAND_DISCORD_API={}", discord.url());
    println!("Slack: channel {SLACK_CHANNEL}");
    let (guild, channel, user) = (discord::GUILD_ID, discord::CHANNEL_ID, discord::USER_ID);
    println!("Discord: guild {guild}, channel {channel}, person alice {user}");
    println!("{HELP}");
    for line in stdin().lock().lines() {
        let line = line.unwrap();
        let (platform, rest) = word(&line);
        let (verb, rest) = word(rest);
        let (verb, rest) = (verb.to_owned(), rest.to_owned());
        // The answer of the fleet to a press or a slash command can come late, or never.
        let waits = matches!(verb.as_str(), "press" | "slash");
        let command = match platform {
            "" => continue,
            "quit" => break,
            "slack" => {
                let fake = Arc::clone(&slack);
                tokio::spawn(async move { on_slack(&fake, &verb, &rest).await })
            }
            "discord" => {
                let fake = Arc::clone(&discord);
                tokio::spawn(async move { on_discord(&fake, &verb, &rest).await })
            }
            _ => {
                println!("{HELP}");
                continue;
            }
        };
        // A fake panics if a command names something that does not exist. The hook prints the panic as an error.
        let ended = async move { drop(command.await) };
        if waits {
            tokio::spawn(ended);
        } else {
            ended.await;
        }
    }
}

fn word(text: &str) -> (&str, &str) {
    let text = text.trim();
    text.split_once(' ').map_or((text, ""), |(word, rest)| (word, rest.trim()))
}

/// Splits the text into two words and the rest.
fn two_words(text: &str) -> (&str, &str, &str) {
    let (first, rest) = word(text);
    let (second, rest) = word(rest);
    (first, second, rest)
}

/// Returns the name and the content of a file.
fn read_file(path: &str) -> (String, Vec<u8>) {
    let name = path.rsplit('/').next().unwrap_or(path).to_owned();
    (name, std::fs::read(path).unwrap_or_default())
}

async fn on_slack(fake: &FakeSlack, verb: &str, rest: &str) {
    let mentions = |text: &str| text.replace("@bot", &format!("<@{}>", slack::BOT_USER));
    let (first, second, third) = two_words(rest);
    let known = |user: &str| {
        if !fake.state().users.contains_key(user) {
            fake.add_user(user, user);
        }
    };
    match verb {
        "user" => fake.add_user(first, second),
        "say" => {
            known(first);
            println!("{}", fake.say(SLACK_CHANNEL, first, &mentions(word(rest).1)));
        }
        "thread" => {
            known(second);
            println!("{}", fake.say_in_thread(SLACK_CHANNEL, first, second, &mentions(third)));
        }
        "dm" => {
            known(first);
            let ts = fake.say_direct(first, &mentions(word(rest).1));
            println!("{ts} in {}", fake.direct_channel(first));
        }
        "file" => {
            known(first);
            let (name, content) = read_file(second);
            let ts = fake.say_with_file(
                SLACK_CHANNEL,
                first,
                &mentions(third),
                &name,
                media_type(&name),
                &content,
            );
            println!("{ts}");
        }
        "edit" => fake.edit(SLACK_CHANNEL, first, &mentions(word(rest).1)),
        "delete" => fake.delete(SLACK_CHANNEL, first),
        "press" => {
            let trigger = fake.press_forged(first, SLACK_CHANNEL, second, third);
            println!("{}", fake.wait_for_answer(&trigger).await);
        }
        "slash" => println!("{}", fake.slash(first, SLACK_CHANNEL, "/cowhand", word(rest).1).await),
        "bot" => println!("{}", fake.say_as_bot(SLACK_CHANNEL, "B9", &mentions(rest))),
        "show" => {
            let channel = if first.is_empty() { SLACK_CHANNEL } else { first };
            for message in fake.messages(channel) {
                println!("{}", shown_on_slack(&message));
            }
        }
        "revoke" => fake.revoke_tokens(),
        "drop" => fake.drop_connections(),
        _ => println!("{HELP}"),
    }
}

fn shown_on_slack(message: &Value) -> String {
    let text = |key: &str| message[key].as_str().unwrap_or_default().to_owned();
    let thread = message["thread_ts"].as_str().map(|ts| format!(" in thread {ts}")).unwrap_or_default();
    let more: Vec<String> = ["blocks", "files", "reactions", "edited"]
        .into_iter()
        .filter(|key| !message[*key].is_null())
        .map(|key| format!("\n    {key}: {}", message[key]))
        .collect();
    format!("[{}] {}{thread}: {}{}", text("ts"), text("user"), text("text"), more.concat())
}

async fn on_discord(fake: &FakeDiscord, verb: &str, rest: &str) {
    let mentions = |text: &str| text.replace("@bot", &format!("<@{}>", discord::BOT_ID));
    let (first, second, third) = two_words(rest);
    match verb {
        "user" => println!("{}", fake.add_user(first)),
        "say" => println!("{}", fake.say(discord::CHANNEL_ID, first, &mentions(word(rest).1))),
        "thread" => println!("{}", fake.say(first, second, &mentions(third))),
        "dm" => {
            let (channel, message) = fake.say_direct(first, &mentions(word(rest).1));
            println!("{message} in {channel}");
        }
        "file" => {
            let (name, content) = read_file(second);
            let text = mentions(third);
            let id =
                fake.say_with_file(discord::CHANNEL_ID, first, &text, &name, media_type(&name), &content);
            println!("{id}");
        }
        "edit" => fake.edit(first, &mentions(word(rest).1)),
        "delete" => fake.delete(first),
        "press" => println!("{}", fake.press_forged(first, discord::CHANNEL_ID, second, third).await),
        "slash" => {
            let options: Vec<(&str, &str)> = third.split(',').filter_map(|one| one.split_once('=')).collect();
            println!("{}", fake.slash(first, discord::CHANNEL_ID, second, &options).await);
        }
        "bot" => println!("{}", fake.say_as_bot(discord::CHANNEL_ID, &mentions(rest))),
        "show" => {
            let channel = if first.is_empty() { discord::CHANNEL_ID } else { first };
            for message in fake.messages(channel) {
                let reactions = fake.reactions(&message.id);
                println!("{message:#?}\n    reactions: {reactions:?}");
            }
        }
        "revoke" => fake.revoke_token(),
        "drop" => fake.drop_connections(),
        _ => println!("{HELP}"),
    }
}

fn media_type(name: &str) -> &'static str {
    match name.rsplit_once('.').map(|(_, ending)| ending) {
        Some("txt" | "md" | "log") => "text/plain",
        Some("png") => "image/png",
        Some("pdf") => "application/pdf",
        Some("ogg") => "audio/ogg",
        _ => "application/octet-stream",
    }
}
