//! Commands of people: who may use them, what they do, and that each acts once.

use cowhand_testing::discord::{self, FakeDiscord};
use cowhand_testing::slack::BOT_USER;
use cowhand_testing::wait_until;
use serde_json::Value;

use crate::scene::{ANN, SLACK_CHANNEL, Scene, wait_for_end};

/// A command, its options, and texts of its answer.
type CommandCase<'a> = (&'a str, &'a [(&'a str, &'a str)], &'a [&'a str]);

/// People on the fake Slack. Eve is a stranger.
const BOB: &str = "UBOB";
const OLGA: &str = "UOLGA";
const EVE: &str = "UEVE";

/// Ids of people on the fake Discord, where Ann is the user that is always there.
struct DiscordPeople {
    bob: String,
    olga: String,
    eve: String,
}

/// An agent that repeats its prompt. If the prompt has `wait for NAME`, it first waits for a file with this name. If the
/// prompt has `fail now`, it fails.
const AGENT: &str = r#"#!/bin/sh
text=$(cat)
name=$(printf '%s' "$text" | sed -n 's/.*wait for \([a-z0-9]*\).*/\1/p' | head -n 1)
if [ -n "$name" ]; then while [ ! -e "$name" ]; do sleep 0.05; done; fi
case "$text" in *"fail now"*) echo "canary-of-an-error" >&2; exit 3 ;; esac
printf '%s\n' "$text"
"#;

/// Starts a fleet in which Ann and Bob may talk to the agents, Olga is an operator, and Eve may do nothing. `agents`
/// makes the config from the chat settings.
async fn fleet(agents: impl Fn(&str) -> String) -> (Scene, DiscordPeople) {
    let scene = Scene::new("").await;
    for (id, name) in [(BOB, "Bob"), (OLGA, "Olga"), (EVE, "Eve")] {
        scene.slack.add_user(id, name);
    }
    let people = DiscordPeople {
        bob: scene.discord.add_user("bob"),
        olga: scene.discord.add_user("olga"),
        eve: scene.discord.add_user("eve"),
    };
    let chat = format!(
        "slack: {{users: [{ANN}, {BOB}], operators: [{OLGA}], channels: [{{id: {SLACK_CHANNEL}}}]}}, \
         discord: {{bot_token_env: DISCORD_TOKEN, users: ['{}', '{}'], operators: ['{}'], \
         guilds: [{{id: '{}', channels: [{{id: '{}'}}]}}]MORE}}",
        discord::USER_ID,
        people.bob,
        people.olga,
        discord::GUILD_ID,
        discord::CHANNEL_ID
    );
    scene.write_program("agent", AGENT);
    scene.write("cowhand.yaml", &format!("server: {{enabled: false}}\n{}", agents(&chat)));
    scene.start();
    scene.connected().await;
    (scene, people)
}

/// One agent with two schedules.
fn helper(chat: &str) -> String {
    let schedules = "{nightly: {type: cron, cron: '0 3 1 1 *', prompt: Report}, \
        checked: {type: cron, cron: '0 3 1 1 *', prompt: Check, \
        when_command: [sh, -c, 'while [ ! -e checked ]; do sleep 0.05; done']}}";
    let chat = chat.replace("MORE", "");
    format!(
        "agents:\n  - {{name: helper, runtime: command, command: [./agent], schedules: {schedules}, chat: {{{chat}}}}}\n"
    )
}

/// Sends a message that mentions the bot on Slack, and returns its timestamp.
fn say(scene: &Scene, user: &str, text: &str) -> String {
    scene.slack.say(SLACK_CHANNEL, user, &format!("<@{BOT_USER}> {text}"))
}

/// Waits for the first post of the bot below a message on Slack.
async fn reply_to(scene: &Scene, ts: &str) -> String {
    let post = scene.slack.wait_for_post(SLACK_CHANNEL, |post| post["thread_ts"] == ts).await;
    post["text"].as_str().unwrap().to_owned()
}

/// Sends a command on Slack, and waits for its answer.
async fn send(scene: &Scene, user: &str, command: &str) -> String {
    reply_to(scene, &say(scene, user, command)).await
}

async fn slash(scene: &Scene, user: &str, name: &str, options: &[(&str, &str)]) -> String {
    scene.discord.slash(user, discord::CHANNEL_ID, name, options).await
}

fn say_on_discord(scene: &Scene, user: &str, text: &str) -> String {
    scene.discord.say(discord::CHANNEL_ID, user, &format!("<@{}> {text}", discord::BOT_ID))
}

/// Waits until there is this number of jobs and the last job has this status. Returns its id.
fn last_job(scene: &Scene, count: usize, status: &str) -> String {
    wait_until(&format!("job {count} to be {status}"), || {
        let jobs = scene.jobs();
        assert!(jobs.len() <= count, "{jobs:#?}");
        let last = jobs.get(count - 1).filter(|job| job["status"] == status)?;
        Some(last["id"].as_str().unwrap().to_owned())
    })
}

fn status_of(scene: &Scene, job: &str) -> Value {
    scene.json(&["job", job])["status"].clone()
}

fn audit(scene: &Scene) -> String {
    scene.run(&["events", "--audit"]).stdout
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_message_to_a_running_job_is_from_its_sender_or_an_operator() {
    let (scene, _) = fleet(helper).await;
    let nothing = "No job answers here now, so `!say` has no effect. Write the text as an ordinary message.";
    assert_eq!(send(&scene, ANN, "!say Too early.").await, nothing);
    let asked = say(&scene, ANN, "wait for gate");
    let job = last_job(&scene, 1, "running");
    let refused = format!("{job} answers somebody else. Only operators may send it a message.");
    assert_eq!(send(&scene, BOB, "!say From Bob.").await, refused);
    let stored = format!(
        "The message is stored. The agent takes no messages while it runs; it gets this one when {job} has ended."
    );
    assert_eq!(send(&scene, ANN, "!say From Ann.").await, stored);
    assert_eq!(send(&scene, OLGA, "!say From Olga.").await, stored);
    let messages = scene.json(&["job", &job])["messages"].clone();
    assert_eq!((&messages[0]["text"], &messages[0]["by"]["id"]), (&"From Ann.".into(), &ANN.into()));
    assert_eq!((&messages[1]["text"], &messages[1]["by"]["id"]), (&"From Olga.".into(), &OLGA.into()));
    assert_eq!(messages.as_array().unwrap().len(), 2, "{messages:#}");
    scene.write("gate", "");
    let next = last_job(&scene, 2, "completed");
    assert_eq!(scene.json(&["job", &next])["continues"], job.as_str());
    // The next turn answers in the thread of the first message.
    let is_answer = |post: &Value| {
        post["thread_ts"] == asked.as_str()
            && post["text"].as_str().is_some_and(|text| text.contains("From Olga."))
    };
    scene.slack.wait_for_post(SLACK_CHANNEL, is_answer).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_job_is_stopped_by_its_sender_or_an_operator() {
    let (scene, people) = fleet(helper).await;
    say(&scene, ANN, "wait for never");
    let first = last_job(&scene, 1, "running");
    let second_message = say(&scene, BOB, "second");
    let second = last_job(&scene, 2, "pending");

    let status = send(&scene, ANN, "!status").await;
    assert!(status.contains("Agent `helper`: 1 job runs and 1 waits. At most 1 at a time."), "{status}");
    assert!(status.contains(&first) && status.contains("The bot is connected as"), "{status}");
    let shown = &scene.json(&["status"])["agents"][0];
    assert_eq!((&shown["running"], &shown["queued"]), (&1.into(), &1.into()));
    let why = send(&scene, ANN, &format!("!why {second}")).await;
    assert!(why.contains("It waits: "), "{why}");

    let suffix = &first[first.len() - 6..];
    let refused = send(&scene, BOB, &format!("!stop {suffix}")).await;
    assert_eq!(refused, format!("{first} answers somebody else. Only operators may stop it."));
    let stranger = "You may not talk to agent helper. The owner of the fleet decides who may.";
    assert_eq!(send(&scene, EVE, "!stop").await, stranger);
    let removed = format!("{second} was removed from the queue.");
    assert_eq!(send(&scene, BOB, "!cancel").await, removed);
    assert_eq!(status_of(&scene, &first), "running");

    // The buttons of a message that waits; anybody can send any value.
    assert_eq!(send(&scene, BOB, "!retry").await, "Agent helper gets the last message again.");
    let third = last_job(&scene, 3, "pending");
    let value = format!("cancel:{third}");
    for (user, value, expected) in [
        (EVE, value.as_str(), stranger.to_owned()),
        (ANN, &value, format!("{third} answers somebody else. Only operators may stop it.")),
        (BOB, "dance", "This button has no effect.".to_owned()),
        (BOB, "stop:../../x", "This button has no effect.".to_owned()),
        (
            BOB,
            "stop:job-2020-01-01-000000",
            "This button belongs to another conversation, so it has no effect here.".to_owned(),
        ),
        (BOB, &value, format!("{third} was removed from the queue.")),
        (BOB, &value, format!("{third} has already ended: it was cancelled.")),
    ] {
        let press = scene.slack.press_forged(user, SLACK_CHANNEL, &second_message, value);
        assert_eq!(scene.slack.wait_for_answer(&press).await, expected, "{user} {value}");
    }
    assert_eq!(status_of(&scene, &first), "running");

    let direct = scene.slack.direct_channel(OLGA);
    let press = scene.slack.press_forged(OLGA, &direct, &second_message, &format!("stop:{first}"));
    let elsewhere = scene.slack.wait_for_answer(&press).await;
    assert!(elsewhere.contains("another conversation"), "{elsewhere}");
    assert_eq!(send(&scene, OLGA, "!stop").await, format!("{first} is being stopped."));
    wait_until("the job to be cancelled", || (status_of(&scene, &first) == "cancelled").then_some(()));
    assert_eq!(send(&scene, ANN, "!stop").await, "No job runs or waits in this conversation.");
    let stopped = format!("Job {first} was stopped by Olga.");
    let is_told = |post: &Value| post["text"].as_str().is_some_and(|text| text.contains(&stopped));
    scene.slack.wait_for_post(SLACK_CHANNEL, is_told).await;
    let why = send(&scene, ANN, &format!("!why {first}")).await;
    assert!(why.contains("by Olga (UOLGA) on slack; "), "{why}");
    let audit_log = audit(&scene);
    for actor in ["Bob (UBOB) on slack", "Olga (UOLGA) on slack"] {
        assert!(audit_log.contains(actor), "{audit_log}");
    }

    say_on_discord(&scene, discord::USER_ID, "wait for never");
    let fourth = last_job(&scene, 4, "running");
    let refused = slash(&scene, &people.bob, "stop", &[]).await;
    assert!(refused.contains("answers somebody else"), "{refused}");
    let refused = slash(&scene, &people.eve, "stop", &[("job", &fourth)]).await;
    assert!(refused.contains("You may not talk to agent helper"), "{refused}");
    let stopped = slash(&scene, discord::USER_ID, "cancel", &[]).await;
    assert_eq!(stopped, format!("{fourth} is being stopped."));
    wait_until("the job to be cancelled", || (status_of(&scene, &fourth) == "cancelled").then_some(()));
    assert!(audit(&scene).contains(&format!("alice ({}) on discord", discord::USER_ID)), "{}", audit(&scene));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_flood_of_commands_delays_no_effect() {
    const FLOOD: usize = 40;
    let scene = fleet(helper).await.0;
    say(&scene, BOB, "wait for never");
    let job = last_job(&scene, 1, "running");
    for _ in 0..FLOOD {
        say(&scene, ANN, "!ping");
    }
    say(&scene, OLGA, "!stop");
    wait_until("the job to be cancelled", || (status_of(&scene, &job) == "cancelled").then_some(()));
    let count = |text: &str| {
        let posts = scene.slack_posts();
        posts.iter().filter(|post| post["text"].as_str().unwrap().contains(text)).count()
    };
    assert!(count("The connection works.") < FLOOD / 2, "the answers wait: {:?}", scene.slack_posts());
    scene.wait_for_slack(&format!("{job} is being stopped.")).await;
    scene.wait_until_answered();
    say(&scene, BOB, "!status");
    scene.wait_for_slack("no job runs and none waits").await;
    assert_eq!(count("Slow down: "), 1, "{:?}\n{}", scene.slack_posts(), scene.log());
    assert!(count("The connection works.") < FLOOD / 2, "{:?}", scene.slack_posts());
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_last_message_runs_again_once() {
    let (scene, people) = fleet(helper).await;
    assert!(send(&scene, ANN, "!retry").await.contains("no earlier message"));
    let message = say(&scene, ANN, "count the sheep");
    assert!(reply_to(&scene, &message).await.contains("count the sheep"));
    let first = last_job(&scene, 1, "completed");
    let retry = say(&scene, BOB, "!retry");
    assert_eq!(reply_to(&scene, &retry).await, "Agent helper gets the last message again.");
    let second = last_job(&scene, 2, "completed");
    let prompt = |job: &str| scene.json(&["job", job])["prompt"].clone();
    assert_eq!(prompt(&first), prompt(&second));
    assert!(audit(&scene).contains("Bob (UBOB) on slack"), "{}", audit(&scene));
    // The command is delivered again. Later the daemon is killed before its effect, or between its effect and its answer.
    scene.slack.redeliver(&retry);
    assert_eq!(send(&scene, ANN, "!ping").await, "The connection works.");
    assert_eq!(scene.jobs().len(), 2);
    for (count, fault) in [(3, "chat_answer_opened"), (4, "chat_command_done")] {
        scene.stop();
        let daemon = scene.start_with_fault(fault);
        scene.connected().await;
        let retry = say(&scene, BOB, "!retry");
        wait_for_end(daemon);
        scene.start();
        assert_eq!(reply_to(&scene, &retry).await, "Agent helper gets the last message again.");
        last_job(&scene, count, "completed");
    }

    say_on_discord(&scene, discord::USER_ID, "count the geese");
    last_job(&scene, 5, "completed");
    scene.discord.wait_for_answers(discord::CHANNEL_ID, 1).await;
    let answered = slash(&scene, &people.bob, "retry", &[]).await;
    assert_eq!(answered, "Agent helper gets the last message again.");
    let answers = scene.discord.wait_for_answers(discord::CHANNEL_ID, 2).await;
    assert!(answers[1].content.contains("count the geese"), "{answers:?}");
    last_job(&scene, 6, "completed");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn schedules_and_conversations_are_changed_by_those_who_may() {
    let (scene, people) = fleet(helper).await;
    let refused = send(&scene, ANN, "!schedule disable nightly").await;
    assert_eq!(refused, "Only operators may use `!schedule`.");
    let refused =
        slash(&scene, discord::USER_ID, "schedule", &[("action", "run"), ("name", "nightly")]).await;
    assert_eq!(refused, "Only operators may use `/schedule`.");
    let schedule = |name: &str| {
        let views = scene.json(&["schedule", "list"]);
        views.as_array().unwrap().iter().find(|view| view["schedule"] == name).unwrap()["status"].clone()
    };
    assert_eq!(schedule("nightly"), "idle");
    let disabled = send(&scene, OLGA, "!schedule disable helper/nightly").await;
    assert_eq!(disabled, "Schedule `helper/nightly` is disabled. Jobs that run continue.");
    assert_eq!(schedule("nightly"), "disabled");
    let enable = [("name", "nightly"), ("action", "enable")];
    assert_eq!(
        slash(&scene, &people.olga, "schedule", &enable).await,
        "Schedule `helper/nightly` is enabled."
    );
    let again = slash(&scene, &people.olga, "schedule", &enable).await;
    assert_eq!(again, "Schedule `helper/nightly` was already enabled.");
    let unknown = send(&scene, OLGA, "!schedule run nightl").await;
    assert_eq!(unknown, "There is no schedule `nightl`. `!schedules` lists the schedules.");
    let run = send(&scene, OLGA, "!schedule run nightly").await;
    let first = last_job(&scene, 1, "completed");
    assert!(run.starts_with(&format!("Schedule `helper/nightly` has fired: {first}.")), "{run}");
    // A slow command is announced first.
    let (text, ()) = tokio::join!(
        slash(&scene, &people.olga, "schedule", &[("action", "run"), ("name", "checked")]),
        async {
            let announced = |fake: &FakeDiscord| (fake.announced_answers() == 1).then_some(());
            scene.discord.wait_for("the announcement", announced).await;
            scene.write("checked", "");
        }
    );
    let second = last_job(&scene, 2, "completed");
    assert!(text.starts_with(&format!("Schedule `helper/checked` has fired: {second}.")), "{text}");
    let audit_log = audit(&scene);
    for actor in ["Olga (UOLGA) on slack".to_owned(), format!("olga ({}) on discord", people.olga)] {
        assert!(audit_log.contains(&actor), "{audit_log}");
    }

    let chat_of = |job: &str| scene.json(&["job", job])["chat"].clone();
    say(&scene, ANN, "hello");
    assert_eq!(chat_of(&last_job(&scene, 3, "completed")), "slack C1");
    let reset = "The conversation was reset. Agent helper does not remember the earlier messages.";
    let command = say(&scene, ANN, "!reset");
    assert_eq!(reply_to(&scene, &command).await, reset);
    scene.slack.redeliver(&command);
    say(&scene, ANN, "hello again");
    assert_eq!(chat_of(&last_job(&scene, 4, "completed")), "slack C1 1");
    say_on_discord(&scene, discord::USER_ID, "hello");
    assert_eq!(chat_of(&last_job(&scene, 5, "completed")), format!("discord {}", discord::CHANNEL_ID));
    assert_eq!(slash(&scene, discord::USER_ID, "new", &[]).await, reset);
    say_on_discord(&scene, discord::USER_ID, "hello again");
    assert_eq!(chat_of(&last_job(&scene, 6, "completed")), format!("discord {} 1", discord::CHANNEL_ID));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn commands_show_agent_jobs_and_skills() {
    let scene = fleet(helper).await.0;
    let skill = "---\nname: deploy\ndescription: Deploys <the site>.\n---\n# Deploy\n";
    for folder in [".claude/skills/deploy", "skills/check"] {
        std::fs::create_dir_all(scene.root.join(folder)).unwrap();
    }
    scene.write(".claude/skills/deploy/SKILL.md", skill);
    scene.write("skills/check/SKILL.md", "# Check\n\nChecks @everyone.\n");
    let (ann, channel) = (discord::USER_ID, discord::CHANNEL_ID);
    say_on_discord(&scene, ann, "count the geese");
    let job = last_job(&scene, 1, "completed");
    scene.discord.wait_for_answers(channel, 1).await;
    let refused_why = "There is no job, schedule or agent `nothing`. `/jobs` lists the jobs, and `/schedules` the schedules.";
    let cases: [CommandCase<'_>; 15] = [
        ("help", &[], &["`/stop [JOB]`", "`/why NAME`"]),
        ("ping", &[], &["The connection works."]),
        ("status", &[], &["Agent `helper`: no job runs and none waits.", "The bot is connected as"]),
        ("session", &[], &["The conversation has no session.", "Last message: count the geese"]),
        ("usage", &[], &[&job, "This conversation, 1 job: 0 tokens, cost not known"]),
        ("tools", &[], &["Tools: all that the runtime has", "MCP servers: none"]),
        ("config", &[], &["Runtime: `command`", "Jobs at a time: 1"]),
        ("skills", &[], &["`check` Checks @\u{200b}everyone.", r"`deploy` Deploys \<the site\>."]),
        ("schedules", &[], &["`chat` chat, idle", "`nightly` cron, idle, next in "]),
        ("jobs", &[], &[&job, "completed, schedule chat"]),
        ("why", &[("name", &job)], &[&job, "of agent helper", "It completed"]),
        ("why", &[("name", "nightly")], &["Schedule `helper/nightly` is idle, next in"]),
        ("why", &[("name", "helper")], &["Schedule `helper/chat` is idle", "ran: "]),
        ("why", &[("name", "nothing")], &[refused_why]),
        ("skill", &[("name", "dance")], &["There is no skill `dance`. `/skills` lists the skills."]),
    ];
    for (name, options, expected) in cases {
        let text = slash(&scene, ann, name, options).await;
        for part in expected {
            assert!(text.contains(part), "/{name} {options:?}: {part:?} is not in {text:?}");
        }
    }
    assert!(!slash(&scene, ann, "help", &[]).await.contains("enable"), "Ann is no operator");
    assert_eq!(scene.discord.suggestions(ann, channel, "skill", "name").await, "check\ndeploy");
    assert_eq!(scene.discord.suggestions(ann, channel, "schedule", "name").await, "chat\nchecked\nnightly");
    let used = slash(&scene, ann, "skill", &[("input", "to production"), ("name", "deploy")]).await;
    assert_eq!(used, "Agent helper gets the request to use the skill `deploy`.");
    let prompt = scene.json(&["job", &last_job(&scene, 2, "completed")])["prompt"].clone();
    let prompt = prompt.as_str().unwrap();
    assert!(prompt.contains("Use the skill `deploy` with this input:\n\nto production"), "{prompt}");
    let answers = scene.discord.wait_for_answers(channel, 3).await;
    assert_eq!(answers[1].content, "alice uses the skill `deploy`: to production");
    assert!(answers[2].content.contains("to production"), "{answers:?}");

    // The slash command of a Slack app, and a skill as a message.
    let help = scene.slack.slash(ANN, SLACK_CHANNEL, "/cowhand", "").await;
    assert!(help.contains("`!why NAME`"), "{help}");
    let why = scene.slack.slash(ANN, SLACK_CHANNEL, "/cowhand", "why nightly").await;
    assert!(why.contains("Schedule `helper/nightly` is idle"), "{why}");
    let stranger = scene.slack.slash(EVE, SLACK_CHANNEL, "/cowhand", "jobs").await;
    assert!(stranger.contains("You may not talk"), "{stranger}");
    let elsewhere = scene.slack.slash(ANN, "C9", "/cowhand", "jobs").await;
    assert_eq!(elsewhere, "No agent of this bot answers here.");
    say(&scene, ANN, "!skill check the roof");
    let prompt = scene.json(&["job", &last_job(&scene, 3, "completed")])["prompt"].clone();
    assert!(
        prompt.as_str().unwrap().contains("Use the skill `check` with this input:\n\nthe roof"),
        "{prompt}"
    );
}

/// Refused messages and errors can come from private channels and direct conversations.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn people_see_only_what_belongs_to_their_conversation() {
    let (scene, _) = fleet(helper).await;
    scene.slack.say_direct(EVE, "let me in");
    let refused = |post: &Value| post["text"].as_str().is_some_and(|text| text.contains("You may not talk"));
    scene.slack.wait_for_post(&scene.slack.direct_channel(EVE), refused).await;
    scene.slack.say_direct(ANN, "fail now");
    let job = last_job(&scene, 1, "failed");
    let error = scene.json(&["job", &job]).to_string();
    assert!(error.contains("canary-of-an-error"), "{error}");
    scene.slack.say_direct(ANN, "wait for never");
    let second = last_job(&scene, 2, "running");
    let direct = [scene.slack.direct_channel(ANN), scene.slack.direct_channel(EVE)];
    let is_private = |text: &str| {
        let names = ["Eve", EVE, "Ann", ANN, "canary", "let me in"];
        names.into_iter().chain(direct.iter().map(String::as_str)).any(|name| text.contains(name))
    };
    for command in ["!why chat", "!why helper", "!status", &format!("!why {job}"), &format!("!why {second}")]
    {
        let text = send(&scene, BOB, command).await;
        assert!(text.contains("helper") && !is_private(&text), "{command}: {text}");
    }
    let why = send(&scene, BOB, "!why chat").await;
    assert!(why.contains("skipped (it was refused)") && why.contains(&job), "{why}");
    assert!(send(&scene, BOB, &format!("!why {job}")).await.contains("It failed "));

    let why = send(&scene, OLGA, "!why chat").await;
    assert!(why.contains("its chat refused a message of Eve (UEVE)") && why.contains("Ann (UANN)"), "{why}");
    let why = send(&scene, OLGA, &format!("!why {job}")).await;
    assert!(why.contains("canary-of-an-error"), "{why}");
    // Ann sees the error of her own message, wherever she asks.
    let why = send(&scene, ANN, &format!("!why {job}")).await;
    assert!(why.contains("canary-of-an-error"), "{why}");
    let why = send(&scene, ANN, "!why chat").await;
    assert!(why.contains("a message of Ann (UANN)") && !why.contains("Eve"), "{why}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn one_of_several_agents_is_named() {
    let scene = fleet(|chat| {
        let chat = chat.replace("MORE", ", skills: []");
        let agent = |name: &str, schedules: &str| {
            format!(
                "  - {{name: {name}, runtime: command, command: [./agent], schedules: {{{schedules}}}, chat: {{{chat}}}}}\n"
            )
        };
        let report = "report: {type: cron, cron: '0 3 1 1 *', prompt: Report}";
        format!("agents:\n{}{}", agent("one", ""), agent("two", report))
    })
    .await
    .0;
    let which = "Several agents answer here. Put one of these before the arguments: `@one`, `@two`";
    for command in ["!reset", "!stop", "!retry", "!skill x"] {
        assert_eq!(send(&scene, ANN, command).await, which, "{command}");
    }
    let reset = send(&scene, ANN, "!reset @two").await;
    assert!(reset.contains("Agent two does not remember"), "{reset}");
    assert!(send(&scene, ANN, "!status").await.starts_with("Agent `one`"));
    assert!(send(&scene, ANN, "!status agent=two").await.starts_with("Agent `two`"));
    assert_eq!(send(&scene, ANN, "!status @three").await, "No agent `three` answers you here.");
    assert!(slash(&scene, discord::USER_ID, "status", &[("agent", "two")]).await.starts_with("Agent `two`"));
    assert_eq!(slash(&scene, discord::USER_ID, "reset", &[]).await, which);
    let disabled = send(&scene, OLGA, "!schedule disable report").await;
    assert_eq!(disabled, "Schedule `two/report` is disabled. Jobs that run continue.");
    let mistake = scene.slack.slash(ANN, SLACK_CHANNEL, "/cowhand", "sttaus").await;
    assert_eq!(mistake, "There is no command `sttaus`. Did you mean `!status`?");
    assert!(send(&scene, ANN, "!stop it").await.starts_with("`it` is not the id of a job."));
    let names: Vec<Value> = scene.discord.commands().iter().map(|command| command["name"].clone()).collect();
    assert!(names.contains(&"why".into()) && !names.contains(&"skill".into()), "{names:?}");
    assert!(scene.jobs().is_empty(), "{:?}", scene.jobs());
    // Messages that only look like commands are for the agent, and a command within a text does nothing.
    for (count, text) in [(1, "! important"), (2, "!dance"), (3, "please !stop this")] {
        say(&scene, ANN, text);
        let prompt = scene.json(&["job", &last_job(&scene, count, "completed")])["prompt"].clone();
        assert!(prompt.as_str().unwrap().contains(text), "{prompt}");
    }
    // In the thread of an answer, the agent that answered there is meant.
    let message = say(&scene, ANN, "two: hello");
    last_job(&scene, 4, "completed");
    let command = scene.slack.say_in_thread(SLACK_CHANNEL, &message, ANN, "!reset");
    let answer = scene.slack.wait_for_post(SLACK_CHANNEL, |post| {
        post["thread_ts"] == message && post["text"].as_str().is_some_and(|text| text.contains("was reset"))
    });
    assert!(answer.await["text"].as_str().unwrap().contains("Agent two"), "{command}");
}
