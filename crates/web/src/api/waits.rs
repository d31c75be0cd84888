//! The reasons why a pending job does not run. Also the agents and schedules that are no longer in the config and still
//! have jobs or firings.

use cowhand_core::id::{AgentName, ScheduleName};
use cowhand_core::job::{Job, JobStatus};
use cowhand_core::plan::{LiveState, Snapshot};
use cowhand_core::roster::Roster;
use cowhand_core::schedule::ScheduleRecord;
use cowhand_core::shell::option_words;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::{Api, ApiProblem};
use cowhand_engine::error::{agent_left, schedule_left};
use cowhand_engine::waits::{Waits, removed_agent_advice, waits_of_pending};

/// Agent that is no longer in the config and has jobs that have not ended, or firings without a job.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[schemars(rename = "GoneAgent")]
pub struct RemovedAgent {
    pub agent: AgentName,
    pub running: usize,
    /// Running jobs whose schedule another agent has adopted. They take places of that agent.
    #[serde(default)]
    pub adopted: usize,
    /// Agents that have adopted the schedules of these jobs.
    #[serde(default)]
    pub adopted_by: Vec<AgentName>,
    /// Jobs that wait until the agent comes back, or somebody cancels them.
    pub queued: usize,
    /// Accepted firings without a job, which wait until the agent comes back, or somebody cancels them.
    #[serde(default)]
    pub firings: usize,
    /// Schedules of the firings that `firings` counts.
    #[serde(default)]
    pub firing_schedules: Vec<ScheduleName>,
}

/// Schedule that is no longer in the config and has jobs or firings that wait for it. Its agent is in the config.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[schemars(rename = "GoneSchedule")]
pub struct RemovedSchedule {
    pub agent: AgentName,
    pub schedule: ScheduleName,
    /// Jobs that wait until the schedule comes back, or somebody cancels them.
    pub queued: usize,
    /// Accepted firings without a job, which wait until the schedule comes back, or somebody cancels them.
    pub firings: usize,
}

impl RemovedAgent {
    /// Returns all removed agents of a snapshot, in the order of their oldest jobs. Agents without jobs come last. If
    /// the config has errors, returns no agents, because then it is not known which agents were removed.
    pub(super) fn all(roster: &Roster, snapshot: &Snapshot) -> Vec<Self> {
        let mut gone: Vec<Self> = Vec::new();
        if roster.has_errors {
            return gone;
        }
        for job in snapshot.jobs.iter().filter(|job| roster.agent(&job.agent).is_none()) {
            let agent = Self::entry(&mut gone, &job.agent);
            if let Some(adopter) = roster.agents.iter().find(|adopter| job.takes_place_of(adopter)) {
                agent.adopted += 1;
                if !agent.adopted_by.contains(&adopter.name) {
                    agent.adopted_by.push(adopter.name.clone());
                }
            }
            match job.state {
                LiveState::Running { .. } => agent.running += 1,
                LiveState::Pending { .. } => agent.queued += 1,
            }
        }
        for record in
            firings_of_removed(roster, snapshot).filter(|record| roster.agent(&record.agent).is_none())
        {
            let agent = Self::entry(&mut gone, &record.agent);
            agent.firings += 1;
            if !agent.firing_schedules.contains(&record.name) {
                agent.firing_schedules.push(record.name.clone());
            }
        }
        gone
    }

    fn entry<'a>(entries: &'a mut Vec<Self>, agent: &AgentName) -> &'a mut Self {
        let existing = entries.iter().position(|gone| gone.agent == *agent);
        let index = existing.unwrap_or_else(|| {
            entries.push(Self {
                agent: agent.clone(),
                running: 0,
                adopted: 0,
                adopted_by: Vec::new(),
                queued: 0,
                firings: 0,
                firing_schedules: Vec::new(),
            });
            entries.len() - 1
        });
        &mut entries[index]
    }

    /// Describes the running jobs whose schedule another agent has adopted; returns none if there are no such jobs.
    fn adopted_sentence(&self) -> Option<String> {
        let names: Vec<&str> = self.adopted_by.iter().map(AgentName::as_str).collect();
        let names = names.join(" or ");
        match self.adopted {
            0 => None,
            1 => Some(format!("1 running job takes a place of {names}, which has adopted its schedule")),
            more => {
                Some(format!("{more} running jobs take places of {names}, which has adopted their schedules"))
            }
        }
    }

    /// Returns true if the agent has no firings, and all its jobs are running jobs of adopted schedules.
    fn is_all_adopted(&self) -> bool {
        self.adopted > 0 && self.adopted == self.running && self.queued == 0 && self.firings == 0
    }
}

impl RemovedSchedule {
    /// Returns all removed schedules of a snapshot, in the order of their oldest jobs. Schedules without jobs come
    /// last. If the config has errors, returns no schedules, because then it is not known which schedules were removed.
    pub(super) fn all(roster: &Roster, snapshot: &Snapshot) -> Vec<Self> {
        let mut gone: Vec<Self> = Vec::new();
        if roster.has_errors {
            return gone;
        }
        let waiting = snapshot.jobs.iter().filter(|job| matches!(job.state, LiveState::Pending { .. }));
        for job in waiting {
            let (Some(agent), Some(name)) = (roster.agent(&job.agent), &job.schedule_name) else { continue };
            if agent.schedule(Some(name)).is_none() {
                Self::entry(&mut gone, &job.agent, name).queued += 1;
            }
        }
        for record in
            firings_of_removed(roster, snapshot).filter(|record| roster.agent(&record.agent).is_some())
        {
            Self::entry(&mut gone, &record.agent, &record.name).firings += 1;
        }
        gone
    }

    fn entry<'a>(entries: &'a mut Vec<Self>, agent: &AgentName, schedule: &ScheduleName) -> &'a mut Self {
        let existing = entries.iter().position(|gone| gone.agent == *agent && gone.schedule == *schedule);
        let index = existing.unwrap_or_else(|| {
            entries.push(Self { agent: agent.clone(), schedule: schedule.clone(), queued: 0, firings: 0 });
            entries.len() - 1
        });
        &mut entries[index]
    }

    /// Describes the jobs and firings that wait for the schedule, and how a person can handle them.
    pub fn sentence(&self) -> String {
        let Self { agent, schedule, queued, firings } = self;
        let jobs =
            (*queued > 0).then(|| if *queued == 1 { "1 job".to_owned() } else { format!("{queued} jobs") });
        let firings = (*firings > 0).then(|| firing_count_in_words(*firings));
        let waiting: Vec<String> = jobs.into_iter().chain(firings).collect();
        let (waiting, removed) = (waiting.join(" and "), schedule_left(agent, schedule.as_str()));
        let option = option_words("--schedule", schedule.as_str());
        let cancel = format!("`cowhand cancel --agent {agent} {option} --status pending`");
        format!(
            "{agent}/{schedule}: {waiting} waiting; {removed}; {cancel} cancels the waiting jobs and firings"
        )
    }
}

/// Finds the firings without a job whose schedule is no longer in the config. Returns the schedule's record for each.
fn firings_of_removed<'a>(
    roster: &'a Roster,
    snapshot: &'a Snapshot,
) -> impl Iterator<Item = &'a ScheduleRecord> + 'a {
    let firings = snapshot.preparing.iter().filter(|firing| roster.schedule(firing.schedule).is_none());
    firings.filter_map(|firing| snapshot.schedules.get(&firing.schedule))
}

fn firing_count_in_words(firings: usize) -> String {
    match firings {
        1 => "1 accepted firing without a job".to_owned(),
        more => format!("{more} accepted firings without a job"),
    }
}

/// States that an agent is no longer in the config, and how a person can handle its remaining jobs.
pub fn removed_agent_sentence(agent: &AgentName, gone: Option<&RemovedAgent>) -> String {
    match gone {
        Some(gone) if gone.is_all_adopted() => {
            let adopted = gone.adopted_sentence().unwrap_or_default();
            format!(
                "jobs of {agent}: {} running, 0 waiting; the agent {agent} is not in the config any more; {adopted}",
                gone.running
            )
        }
        Some(gone) => {
            let RemovedAgent { running, queued, firings, firing_schedules, .. } = gone;
            let adopted = gone.adopted_sentence().map(|sentence| format!("; {sentence}")).unwrap_or_default();
            let firings = (*firings > 0).then(|| format!(", {}", firing_count_in_words(*firings)));
            let (firings, advice) = (firings.unwrap_or_default(), removed_agent_advice(agent));
            let adopt = firing_schedules.iter().map(|schedule| format!("`adopt: {agent}/{schedule}`"));
            let adopt = adopt.collect::<Vec<_>>().join(" or ");
            let adopt = (!adopt.is_empty())
                .then(|| format!("; its firings continue in a schedule of another agent that has {adopt}"));
            format!(
                "jobs of {agent}: {running} running, {queued} waiting{firings}{adopted}; {advice}{}",
                adopt.unwrap_or_default()
            )
        }
        None => format!(
            "{}; `cowhand jobs --agent {agent}` lists its jobs, which have all ended",
            agent_left(agent)
        ),
    }
}

pub(super) async fn of_job(api: &Api, job: &Job) -> Result<Option<Waits>, ApiProblem> {
    Ok(of_jobs(api, std::slice::from_ref(job)).await?.pop().flatten())
}

/// Returns why each job waits; none for a job that is not pending, or for which no reason is known.
pub(super) async fn of_jobs(api: &Api, jobs: &[Job]) -> Result<Vec<Option<Waits>>, ApiProblem> {
    let is_pending = |job: &Job| job.status() == JobStatus::Pending;
    if !jobs.iter().any(is_pending) {
        return Ok(vec![None; jobs.len()]);
    }
    let (roster, now) = (api.roster(), api.now());
    let snapshot = api.snapshot(&roster, now).await?;
    let mut waits = Vec::with_capacity(jobs.len());
    for job in jobs {
        waits.push(if is_pending(job) {
            waits_of_pending(&api.store, &roster, &snapshot, job, now).await?
        } else {
            None
        });
    }
    Ok(waits)
}
