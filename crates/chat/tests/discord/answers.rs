//! Slash commands and buttons.

use cowhand_chat::discord::{DiscordSettings, SlashCommand, SlashOption};
use cowhand_chat::{Button, ButtonStyle, Connector as _, EventReply, Post};
use cowhand_core::chat::{ButtonPress, ChatEvent, CommandCall};
use cowhand_testing::discord::{CHANNEL_ID, FakeDiscord, GUILD_ID, USER_ID};
use serde_json::json;

use crate::harness::{Running, connected, general, post_of, settings, start};

fn commands() -> Vec<SlashCommand> {
    let option = |name: &str, is_required, choices: &[&str]| SlashOption {
        name: name.to_owned(),
        description: format!("the {name}"),
        is_required,
        choices: choices.iter().map(|&choice| choice.to_owned()).collect(),
        has_suggestions: choices.is_empty(),
    };
    let command = |name: &str, options| SlashCommand {
        name: name.to_owned(),
        description: format!("does {name}"),
        options,
    };
    vec![
        command("help", Vec::new()),
        command("skill", vec![option("name", true, &["a", "b"]), option("input", false, &[])]),
    ]
}

fn with_commands(fake: &FakeDiscord, guild: Option<&str>) -> DiscordSettings {
    DiscordSettings { commands: commands(), command_guild: guild.map(str::to_owned), ..settings(fake) }
}

async fn running() -> Running {
    let fake = FakeDiscord::start().await;
    let settings = with_commands(&fake, None);
    let mut running = start(fake, settings);
    running.next_connected().await;
    running.fake.wait_for("the commands", |fake| (fake.commands().len() == 2).then_some(())).await;
    running
}

/// Answers the next event with a text and returns the event.
async fn answer(running: &mut Running, text: &str) -> ChatEvent {
    let received = running.next_received().await;
    received.reply.send(EventReply::Text(text.to_owned())).unwrap();
    received.event
}

/// Answers the next event only after the connector has announced the answer.
async fn answer_late(running: &mut Running, text: Option<&str>) {
    let received = running.next_received().await;
    let announced = running.fake.announced_answers();
    let later = |fake: &FakeDiscord| (fake.announced_answers() > announced).then_some(());
    running.fake.wait_for("the announcement", later).await;
    if let Some(text) = text {
        received.reply.send(EventReply::Text(text.to_owned())).unwrap();
    }
}

fn command_of(event: ChatEvent) -> CommandCall {
    match event {
        ChatEvent::Command(call) => call,
        event => panic!("{event:?}"),
    }
}

fn press_of(event: ChatEvent) -> ButtonPress {
    match event {
        ChatEvent::Button(press) => press,
        event => panic!("{event:?}"),
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_command_is_answered_in_private() {
    let mut running = running().await;
    let fake = running.fake.clone();
    let role = fake.add_role(GUILD_ID, "operators");
    fake.give_role(GUILD_ID, USER_ID, &role);
    let options = [("name", "a"), ("input", "some text")];
    let (text, event) =
        tokio::join!(fake.slash(USER_ID, CHANNEL_ID, "skill", &options), answer(&mut running, "the answer"));
    let call = command_of(event);
    assert_eq!(text, "the answer");
    let options = options.map(|(name, value)| (name.to_owned(), value.to_owned()));
    assert_eq!((call.name.as_str(), call.options.as_slice()), ("skill", &options[..]));
    assert_eq!((&call.place, call.user.id.as_str(), &call.user.roles), (&general(), USER_ID, &vec![role]));
    let long = "x".repeat(5000);
    let (text, _) = tokio::join!(fake.slash(USER_ID, CHANNEL_ID, "help", &[]), answer(&mut running, &long));
    assert_eq!(text.chars().count(), 2000);
    assert_eq!(fake.announced_answers(), 0);
}

#[tokio::test(flavor = "multi_thread")]
async fn discord_fetches_no_address_of_an_answer() {
    let mut running = running().await;
    let fake = running.fake.clone();
    let text = "https://evil.example/?d=DATA";
    let (answer, _) = tokio::join!(fake.slash(USER_ID, CHANNEL_ID, "help", &[]), answer(&mut running, text));
    let (late, ()) =
        tokio::join!(fake.slash(USER_ID, CHANNEL_ID, "help", &[]), answer_late(&mut running, Some(text)));
    assert_eq!((answer.as_str(), late.as_str()), (text, text));
    assert_eq!(fake.fetched_links(), Vec::<String>::new());
}

#[tokio::test(flavor = "multi_thread")]
async fn an_option_has_suggestions() {
    let mut running = running().await;
    let fake = running.fake.clone();
    let suggest = async {
        let received = running.next_received().await;
        let texts = (0..30).map(|number| format!("value {number}")).chain(["x".repeat(101), String::new()]);
        received.reply.send(EventReply::Suggestions(texts.rev().collect())).unwrap();
        received.event
    };
    let (shown, event) = tokio::join!(fake.suggestions(USER_ID, CHANNEL_ID, "skill", "input"), suggest);
    let shown: Vec<&str> = shown.lines().collect();
    assert_eq!((shown.len(), shown[0], shown[24]), (25, "value 29", "value 5"));
    let ChatEvent::Suggest(request) = event else { panic!("{event:?}") };
    assert_eq!((request.call.name.as_str(), request.option.as_str()), ("skill", "input"));
    // The receiver drops the reply.
    let (shown, _) = tokio::join!(fake.suggestions(USER_ID, CHANNEL_ID, "skill", "input"), running.next());
    assert_eq!(shown, "");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_late_answer_is_announced_first() {
    let mut running = running().await;
    let fake = running.fake.clone();
    let thread = fake.create_thread(CHANNEL_ID, "thread");
    let (text, ()) = tokio::join!(
        fake.slash(USER_ID, &thread, "help", &[]),
        answer_late(&mut running, Some("better late than never"))
    );
    assert_eq!(text, "better late than never");
    // The receiver drops the reply.
    let (text, ()) = tokio::join!(fake.slash(USER_ID, &thread, "help", &[]), answer_late(&mut running, None));
    assert_eq!(text, "There is no answer. Try again.");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_command_is_announced_behind_a_message_that_is_not_confirmed() {
    let mut running = running().await;
    let fake = running.fake.clone();
    fake.say(CHANNEL_ID, USER_ID, "hello");
    let message = running.next_received().await;
    let confirm_after_announcement = async {
        let announced = |fake: &FakeDiscord| (fake.announced_answers() == 1).then_some(());
        fake.wait_for("the announcement", announced).await;
        message.reply.send(EventReply::Stored).unwrap();
        answer(&mut running, "at last").await
    };
    let (text, event) =
        tokio::join!(fake.slash(USER_ID, CHANNEL_ID, "help", &[]), confirm_after_announcement);
    assert_eq!((text.as_str(), command_of(event).name.as_str()), ("at last", "help"));
}

#[tokio::test(flavor = "multi_thread")]
async fn a_lost_answer_to_a_callback_is_repeated() {
    let mut running = running().await;
    let fake = running.fake.clone();
    fake.fail_after_effect("/callback", 1, 502);
    let (text, _) = tokio::join!(fake.slash(USER_ID, CHANNEL_ID, "help", &[]), answer(&mut running, "once"));
    assert_eq!(text, "once");
}

#[tokio::test(flavor = "multi_thread")]
async fn buttons_have_values_that_anybody_can_forge() {
    let mut running = connected().await;
    let fake = running.fake.clone();
    let button =
        Button { label: "Approve".to_owned(), value: "ask-1:yes".to_owned(), style: ButtonStyle::Approve };
    let post = Post { buttons: vec![button], ..post_of("k1", "May I?") };
    let message = running.connector.post(&post).await.unwrap().id;
    running.next_message().await;
    let (text, event) = tokio::join!(
        fake.press(USER_ID, CHANNEL_ID, &message, "ask-1:yes"),
        answer(&mut running, "approved")
    );
    let press = press_of(event);
    assert_eq!(text, "approved");
    assert_eq!((press.value.as_str(), &press.message, &press.place), ("ask-1:yes", &message, &general()));
    let (_, event) = tokio::join!(
        fake.press_forged(USER_ID, CHANNEL_ID, &message, "ask-2:yes"),
        answer(&mut running, "no")
    );
    assert_eq!(press_of(event).value, "ask-2:yes");
    // A reply without text changes nothing that the person sees.
    let (text, event) = tokio::join!(fake.press(USER_ID, CHANNEL_ID, &message, "ask-1:yes"), running.next());
    assert_eq!((text.as_str(), press_of(event).user.name.as_str()), ("", "alice"));
}

#[tokio::test(flavor = "multi_thread")]
async fn commands_of_another_scope_are_removed() {
    for (old, new) in [(None, Some(GUILD_ID)), (Some(GUILD_ID), None)] {
        let fake = FakeDiscord::start().await;
        let settings_of = |fake: &FakeDiscord, guild: Option<&str>, name: &str| {
            let mut settings = with_commands(fake, guild);
            settings.commands.push(SlashCommand {
                name: name.into(),
                description: "x".into(),
                options: Vec::new(),
            });
            settings
        };
        let settings = settings_of(&fake, old, "foreign");
        let mut running = start(fake, settings);
        running.next_connected().await;
        running.fake.wait_for("the commands", |fake| (fake.commands().len() == 3).then_some(())).await;
        let (fake, _) = running.stop().await;
        let settings = settings_of(&fake, new, "new");
        let mut running = start(fake, settings);
        running.next_connected().await;
        let names = |fake: &FakeDiscord| {
            let name = |command: serde_json::Value| {
                (
                    command["name"].as_str().unwrap().to_owned(),
                    command["guild_id"].as_str().map(str::to_owned),
                )
            };
            let mut names: Vec<_> = fake.commands().into_iter().map(name).collect();
            names.sort();
            names
        };
        let of = |name: &str, guild: Option<&str>| (name.to_owned(), guild.map(str::to_owned));
        // A command with another name may belong to another program.
        let expected = [of("foreign", old), of("help", new), of("new", new), of("skill", new)];
        running.fake.wait_for("the removal", |fake| (names(fake) == expected).then_some(())).await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn commands_are_registered_only_when_they_differ() {
    for guild in [None, Some(GUILD_ID)] {
        let fake = FakeDiscord::start().await;
        // The first try fails, and so do its repetitions.
        fake.fail("/commands", 4, 500);
        let settings = with_commands(&fake, guild);
        let mut running = start(fake, settings);
        running.next_connected().await;
        running.fake.wait_for("the commands", |fake| (fake.commands().len() == 2).then_some(())).await;
        let commands = running.fake.commands();
        assert_eq!(commands[1]["options"][0]["choices"][1], json!({ "name": "b", "value": "b" }));
        assert_eq!(commands[0]["guild_id"], json!(guild));
        let puts = |requests: Vec<String>| requests.iter().filter(|line| line.starts_with("PUT")).count();
        assert_eq!(puts(running.fake.requests()), 1);
        // In a new session, the connector only compares.
        running.fake.invalidate(false);
        running.next_connected().await;
        let compared = |fake: &FakeDiscord| {
            let requests = fake.requests();
            assert_eq!(puts(requests.clone()), 0);
            requests.iter().any(|line| line.ends_with("/commands")).then_some(())
        };
        running.fake.wait_for("the comparison", compared).await;
        assert_eq!(running.fake.commands(), commands);
    }
}
