//! The documented examples of herdctl run unchanged: each fleet in `tests/herdctl_chat` runs against the fakes, and gets
//! the messages that it is about. Only the addresses and the tokens are those of the fakes.

use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};

use cowhand_testing::discord::{self, FakeDiscord, FakeDiscordAccount, FakeDiscordMessage};
use cowhand_testing::podman::Podman;
use cowhand_testing::slack::BOT_USER;
use cowhand_testing::wait_until;
use jiff::Timestamp;
use serde_json::Value;

use crate::scene::{ANN, SLACK_CHANNEL, Scene};
use crate::voice::service;

const SECOND_SLACK_CHANNEL: &str = "C2";
const METADATA: &str = "agents/metadata.json";
const NOTIFY: &str = r#"{"shouldNotify": true}"#;

/// Fake Claude Code. Its answer names its agent, the number of earlier messages with the word `chatter`, and the file and
/// the voice message that it got.
const CLAUDE: &str = r#"#!/bin/sh
read -r line
prompt=$(printf '%s\n' "$line" | sed 's/\\n/\n/g')
said="$COWHAND_AGENT answers"
count=$(echo "$prompt" | grep -c chatter)
[ "$count" = 0 ] || said="$said after $count messages"
file=$(echo "$prompt" | grep -o '\.discord-attachments/[A-Za-z0-9./_-]*[A-Za-z0-9]' | head -n 1)
[ -z "$file" ] || said="$said with $(cat "$file")"
case $prompt in *"Transcript of a voice message: count the sheep"*) said="$said to a voice" ;; esac
echo "{\"type\":\"system\",\"subtype\":\"init\",\"session_id\":\"$COWHAND_JOB_ID\"}"
echo "{\"type\":\"result\",\"subtype\":\"success\",\"is_error\":false,\"result\":\"$said\",\"session_id\":\"$COWHAND_JOB_ID\"}"
"#;

/// An example, and what happens when it runs.
struct Example {
    name: &'static str,
    /// Variables with the tokens of the bots on Discord.
    bots: &'static [&'static str],
    /// Number of connections to Slack.
    slack: usize,
    steps: &'static [Step],
    /// Number of jobs at the end. Messages that are not for the agent start none.
    jobs: usize,
}

enum Step {
    /// A message of a person on Discord, in which `@` is the mention of the bot with this number, and a part of the
    /// answer of this bot.
    Discord(Place, usize, &'static str, &'static str),
    /// A message on Discord that no bot answers.
    Ignored(Place, &'static str),
    /// A direct message of a person who is not on the list, and a part of the answer.
    Stranger(&'static str),
    /// A mention of the first bot by another bot, which no bot answers.
    OtherBot,
    /// A direct voice message, and a part of the answer.
    Voice(&'static str),
    /// A direct message with an image, and a part of the answer.
    Image(&'static str),
    /// A message of a person on Slack, in which `@` is the mention of the bot, and a part of the answer.
    Slack(Place, &'static str, &'static str),
    /// A message on Slack that the bot does not answer.
    IgnoredOnSlack(&'static str),
    /// A post of a hook on Slack.
    SlackNotice(&'static str),
    /// The number of posts of hooks on Discord, when all hooks have ended.
    Notices(usize),
    /// The content of the file with the metadata of the next job.
    Metadata(&'static str),
    /// A run of an agent by hand.
    Trigger(&'static str),
    /// What the profile of the bot shows, and that its slash commands are registered in the server.
    Profile(&'static str),
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Place {
    Channel,
    SecondChannel,
    Direct,
}

use Place::{Channel, Direct, SecondChannel};

const EXAMPLES: [Example; 13] = [
    Example {
        name: "discord-chat-bot",
        bots: &["BOT_TOKEN"],
        slack: 0,
        steps: &[
            // The schedule of the example has fired at the start.
            Step::Notices(0),
            Step::Ignored(Channel, "some chatter"),
            Step::Metadata(NOTIFY),
            Step::Discord(Channel, 0, "@ hello", "bot answers after 1 messages"),
            Step::Notices(1),
            Step::Metadata("{}"),
            Step::Discord(Direct, 0, "hello in private", "bot answers"),
            Step::Notices(1),
        ],
        jobs: 3,
    },
    Example {
        name: "slack-chat-bot",
        bots: &[],
        slack: 1,
        steps: &[
            Step::IgnoredOnSlack("not for the bot"),
            Step::Slack(Channel, "@ hello", "bot answers"),
            Step::SlackNotice("bot: completed"),
            Step::Slack(Channel, "@ !status", "no job runs and none waits"),
            Step::Slack(Direct, "hello in private", "bot answers"),
        ],
        jobs: 2,
    },
    Example {
        name: "star-trek-captains",
        bots: &[
            "KIRK_TOKEN",
            "PICARD_TOKEN",
            "SISKO_TOKEN",
            "JANEWAY_TOKEN",
            "ARCHER_TOKEN",
            "BURNHAM_TOKEN",
        ],
        slack: 0,
        steps: &[
            Step::Ignored(Channel, "first chatter"),
            Step::Ignored(Channel, "second chatter"),
            Step::OtherBot,
            Step::Discord(Channel, 0, "@ report", "kirk answers after 2 messages"),
            Step::Discord(Channel, 1, "@ report", "picard answers after 2 messages"),
            Step::Discord(Channel, 2, "@ report", "sisko answers after 2 messages"),
            Step::Discord(Channel, 3, "@ report", "janeway answers after 2 messages"),
            Step::Discord(Channel, 4, "@ report", "archer answers after 2 messages"),
            Step::Discord(Channel, 5, "@ report", "burnham answers after 2 messages"),
            Step::Discord(Direct, 3, "in private", "Agent janeway takes no direct messages"),
        ],
        jobs: 6,
    },
    Example {
        name: "multi-agent",
        bots: &["FIRST_TOKEN", "SECOND_TOKEN"],
        slack: 0,
        steps: &[
            Step::Discord(Channel, 1, "hello", "second answers"),
            Step::Discord(Channel, 0, "@ hello", "first answers"),
            Step::Notices(0),
        ],
        // In the mode `auto`, the second bot answers the message to the first one, too.
        jobs: 3,
    },
    Example {
        name: "bragdoc-developer",
        bots: &["BOT_TOKEN"],
        slack: 0,
        steps: &[Step::Discord(Channel, 0, "work in a container", "developer answers")],
        jobs: 1,
    },
    Example {
        name: "price-checker",
        bots: &["BOT_TOKEN"],
        slack: 0,
        steps: &[
            Step::Notices(0),
            Step::Metadata(NOTIFY),
            Step::Trigger("checker/check"),
            Step::Notices(1),
            Step::Metadata(r#"{"shouldNotify": false}"#),
            Step::Trigger("checker/check"),
            Step::Notices(1),
        ],
        jobs: 3,
    },
    Example {
        name: "discord-quick-start",
        bots: &["BOT_TOKEN"],
        slack: 0,
        steps: &[Step::Discord(Channel, 0, "hello", "helper answers")],
        jobs: 1,
    },
    Example {
        name: "slack-quick-start",
        bots: &[],
        slack: 1,
        steps: &[Step::Slack(Channel, "@ hello", "helper answers")],
        jobs: 1,
    },
    Example {
        name: "discord-guild-mention",
        bots: &["BOT_TOKEN"],
        slack: 0,
        steps: &[
            Step::Profile("for support requests"),
            Step::Ignored(SecondChannel, "not for the bot"),
            Step::Discord(SecondChannel, 0, "@ hello", "guide answers"),
            Step::Discord(Channel, 0, "@ hello", "guide answers"),
            Step::Discord(Direct, 0, "hello in private", "guide answers"),
            Step::Stranger("You may not talk to agent guide"),
        ],
        jobs: 3,
    },
    Example {
        name: "discord-voice-and-files",
        bots: &["BOT_TOKEN"],
        slack: 1,
        steps: &[
            Step::Voice("voice answers to a voice"),
            Step::Image("voice answers with PIXELS"),
            Step::Slack(Direct, "hello", "voice answers"),
        ],
        jobs: 3,
    },
    Example {
        name: "discord-two-agents",
        bots: &["FIRST_TOKEN", "SECOND_TOKEN"],
        slack: 0,
        steps: &[
            Step::Discord(Channel, 0, "hello", "support answers"),
            Step::Discord(SecondChannel, 1, "hello", "reviewer answers"),
        ],
        jobs: 2,
    },
    Example {
        name: "slack-two-agents",
        bots: &[],
        slack: 1,
        steps: &[
            Step::Slack(Channel, "hello", "support answers"),
            Step::Slack(SecondChannel, "hello", "reviewer answers"),
        ],
        jobs: 2,
    },
    Example {
        name: "slack-direct-messages",
        bots: &[],
        slack: 1,
        steps: &[Step::IgnoredOnSlack("@ hello"), Step::Slack(Direct, "hello", "private answers")],
        jobs: 1,
    },
];

fn folder() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../../tests/herdctl_chat")
}

/// A fleet of an example that runs.
struct Running {
    scene: Scene,
    bots: Vec<FakeDiscordAccount>,
    second_channel: String,
    /// The engine of the containers, if the example has one.
    _podman: Option<Podman>,
}

impl Running {
    async fn start(example: &Example) -> Self {
        let mut scene = Scene::new("").await;
        fs::remove_file(scene.root.join("cowhand.yaml")).unwrap();
        scene.write_program("claude", CLAUDE);
        let (transcriber, voice_url) = service().await;
        transcriber.lock().unwrap().answer = (200, r#"{"text": "count the sheep"}"#.to_owned());
        fs::create_dir(scene.root.join("agents")).unwrap();
        let from = folder().join(example.name);
        for file in ["herdctl.yaml".into()].into_iter().chain(files_of(&from.join("agents"), "agents")) {
            let text = fs::read_to_string(from.join(&file)).unwrap();
            let text = text.replace("provider: openai", &format!("provider: openai, api_url: '{voice_url}'"));
            scene.write(&file, &text);
        }
        scene.slack.add_channel(SECOND_SLACK_CHANNEL, "second");
        let second_channel = scene.discord.add_channel(discord::GUILD_ID, "second");
        for (name, value) in [
            ("GUILD", discord::GUILD_ID),
            ("CHANNEL", discord::CHANNEL_ID),
            ("SECOND_CHANNEL", &second_channel),
            ("USER_ID", discord::USER_ID),
            ("SLACK_CHANNEL", SLACK_CHANNEL),
            ("SECOND_SLACK_CHANNEL", SECOND_SLACK_CHANNEL),
            ("SLACK_USER", ANN),
            ("OPENAI_API_KEY", "canary-speech-key"),
        ] {
            scene.set(name, value);
        }
        let bots: Vec<FakeDiscordAccount> =
            example.bots.iter().map(|variable| scene.discord.install_bot(variable)).collect();
        for (variable, bot) in example.bots.iter().zip(&bots) {
            scene.set(variable, &bot.token);
        }
        let podman = (example.name == "bragdoc-developer").then(|| {
            let podman = Podman::start();
            podman.add_image("herdctl/runtime:latest", "claude", CLAUDE);
            scene.set("DOCKER_HOST", format!("unix://{}", podman.socket().display()));
            podman
        });
        scene.start();
        let connected = if example.name == "price-checker" { 0 } else { bots.len() };
        scene.discord.wait_for_connections(connected).await;
        scene.slack.wait_for_connections(example.slack).await;
        Self { scene, bots, second_channel, _podman: podman }
    }

    async fn run(&self, step: &Step) {
        let (scene, discord) = (&self.scene, &self.scene.discord);
        match *step {
            Step::Discord(place, bot, text, answer) => {
                let text = text.replace('@', &format!("<@{}>", self.bots[bot].id));
                let channel = self.say(place, bot, discord::USER_ID, &text);
                self.answered(&channel, bot, answer).await;
            }
            Step::Ignored(place, text) => drop(self.say(place, 0, discord::USER_ID, text)),
            Step::Stranger(answer) => {
                let channel = self.say(Direct, 0, &discord.add_user("stranger"), "hello");
                self.answered(&channel, 0, answer).await;
            }
            Step::OtherBot => {
                discord.say_as_bot(discord::CHANNEL_ID, &format!("<@{}> report", self.bots[0].id));
            }
            Step::Voice(answer) => {
                let channel = discord.direct_channel(&self.bots[0].id, discord::USER_ID);
                discord.say_voice(&channel, discord::USER_ID, b"SOUND");
                self.answered(&channel, 0, "Transcript: count the sheep").await;
                self.answered(&channel, 0, answer).await;
            }
            Step::Image(answer) => {
                let channel = discord.direct_channel(&self.bots[0].id, discord::USER_ID);
                discord.say_with_file(&channel, discord::USER_ID, "look", "a.png", "image/png", b"PIXELS");
                self.answered(&channel, 0, answer).await;
            }
            Step::Slack(place, text, answer) => {
                let channel = slack_channel(scene, place);
                scene.slack.say(&channel, ANN, &text.replace('@', &format!("<@{BOT_USER}>")));
                slack_post(scene, &channel, answer).await;
            }
            Step::IgnoredOnSlack(text) => {
                scene.slack.say(SLACK_CHANNEL, ANN, &text.replace('@', &format!("<@{BOT_USER}>")));
            }
            Step::SlackNotice(text) => slack_post(scene, SLACK_CHANNEL, text).await,
            Step::Notices(count) => self.notices(count),
            Step::Metadata(text) => scene.write(METADATA, text),
            Step::Trigger(name) => {
                let said = scene.run(&["trigger", name, "--wait"]);
                assert_eq!(said.code, Some(0), "{}{}", said.stdout, said.stderr);
            }
            Step::Profile(text) => {
                let bot = &self.bots[0].id;
                let is_shown = |fake: &FakeDiscord| {
                    let shown = fake.presence_of(bot)?;
                    let commands = fake.commands_of(bot);
                    let is_here = |command: &Value| command["guild_id"] == discord::GUILD_ID;
                    (shown["name"] == text && !commands.is_empty() && commands.iter().all(is_here))
                        .then_some(())
                };
                discord.wait_for("the profile and the slash commands", is_shown).await;
            }
        }
    }

    /// Lets a person write on Discord. Returns the channel.
    fn say(&self, place: Place, bot: usize, user: &str, text: &str) -> String {
        let discord = &self.scene.discord;
        let channel = match place {
            Channel => discord::CHANNEL_ID.to_owned(),
            SecondChannel => self.second_channel.clone(),
            Direct => discord.direct_channel(&self.bots[bot].id, user),
        };
        discord.say(&channel, user, text);
        // Messages of Discord are ordered by the millisecond in which they were sent.
        let sent = Timestamp::now().as_millisecond();
        wait_until("the next millisecond", || (Timestamp::now().as_millisecond() > sent).then_some(()));
        channel
    }

    /// Waits for a post of a bot on Discord that begins with a text.
    async fn answered(&self, channel: &str, bot: usize, text: &str) {
        let bot = &self.bots[bot].id;
        let found = |fake: &FakeDiscord| {
            let mut posts = fake.messages(channel).into_iter();
            posts.find(|post| post.author == *bot && post.content.contains(text))
        };
        self.scene.discord.wait_for(text, found).await;
    }

    /// Checks that the hooks have made this number of posts on Discord.
    fn notices(&self, count: usize) {
        self.scene.wait_for("the jobs and their hooks to end", &["jobs", "--all"], |jobs| {
            let mut jobs = jobs.as_array().unwrap().iter();
            let all_ended = jobs.all(|job| job["status"] == "completed");
            let open = self.scene.query("select state from hook_runs where state in ('waiting', 'running')");
            (all_ended && open.is_empty()).then_some(())
        });
        let is_notice =
            |post: &FakeDiscordMessage| post.embeds.as_array().is_some_and(|embeds| !embeds.is_empty());
        let posts = self.scene.discord.messages(discord::CHANNEL_ID);
        assert_eq!(posts.iter().filter(|post| is_notice(post)).count(), count, "{posts:#?}");
    }
}

fn files_of(folder: &Path, prefix: &str) -> Vec<String> {
    let names = fs::read_dir(folder).unwrap().map(|file| file.unwrap().file_name());
    names.map(|name| format!("{prefix}/{}", name.to_str().unwrap())).collect()
}

fn slack_channel(scene: &Scene, place: Place) -> String {
    match place {
        Channel => SLACK_CHANNEL.to_owned(),
        SecondChannel => SECOND_SLACK_CHANNEL.to_owned(),
        Direct => scene.slack.direct_channel(ANN),
    }
}

async fn slack_post(scene: &Scene, channel: &str, text: &str) {
    let contains = |post: &Value| post["text"].as_str().is_some_and(|posted| posted.contains(text));
    scene.slack.wait_for_post(channel, contains).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn every_documented_example_of_herdctl_runs() {
    let found = fs::read_dir(folder()).unwrap();
    let found: BTreeSet<String> =
        found.map(|example| example.unwrap().file_name().into_string().unwrap()).collect();
    assert_eq!(found, EXAMPLES.iter().map(|example| example.name.to_owned()).collect());
    for example in &EXAMPLES {
        println!("{}", example.name);
        let running = Running::start(example).await;
        for step in example.steps {
            running.run(step).await;
        }
        running.scene.wait_until_answered();
        let jobs = running.scene.jobs();
        assert_eq!(jobs.len(), example.jobs, "{}: {jobs:#?}", example.name);
    }
}
