//! What an agent asks of a person while it runs: whether it may use a tool, or a question of its own.

use std::fmt;
use std::str::FromStr;

use jiff::{SignedDuration, Timestamp};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::Value;

use crate::actor::Actor;
use crate::id::{AgentName, IdError, JobId, JobName, ScheduleName};
use crate::word::written_as;

/// For so long an agent waits for an answer, if the config says nothing.
pub const ASK_TIMEOUT: SignedDuration = SignedDuration::from_hours(1);

/// For so long, all in all, the clock of an attempt stands still while its agent waits; or for as long as one answer may
/// take, if that is longer. Else an agent that asks on and on would never come to its end.
pub const LONGEST_STANDSTILL: SignedDuration = SignedDuration::from_hours(24);

/// The job, and which of its asks: `job-2026-01-05-a1b2c3.1`.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize, JsonSchema)]
#[serde(try_from = "String", into = "String")]
#[schemars(with = "String", extend("pattern" = r"^job-\d{4}-\d{2}-\d{2}-[a-z0-9]{6}\.[1-9]\d{0,8}$"))]
pub struct AskId {
    pub job: JobId,
    pub number: u32,
}

/// What people type to name an ask: as its id, with any name of its job.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct AskName {
    pub job: JobName,
    pub number: u32,
}

#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Ask {
    pub id: AskId,
    pub job: JobId,
    pub agent: AgentName,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub schedule: Option<ScheduleName>,
    pub attempt: u32,
    #[serde(flatten)]
    pub what: Asked,
    pub asked_at: Timestamp,
    /// Then the answer is no.
    pub expires_at: Timestamp,
    #[serde(flatten)]
    pub state: AskState,
}

/// What is asked.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(tag = "kind", rename_all = "snake_case")]
pub enum Asked {
    /// Whether it may use this tool like that; secrets that we know of are masked.
    Tool {
        tool: String,
        input: Value,
    },
    Question {
        question: String,
    },
}

/// How it stands.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(tag = "status", rename_all = "snake_case")]
pub enum AskState {
    Open,
    Allowed(Answered),
    Denied(Answered),
    /// In words.
    Answered(Answered),
    /// Nobody answered in time, which means no.
    Expired {
        answered_at: Timestamp,
    },
    /// The attempt ended before anybody answered.
    Ended {
        answered_at: Timestamp,
    },
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct Answered {
    pub answered_at: Timestamp,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub by: Option<Actor>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub message: Option<String>,
}

/// The word for how it stands.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum AskStatus {
    Open,
    Allowed,
    Denied,
    Answered,
    Expired,
    Ended,
}

written_as! {
    AskStatus {
        Open = "open", Allowed = "allowed", Denied = "denied", Answered = "answered", Expired = "expired", Ended = "ended",
    }
}

/// What a person says.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Answer {
    Allow { message: Option<String> },
    Deny { message: Option<String> },
    Text(String),
}

#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum AskRefused {
    #[error("{0} is a question; `cowhand answer {0} TEXT` answers it")]
    NeedsText(AskId),
    #[error("{0} is about a tool; `cowhand approve {0}` or `cowhand deny {0}` answers it")]
    NeedsVerdict(AskId),
    #[error("{id} is {status} already")]
    Over { id: AskId, status: AskStatus },
}

impl Ask {
    /// The only way to answer it. A question may be denied, too: then the agent has to go on without an answer.
    pub fn answer(&mut self, answer: Answer, by: Option<Actor>, now: Timestamp) -> Result<(), AskRefused> {
        if !self.is_open(now) {
            let status = if self.state == AskState::Open { AskStatus::Expired } else { self.state.status() };
            return Err(AskRefused::Over { id: self.id.clone(), status });
        }
        let answered = |message| Answered { answered_at: now, by, message };
        self.state = match (&self.what, answer) {
            (Asked::Tool { .. }, Answer::Allow { message }) => AskState::Allowed(answered(message)),
            (_, Answer::Deny { message }) => AskState::Denied(answered(message)),
            (Asked::Question { .. }, Answer::Text(text)) => AskState::Answered(answered(Some(text))),
            (Asked::Question { .. }, Answer::Allow { .. }) => {
                return Err(AskRefused::NeedsText(self.id.clone()));
            }
            (Asked::Tool { .. }, Answer::Text(_)) => return Err(AskRefused::NeedsVerdict(self.id.clone())),
        };
        Ok(())
    }

    /// Whether somebody can still answer it.
    pub fn is_open(&self, now: Timestamp) -> bool {
        self.state == AskState::Open && now < self.expires_at
    }
}

/// For how long an attempt, since it began, waited for at least one of these to be answered.
pub fn waited(asks: &[Ask], since: Timestamp, now: Timestamp) -> SignedDuration {
    let end = |ask: &Ask| ask.state.since().unwrap_or(ask.expires_at).min(now);
    let mut spans: Vec<_> = asks.iter().map(|ask| (ask.asked_at, end(ask))).collect();
    spans.sort_unstable();
    let (mut waited, mut counted) = (SignedDuration::ZERO, since);
    for (from, to) in spans {
        let from = from.max(counted);
        if to > from {
            waited += to.duration_since(from);
            counted = to;
        }
    }
    waited
}

/// What a rule denied, so that nobody was asked.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct Denial {
    pub tool: String,
    /// As it is written in the config.
    pub rule: String,
    /// How often the job tried.
    pub times: u32,
    pub first_at: Timestamp,
    pub last_at: Timestamp,
}

impl Asked {
    /// In one or two words.
    pub fn label(&self) -> &str {
        match self {
            Self::Tool { tool, .. } => tool,
            Self::Question { .. } => "question",
        }
    }
}

impl AskState {
    /// Since when nobody waits for it any more; none while somebody does.
    pub const fn since(&self) -> Option<Timestamp> {
        match self {
            Self::Open => None,
            Self::Allowed(Answered { answered_at, .. })
            | Self::Denied(Answered { answered_at, .. })
            | Self::Answered(Answered { answered_at, .. })
            | Self::Expired { answered_at }
            | Self::Ended { answered_at } => Some(*answered_at),
        }
    }

    pub const fn status(&self) -> AskStatus {
        match self {
            Self::Open => AskStatus::Open,
            Self::Allowed(_) => AskStatus::Allowed,
            Self::Denied(_) => AskStatus::Denied,
            Self::Answered(_) => AskStatus::Answered,
            Self::Expired { .. } => AskStatus::Expired,
            Self::Ended { .. } => AskStatus::Ended,
        }
    }
}

impl fmt::Display for AskId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}.{}", self.job, self.number)
    }
}

impl FromStr for AskId {
    type Err = IdError;

    fn from_str(text: &str) -> Result<Self, IdError> {
        let (job, number) = parts(text)?;
        Ok(Self { job, number })
    }
}

impl fmt::Display for AskName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}.{}", self.job, self.number)
    }
}

impl FromStr for AskName {
    type Err = IdError;

    fn from_str(text: &str) -> Result<Self, IdError> {
        let (job, number) = parts(text)?;
        Ok(Self { job, number })
    }
}

/// The job and the number.
fn parts<J: FromStr>(text: &str) -> Result<(J, u32), IdError> {
    let refused = || IdError::Ask(text.to_owned());
    let (job, number) = text.rsplit_once('.').ok_or_else(refused)?;
    let plain = !number.starts_with('0') && number.len() < 10 && number.bytes().all(|b| b.is_ascii_digit());
    let number = if plain { number.parse().map_err(|_| refused())? } else { return Err(refused()) };
    Ok((job.parse().map_err(|_| refused())?, number))
}

impl From<AskId> for String {
    fn from(id: AskId) -> Self {
        id.to_string()
    }
}

impl TryFrom<String> for AskId {
    type Error = IdError;

    fn try_from(text: String) -> Result<Self, IdError> {
        text.parse()
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn at(second: i64) -> Timestamp {
        Timestamp::from_second(second).unwrap()
    }

    fn ask(what: Asked) -> Ask {
        let id: AskId = "job-2026-01-05-a1b2c3.1".parse().unwrap();
        let (job, agent) = (id.job.clone(), "coder".parse().unwrap());
        let (asked_at, expires_at, state) = (at(0), at(10), AskState::Open);
        Ask { id, job, agent, schedule: None, attempt: 1, what, asked_at, expires_at, state }
    }

    #[test]
    fn ids() {
        for text in ["job-2026-01-05-a1b2c3.1", "job-2026-01-05-a1b2c3.120"] {
            assert_eq!(text.parse::<AskId>().unwrap().to_string(), text);
        }
        for text in [
            "",
            "job-2026-01-05-a1b2c3",
            "job-2026-01-05-a1b2c3.",
            "job-2026-01-05-a1b2c3.0",
            "job-2026-01-05-a1b2c3.01",
            "job-2026-01-05-a1b2c3.+1",
            "job-2026-01-05-a1b2c3.99999999999",
            "x.1",
        ] {
            assert!(text.parse::<AskId>().is_err(), "{text}");
        }
    }

    /// The attempt began at 100; it is 200.
    #[test]
    fn how_long_it_waited() {
        let open = |from, until| Ask {
            asked_at: at(from),
            expires_at: at(until),
            ..ask(Asked::Question { question: "Which?".into() })
        };
        let over = |from, to| Ask { state: AskState::Ended { answered_at: at(to) }, ..open(from, 900) };
        for (asks, expected) in [
            (vec![], 0),
            (vec![over(110, 130)], 20),
            (vec![open(110, 900)], 90),
            // Nobody has said yet that its time is over.
            (vec![open(110, 150)], 40),
            // Those that wait together wait once.
            (vec![over(110, 150), over(120, 130), over(140, 160)], 50),
            (vec![over(150, 160), over(110, 120), open(190, 900)], 30),
            // Of an attempt before.
            (vec![over(10, 90), over(50, 110)], 10),
        ] {
            assert_eq!(waited(&asks, at(100), at(200)).as_secs(), expected, "{asks:?}");
        }
    }

    #[test]
    fn answers() {
        let tool = Asked::Tool { tool: "Bash".into(), input: json!({ "command": "ls" }) };
        let question = Asked::Question { question: "Which?".into() };
        let (allow, deny) = (Answer::Allow { message: None }, Answer::Deny { message: Some("no".into()) });
        let text = Answer::Text("that".into());
        for (what, answer, now, expected) in [
            (&tool, &allow, 1, Ok(AskStatus::Allowed)),
            (&tool, &deny, 1, Ok(AskStatus::Denied)),
            (
                &tool,
                &text,
                1,
                Err(
                    "job-2026-01-05-a1b2c3.1 is about a tool; `cowhand approve job-2026-01-05-a1b2c3.1` or `cowhand deny job-2026-01-05-a1b2c3.1` answers it",
                ),
            ),
            (
                &question,
                &allow,
                1,
                Err(
                    "job-2026-01-05-a1b2c3.1 is a question; `cowhand answer job-2026-01-05-a1b2c3.1 TEXT` answers it",
                ),
            ),
            (&question, &text, 9, Ok(AskStatus::Answered)),
            (&question, &deny, 9, Ok(AskStatus::Denied)),
            (&tool, &allow, 10, Err("job-2026-01-05-a1b2c3.1 is expired already")),
        ] {
            let mut ask = ask(what.clone());
            let answered = ask.answer(answer.clone(), None, at(now)).map(|()| ask.state.status());
            assert_eq!(answered.map_err(|refused| refused.to_string()), expected.map_err(str::to_owned));
        }
        let mut twice = ask(tool);
        twice.answer(allow, None, at(1)).unwrap();
        let refused = twice.answer(deny, None, at(2)).unwrap_err();
        assert_eq!(refused.to_string(), "job-2026-01-05-a1b2c3.1 is allowed already");
    }

    #[test]
    fn one_flat_shape() {
        let mut ask = ask(Asked::Tool { tool: "Bash".into(), input: json!({ "command": "ls" }) });
        ask.answer(Answer::Allow { message: None }, None, at(1)).unwrap();
        let written = serde_json::to_string(&ask).unwrap();
        let expected = r#"{"id":"job-2026-01-05-a1b2c3.1","job":"job-2026-01-05-a1b2c3","agent":"coder","attempt":1,"kind":"tool","tool":"Bash","input":{"command":"ls"},"asked_at":"1970-01-01T00:00:00Z","expires_at":"1970-01-01T00:00:10Z","status":"allowed","answered_at":"1970-01-01T00:00:01Z"}"#;
        assert_eq!(written, expected);
        assert_eq!(serde_json::from_str::<Ask>(&written).unwrap(), ask);
    }
}
