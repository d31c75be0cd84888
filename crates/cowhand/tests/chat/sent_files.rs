//! Files that an agent may not send, although it asks for that, and files that the platform does not take.

use std::fs;
use std::os::unix::fs::symlink;
use std::process::Command;

use cowhand_testing::slack::FakeSlackState;
use cowhand_testing::wait_until;

use crate::reliable::to_slack_bot;
use crate::scene::{ANN, SLACK_CHANNEL, Scene, everyone};

/// Sends files, and adds each answer as a line to `said`, or to the file that `$SAID` names.
const SEND: &str = r#"
send() {
  answer=
  until [ -n "$answer" ]; do
    answer=$(curl -s --unix-socket "$COWHAND_SOCKET" -H "authorization: Bearer $COWHAND_JOB_TOKEN" \
      -H 'content-type: application/json' -d "{\"attempt\": 1, \"key\": \"$1\", \"file_path\": \"$2\"}" \
      "http://x/api/v1/jobs/$COWHAND_JOB_ID/files")
  done
  echo "$answer" >> "${SAID:-said}"
}
"#;

/// Replaces its working directory by a link to a folder of the user.
const MOVER: &str = "
SAID=../said
send one report.txt
cd ..
mv sub moved
ln -s OUTSIDE sub
SAID=said
send two key
send three OUTSIDE/key
echo done >> said
";

/// Works in the folder of the config.
const KEEPER: &str = r#"
cat > /dev/null
env > environment
for path in .env .cowhand/job-key .cowhand/store.db .cowhand/daemon.log .herdctl/state.yaml link/job-key; do
  send "$path" "$path"
done
for number in $(seq 20); do send "$number" cowhand.yaml; done
send more nothing
echo done >> said
"#;

/// A file that cannot be uploaded does not hold up the conversation for ever.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_file_is_left_out_after_ten_tries() {
    /// Requests for one try: the connector tries four times, and repeats each request three times.
    const REQUESTS: usize = 16;
    let chat = everyone("", "");
    let program = "{name: sender, runtime: command, command: [sender.sh]";
    let mut scene = Scene::new(&format!("agents:\n  - {program}, chat: {chat}}}\n")).await;
    scene.set("COWHAND_WAITS", "slack_pace,chat_retry");
    scene.write_program("sender.sh", &format!("#!/bin/sh\n{SEND}send one report.txt\necho the answer\n"));
    scene.write("report.txt", "report");
    scene.start();
    scene.connected().await;
    scene.slack.fail("files.getUploadURLExternal", 10 * REQUESTS);
    scene.slack.say(SLACK_CHANNEL, ANN, &to_slack_bot("go"));
    scene.wait_for_slack("the answer").await;
    let posts = scene.slack.posted_texts(SLACK_CHANNEL);
    assert!(posts[0].contains("`report.txt`") && posts[0].contains("HTTP status 500"), "{posts:?}");
    assert_eq!(scene.slack.calls("files.getUploadURLExternal").len(), 10 * REQUESTS);
    assert!(scene.slack.files(SLACK_CHANNEL).is_empty());
    scene.wait_until_answered();
    let bots = scene.json(&["status"])["chat_bots"].clone();
    let refused = bots.as_array().unwrap().iter().find(|bot| bot["platform"] == "slack").unwrap();
    let reason = refused["last_refusal"]["reason"].as_str().unwrap();
    assert!(reason.starts_with("the file `report.txt`: "), "{refused}");
    // The next file is uploaded again.
    scene.slack.say(SLACK_CHANNEL, ANN, &to_slack_bot("again"));
    let is_shared = |state: &mut FakeSlackState| {
        state.files.values().any(|file| file.name == "report.txt" && !file.shares.is_empty()).then_some(())
    };
    scene.slack.wait_for("the file", is_shared).await;
}

async fn scene() -> Scene {
    let chat = everyone("", "");
    let scene = Scene::new(&format!(
        "agents:
  - {{name: keeper, runtime: command, command: [keeper.sh], chat: {chat}}}
  - {{name: mover, working_directory: work/sub, isolation: worktree, sandbox: bubblewrap, runtime: command,
      command: [mover.sh], chat: {chat}}}
"
    ))
    .await;
    let outside = scene.root.join("outside");
    scene.write_program("keeper.sh", &format!("#!/bin/sh\n{SEND}{KEEPER}"));
    let mover = MOVER.replace("OUTSIDE", outside.to_str().unwrap());
    scene.write_program("mover.sh", &format!("#!/bin/sh\n{SEND}{mover}"));
    for folder in ["outside", "work/sub", ".herdctl"] {
        fs::create_dir_all(scene.root.join(folder)).unwrap();
    }
    scene.write("outside/key", "PRIVATE");
    scene.write("work/sub/report.txt", "report");
    scene.write(".herdctl/state.yaml", "agents: {}\n");
    scene.write(".env", "SLACK_BOT_TOKEN=xoxb-of-env-file\nOTHER=other\n");
    symlink(".cowhand", scene.root.join("link")).unwrap();
    for arguments in [&["init", "-q"][..], &["add", "."], &["commit", "-q", "-m", "first"]] {
        let mut git = Command::new("git");
        git.args(["-c", "user.name=a", "-c", "user.email=a@b.c"]).args(arguments);
        assert!(git.current_dir(scene.root.join("work")).status().unwrap().success(), "{arguments:?}");
    }
    scene.start();
    scene.connected().await;
    scene
}

/// Waits until an agent has written `done`, and returns the lines before it.
fn said(scene: &Scene, find: impl Fn() -> Option<std::path::PathBuf>) -> Vec<String> {
    let text = wait_until("the agent to send its files", || {
        let text = fs::read_to_string(find()?).ok()?;
        text.ends_with("done\n").then_some(text)
    });
    let root = scene.root.to_str().unwrap();
    text.lines().filter(|line| *line != "done").map(|line| line.replace(root, "ROOT")).collect()
}

/// Returns the refusal in an answer of the API.
fn refusal(answer: &str) -> String {
    let answer: serde_json::Value = serde_json::from_str(answer).unwrap();
    answer["detail"].as_str().map_or_else(|| format!("accepted: {}", answer["name"]), str::to_owned)
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_agent_cannot_send_what_it_may_not_read() {
    let scene = scene().await;
    scene.slack.say(SLACK_CHANNEL, ANN, &to_slack_bot("mover: go"));
    let workspaces = scene.root.join(".cowhand/workspaces");
    let in_workspace = || Some(fs::read_dir(&workspaces).ok()?.next()?.ok()?.path().join("said"));
    let answers: Vec<String> = said(&scene, in_workspace).iter().map(|line| refusal(line)).collect();
    let link = "cannot be sent: it is a symbolic link, or its path contains one; links are not followed here";
    assert_eq!(answers[0], r#"accepted: "report.txt""#);
    assert_eq!(answers[1], format!(r#""key" {link}"#));
    assert!(answers[2].contains(link) && answers.len() == 3, "{answers:#?}");

    scene.slack.say(SLACK_CHANNEL, ANN, &to_slack_bot("keeper: go"));
    let answers = said(&scene, || Some(scene.root.join("said")));
    let answers: Vec<String> = answers.iter().map(|line| refusal(line)).collect();
    let hidden =
        |path: &str, place: &str| format!("{path:?} cannot be sent: ROOT/{place} is hidden from agents");
    assert_eq!(
        answers[..6],
        [
            hidden(".env", ".env"),
            hidden(".cowhand/job-key", ".cowhand"),
            hidden(".cowhand/store.db", ".cowhand"),
            hidden(".cowhand/daemon.log", ".cowhand"),
            hidden(".herdctl/state.yaml", ".herdctl"),
            format!(r#""link/job-key" {link}"#),
        ]
    );
    assert!(answers[6..26].iter().all(|answer| answer == r#"accepted: "cowhand.yaml""#), "{answers:#?}");
    // The number is checked before the file.
    assert_eq!(answers[26..], ["this job has sent 20 files already, which is the maximum"]);

    let environment = fs::read_to_string(scene.root.join("environment")).unwrap();
    assert!(environment.contains("OTHER=other"), "{environment}");
    assert!(!environment.contains("SLACK_BOT_TOKEN"), "{environment}");
}
