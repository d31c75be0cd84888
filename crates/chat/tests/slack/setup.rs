//! The check of tokens and scopes.

use std::sync::Arc;

use cowhand_chat::slack::{SlackConnector, SlackSettings};
use cowhand_chat::{Connector, ExpectedPlaces};
use cowhand_testing::slack::{APP_TOKEN, BOT_TOKEN, FakeSlack};

use crate::{connector, workspace};

async fn problems(connector: &Arc<SlackConnector>) -> Vec<String> {
    let problems = connector.check(&ExpectedPlaces::default()).await.unwrap();
    assert!(problems.iter().all(|problem| !problem.advice.is_empty()));
    problems.into_iter().map(|problem| problem.problem).collect()
}

fn with_tokens(slack: &FakeSlack, bot_token: &str, app_token: &str) -> Arc<SlackConnector> {
    let settings = SlackSettings {
        bot_token: bot_token.to_owned(),
        app_token: app_token.to_owned(),
        api_url: Some(slack.url()),
    };
    Arc::new(SlackConnector::new(settings).unwrap())
}

#[tokio::test]
async fn check_names_what_is_missing() {
    let slack = workspace().await;
    let good = connector(&slack.url());
    assert!(problems(&good).await.is_empty());
    slack.scopes(&[
        "app_mentions:read",
        "chat:write",
        "channels:history",
        "im:history",
        "users:read",
        "files:read",
    ]);
    let missing = problems(&good).await;
    assert_eq!(missing.len(), 3, "{missing:#?}");
    for (problem, scope) in missing.iter().zip(["groups:history", "reactions:write", "files:write"]) {
        assert!(problem.contains(scope), "{problem}");
    }

    let mixed_up = with_tokens(&slack, APP_TOKEN, BOT_TOKEN);
    let problems_of_tokens = problems(&mixed_up).await;
    assert_eq!(problems_of_tokens.len(), 2, "{problems_of_tokens:#?}");
    assert!(problems_of_tokens[1].contains("app token (not_allowed_token_type)"), "{problems_of_tokens:#?}");
    let wrong = with_tokens(&slack, "xoxb-wrong", APP_TOKEN);
    assert!(problems(&wrong).await[0].contains("bot token (invalid_auth)"));
}

#[tokio::test]
async fn check_names_channels_that_the_bot_does_not_see() {
    let slack = workspace().await;
    let places = ExpectedPlaces { channels: vec!["C1".to_owned(), "C404".to_owned()], guilds: Vec::new() };
    let problems = connector(&slack.url()).check(&places).await.unwrap();
    let texts: Vec<&str> = problems.iter().map(|problem| problem.problem.as_str()).collect();
    assert_eq!(
        texts,
        ["the bot does not see the channel C404 (channel_not_found): it does not answer there"]
    );
}
