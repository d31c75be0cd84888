//! SQLite through rusqlite: connections, statements with their rows, and the readers.
//!
//! A statement runs on the thread of its caller and never waits for another thread. Therefore the future of a verb is
//! ready at its first poll ([`run_now`]).

use std::collections::HashMap;
use std::path::Path;
use std::sync::{Arc, Mutex, PoisonError};

use futures_util::FutureExt;
use rusqlite::types::{FromSql, ValueRef};
use rusqlite::{Connection, OpenFlags};
use tokio::runtime::{Handle, RuntimeFlavor};
use tokio::sync::Semaphore;

use super::db::Arg;
use super::error::StoreError;
use super::open::ANSWER_TIMEOUT;

/// Number of connections for reads. A read occupies a thread of the runtime. The daemon has at least one thread more
/// than this number.
pub const SQLITE_READERS: usize = 3;
/// Number of prepared statements that a connection keeps. The store has fewer statements.
const KEPT_STATEMENTS: usize = 512;

/// A connection, and the shapes of the statements that it has run.
#[derive(Debug)]
pub(crate) struct SqliteConnection {
    connection: Connection,
    /// Shapes of statements, by the address and length of their text, which is a constant.
    shapes: HashMap<(usize, usize), Shape>,
}

/// Parameters and columns of a statement.
#[derive(Debug, Clone)]
struct Shape {
    /// Index of the argument for each parameter. SQLite numbers `$2` and `$1` in the order in which they appear.
    arguments: Arc<[usize]>,
    columns: Arc<[Box<str>]>,
}

/// How a connection uses its file.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum FileUse {
    /// Reads and writes, with a write-ahead log. A confirmed commit survives a power failure; group commit makes this
    /// affordable.
    Durable,
    /// Only reads.
    ReadOnly,
    /// Writes a new file that is synced when it is complete.
    Unsynced,
    /// Reads and writes a file that contains all its data, without a log beside it.
    SingleFile,
}

impl FileUse {
    const fn settings(self) -> &'static str {
        match self {
            Self::Durable => "pragma journal_mode = wal; pragma synchronous = full;",
            Self::ReadOnly => "",
            Self::Unsynced => "pragma journal_mode = memory; pragma synchronous = off;",
            Self::SingleFile => "pragma journal_mode = delete;",
        }
    }
}

impl SqliteConnection {
    /// Opens a file that exists.
    pub(crate) fn open(path: &Path, file_use: FileUse) -> rusqlite::Result<Self> {
        let access = match file_use {
            FileUse::ReadOnly => OpenFlags::SQLITE_OPEN_READ_ONLY,
            FileUse::Durable | FileUse::Unsynced | FileUse::SingleFile => OpenFlags::SQLITE_OPEN_READ_WRITE,
        };
        let connection = Connection::open_with_flags(path, access | OpenFlags::SQLITE_OPEN_NO_MUTEX)?;
        connection.busy_timeout(ANSWER_TIMEOUT)?;
        connection.set_prepared_statement_cache_capacity(KEPT_STATEMENTS);
        connection.execute_batch(file_use.settings())?;
        // Savepoints of group commits stay in memory.
        connection.execute_batch("pragma foreign_keys = on; pragma temp_store = memory;")?;
        Ok(Self { connection, shapes: HashMap::new() })
    }

    pub(crate) const fn connection(&self) -> &Connection {
        &self.connection
    }

    pub(crate) fn close(self) -> rusqlite::Result<()> {
        self.connection.close().map_err(|(_, error)| error)
    }

    /// Executes a command without arguments and results, such as `commit`.
    pub(crate) fn command(&mut self, sql: &'static str) -> rusqlite::Result<()> {
        self.execute(sql, &[]).map(drop)
    }

    /// Executes a statement and returns the number of changed rows.
    pub(crate) fn execute(&mut self, sql: &'static str, args: &[Arg]) -> rusqlite::Result<u64> {
        self.run(sql, args, |_, _| Ok(()))?;
        Ok(self.connection.changes())
    }

    pub(crate) fn all(&mut self, sql: &'static str, args: &[Arg]) -> rusqlite::Result<Vec<SqliteRow>> {
        let mut all = Vec::new();
        self.run(sql, args, |row, columns| {
            let value = |index| SqliteValue::read(row, index);
            let values = (0..columns.len()).map(value).collect::<rusqlite::Result<_>>()?;
            all.push(SqliteRow { columns: Arc::clone(columns), values });
            Ok(())
        })?;
        Ok(all)
    }

    /// Runs a statement and passes each row and the names of its columns to `each`.
    fn run(
        &mut self,
        sql: &'static str,
        args: &[Arg],
        mut each: impl FnMut(&rusqlite::Row<'_>, &Arc<[Box<str>]>) -> rusqlite::Result<()>,
    ) -> rusqlite::Result<()> {
        let mut statement = self.connection.prepare_cached(sql)?;
        let shape =
            self.shapes.entry((sql.as_ptr().addr(), sql.len())).or_insert_with(|| Shape::of(&statement));
        for (parameter, argument) in (1..).zip(shape.arguments.iter()) {
            match args.get(*argument) {
                Some(Arg::Int(value)) => statement.raw_bind_parameter(parameter, value)?,
                Some(Arg::Text(value)) => statement.raw_bind_parameter(parameter, value)?,
                None => return Err(rusqlite::Error::InvalidParameterCount(args.len(), argument + 1)),
            }
        }
        let mut rows = statement.raw_query();
        while let Some(row) = rows.next()? {
            each(row, &shape.columns)?;
        }
        Ok(())
    }

    /// Returns the values of the first column.
    pub(crate) fn column<T: FromSql>(&self, sql: &str) -> rusqlite::Result<Vec<T>> {
        self.connection.prepare(sql)?.query_map([], |row| row.get(0))?.collect()
    }

    /// Prepares a statement without running it.
    pub(crate) fn prepare(&self, sql: &str) -> rusqlite::Result<()> {
        self.connection.prepare(sql).map(drop)
    }
}

impl Shape {
    fn of(statement: &rusqlite::Statement<'_>) -> Self {
        let argument = |parameter| {
            let name = statement.parameter_name(parameter).unwrap_or_default();
            // If a parameter has no name of the form `$N`, the statement fails when its arguments are bound.
            name.trim_start_matches('$').parse::<usize>().map_or(usize::MAX - 1, |number| number - 1)
        };
        Self {
            arguments: (1..=statement.parameter_count()).map(argument).collect(),
            columns: statement.column_names().into_iter().map(Box::from).collect(),
        }
    }
}

/// A row, read into memory.
#[derive(Debug)]
pub(crate) struct SqliteRow {
    columns: Arc<[Box<str>]>,
    values: Vec<SqliteValue>,
}

/// The types of values that the store uses.
#[derive(Debug)]
pub(crate) enum SqliteValue {
    Null,
    Int(i64),
    Text(String),
}

impl SqliteValue {
    fn read(row: &rusqlite::Row<'_>, index: usize) -> rusqlite::Result<Self> {
        match row.get_ref(index)? {
            ValueRef::Null => Ok(Self::Null),
            ValueRef::Integer(number) => Ok(Self::Int(number)),
            ValueRef::Text(text) => match str::from_utf8(text) {
                Ok(text) => Ok(Self::Text(text.to_owned())),
                Err(error) => Err(rusqlite::Error::Utf8Error(index, error)),
            },
            other @ (ValueRef::Real(_) | ValueRef::Blob(_)) => {
                let column = row.as_ref().column_name(index).unwrap_or_default().to_owned();
                Err(rusqlite::Error::InvalidColumnType(index, column, other.data_type()))
            }
        }
    }
}

impl SqliteRow {
    /// Returns the value of a column; `None` if the row has no such column.
    pub(crate) fn value(&self, column: &str) -> Option<&SqliteValue> {
        let index = self.columns.iter().position(|name| **name == *column)?;
        self.values.get(index)
    }
}

/// The connections for reads. They are opened with the store: if the file is removed, a connection that is opened
/// later would open another file. The connections that are already open can still read the removed file, for a backup.
#[derive(Debug, Clone)]
pub(crate) struct Readers {
    idle: Arc<Mutex<Vec<SqliteConnection>>>,
    /// One permit for each connection.
    permits: Arc<Semaphore>,
}

impl Readers {
    pub(crate) fn open(path: &Path) -> rusqlite::Result<Self> {
        let open = |_| SqliteConnection::open(path, FileUse::ReadOnly);
        let idle = (0..SQLITE_READERS).map(open).collect::<rusqlite::Result<_>>()?;
        Ok(Self { idle: Arc::new(Mutex::new(idle)), permits: Arc::new(Semaphore::new(SQLITE_READERS)) })
    }

    /// Runs `work`, which takes long, with a connection. Other tasks of this thread continue on another thread.
    pub(crate) async fn run_long<T>(
        &self,
        work: impl FnOnce(&mut SqliteConnection) -> Result<T, StoreError>,
    ) -> Result<T, StoreError> {
        self.run(|connection| blocking(|| work(connection))).await
    }

    /// Runs `work` with a connection, on this thread.
    async fn run<T>(
        &self,
        work: impl FnOnce(&mut SqliteConnection) -> Result<T, StoreError>,
    ) -> Result<T, StoreError> {
        let _permit = self.permits.acquire().await.map_err(|_| StoreError::Closed)?;
        let mut reader = BorrowedReader { connection: self.lock().pop(), readers: self };
        let connection = reader.connection.as_mut().ok_or(StoreError::Closed)?;
        work(connection)
    }

    /// Runs `work` in a transaction, so that all its reads see one state of the store.
    pub(crate) async fn run_in_transaction<T>(
        &self,
        work: impl FnOnce(&mut SqliteConnection) -> Result<T, StoreError>,
    ) -> Result<T, StoreError> {
        self.run(|connection| {
            connection.command("begin").map_err(StoreError::connection)?;
            let answer = work(connection);
            connection.command("commit").map_err(StoreError::connection)?;
            answer
        })
        .await
    }

    /// Waits for the reads that run, and closes the connections.
    pub(crate) async fn close(&self) {
        let all = u32::try_from(SQLITE_READERS).unwrap_or(u32::MAX);
        // An error means that the readers are closed already.
        let permits = self.permits.acquire_many(all).await.ok();
        self.permits.close();
        self.lock().clear();
        drop(permits);
    }

    fn lock(&self) -> std::sync::MutexGuard<'_, Vec<SqliteConnection>> {
        self.idle.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// A connection that returns to the readers, even if the read panics.
struct BorrowedReader<'a> {
    connection: Option<SqliteConnection>,
    readers: &'a Readers,
}

impl Drop for BorrowedReader<'_> {
    fn drop(&mut self) {
        let Some(mut connection) = self.connection.take() else { return };
        if !connection.connection.is_autocommit() {
            // A read that panicked or failed left its transaction open. A failed rollback shows at the next `begin`.
            drop(connection.command("rollback"));
        }
        self.readers.lock().push(connection);
    }
}

/// Runs the future of a verb to its end on this thread.
pub(crate) fn run_now<T>(verb: impl Future<Output = Result<T, StoreError>>) -> Result<T, StoreError> {
    verb.now_or_never().unwrap_or(Err(StoreError::Waited))
}

/// Runs `work` so that the other tasks of this thread continue on another thread. In a runtime with one thread, they
/// have to wait.
fn blocking<T>(work: impl FnOnce() -> T) -> T {
    match Handle::try_current().map(|handle| handle.runtime_flavor()) {
        Ok(RuntimeFlavor::MultiThread) => tokio::task::block_in_place(work),
        _ => work(),
    }
}
