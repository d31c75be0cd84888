//! Connections to a PostgreSQL server, and the time limits for its answers.

use std::io;
use std::path::{Path, PathBuf};
use std::str::FromStr as _;
use std::sync::LazyLock;
use std::time::Duration;

use cowhand_core::store_address::check_store_address;
use sqlx::pool::PoolConnection;
use sqlx::postgres::{PgConnectOptions, PgPoolOptions};
use sqlx::{ConnectOptions as _, Connection as _, PgPool, Postgres, Transaction};
use tokio::net::{TcpStream, UnixStream};
use tokio::runtime::Handle;
use tokio::time::{sleep, timeout};

use super::error::StoreError;
use super::health::is_unreachable;
use super::open::ANSWER_TIMEOUT;

/// Time limit of one statement. A wait for a lock ends earlier (`lock_timeout`).
const STATEMENT_TIMEOUT: Duration = Duration::from_mins(1);
/// Time between two checks whether the server refuses connections. Without these checks, the pool would retry until
/// [`ANSWER_TIMEOUT`].
const REFUSAL_CHECK_INTERVAL: Duration = Duration::from_secs(1);
/// Time after which a request that still waits for a connection checks whether the server refuses more connections. The
/// pool retries a refused connection without reporting the reason. This time is shorter than [`ANSWER_TIMEOUT`].
const REASON_CHECK_AFTER: Duration = Duration::from_secs(7);
const CLOSE_TIMEOUT: Duration = Duration::from_millis(500);
/// Maximum number of connections of the pool. A node normally uses up to 18 with the two outside the pool: one
/// announces the node, and one asks why the server refuses more connections. If several requests wait longer than
/// [`REASON_CHECK_AFTER`], each of them opens one more for a moment. `refusal.rs` and `docs/config.md` state the sum.
const MAX_CONNECTIONS: u32 = 16;

/// Default number of idle connections of a node, with the connection that announces the node.
const MAX_IDLE_CONNECTIONS: u32 = 6;
/// Variable of the environment that replaces [`MAX_IDLE_CONNECTIONS`].
const IDLE_CONNECTIONS_VARIABLE: &str = "COWHAND_IDLE_CONNECTIONS";

/// Returns how many connections of the pool may stay open while they are not used. A value of the environment that is
/// not a number counts as not set.
fn idle_in_pool(value: Option<&str>) -> u32 {
    let all = value.and_then(|text| text.trim().parse().ok()).unwrap_or(MAX_IDLE_CONNECTIONS);
    // One connection outside the pool announces the node.
    all.saturating_sub(1)
}

/// Returns [`idle_in_pool`] for the environment of this process, which does not change.
fn max_idle_in_pool() -> usize {
    static IDLE: LazyLock<u32> =
        LazyLock::new(|| idle_in_pool(std::env::var(IDLE_CONNECTIONS_VARIABLE).ok().as_deref()));
    *IDLE as usize
}

/// Reads the address of a server.
pub(super) fn options(url: &str) -> Result<PgConnectOptions, StoreError> {
    let open_error = |why: String| StoreError::Open { location: "postgres".to_owned(), why };
    // The library would write the value of an unknown parameter, which may be a password, to the log.
    check_store_address(url).map_err(|error| open_error(error.to_string()))?;
    let options = PgConnectOptions::from_str(url).map_err(|error| open_error(error.to_string()))?;
    Ok(options.options([
        // A node that hangs in a transaction must not block other nodes for long.
        ("idle_in_transaction_session_timeout", "30s"),
        ("lock_timeout", "30s"),
        // The server notices within half a minute that the machine of a node has failed, and releases its locks.
        ("tcp_keepalives_idle", "10"),
        ("tcp_keepalives_interval", "5"),
        ("tcp_keepalives_count", "3"),
    ]))
}

/// Returns a pool that opens its connections when they are needed.
pub(super) fn pool(options: PgConnectOptions) -> PgPool {
    PgPoolOptions::new()
        .max_connections(MAX_CONNECTIONS)
        .acquire_timeout(ANSWER_TIMEOUT)
        .connect_lazy_with(options)
}

/// A connection of the pool for one call. It is returned to the pool after the call, unless the server is out of reach.
#[derive(Debug)]
pub(crate) struct ServerConnection {
    pool: PgPool,
    connection: Option<PoolConnection<Postgres>>,
    is_unreachable: bool,
    /// True while the server begins a transaction. If the caller is dropped in that time, sqlx does not know that the
    /// transaction has begun, and the next call would run in this transaction.
    is_beginning: bool,
}

impl ServerConnection {
    pub(crate) async fn acquire(pool: &PgPool) -> Result<Self, StoreError> {
        let options = pool.connect_options();
        let acquired = tokio::select! {
            biased;
            acquired = pool.acquire() => acquired,
            error = wait_until_refused(&options) => Err(error.into()),
            error = reason_of_refusal(&options) => Err(error),
        };
        let connection = acquired.map_err(StoreError::connection)?;
        let pool = pool.clone();
        Ok(Self { pool, connection: Some(connection), is_unreachable: false, is_beginning: false })
    }

    /// Begins a transaction with `statement`; `None` means `begin`.
    pub(crate) async fn begin(
        &mut self,
        statement: Option<&'static str>,
    ) -> Result<Transaction<'_, Postgres>, StoreError> {
        let connection = self.connection.as_deref_mut().ok_or(StoreError::Closed)?;
        self.is_beginning = true;
        let begun = match statement {
            Some(statement) => with_statement_timeout(connection.begin_with(statement)).await,
            None => with_statement_timeout(connection.begin()).await,
        };
        self.is_beginning = false;
        begun.map_err(StoreError::connection)
    }

    /// Ends the call. Its result decides whether the connection is returned to the pool.
    pub(crate) fn finish<T>(mut self, answer: Result<T, StoreError>) -> Result<T, StoreError> {
        self.is_unreachable = match &answer {
            Err(StoreError::Connection(source) | StoreError::Statement { source, .. }) => {
                is_unreachable(source)
            }
            _ => false,
        };
        answer
    }
}

impl Drop for ServerConnection {
    fn drop(&mut self) {
        let Some(mut connection) = self.connection.take() else { return };
        match Handle::try_current() {
            Ok(runtime) if !self.is_unreachable && !self.is_beginning => {
                if self.pool.num_idle() >= max_idle_in_pool() {
                    runtime.spawn(async move { drop(timeout(CLOSE_TIMEOUT, connection.close()).await) });
                    return;
                }
                // A statement of the call may still have no answer, for example because the caller was dropped. The
                // pool waits for that answer without a limit, so the connection is closed after a timeout.
                let returned = connection.return_to_pool();
                runtime.spawn(async move { drop(timeout(ANSWER_TIMEOUT, returned).await) });
            }
            _ => drop(connection.detach()),
        }
    }
}

/// Waits for the answer to a statement, at most for [`STATEMENT_TIMEOUT`].
pub(crate) async fn with_statement_timeout<T>(
    statement: impl Future<Output = Result<T, sqlx::Error>>,
) -> Result<T, sqlx::Error> {
    timeout(STATEMENT_TIMEOUT, statement).await.unwrap_or_else(|_| {
        let message = format!("no answer within {} seconds", STATEMENT_TIMEOUT.as_secs());
        Err(io::Error::new(io::ErrorKind::TimedOut, message).into())
    })
}

/// Closes the connections. Waits at most [`CLOSE_TIMEOUT`] for a server that does not answer.
pub(crate) async fn close(pool: &PgPool) {
    // Connections that are not closed in time are closed by the system when the process ends.
    drop(timeout(CLOSE_TIMEOUT, pool.close()).await);
}

/// Tries to connect every [`REFUSAL_CHECK_INTERVAL`] until the server refuses the connection, and returns the error.
async fn wait_until_refused(options: &PgConnectOptions) -> io::Error {
    loop {
        sleep(REFUSAL_CHECK_INTERVAL).await;
        if let Err(error) = try_connect(options).await
            && error.kind() == io::ErrorKind::ConnectionRefused
        {
            return error;
        }
    }
}

/// Waits, then connects once outside the pool, and returns the error with which the server refuses the connection.
/// Never returns if the server accepts the connection or does not answer.
async fn reason_of_refusal(options: &PgConnectOptions) -> sqlx::Error {
    sleep(REASON_CHECK_AFTER).await;
    match Box::pin(options.connect()).await {
        Err(error @ sqlx::Error::Database(_)) => error,
        _ => std::future::pending().await,
    }
}

/// Connects to the server and closes the connection again.
async fn try_connect(options: &PgConnectOptions) -> io::Result<()> {
    let (host, port) = (options.get_host(), options.get_port());
    let socket_folder = host.starts_with('/').then(|| Path::new(host));
    match options.get_socket().map(PathBuf::as_path).or(socket_folder) {
        Some(folder) => UnixStream::connect(folder.join(format!(".s.PGSQL.{port}"))).await.map(drop),
        None => TcpStream::connect((host, port)).await.map(drop),
    }
}
