//! Asks: questions of agents to people, and their answers.

use axum::Json;
use axum::extract::{Path, State};
use cowhand_core::ask::{
    Ask, AskAnswer, AskId, AskName, AskState, AskSubject, MAX_ASK_OPTION_CHARS, MAX_ASK_OPTIONS,
};
use jiff::SignedDuration;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::Value;

use super::extract::{Count, JsonBody, Params, Switch, parse_name, require_attempt, require_fields};
use super::job_token::is_job;
use super::{Api, ApiProblem, Page};
use cowhand_engine::fleet::AskDecision;

#[derive(Debug, Default, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub(super) struct AsksQuery {
    /// List also asks that are no longer open. The list then begins with the newest ask, otherwise with the oldest.
    all: Switch,
    /// Maximum number of asks; unset means 50.
    limit: Option<Count>,
}

#[derive(Debug, Default, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub(super) struct AskWaitQuery {
    /// Longest wait for the answer, in seconds; unset means no wait, the maximum is 30.
    #[schemars(range(max = 30))]
    wait: u32,
}

/// Answer of a person.
#[derive(Debug, Clone, Default, Serialize, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
#[schemars(rename = "AnswerAsked")]
pub struct AnswerRequest {
    pub answer: Option<AnswerKind>,
    /// Text for the agent: a reason or an alternative; for a question, the answer itself.
    #[schemars(length(max = 20_000))]
    pub message: Option<String>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
#[schemars(rename = "AnswerWord")]
pub enum AnswerKind {
    Allow,
    Deny,
    /// The answer is the message.
    Text,
}

/// Ask of an attempt: the use of a tool, or a question.
#[derive(Debug, Clone, Default, Serialize, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
#[schemars(transform = require_fields(["attempt", "key"]))]
#[schemars(rename = "JobAsks")]
pub struct AskRequest {
    /// The number of the attempt that asks.
    #[schemars(range(min = 1))]
    pub attempt: u32,
    /// Key of the ask, at most 200 bytes. A repeated request of the same attempt with the same key returns the existing
    /// ask.
    #[schemars(length(min = 1, max = 200))]
    pub key: String,
    pub tool: Option<String>,
    /// Input of the tool.
    #[serde(skip_serializing_if = "Value::is_null")]
    pub input: Value,
    pub question: Option<String>,
    /// Answers that the question proposes, each one line of at most 75 characters.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(max = 10))]
    pub options: Vec<String>,
}

/// Immediate reply to the agent. With `asked`, the agent has to wait for the answer.
#[derive(Debug, Clone, Serialize, Deserialize, JsonSchema)]
#[schemars(rename = "JobHears")]
pub struct JobAskReply {
    pub verdict: AskVerdict,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub message: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub ask: Option<Ask>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
#[schemars(rename = "HeardWord")]
pub enum AskVerdict {
    Allowed,
    Denied,
    Asked,
}

const DEFAULT_ASK_COUNT: u32 = 50;
const MAX_WAIT_SECONDS: u32 = 30;
const MAX_MESSAGE_LENGTH: usize = 20_000;

pub(super) async fn list(
    State(api): State<Api>,
    Params(AsksQuery { all, limit }): Params<AsksQuery>,
) -> Result<Json<Page<Ask>>, ApiProblem> {
    let limit = Count::or(limit, DEFAULT_ASK_COUNT);
    if let Ok(fleet) = api.daemon() {
        fleet.store().expire_asks(api.now()).await?;
    }
    let asks =
        if all.is_on() { api.store.last_asks(limit).await? } else { api.store.open_asks(limit).await? };
    let asks = api.current_asks(asks).await.into_iter();
    Ok(Json(Page::all(asks.filter(|ask| all.is_on() || ask.state == AskState::Open).collect())))
}

pub(super) async fn one(
    State(api): State<Api>,
    Path(id): Path<String>,
    Params(query): Params<AskWaitQuery>,
) -> Result<Json<Ask>, ApiProblem> {
    wait_for_answer(&api, &ask_id(&api, &id).await?, query).await
}

pub(super) async fn of_job(
    State(api): State<Api>,
    Path((job, number)): Path<(String, String)>,
    Params(query): Params<AskWaitQuery>,
) -> Result<Json<Ask>, ApiProblem> {
    wait_for_answer(&api, &ask_id(&api, &format!("{job}.{number}")).await?, query).await
}

/// Resolves the name of an ask, which is the name of a job and a number, to its id.
async fn ask_id(api: &Api, name: &str) -> Result<AskId, ApiProblem> {
    let name: AskName = parse_name(name)?;
    Ok(AskId { job: api.job_id(&name.job.to_string()).await?, number: name.number })
}

/// Returns the ask as soon as it is no longer open, or after the wait. Without a daemon, returns it at once.
async fn wait_for_answer(
    api: &Api,
    id: &AskId,
    AskWaitQuery { wait }: AskWaitQuery,
) -> Result<Json<Ask>, ApiProblem> {
    if wait > MAX_WAIT_SECONDS {
        return Err(ApiProblem::bad_request(format!("`wait` is at most {MAX_WAIT_SECONDS}")));
    }
    let longest = SignedDuration::from_secs(wait.into());
    match api.daemon() {
        Ok(fleet) if is_job() => Ok(Json(fleet.wait_as_agent(id, longest).await?)),
        Ok(fleet) => Ok(Json(fleet.wait_for_ask(id, longest).await?)),
        Err(_) => {
            let ask = api.store.ask(id.clone()).await?;
            let ask = api.current_asks(ask.into_iter().collect()).await.pop();
            Ok(Json(ask.ok_or_else(|| ApiProblem::no_ask(id))?))
        }
    }
}

pub(super) async fn answer(
    State(api): State<Api>,
    Path(id): Path<String>,
    JsonBody(AnswerRequest { answer, message }): JsonBody<AnswerRequest>,
) -> Result<Json<Ask>, ApiProblem> {
    if message.as_ref().is_some_and(|message| message.chars().count() > MAX_MESSAGE_LENGTH) {
        return Err(ApiProblem::bad_request(format!(
            "`message` has at most {MAX_MESSAGE_LENGTH} characters"
        )));
    }
    let message = message.filter(|message| !message.trim().is_empty());
    let answer = match answer {
        Some(AnswerKind::Allow) => AskAnswer::Allow { message },
        Some(AnswerKind::Deny) => AskAnswer::Deny { message },
        Some(AnswerKind::Text) => AskAnswer::Text(
            message.ok_or_else(|| ApiProblem::bad_request("`answer: text` needs a `message`"))?,
        ),
        None => return Err(ApiProblem::bad_request("`answer` is missing: allow, deny or text")),
    };
    Ok(Json(api.daemon()?.answer(ask_id(&api, &id).await?, answer).await?))
}

/// Checks the options of a question. Each option becomes a button.
fn check_options(options: Vec<String>) -> Result<Vec<String>, ApiProblem> {
    if options.len() > MAX_ASK_OPTIONS {
        return Err(ApiProblem::bad_request(format!("`options` has at most {MAX_ASK_OPTIONS} items")));
    }
    let is_usable = |option: &String| {
        let is_short = option.chars().count() <= MAX_ASK_OPTION_CHARS;
        is_short && !option.trim().is_empty() && !option.chars().any(char::is_control)
    };
    match options.iter().find(|option| !is_usable(option)) {
        Some(option) => Err(ApiProblem::bad_request(format!(
            "each of `options` is one line of 1 to {MAX_ASK_OPTION_CHARS} characters, found {option:?}"
        ))),
        None => Ok(options),
    }
}

/// Creates an ask of an attempt.
pub(super) async fn make(
    State(api): State<Api>,
    Path(job): Path<String>,
    JsonBody(request): JsonBody<AskRequest>,
) -> Result<Json<JobAskReply>, ApiProblem> {
    let job = api.job_id(&job).await?;
    let AskRequest { attempt, key, tool, input, question, options } = request;
    let attempt = require_attempt(attempt)?;
    if key.is_empty() || key.len() > 200 {
        return Err(ApiProblem::bad_request("`key` must have 1 to 200 bytes"));
    }
    let subject = match (tool, question) {
        (Some(tool), None) => AskSubject::Tool { tool, input },
        (None, Some(question)) => AskSubject::Question { question, options: check_options(options)? },
        _ => return Err(ApiProblem::bad_request("an ask needs either a `tool` or a `question`")),
    };
    let (verdict, message, ask) = match api.daemon()?.ask(&job, attempt, key, subject).await? {
        AskDecision::Allowed => (AskVerdict::Allowed, None, None),
        AskDecision::Denied { message } => (AskVerdict::Denied, Some(message), None),
        AskDecision::Asked(ask) => (AskVerdict::Asked, None, Some(ask)),
    };
    Ok(Json(JobAskReply { verdict, message, ask }))
}
