//! One interface for both databases: arguments, rows and the transaction of a verb.

use cowhand_core::actor::Actor;
use cowhand_core::id::ScheduleId;
use cowhand_core::moment::{BootTime, Moment};
use jiff::Timestamp;
use serde::Serialize;
use serde::de::DeserializeOwned;
use sqlx::postgres::{PgArguments, PgConnection, PgRow};
use sqlx::query::Query;
use sqlx::{Decode, Postgres, Row as _, Type};

use super::counts::StatementCounter;
use super::dialect::{Statement, statements};
use super::error::StoreError;
use super::event_log::NewEvent;
use super::server::with_statement_timeout;
use super::sqlite::{SqliteConnection, SqliteRow, SqliteValue};

statements! {
    DATABASE_CLOCK = sqlite "select null as now"
        postgres "select (extract(epoch from clock_timestamp()) * 1000000)::bigint as now";
}

/// A transaction. Its events are numbered and written at its end, so that on PostgreSQL the row of the event counter is
/// locked as briefly as possible.
#[derive(Debug)]
pub(crate) struct Tx<'c> {
    connection: Connection<'c>,
    pub(crate) events: Vec<NewEvent>,
    /// Actor on whose behalf the verb runs.
    pub(crate) actor: Option<Actor>,
    /// Time of the call; `None` if the store has no clock.
    call_time: Option<Moment>,
    counter: StatementCounter,
}

#[derive(Debug)]
enum Connection<'c> {
    Sqlite(&'c mut SqliteConnection),
    Postgres(&'c mut PgConnection),
}

impl<'c> Tx<'c> {
    pub(crate) fn sqlite(connection: &'c mut SqliteConnection, counter: &StatementCounter) -> Self {
        Self::new(Connection::Sqlite(connection), counter)
    }

    pub(crate) fn postgres(connection: &'c mut PgConnection, counter: &StatementCounter) -> Self {
        Self::new(Connection::Postgres(connection), counter)
    }

    fn new(connection: Connection<'c>, counter: &StatementCounter) -> Self {
        Self { connection, events: Vec::new(), actor: None, call_time: None, counter: counter.clone() }
    }

    pub(crate) fn with_actor(self, actor: Option<Actor>) -> Self {
        Self { actor, ..self }
    }

    pub(crate) fn with_call_time(self, call_time: Option<Moment>) -> Self {
        Self { call_time, ..self }
    }

    pub(crate) const fn call_time(&self) -> Option<Moment> {
        self.call_time
    }

    /// Returns `now` with the boot time of the call, if the store has a clock.
    pub(crate) fn moment(&self, now: Timestamp) -> Moment {
        Moment { wall: now, boot: self.call_time.and_then(|time| time.boot) }
    }

    /// Returns whether several nodes may use the database.
    pub(crate) const fn is_shared(&self) -> bool {
        matches!(self.connection, Connection::Postgres(_))
    }

    /// Returns the time for leases. On PostgreSQL this is the time of the database, because nodes that share a database
    /// have no other clock in common. On SQLite, or if the store has no clock, it is the moment of `now`.
    pub(crate) async fn lease_clock(&mut self, now: Timestamp) -> Result<Moment, StoreError> {
        let uses_database_clock = self.is_shared() && self.call_time.is_some();
        if !uses_database_clock {
            return Ok(self.moment(now));
        }
        let row = self.one(DATABASE_CLOCK, args![]).await?;
        row.map_or_else(|| Ok(self.moment(now)), |row| row.time("now").map(Moment::from))
    }

    pub(crate) fn record(&mut self, event: NewEvent) {
        self.events.push(event);
    }

    pub(crate) const fn is_postgres(&self) -> bool {
        matches!(self.connection, Connection::Postgres(_))
    }

    /// Executes a statement and returns the number of changed rows.
    pub(crate) async fn execute(&mut self, sql: Statement, args: Vec<Arg>) -> Result<u64, StoreError> {
        let changed = match &mut self.connection {
            Connection::Sqlite(c) => {
                c.execute(sql.sqlite, &args).map_err(|error| StoreError::statement(sql.name, error))
            }
            Connection::Postgres(c) => with_statement_timeout(bind_postgres(sql, args).execute(&mut **c))
                .await
                .map(|done| done.rows_affected())
                .map_err(|error| StoreError::statement(sql.name, error)),
        }?;
        self.counter.add(usize::try_from(changed).unwrap_or_default());
        Ok(changed)
    }

    pub(crate) async fn all(&mut self, sql: Statement, args: Vec<Arg>) -> Result<Vec<Row>, StoreError> {
        let rows: Vec<Row> = match &mut self.connection {
            Connection::Sqlite(c) => c
                .all(sql.sqlite, &args)
                .map(|rows| rows.into_iter().map(|row| Row(sql.name, AnyRow::Sqlite(row))).collect())
                .map_err(|error| StoreError::statement(sql.name, error)),
            Connection::Postgres(c) => with_statement_timeout(bind_postgres(sql, args).fetch_all(&mut **c))
                .await
                .map(|rows| rows.into_iter().map(|row| Row(sql.name, AnyRow::Postgres(row))).collect())
                .map_err(|error| StoreError::statement(sql.name, error)),
        }?;
        self.counter.add(rows.len());
        Ok(rows)
    }

    pub(crate) async fn one(&mut self, sql: Statement, args: Vec<Arg>) -> Result<Option<Row>, StoreError> {
        Ok(self.all(sql, args).await?.pop())
    }

    /// Prepares a statement without running it.
    pub(crate) async fn prepare(&mut self, sql: Statement) -> Result<(), StoreError> {
        use sqlx::{Executor, SqlSafeStr};
        match &mut self.connection {
            Connection::Sqlite(c) => {
                c.prepare(sql.sqlite).map_err(|error| StoreError::statement(sql.name, error))
            }
            Connection::Postgres(c) => with_statement_timeout(c.prepare(sql.postgres.into_sql_str()))
                .await
                .map(drop)
                .map_err(|error| StoreError::statement(sql.name, error)),
        }
    }
}

/// Value of a statement's argument. A null has a type too, because PostgreSQL requires the type.
#[derive(Debug, Clone, PartialEq)]
pub(crate) enum Arg {
    Int(Option<i64>),
    Text(Option<String>),
}

fn bind_postgres(sql: Statement, args: Vec<Arg>) -> Query<'static, Postgres, PgArguments> {
    args.into_iter().fold(sqlx::query(sql.postgres), |query, arg| match arg {
        Arg::Int(value) => query.bind(value),
        Arg::Text(value) => query.bind(value),
    })
}

/// Builds arguments: `args![id, now, "word"]`.
macro_rules! args {
    ($($value:expr),* $(,)?) => { vec![$($crate::database::db::Arg::from($value)),*] };
}
pub(crate) use args;

/// Formats a list as JSON, for statements whose argument is a list.
pub(crate) fn json_list(values: &[impl Serialize]) -> Result<String, StoreError> {
    serde_json::to_string(values).map_err(|error| StoreError::Unreadable { what: error.to_string() })
}

impl From<i64> for Arg {
    fn from(value: i64) -> Self {
        Self::Int(Some(value))
    }
}

impl From<u32> for Arg {
    fn from(value: u32) -> Self {
        Self::Int(Some(value.into()))
    }
}

/// Largest timestamp that is stored; it replaces every later timestamp. jiff cannot read `Timestamp::MAX` back from
/// microseconds.
const MAX_TIMESTAMP: Timestamp = Timestamp::constant(253_402_207_199, 0);

impl From<Timestamp> for Arg {
    fn from(at: Timestamp) -> Self {
        Some(at).into()
    }
}

impl From<Option<i64>> for Arg {
    fn from(number: Option<i64>) -> Self {
        Self::Int(number)
    }
}

impl From<Option<Timestamp>> for Arg {
    fn from(at: Option<Timestamp>) -> Self {
        Self::Int(at.map(|at| at.min(MAX_TIMESTAMP).as_microsecond()))
    }
}

impl From<&str> for Arg {
    fn from(text: &str) -> Self {
        Some(text).into()
    }
}

impl From<Option<&str>> for Arg {
    fn from(text: Option<&str>) -> Self {
        text.map(str::to_owned).into()
    }
}

impl From<String> for Arg {
    fn from(text: String) -> Self {
        Some(text).into()
    }
}

impl From<Option<String>> for Arg {
    /// Replaces NUL characters: PostgreSQL does not accept them in a text, and a prompt or summary may contain one.
    fn from(text: Option<String>) -> Self {
        Self::Text(text.map(|text| if text.contains('\0') { text.replace('\0', "\u{fffd}") } else { text }))
    }
}

impl From<Option<BootTime>> for Arg {
    fn from(boot: Option<BootTime>) -> Self {
        Self::Text(boot.map(|boot| boot.to_string()))
    }
}

impl From<ScheduleId> for Arg {
    fn from(id: ScheduleId) -> Self {
        Self::Text(Some(id.to_string()))
    }
}

/// A row, and the name of the statement that it came from.
#[derive(Debug)]
pub(crate) struct Row(&'static str, AnyRow);

#[derive(Debug)]
enum AnyRow {
    Sqlite(SqliteRow),
    Postgres(PgRow),
}

impl Row {
    pub(crate) fn get<T: ColumnValue>(&self, column: &'static str) -> Result<T, StoreError> {
        match &self.1 {
            AnyRow::Sqlite(row) => {
                let value = row.value(column).and_then(T::of_sqlite);
                value.ok_or_else(|| StoreError::Unreadable { what: format!("{} {column}", self.0) })
            }
            AnyRow::Postgres(row) => {
                row.try_get(column).map_err(|error| StoreError::statement(self.0, error))
            }
        }
    }

    /// Parses a word, an id or a name. A value that does not parse was not written by cowhand.
    pub(crate) fn parse<T: std::str::FromStr>(&self, column: &'static str) -> Result<T, StoreError> {
        let text: String = self.get(column)?;
        text.parse().map_err(|_| self.unreadable(column, &text))
    }

    pub(crate) fn parse_opt<T: std::str::FromStr>(
        &self,
        column: &'static str,
    ) -> Result<Option<T>, StoreError> {
        let text: Option<String> = self.get(column)?;
        text.map(|text| text.parse().map_err(|_| self.unreadable(column, &text))).transpose()
    }

    pub(crate) fn json_opt<T: DeserializeOwned>(
        &self,
        column: &'static str,
    ) -> Result<Option<T>, StoreError> {
        let text: Option<String> = self.get(column)?;
        text.map(|text| serde_json::from_str(&text).map_err(|_| self.unreadable(column, &text))).transpose()
    }

    pub(crate) fn time(&self, column: &'static str) -> Result<Timestamp, StoreError> {
        let micros: i64 = self.get(column)?;
        Timestamp::from_microsecond(micros).map_err(|_| self.unreadable(column, &micros.to_string()))
    }

    pub(crate) fn time_opt(&self, column: &'static str) -> Result<Option<Timestamp>, StoreError> {
        let micros: Option<i64> = self.get(column)?;
        let read = |micros| {
            Timestamp::from_microsecond(micros).map_err(|_| self.unreadable(column, &micros.to_string()))
        };
        micros.map(read).transpose()
    }

    /// Reads a wall time and the boot time beside it; `None` if there is no wall time.
    pub(crate) fn moment_opt(
        &self,
        wall: &'static str,
        boot: &'static str,
    ) -> Result<Option<Moment>, StoreError> {
        let boot = self.parse_opt(boot)?;
        Ok(self.time_opt(wall)?.map(|wall| Moment { wall, boot }))
    }

    pub(crate) fn count<T: TryFrom<i64>>(&self, column: &'static str) -> Result<T, StoreError> {
        let number: i64 = self.get(column)?;
        T::try_from(number).map_err(|_| self.unreadable(column, &number.to_string()))
    }

    pub(crate) fn unreadable(&self, column: &str, value: &str) -> StoreError {
        StoreError::Unreadable { what: format!("{} {column} {value:?}", self.0) }
    }
}

/// A type that can be read from a column of both databases.
pub(crate) trait ColumnValue: for<'r> Decode<'r, Postgres> + Type<Postgres> {
    /// Returns `None` if the value has another type.
    fn of_sqlite(value: &SqliteValue) -> Option<Self>;
}

impl ColumnValue for i64 {
    fn of_sqlite(value: &SqliteValue) -> Option<Self> {
        if let SqliteValue::Int(number) = value { Some(*number) } else { None }
    }
}

impl ColumnValue for String {
    fn of_sqlite(value: &SqliteValue) -> Option<Self> {
        if let SqliteValue::Text(text) = value { Some(text.clone()) } else { None }
    }
}

impl<T: ColumnValue> ColumnValue for Option<T>
where
    Option<T>: for<'r> Decode<'r, Postgres> + Type<Postgres>,
{
    fn of_sqlite(value: &SqliteValue) -> Option<Self> {
        match value {
            SqliteValue::Null => Some(None),
            value => T::of_sqlite(value).map(Some),
        }
    }
}
