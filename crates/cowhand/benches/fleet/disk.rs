//! Files that a settled job leaves in the state folder.

use std::fs;
use std::os::unix::fs::MetadataExt;
use std::path::Path;
use std::time::Duration;

use super::Bench;
use super::daemon::Daemon;
use super::database::Database;
use super::figure::Figure;
use super::queue;

const JOBS: usize = 100;

/// Files in the state folder without the database.
#[derive(Debug, Default, PartialEq, Clone, Copy)]
struct Usage {
    files: u64,
    bytes: u64,
}

pub(crate) fn measure(bench: &Bench) -> Vec<Figure> {
    let daemon = queue::start_worker(bench, 8, &Database::Sqlite);
    queue::open_gate(&daemon);
    // One job first, so that what is made only once does not count.
    queue::deliver(&daemon, 0, 1);
    queue::wait_until_completed(&daemon, &Database::Sqlite, 1);
    let before = settled_usage(&daemon);
    queue::deliver(&daemon, 1, JOBS);
    queue::wait_until_completed(&daemon, &Database::Sqlite, JOBS + 1);
    queue::check_files(&daemon, JOBS + 1);
    let after = settled_usage(&daemon);
    let each = |before: u64, after: u64| after.saturating_sub(before) as f64 / JOBS as f64;
    vec![
        Figure::new("files left by a settled job", each(before.files, after.files), "files").at_most(2.0),
        Figure::new("disk left by a settled job", each(before.bytes, after.bytes) / 1024.0, "KB")
            .at_most(10.0),
    ]
}

/// Waits until the usage no longer changes, and returns it.
fn settled_usage(daemon: &Daemon) -> Usage {
    let state = daemon.state("");
    loop {
        let usage = usage(&state);
        std::thread::sleep(Duration::from_secs(1));
        if usage == self::usage(&state) {
            return usage;
        }
    }
}

fn usage(folder: &Path) -> Usage {
    let mut sum = Usage::default();
    for entry in fs::read_dir(folder).into_iter().flatten().flatten() {
        let Ok(metadata) = entry.metadata() else { continue };
        if entry.file_name().to_string_lossy().starts_with("store.db") {
            continue;
        }
        sum.bytes += metadata.blocks() * 512;
        if metadata.is_dir() {
            let below = usage(&entry.path());
            sum.files += below.files;
            sum.bytes += below.bytes;
        } else {
            sum.files += 1;
        }
    }
    sum
}
