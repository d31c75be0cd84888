//! Migrations run on a database that somebody has been using.
//!
//! `fixtures/store-0001.sql` is such a database as the first version left it, in one text for both. Each new
//! migration has to carry it along; when a version adds tables that matter, it gets a fixture of its own.

use cowhand::store::{JobFilter, Store};
use cowhand_core::job::JobStatus::{Cancelled, Completed, Failed, Pending, Running};
use cowhand_core::schedule::{DisabledBy, FiringOutcome, ScheduleState};
use sqlx::migrate::Migrator;
use sqlx::{Connection, Executor};

use crate::{Place, on_both};

on_both! {
    a_used_store_of_the_first_version_is_carried_along,
    a_new_store_is_opened_by_many_at_once,
}

const FIXTURE: &str = include_str!("fixtures/store-0001.sql");
static SQLITE: Migrator = sqlx::migrate!("migrations/sqlite");
static POSTGRES: Migrator = sqlx::migrate!("migrations/postgres");

#[test]
fn both_databases_have_the_same_migrations() {
    let names = |migrator: &Migrator| {
        migrator
            .iter()
            .map(|migration| (migration.version, migration.description.to_string()))
            .collect::<Vec<_>>()
    };
    assert_eq!(names(&SQLITE), names(&POSTGRES));
}

async fn a_used_store_of_the_first_version_is_carried_along(place: Place) {
    if place.url.starts_with("postgres") {
        let mut server = sqlx::PgConnection::connect(&place.url).await.unwrap();
        POSTGRES.run_to(1, &mut server).await.unwrap();
        server.execute(FIXTURE).await.unwrap();
        server.close().await.unwrap();
    } else {
        let mut file =
            sqlx::SqliteConnection::connect(&format!("sqlite://{}?mode=rwc", place.url)).await.unwrap();
        SQLITE.run_to(1, &mut file).await.unwrap();
        file.execute(FIXTURE).await.unwrap();
        file.close().await.unwrap();
    }
    let store = place.open().await;
    let jobs = store.jobs(JobFilter::default(), 100).await.unwrap();
    let statuses: Vec<_> = jobs.iter().map(cowhand_core::job::Job::status).collect();
    assert_eq!(statuses, [Pending, Running, Cancelled, Failed, Completed]);
    let schedules = store.schedules().await.unwrap();
    assert_eq!(schedules[1].state, ScheduleState::Disabled { why: DisabledBy::Person });
    let ledger = store.ledger(schedules[0].id, 10).await.unwrap();
    assert_eq!(ledger[0].outcome, FiringOutcome::Ran);
    assert_eq!(store.events_after(0, 10).await.unwrap().len(), 2);
    assert_eq!(store.snapshot().await.unwrap().jobs.len(), 2);
}

/// Threads stand for processes: each has a runtime and connections of its own.
async fn a_new_store_is_opened_by_many_at_once(place: Place) {
    let open = |url: String| {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
        runtime.block_on(async { Store::open(&url).await.map(drop) })
    };
    let threads: Vec<_> = (0..8)
        .map(|_| {
            let url = place.url.clone();
            std::thread::spawn(move || open(url))
        })
        .collect();
    for thread in threads {
        thread.join().unwrap().unwrap();
    }
}
