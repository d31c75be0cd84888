//! The cost of a firing does not depend on the number of other agents and schedules.

use cowhand_core::id::AgentName;
use cowhand_core::roster::{Agent, Roster};
use cowhand_core::uptime::Uptime;
use cowhand_engine::daemon::tick::{ImmediateStarter, tick, tick_agents};
use cowhand_store::{StatementCounts, Store};
use cowhand_system::clock::Clock;
use cowhand_testing::on_both;
use cowhand_testing::postgres::Postgres;
use jiff::{SignedDuration, Timestamp, ToSpan};

use super::roster;

on_both! {
    a_firing_costs_the_same_in_a_large_fleet,
}

/// Returns agents with ten schedules each, of which only one is due at 09:00.
fn fleet(agents: usize) -> Roster {
    let yearly: Vec<String> = (0..9).map(|number| format!("s{number}")).collect();
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
    schedules.push(("due", r#"{"type": "cron", "expression": "0 9 * * *"}"#));
    let due = rename(of(&schedules), "due".to_owned());
    let others = (1..agents).map(|number| rename(idle.clone(), format!("a{number}")));
    Roster::of([due].into_iter().chain(others).collect())
}

/// Returns the statements and rows of the tick that fires one schedule and claims its job.
async fn cost_of_firing(url: &str, agents: usize) -> StatementCounts {
    let start: Timestamp = "2026-01-05T08:59:00Z".parse().unwrap();
    let clock = Clock::test(start);
    let store = Store::open(url).await.unwrap().with_clock(clock.clone());
    let (roster, uptime) = (fleet(agents), Uptime::since(clock.moment()));
    store.load_schedules(roster.clone(), start).await.unwrap();
    tick(&store, &roster, start, &uptime, None).await.unwrap();
    let (seen, due) = (store.last_event().await.unwrap(), start + 1.minute());
    let before = store.statement_counts();
    assert!(store.changed_agents(seen).await.unwrap().agents.is_empty());
    let at_once = ImmediateStarter {
        node: "node",
        lease: SignedDuration::from_secs(30),
        supervises: &|_| false,
        begin: &|_, _| (),
    };
    let agents: Vec<AgentName> = vec!["due".parse().unwrap()];
    let fired = tick_agents(&store, &roster, agents.clone(), due, &uptime, Some(&at_once)).await.unwrap();
    assert_eq!(fired.fired, 1);
    assert_eq!(store.changed_agents(seen).await.unwrap().agents.into_iter().collect::<Vec<_>>(), agents);
    let after = store.statement_counts();
    store.close().await;
    StatementCounts { statements: after.statements - before.statements, rows: after.rows - before.rows }
}

async fn a_firing_costs_the_same_in_a_large_fleet(database: &'static str) {
    let mut costs = Vec::new();
    // PostgreSQL takes long to load many schedules.
    let many = if database == "postgres" { 100 } else { 1_000 };
    for agents in [1, many] {
        let folder = tempfile::tempdir().unwrap();
        let server = (database == "postgres").then(Postgres::start);
        let file = folder.path().join("store.db").display().to_string();
        let url = server.as_ref().map_or(file, Postgres::url);
        costs.push(cost_of_firing(&url, agents).await);
    }
    assert_eq!(costs[0], costs[1], "with one agent and with {many}");
    assert!(costs[0].statements <= 60 && costs[0].rows <= 120, "{:?}", costs[0]);
}
