//! The example configs of herdctl that use a chat, in `tests/herdctl_chat`. The tests of the chat run each of them.

use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};

use cowhand_core::chat::ChatPlatform;
use cowhand_core::chat::ChatPlatform::{Discord, Slack};
use cowhand_core::chat::settings::AgentChat;
use cowhand_core::config::LoadedConfig;

use crate::{load_files, rendered};

/// An example, and its agents with the platforms to which each connects.
type Example = (&'static str, &'static [(&'static str, &'static [ChatPlatform])]);

const EXAMPLES: [Example; 13] = [
    ("bragdoc-developer", &[("developer", &[Discord])]),
    ("discord-chat-bot", &[("bot", &[Discord])]),
    ("discord-guild-mention", &[("guide", &[Discord])]),
    ("discord-quick-start", &[("helper", &[Discord])]),
    ("discord-two-agents", &[("support", &[Discord]), ("reviewer", &[Discord])]),
    ("discord-voice-and-files", &[("voice", &[Discord, Slack])]),
    ("multi-agent", &[("first", &[Discord]), ("second", &[Discord])]),
    ("price-checker", &[("checker", &[])]),
    ("slack-chat-bot", &[("bot", &[Slack])]),
    ("slack-direct-messages", &[("private", &[Slack])]),
    ("slack-quick-start", &[("helper", &[Slack])]),
    ("slack-two-agents", &[("support", &[Slack]), ("reviewer", &[Slack])]),
    (
        "star-trek-captains",
        &[
            ("kirk", &[Discord]),
            ("picard", &[Discord]),
            ("sisko", &[Discord]),
            ("janeway", &[Discord]),
            ("archer", &[Discord]),
            ("burnham", &[Discord]),
        ],
    ),
];

const VARIABLES: [(&str, &str); 7] = [
    ("GUILD", "1234567890123456789"),
    ("CHANNEL", "9876543210987654321"),
    ("SECOND_CHANNEL", "9876543210987654322"),
    ("USER_ID", "1111111111111111111"),
    ("SLACK_CHANNEL", "C0123456789"),
    ("SECOND_SLACK_CHANNEL", "C0123456790"),
    ("SLACK_USER", "U0123456789"),
];

fn folder() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../../tests/herdctl_chat")
}

fn load_example(name: &str) -> LoadedConfig {
    let folder = folder().join(name);
    let mut files =
        vec![("herdctl.yaml".to_owned(), fs::read_to_string(folder.join("herdctl.yaml")).unwrap())];
    for agent in fs::read_dir(folder.join("agents")).unwrap() {
        let path = agent.unwrap().path();
        let name = format!("agents/{}", path.file_name().unwrap().to_str().unwrap());
        files.push((name, fs::read_to_string(path).unwrap()));
    }
    let files: Vec<(&str, &str)> = files.iter().map(|(name, text)| (name.as_str(), text.as_str())).collect();
    load_files(&files, &VARIABLES)
}

#[test]
fn the_documented_examples_of_herdctl_load() {
    let found = fs::read_dir(folder()).unwrap();
    let found: BTreeSet<String> =
        found.map(|example| example.unwrap().file_name().into_string().unwrap()).collect();
    assert_eq!(found, EXAMPLES.map(|(name, _)| name.to_owned()).into());
    for (name, agents) in EXAMPLES {
        let loaded = load_example(name);
        assert_eq!(loaded.errors(), 0, "{name}: {}", rendered(&loaded));
        let others =
            loaded.problems.iter().filter(|problem| !problem.message.contains("may talk to this agent"));
        assert_eq!(others.count(), 0, "{name}: {}", rendered(&loaded));
        for (agent, (expected, platforms)) in loaded.roster.agents.iter().zip(agents) {
            assert_eq!(agent.name.as_str(), *expected, "{name}");
            let chat = agent.chat.clone().unwrap_or_default();
            let found: Vec<ChatPlatform> = chat.platforms.iter().map(|chat| chat.platform).collect();
            assert_eq!(found, *platforms, "{name}");
            let mut ids = chat.platforms.iter().flat_map(|chat| &chat.channels);
            assert!(
                ids.all(|channel| VARIABLES.iter().any(|(_, value)| *value == channel.id)),
                "{name}: {chat:?}"
            );
        }
        assert_eq!(loaded.roster.agents.len(), agents.len(), "{name}");
    }
}

/// `overrides` of the fleet add the chat and remove the hooks.
#[test]
fn a_herdctl_fleet_adds_a_chat_by_overrides() {
    let agents = load_example("multi-agent").roster.agents;
    let tokens: Vec<&str> =
        agents.iter().flat_map(|agent| agent.chat.iter().flat_map(AgentChat::secret_variables)).collect();
    assert_eq!(tokens, ["FIRST_TOKEN", "SECOND_TOKEN"]);
    assert_eq!(agents[0].hooks.after_run.len(), 0);
    assert!(agents.iter().all(|agent| agent.schedules[0].name.as_str() == "chat"));
}
