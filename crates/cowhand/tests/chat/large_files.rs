//! Files that are much larger than the limit, with the stated size and with a wrong one.

use std::fs;

use cowhand_testing::discord;
use cowhand_testing::slack::DOWNLOAD;
use serde_json::Value;

use crate::reliable::{helper, to_discord_bot, to_slack_bot};
use crate::scene::{ANN, SLACK_CHANNEL, Scene};

const LARGE: usize = 100 << 20;
/// Most memory that the daemon may need in addition. It downloads two files of the default limit, 10 MiB, at the same
/// time, and a buffer that grows can have twice the size of its content.
const MAX_GROWTH: usize = 60 << 20;

/// Returns the peak memory of the daemon in bytes.
fn peak_memory(scene: &Scene) -> usize {
    let pid = scene.daemon().unwrap().as_raw_nonzero();
    let status = fs::read_to_string(format!("/proc/{pid}/status")).unwrap();
    let line = status.lines().find_map(|line| line.strip_prefix("VmHWM:")).unwrap();
    line.trim().trim_end_matches(" kB").parse::<usize>().unwrap() << 10
}

/// Lets a person send a file on both platforms, and waits until both notices to the sender contain `notice` and both
/// jobs have answered.
async fn send(scene: &Scene, name: &str, media_type: &str, notice: &str) {
    let text = format!("take {name}");
    let (on_slack, on_discord) = (to_slack_bot(&text), to_discord_bot(&text));
    scene.slack.say_with_file(SLACK_CHANNEL, ANN, &on_slack, name, media_type, b"small");
    let (channel, user) = (discord::CHANNEL_ID, discord::USER_ID);
    scene.discord.say_with_file(channel, user, &on_discord, name, media_type, b"small");
    let answer = format!("answer: take {name}");
    for part in [notice, answer.as_str()] {
        let has = |post: &Value| post["text"].as_str().is_some_and(|text| text.contains(part));
        scene.slack.wait_for_post(SLACK_CHANNEL, has).await;
        let find = |fake: &discord::FakeDiscord| {
            let messages = fake.messages(channel).into_iter();
            let mut of_bot = messages.filter(|message| message.author == discord::BOT_ID);
            of_bot.find(|message| message.content.contains(part))
        };
        scene.discord.wait_for(part, find).await;
    }
}

fn state_size(scene: &Scene, bytes: Option<usize>) {
    scene.slack.state().stated_file_size = bytes;
    scene.discord.state_file_size(bytes);
}

/// Returns how many files were requested since the last call on Discord, and at all on Slack.
fn downloads(scene: &Scene) -> (usize, usize) {
    let requests = scene.discord.requests();
    let of_files = requests.iter().filter(|request| request.starts_with("GET /attachments/"));
    (scene.slack.calls(DOWNLOAD).len(), of_files.count())
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_file_of_100_mb_is_not_downloaded_and_needs_no_memory() {
    let program = "sed -n '/^~~~~/{n;s/.*take/answer: take/p;q;}'";
    let scene = Scene::started(&helper(program, 4, ", attachments: {enabled: true}")).await;

    // The stated size is enough to refuse the file.
    state_size(&scene, Some(LARGE));
    for (name, media_type) in [("large.png", "image/png"), ("large.txt", "text/plain")] {
        let notice = format!("did not get `{name}`: the file has 104 MB, and the maximum is 10.4 MB");
        send(&scene, name, media_type, &notice).await;
    }
    assert_eq!(downloads(&scene), (0, 0));

    // A wrong size is noticed during the download.
    let before = peak_memory(&scene);
    state_size(&scene, Some(5));
    scene.slack.state().streamed_file_size = Some(LARGE);
    scene.discord.stream_files(Some(LARGE));
    for (name, media_type) in [("wrong.png", "image/png"), ("wrong.txt", "text/plain")] {
        let notice = format!("did not get `{name}`: the file has more than 10485760 bytes");
        send(&scene, name, media_type, &notice).await;
    }
    let (on_slack, on_discord) = downloads(&scene);
    assert!(on_slack >= 2 && on_discord >= 2, "{on_slack} and {on_discord} downloads");
    let grown = peak_memory(&scene) - before;
    assert!(grown < MAX_GROWTH, "the memory of the daemon has grown by {grown} bytes");
}
