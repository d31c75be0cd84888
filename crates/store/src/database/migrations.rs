//! The migrations of the schema. Each migration has one file for SQLite and one for PostgreSQL.
//!
//! The list is written by hand instead of with `sqlx::migrate!`, because that macro makes cargo build sqlx and SQLite a
//! second time. Released files must not change: their checksums are compared with the checksums in the store.
//! sqlx runs the migrations of PostgreSQL. [`migrate_file`] runs those of SQLite, with the same table of applied
//! migrations.

use std::sync::LazyLock;
use std::time::Instant;

use sqlx::SqlSafeStr;
use sqlx::migrate::{MigrateError, Migration, MigrationType, Migrator};

use super::sqlite::SqliteConnection;

/// A migration: its number, its name and its SQL.
type Source = (i64, &'static str, &'static str);

macro_rules! migrations {
    ($folder:literal) => {
        migrations! { $folder:
            1 "0001_" "ground",
            2 "0002_" "work",
            3 "0003_" "triggers",
            4 "0004_" "tokens",
            5 "0005_" "usage",
            6 "0006_" "hooks",
            7 "0007_" "workspaces",
            8 "0008_" "jobs_by_status",
            9 "0009_" "chats",
            10 "0010_" "budgets",
            11 "0011_" "audit",
            12 "0012_" "providers",
            13 "0013_" "asks",
            14 "0014_" "trust",
            15 "0015_" "reports",
            16 "0016_" "assumed",
            17 "0017_" "denials",
            18 "0018_" "acted",
            19 "0019_" "moments",
            20 "0020_" "queue",
            21 "0021_" "requeued",
            22 "0022_" "write_probe",
            // 23 is unused; never reuse a number.
            24 "0024_" "firing_jobs",
            25 "0025_" "imports",
            26 "0026_" "owed_since",
            27 "0027_" "assumed_usage",
            28 "0028_" "absent_since",
            29 "0029_" "long_paths",
            30 "0030_" "store_identity",
            31 "0031_" "trigger_error",
            32 "0032_" "live_of_agent",
            33 "0033_" "agent_began",
            34 "0034_" "running_of_agent",
            35 "0035_" "history",
            36 "0036_" "chat",
            37 "0037_" "chat_calls",
            38 "0038_" "ask_replies",
            39 "0039_" "chat_files",
            40 "0040_" "chat_inboxes",
            41 "0041_" "chat_surfaces",
            42 "0042_" "chat_counted",
            43 "0043_" "chat_threads",
            44 "0044_" "job_messages",
            45 "0045_" "notifications",
            46 "0046_" "provider_windows",
            47 "0047_" "web_chat",
            48 "0048_" "refused_answers",
            49 "0049_" "lease_rules",
            53 "0053_" "nodes",
        }
    };
    ($folder:literal: $($version:literal $prefix:literal $name:literal,)*) => {
        [$((
            $version,
            $name,
            include_str!(concat!("../../migrations/", $folder, "/", $prefix, $name, ".sql")),
        )),*]
    };
}

pub(crate) static SQLITE: LazyLock<Migrator> = LazyLock::new(|| migrator(&migrations!("sqlite")));
pub(crate) static POSTGRES: LazyLock<Migrator> = LazyLock::new(|| migrator(&migrations!("postgres")));

fn migrator(sources: &[Source]) -> Migrator {
    let migration = |&(version, name, sql): &Source| {
        let description = name.replace('_', " ").into();
        Migration::new(version, description, MigrationType::Simple, sql.into_sql_str(), false)
    };
    Migrator::with_migrations(sources.iter().map(migration).collect())
}

/// Returns the newest migration that this version knows.
pub(super) fn newest_of(migrations: &Migrator) -> Option<i64> {
    migrations.iter().map(|migration| migration.version).max()
}

/// The table of applied migrations, as sqlx creates it.
const APPLIED_TABLE: &str = "create table if not exists _sqlx_migrations (
    version bigint primary key,
    description text not null,
    installed_on timestamp not null default current_timestamp,
    success boolean not null,
    checksum blob not null,
    execution_time bigint not null
)";

/// Reason why a file was not migrated.
#[derive(Debug)]
pub(super) enum MigrationFailure {
    /// The applied migrations do not match the list of this version.
    List(MigrateError),
    Statement(rusqlite::Error),
}

impl From<rusqlite::Error> for MigrationFailure {
    fn from(error: rusqlite::Error) -> Self {
        Self::Statement(error)
    }
}

/// Applies the missing migrations to an SQLite file, each in its own transaction.
pub(super) fn migrate_file(file: &mut SqliteConnection) -> Result<(), MigrationFailure> {
    file.connection().execute_batch(APPLIED_TABLE)?;
    let applied: Vec<(i64, Vec<u8>, bool)> = file
        .connection()
        .prepare("select version, checksum, success from _sqlx_migrations order by version")?
        .query_map([], |row| Ok((row.get(0)?, row.get(1)?, row.get(2)?)))?
        .collect::<Result<_, _>>()?;
    for (version, checksum, success) in &applied {
        let known = SQLITE.iter().find(|migration| migration.version == *version);
        let problem = match known {
            None => MigrateError::VersionMissing(*version),
            Some(_) if !success => MigrateError::Dirty(*version),
            Some(known) if known.checksum != *checksum => MigrateError::VersionMismatch(*version),
            Some(_) => continue,
        };
        return Err(MigrationFailure::List(problem));
    }
    let is_missing =
        |migration: &&Migration| !applied.iter().any(|(version, ..)| *version == migration.version);
    for migration in SQLITE.iter().filter(is_missing) {
        apply(file.connection(), migration)?;
    }
    Ok(())
}

fn apply(file: &rusqlite::Connection, migration: &Migration) -> rusqlite::Result<()> {
    let started_at = Instant::now();
    let transaction = file.unchecked_transaction()?;
    transaction.execute_batch(migration.sql.as_str())?;
    let nanoseconds = i64::try_from(started_at.elapsed().as_nanos()).unwrap_or(i64::MAX);
    transaction.execute(
        "insert into _sqlx_migrations (version, description, success, checksum, execution_time) \
         values (?1, ?2, true, ?3, ?4)",
        (migration.version, &migration.description, &migration.checksum, nanoseconds),
    )?;
    transaction.commit()
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use super::*;

    /// The lists contain every file, with the number, the description and the checksum that sqlx reads from the folder.
    #[tokio::test]
    async fn the_migration_list_matches_the_folders() {
        for (folder, migrator) in [("sqlite", &SQLITE), ("postgres", &POSTGRES)] {
            let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("migrations").join(folder);
            let read = Migrator::new(folder.as_path()).await.unwrap();
            let facts = |migrator: &Migrator| {
                let fact = |migration: &Migration| {
                    let Migration { version, description, checksum, no_tx, .. } = migration.clone();
                    (version, description, checksum, no_tx)
                };
                migrator.iter().map(fact).collect::<Vec<_>>()
            };
            assert_eq!(facts(migrator), facts(&read), "{}", folder.display());
        }
    }
}
