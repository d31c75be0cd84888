//! Migrations run on a database that somebody has been using.
//!
//! `fixtures/store-0001.sql` is such a database as the first version left it, in one text for both. Each new
//! migration has to carry it along; when a version adds tables that matter, it gets a fixture of its own.

use std::path::Path;

use cowhand_core::job::JobStatus::{Cancelled, Completed, Failed, Pending, Running};
use cowhand_core::schedule::{DisabledBy, FiringOutcome, ScheduleState};
use cowhand_store::{JobFilter, Store};
use sqlx::migrate::Migrator;
use sqlx::{Connection, Executor};

use crate::{Place, on_both};

on_both! {
    a_used_store_of_the_first_version_is_carried_along,
    a_new_store_is_opened_by_many_at_once,
    what_was_left_out_is_made_up_for,
    a_migration_that_was_changed_afterwards_is_refused,
}

const FIXTURE: &str = include_str!("fixtures/store-0001.sql");

/// The migrations as they are in the folder of a database.
async fn files_of(database: &str) -> Migrator {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("migrations").join(database);
    Migrator::new(folder.as_path()).await.unwrap()
}

#[tokio::test]
async fn both_databases_have_the_same_migrations() {
    let names = |migrator: &Migrator| {
        migrator
            .iter()
            .map(|migration| (migration.version, migration.description.to_string()))
            .collect::<Vec<_>>()
    };
    assert_eq!(names(&files_of("sqlite").await), names(&files_of("postgres").await));
}

async fn a_used_store_of_the_first_version_is_carried_along(place: Place) {
    if place.url.starts_with("postgres") {
        let mut server = sqlx::PgConnection::connect(&place.url).await.unwrap();
        files_of("postgres").await.run_to(1, &mut server).await.unwrap();
        server.execute(FIXTURE).await.unwrap();
        server.close().await.unwrap();
    } else {
        let mut file = connect(&place).await;
        files_of("sqlite").await.run_to(1, &mut file).await.unwrap();
        file.execute(FIXTURE).await.unwrap();
        file.close().await.unwrap();
    }
    let store = place.open().await;
    let jobs = store.jobs(JobFilter::default(), 100).await.unwrap();
    let statuses: Vec<_> = jobs.iter().map(cowhand_core::job::Job::status).collect();
    assert_eq!(statuses, [Pending, Running, Cancelled, Failed, Completed]);
    let schedules = store.schedules().await.unwrap();
    assert_eq!(schedules[1].state, ScheduleState::Disabled { why: DisabledBy::Person });
    let counted = schedules.iter().map(|schedule| schedule.counted_from.map(|from| (from.wall, from.boot)));
    let ran = schedules.iter().map(|schedule| schedule.last_run_at.map(|at| (at, None)));
    assert_eq!(counted.collect::<Vec<_>>(), ran.collect::<Vec<_>>(), "intervals go on from their last run");
    let ledger = store.ledger(schedules[0].id, 10).await.unwrap();
    assert_eq!(ledger[0].outcome, FiringOutcome::Ran);
    assert_eq!(ledger[0].jobs.len(), 1, "its job is known, which did not know its firing");
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

/// A store that a build with 0008 and without 0006 and 0007 has opened: each that is missing is applied, whatever the
/// newest is.
async fn what_was_left_out_is_made_up_for(place: Place) {
    let left_out = [6, 7];
    let some = |all: &Migrator| {
        let kept =
            all.iter().filter(|migration| migration.version <= 8 && !left_out.contains(&migration.version));
        Migrator { migrations: kept.cloned().collect::<Vec<_>>().into(), ..Migrator::DEFAULT }
    };
    if place.url.starts_with("postgres") {
        let mut server = sqlx::PgConnection::connect(&place.url).await.unwrap();
        some(&files_of("postgres").await).run(&mut server).await.unwrap();
        server.close().await.unwrap();
    } else {
        let mut file = connect(&place).await;
        some(&files_of("sqlite").await).run(&mut file).await.unwrap();
        file.close().await.unwrap();
    }
    let store = place.open().await;
    assert!(store.check_statements().await.unwrap() > 100, "every table and column is there");
    store.close().await;
    let applied: Vec<i64> = if place.url.starts_with("postgres") {
        let mut server = sqlx::PgConnection::connect(&place.url).await.unwrap();
        sqlx::query_scalar(APPLIED).fetch_all(&mut server).await.unwrap()
    } else {
        sqlx::query_scalar(APPLIED).fetch_all(&mut connect(&place).await).await.unwrap()
    };
    let files = files_of("sqlite").await;
    assert_eq!(applied, files.iter().map(|migration| migration.version).collect::<Vec<_>>());
}

const APPLIED: &str = "select version from _sqlx_migrations order by version";

async fn connect(place: &Place) -> sqlx::SqliteConnection {
    sqlx::SqliteConnection::connect(&format!("sqlite://{}?mode=rwc", place.url)).await.unwrap()
}

/// Nobody knows what is in such a store, so nobody writes to it.
async fn a_migration_that_was_changed_afterwards_is_refused(place: Place) {
    place.open().await.close().await;
    let change = "update _sqlx_migrations set checksum = (select checksum from _sqlx_migrations where version = 1) where version = 2";
    if place.url.starts_with("postgres") {
        sqlx::PgConnection::connect(&place.url).await.unwrap().execute(change).await.unwrap();
    } else {
        connect(&place).await.execute(change).await.unwrap();
    }
    let error = Store::open(&place.url).await.unwrap_err().to_string();
    assert!(error.contains("migration 2 was previously applied but has been modified"), "{error}");
}
