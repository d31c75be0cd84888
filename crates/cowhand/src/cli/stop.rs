//! `cowhand stop`: stops the daemon, and its agents unless they are kept.

use std::convert::Infallible;
use std::path::Path;
use std::time::Duration;

use clap::Args;
use cowhand_core::duration;
use cowhand_core::event::{Event, Fact};
use cowhand_core::id::{AgentName, JobId};
use cowhand_core::job::{JobRecord, Termination};
use serde::Serialize;

use super::advice::with_config_option;
use super::bulk::jobs;
use super::location::{FleetLocation, cannot, wait};
use super::spinner::Spinner;
use super::start_options::DEFAULT_STOP_TIMEOUT;
use super::{Exit, Failure, background, interrupt, number, print};
use cowhand_engine::daemon::{termination, unsettled_jobs};
use cowhand_engine::error::FleetError;
use cowhand_engine::state::StateFolder;
use cowhand_store::SHUTDOWN_STORE_TIMEOUT;
use cowhand_web::api::{
    ApiProblem, AttemptView, Client, Code, DaemonStopRequest, DaemonView, Page, StatusView,
};

#[derive(Debug, Args)]
pub(super) struct StopArgs {
    /// Leave agents running; the next start takes them up again
    #[arg(long)]
    keep_agents: bool,
    /// Time for running jobs to finish before they are cancelled
    #[arg(long, value_name = "SECONDS", default_value_t = DEFAULT_STOP_TIMEOUT, value_parser = number::seconds)]
    timeout: u64,
    /// Print JSON
    #[arg(long)]
    json: bool,
}

/// Output of `--json`.
#[derive(Debug, Default, Serialize)]
struct Stopped {
    /// Jobs that were cancelled because they did not end in time. None if unknown.
    cancelled: Option<Vec<Cancelled>>,
    /// Number of jobs that continue to run without a daemon. None if unknown.
    running: Option<usize>,
    /// Jobs that have ended and whose outcome could not be written. The next start settles them. None if unknown.
    unsettled: Option<Vec<JobId>>,
    /// Reason why the fields above are unknown.
    #[serde(skip_serializing_if = "Option::is_none")]
    problem: Option<String>,
}

#[derive(Debug, Serialize)]
struct Cancelled {
    job: JobId,
    agent: AgentName,
    termination: Termination,
}

/// Time to wait for the daemon after the timeout of the request, because cancelled agents have their own grace period.
const WAIT_BEYOND_TIMEOUT: Duration = Duration::from_mins(1);
const POLL_DAEMON_EVERY: Duration = Duration::from_millis(500);

impl StopArgs {
    pub(super) fn run(self, config: Option<&Path>) -> Result<(), Failure> {
        let location = FleetLocation::find(config)?;
        let request =
            DaemonStopRequest { keep_agents: self.keep_agents, timeout_seconds: Some(self.timeout) };
        let Some(before) = stop(&location, request)? else {
            return Err(Failure::new(
                Exit::NoDaemon,
                "no daemon runs for this fleet; there is nothing to stop",
            ));
        };
        // The daemon has stopped, so the verb succeeds even if the state of the jobs cannot be read.
        let stopped = wait(async {
            // A store that was unavailable before the stop request gets less time.
            let was_unavailable =
                matches!(&before.last_event, Err(problem) if problem.code == Code::StoreUnavailable);
            let timeout = if was_unavailable { STORE_TIMEOUT_IF_UNAVAILABLE } else { STORE_TIMEOUT_AFTER };
            let outcome = tokio::time::timeout(timeout, outcome(&location, before, self.keep_agents)).await;
            outcome.unwrap_or_else(|_| Err(Failure::new(Exit::CannotRunHere, STORE_NO_ANSWER)))
        });
        let stopped = stopped.unwrap_or_else(Stopped::unknown);
        print::done(&with_config_option(&stopped.in_words()), &stopped, self.json);
        Ok(())
    }
}

impl Stopped {
    fn new(cancelled: Vec<Cancelled>, running: usize) -> Self {
        Self {
            cancelled: Some(cancelled),
            running: Some(running),
            unsettled: Some(Vec::new()),
            problem: None,
        }
    }

    fn unknown(why: Failure) -> Self {
        Self { problem: Some(why.into_message()), ..Self::default() }
    }

    fn in_words(&self) -> String {
        let (Some(cancelled), Some(running)) = (&self.cancelled, self.running) else {
            let why = self.problem.as_deref().unwrap_or_default();
            return format!("stopped; the state of the jobs is unknown: {why}");
        };
        if running > 0 {
            let run = if running == 1 { "runs" } else { "run" };
            return format!("stopped; {} still {run}", jobs(running));
        }
        let mut said = "stopped".to_owned();
        if let Some(unsettled) = self.unsettled.as_ref().filter(|unsettled| !unsettled.is_empty()) {
            let them = if unsettled.len() == 1 { "it" } else { "them" };
            let unsettled = jobs(unsettled.len());
            said = format!(
                "{said}; the outcome of {unsettled} is not written, and the next start settles {them}"
            );
        }
        if cancelled.is_empty() {
            return said;
        }
        let line = |Cancelled { job, agent, termination }: &Cancelled| {
            format!("  {job}  {agent}  {}", termination.in_words())
        };
        let lines: Vec<String> = cancelled.iter().map(line).collect();
        format!("{said}; {} cancelled:\n{}", jobs(lines.len()), lines.join("\n"))
    }
}

/// Reads from the store which jobs of this node were cancelled, still run, or are not settled.
async fn outcome(location: &FleetLocation, before: Before, keep_agents: bool) -> Result<Stopped, Failure> {
    match location.start_refusal().await {
        Some(FleetError::StoreGone { jobs, .. }) if keep_agents => {
            return Ok(Stopped::new(Vec::new(), jobs.running.len()));
        }
        Some(refusal @ FleetError::OtherStore(_)) => {
            print::note(with_config_option(&format!("no daemon can start now: {refusal}")));
        }
        _ => {}
    }
    // If the daemon ran with a former store, the configured store does not know its jobs.
    if location.former_store().await.is_some() {
        return outcome_in_folder(&location.state, before.running);
    }
    let node = location.state.node().map_err(|error| cannot("cannot read the name of this node", &error))?;
    let client = location.open_store().await?;
    let running = running_at(&client, &node).await?;
    if keep_agents {
        return Ok(Stopped::new(Vec::new(), running.len()));
    }
    let mut cancelled = Vec::new();
    for (job, agent, termination) in cancelled_after(&client, before.last_event?).await? {
        if ran_at(&client, &job, &node).await? {
            cancelled.push(Cancelled { job, agent, termination });
        }
    }
    // No job of this node runs any more, so the jobs that the store lists as running are unsettled.
    Ok(Stopped { unsettled: Some(running), ..Stopped::new(cancelled, 0) })
}

/// Finds out from the state folder which jobs of the daemon were cancelled, still run, or are not settled.
fn outcome_in_folder(state: &StateFolder, jobs: Vec<(JobId, AgentName)>) -> Result<Stopped, Failure> {
    let unsettled = unsettled_jobs(state);
    let unsettled = unsettled.map_err(|error| Failure::new(Exit::CannotRunHere, error.to_string()))?;
    let cancelled = jobs.into_iter().filter_map(|(job, agent)| {
        let termination = termination(state, &job)?;
        Some(Cancelled { job, agent, termination })
    });
    let stopped = Stopped::new(cancelled.collect(), unsettled.running.len());
    Ok(Stopped { unsettled: Some(unsettled.ended), ..stopped })
}

/// Returns the jobs of this node that run, according to the store.
async fn running_at(client: &Client, node: &str) -> Result<Vec<JobId>, Failure> {
    let running: Page<JobRecord> = client.get("jobs?status=running&limit=1000").await?;
    let mut own = Vec::new();
    for job in running.items {
        if ran_at(client, &job.id, node).await? {
            own.push(job.id);
        }
    }
    Ok(own)
}

/// Returns the jobs that were cancelled after this event, with their agents and terminations.
async fn cancelled_after(
    client: &Client,
    mut after: i64,
) -> Result<Vec<(JobId, AgentName, Termination)>, Failure> {
    let mut cancelled = Vec::new();
    loop {
        let page: Page<Event> = client.get(&format!("events?limit=1000&after={after}")).await?;
        let Some(last) = page.items.last().map(|event| event.seq) else { return Ok(cancelled) };
        after = last;
        cancelled.extend(page.items.into_iter().filter_map(|event| match event.fact {
            Fact::JobCancelled { termination, .. } => Some((event.job?, event.agent?, termination)),
            _ => None,
        }));
    }
}

/// Returns true if the last attempt of the job ran on this node. Other nodes may share the store, and this daemon did
/// not run their jobs.
async fn ran_at(client: &Client, job: &JobId, node: &str) -> Result<bool, Failure> {
    let attempts: Page<AttemptView> = client.get(&format!("jobs/{job}/attempts")).await?;
    Ok(attempts.items.last().is_some_and(|attempt| attempt.node == node))
}

/// Number of the last event before the stop request, or the reason why it is unknown.
type LastEvent = Result<i64, ApiProblem>;

/// Answers of the daemon before the stop request.
pub(super) struct Before {
    last_event: LastEvent,
    /// Jobs that ran, with their agents.
    running: Vec<(JobId, AgentName)>,
}

/// Stops the daemon, waits for its end, and returns the answers that it gave before the stop request. Returns none if
/// no daemon ran.
pub(super) fn stop(location: &FleetLocation, request: DaemonStopRequest) -> Result<Option<Before>, Failure> {
    wait(async {
        let Some(client) = Client::of_daemon(&location.state).await? else { return Ok(None) };
        let last_event = last_event(&client).await;
        let running = if last_event.is_ok() { running_jobs(&client).await } else { Vec::new() };
        let process = Client::process_of_daemon(&location.state).await;
        let answer: DaemonView = client.post("stop", &request).await?;
        if let (Ok(_), Some(problem)) = (&last_event, answer.store_problem) {
            print_store_problem(&problem);
        }
        let timeout = Duration::from_secs(request.timeout_seconds.unwrap_or_default().min(24 * 3600));
        let spinner = Spinner::new("stopping");
        let stopped = async {
            tokio::select! {
                stopped = background::wait_until_stopped(location, process, timeout + WAIT_BEYOND_TIMEOUT) => stopped,
                never = show_running_jobs(&client, &spinner), if spinner.can_show() => match never {},
            }
        };
        if interrupt::unless_interrupted(spinner.during(stopped), Some(STILL_STOPPING)).await? {
            return Ok(Some(Before { last_event, running }));
        }
        Err(Failure::new(Exit::Refused, STILL_STOPPING))
    })
}

/// Longest wait for an answer of the daemon before the stop request. The daemon itself may wait for its store.
const STORE_TIMEOUT_BEFORE: Duration = Duration::from_secs(2);
/// Longest wait for the store after the daemon has stopped.
const STORE_TIMEOUT_AFTER: Duration = Duration::from_secs(10);
/// Longest wait for the store after the daemon has stopped, if the store was unavailable before the stop request.
const STORE_TIMEOUT_IF_UNAVAILABLE: Duration = Duration::from_secs(1);

const STORE_NO_ANSWER: &str = "the store does not answer";

/// Returns the number of the last event so far. A store that cannot be read does not prevent the stop.
async fn last_event(client: &Client) -> LastEvent {
    let page =
        match tokio::time::timeout(STORE_TIMEOUT_BEFORE, client.get::<Page<Event>>("events?limit=1")).await {
            Ok(page) => page,
            Err(_) if is_answering(client).await => Err(ApiProblem::store_unavailable(STORE_NO_ANSWER)),
            Err(_) => Err(ApiProblem::new(Code::NoDaemon, "the daemon did not answer before it was stopped")),
        };
    if let Err(problem) = &page
        && problem.code == Code::StoreUnavailable
    {
        print_store_problem(&problem.message);
    }
    page.map(|page| page.items.last().map_or(0, |event| event.seq))
}

/// Returns the jobs that run, with their agents; none if the store does not answer.
async fn running_jobs(client: &Client) -> Vec<(JobId, AgentName)> {
    let jobs = client.get::<Page<JobRecord>>("jobs?status=running&limit=1000");
    let jobs = tokio::time::timeout(STORE_TIMEOUT_BEFORE, jobs).await.ok().and_then(Result::ok);
    jobs.into_iter().flat_map(|page| page.items).map(|job| (job.id, job.agent)).collect()
}

fn print_store_problem(problem: &str) {
    print::note(format!(
        "{}; the daemon waits for its store for {} at most, and the next start settles the jobs whose end it \
         cannot write",
        with_config_option(problem),
        duration::exact(SHUTDOWN_STORE_TIMEOUT)
    ));
}

/// Checks whether the daemon answers a request that needs no store.
async fn is_answering(client: &Client) -> bool {
    let answer = tokio::time::timeout(STORE_TIMEOUT_BEFORE, client.get::<serde_json::Value>("-")).await;
    matches!(answer, Ok(Ok(_) | Err(ApiProblem { code: Code::NotFound, .. })))
}

const STILL_STOPPING: &str =
    "the daemon is still stopping; another `cowhand stop` cancels the running jobs immediately";

/// Shows the number of running jobs in the spinner as long as the daemon answers.
async fn show_running_jobs(client: &Client, spinner: &Spinner) -> Infallible {
    loop {
        if let Ok(status) = client.get::<StatusView>("status").await {
            let running: usize = status.agents.iter().map(|agent| agent.running).sum();
            spinner.set_text(match running {
                0 => "stopping".to_owned(),
                1 => "stopping; 1 job still runs".to_owned(),
                many => format!("stopping; {many} jobs still run"),
            });
        }
        tokio::time::sleep(POLL_DAEMON_EVERY).await;
    }
}
