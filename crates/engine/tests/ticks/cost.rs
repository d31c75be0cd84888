//! The cost of a firing and of its job does not depend on the number of other agents and schedules.
//!
//! These are the statements of the store and the rows that they return or change. The whole program is counted in
//! `cowhand/tests/steady/costs.rs`, and the rows that the statements read in `store/tests/store/plans.rs`.

use std::path::Path;
use std::sync::Mutex;

use cowhand_core::id::AgentName;
use cowhand_core::job::{Job, Outcome};
use cowhand_core::plan::PlanningNode;
use cowhand_core::policy::Retry;
use cowhand_core::roster::{Agent, Roster};
use cowhand_core::uptime::Uptime;
use cowhand_engine::daemon::tick::{ImmediateStarter, tick, tick_agents};
use cowhand_store::{SharedLimits, StatementCounts, Store};
use cowhand_system::clock::Clock;
use cowhand_testing::on_both;
use cowhand_testing::postgres::Postgres;
use jiff::{SignedDuration, Timestamp, ToSpan};

use super::roster;

on_both! {
    a_firing_and_its_job_cost_the_same_in_a_large_fleet,
}

/// Fleets with 10 and with 10,000 schedules.
const AGENTS: [usize; 2] = [1, 1_000];
/// Statements and rows of the tick that fires a schedule: 3 statements notice changed agents, 5 read a snapshot before the
/// firing and 5 after it (each with the 10 schedules of the agent), and 20 are the transaction that writes the firing,
/// the job, its claim and three events. PostgreSQL also reads its clock 3 times. A few more are allowed, but fewer than
/// one for each schedule of the agent.
const FIRING_LIMITS: StatementCounts = StatementCounts { statements: 39, rows: 49 };
/// Statements and rows of the rest of the job: 1 statement writes its directory and runtime, 17 its end with one event,
/// 2 notice the changed agent, and 5 read a snapshot.
const END_LIMITS: StatementCounts = StatementCounts { statements: 29, rows: 32 };

/// Returns agents with ten schedules each. Only one of the schedules is due at 09:00.
fn fleet(agents: usize) -> Roster {
    let yearly: Vec<String> = (0..10).map(|number| format!("s{number}")).collect();
    let mut schedules: Vec<(&str, &str)> =
        yearly.iter().map(|name| (name.as_str(), r#"{"type": "cron", "expression": "0 0 1 1 *"}"#)).collect();
    let of = |schedules: &[(&str, &str)]| roster(schedules).agents[0].clone();
    let rename = |agent: Agent, name: String| {
        let mut agent = agent;
        agent.name = name.parse().unwrap();
        for schedule in &mut agent.schedules {
            schedule.id = cowhand_core::id::ScheduleId::of(&agent.name, &schedule.name);
        }
        agent
    };
    let idle = of(&schedules);
    schedules[0] = ("due", r#"{"type": "cron", "expression": "0 9 * * *"}"#);
    let due = rename(of(&schedules), "due".to_owned());
    let others = (1..agents).map(|number| rename(idle.clone(), format!("a{number}")));
    Roster::of([due].into_iter().chain(others).collect())
}

/// Returns the cost of the tick that fires one schedule and claims its job, and the cost of the rest of the job, with
/// the tick that follows its end.
async fn costs(url: &str, agents: usize) -> [StatementCounts; 2] {
    let start: Timestamp = "2026-01-05T08:59:00Z".parse().unwrap();
    let clock = Clock::test(start);
    let store = Store::open(url).await.unwrap().with_clock(clock.clone());
    let (roster, uptime) = (fleet(agents), Uptime::since(clock.moment()));
    assert_eq!(roster.agents.iter().map(|agent| agent.schedules.len()).sum::<usize>(), agents * 10);
    store.load_schedules(roster.clone(), start).await.unwrap();
    tick(&store, &roster, start, &uptime, None).await.unwrap();
    let (seen, due) = (store.last_event().await.unwrap(), start + 1.minute());
    let counts = [store.statement_counts()];
    assert!(store.changed_agents(seen).await.unwrap().agents.is_empty());
    let claimed: Mutex<Option<(Job, i64)>> = Mutex::new(None);
    let begin = |job, epoch| *claimed.lock().unwrap() = Some((job, epoch));
    let at_once = ImmediateStarter {
        node: "node",
        lease: SignedDuration::from_secs(30),
        shared: SharedLimits::default(),
        here: PlanningNode::default(),
        supervises: &|_| true,
        leaves: &|_| false,
        begin: &begin,
    };
    let agents: Vec<AgentName> = vec!["due".parse().unwrap()];
    let fired = tick_agents(&store, &roster, agents.clone(), due, &uptime, Some(&at_once)).await.unwrap();
    assert_eq!(fired.fired, 1);
    let changed = store.changed_agents(seen).await.unwrap();
    assert_eq!(changed.agents.into_iter().collect::<Vec<_>>(), agents);
    let counts = [counts[0], store.statement_counts()];

    let (job, epoch) = claimed.lock().unwrap().take().unwrap();
    let id = job.id().clone();
    assert!(store.set_attempt_location(id.clone(), 1, Path::new("/srv/work"), "command").await.unwrap());
    let outcome = Outcome::Completed { summary: None };
    store.settle(id, epoch, outcome, Retry::default(), due + 1.second()).await.unwrap();
    assert_eq!(store.changed_agents(changed.newest).await.unwrap().agents.len(), 1);
    let idle =
        tick_agents(&store, &roster, agents, due + 2.seconds(), &uptime, Some(&at_once)).await.unwrap();
    assert_eq!(idle.fired, 0);
    let counts = [counts[0], counts[1], store.statement_counts()];
    store.close().await;
    let difference = |after: StatementCounts, before: StatementCounts| StatementCounts {
        statements: after.statements - before.statements,
        rows: after.rows - before.rows,
    };
    [difference(counts[1], counts[0]), difference(counts[2], counts[1])]
}

async fn a_firing_and_its_job_cost_the_same_in_a_large_fleet(database: &'static str) {
    let mut all = Vec::new();
    for agents in AGENTS {
        let folder = tempfile::tempdir().unwrap();
        let server = (database == "postgres").then(Postgres::start);
        let file = folder.path().join("store.db").display().to_string();
        let url = server.as_ref().map_or(file, Postgres::url);
        all.push(costs(&url, agents).await);
    }
    assert_eq!(all[0], all[1], "with {} and with {} agents", AGENTS[0], AGENTS[1]);
    for (cost, limit) in all[0].into_iter().zip([FIRING_LIMITS, END_LIMITS]) {
        assert!(cost.statements <= limit.statements && cost.rows <= limit.rows, "{cost:?}, not {limit:?}");
    }
}
