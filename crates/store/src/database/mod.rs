//! The connection to SQLite or PostgreSQL, without the meaning of the tables.
//!
//! | file | responsibility |
//! |---|---|
//! | `open`, `check`, `migrations` | open a store and bring its schema up to date; whether that would work |
//! | `db`, `dialect` | transactions, arguments and rows with one interface for both databases; declaring SQL |
//! | `event_log` | number and write the events of a transaction |
//! | `writer` | group commit on SQLite |
//! | `server` | connections to PostgreSQL, and how long a statement may take |
//! | `changes` | wake those who follow the event log |
//! | `file`, `health`, `error` | whether the file is still there, whether the store can be written; what can go wrong |
//! | `shutdown_limit` | the limit of waits for a server that does not answer, while the daemon ends |
//! | `latency` | how long reads and writes take |

pub(crate) mod changes;
mod check;
pub(crate) mod db;
pub(crate) mod dialect;
mod error;
pub(crate) mod event_log;
pub mod file;
pub(crate) mod health;
pub(crate) mod latency;
mod migrations;
mod open;
pub(crate) mod server;
pub(crate) mod shutdown_limit;
pub(crate) mod writer;

pub use error::StoreError;
pub(crate) use open::ANSWER_TIMEOUT;
pub use open::is_postgres;
pub use shutdown_limit::SHUTDOWN_STORE_TIMEOUT;
