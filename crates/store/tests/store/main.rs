//! One suite for both databases: every verb and every rule is tested on SQLite and on PostgreSQL.

#![expect(clippy::unwrap_used, clippy::expect_used, reason = "a test that cannot go on says so by panicking")]

mod adoptions;
mod asks;
mod attempts;
mod budgets;
mod chat;
mod chat_counts;
mod chat_edits;
mod chat_limits;
mod conformance;
mod crash;
mod damage;
mod followups;
mod hooks;
mod identity;
mod items;
mod leases;
mod messages;
mod migrations;
mod nodes;
mod notifications;
mod pauses;
mod plans;
mod providers;
mod races;
mod refused;
mod reports;
mod retention;
mod server;
mod tokens;
mod triggers;
mod usage;
mod web_chat;
mod workspaces;

use cowhand_core::id::{JobId, ScheduleId};
use cowhand_core::job::{NewJob, TriggerType};
use cowhand_core::roster::{Agent, Roster, Schedule};
use cowhand_core::trigger::{FiringKey, Occurrence};
use cowhand_store::Store;
use cowhand_testing::postgres::Postgres;
use jiff::Timestamp;
use tempfile::TempDir;

/// The database of one test.
pub(crate) struct TestDb {
    pub(crate) url: String,
    _resource: Resource,
}

/// Resource that lives as long as the database.
enum Resource {
    Nothing,
    Folder { _folder: TempDir },
    Server { _server: Postgres },
}

impl TestDb {
    pub(crate) fn sqlite() -> Self {
        let folder = tempfile::tempdir().unwrap();
        let url = folder.path().join("store.db").display().to_string();
        Self { url, _resource: Resource::Folder { _folder: folder } }
    }

    pub(crate) fn postgres() -> Self {
        let server = Postgres::start();
        Self { url: server.url(), _resource: Resource::Server { _server: server } }
    }

    /// Refers to a database that another test process owns.
    pub(crate) fn at(url: String) -> Self {
        Self { url, _resource: Resource::Nothing }
    }

    pub(crate) async fn open(&self) -> Store {
        Store::open(&self.url).await.unwrap()
    }
}

/// Declares a test on each database for each of these functions.
macro_rules! on_both {
    ($($story:ident),+ $(,)?) => {
        mod sqlite {
            $(#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
            async fn $story() {
                super::$story(crate::TestDb::sqlite()).await;
            })+
        }
        mod postgres {
            $(#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
            async fn $story() {
                super::$story(crate::TestDb::postgres()).await;
            })+
        }
    };
}
pub(crate) use on_both;

pub(crate) fn at(second: i64) -> Timestamp {
    Timestamp::from_second(1_767_600_000 + second).unwrap()
}

/// Returns a roster with the agent `coder`, which has one schedule for each trigger, named `s0`, `s1`, ...
pub(crate) fn roster(triggers: &[&str]) -> Roster {
    let name: cowhand_core::id::AgentName = "coder".parse().unwrap();
    let schedule = |(number, trigger): (usize, &&str)| {
        Schedule::new(&name, format!("s{number}").parse().unwrap(), serde_json::from_str(trigger).unwrap())
    };
    let schedules = triggers.iter().enumerate().map(schedule).collect();
    Roster::of(vec![Agent { schedules, ..Agent::new(name.clone()) }])
}

pub(crate) const HOURLY: &str = r#"{"type":"cron","expression":"@hourly"}"#;

/// Opens a new store with one hourly schedule.
pub(crate) async fn with_schedule(db: &TestDb) -> (Store, ScheduleId) {
    let store = db.open().await;
    let roster = roster(&[HOURLY]);
    let id = roster.agents[0].schedules[0].id;
    store.load_schedules(roster, at(0)).await.unwrap();
    (store, id)
}

pub(crate) fn new_job() -> NewJob {
    NewJob {
        agent: "coder".parse().unwrap(),
        trigger_type: TriggerType::Schedule,
        schedule: Some("s0".parse().unwrap()),
        prompt: Some("Tidy up.\nThen rest.".into()),
        origin: None,
        work_item: None,
        chat: None,
        message: None,
        confined: None,
        not_before: None,
    }
}

pub(crate) fn hand_job() -> NewJob {
    NewJob { trigger_type: TriggerType::Manual, schedule: None, ..new_job() }
}

pub(crate) fn cron_key(second: i64) -> FiringKey {
    Occurrence::Cron(at(second)).key(0)
}

pub(crate) fn no_such_job() -> JobId {
    "job-2026-01-05-nosuch".parse().unwrap()
}
