//! Asks of agents are posted in the conversation of their job, and people answer them there.

use std::path::Path;

use cowhand_testing::discord::{self, FakeDiscordMessage};
use cowhand_testing::slack::BOT_USER;
use serde_json::{Value, json};

use crate::scene::{ANN, SLACK_CHANNEL, Scene, everyone, wait_for_end};

mod crash;
mod early;

/// Operators on the fake Slack. On Discord, `alice` is an operator.
const OLGA: &str = "UOLGA";
const MAX: &str = "UMAX";
const ALICE: &str = discord::USER_ID;

/// An agent of the Agent Client Protocol. It asks for the permission that is in the file whose name is in its prompt, and
/// then for the one in the file with the same name and `-then`, if there is one.
const CODER: &str = r#"
say() { printf '%s\n' "$1"; }
hear() { IFS= read -r heard || exit 9; }
answer() { say '{"jsonrpc":"2.0","id":'"$1"',"result":'"$2"'}'; }
update() { say '{"jsonrpc":"2.0","method":"session/update","params":{"sessionId":"s-1","update":'"$1"'}}'; }
chunk() { update '{"sessionUpdate":"agent_message_chunk","content":{"type":"text","text":"'"$1"'"}}'; }
permission() {
    tool=$(cat "$1")
    update '{"sessionUpdate":"tool_call","toolCallId":"'"$2"'","name":"Bash","kind":"execute","status":"pending"}'
    say '{"jsonrpc":"2.0","id":"p'"$2"'","method":"session/request_permission","params":{"sessionId":"s-1","toolCall":'"$tool"',"options":[{"optionId":"yes","name":"Yes","kind":"allow_once"},{"optionId":"no","name":"No","kind":"reject_once"}]}}'
    hear
    case "$heard" in *'"yes"'*) chunk 'It was allowed.' ;; *) chunk 'It was denied.' ;; esac
}
hear; answer 1 '{"protocolVersion":1,"agentInfo":{"name":"scripted","version":"1.0.0"},"agentCapabilities":{"sessionCapabilities":{"resume":{}}}}'
hear; answer 2 '{"sessionId":"s-1"}'
hear
call=$(printf '%s' "$heard" | grep -o 'call-[a-z]*' | tail -1)
if [ -n "$call" ]; then
    chunk 'I look.'
    until [ -e "$call" ]; do sleep 0.05; done
    permission "$call" t1
    if [ -e "$call-then" ]; then permission "$call-then" t2; fi
else
    chunk 'There was nothing to ask.'
fi
answer 3 '{"stopReason":"end_turn"}'
cat > /dev/null
"#;

/// An agent that asks the question in the file whose name is in its prompt, with cowhand's tool.
fn asker() -> String {
    let cowhand = Path::new(env!("CARGO_BIN_EXE_cowhand")).display();
    format!(
        r#"
call=$(grep -o 'call-[a-z]*' | tail -1)
[ -n "$call" ] || {{ echo "There was nothing to ask."; exit; }}
mkfifo "in.$$"
{cowhand} mcp --job < "in.$$" > "out.$$" &
exec 3> "in.$$"
printf '%s\n' '{{"jsonrpc":"2.0","id":1,"method":"initialize","params":{{"protocolVersion":"2025-06-18","capabilities":{{}},"clientInfo":{{"name":"agent","version":"1"}}}}}}' '{{"jsonrpc":"2.0","method":"notifications/initialized"}}' >&3
printf '{{"jsonrpc":"2.0","id":2,"method":"tools/call","params":{{"name":"ask_person","arguments":%s}}}}\n' "$(cat "$call")" >&3
until grep -q '"id":2' "out.$$"; do sleep 0.05; done
exec 3>&-
echo "The answer is $(grep -o '"text":"[^"]*"' "out.$$")"
"#
    )
}

/// Agents that ask: `coder` asks for permission, `asker` asks a question, `hasty` waits only a short time for the
/// answer. Nobody may answer `lonely`.
fn fleet() -> String {
    let operators = everyone(
        &format!(", operators: [{OLGA}, {MAX}], {OUTPUT}"),
        &format!(", operators: ['{ALICE}'], {OUTPUT}"),
    );
    let nobody = everyone(&format!(", {OUTPUT}"), &format!(", {OUTPUT}"));
    let coder = "runtime: acp, command: [sh, coder.sh], permission_mode: ask";
    format!(
        "agents:
  - {{name: coder, {coder}, env: {{API_SECRET: canary-in-an-input}}, chat: {operators}}}
  - {{name: asker, runtime: command, command: [sh, asker.sh], fleet_tools: true, chat: {operators}}}
  - {{name: hasty, {coder}, ask_timeout: 8s, chat: {operators}}}
  - {{name: lonely, {coder}, chat: {nobody}}}
"
    )
}

const OUTPUT: &str = "output: {assistant_messages: all, progress_indicator: false}";

async fn prepared() -> Scene {
    let scene = Scene::new(&fleet()).await;
    scene.slack.add_user(OLGA, "Olga");
    scene.slack.add_user(MAX, "Max");
    scene.write("coder.sh", CODER);
    scene.write("asker.sh", &asker());
    let push = "git push # @everyone <!channel> canary-in-an-input";
    scene.write("call-push", &bash(push));
    scene.write("call-which", &json!({"question": "Which **branch**?"}).to_string());
    scene.write("call-choice", &json!({"question": "Which?", "options": ["main", "old"]}).to_string());
    scene
}

async fn asking() -> Scene {
    let scene = prepared().await;
    scene.start();
    scene.connected().await;
    scene
}

/// Returns a request for permission to run a command.
fn bash(command: &str) -> String {
    bash_call("t1", command)
}

fn bash_call(id: &str, command: &str) -> String {
    let input = json!({"command": command});
    json!({"toolCallId": id, "name": "Bash", "kind": "execute", "rawInput": input}).to_string()
}

fn text(post: &Value) -> &str {
    post["text"].as_str().unwrap_or_default()
}

fn id_of(post: &Value) -> &str {
    post["ts"].as_str().unwrap()
}

/// Returns the values of the buttons with which a post on Slack answers an ask.
fn buttons(post: &Value) -> Vec<String> {
    let blocks = post["blocks"].as_array().into_iter().flatten();
    let elements = blocks.filter_map(|block| block["elements"].as_array()).flatten();
    of_ask(elements.map(|button| button["value"].as_str().unwrap().to_owned()))
}

/// Returns the values of the buttons with which a message on Discord answers an ask.
fn discord_buttons(message: &FakeDiscordMessage) -> Vec<String> {
    let list = |value: &Value| value.as_array().cloned().unwrap_or_default();
    let buttons = list(&message.components).into_iter().flat_map(|row| list(&row["components"]));
    of_ask(buttons.map(|button| button["custom_id"].as_str().unwrap().to_owned()))
}

fn of_ask(values: impl Iterator<Item = String>) -> Vec<String> {
    values.filter(|value| ["allow:", "deny:", "option-"].iter().any(|kind| value.starts_with(kind))).collect()
}

impl Scene {
    /// Lets Ann write to the bot on Slack, and returns her message.
    fn say(&self, words: &str) -> String {
        self.slack.say(SLACK_CHANNEL, ANN, &format!("<@{BOT_USER}> {words}"))
    }

    /// Waits for a post with this text in a thread on Slack.
    async fn post(&self, thread: &str, words: &str) -> Value {
        let is_it = |post: &Value| post["thread_ts"] == thread && text(post).contains(words);
        self.slack.wait_for_post(SLACK_CHANNEL, is_it).await
    }

    /// Waits for a post with buttons in a thread on Slack.
    async fn ask_post(&self, thread: &str) -> Value {
        let is_it = |post: &Value| post["thread_ts"] == thread && !buttons(post).is_empty();
        self.slack.wait_for_post(SLACK_CHANNEL, is_it).await
    }

    /// Waits until an ask on Slack shows these words in place of its buttons.
    async fn closed(&self, ask: &Value, words: &str) -> Value {
        let is_it = |post: &Value| post["ts"] == ask["ts"] && text(post).contains(words);
        let closed = self.slack.wait_for_post(SLACK_CHANNEL, is_it).await;
        assert_eq!(buttons(&closed), Vec::<String>::new(), "{closed}");
        closed
    }

    /// Presses a button on Slack, and returns the text that only the presser sees.
    async fn press(&self, user: &str, message: &str, value: &str) -> String {
        let press = self.slack.press_forged(user, SLACK_CHANNEL, message, value);
        self.slack.wait_for_answer(&press).await
    }

    /// Waits for a message of the bot on Discord.
    async fn discord_post(&self, is_it: impl Fn(&FakeDiscordMessage) -> bool) -> FakeDiscordMessage {
        let find = |fake: &discord::FakeDiscord| {
            let messages = fake.messages(discord::CHANNEL_ID).into_iter();
            messages.filter(|message| message.author == discord::BOT_ID).find(&is_it)
        };
        self.discord.wait_for("a message of the bot", find).await
    }

    async fn discord_ask(&self) -> FakeDiscordMessage {
        self.discord_post(|message| !discord_buttons(message).is_empty()).await
    }

    async fn discord_closed(&self, ask: &FakeDiscordMessage, words: &str) {
        let closed =
            self.discord_post(|message| message.id == ask.id && message.content.contains(words)).await;
        assert_eq!(discord_buttons(&closed), Vec::<String>::new());
    }

    fn say_on_discord(&self, user: &str, words: &str) -> String {
        self.discord.say(discord::CHANNEL_ID, user, &format!("<@{}> {words}", discord::BOT_ID))
    }

    /// Returns how many asks were posted on Discord.
    fn discord_asks(&self) -> usize {
        let messages = self.discord.messages(discord::CHANNEL_ID);
        messages.iter().filter(|message| message.content.contains("Agent coder asks")).count()
    }

    /// Waits for an open ask of an agent, and returns its id.
    fn open_ask_of(&self, agent: &str) -> String {
        self.wait_for("an open ask", &["asks"], |asks| {
            let mut asks = asks.as_array().unwrap().iter();
            asks.find(|ask| ask["agent"] == agent)?["id"].as_str().map(str::to_owned)
        })
    }

    /// Waits for the only open ask, and returns its id.
    fn open_ask(&self) -> String {
        self.wait_for("an open ask", &["asks"], |asks| asks[0]["id"].as_str().map(str::to_owned))
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn operator_allows_or_denies_by_button() {
    let scene = asking().await;
    let ts = scene.say("call-push");
    let ask = scene.ask_post(&ts).await;
    let (id, ask_ts) = (scene.open_ask(), id_of(&ask));
    let (allow, deny) = (format!("allow:{id}"), format!("deny:{id}"));
    assert_eq!(buttons(&ask), [allow.clone(), deny.clone()]);
    assert!(text(&ask).contains("git push # @everyone &lt;!channel&gt; ***"), "{ask}");
    let thread = scene.slack.thread(SLACK_CHANNEL, &ts);
    let place = |words: &str| thread.iter().position(|post| text(post).contains(words)).unwrap();
    assert!(place("I look.") < place("git push"), "the ask follows what the agent wrote before: {thread:#?}");

    // Nobody else can answer, whatever the value of the press is.
    let elsewhere = "allow:job-2026-01-05-aaaaaa.1";
    for (user, message, value, expected) in [
        (ANN, ask_ts, &allow[..], "Only operators of agent coder may answer"),
        (OLGA, &ts, &allow, "belongs to no ask in this conversation"),
        (OLGA, ask_ts, elsewhere, "belongs to no ask in this conversation"),
        (OLGA, ask_ts, "allow:everything", "has no effect"),
        (OLGA, ask_ts, "approve", "has no effect"),
    ] {
        let told = scene.press(user, message, value).await;
        assert!(told.contains(expected), "{user} {value}: {told}");
    }
    assert_eq!(scene.open_ask(), id);

    // Two people press at once.
    let (first, second) = tokio::join!(scene.press(OLGA, ask_ts, &allow), scene.press(MAX, ask_ts, &deny));
    let (verb, winner, told, late) = if first.contains("too late") {
        ("denied", "Max (UMAX)", second, first)
    } else {
        ("allowed", "Olga (UOLGA)", first, second)
    };
    let expected = format!("{id} was {verb} by {winner} on slack on ");
    assert!(told.starts_with(&expected), "{told}");
    assert!(late.starts_with(&format!("Your answer came too late. {expected}")), "{late}");
    scene.closed(&ask, &expected).await;
    scene.post(&ts, &format!("It was {verb}.")).await;
    let answered = &scene.json(&["asks", "--all"])[0];
    assert_eq!((&answered["status"], &answered["by"]["who"]), (&json!(verb), &json!("chat")), "{answered}");
    let audit = scene.run(&["events", "--audit"]).stdout;
    assert!(audit.contains("ask:answered") && audit.contains(winner), "{audit}");

    let bob = scene.discord.add_user("bob");
    scene.say_on_discord(&bob, "call-push");
    let ask = scene.discord_ask().await;
    let deny = format!("deny:{}", scene.open_ask());
    let told = scene.press(OLGA, ask_ts, &deny).await;
    assert!(told.contains("belongs to no ask"), "the ask is on the other platform: {told}");
    assert!(ask.content.contains("@\u{200b}everyone <!channel> ***") && !ask.mentions_everyone, "{ask:?}");
    let told = scene.discord.press(&bob, discord::CHANNEL_ID, &ask.id, &deny).await;
    assert!(told.contains("Only operators"), "{told}");
    let told = scene.discord.press(ALICE, discord::CHANNEL_ID, &ask.id, &deny).await;
    assert!(told.contains("was denied by alice"), "{told}");
    scene.discord_closed(&ask, "was denied by alice").await;
    scene.discord_post(|message| message.content.contains("It was denied.")).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn operator_answers_by_reply() {
    let scene = asking().await;
    let ts = scene.say("asker: call-which");
    let ask = scene.post(&ts, "Which *branch*?").await;
    assert_eq!(buttons(&ask), [format!("deny:{}", scene.open_ask())], "a question needs a text");
    scene.slack.say_in_thread(SLACK_CHANNEL, &ts, ANN, "asker: old");
    scene.post(&ts, "only operators of agent asker may answer").await;
    scene.slack.say_in_thread(SLACK_CHANNEL, &ts, OLGA, "main");
    scene.closed(&ask, "was answered by Olga (UOLGA) on slack on ").await;
    scene.post(&ts, "The answer is \"text\":\"main\"").await;
    // The message of Ann became a job, the answer of Olga did not.
    scene.post(&ts, "There was nothing to ask.").await;
    assert_eq!(scene.jobs().len(), 2);

    let ts = scene.say("call-push");
    let ask = scene.ask_post(&ts).await;
    scene.slack.say_in_thread(SLACK_CHANNEL, &ts, OLGA, "that may be dangerous");
    scene.post(&ts, "needs `allow` or `deny` as its answer").await;
    scene.slack.say_in_thread(SLACK_CHANNEL, &ts, OLGA, "deny: use tar");
    scene.closed(&ask, ": use tar").await;
    scene.post(&ts, "It was denied.").await;
    scene.post(&ts, "There was nothing to ask.").await;
    assert_eq!(scene.jobs().len(), 4);

    scene.say_on_discord(ALICE, "asker: call-which");
    let ask = scene.discord_ask().await;
    scene.say_on_discord(ALICE, "asker: good morning");
    scene.discord_post(|message| message.content.contains("no reply to the message of")).await;
    scene.discord.reply_to(&ask.id, ALICE, "develop", true);
    scene.discord_closed(&ask, "was answered by alice").await;
    scene.discord_post(|message| message.content.contains("\"text\":\"develop\"")).await;

    scene.say_on_discord(ALICE, "asker: call-choice");
    let ask = scene.discord_ask().await;
    let id = scene.open_ask();
    let options = [1, 2].map(|number| format!("option-{number}:{id}"));
    assert_eq!(discord_buttons(&ask), [&options[..], &[format!("deny:{id}")]].concat());
    for (value, expected) in [
        (format!("option-3:{id}"), "belongs to no ask"),
        (format!("option-0:{id}"), "belongs to no ask"),
        (format!("option-x:{id}"), "has no effect"),
        (format!("allow:{id}"), "This ask is a question"),
        (options[1].clone(), ": old"),
    ] {
        let told = scene.discord.press_forged(ALICE, discord::CHANNEL_ID, &ask.id, &value).await;
        assert!(told.contains(expected), "{value}: {told}");
    }
    scene.discord_closed(&ask, "was answered by alice").await;
    scene.discord_post(|message| message.content.contains("\"text\":\"old\"")).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn long_command_is_posted_as_a_whole() {
    let scene = asking().await;
    let lines =
        |count: u32| (0..count).map(|number| format!("echo line-{number}-")).collect::<Vec<_>>().join("\n");
    scene.write("call-long", &bash(&lines(400)));
    scene.write("call-huge", &bash(&lines(8_000)));
    let ts = scene.say("call-long");
    let ask = scene.ask_post(&ts).await;
    let thread = scene.slack.thread(SLACK_CHANNEL, &ts);
    let shown: Vec<&str> = thread.iter().flat_map(|post| text(post).lines()).collect();
    let echoes = shown.iter().filter(|line| line.starts_with("echo")).count();
    assert_eq!(
        (echoes, shown.iter().filter(|line| line.starts_with("```")).count() % 2),
        (400, 0),
        "{shown:#?}"
    );
    scene.press(OLGA, id_of(&ask), &buttons(&ask)[0]).await;
    let closed = scene.closed(&ask, "was allowed by Olga").await;
    assert!(text(&closed).contains("echo line-399-"), "the command stays: {closed}");

    scene.say_on_discord(ALICE, "call-huge");
    let ask = scene.discord_ask().await;
    let [file] = &ask.files[..] else { panic!("{ask:?}") };
    assert_eq!(file.name, "ask-1.txt");
    assert_eq!(String::from_utf8_lossy(&file.content), lines(8_000));
    scene.discord.press(ALICE, discord::CHANNEL_ID, &ask.id, &discord_buttons(&ask)[1]).await;
    assert!(ask.content.contains("echo line-0-") && ask.content.contains("is only the beginning"), "{ask:?}");
    let ts = scene.say("call-huge");
    let ask = scene.ask_post(&ts).await;
    let file = scene.slack.wait_for("the file", |state| {
        state.files.values().find(|file| file.name == "ask-1.txt" && !file.shares.is_empty()).cloned()
    });
    assert_eq!(String::from_utf8_lossy(&file.await.content), lines(8_000));
    scene.press(OLGA, id_of(&ask), &buttons(&ask)[1]).await;
    scene.closed(&ask, "was denied by Olga").await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn answer_elsewhere_closes_the_posts() {
    let scene = asking().await;
    // The other asks are answered while this one expires.
    let hasty_ts = scene.say("hasty: call-push");
    let hasty = scene.post(&hasty_ts, "Agent hasty asks").await;
    let ts = scene.say("call-push");
    let ask = scene.ask_post(&ts).await;
    let id = scene.open_ask_of("coder");
    scene.json(&["approve", &id, "--message", "be quick"]);
    scene.closed(&ask, ": be quick").await;
    scene.post(&ts, "It was allowed.").await;
    let told = scene.press(OLGA, id_of(&ask), &format!("deny:{id}")).await;
    assert!(told.contains("too late") && told.contains("was allowed by"), "{told}");

    let ts = scene.say("lonely: call-push");
    let ask = scene.post(&ts, "Nobody can answer here").await;
    let id = scene.open_ask_of("lonely");
    assert_eq!(buttons(&ask), Vec::<String>::new(), "{ask}");
    let told = scene.press(OLGA, id_of(&ask), &format!("allow:{id}")).await;
    assert!(told.contains("Only operators of agent lonely"), "{told}");
    scene.json(&["deny", &id]);
    scene.closed(&ask, "was denied by").await;

    scene.say_on_discord(ALICE, "call-push");
    let ask = scene.discord_ask().await;
    let id = scene.open_ask_of("coder");
    scene.json(&["cancel", id.rsplit_once('.').unwrap().0]);
    scene.discord_closed(&ask, "because the attempt ended before anybody answered").await;

    scene.closed(&hasty, "expired without an answer").await;
    scene.post(&hasty_ts, "It was denied.").await;
}
