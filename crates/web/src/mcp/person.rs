//! Tools for the assistant of a person: read access, and with the scope `operate` also control.

use std::fmt;
use std::sync::Arc;

use cowhand_core::ask::Ask;
use cowhand_core::id::{AgentName, JobName, ScheduleName};
use cowhand_core::job::{JobRecord, JobStatus};
use cowhand_core::server::Scope;
use cowhand_core::steering::SteeringMessage;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};

use super::ToolResult;
use super::tool::Tool;
use crate::api::{
    AgentView, Client, JobView, ListedJob, Page, ScheduleWithFirings, StatusView, TriggerAnswer, UsageView,
    WorkView, segment,
};
use cowhand_engine::fleet::{SayRequest, ScheduleView, TriggerRequest};
use cowhand_engine::state::StateFolder;

/// Connection of an assistant to the daemon, with the rights of the person who started the assistant.
pub struct PersonTools {
    state: StateFolder,
    /// Function that returns advice, as a clause, for the case that no daemon runs.
    how_to_start: Box<dyn Fn() -> String + Send + Sync>,
}

impl fmt::Debug for PersonTools {
    fn fmt(&self, to: &mut fmt::Formatter<'_>) -> fmt::Result {
        to.debug_struct("PersonTools").field("state", &self.state).finish_non_exhaustive()
    }
}

impl PersonTools {
    pub fn of(state: StateFolder, how_to_start: impl Fn() -> String + Send + Sync + 'static) -> Self {
        Self { state, how_to_start: Box::new(how_to_start) }
    }

    /// Connects again for each use of a tool, because the daemon may have been restarted.
    async fn client(&self) -> Result<Client, String> {
        let client = Client::of_daemon(&self.state).await.map_err(|problem| problem.message)?;
        client.ok_or_else(|| format!("no daemon runs for this fleet; {}", (self.how_to_start)()))
    }

    async fn get<T: serde::de::DeserializeOwned + Serialize>(&self, path: &str) -> ToolResult {
        let answer: T = self.client().await?.get(path).await.map_err(|problem| problem.message)?;
        to_json(&answer)
    }

    async fn post<T: serde::de::DeserializeOwned + Serialize>(
        &self,
        path: &str,
        input: &Value,
    ) -> ToolResult {
        let answer: T = self.client().await?.post(path, input).await.map_err(|problem| problem.message)?;
        to_json(&answer)
    }
}

fn to_json(value: &impl Serialize) -> ToolResult {
    serde_json::to_string_pretty(value).map_err(|error| error.to_string())
}

pub(super) fn tools(scope: Scope) -> Vec<Tool<PersonTools>> {
    let mut tools = vec![
        Tool::new(
            "fleet",
            "Returns the daemon and its agents: running and waiting jobs, and next firings.",
            fleet,
        ),
        Tool::new("schedules", "Lists all schedules: on or off, next firings, and why they wait.", schedules),
        Tool::new("jobs", "Lists jobs, the newest first.", jobs),
        Tool::new("job", "Returns the details of one job.", job),
        Tool::new("output", "Returns the last messages of a job's output, one line of JSON each.", output),
        Tool::new("why", "Explains why a schedule did or did not run: its state and its last firings.", why),
        Tool::new("usage", "Returns the spending by day, agent and model.", usage),
        Tool::new("work", "Lists the items in the queues of work sources.", work),
        Tool::new("asks", "Lists asks of agents that wait for a person.", asks),
    ];
    if scope >= Scope::Operate {
        tools.extend([
            Tool::new("trigger", "Creates a job now.", trigger),
            Tool::new("say", "Sends a message to the agent of a job that has not ended.", say),
            Tool::new("cancel", "Ends a job with all its processes.", cancel),
            Tool::new("retry", "Runs an ended job again, as a new job.", retry),
            Tool::new("enable", "Turns a schedule on.", enable),
            Tool::new("disable", "Turns a schedule off; running jobs continue.", disable),
        ]);
    }
    tools
}

#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
struct NoInput {}

async fn fleet(connection: Arc<PersonTools>, NoInput {}: NoInput) -> ToolResult {
    connection.get::<StatusView>("status").await
}

async fn schedules(connection: Arc<PersonTools>, NoInput {}: NoInput) -> ToolResult {
    connection.get::<Page<ScheduleView>>("schedules").await
}

async fn asks(connection: Arc<PersonTools>, NoInput {}: NoInput) -> ToolResult {
    connection.get::<Page<Ask>>("asks").await
}

#[derive(Debug, Default, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
struct Jobs {
    agent: Option<AgentName>,
    schedule: Option<ScheduleName>,
    status: Option<JobStatus>,
    /// Only jobs with this text in their id, prompt, summary or error.
    search: Option<String>,
    /// Maximum number of jobs; unset means 20.
    #[schemars(range(min = 1, max = 200))]
    limit: Option<u32>,
}

/// Default number of jobs. It is smaller than in the API, because an assistant reads all of them.
const DEFAULT_JOB_COUNT: u32 = 20;

async fn jobs(connection: Arc<PersonTools>, filter: Jobs) -> ToolResult {
    let mut path = format!("jobs?limit={}", filter.limit.unwrap_or(DEFAULT_JOB_COUNT).clamp(1, 200));
    let parameters = [
        ("agent", filter.agent.map(|agent| agent.to_string())),
        ("schedule", filter.schedule.map(|schedule| schedule.to_string())),
        ("status", filter.status.map(|status| status.to_string())),
        ("search", filter.search),
    ];
    for (key, value) in parameters.into_iter().filter_map(|(key, value)| Some((key, value?))) {
        path.extend(["&", key, "=", &segment(&value)]);
    }
    connection.get::<Page<ListedJob>>(&path).await
}

#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
struct OneJob {
    job: JobName,
}

async fn job(connection: Arc<PersonTools>, OneJob { job }: OneJob) -> ToolResult {
    connection.get::<JobView>(&format!("jobs/{job}")).await
}

async fn cancel(connection: Arc<PersonTools>, OneJob { job }: OneJob) -> ToolResult {
    connection.post::<JobRecord>(&format!("jobs/{job}/cancel"), &json!({})).await
}

#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
struct Message {
    job: JobName,
    /// Text for the agent.
    text: String,
    /// End the current turn of the agent first.
    #[serde(default)]
    interrupt: bool,
}

async fn say(connection: Arc<PersonTools>, Message { job, text, interrupt }: Message) -> ToolResult {
    let request = SayRequest { text, interrupt, key: None };
    let request = serde_json::to_value(request).map_err(|error| error.to_string())?;
    connection.post::<SteeringMessage>(&format!("jobs/{job}/messages"), &request).await
}

async fn retry(connection: Arc<PersonTools>, OneJob { job }: OneJob) -> ToolResult {
    connection.post::<JobRecord>(&format!("jobs/{job}/retry"), &json!({})).await
}

#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
struct Output {
    job: JobName,
    /// Number of the last messages; unset means 50.
    #[serde(default)]
    #[schemars(range(min = 1, max = 1000))]
    last: Option<u32>,
}

async fn output(connection: Arc<PersonTools>, Output { job, last }: Output) -> ToolResult {
    let last = usize::try_from(last.unwrap_or(50).clamp(1, 1000)).unwrap_or(50);
    let client = connection.client().await?;
    let mut lines = client.lines(&format!("jobs/{job}/output")).await.map_err(|problem| problem.message)?;
    // Keep only the last messages in memory, because the output may be long.
    let mut kept = std::collections::VecDeque::new();
    while let Some(line) = lines.next().await.map_err(|problem| problem.message)? {
        kept.push_back(line);
        if kept.len() > last {
            kept.pop_front();
        }
    }
    let view = client.get::<JobView>(&format!("jobs/{job}")).await.map_err(|problem| problem.message)?;
    match view.elsewhere_sentence() {
        Some(sentence) if kept.is_empty() => return Err(sentence),
        Some(sentence) => kept.push_back(sentence),
        None => {}
    }
    Ok(kept.into_iter().collect::<Vec<_>>().join("\n"))
}

#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
struct OneSchedule {
    agent: AgentName,
    schedule: ScheduleName,
}

impl OneSchedule {
    fn address(&self) -> String {
        format!("schedules/{}/{}", segment(self.agent.as_str()), segment(self.schedule.as_str()))
    }
}

async fn why(connection: Arc<PersonTools>, one: OneSchedule) -> ToolResult {
    let client = connection.client().await?;
    let address = one.address();
    let answer = client.get::<ScheduleWithFirings>(&format!("{address}?firings=10")).await;
    let ScheduleWithFirings { schedule, firings } = answer.map_err(|problem| problem.message)?;
    let agent = client.get::<AgentView>(&format!("agents/{}", segment(one.agent.as_str()))).await;
    let refused = agent.map_err(|problem| problem.message)?.followup_refused;
    to_json(&json!({ "schedule": schedule, "firings": firings, "followup_refused": refused }))
}

async fn enable(connection: Arc<PersonTools>, one: OneSchedule) -> ToolResult {
    connection.post::<ScheduleView>(&format!("{}/enable", one.address()), &json!({})).await
}

async fn disable(connection: Arc<PersonTools>, one: OneSchedule) -> ToolResult {
    connection.post::<ScheduleView>(&format!("{}/disable", one.address()), &json!({})).await
}

#[derive(Debug, Default, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
struct Usage {
    agent: Option<AgentName>,
}

async fn usage(connection: Arc<PersonTools>, Usage { agent }: Usage) -> ToolResult {
    let agent = agent.map(|agent| format!("?agent={}", segment(agent.as_str()))).unwrap_or_default();
    connection.get::<UsageView>(&format!("usage{agent}")).await
}

#[derive(Debug, Default, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
struct Work {
    /// Include claimed items.
    all: bool,
}

async fn work(connection: Arc<PersonTools>, Work { all }: Work) -> ToolResult {
    connection.get::<WorkView>(if all { "work?all=1" } else { "work" }).await
}

#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
struct Triggered {
    agent: AgentName,
    /// Schedule of the agent; unset means a job without a schedule.
    #[serde(default)]
    schedule: Option<ScheduleName>,
    /// Prompt, instead of the configured one.
    #[serde(default)]
    prompt: Option<String>,
}

async fn trigger(
    connection: Arc<PersonTools>,
    Triggered { agent, schedule, prompt }: Triggered,
) -> ToolResult {
    let request = TriggerRequest { schedule, prompt, ..TriggerRequest::default() };
    let request = serde_json::to_value(request).map_err(|error| error.to_string())?;
    connection.post::<TriggerAnswer>(&format!("agents/{}/trigger", segment(agent.as_str())), &request).await
}
