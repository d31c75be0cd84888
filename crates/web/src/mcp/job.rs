//! Tools with which an agent reaches the fleet that runs it, with the token of its job.

use std::sync::Arc;

use cowhand_core::ask::{Answered, Ask, AskState};
use cowhand_core::backoff::Backoff;
use cowhand_core::id::{AgentName, JobId};
use cowhand_core::interval::Interval;
use cowhand_core::job::JobRecord;
use cowhand_core::mcp::JobToolSet;
use cowhand_core::report::{Report, ReportedOutcome};
use jiff::SignedDuration;
use schemars::JsonSchema;
use serde::Deserialize;
use serde_json::{Value, json};
use uuid::Uuid;

use super::ToolResult;
use super::tool::Tool;
use crate::api::{
    AcceptedFile, ApiProblem, AskRequest, AskVerdict, Client, Code, FollowupRequest, JobAskReply, JobView,
    ReportRequest, SendFileRequest,
};
use cowhand_engine::job_token::{SOCKET_VARIABLE, TOKEN_VARIABLE, unverified_parts};

/// Connection of an agent to the daemon.
#[derive(Debug)]
pub struct JobTools {
    client: Client,
    job: JobId,
    attempt: u32,
}

impl JobTools {
    /// Builds the tools from the environment.
    pub fn from_environment() -> Result<Self, String> {
        let set = |name: &str| std::env::var(name).ok().filter(|value| !value.is_empty());
        let (Some(token), Some(socket)) = (set(TOKEN_VARIABLE), set(SOCKET_VARIABLE)) else {
            return Err(format!(
                "{TOKEN_VARIABLE} and {SOCKET_VARIABLE} are not set: `cowhand mcp --job` is started by the agent of a job"
            ));
        };
        let (job, attempt) =
            unverified_parts(&token).ok_or_else(|| format!("{TOKEN_VARIABLE} is not the token of a job"))?;
        Ok(Self { client: Client::of_job(socket.into(), token), job, attempt })
    }

    /// Repeats a request until the daemon, which may be restarting, gives a final answer.
    async fn retry_until_answered<T, F>(send: impl Fn() -> F + Send) -> Result<T, String>
    where
        F: Future<Output = Result<T, ApiProblem>> + Send,
    {
        let mut failures = 0;
        loop {
            match send().await {
                Ok(answer) => return Ok(answer),
                Err(problem) if is_temporary(problem.code) => {
                    failures += 1;
                    tokio::time::sleep(RETRY_BACKOFF.wait_after(failures)).await;
                }
                Err(problem) => return Err(problem.message),
            }
        }
    }

    /// Asks whether a tool may be used with this input. The error is the reason of a denial. `call` is the agent's own
    /// id of this use.
    pub async fn may_use(&self, call: &str, tool: String, input: Value) -> Result<(), String> {
        let is_usable = !call.is_empty() && call.len() <= 150;
        let key = if is_usable { format!("tool {call}") } else { fresh_key() };
        let request = AskRequest { key, tool: Some(tool), input, ..AskRequest::default() };
        match self.ask(request).await {
            AskAnswer::Yes => Ok(()),
            AskAnswer::No(why) | AskAnswer::Text(why) => Err(why),
        }
    }

    /// Asks, and waits for the answer. A repeated request with the same key, after a lost connection, continues the
    /// same ask.
    async fn ask(&self, request: AskRequest) -> AskAnswer {
        let request = AskRequest { attempt: self.attempt, ..request };
        let path = format!("jobs/{}/asks", self.job);
        let reply: JobAskReply = match Self::retry_until_answered(|| self.client.post(&path, &request)).await
        {
            Ok(reply) => reply,
            Err(why) => return AskAnswer::No(why),
        };
        let no = |message: Option<String>| AskAnswer::No(message.unwrap_or_else(|| "denied".to_owned()));
        let Some(ask) = reply.ask else {
            return if reply.verdict == AskVerdict::Allowed { AskAnswer::Yes } else { no(reply.message) };
        };
        let path = format!("{path}/{}?wait={ASK_WAIT_SECONDS}", ask.id.number);
        loop {
            let ask: Ask = match Self::retry_until_answered(|| self.client.get(&path)).await {
                Ok(ask) => ask,
                Err(why) => return AskAnswer::No(why),
            };
            match ask.state {
                AskState::Open => {}
                AskState::Allowed(_) => return AskAnswer::Yes,
                AskState::Answered(Answered { message, .. }) => {
                    return AskAnswer::Text(message.unwrap_or_default());
                }
                AskState::Denied(Answered { message, .. }) => {
                    return no(Some(message.map_or_else(
                        || "a person denied it".to_owned(),
                        |message| format!("a person denied it: {message}"),
                    )));
                }
                AskState::Expired { .. } => {
                    return no(Some("no person answered in time, so the request is denied".to_owned()));
                }
                AskState::Ended { .. } => return no(Some("the attempt has ended".to_owned())),
            }
        }
    }
}

enum AskAnswer {
    Yes,
    No(String),
    Text(String),
}

const ASK_WAIT_SECONDS: u32 = 25;
const RETRY_BACKOFF: Backoff =
    Backoff::doubling(SignedDuration::from_millis(200), SignedDuration::from_secs(2));

/// Checks whether the problem may be temporary: the daemon restarts, is overloaded, or cannot reach a resource, for
/// example its store.
const fn is_temporary(code: Code) -> bool {
    matches!(
        code,
        Code::NoDaemon
            | Code::Stopping
            | Code::StoreUnavailable
            | Code::Busy
            | Code::Unavailable
            | Code::TooMany
            | Code::TooSlow
    )
}

pub(super) fn tools(set: JobToolSet) -> Vec<Tool<JobTools>> {
    let fleet = if set == JobToolSet::Chat { Vec::new() } else { fleet_tools() };
    let chat = if set == JobToolSet::Fleet { Vec::new() } else { chat_tools() };
    fleet.into_iter().chain(chat).collect()
}

/// Returns the tools for a chat. The second tool has the name that herdctl gives it.
fn chat_tools() -> Vec<Tool<JobTools>> {
    let about = "Sends a file into the chat that this job answers. The file has to be inside the working directory of the \
                 job, without symbolic links.";
    vec![
        Tool::new("send_file", about, send_file),
        Tool::new("herdctl_send_file", "The same as send_file.", send_file),
    ]
}

fn fleet_tools() -> Vec<Tool<JobTools>> {
    vec![
        Tool::new(
            "approve",
            "Checks whether a tool may be used with this input. The rules of the fleet decide, or a person.",
            approve,
        ),
        Tool::new(
            "ask_person",
            "Asks a person a question and waits for the answer. This may take a long time.",
            ask_person,
        ),
        Tool::new("work_item", "Returns the work item of this job, if there is one.", work_item),
        Tool::new(
            "schedule_followup",
            "Requests a follow-up job, within the limits that the fleet sets for the chain of follow-ups.",
            schedule_followup,
        ),
        Tool::new(
            "report",
            "Reports the outcome of this job's work. A later report replaces an earlier one.",
            report,
        ),
    ]
}

#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
struct NoInput {}

async fn work_item(connection: Arc<JobTools>, NoInput {}: NoInput) -> ToolResult {
    let path = format!("jobs/{}", connection.job);
    let job: JobView = JobTools::retry_until_answered(|| connection.client.get(&path)).await?;
    match &job.job.work_item {
        Some(item) => serde_json::to_string_pretty(item).map_err(|error| error.to_string()),
        None => Ok("this job has no work item".to_owned()),
    }
}

#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
struct Followup {
    /// Prompt of the follow-up. The follow-up knows nothing else about this job.
    prompt: String,
    /// Earliest start, from now: 30s, 5m, 1h, 1d.
    #[serde(default)]
    after: Option<Interval>,
    /// Another agent of the fleet; unset means the same agent.
    #[serde(default)]
    agent: Option<AgentName>,
}

async fn schedule_followup(
    connection: Arc<JobTools>,
    Followup { prompt, after, agent }: Followup,
) -> ToolResult {
    let request =
        FollowupRequest { attempt: connection.attempt, key: fresh_key(), agent, prompt: Some(prompt), after };
    let path = format!("jobs/{}/followups", connection.job);
    let job: JobRecord = JobTools::retry_until_answered(|| connection.client.post(&path, &request)).await?;
    let when = job.not_before.map(|time| format!(", not before {time}")).unwrap_or_default();
    Ok(format!("{} will run{when}", job.id))
}

#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
struct Reported {
    outcome: ReportedOutcome,
    /// Description of the work, or the reason why it was not done, for the person who requested it; at most
    /// 20,000 characters.
    summary: String,
    /// Results to look at: URLs, full commit ids, and paths of files inside the directory of the job; at most
    /// 20.
    #[serde(default)]
    artifacts: Vec<String>,
}

async fn report(connection: Arc<JobTools>, reported: Reported) -> ToolResult {
    let Reported { outcome, summary, artifacts } = reported;
    let request = ReportRequest { attempt: connection.attempt, outcome: Some(outcome), summary, artifacts };
    let path = format!("jobs/{}/report", connection.job);
    let report: Report = JobTools::retry_until_answered(|| connection.client.post(&path, &request)).await?;
    Ok(format!("reported: {}", report.outcome.in_words()))
}

#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
struct FileInput {
    /// Path of the file, relative to the working directory or absolute.
    file_path: String,
    /// Text that is posted with the file, in Markdown.
    #[serde(default)]
    message: Option<String>,
    /// Name of the file in the chat; unset means its own name.
    #[serde(default)]
    filename: Option<String>,
}

async fn send_file(connection: Arc<JobTools>, input: FileInput) -> ToolResult {
    let FileInput { file_path, message, filename } = input;
    let request =
        SendFileRequest { attempt: connection.attempt, key: fresh_key(), file_path, message, filename };
    let path = format!("jobs/{}/files", connection.job);
    let file: AcceptedFile =
        JobTools::retry_until_answered(|| connection.client.post(&path, &request)).await?;
    Ok(format!("accepted: {} will be posted in the chat", file.name))
}

/// Permission request in the form of Claude Code.
#[derive(Debug, Deserialize, JsonSchema)]
struct Approve {
    tool_name: String,
    #[serde(default)]
    input: Value,
    #[serde(default)]
    tool_use_id: Option<String>,
}

async fn approve(connection: Arc<JobTools>, request: Approve) -> ToolResult {
    let Approve { tool_name, input, tool_use_id } = request;
    let allowed = connection.may_use(&tool_use_id.unwrap_or_default(), tool_name, input.clone()).await;
    let answer = match allowed {
        Ok(()) => json!({ "behavior": "allow", "updatedInput": input }),
        Err(message) => json!({ "behavior": "deny", "message": message }),
    };
    Ok(answer.to_string())
}

#[derive(Debug, Deserialize, JsonSchema)]
struct AskPerson {
    /// Question, with everything that the person has to know to answer it.
    question: String,
    /// Answers to choose from, at most 10, each one line of at most 75 characters. The person may also write another
    /// answer.
    #[serde(default)]
    options: Vec<String>,
}

async fn ask_person(connection: Arc<JobTools>, AskPerson { question, options }: AskPerson) -> ToolResult {
    if question.trim().is_empty() {
        return Err("there is no question".to_owned());
    }
    let request = AskRequest { key: fresh_key(), question: Some(question), options, ..AskRequest::default() };
    match connection.ask(request).await {
        AskAnswer::Text(answer) => Ok(answer),
        AskAnswer::Yes => Ok("yes".to_owned()),
        AskAnswer::No(why) => Err(why),
    }
}

fn fresh_key() -> String {
    Uuid::now_v7().to_string()
}
