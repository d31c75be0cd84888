//! A thousand messages at once.

use std::fs;
use std::time::Duration;

use cowhand_testing::discord;
use cowhand_testing::{wait_or_report, wait_until};

use crate::reliable::{PRINT_TEXT, helper};
use crate::scene::{ANN, Scene};

const CHANNELS: usize = 10;
/// A bot may post about once a second in a channel on Slack, so Slack gets fewer messages.
const ON_SLACK: usize = 10;
const ON_DISCORD: usize = 90;

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_thousand_messages_are_answered_once_and_in_order_over_a_kill() {
    let scene = Scene::new(&helper(PRINT_TEXT, 16, "")).await;
    let slack: Vec<String> = (0..CHANNELS).map(|number| format!("CBURST{number}")).collect();
    for channel in &slack {
        scene.slack.add_channel(channel, channel);
    }
    let discord: Vec<String> = (0..CHANNELS)
        .map(|number| scene.discord.add_channel(discord::GUILD_ID, &format!("burst-{number}")))
        .collect();
    let config = fs::read_to_string(scene.root.join("cowhand.yaml")).unwrap();
    let listed = |channels: &[String]| {
        let each = channels.iter().map(|id| format!("{{id: '{id}', mode: auto, context_messages: 0}}"));
        each.collect::<Vec<_>>().join(", ")
    };
    let config = config
        .replace("{id: C1}", &listed(&slack))
        .replace(&format!("{{id: '{}'}}", discord::CHANNEL_ID), &listed(&discord));
    scene.write("cowhand.yaml", &config);
    scene.start();
    scene.connected().await;
    for number in 0..ON_DISCORD {
        for channel in &discord {
            scene.discord.say(channel, discord::USER_ID, &format!("m{number:02}"));
        }
        for channel in slack.iter().filter(|_| number < ON_SLACK) {
            scene.slack.say(channel, ANN, &format!("m{number:02}"));
        }
    }
    let answers_on_discord = |channel: &String| -> Vec<String> {
        let messages = scene.discord.messages(channel).into_iter();
        let posts = messages.filter(|message| message.author == discord::BOT_ID);
        posts.map(|post| post.content).filter(|text| is_answer(text)).collect()
    };
    let answers_on_slack = |channel: &String| -> Vec<String> {
        let messages = scene.slack.messages(channel).into_iter();
        let posts = messages.filter(|message| message["user"] == cowhand_testing::slack::BOT_USER);
        posts.map(|post| post["text"].as_str().unwrap().to_owned()).filter(|text| is_answer(text)).collect()
    };
    let count = || -> usize {
        let on_discord = discord.iter().map(|channel| answers_on_discord(channel).len()).sum::<usize>();
        on_discord + slack.iter().map(|channel| answers_on_slack(channel).len()).sum::<usize>()
    };
    wait_until("the first answers", || (count() >= 300).then_some(()));
    scene.kill_daemon();
    scene.start();
    let report = || {
        let on_discord: Vec<usize> =
            discord.iter().map(|channel| answers_on_discord(channel).len()).collect();
        let on_slack: Vec<usize> = slack.iter().map(|channel| answers_on_slack(channel).len()).collect();
        format!("{on_discord:?} {on_slack:?}\n{}", scene.log())
    };
    wait_or_report(Duration::from_mins(3), "all answers", report, || (count() >= 1_000).then_some(()));
    scene.wait_until_answered();
    let expected = |count: usize| (0..count).map(|number| format!("m{number:02}")).collect::<Vec<_>>();
    for channel in &discord {
        assert_eq!(answers_on_discord(channel), expected(ON_DISCORD), "{channel}");
    }
    for channel in &slack {
        assert_eq!(answers_on_slack(channel), expected(ON_SLACK), "{channel}");
    }
    let jobs = scene.query("select count(*) || '' from jobs where status = 'completed'");
    assert_eq!(jobs, ["1000"]);
}

fn is_answer(text: &str) -> bool {
    text.len() == 3 && text.starts_with('m')
}
