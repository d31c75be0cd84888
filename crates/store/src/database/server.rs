//! Connections to a PostgreSQL server, and the time limits for its answers.

use std::io;
use std::path::{Path, PathBuf};
use std::time::Duration;

use sqlx::pool::PoolConnection;
use sqlx::postgres::{PgConnectOptions, PgConnection, PgPoolOptions};
use sqlx::{PgPool, Postgres};
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
const CLOSE_TIMEOUT: Duration = Duration::from_millis(500);
const MAX_CONNECTIONS: u32 = 16;

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
    connection: Option<PoolConnection<Postgres>>,
    is_unreachable: bool,
}

impl ServerConnection {
    pub(crate) async fn acquire(pool: &PgPool) -> Result<Self, StoreError> {
        let options = pool.connect_options();
        let acquired = tokio::select! {
            biased;
            acquired = pool.acquire() => acquired,
            error = wait_until_refused(&options) => Err(error.into()),
        };
        let connection = acquired.map_err(StoreError::connection)?;
        Ok(Self { connection: Some(connection), is_unreachable: false })
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

    pub(crate) fn connection(&mut self) -> Result<&mut PgConnection, StoreError> {
        self.connection.as_deref_mut().ok_or(StoreError::Closed)
    }
}

impl Drop for ServerConnection {
    fn drop(&mut self) {
        let Some(mut connection) = self.connection.take() else { return };
        match Handle::try_current() {
            Ok(runtime) if !self.is_unreachable => {
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

/// Connects to the server and closes the connection again.
async fn try_connect(options: &PgConnectOptions) -> io::Result<()> {
    let (host, port) = (options.get_host(), options.get_port());
    let socket_folder = host.starts_with('/').then(|| Path::new(host));
    match options.get_socket().map(PathBuf::as_path).or(socket_folder) {
        Some(folder) => UnixStream::connect(folder.join(format!(".s.PGSQL.{port}"))).await.map(drop),
        None => TcpStream::connect((host, port)).await.map(drop),
    }
}
