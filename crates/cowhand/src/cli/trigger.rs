//! `cowhand trigger`: creates a job now.

use std::convert::Infallible;
use std::path::Path;
use std::time::Duration;

use clap::Args;
use cowhand_core::id::{AgentName, ScheduleName};
use cowhand_core::job::JobRecord;
use cowhand_core::shell::shell_word;
use cowhand_core::trigger::{FiringKey, Occurrence};
use serde::Serialize;
use uuid::Uuid;

use super::location::Connection;
use super::prompt::PromptArgs;
use super::schedule::{AgentOrSchedule, ScheduleFullName};
use super::{Exit, Failure, complete, interrupt, job, location, print};
use cowhand_engine::fleet::{self, ScheduleView};
use cowhand_web::api::ScheduleWithFirings;

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
    /// Idempotency key: the same key for the same schedule gives the same job
    #[arg(long, value_name = "KEY")]
    idempotency_key: Option<String>,
    /// Wait until the job has ended; exit code 1 if it failed
    #[arg(long)]
    wait: bool,
    /// Print the job as JSON
    #[arg(long)]
    json: bool,
}

impl TriggerArgs {
    pub(super) fn run(self, config: Option<&Path>) -> Result<(), Failure> {
        let (agent, schedule) = self.target()?;
        let Self { prompt, idempotency_key, wait, json, .. } = self;
        // With a unique key, the firing can be found before it has a job.
        let own_key = schedule.as_ref().map(|_| Uuid::now_v7().to_string());
        let idempotency_key = idempotency_key.or(own_key);
        let request = fleet::Trigger { schedule, prompt: prompt.read()?, idempotency_key, by_page: false };
        location::ask(config, async |client| match create_job(client, &agent, &request, wait).await? {
            Created::Job(job) => job::print_created(client, *job, wait, json).await,
            Created::Firing(accepted) => {
                accepted.print(json);
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

/// Longest time for which `trigger` without `--wait` waits for the job of the firing.
const MAX_JOB_WAIT: Duration = Duration::from_secs(5);

/// Result of [`create_job`].
enum Created {
    Job(Box<JobRecord>),
    /// The firing is accepted and has no job yet.
    Firing(AcceptedFiring),
}

/// Firing that is accepted and has no job yet, as `--json` prints it.
#[derive(Debug, Serialize)]
struct AcceptedFiring {
    agent: AgentName,
    schedule: ScheduleName,
    /// Key of the firing.
    firing: FiringKey,
    /// Always `preparing`.
    status: String,
    /// Reason why the firing waits.
    waits: Option<String>,
}

impl AcceptedFiring {
    fn print(&self, json: bool) {
        let Self { agent, schedule, firing, waits, .. } = self;
        print::remember_done(format!("the firing {firing} of {agent}/{schedule} was accepted"));
        if json {
            print::json(self);
            return;
        }
        let waits = waits.as_ref().map(|waits| format!(": {waits}")).unwrap_or_default();
        let advice = firing_advice(agent, schedule);
        print::prose(
            &format!(
                "{agent}/{schedule}: the firing {firing} was accepted, and has no job yet{waits}; {advice}"
            ),
            2,
        );
    }
}

/// Names the commands that show a firing without a job, and that cancel the jobs and firings of its schedule.
fn firing_advice(agent: &AgentName, schedule: &ScheduleName) -> String {
    let (agent_word, schedule_word) = (shell_word(agent.as_str()), shell_word(schedule.as_str()));
    let name = shell_word(&format!("{agent}/{schedule}"));
    format!(
        "`cowhand why {name}` shows it, `cowhand cancel --agent {agent_word} --schedule {schedule_word}` cancels \
         the jobs and firings of this schedule"
    )
}

/// Creates the job. The firing of a schedule may have to be prepared first. With `wait`, prints why the firing waits.
/// Without `wait`, returns the accepted firing if it has no job after [`MAX_JOB_WAIT`].
async fn create_job(
    client: &Connection<'_>,
    agent: &AgentName,
    request: &fleet::Trigger,
    wait: bool,
) -> Result<Created, Failure> {
    let address = format!("agents/{agent}/trigger");
    let created = async {
        let job = client.post::<JobRecord>(&address, request).await?;
        Ok(Created::Job(Box::new(job)))
    };
    let (Some(schedule), Some(key)) = (request.schedule.clone(), &request.idempotency_key) else {
        return created.await;
    };
    let advice = firing_advice(agent, &schedule);
    let name = ScheduleFullName { agent: agent.clone(), schedule };
    let key = Occurrence::Manual(key).key(0);
    let created = async {
        tokio::select! {
            job = created => job,
            never = note_preparation(client, &name), if wait => match never {},
            accepted = accepted_firing(client, &name, key), if !wait => Ok(Created::Firing(accepted)),
        }
    };
    let note = format!("an accepted firing of {}/{} is kept; {advice}", name.agent, name.schedule);
    interrupt::unless_interrupted(created, Some(&note)).await
}

/// Returns the firing once [`MAX_JOB_WAIT`] has passed and the firing is accepted and has no job. This function does
/// not return if the firing has a job: the caller waits at the same time for the request that creates the job.
async fn accepted_firing(client: &Connection<'_>, name: &ScheduleFullName, key: FiringKey) -> AcceptedFiring {
    tokio::time::sleep(MAX_JOB_WAIT).await;
    let address = format!("{}?firings={MAX_FIRINGS_READ}", name.address());
    loop {
        // If no daemon answers, or the schedule is gone, the request that is under way reports that.
        if let Ok(read) = client.get::<ScheduleWithFirings>(&address).await {
            let mut firings = read.firings.iter().flatten();
            if let Some(firing) = firings.find(|firing| firing.key == key && firing.outcome == "preparing") {
                let waits = awaited(&read.schedule).or_else(|| Some(print::one_line(&firing.why, 600)));
                let (agent, schedule) = (name.agent.clone(), name.schedule.clone());
                let status = firing.outcome.clone();
                return AcceptedFiring { agent, schedule, firing: key, status, waits };
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
            Some(format!("its firing cannot be prepared, and is retried at least once a minute: {error}"))
        }
        (None, Some(by)) => Some(format!("its firing is being prepared by {}", print::one_line(by, 300))),
        (None, None) => None,
    }
}
