//! Checks the tokens, scopes, intents and permissions of chat bots.

use std::time::Duration;

use cowhand_chat::{ExpectedPlaces, SetupProblem};
use cowhand_core::duration;
use cowhand_core::id::AgentName;
use cowhand_core::roster::Roster;
use futures_util::future::join_all;

use super::Finding;
use crate::chat_bots::{BotSettings, ConnectorError, bots_of};
use cowhand_work::WorkSources;

/// Time limit for the checks of one bot.
const CHECK_TIMEOUT: Duration = Duration::from_secs(30);

/// Checks each bot of the config with requests to its platform.
pub(super) async fn check(sources: &WorkSources, roster: &Roster) -> Vec<Finding> {
    let bots = bots_of(roster, sources);
    join_all(bots.iter().map(|(bot, agents)| check_bot(bot, agents, roster))).await.concat()
}

async fn check_bot(bot: &BotSettings, agents: &[AgentName], roster: &Roster) -> Vec<Finding> {
    let what = format!("chat bot {}", bot.key);
    let failed = |reason: String| vec![Finding::of(what.clone(), Err(reason))];
    let connector = match bot.connector(Vec::new()) {
        Ok(connector) => connector,
        Err(error @ ConnectorError::NoToken(_)) => {
            return failed(format!(
                "{error}; set it in the environment of the daemon, and start the daemon again"
            ));
        }
        Err(error) => return failed(error.to_string()),
    };
    match tokio::time::timeout(CHECK_TIMEOUT, connector.check(&places_of(bot, agents, roster))).await {
        Err(_) => failed(format!("no answer within {}", duration::exact(CHECK_TIMEOUT))),
        Ok(Err(error)) => failed(error.to_string()),
        Ok(Ok(problems)) if problems.is_empty() => {
            let agents: Vec<&str> = agents.iter().map(AgentName::as_str).collect();
            let detail = format!("no token or permission is missing; used by {}", agents.join(", "));
            vec![Finding::works(what, detail)]
        }
        Ok(Ok(problems)) => problems.into_iter().map(|problem| finding(&what, problem)).collect(),
    }
}

/// Returns the places of the config in which the bot has to answer, each once.
fn places_of(bot: &BotSettings, agents: &[AgentName], roster: &Roster) -> ExpectedPlaces {
    let mut places = ExpectedPlaces::default();
    let chats = agents.iter().filter_map(|name| roster.agent(name)?.chat.as_ref()?.on(bot.platform));
    for chat in chats {
        places.channels.extend(chat.channels.iter().map(|channel| channel.id.clone()));
        places.guilds.extend(chat.guilds.iter().map(|guild| guild.id.clone()));
    }
    for ids in [&mut places.channels, &mut places.guilds] {
        ids.sort_unstable();
        ids.dedup();
    }
    places
}

fn finding(what: &str, SetupProblem { problem, advice, is_fatal }: SetupProblem) -> Finding {
    let detail = format!("{problem}; {advice}");
    if is_fatal {
        Finding::of(what, Err(detail))
    } else {
        Finding { warning: true, ..Finding::works(what, detail) }
    }
}
