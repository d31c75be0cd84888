//! Triggers in a running fleet: strategies, events, deliveries and lists.

#![expect(clippy::unwrap_used, clippy::expect_used, reason = "a test that cannot go on fails")]

mod chats;
mod contract;
mod crash;
mod deliveries;
mod events;
mod github;
mod listing;
mod order;
#[expect(dead_code, reason = "its main is for people")]
#[path = "../../examples/own_trigger.rs"]
mod own_trigger;
mod renamed;
mod runner;
mod scripted;
mod trust;
mod variants;

use std::path::Path;
use std::time::Duration;

use cowhand::clock::Clock;
use cowhand::fleet::{AgentSource, Fleet, Options, Subscription};
use cowhand::state::StateFolder;
use cowhand::store::{JobFilter, LedgerRow};
use cowhand::trigger::Registry;
use cowhand_core::event::{Event, Fact};
use cowhand_core::id::{AgentName, ScheduleId};
use cowhand_core::job::Job;
use cowhand_core::roster::{Agent, Roster, Schedule};
use cowhand_core::runtime::Runtime;
use cowhand_core::schedule::ScheduleRecord;
use cowhand_testing::github_lists as fake;
use cowhand_testing::postgres::Postgres;
use tempfile::TempDir;

/// Folder and database of a fleet, which remain when the fleet is started again.
struct FleetFolder {
    folder: TempDir,
    server: Option<Postgres>,
}

/// Declares each test once for each database.
macro_rules! on_both {
    ($($story:ident),+ $(,)?) => {
        mod sqlite {
            $(#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
            async fn $story() {
                super::$story(crate::FleetFolder::sqlite()).await;
            })+
        }
        mod postgres {
            $(#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
            async fn $story() {
                super::$story(crate::FleetFolder::postgres()).await;
            })+
        }
    };
}
pub(crate) use on_both;

impl FleetFolder {
    fn sqlite() -> Self {
        Self { folder: TempDir::new().unwrap(), server: None }
    }

    fn postgres() -> Self {
        Self { server: Some(Postgres::start()), ..Self::sqlite() }
    }

    fn path(&self) -> &Path {
        self.folder.path()
    }

    fn store_url(&self) -> String {
        let file = || self.path().join("state/store.db").display().to_string();
        self.server.as_ref().map_or_else(file, Postgres::url)
    }

    async fn start(&self, agents: Vec<Agent>, triggers: Registry) -> Fleet {
        let store = self.server.as_ref().map(Postgres::url);
        Fleet::start(Options {
            agents: AgentSource::Given(Roster { store, ..Roster::of(agents) }),
            state: StateFolder::at(self.path().join("state")),
            clock: Clock::System,
            program: env!("CARGO_BIN_EXE_cowhand").into(),
            triggers,
            work_sources: cowhand::work::SourceRegistry::default(),
            fresh: false,
            node: cowhand::fleet::NodeOptions::default(),
        })
        .await
        .unwrap()
    }

    /// Returns an agent that prints its prompt.
    fn agent(&self, called: &str) -> Agent {
        let mut agent = Agent::new(name(called));
        self.path().clone_into(&mut agent.directory);
        agent.program.runtime = Runtime::Command;
        agent.program.command = ["cat"].map(str::to_owned).into();
        agent
    }

    /// Returns an agent whose jobs never start, for tests that check only the creation of jobs.
    fn idle_agent(&self, called: &str) -> Agent {
        Agent { max_concurrent: 0, ..self.agent(called) }
    }
}

fn name(text: &str) -> AgentName {
    text.parse().unwrap()
}

fn with_schedule(mut agent: Agent, called: &str, trigger: &str, prompt: &str) -> Agent {
    let trigger = serde_json::from_str(trigger).unwrap();
    let mut schedule = Schedule::new(&agent.name, called.parse().unwrap(), trigger);
    schedule.prompt = Some(prompt.to_owned());
    agent.schedules.push(schedule);
    agent
}

fn id(agent: &str, schedule: &str) -> ScheduleId {
    ScheduleId::of(&name(agent), &schedule.parse().unwrap())
}

/// Waits for the first event that matches, and returns all events up to it.
async fn until(events: &mut Subscription, fits: impl Fn(&Event) -> bool) -> Vec<Event> {
    let mut seen = Vec::new();
    let look = async {
        loop {
            let event = events.next().await.unwrap().expect("the fleet has ended");
            let last = fits(&event);
            seen.push(event);
            if last {
                return;
            }
        }
    };
    let found = tokio::time::timeout(Duration::from_mins(1), look).await;
    assert!(found.is_ok(), "it never happened; what did is {seen:#?}");
    seen
}

/// Waits for the next firing of a schedule, whatever its outcome, and returns its event.
async fn fires(events: &mut Subscription, agent: &str, schedule: &str) -> Event {
    let of_firing = |fact: &Fact| matches!(fact, Fact::ScheduleFired { .. } | Fact::ScheduleSkipped { .. });
    let fits = |event: &Event| {
        event.agent.as_ref().is_some_and(|name| name.as_str() == agent)
            && event.schedule.as_ref().is_some_and(|name| name.as_str() == schedule)
            && of_firing(&event.fact)
    };
    until(events, fits).await.pop().unwrap()
}

/// Returns the jobs, the oldest first.
async fn jobs(fleet: &Fleet) -> Vec<Job> {
    let mut jobs = fleet.store().jobs(JobFilter::default(), 10_000).await.unwrap();
    jobs.reverse();
    jobs
}

async fn prompts(fleet: &Fleet) -> Vec<String> {
    jobs(fleet).await.iter().map(|job| job.prompt().unwrap().to_owned()).collect()
}

async fn record(fleet: &Fleet, schedule: ScheduleId) -> ScheduleRecord {
    let known = fleet.store().schedules().await.unwrap();
    known.into_iter().find(|record| record.id == schedule).unwrap()
}

/// Returns the ledger, the newest firing first.
async fn ledger(fleet: &Fleet, schedule: ScheduleId) -> Vec<LedgerRow> {
    fleet.store().ledger(schedule, 10_000).await.unwrap()
}

/// Waits until `condition` returns true.
async fn wait_for(what: &str, mut condition: impl AsyncFnMut() -> bool) {
    let look = async {
        while !condition().await {
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
    };
    assert!(tokio::time::timeout(Duration::from_mins(1), look).await.is_ok(), "never: {what}");
}
