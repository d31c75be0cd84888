//! Notifications in channels of Slack and Discord.

use cowhand_testing::discord::{self, CHANNEL_ID, FakeDiscord};
use cowhand_testing::slack::{self, FakeSlack};

use crate::{FLAKY, Scene};

const CHANNEL: &str = "C0000000009";

pub(crate) fn scene(slack: &FakeSlack, discord: &FakeDiscord) -> Scene {
    slack.add_channel(CHANNEL, "ops");
    let targets = format!(
        "{{slack: {{type: slack, channel_id: {CHANNEL}}}, discord: {{type: discord, channel_id: '{CHANNEL_ID}'}}}}"
    );
    Scene::new(&format!(
        "notify: {{disk_low: 1B, targets: {targets}, rules: [{{to: [slack, discord], kinds: [job_failed]}}]}}\n{FLAKY}"
    ))
    .with("COWHAND_SLACK_API", slack.url())
    .with("COWHAND_DISCORD_API", discord.url())
    .with("SLACK_BOT_TOKEN", slack::BOT_TOKEN)
    .with("DISCORD_BOT_TOKEN", discord::BOT_TOKEN)
}

pub(crate) fn slack_texts(slack: &FakeSlack) -> Vec<String> {
    slack.posted_texts(CHANNEL)
}

pub(crate) fn discord_texts(discord: &FakeDiscord) -> Vec<String> {
    discord.messages(CHANNEL_ID).into_iter().map(|message| message.content).collect()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn notifications_are_posted_once_and_mention_nobody() {
    let (slack, discord) = (FakeSlack::start().await, FakeDiscord::start().await);
    slack.rate_limit("chat.postMessage", 1, 1);
    let mut scene = scene(&slack, &discord);
    tokio::task::block_in_place(|| {
        scene.start();
        scene.job("flaky/s");
        scene.wait_for_states(&["sent opened", "sent opened"]);
    });
    let (on_slack, on_discord) = (slack_texts(&slack), discord_texts(&discord));
    assert_eq!((on_slack.len(), on_discord.len()), (1, 1), "{on_slack:?} {on_discord:?}");
    assert!(on_slack[0].starts_with("*[warning] flaky/s failed*\n"), "{on_slack:?}");
    assert!(on_slack[0].contains("cowhand, notification 1"), "{on_slack:?}");
    assert!(on_discord[0].starts_with("**\\[warning\\] flaky/s failed**\n"), "{on_discord:?}");
    // On Slack, `@everyone` without angle brackets is plain text.
    assert!(!on_discord[0].contains("@everyone"), "{on_discord:?}");
    for text in on_slack.iter().chain(&on_discord) {
        assert!(!text.contains("canary") && !text.contains("<b>"), "{text}");
    }
}
