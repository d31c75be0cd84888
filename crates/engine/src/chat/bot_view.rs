//! The bots of a fleet with the states of their connections, as users see them.

use cowhand_core::chat::ChatPlatform;
use cowhand_core::chat::settings::PlatformChat;
use cowhand_core::duration;
use cowhand_core::id::{AgentName, JobId};
use cowhand_core::roster::{Agent, Roster};
use jiff::{SignedDuration, Timestamp};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use cowhand_store::{ChatBotRecord, ChatBotState, ChatCounts, RefusedAnswers, Store, StoreError};

/// Advice about a bot that its platform refuses, or whose tokens are missing.
pub(super) const REFUSED_ADVICE: &str = "`cowhand doctor` names what is missing; after the correction, `cowhand reload` connects the bot again, or `cowhand \
     restart` if a variable in the environment of the daemon was changed";

/// Age up to which refusals of parts of answers are shown.
const REFUSALS_SINCE: SignedDuration = SignedDuration::from_hours(24);

/// Bot of the fleet with the state of its connection.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct ChatBotView {
    /// Platform, and environment variable that contains the token of the bot: `slack:SLACK_BOT_TOKEN`.
    pub bot: String,
    pub platform: ChatPlatform,
    /// Agents that use the bot.
    pub agents: Vec<AgentName>,
    pub status: ChatBotStatus,
    /// Name of the account as which the bot is connected.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub account: Option<String>,
    /// Reason why the bot is not connected.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub problem: Option<String>,
    /// What a person has to do about `problem`; absent if cowhand tries again by itself.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub advice: Option<String>,
    /// Node that has the lease of the bot.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub node: Option<String>,
    /// Time of the last change of `status` or `problem`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub since: Option<Timestamp>,
    /// Number of answers of its agents on the platform that are not complete.
    pub open_answers: u32,
    /// Number of received messages that are stored and not handled yet.
    pub unhandled_messages: u32,
    /// Number of answers of its agents on the platform of which the platform has refused a part for good in the last 24
    /// hours.
    #[serde(default)]
    pub refused_answers: u32,
    /// The last of these refusals.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub last_refusal: Option<ChatRefusalView>,
}

/// Refusal of a part of an answer by a platform.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct ChatRefusalView {
    pub at: Timestamp,
    pub reason: String,
    /// Job of the answer; absent if no job ran.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub job: Option<JobId>,
}

/// State of the connection of a bot.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum ChatBotStatus {
    Connected,
    /// Not connected now; cowhand tries to connect.
    Connecting,
    /// The platform refuses the bot, or its tokens are missing.
    Refused,
    /// No daemon runs.
    Stopped,
}

/// Returns the bots of the config in its order. `is_alone` is true if no daemon runs here. `this_node` is the node of the
/// state folder: if no daemon runs here, its lease of a bot is left over from a daemon that was killed.
pub async fn chat_bots(
    store: &Store,
    roster: &Roster,
    is_alone: bool,
    this_node: Option<&str>,
    now: Timestamp,
) -> Result<Vec<ChatBotView>, StoreError> {
    let of_agent = |agent: &Agent| agent.chat.clone().into_iter().flat_map(|chat| chat.platforms);
    let used: Vec<String> = roster.agents.iter().flat_map(of_agent).map(|chat| chat.bot_key()).collect();
    if used.is_empty() {
        return Ok(Vec::new());
    }
    let (mut records, counts) = (store.chat_bots().await?, store.chat_counts(now - REFUSALS_SINCE).await?);
    records.retain(|record| used.contains(&record.bot));
    let mut views: Vec<ChatBotView> = Vec::new();
    for agent in &roster.agents {
        for chat in of_agent(agent) {
            let bot = bot_of(&records, &agent.name, &chat);
            match views.iter_mut().find(|view| view.bot == bot) {
                Some(view) => view.agents.push(agent.name.clone()),
                None => views.push(ChatBotView::new(bot, chat.platform, agent.name.clone(), is_alone)),
            }
        }
    }
    Ok(views
        .into_iter()
        .map(|view| {
            let record = records.iter().position(|record| record.bot == view.bot);
            let record = record.map(|index| records.swap_remove(index));
            let view = view.with_counts(&counts, record.as_ref());
            let is_left_over = |record: &ChatBotRecord| is_alone && this_node == Some(record.node.as_str());
            view.with_record(record.filter(|record| !is_left_over(record)), is_alone, now)
        })
        .collect())
}

/// Returns the key of the bot that an agent uses. A daemon has recorded it, because only its environment shows whether two
/// variables contain the same token.
fn bot_of(records: &[ChatBotRecord], agent: &AgentName, chat: &PlatformChat) -> String {
    let own = chat.bot_key();
    let is_of_agent =
        |record: &&ChatBotRecord| record.platform == chat.platform && record.agents.contains(agent);
    let recorded = records.iter().filter(is_of_agent).max_by_key(|record| (record.until, record.bot == own));
    recorded.map_or(own, |record| record.bot.clone())
}

impl ChatBotView {
    /// Returns the view of a bot that has never been connected.
    fn new(bot: String, platform: ChatPlatform, agent: AgentName, is_alone: bool) -> Self {
        Self {
            bot,
            platform,
            agents: vec![agent],
            status: if is_alone { ChatBotStatus::Stopped } else { ChatBotStatus::Connecting },
            account: None,
            problem: None,
            advice: None,
            node: None,
            since: None,
            open_answers: 0,
            unhandled_messages: 0,
            refused_answers: 0,
            last_refusal: None,
        }
    }

    fn with_counts(self, counts: &ChatCounts, record: Option<&ChatBotRecord>) -> Self {
        let of_agent = |agent: &AgentName| counts.open_answers.get(&(agent.clone(), self.platform)).copied();
        let open_answers = self.agents.iter().filter_map(of_agent).sum();
        let inbox = record.and_then(|record| record.inbox.as_ref());
        let unhandled = inbox.and_then(|inbox| counts.unhandled_messages.get(inbox).copied());
        let refused = |agent: &AgentName| counts.refused_answers.get(&(agent.clone(), self.platform));
        let refused: Vec<&RefusedAnswers> = self.agents.iter().filter_map(refused).collect();
        let refused_answers = refused.iter().map(|refused| refused.count).sum();
        let last = refused.into_iter().max_by_key(|refused| refused.last_at);
        let last_refusal = last.map(|last| ChatRefusalView {
            at: last.last_at,
            reason: last.last_reason.clone(),
            job: last.last_job.clone(),
        });
        let unhandled_messages = unhandled.unwrap_or_default();
        Self { open_answers, unhandled_messages, refused_answers, last_refusal, ..self }
    }

    fn with_record(self, record: Option<ChatBotRecord>, is_alone: bool, now: Timestamp) -> Self {
        let Some(ChatBotRecord { node, state, changed_at, until, .. }) = record else { return self };
        let is_held = until > now;
        // Without a daemon here, only the lease shows that a daemon of another node runs.
        if state == ChatBotState::Stopped || (is_alone && !is_held) {
            return self;
        }
        let lost = || Some(format!("node {node} was connected, and does not renew its lease any more"));
        let (status, account, problem) = match state {
            ChatBotState::Connected { account } if is_held => (ChatBotStatus::Connected, Some(account), None),
            ChatBotState::Connected { .. } => (ChatBotStatus::Connecting, None, lost()),
            ChatBotState::Connecting { problem } => (ChatBotStatus::Connecting, None, problem),
            ChatBotState::Refused { reason } => (ChatBotStatus::Refused, None, Some(reason)),
            ChatBotState::Stopped => return self,
        };
        let advice = (status == ChatBotStatus::Refused).then(|| REFUSED_ADVICE.to_owned());
        Self { status, account, problem, advice, node: Some(node), since: Some(changed_at), ..self }
    }

    /// Describes the connection, for example `is connected as cowhand`. `this_node` is the node of the reader; only
    /// another node is named.
    pub(super) fn connection_in_words(&self, this_node: Option<&str>, now: Timestamp) -> String {
        let problem = self.problem.as_deref().unwrap_or("no reason is known");
        let when =
            self.since.map(|since| format!(" {}", duration::relative_to_now(now, since))).unwrap_or_default();
        let node = self.node.as_deref().filter(|node| Some(*node) != this_node);
        let node = node.map(|node| format!(" by node {node}")).unwrap_or_default();
        match self.status {
            ChatBotStatus::Connected => {
                format!("is connected as {}{node}", self.account.as_deref().unwrap_or_default())
            }
            ChatBotStatus::Connecting if self.problem.is_none() => format!("is being connected{node}"),
            ChatBotStatus::Connecting => {
                format!(
                    "is not connected, and cowhand tries again; the last try failed{when}{node}: {problem}"
                )
            }
            ChatBotStatus::Refused => {
                let advice = self.advice.as_deref().unwrap_or_default();
                format!("was refused{when}{node}: {problem}; {advice}")
            }
            ChatBotStatus::Stopped => "is not connected, because no daemon runs".to_owned(),
        }
    }

    /// Describes the connection, its incomplete answers and unhandled messages, and the answers of which the platform has
    /// refused a part. `this_node` is the node of the reader; only another node is named.
    pub fn state_in_words(&self, this_node: Option<&str>, now: Timestamp) -> String {
        let connection = Some(self.connection_in_words(this_node, now));
        let parts = [connection, self.open_in_words(), self.refusals_in_words(now)];
        parts.into_iter().flatten().collect::<Vec<_>>().join("; ")
    }

    /// Describes the answers of which the platform has refused a part, with the next step; none if there are none.
    fn refusals_in_words(&self, now: Timestamp) -> Option<String> {
        let ChatRefusalView { at, reason, job } = self.last_refusal.as_ref()?;
        let answers = match self.refused_answers {
            1 => "1 answer of the last day lacks a part in the chat".to_owned(),
            count => format!("{count} answers of the last day lack a part in the chat"),
        };
        let when = duration::relative_to_now(now, *at);
        let step = job.as_ref().map(|job| format!("; `cowhand logs {job}` prints its whole output"));
        Some(format!("{answers}; the last refusal was {when}: {reason}{}", step.unwrap_or_default()))
    }

    /// Describes its incomplete answers and unhandled messages; none if there are none.
    fn open_in_words(&self) -> Option<String> {
        let counted = |count: u32, one: &str, more: &str| match count {
            0 => None,
            1 => Some(format!("1 {one}")),
            count => Some(format!("{count} {more}")),
        };
        let answers = counted(self.open_answers, "answer is not complete", "answers are not complete");
        let messages = counted(
            self.unhandled_messages,
            "message is stored and not handled yet",
            "messages are stored and not handled yet",
        );
        let parts: Vec<String> = messages.into_iter().chain(answers).collect();
        (!parts.is_empty()).then(|| parts.join(", "))
    }
}

impl ChatBotStatus {
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Connected => "connected",
            Self::Connecting => "connecting",
            Self::Refused => "refused",
            Self::Stopped => "stopped",
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_record_the_lease_and_the_daemon_decide_the_state() {
        let now: Timestamp = "2026-01-05T09:00:00Z".parse().unwrap();
        let minute = SignedDuration::from_mins(1);
        let record = |state: ChatBotState, lease: SignedDuration| ChatBotRecord {
            bot: "slack:T".into(),
            node: "n1".into(),
            platform: ChatPlatform::Slack,
            agents: Vec::new(),
            state,
            changed_at: now - minute,
            until: now + lease,
            inbox: None,
        };
        let connected = || ChatBotState::Connected { account: "bot".into() };
        let refused = || ChatBotState::Refused { reason: "bad token".into() };
        let lost = || ChatBotState::Connecting { problem: Some("no answer".into()) };
        let refusal = format!("was refused 1m ago: bad token; {REFUSED_ADVICE}");
        let gone = "is not connected, and cowhand tries again; the last try failed 1m ago: node n1 was connected, \
                    and does not renew its lease any more";
        let failed = "is not connected, and cowhand tries again; the last try failed 1m ago: no answer";
        let stopped = "is not connected, because no daemon runs";
        for (record, is_alone, expected) in [
            (None, false, "is being connected"),
            (None, true, stopped),
            (Some(record(connected(), minute)), false, "is connected as bot"),
            (Some(record(connected(), minute)), true, "is connected as bot"),
            (Some(record(connected(), -minute)), false, gone),
            (Some(record(connected(), -minute)), true, stopped),
            (Some(record(lost(), minute)), false, failed),
            (Some(record(lost(), -minute)), true, stopped),
            (Some(record(refused(), -minute)), false, refusal.as_str()),
            (Some(record(refused(), -minute)), true, stopped),
            (Some(record(ChatBotState::Stopped, minute)), false, "is being connected"),
            (Some(record(ChatBotState::Stopped, -minute)), true, stopped),
        ] {
            let case = format!("{record:?} {is_alone}");
            let view =
                ChatBotView::new("slack:T".into(), ChatPlatform::Slack, "a".parse().unwrap(), is_alone);
            let view = view.with_record(record, is_alone, now);
            assert_eq!(view.connection_in_words(Some("n1"), now), expected, "{case}");
        }
    }
}
