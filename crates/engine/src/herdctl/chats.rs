//! `discord-sessions/<agent>.yaml` and `slack-sessions/<agent>.yaml`: the session of each channel in which people talked
//! to an agent.

use std::path::Path;

use cowhand_core::chat::ChatPlatform;
use cowhand_core::config::node::Node;
use cowhand_core::delivery::conversation;
use cowhand_core::id::AgentName;
use cowhand_core::job::TriggerType;
use jiff::Timestamp;

use super::error::HerdctlFileError;
use super::sessions::EndedSession;
use super::{HerdctlFolder, field, yaml};
use cowhand_store::{History, PastJob, PastSession};

/// Makes a job with the session of each channel, so that the next message in the channel continues the session.
pub(super) fn read(folder: &HerdctlFolder, history: &mut History) {
    for (platform, trigger_type) in
        [(ChatPlatform::Discord, TriggerType::Discord), (ChatPlatform::Slack, TriggerType::Slack)]
    {
        let files = match folder.files(&format!("{platform}-sessions"), "yaml") {
            Ok(files) => files,
            Err(error) => {
                history
                    .notes
                    .push(format!("the sessions of herdctl on {platform} cannot be listed: {error}"));
                continue;
            }
        };
        for file in files {
            match jobs(folder, &file, platform, trigger_type) {
                Ok(jobs) => history.jobs.extend(jobs),
                Err(why) => history.notes.push(format!("{} is not imported: {why}", file.display())),
            }
        }
    }
}

fn jobs(
    folder: &HerdctlFolder,
    file: &Path,
    platform: ChatPlatform,
    trigger_type: TriggerType,
) -> Result<Vec<PastJob>, HerdctlFileError> {
    let text = folder.text(file)?.ok_or(HerdctlFileError::Gone)?;
    let sessions = sessions(&text, platform)?;
    let job = |session: ChannelSession| {
        let ended = EndedSession {
            agent: session.agent,
            trigger_type,
            session_id: session.session_id,
            created_at: session.last_message_at,
            ended_at: session.last_message_at,
            summary: "A conversation under herdctl.",
            chat: Some(session.conversation),
        };
        Ok(PastJob { job: ended.job()?, session: Some(PastSession { directory: None }) })
    };
    sessions.into_iter().map(job).collect()
}

/// The session of an agent in a channel.
#[derive(Debug, PartialEq, Eq)]
struct ChannelSession {
    agent: AgentName,
    /// Name of the conversation, as a message in the channel has it.
    conversation: String,
    session_id: String,
    last_message_at: Timestamp,
}

fn sessions(text: &str, platform: ChatPlatform) -> Result<Vec<ChannelSession>, HerdctlFileError> {
    let node = yaml(text)?;
    let required = |node: &Node, key: &str| {
        field::<String>(node, key)?.ok_or_else(|| HerdctlFileError::Missing(key.to_owned()))
    };
    let agent = required(&node, "agentName")?;
    let agent: AgentName = agent.parse().map_err(|_| HerdctlFileError::InvalidAgentName(agent))?;
    let channels = node.get("channels").and_then(Node::entries);
    let channels = channels.ok_or_else(|| HerdctlFileError::Missing("channels".to_owned()))?;
    let session = |(channel, entry): (&String, &_)| {
        let node: &cowhand_core::config::node::Entry = entry;
        let at = field(&node.node, "lastMessageAt")?;
        Ok(ChannelSession {
            agent: agent.clone(),
            conversation: conversation(platform, channel, None),
            session_id: required(&node.node, "sessionId")?,
            last_message_at: at.ok_or_else(|| HerdctlFileError::Missing("lastMessageAt".to_owned()))?,
        })
    };
    channels.iter().map(session).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_sessions_of_channels_are_read() {
        let text = "version: 3\nagentName: sub.helper\nchannels:\n  \"345678901234567890\":\n    sessionId: s-1\n    \
                    lastMessageAt: \"2026-08-01T10:00:00.123Z\"\n  D1: {sessionId: s-2, lastMessageAt: 2026-08-02T10:00:00Z}\n";
        let found = sessions(text, ChatPlatform::Discord).unwrap();
        let facts: Vec<_> = found
            .iter()
            .map(|session| {
                (
                    session.conversation.as_str(),
                    session.session_id.as_str(),
                    session.last_message_at.to_string(),
                )
            })
            .collect();
        assert_eq!(
            facts,
            [
                ("discord 345678901234567890", "s-1", "2026-08-01T10:00:00.123Z".to_owned()),
                ("discord D1", "s-2", "2026-08-02T10:00:00Z".to_owned()),
            ]
        );
        assert_eq!(found[0].agent.as_str(), "sub.helper");
        for (text, expected) in [
            ("", "it has no `agentName`, or its value has the wrong form"),
            ("channels: {}", "it has no `agentName`, or its value has the wrong form"),
            ("agentName: {a: b}\nchannels: {}", "it has no `agentName`, or its value has the wrong form"),
            ("agentName: a", "it has no `channels`, or its value has the wrong form"),
            ("agentName: ../a\nchannels: {}", "\"../a\" is not a valid name of an agent"),
            (
                "agentName: a\nchannels: {C1: {lastMessageAt: 2026-08-02T10:00:00Z}}",
                "it has no `sessionId`, or its value has the wrong form",
            ),
            (
                "agentName: a\nchannels: {C1: {sessionId: s}}",
                "it has no `lastMessageAt`, or its value has the wrong form",
            ),
            (
                "agentName: a\nchannels: {C1: {sessionId: s, lastMessageAt: soon}}",
                "`lastMessageAt: soon` cannot be read",
            ),
        ] {
            assert_eq!(sessions(text, ChatPlatform::Slack).unwrap_err().to_string(), expected, "{text}");
        }
    }
}
