//! The connection to SQLite or PostgreSQL: the layer below the other modules of this crate.
//!
//! | file | responsibility |
//! |---|---|
//! | `open`, `check`, `migrations` | open a store and migrate it; check whether a store can be opened |
//! | `db`, `dialect` | transactions, arguments and rows with one interface for both databases; declarations of SQL |
//! | `event_log` | number and write the events of a transaction |
//! | `sqlite`, `writer` | connections to SQLite and their rows; group commit |
//! | `server` | connections to PostgreSQL, and the time limit of a statement |
//! | `refusal` | the reasons for which a PostgreSQL server refuses a request, with advice |
//! | `changes` | wake readers that follow the event log |
//! | `file`, `health`, `error` | whether the file still exists; whether the store can be written; the errors |
//! | `shutdown_limit` | the limit of waits for a server that does not answer, while the daemon ends |
//! | `latency`, `counts` | the latency of reads and writes; the numbers of statements and rows |

pub(crate) mod changes;
mod check;
pub(crate) mod counts;
pub(crate) mod db;
pub(crate) mod dialect;
mod error;
pub(crate) mod event_log;
pub mod file;
pub(crate) mod health;
pub(crate) mod latency;
mod migrations;
mod open;
mod refusal;
pub(crate) mod server;
pub(crate) mod shutdown_limit;
pub(crate) mod sqlite;
pub(crate) mod writer;

pub(crate) use check::READ_IDENTITY;
pub use check::StoreId;
pub use error::{DriverError, StoreError};
pub(crate) use open::ANSWER_TIMEOUT;
pub(crate) use open::display_address;
pub use open::is_postgres;
pub use shutdown_limit::SHUTDOWN_STORE_TIMEOUT;
