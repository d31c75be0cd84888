//! `cowhand trigger`: creates a job now.

use std::collections::HashSet;
use std::convert::Infallible;
use std::path::Path;
use std::time::Duration;

use clap::Args;
use cowhand_core::id::{AgentName, ScheduleName};
use cowhand_core::job::JobRecord;
use cowhand_core::shell::{option_words, schedule_word, shell_word};
use cowhand_core::trigger::{FiringKey, Occurrence};
use uuid::Uuid;

use super::follow::Absence;
use super::location::Connection;
use super::prompt::PromptArgs;
use super::schedule::{AgentOrSchedule, ScheduleFullName};
use super::{Exit, Failure, complete, interrupt, job, location, print};
use cowhand_engine::fleet::{self, PreparingFiring, ScheduleView};
use cowhand_web::api::{ApiProblem, Code, ScheduleWithFirings, TriggerAnswer};

#[derive(Debug, Args)]
pub(super) struct TriggerArgs {
    /// Agent of the job, or the schedule to fire
    #[arg(value_name = "AGENT[/SCHEDULE]", add = complete::agents_and_schedules())]
    of: AgentOrSchedule,
    /// Schedule to fire, if the first argument is the agent
    #[arg(add = complete::schedules_of_agent())]
    schedule: Option<ScheduleName>,
    #[command(flatten)]
    prompt: PromptArgs,
    /// Value for {{NAME}} in the prompt of a `manual` schedule; can be repeated
    #[arg(long = "value", value_name = "NAME=VALUE", value_parser = named_value)]
    values: Vec<(String, String)>,
    /// Idempotency key: the same key for the same schedule gives the same job
    #[arg(long, value_name = "KEY")]
    idempotency_key: Option<String>,
    /// Wait until the job has ended; exit code 1 if it did not complete
    #[arg(long)]
    wait: bool,
    /// Print the job as JSON
    #[arg(long)]
    json: bool,
}

impl TriggerArgs {
    pub(super) fn run(self, config: Option<&Path>) -> Result<(), Failure> {
        let (agent, schedule) = self.target()?;
        let Self { prompt, values, idempotency_key, wait, json, .. } = self;
        // With a unique key, the firing can be found before it has a job.
        let own_key = schedule.as_ref().map(|_| Uuid::now_v7().to_string());
        let idempotency_key = idempotency_key.or(own_key);
        let mut names = HashSet::new();
        if let Some((name, _)) = values.iter().find(|(name, _)| !names.insert(name)) {
            return Err(Failure::new(Exit::Usage, format!("the value of `{name}` is given twice")));
        }
        let (prompt, values) = (prompt.read()?, values.into_iter().collect());
        let request =
            fleet::TriggerRequest { schedule, prompt, values, idempotency_key, from_dashboard: false };
        location::ask(config, async |client| match create_job(client, &agent, &request, wait).await? {
            Created::Job(job) => job::print_created(client, *job, wait, json).await,
            Created::Firing(accepted) => {
                print_accepted(&accepted, json);
                Ok(())
            }
        })
    }
}

impl TriggerArgs {
    fn target(&self) -> Result<(AgentName, Option<ScheduleName>), Failure> {
        let (agent, schedule) = match (&self.of, &self.schedule) {
            (AgentOrSchedule::Agent(agent), schedule) => (agent.clone(), schedule.clone()),
            (AgentOrSchedule::Schedule(name), None) => (name.agent.clone(), Some(name.schedule.clone())),
            (AgentOrSchedule::Schedule(_), Some(schedule)) => {
                let message =
                    format!("name one schedule: AGENT/SCHEDULE, or AGENT {}", shell_word(schedule.as_str()));
                return Err(Failure::new(Exit::Usage, message));
            }
        };
        if self.idempotency_key.is_some() && schedule.is_none() {
            let message =
                "--idempotency-key needs a schedule: cowhand trigger AGENT SCHEDULE --idempotency-key KEY";
            return Err(Failure::new(Exit::Usage, message));
        }
        Ok((agent, schedule))
    }
}

/// Parses `NAME=VALUE`. A prompt can contain only names of letters, digits and underscores.
fn named_value(text: &str) -> Result<(String, String), String> {
    let is_name = |name: &str| {
        name.starts_with(|first: char| first.is_ascii_alphabetic() || first == '_')
            && name.chars().all(|sign| sign.is_ascii_alphanumeric() || sign == '_')
    };
    match text.split_once('=') {
        Some((name, value)) if is_name(name) => Ok((name.to_owned(), value.to_owned())),
        Some(_) => Err("the name consists of letters, digits and `_`, for example `issue=42`".to_owned()),
        None => Err("write NAME=VALUE, for example `issue=42`".to_owned()),
    }
}

/// Longest time for which `trigger` without `--wait` waits for the job of the firing.
const MAX_JOB_WAIT: Duration = Duration::from_secs(5);

/// Result of [`create_job`].
enum Created {
    Job(Box<JobRecord>),
    /// The firing is accepted and has no job yet.
    Firing(PreparingFiring),
}

fn print_accepted(accepted: &PreparingFiring, json: bool) {
    let PreparingFiring { agent, schedule, firing, waits, .. } = accepted;
    print::remember_done(format!("the firing {firing} of {agent}/{schedule} was accepted"));
    if json {
        print::json(accepted);
        return;
    }
    let waits = waits.as_ref().map(|waits| format!(": {waits}")).unwrap_or_default();
    let advice = firing_advice(agent, schedule);
    print::prose(
        &format!("{agent}/{schedule}: the firing {firing} was accepted, and has no job yet{waits}; {advice}"),
        2,
    );
}

/// Names the commands that show a firing without a job, and that cancel the jobs and firings of its schedule.
fn firing_advice(agent: &AgentName, schedule: &ScheduleName) -> String {
    let (agent_word, option) = (shell_word(agent.as_str()), option_words("--schedule", schedule.as_str()));
    let name = schedule_word(agent, schedule);
    format!(
        "`cowhand why {name}` shows it, `cowhand cancel --agent {agent_word} {option}` cancels the jobs and firings of \
         this schedule"
    )
}

/// Creates the job. The firing of a schedule may have to be prepared first. With `wait`, prints why the firing waits.
/// Without `wait`, returns the accepted firing if it has no job after [`MAX_JOB_WAIT`].
async fn create_job(
    client: &Connection<'_>,
    agent: &AgentName,
    request: &fleet::TriggerRequest,
    wait: bool,
) -> Result<Created, Failure> {
    let address = format!("agents/{agent}/trigger");
    let (Some(schedule), Some(key)) = (request.schedule.clone(), &request.idempotency_key) else {
        return Ok(Created::Job(Box::new(client.post(&address, request).await?)));
    };
    let advice = firing_advice(agent, &schedule);
    let name = ScheduleFullName { agent: agent.clone(), schedule };
    let firing = RequestedFiring { name: &name, request_key: key, key: Occurrence::Manual(key).key(0) };
    let key = firing.key.clone();
    let created = async {
        tokio::select! {
            job = firing.create(client, &address, request, wait) => job,
            never = note_preparation(client, &name), if wait => match never {},
            accepted = accepted_firing(client, &name, key), if !wait => Ok(Created::Firing(accepted)),
        }
    };
    let note = format!("an accepted firing of {}/{} is kept; {advice}", name.agent, name.schedule);
    interrupt::unless_interrupted(created, Some(&note)).await
}

/// Firing that a request creates.
struct RequestedFiring<'a> {
    name: &'a ScheduleFullName,
    /// Key of the request.
    request_key: &'a str,
    /// Key of the firing, which follows from the key of the request.
    key: FiringKey,
}

impl RequestedFiring<'_> {
    /// Sends the request. With `wait`, the request is repeated when the daemon ends before the firing has a job: the
    /// same key gives the same firing.
    async fn create(
        &self,
        client: &Connection<'_>,
        address: &str,
        request: &fleet::TriggerRequest,
        wait: bool,
    ) -> Result<Created, Failure> {
        let (mut absence, mut is_stored) = (Absence::default(), false);
        loop {
            let problem = match client.post::<TriggerAnswer>(address, request).await {
                Ok(TriggerAnswer::Job(job)) => return Ok(Created::Job(job)),
                Ok(TriggerAnswer::Firing(firing)) if !wait => return Ok(Created::Firing(firing)),
                Ok(TriggerAnswer::Firing(_)) => {
                    is_stored = true;
                    ApiProblem::new(Code::NoDaemon, "the daemon stops")
                }
                Err(problem) => problem,
            };
            // A daemon that ended during the request may have stored the firing.
            let has_ended = matches!(problem.code, Code::NoDaemon | Code::Unavailable);
            if !is_stored && (client.is_alone() || !has_ended) {
                return Err(problem.into());
            }
            if !is_stored {
                let stored = self.stored(client).await;
                match stored {
                    Some(firing) if !wait => return Ok(Created::Firing(firing)),
                    None if !wait => return Err(Failure::from(problem).with_line(&self.repeat_advice())),
                    stored => is_stored = stored.is_some(),
                }
            }
            let waited = absence.wait_or_fail(client, problem).await;
            waited.map_err(|failure| failure.with_line(&self.repeat_advice()))?;
        }
    }

    /// Returns the firing if the store contains it.
    async fn stored(&self, client: &Connection<'_>) -> Option<PreparingFiring> {
        let store = client.open_store().await.ok()?;
        let read = store.get::<ScheduleWithFirings>(&self.name.address_with_firings()).await.ok()?;
        let firing = read.firings.into_iter().flatten().find(|firing| firing.key == self.key)?;
        let (agent, schedule) = (self.name.agent.clone(), self.name.schedule.clone());
        let waits = Some("no daemon runs; the next daemon prepares the firing".to_owned());
        Some(PreparingFiring { agent, schedule, firing: firing.key, status: firing.outcome, waits })
    }

    fn repeat_advice(&self) -> String {
        let (name, key) = (self.name, shell_word(self.request_key));
        let advice = firing_advice(&name.agent, &name.schedule);
        format!(
            "the firing may have been accepted; {advice}; with `--idempotency-key {key}`, the same command does not fire it twice"
        )
    }
}

impl ScheduleFullName {
    fn address_with_firings(&self) -> String {
        format!("{}?firings={MAX_FIRINGS_READ}", self.address())
    }
}

/// Returns the firing once [`MAX_JOB_WAIT`] has passed and the firing is accepted and has no job. This function does
/// not return if the firing has a job: the caller waits at the same time for the request that creates the job.
async fn accepted_firing(
    client: &Connection<'_>,
    name: &ScheduleFullName,
    key: FiringKey,
) -> PreparingFiring {
    tokio::time::sleep(MAX_JOB_WAIT).await;
    let address = name.address_with_firings();
    loop {
        // If no daemon answers, or the schedule is gone, the request that is under way reports that.
        if let Ok(read) = client.get::<ScheduleWithFirings>(&address).await {
            let mut firings = read.firings.iter().flatten();
            if let Some(firing) =
                firings.find(|firing| firing.key == key && firing.outcome == PreparingFiring::STATUS)
            {
                let waits = awaited(&read.schedule).or_else(|| Some(print::one_line(&firing.why, 600)));
                let (agent, schedule) = (name.agent.clone(), name.schedule.clone());
                let status = firing.outcome.clone();
                return PreparingFiring { agent, schedule, firing: key, status, waits };
            }
        }
        tokio::time::sleep(job::WAIT_POLL_INTERVAL).await;
    }
}

/// Number of newest firings among which the new firing is searched.
const MAX_FIRINGS_READ: u32 = 100;

/// Prints a note whenever the firing waits for something new before it has a job.
async fn note_preparation(client: &Connection<'_>, name: &ScheduleFullName) -> Infallible {
    let mut last_message = None;
    loop {
        tokio::time::sleep(job::WAIT_POLL_INTERVAL).await;
        // If no daemon answers, or the schedule is gone, the request that is under way reports that.
        let Ok(view) = client.get::<ScheduleView>(&name.address()).await else { continue };
        let Some(waits) = awaited(&view) else { continue };
        if last_message.as_ref() != Some(&waits) {
            print::note(format!("the schedule waits: {waits}"));
            last_message = Some(waits);
        }
    }
}

/// Describes what the firing of a schedule waits for before it has a job.
fn awaited(view: &ScheduleView) -> Option<String> {
    match (&view.prepare_error, &view.preparing_by) {
        _ if !view.preparing => None,
        (Some(error), _) => {
            let error = print::one_line(error, 600);
            Some(format!("its firing cannot be prepared, and is retried: {error}"))
        }
        (None, Some(by)) => Some(format!("its firing is being prepared by {}", print::one_line(by, 300))),
        (None, None) => None,
    }
}
