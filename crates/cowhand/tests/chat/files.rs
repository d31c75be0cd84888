//! Files that people send with a message, and files that agents send.

use std::fs;
use std::io::{BufRead as _, BufReader, Write as _};
use std::os::unix::fs::symlink;
use std::process::{Command, Stdio};

use cowhand_testing::discord;
use cowhand_testing::process::has_ended;
use cowhand_testing::slack::BOT_USER;
use cowhand_testing::wait_until;
use rustix::process::Pid;
use serde_json::{Value, json};

use crate::scene::{ANN, SLACK_CHANNEL, Scene, everyone};

/// `reader` works in a git repository, `apart` in a worktree of it. Both repeat the prompt and the saved files. `deaf`
/// takes no files. The maximum size is 10,485 bytes.
fn readers() -> String {
    let files = ", attachments: {enabled: true, max_file_size_mb: 0.01, max_files_per_message: 2}";
    let chat = everyone(files, files);
    format!(
        "agents:
  - {{name: reader, working_directory: work, runtime: command, command: [reader.sh], chat: {chat}}}
  - {{name: apart, working_directory: work, isolation: worktree, runtime: command, command: [reader.sh], chat: {chat}}}
  - {{name: deaf, runtime: command, command: [reader.sh], chat: {}}}
",
        everyone("", "")
    )
}

const READER: &str = r#"#!/bin/sh
prompt=$(cat)
echo "$prompt"
for file in $(printf %s "$prompt" | grep -o '\.[a-z]*-attachments/[A-Za-z0-9./_-]*[A-Za-z0-9]'); do
  echo "SAVED[$file][$(cat "$file")]"
done
echo "GIT[$(git status --porcelain 2>&1)]"
"#;

fn git(scene: &Scene, arguments: &[&str]) {
    let mut git = Command::new("git");
    git.args(["-c", "user.name=a", "-c", "user.email=a@b.c"]).args(arguments);
    assert!(git.current_dir(scene.root.join("work")).output().unwrap().status.success(), "{arguments:?}");
}

async fn readers_started() -> Scene {
    let scene = Scene::new(&readers()).await;
    scene.write_program("reader.sh", READER);
    fs::create_dir(scene.root.join("work")).unwrap();
    git(&scene, &["init", "-q"]);
    git(&scene, &["commit", "-q", "--allow-empty", "-m", "first"]);
    start_with(&scene, "chat_files_saved").await;
    scene
}

/// Starts the daemon, which is killed when it reaches this place.
async fn start_with(scene: &Scene, place: &str) {
    let started =
        scene.command(&["start", "-d", "--no-server"]).env("COWHAND_FAULT", place).output().unwrap();
    assert_eq!(String::from_utf8(started.stdout).unwrap(), "ready\n");
    scene.connected().await;
}

/// Starts the daemon again as soon as it is killed.
fn start_again(scene: &Scene, killed: Pid) {
    wait_until("the daemon to be killed", || has_ended(killed).then_some(()));
    scene.start();
}

/// Waits for a message of the bot on Slack with these parts, and returns its text.
async fn slack_post(scene: &Scene, parts: &[&str]) -> String {
    let has =
        |post: &Value| post["text"].as_str().is_some_and(|text| parts.iter().all(|part| text.contains(part)));
    scene.slack.wait_for_post(SLACK_CHANNEL, has).await["text"].as_str().unwrap().to_owned()
}

/// Waits for a message of the bot on Discord with these parts, and returns its text.
async fn discord_post(scene: &Scene, parts: &[&str]) -> String {
    let what = format!("a message with {parts:?}");
    let find = |fake: &discord::FakeDiscord| {
        let messages = fake.messages(discord::CHANNEL_ID).into_iter();
        let mut of_bot = messages.filter(|message| message.author == discord::BOT_ID);
        of_bot.find(|message| parts.iter().all(|part| message.content.contains(part)))
    };
    scene.discord.wait_for(&what, find).await.content
}

fn wait_for_idle(scene: &Scene) {
    scene.wait_for("all jobs to be over", &["jobs", "--all"], |jobs| {
        let jobs = jobs.as_array().unwrap();
        jobs.iter().all(|job| job["status"] != "running" && job["status"] != "pending").then_some(())
    });
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn agents_get_the_files_of_messages() {
    let scene = readers_started().await;
    let (slack, to_bot) = (&scene.slack, format!("<@{BOT_USER}>"));

    // A text is a part of the prompt.
    slack.say_with_file(
        SLACK_CHANNEL,
        ANN,
        &format!("{to_bot} follow it"),
        "plan.txt",
        "text/plain",
        b"step one\n",
    );
    let answer = slack_post(&scene, &["follow it", "step one"]).await;
    assert!(answer.contains("--- plan.txt (text/plain) ---") && !answer.contains("SAVED"), "{answer}");

    // Any other file is saved before the job, and removed after it. Its address has expired meanwhile, the first download
    // fails, and the daemon is killed after the second one.
    let daemon = scene.daemon().unwrap();
    scene.discord.fail("GET /attachments/", 1, 503);
    let text = format!("<@{}> look at it", discord::BOT_ID);
    let (channel, user) = (discord::CHANNEL_ID, discord::USER_ID);
    scene.discord.say_with_file(channel, user, &text, "../../-p h.png", "image/png", b"PIXELS");
    scene.discord.expire_files();
    start_again(&scene, daemon);
    let answer = discord_post(&scene, &["look at it", "PIXELS"]).await;
    let saved = answer.split_once("SAVED[").unwrap().1.split(']').next().unwrap().to_owned();
    assert!(saved.starts_with(".discord-attachments/") && saved.ends_with("-p_h.png"), "{answer}");
    assert!(answer.contains("GIT[]"), "the file is not a change: {answer}");
    wait_for_idle(&scene);
    assert!(!scene.root.join("work").join(&saved).parent().unwrap().exists());
    assert_eq!(fs::read_dir(scene.root.join("work/.discord-attachments")).unwrap().count(), 0);

    // In a worktree too.
    let text = format!("{to_bot} apart: look there");
    slack.say_with_file(SLACK_CHANNEL, ANN, &text, "a.pdf", "application/pdf", b"PAGES");
    let answer = slack_post(&scene, &["look there", "[PAGES]"]).await;
    assert!(answer.contains("GIT[]"), "{answer}");
    assert!(!scene.root.join("work/.slack-attachments").exists());

    // The sender is told what the agent does not get.
    slack.say_with_file(
        SLACK_CHANNEL,
        ANN,
        &format!("{to_bot} unpack it"),
        "a.zip",
        "application/zip",
        b"PK",
    );
    slack_post(&scene, &["did not get `a.zip`: files of type `application/zip` are not allowed"]).await;
    slack_post(&scene, &["unpack it", "sent with it: none"]).await;
    let large = vec![b'x'; 20_000];
    slack.say_with_file(SLACK_CHANNEL, ANN, &format!("{to_bot} shrink it"), "b.png", "image/png", &large);
    slack_post(&scene, &["did not get `b.png`: the file has 20.0 KB, and the maximum is 10.4 KB"]).await;
    // The stated size is wrong.
    slack.state().stated_file_size = Some(5);
    slack.say_with_file(SLACK_CHANNEL, ANN, &format!("{to_bot} trust it"), "c.png", "image/png", &large);
    slack_post(&scene, &["did not get `c.png`: the file has more than 10485 bytes"]).await;
    let answer = slack_post(&scene, &["trust it", "These files of the message are missing:"]).await;
    assert!(answer.contains("c.png: the file has more than 10485 bytes"), "{answer}");
    slack.say_with_file(SLACK_CHANNEL, ANN, &format!("{to_bot} read all"), "d.txt", "text/plain", &large);
    slack_post(&scene, &["did not get `d.txt`: the file has more than 10485 bytes"]).await;
    slack_post(&scene, &["read all", "d.txt (text/plain): missing"]).await;
    slack.state().stated_file_size = None;
    // What the platform says about a failed download is for the sender and the log, and not a part of the prompt.
    scene.discord.fail("GET /attachments/", 1, 403);
    let text = format!("<@{}> show it", discord::BOT_ID);
    scene.discord.say_with_file(channel, user, &text, "f.png", "image/png", b"NO");
    discord_post(&scene, &["did not get `f.png`: Discord refused the request: status 403 Forbidden"]).await;
    let answer = discord_post(&scene, &["show it", "These files of the message are missing:"]).await;
    assert!(answer.contains("f.png: the platform refused the download"), "{answer}");
    assert!(!answer.contains("403"), "{answer}");
    let text = format!("{to_bot} deaf: listen");
    slack.say_with_file(SLACK_CHANNEL, ANN, &text, "a.txt", "text/plain", b"no");
    slack_post(&scene, &["Agent deaf takes no files. Only your text was passed on."]).await;
    slack_post(&scene, &["listen", "sent with it: none"]).await;

    // An agent may have put a link in the place of the folder.
    wait_for_idle(&scene);
    let (outside, folder) = (scene.root.join("outside"), scene.root.join("work/.slack-attachments"));
    fs::create_dir(&outside).unwrap();
    fs::write(outside.join("marker"), "").unwrap();
    symlink(&outside, &folder).unwrap();
    slack.say_with_file(SLACK_CHANNEL, ANN, &format!("{to_bot} escape"), "e.png", "image/png", b"OUT");
    slack_post(
        &scene,
        &["did not get `e.png`: it cannot be saved in the working directory: it is a symbolic link"],
    )
    .await;
    slack_post(&scene, &["escape", "These files of the message are missing:"]).await;
    wait_for_idle(&scene);
    let names: Vec<_> = fs::read_dir(&outside).unwrap().map(|entry| entry.unwrap().file_name()).collect();
    assert_eq!(names, ["marker"]);
    assert!(folder.is_symlink());
}

/// `setup` may run a program that an agent has changed.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn files_are_not_saved_through_a_link_in_the_place_of_the_directory() {
    let chat = everyone(", attachments: {enabled: true}", "");
    let scene = Scene::new(&format!(
        "agents:\n  - {{name: reader, working_directory: work/sub, runtime: command, command: [reader.sh], chat: {chat},\n      \
         isolation: {{kind: worktree, setup: [setup.sh]}}}}\n"
    ))
    .await;
    let outside = scene.root.join("outside");
    scene.write_program("reader.sh", READER);
    let replace = format!("#!/bin/sh\nmv ../sub ../moved && ln -s {} ../sub\n", outside.display());
    scene.write_program("setup.sh", &replace);
    fs::create_dir(&outside).unwrap();
    fs::create_dir_all(scene.root.join("work/sub")).unwrap();
    scene.write("work/sub/file", "");
    git(&scene, &["init", "-q"]);
    git(&scene, &["add", "."]);
    git(&scene, &["commit", "-q", "-m", "first"]);
    scene.start();
    scene.connected().await;
    let text = format!("<@{BOT_USER}> look at it");
    scene.slack.say_with_file(SLACK_CHANNEL, ANN, &text, "a.png", "image/png", b"PIXELS");
    slack_post(
        &scene,
        &["did not get `a.png`: it cannot be saved in the working directory: it is a symbolic link"],
    )
    .await;
    slack_post(&scene, &["look at it", "a.png: it cannot be saved in the working directory"]).await;
    wait_for_idle(&scene);
    assert_eq!(fs::read_dir(&outside).unwrap().count(), 0);
}

/// `sender` sends files while it answers.
const SENDER: &str = r#"#!/bin/sh
cat > /dev/null
printf %s "$COWHAND_JOB_TOKEN" > token
send() {
  curl -s --unix-socket "$COWHAND_SOCKET" -H "authorization: Bearer $COWHAND_JOB_TOKEN" \
    -H 'content-type: application/json' -d "{\"attempt\": 1, \"key\": \"$1\", \"file_path\": \"$2\", \"message\": \"$3\"}" \
    "http://x/api/v1/jobs/$COWHAND_JOB_ID/files" | tee -a said
}
until send one out/report.txt '*the* report' | grep -q name; do sleep 0.1; done
until send one out/report.txt '*the* report' | grep -q name; do sleep 0.1; done
until send two ../cowhand.yaml '' | grep -q detail; do sleep 0.1; done
until send three link '' | grep -q detail; do sleep 0.1; done
until send four nothing '' | grep -q detail; do sleep 0.1; done
until send five image.png '' | grep -q name; do sleep 0.1; done
touch sent
while [ ! -e go ]; do sleep 0.05; done
echo 'That was all.'
"#;

async fn sender(sandbox: &str) -> Scene {
    let chat = everyone("", "");
    let agent = format!(
        "  - {{name: sender, working_directory: work, sandbox: {sandbox}, runtime: command, \
         command: [sender.sh], chat: {chat}}}\n"
    );
    let scene = Scene::new(&format!("agents:\n{agent}")).await;
    scene.write_program("sender.sh", SENDER);
    fs::create_dir_all(scene.root.join("work/out")).unwrap();
    scene.write("work/out/report.txt", &format!("all is well {}\n", cowhand_testing::slack::BOT_TOKEN));
    fs::write(scene.root.join("work/image.png"), b"\x89PNG\xff\x00").unwrap();
    symlink("../cowhand.yaml", scene.root.join("work/link")).unwrap();
    scene
}

/// Each file is posted once and in its order, although the daemon is killed before and after a post.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn agents_send_files_into_their_chat() {
    for (platform, place, sandbox) in
        [("slack", "chat_file_tried", "none"), ("discord", "chat_file_posted", "bubblewrap")]
    {
        let scene = sender(sandbox).await;
        start_with(&scene, place).await;
        let daemon = scene.daemon().unwrap();
        if platform == "slack" {
            scene.slack.say(SLACK_CHANNEL, ANN, &format!("<@{BOT_USER}> send them"));
        } else {
            let text = format!("<@{}> send them", discord::BOT_ID);
            scene.discord.say(discord::CHANNEL_ID, discord::USER_ID, &text);
        }
        start_again(&scene, daemon);
        wait_until("the agent to send", || scene.root.join("work/sent").exists().then_some(()));
        use_tool(&scene);
        scene.write("work/go", "");
        let (texts, files): (Vec<String>, Vec<(String, Vec<u8>)>) = if platform == "slack" {
            slack_post(&scene, &["That was all."]).await;
            let messages = scene.slack.messages(SLACK_CHANNEL);
            let ids = messages.iter().filter_map(|message| message["files"][0]["id"].as_str());
            let state = scene.slack.state();
            let files =
                ids.map(|id| (state.files[id].name.clone(), state.files[id].content.clone())).collect();
            drop(state);
            (scene.slack.posted_texts(SLACK_CHANNEL), files)
        } else {
            discord_post(&scene, &["That was all."]).await;
            let messages = scene.discord.messages(discord::CHANNEL_ID);
            let of_bot = messages.into_iter().filter(|message| message.author == discord::BOT_ID);
            let (texts, files): (Vec<_>, Vec<_>) =
                of_bot.map(|message| (message.content, message.files)).unzip();
            let files = files.into_iter().flatten().map(|file| (file.name, file.content));
            (texts, files.collect())
        };
        let report = b"all is well ***\n".to_vec();
        let image = b"\x89PNG\xff\x00".to_vec();
        let expected = [("report.txt", report.clone()), ("image.png", image), ("again.txt", report)]
            .map(|(name, content)| (name.to_owned(), content));
        assert_eq!(files, expected, "{texts:?}");
        let position = |part: &str| texts.iter().position(|text| text.contains(part)).unwrap();
        assert!(position("report") < position("That was all."), "{texts:?}");
        let said = fs::read_to_string(scene.root.join("work/said")).unwrap();
        for part in [
            r#""../cowhand.yaml\" is not a file inside the working directory"#,
            r#""link\" cannot be sent: it is a symbolic link"#,
            r#""nothing\" is not a file inside the working directory"#,
        ] {
            assert!(said.contains(part), "{said}");
        }
        wait_for_idle(&scene);
        let job = scene.jobs()[0]["id"].as_str().unwrap().to_owned();
        wait_until("the contents to be removed", || {
            let left = fs::read_dir(scene.root.join(".cowhand/jobs").join(&job).join("chat")).unwrap();
            (left.count() == 0).then_some(())
        });
    }
}

/// Sends a file with the tool of the MCP server, under its name in herdctl.
fn use_tool(scene: &Scene) {
    let token = fs::read_to_string(scene.root.join("work/token")).unwrap();
    let socket = scene.root.join(".cowhand/talk/job.sock");
    let mut command = scene.command(&["mcp", "--job", "--tools", "chat"]);
    command.env("COWHAND_JOB_TOKEN", token).env("COWHAND_SOCKET", socket);
    let mut server = command.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().unwrap();
    let (mut requests, answers) = (server.stdin.take().unwrap(), server.stdout.take().unwrap());
    let mut answers = BufReader::new(answers).lines();
    let mut call = |number: u32, method: &str, params: Value| -> Value {
        let request = json!({"jsonrpc": "2.0", "id": number, "method": method, "params": params});
        writeln!(requests, "{request}").unwrap();
        serde_json::from_str(&answers.next().unwrap().unwrap()).unwrap()
    };
    let client = json!({"name": "test", "version": "1"});
    call(1, "initialize", json!({"protocolVersion": "2025-06-18", "capabilities": {}, "clientInfo": client}));
    let tools = call(2, "tools/list", json!({}));
    let names: Vec<_> =
        tools["result"]["tools"].as_array().unwrap().iter().map(|tool| &tool["name"]).collect();
    assert_eq!(names, ["send_file", "herdctl_send_file"]);
    let arguments = json!({"file_path": "out/report.txt", "filename": "again.txt"});
    let sent = call(3, "tools/call", json!({"name": "herdctl_send_file", "arguments": arguments}));
    assert_eq!(
        sent["result"]["content"][0]["text"], "accepted: again.txt will be posted in the chat",
        "{sent}"
    );
    let sent = call(4, "tools/call", json!({"name": "send_file", "arguments": {"file_path": "/etc/passwd"}}));
    assert_eq!(sent["result"]["isError"], true, "{sent}");
    drop(requests);
    server.wait().unwrap();
}
