//! The check of the bot's settings.

use cowhand_chat::discord::{DiscordConnector, DiscordSettings};
use cowhand_chat::{ChatError, Connector as _, ExpectedPlaces};
use cowhand_testing::discord::{APPLICATION_ID, CHANNEL_ID, FakeDiscord, GUILD_ID};

use crate::harness::settings;

/// Permissions to attach files and to react.
const ATTACH_AND_REACT: u64 = 1 << 15 | 1 << 6;

#[tokio::test(flavor = "multi_thread")]
async fn missing_settings_are_named() {
    let fake = FakeDiscord::start().await;
    let connector = DiscordConnector::new(settings(&fake)).unwrap();
    assert_eq!(connector.check(&ExpectedPlaces::default()).await.unwrap(), []);
    fake.refuse_intents();
    fake.make_public();
    fake.remove_permissions(GUILD_ID, ATTACH_AND_REACT);
    let problems = connector.check(&ExpectedPlaces::default()).await.unwrap();
    let texts: Vec<&str> = problems.iter().map(|problem| problem.problem.as_str()).collect();
    assert_eq!(texts.len(), 4);
    assert!(texts[0].contains("message content intent"), "{texts:?}");
    assert!(texts[1].contains("public bot") && !problems[1].is_fatal, "{problems:?}");
    assert!(texts[2].contains("Attach Files") && texts[2].contains("farm"), "{texts:?}");
    assert!(texts[3].contains("Add Reactions"), "{texts:?}");
    assert!(problems[2].advice.contains(&format!("client_id={APPLICATION_ID}")), "{problems:?}");
}

#[tokio::test(flavor = "multi_thread")]
async fn places_that_the_bot_does_not_see_are_named() {
    let fake = FakeDiscord::start().await;
    let connector = DiscordConnector::new(settings(&fake)).unwrap();
    let ids = |ids: [&str; 2]| ids.map(str::to_owned).to_vec();
    let places = ExpectedPlaces { channels: ids([CHANNEL_ID, "404"]), guilds: ids([GUILD_ID, "405"]) };
    let problems = connector.check(&places).await.unwrap();
    let texts: Vec<&str> = problems.iter().map(|problem| problem.problem.as_str()).collect();
    assert_eq!(
        texts,
        [
            "the bot is not in the server 405: it does not answer there",
            "the bot does not see the channel 404 (Unknown Channel): it does not answer there",
        ]
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn a_wrong_token_is_an_error() {
    let fake = FakeDiscord::start().await;
    let settings = DiscordSettings { bot_token: "wrong".to_owned(), ..settings(&fake) };
    let error = DiscordConnector::new(settings).unwrap().check(&ExpectedPlaces::default()).await.unwrap_err();
    assert!(matches!(error, ChatError::Revoked { .. }), "{error}");
}
