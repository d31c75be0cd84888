//! Migrations of a database that was in use.
//!
//! `fixtures/store-0001.sql` is such a database of the first version, with one text for SQLite and PostgreSQL. Each new
//! migration has to work on it. A version that adds important tables gets its own fixture. The number of a fixture is
//! the last migration of the version that wrote it.

use std::path::Path;

use cowhand_core::job::Closing;
use cowhand_core::job::JobStatus::{Cancelled, Completed, Failed, Pending, Running};
use cowhand_core::schedule::{DisabledBy, FiringOutcome, ScheduleState};
use cowhand_store::{ItemState, JobFilter, Store};
use sqlx::migrate::{Migration, Migrator};
use sqlx::{Connection, Executor};

use crate::{TestDb, at, on_both};

on_both! {
    a_used_store_of_the_first_version_is_carried_along,
    items_and_sums_of_costs_are_carried_along,
    a_new_store_is_opened_by_many_at_once,
    skipped_migrations_are_applied_later,
    a_migration_that_was_changed_afterwards_is_refused,
}

const FIXTURE: &str = include_str!("fixtures/store-0001.sql");
const FIXTURE_25: &str = include_str!("fixtures/store-0025.sql");

/// Reads the migrations of a database from their folder.
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

/// Makes a store with all migrations up to `migration`, and the rows of a fixture.
async fn make(db: &TestDb, migration: i64, rows: &'static str) {
    if db.url.starts_with("postgres") {
        let mut server = sqlx::PgConnection::connect(&db.url).await.unwrap();
        files_of("postgres").await.run_to(migration, &mut server).await.unwrap();
        server.execute(rows).await.unwrap();
        server.close().await.unwrap();
    } else {
        let up_to = |file: &&Migration| file.version <= migration;
        let file = migrated(db, files_of("sqlite").await.iter().filter(up_to));
        file.execute_batch(rows).unwrap();
    }
}

async fn a_used_store_of_the_first_version_is_carried_along(db: TestDb) {
    make(&db, 1, FIXTURE).await;
    let store = db.open().await;
    let jobs = store.jobs(JobFilter::default(), 100).await.unwrap();
    let statuses: Vec<_> = jobs.iter().map(cowhand_core::job::Job::status).collect();
    assert_eq!(statuses, [Pending, Running, Cancelled, Failed, Completed]);
    let schedules = store.schedules().await.unwrap();
    assert_eq!(schedules[1].state, ScheduleState::Disabled { why: DisabledBy::Person });
    let counted = schedules.iter().map(|schedule| schedule.interval_from.map(|from| (from.wall, from.boot)));
    let ran = schedules.iter().map(|schedule| schedule.last_run_at.map(|at| (at, None)));
    assert_eq!(counted.collect::<Vec<_>>(), ran.collect::<Vec<_>>(), "intervals go on from their last run");
    let ledger = store.ledger(schedules[0].id, 10).await.unwrap();
    assert_eq!(ledger[0].outcome, FiringOutcome::Ran);
    assert_eq!(ledger[0].jobs.len(), 1, "its job is known, which did not know its firing");
    assert_eq!(store.events_after(0, 10).await.unwrap().len(), 2);
    let live = store.snapshot().await.unwrap().jobs;
    let automatic: Vec<_> = live.iter().map(|job| job.automatic).collect();
    assert_eq!(automatic, [true, false], "a webhook and a chat message caused them");
}

async fn items_and_sums_of_costs_are_carried_along(db: TestDb) {
    make(&db, 25, FIXTURE_25).await;
    let store = db.open().await;
    let mut items = store.items().await.unwrap();
    items.sort_by(|one, other| one.holder.cmp(&other.holder));
    let entry = ItemState::Closing {
        closing: Closing::release("it broke".to_owned()),
        tries: 2,
        last_error: Some("no route to host".to_owned()),
        since: None,
        by: None,
    };
    assert_eq!(items.iter().map(|item| &item.state).collect::<Vec<_>>(), [&entry, &ItemState::Held]);
    let (first, last) = (at(0), at(3_600));
    let sums = store.spent(first, last, last).await.unwrap();
    let costs: Vec<_> = sums.iter().map(|sum| (sum.attempts, sum.usage.cost_usd, sum.assumed_usd)).collect();
    assert_eq!(costs, [(1, None, None), (0, Some(0.25), None)]);
    let items = store.spent_on_items(first, last, last, 10).await.unwrap();
    assert_eq!((items[0].usage.cost_usd, items[0].assumed_usd), (Some(0.25), None));
}

/// Threads act as processes: each thread has its own runtime and its own connections.
async fn a_new_store_is_opened_by_many_at_once(db: TestDb) {
    let open = |url: String| {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
        runtime.block_on(async { Store::open(&url).await.map(drop) })
    };
    let threads: Vec<_> = (0..8)
        .map(|_| {
            let url = db.url.clone();
            std::thread::spawn(move || open(url))
        })
        .collect();
    for thread in threads {
        thread.join().unwrap().unwrap();
    }
}

/// A build with migration 8 and without 6 and 7 has opened the store. Each missing migration is applied.
async fn skipped_migrations_are_applied_later(db: TestDb) {
    let left_out = [6, 7];
    let some = |all: &Migrator| {
        let kept =
            all.iter().filter(|migration| migration.version <= 8 && !left_out.contains(&migration.version));
        Migrator { migrations: kept.cloned().collect::<Vec<_>>().into(), ..Migrator::DEFAULT }
    };
    if db.url.starts_with("postgres") {
        let mut server = sqlx::PgConnection::connect(&db.url).await.unwrap();
        some(&files_of("postgres").await).run(&mut server).await.unwrap();
        server.close().await.unwrap();
    } else {
        drop(migrated(&db, some(&files_of("sqlite").await).iter()));
    }
    let store = db.open().await;
    assert!(store.check_statements().await.unwrap() > 100, "every table and column is there");
    store.close().await;
    let applied: Vec<i64> = if db.url.starts_with("postgres") {
        let mut server = sqlx::PgConnection::connect(&db.url).await.unwrap();
        sqlx::query_scalar(APPLIED).fetch_all(&mut server).await.unwrap()
    } else {
        let file = rusqlite::Connection::open(&db.url).unwrap();
        let mut applied = file.prepare(APPLIED).unwrap();
        applied.query_map([], |row| row.get(0)).unwrap().map(Result::unwrap).collect()
    };
    let files = files_of("sqlite").await;
    assert_eq!(applied, files.iter().map(|migration| migration.version).collect::<Vec<_>>());
}

const APPLIED: &str = "select version from _sqlx_migrations order by version";

/// Creates an SQLite file with these migrations, as the versions did that used sqlx for SQLite.
fn migrated<'m>(db: &TestDb, migrations: impl Iterator<Item = &'m Migration>) -> rusqlite::Connection {
    let file = rusqlite::Connection::open(&db.url).unwrap();
    let table = "create table _sqlx_migrations (version bigint primary key, description text not null, \
        installed_on timestamp not null default current_timestamp, success boolean not null, \
        checksum blob not null, execution_time bigint not null)";
    file.execute_batch(table).unwrap();
    for migration in migrations {
        file.execute_batch(migration.sql.as_str()).unwrap();
        let row = "insert into _sqlx_migrations (version, description, success, checksum, execution_time) \
            values (?1, ?2, true, ?3, 1)";
        file.execute(row, (migration.version, &migration.description, &migration.checksum)).unwrap();
    }
    file
}

/// The schema of such a store is unknown, so nothing is written to it.
async fn a_migration_that_was_changed_afterwards_is_refused(db: TestDb) {
    db.open().await.close().await;
    let change = "update _sqlx_migrations set checksum = (select checksum from _sqlx_migrations where version = 1) where version = 2";
    if db.url.starts_with("postgres") {
        sqlx::PgConnection::connect(&db.url).await.unwrap().execute(change).await.unwrap();
    } else {
        rusqlite::Connection::open(&db.url).unwrap().execute_batch(change).unwrap();
    }
    let error = Store::open(&db.url).await.unwrap_err().to_string();
    assert!(error.contains("migration 2 was previously applied but has been modified"), "{error}");
}
