//! Asks: questions of agents to people, and their answers.

use axum::Json;
use axum::extract::{Path, State};
use cowhand_core::ask::{Ask, AskAnswer, AskId, AskName, AskSubject};
use jiff::SignedDuration;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::Value;

use super::given::{Count, Given, Params, Switch, named, of_attempt, requires};
use super::{Api, Page, Problem};
use cowhand_engine::fleet::AskDecision;

#[derive(Debug, Default, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub(super) struct Listed {
    /// Include asks that are answered or closed, the newest first.
    all: Switch,
    /// Maximum number of asks; unset means 50.
    limit: Option<Count>,
}

#[derive(Debug, Default, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub(super) struct Waiting {
    /// Longest wait for the answer, in seconds; unset means no wait, the maximum is 30.
    #[schemars(range(max = 30))]
    wait: u32,
}

/// Answer of a person.
#[derive(Debug, Clone, Default, Serialize, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct AnswerAsked {
    pub answer: Option<AnswerWord>,
    /// Text for the agent: a reason or an alternative; for a question, the answer itself.
    #[schemars(length(max = 20_000))]
    pub message: Option<String>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum AnswerWord {
    Allow,
    Deny,
    /// The answer is the message.
    Text,
}

/// Ask of an attempt: the use of a tool, or a question.
#[derive(Debug, Clone, Default, Serialize, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
#[schemars(transform = requires(["attempt", "key"]))]
pub struct JobAsks {
    /// The number of the attempt that asks.
    #[schemars(range(min = 1))]
    pub attempt: u32,
    /// Key of the ask: the same key in the same attempt is the same ask.
    #[schemars(length(min = 1, max = 200))]
    pub key: String,
    pub tool: Option<String>,
    /// Input of the tool.
    #[serde(skip_serializing_if = "Value::is_null")]
    pub input: Value,
    pub question: Option<String>,
}

/// Immediate reply to the agent; with `asked`, it has to wait for the end of the ask.
#[derive(Debug, Clone, Serialize, Deserialize, JsonSchema)]
pub struct JobHears {
    pub verdict: HeardWord,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub message: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub ask: Option<Ask>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum HeardWord {
    Allowed,
    Denied,
    Asked,
}

const USUAL: u32 = 50;
const LONGEST_WAIT: u32 = 30;
const LONGEST_MESSAGE: usize = 20_000;

pub(super) async fn list(
    State(api): State<Api>,
    Params(Listed { all, limit }): Params<Listed>,
) -> Result<Json<Page<Ask>>, Problem> {
    let limit = Count::or(limit, USUAL);
    if let Ok(fleet) = api.daemon() {
        fleet.store().expire_asks(api.now()).await?;
    }
    let asks =
        if all.is_on() { api.store.last_asks(limit).await? } else { api.store.open_asks(limit).await? };
    Ok(Json(Page::whole(asks)))
}

pub(super) async fn one(
    State(api): State<Api>,
    Path(id): Path<String>,
    Params(waiting): Params<Waiting>,
) -> Result<Json<Ask>, Problem> {
    answered(&api, &ask_id(&api, &id).await?, waiting).await
}

pub(super) async fn of_job(
    State(api): State<Api>,
    Path((job, number)): Path<(String, String)>,
    Params(waiting): Params<Waiting>,
) -> Result<Json<Ask>, Problem> {
    answered(&api, &ask_id(&api, &format!("{job}.{number}")).await?, waiting).await
}

/// Resolves a name of a job and a number to the ask.
async fn ask_id(api: &Api, name: &str) -> Result<AskId, Problem> {
    let name: AskName = named(name)?;
    Ok(AskId { job: api.job_id(&name.job.to_string()).await?, number: name.number })
}

async fn answered(api: &Api, id: &AskId, Waiting { wait }: Waiting) -> Result<Json<Ask>, Problem> {
    if wait > LONGEST_WAIT {
        return Err(Problem::bad_request(format!("`wait` is at most {LONGEST_WAIT}")));
    }
    match api.daemon() {
        Ok(fleet) => Ok(Json(fleet.wait_for_ask(id, SignedDuration::from_secs(wait.into())).await?)),
        Err(_) => api.store.ask(id.clone()).await?.map(Json).ok_or_else(|| Problem::no_ask(id)),
    }
}

pub(super) async fn answer(
    State(api): State<Api>,
    Path(id): Path<String>,
    Given(AnswerAsked { answer, message }): Given<AnswerAsked>,
) -> Result<Json<Ask>, Problem> {
    if message.as_ref().is_some_and(|message| message.chars().count() > LONGEST_MESSAGE) {
        return Err(Problem::bad_request(format!("`message` has at most {LONGEST_MESSAGE} characters")));
    }
    let message = message.filter(|message| !message.trim().is_empty());
    let answer = match answer {
        Some(AnswerWord::Allow) => AskAnswer::Allow { message },
        Some(AnswerWord::Deny) => AskAnswer::Deny { message },
        Some(AnswerWord::Text) => AskAnswer::Text(
            message.ok_or_else(|| Problem::bad_request("an answer in words needs a `message`"))?,
        ),
        None => return Err(Problem::bad_request("`answer` is missing: allow, deny or text")),
    };
    Ok(Json(api.daemon()?.answer(ask_id(&api, &id).await?, answer).await?))
}

/// Creates an ask of an attempt.
pub(super) async fn make(
    State(api): State<Api>,
    Path(job): Path<String>,
    Given(asked): Given<JobAsks>,
) -> Result<Json<JobHears>, Problem> {
    let job = api.job_id(&job).await?;
    let JobAsks { attempt, key, tool, input, question } = asked;
    let attempt = of_attempt(attempt)?;
    if key.is_empty() || key.len() > 200 {
        return Err(Problem::bad_request("`key` has 1 to 200 bytes"));
    }
    let what = match (tool, question) {
        (Some(tool), None) => AskSubject::Tool { tool, input },
        (None, Some(question)) => AskSubject::Question { question },
        _ => return Err(Problem::bad_request("it is either about a `tool` or a `question`")),
    };
    let (verdict, message, ask) = match api.daemon()?.ask(&job, attempt, key, what).await? {
        AskDecision::Allowed => (HeardWord::Allowed, None, None),
        AskDecision::Denied { message } => (HeardWord::Denied, Some(message), None),
        AskDecision::Asked(ask) => (HeardWord::Asked, None, Some(ask)),
    };
    Ok(Json(JobHears { verdict, message, ask }))
}
