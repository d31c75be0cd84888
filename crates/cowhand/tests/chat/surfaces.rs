//! The chat as people see it outside the chat: the command line, the API, the pages, the metrics and the events state
//! the same about the bots and about the authors of messages.

use cowhand_testing::discord;
use cowhand_testing::http::get_with_token;
use cowhand_testing::slack::{APP_TOKEN, BOT_USER};
use serde_json::{Value, json};

use crate::scene::{ANN, SLACK_CHANNEL, Scene};

const EVE: &str = "UEVE";
const SLACK_BOT: &str = "slack:SLACK_BOT_TOKEN";
const DISCORD_BOT: &str = "discord:DISCORD_TOKEN";

/// Only Ann may talk to `helper` on Slack. `other` shares its bot on Discord.
fn fleet() -> String {
    let (guild, channel) = (discord::GUILD_ID, discord::CHANNEL_ID);
    let on_discord = format!(
        "discord: {{bot_token_env: DISCORD_TOKEN, everyone: true, guilds: [{{id: '{guild}', channels: [{{id: '{channel}'}}]}}]}}"
    );
    format!(
        "server: {{listen: '127.0.0.1:0'}}
agents:
  - name: helper
    runtime: command
    command: [sh, -c, 'cat; while [ -e hold ]; do sleep 0.05; done']
    chat:
      slack: {{users: [{ANN}], channels: [{{id: {SLACK_CHANNEL}}}]}}
      {on_discord}
  - name: other
    runtime: command
    command: [cat]
    chat: {{{on_discord}}}
"
    )
}

/// The server of a fleet, seen with a token that may read.
struct Server {
    address: String,
    token: String,
}

impl Server {
    fn start(scene: &Scene) -> Self {
        let said = scene.run(&["start", "-d"]);
        let address = said.stdout.trim().strip_prefix("ready http://").map(str::to_owned);
        let address = address.unwrap_or_else(|| panic!("{}{}", said.stdout, said.stderr));
        let token = scene.run(&["token", "create", "reader", "--scope", "read"]).stdout.trim().to_owned();
        Self { address, token }
    }

    fn get(&self, path: &str) -> String {
        let answer = get_with_token(&self.address, path, &self.token).unwrap();
        assert_eq!(answer.status, 200, "{path}: {}", answer.body);
        answer.body
    }

    fn api(&self, path: &str) -> Value {
        serde_json::from_str(&self.get(&format!("/api/v1/{path}"))).unwrap()
    }
}

fn bot<'a>(status: &'a Value, name: &str) -> &'a Value {
    let bots = status["chat_bots"].as_array().unwrap();
    bots.iter().find(|bot| bot["bot"] == name).unwrap_or_else(|| panic!("{name} in {status:#}"))
}

/// Returns the text of a verb without line breaks.
fn flat(scene: &Scene, arguments: &[&str]) -> String {
    scene.run(arguments).stdout.split_whitespace().collect::<Vec<_>>().join(" ")
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn all_surfaces_show_the_bots_and_the_messages() {
    let scene = Scene::new("").await;
    scene.write("cowhand.yaml", &fleet());
    scene.slack.add_user(EVE, "Eve");
    let status = scene.json(&["status"]);
    assert_eq!(bot(&status, SLACK_BOT)["status"], "stopped");
    assert_eq!(bot(&status, DISCORD_BOT)["agents"], json!(["helper", "other"]));
    let line = "chat bot: discord:DISCORD_TOKEN, for helper, other, is not connected, because no daemon runs";
    let said = flat(&scene, &["status"]);
    assert!(said.contains(line), "{said}");

    let server = Server::start(&scene);
    scene.connected().await;
    scene.wait_for("both bots to be connected", &["status"], |status| {
        [SLACK_BOT, DISCORD_BOT].iter().all(|name| bot(status, name)["status"] == "connected").then_some(())
    });
    bots_agree(&scene, &server, [1, 1]);
    messages_agree(&scene, &server);
    refused_answer_is_shown(&scene, &server);
    refused_message_is_explained(&scene).await;
    scene.discord.revoke_token();
    refused_bot_is_explained(&scene, &server);
    doctor_names_what_is_missing(&scene);
}

/// Compares the bots on all surfaces. `connected` has the metric of each bot.
fn bots_agree(scene: &Scene, server: &Server, connected: [u32; 2]) {
    let status = scene.json(&["status"]);
    assert_eq!(server.api("status")["chat_bots"], status["chat_bots"]);
    assert_eq!(scene.json(&["why", "helper/chat"])["chat_bots"], status["chat_bots"]);
    let (text, why) = (flat(scene, &["status"]), flat(scene, &["why", "helper/chat"]));
    let (fleet, agent, metrics) = (server.get("/"), server.get("/agents/helper"), server.get("/metrics"));
    for (name, connected) in [SLACK_BOT, DISCORD_BOT].into_iter().zip(connected) {
        let bot = bot(&status, name);
        assert_eq!(bot["node"], status["daemon"]["node"]);
        let state = match bot["account"].as_str() {
            Some(account) => format!("is connected as {account}"),
            None => bot["problem"].as_str().unwrap().to_owned(),
        };
        for said in [&text, &why] {
            assert!(said.contains(name) && said.contains(&state), "{name} {state}: {said}");
        }
        for page in [&fleet, &agent] {
            assert!(page.contains(name) && page.contains(&state), "{name} {state}: {page}");
        }
        for line in [
            format!("cowhand_chat_bot_connected{{bot=\"{name}\"}} {connected}"),
            format!("cowhand_chat_open_answers{{bot=\"{name}\"}} {}", bot["open_answers"]),
            format!("cowhand_chat_unhandled_messages{{bot=\"{name}\"}} {}", bot["unhandled_messages"]),
            format!("cowhand_chat_refused_answers{{bot=\"{name}\"}} {}", bot["refused_answers"]),
        ] {
            assert!(metrics.lines().any(|known| known == line), "{line} in {metrics}");
        }
    }
    let ready = get_with_token(&server.address, "/readyz", &server.token).unwrap();
    assert_eq!(ready.status, 200, "a bot does not decide whether the daemon is ready: {ready:?}");
}

/// Ann's message is answered, and each surface shows who wrote it and where.
fn messages_agree(scene: &Scene, server: &Server) {
    scene.write("hold", "");
    let ts = scene.slack.say(SLACK_CHANNEL, ANN, &format!("<@{BOT_USER}> count the sheep"));
    let job = scene.wait_for("the job", &["jobs"], |jobs| {
        jobs.as_array().unwrap().iter().find(|job| job["status"] == "running").cloned()
    });
    scene.wait_for("the open answer", &["status"], |status| {
        let bot = bot(status, SLACK_BOT);
        (bot["open_answers"] == 1 && bot["unhandled_messages"] == 0).then_some(())
    });
    assert!(flat(scene, &["status"]).contains("as cowhand; 1 answer is not complete"));
    bots_agree(scene, server, [1, 1]);
    std::fs::remove_file(scene.root.join("hold")).unwrap();
    scene.wait_for("the end of the answer", &["status"], |status| {
        (bot(status, SLACK_BOT)["open_answers"] == 0).then_some(())
    });
    let message = &job["message"];
    assert_eq!((&message["platform"], &message["channel"]), (&json!("slack"), &json!(SLACK_CHANNEL)));
    assert_eq!((&message["author"], &message["author_name"]), (&json!(ANN), &json!("Ann")));
    assert_eq!(message["id"], format!("{SLACK_CHANNEL}:{ts}"));
    let (id, link) = (job["id"].as_str().unwrap(), message["url"].as_str().unwrap());
    assert!(link.contains(&format!("/archives/{SLACK_CHANNEL}/p")), "{link}");
    let who = format!("Ann ({ANN}) on slack in {SLACK_CHANNEL}");
    assert_eq!(&scene.json(&["job", id])["message"], message);
    assert_eq!(&server.api(&format!("jobs/{id}"))["message"], message);
    let firing = scene.json(&["why", "helper/chat"])["firings"][0].clone();
    assert_eq!(&firing["jobs"][0]["message"], message);
    let events = server.api("events?limit=1000");
    let created = events["items"].as_array().unwrap().iter();
    let created = created.clone().find(|event| event["type"] == "job:created").unwrap();
    assert_eq!(&created["job_record"]["message"], message);
    assert_eq!(created["by"], json!({"who": "chat", "platform": "slack", "id": ANN, "name": "Ann"}));
    for (arguments, has_link) in [
        (vec!["job", id], true),
        (vec!["jobs"], false),
        (vec!["why", "helper/chat"], true),
        (vec!["events", "--limit", "1000"], true),
    ] {
        let said = flat(scene, &arguments);
        assert!(said.contains(&who) && (said.contains(link) || !has_link), "{arguments:?}: {said}");
    }
    for (path, has_link) in
        [(format!("/jobs/{id}"), true), ("/schedules/helper/chat".into(), true), ("/events".into(), true)]
    {
        let page = server.get(&path);
        assert!(page.contains(&who) && (page.contains(link) || !has_link), "{path}: {page}");
    }
    assert!(server.get("/jobs").contains(&format!("Ann ({ANN})")));
}

/// Slack refuses an answer for good. Each surface shows the reason, and where the answer is.
fn refused_answer_is_shown(scene: &Scene, server: &Server) {
    assert_eq!(bot(&scene.json(&["status"]), SLACK_BOT)["refused_answers"], 0);
    scene.slack.refuse("chat.postMessage", 1, "is_archived");
    scene.slack.say(SLACK_CHANNEL, ANN, &format!("<@{BOT_USER}> count the goats"));
    let refused = scene.wait_for("the refusal", &["status"], |status| {
        let bot = bot(status, SLACK_BOT);
        (bot["refused_answers"] == 1 && bot["open_answers"] == 0).then(|| bot["last_refusal"].clone())
    });
    let id = scene.jobs().pop().unwrap()["id"].as_str().unwrap().to_owned();
    let reason = refused["reason"].as_str().unwrap();
    assert_eq!((reason.contains("is_archived"), &refused["job"]), (true, &json!(id)), "{refused}");
    assert_eq!(scene.json(&["job", &id])["answer_not_posted"], refused["reason"]);
    bots_agree(scene, server, [1, 1]);
    let step = format!("`cowhand logs {id}` prints its whole output");
    for said in [flat(scene, &["status"]), flat(scene, &["why", "helper/chat"])] {
        assert!(said.contains("1 answer of the last day lacks a part in the chat"), "{said}");
        assert!(said.contains(reason) && said.contains(&step), "{said}");
    }
    for page in [server.get("/"), server.get("/agents/helper")] {
        assert!(page.contains("lacks a part in the chat") && page.contains(reason), "{page}");
    }
    assert!(scene.run(&["logs", &id]).stdout.contains("count the goats"));
    // The refusal is shown for a day.
    let day = 25 * 3_600_i64 * 1_000_000;
    scene.query(&format!("update chat_answers set refused_at = refused_at - {day} returning ''"));
    assert_eq!(bot(&scene.json(&["status"]), SLACK_BOT)["refused_answers"], 0);
}

/// A stranger gets an answer and no job, and the ledger has the reason.
async fn refused_message_is_explained(scene: &Scene) {
    let jobs = scene.jobs().len();
    scene.slack.say(SLACK_CHANNEL, EVE, &format!("<@{BOT_USER}> count the wolves"));
    let refusal = scene
        .slack
        .wait_for_post(SLACK_CHANNEL, |post| {
            post["text"].as_str().is_some_and(|text| text.contains("may not talk to agent helper"))
        })
        .await;
    assert!(refusal["thread_ts"].is_string(), "{refusal}");
    let firing = scene.json(&["why", "helper/chat"])["firings"][0].clone();
    assert_eq!((&firing["outcome"], &firing["reason"]), (&json!("skipped"), &json!("filtered")), "{firing}");
    let why = firing["why"].as_str().unwrap();
    let expected = format!("its chat refused a message of Eve ({EVE}) on slack in {SLACK_CHANNEL} (http");
    assert!(why.starts_with(&expected) && why.ends_with("): the author may not talk to the agent"), "{why}");
    assert_eq!(scene.jobs().len(), jobs, "no job");
    let events = scene.run(&["events", "--audit", "--limit", "1000"]).stdout;
    assert!(events.contains(&format!("Eve ({EVE}) on slack")), "{events}");
}

/// A bot whose token is revoked is refused on every surface, with the next step, and is not tried again and again.
fn refused_bot_is_explained(scene: &Scene, server: &Server) {
    scene.wait_for("the refusal", &["status"], |status| {
        (bot(status, DISCORD_BOT)["status"] == "refused").then_some(())
    });
    bots_agree(scene, server, [1, 0]);
    let said = flat(scene, &["status"]);
    assert!(said.contains("`cowhand doctor` names what is missing"), "{said}");
    assert!(server.get("/").contains("A chat bot is refused"));
    let since = bot(&scene.json(&["status"]), DISCORD_BOT)["since"].clone();
    assert_eq!(scene.run(&["reload"]).code, Some(0));
    scene.wait_for("the bot to be refused again", &["status"], |status| {
        let bot = bot(status, DISCORD_BOT);
        (bot["status"] == "refused" && bot["since"] != since).then_some(())
    });
}

fn doctor_names_what_is_missing(scene: &Scene) {
    scene.slack.scopes(&["app_mentions:read", "chat:write", "channels:history", "im:history", "users:read"]);
    // The daemon has the tokens, and this process does not.
    let mut command = scene.command(&["doctor", "--json"]);
    command.env_remove("SLACK_BOT_TOKEN").env_remove("SLACK_APP_TOKEN").env_remove("DISCORD_TOKEN");
    let output = command.output().unwrap();
    let said = String::from_utf8(output.stdout).unwrap();
    let findings: Vec<Value> = serde_json::from_str(&said).unwrap();
    let of = |name: &str| {
        let what = format!("chat bot {name}");
        findings.iter().filter(|finding| finding["what"] == *what).cloned().collect::<Vec<_>>()
    };
    let of_slack = of(SLACK_BOT);
    assert_eq!(of_slack.len(), 4, "{of_slack:#?}");
    assert!(of_slack.iter().all(|finding| finding["ok"] == true && finding["warning"] == true));
    assert!(of_slack[0]["detail"].as_str().unwrap().contains("groups:history"), "{of_slack:#?}");
    let of_discord = of(DISCORD_BOT);
    assert_eq!(of_discord[0]["ok"], false, "{of_discord:#?}");
    assert!(
        of_discord[0]["detail"].as_str().unwrap().contains("does not accept the token"),
        "{of_discord:#?}"
    );
    for token in [APP_TOKEN, cowhand_testing::slack::BOT_TOKEN, discord::BOT_TOKEN] {
        assert!(!said.contains(token), "{said}");
    }
    let shown = findings.iter().find(|finding| finding["what"] == "environment");
    assert!(shown.is_none_or(|shown| !shown.to_string().contains("SLACK_BOT_TOKEN")), "{shown:?}");
}
