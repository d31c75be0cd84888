//! The database of a measured fleet, read without cowhand.

use std::time::Duration;

use cowhand_testing::postgres::Postgres;
use rusqlite::{Connection, OpenFlags};

use super::config::Config;
use super::daemon::Daemon;

/// Database in which the fleet keeps its jobs.
pub(crate) enum Database {
    Sqlite,
    Postgres(Postgres),
}

impl Database {
    pub(crate) const fn name(&self) -> &'static str {
        match self {
            Self::Sqlite => "SQLite",
            Self::Postgres(_) => "PostgreSQL",
        }
    }

    /// Adds the address of the database to a config.
    pub(crate) fn of(&self, config: Config) -> Config {
        match self {
            Self::Sqlite => config,
            Self::Postgres(postgres) => config.top(&format!("store: '{}'", postgres.url())),
        }
    }

    /// Returns the pause between two looks. A look at PostgreSQL starts a program.
    pub(crate) const fn pause(&self) -> Duration {
        Duration::from_millis(match self {
            Self::Sqlite => 20,
            Self::Postgres(_) => 300,
        })
    }

    /// Returns the number of jobs with a status.
    pub(crate) fn jobs(&self, daemon: &Daemon, status: &str) -> usize {
        self.number(daemon, &format!("select count(*) from jobs where status = '{status}'"))
    }

    pub(crate) fn number(&self, daemon: &Daemon, query: &str) -> usize {
        match self {
            Self::Sqlite => {
                let number: i64 = open(daemon).query_row(query, [], |row| row.get(0)).unwrap();
                number as usize
            }
            Self::Postgres(postgres) => postgres.ask(query).parse().unwrap(),
        }
    }
}

fn open(daemon: &Daemon) -> Connection {
    let connection =
        Connection::open_with_flags(daemon.state("store.db"), OpenFlags::SQLITE_OPEN_READ_ONLY).unwrap();
    connection.busy_timeout(Duration::from_secs(5)).unwrap();
    connection
}

/// Returns a PostgreSQL server that syncs its commits, or none if PostgreSQL is not installed.
pub(crate) fn postgres() -> Option<Database> {
    Postgres::is_installed().then(|| Database::Postgres(Postgres::start_durable()))
}
