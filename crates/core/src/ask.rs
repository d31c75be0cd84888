//! Asks: a running agent asks a person whether it may use a tool, or asks any other question.

use std::fmt;
use std::str::FromStr;

use jiff::{SignedDuration, Timestamp};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::Value;

use crate::actor::Actor;
use crate::id::{AgentName, IdError, JobId, JobName, ScheduleName};
use crate::word::written_as;

/// Default time that an agent waits for an answer.
pub const ASK_TIMEOUT: SignedDuration = SignedDuration::from_hours(1);

/// Maximum number of options of a question.
pub const MAX_ASK_OPTIONS: usize = 10;
/// Maximum length of an option. It is the label of a button.
pub const MAX_ASK_OPTION_CHARS: usize = 75;

/// Maximum total answer wait that does not count for the time limit of an attempt. If the `ask_timeout` of the agent is
/// longer, that timeout is the maximum. Without a maximum, an agent that asks again and again would never reach its
/// time limit.
pub const MAX_PAUSED_TIME: SignedDuration = SignedDuration::from_hours(24);

/// Id of an ask: the id of its job and its number in that job, for example `job-2026-01-05-a1b2c3.1`.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize, JsonSchema)]
#[serde(try_from = "String", into = "String")]
#[schemars(with = "String", extend("pattern" = r"^job-\d{4}-\d{2}-\d{2}-[a-z0-9]{6}\.[1-9]\d{0,8}$"))]
pub struct AskId {
    pub job: JobId,
    pub number: u32,
}

/// Name by which people refer to an ask: like its id, but with any name of the job ([`JobName`]).
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
    pub what: AskSubject,
    pub asked_at: Timestamp,
    /// Time at which this ask expires if it is still open.
    pub expires_at: Timestamp,
    #[serde(flatten)]
    pub state: AskState,
}

/// Subject of an ask.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(tag = "kind", rename_all = "snake_case")]
#[schemars(rename = "Asked")]
pub enum AskSubject {
    /// Permission to use this tool with this input. Known secrets are masked.
    Tool { tool: String, input: Value },
    Question {
        question: String,
        /// Answers that the agent proposes. Every other text is an answer, too.
        #[serde(default, skip_serializing_if = "Vec::is_empty")]
        options: Vec<String>,
    },
}

/// State of an ask.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(tag = "status", rename_all = "snake_case")]
pub enum AskState {
    Open,
    Allowed(Answered),
    Denied(Answered),
    /// Answered with a text.
    Answered(Answered),
    /// Not answered in time, which means denied.
    Expired {
        answered_at: Timestamp,
    },
    /// Not answered before the attempt ended.
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

/// State of an ask, without the data of the state.
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

/// Answer of a person to an ask.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum AskAnswer {
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
    /// Records the answer of a person to this ask. A question can also be denied; the agent then has to continue
    /// without an answer.
    pub fn answer(&mut self, answer: AskAnswer, by: Option<Actor>, now: Timestamp) -> Result<(), AskRefused> {
        if !self.is_open(now) {
            let status = if self.state == AskState::Open { AskStatus::Expired } else { self.state.status() };
            return Err(AskRefused::Over { id: self.id.clone(), status });
        }
        let answered = |message| Answered { answered_at: now, by, message };
        self.state = match (&self.what, answer) {
            (AskSubject::Tool { .. }, AskAnswer::Allow { message }) => AskState::Allowed(answered(message)),
            (_, AskAnswer::Deny { message }) => AskState::Denied(answered(message)),
            (AskSubject::Question { .. }, AskAnswer::Text(text)) => AskState::Answered(answered(Some(text))),
            (AskSubject::Question { .. }, AskAnswer::Allow { .. }) => {
                return Err(AskRefused::NeedsText(self.id.clone()));
            }
            (AskSubject::Tool { .. }, AskAnswer::Text(_)) => {
                return Err(AskRefused::NeedsVerdict(self.id.clone()));
            }
        };
        Ok(())
    }

    /// Checks whether this ask can still be answered.
    pub fn is_open(&self, now: Timestamp) -> bool {
        self.state == AskState::Open && now < self.expires_at
    }
}

impl Ask {
    /// Returns this ask as it is after the end of its attempt, at `answered_at`, even if no daemon has recorded the end yet.
    #[must_use]
    pub fn after_end(self, answered_at: Timestamp) -> Self {
        let is_open = self.state == AskState::Open;
        Self { state: if is_open { AskState::Ended { answered_at } } else { self.state }, ..self }
    }

    /// Returns this ask as it is at `now`: an open ask that nobody answered in time has expired, even if no daemon has
    /// recorded that yet.
    #[must_use]
    pub fn seen_at(self, now: Timestamp) -> Self {
        let is_overdue = self.state == AskState::Open && !self.is_open(now);
        let expired = AskState::Expired { answered_at: self.expires_at };
        Self { state: if is_overdue { expired } else { self.state }, ..self }
    }
}

/// Returns how long an attempt that began at `since` has waited, until `now`, for the answer to at least one of these
/// asks.
pub fn time_waited(asks: &[Ask], since: Timestamp, now: Timestamp) -> SignedDuration {
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

/// Use of a tool that a permission rule denied without asking a person.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct Denial {
    pub tool: String,
    /// The rule as it is written in the config.
    pub rule: String,
    /// Number of times the job tried.
    pub times: u32,
    pub first_at: Timestamp,
    pub last_at: Timestamp,
}

impl AskSubject {
    /// Returns a question without options.
    pub fn question(question: &str) -> Self {
        Self::Question { question: question.to_owned(), options: Vec::new() }
    }

    /// Returns a short label: the tool, or `question`.
    pub fn label(&self) -> &str {
        match self {
            Self::Tool { tool, .. } => tool,
            Self::Question { .. } => "question",
        }
    }
}

impl AskState {
    /// Returns the time at which this ask was closed; none while it is open.
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

/// Splits the text into job and number.
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

    fn ask(what: AskSubject) -> Ask {
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

    #[test]
    fn an_overdue_ask_has_expired() {
        let open = ask(AskSubject::question("Which?"));
        assert_eq!(open.clone().seen_at(at(9)).state, AskState::Open);
        let expired = AskState::Expired { answered_at: at(10) };
        assert_eq!(open.seen_at(at(10)).state, expired);
    }

    /// The attempt began at 100, and it is now 200.
    #[test]
    fn overlapping_waits_for_answers_count_once() {
        let open = |from, until| Ask {
            asked_at: at(from),
            expires_at: at(until),
            ..ask(AskSubject::question("Which?"))
        };
        let over = |from, to| Ask { state: AskState::Ended { answered_at: at(to) }, ..open(from, 900) };
        for (asks, expected) in [
            (vec![], 0),
            (vec![over(110, 130)], 20),
            (vec![open(110, 900)], 90),
            // Expired, but not yet recorded as expired.
            (vec![open(110, 150)], 40),
            // Overlapping waits count once.
            (vec![over(110, 150), over(120, 130), over(140, 160)], 50),
            (vec![over(150, 160), over(110, 120), open(190, 900)], 30),
            // Asks from before the attempt began: only the time after its beginning counts.
            (vec![over(10, 90), over(50, 110)], 10),
        ] {
            assert_eq!(time_waited(&asks, at(100), at(200)).as_secs(), expected, "{asks:?}");
        }
    }

    #[test]
    fn answers() {
        let tool = AskSubject::Tool { tool: "Bash".into(), input: json!({ "command": "ls" }) };
        let question = AskSubject::question("Which?");
        let (allow, deny) =
            (AskAnswer::Allow { message: None }, AskAnswer::Deny { message: Some("no".into()) });
        let text = AskAnswer::Text("that".into());
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
    fn an_ask_is_written_as_one_flat_json_object() {
        let mut ask = ask(AskSubject::Tool { tool: "Bash".into(), input: json!({ "command": "ls" }) });
        ask.answer(AskAnswer::Allow { message: None }, None, at(1)).unwrap();
        let written = serde_json::to_string(&ask).unwrap();
        let expected = r#"{"id":"job-2026-01-05-a1b2c3.1","job":"job-2026-01-05-a1b2c3","agent":"coder","attempt":1,"kind":"tool","tool":"Bash","input":{"command":"ls"},"asked_at":"1970-01-01T00:00:00Z","expires_at":"1970-01-01T00:00:10Z","status":"allowed","answered_at":"1970-01-01T00:00:01Z"}"#;
        assert_eq!(written, expected);
        assert_eq!(serde_json::from_str::<Ask>(&written).unwrap(), ask);
    }
}
