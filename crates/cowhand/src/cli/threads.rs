//! The async runtime of a daemon.

use std::io;
use std::thread::available_parallelism;

use cowhand_store::SQLITE_READERS;
use tokio::runtime::{Builder, Runtime};

/// Creates the runtime with a thread for each processor, and with at least one thread more than the reads of the store
/// can occupy.
pub(super) fn daemon_runtime() -> io::Result<Runtime> {
    let processors = available_parallelism().map_or(1, usize::from);
    Builder::new_multi_thread().worker_threads(processors.max(SQLITE_READERS + 1)).enable_all().build()
}
