//! The refusal to start with a store that does not know the attempts and hooks of the state folder.

use std::collections::BTreeSet;
use std::fmt;
use std::path::PathBuf;

use cowhand_core::id::JobId;
use cowhand_store::is_postgres;

/// The attempts and hooks of the state folder that are not settled, and the store to which they belong.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct OtherStore {
    /// The store of the jobs.
    pub location: String,
    /// The file that names this store.
    pub record: PathBuf,
    pub jobs: UnsettledJobs,
    /// Whether the daemon of the former store runs.
    pub daemon_runs: bool,
}

/// The jobs of the attempts and shell hooks that are not settled.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct UnsettledJobs {
    /// Jobs whose agents still run.
    pub running: Vec<JobId>,
    /// Pids of the keepers of running agents and hooks.
    pub keepers: Vec<i32>,
    /// Jobs whose agents have ended.
    pub ended: Vec<JobId>,
    /// Jobs of which a hook still runs.
    pub running_hooks: Vec<JobId>,
    /// Jobs of which a hook has ended.
    pub ended_hooks: Vec<JobId>,
}

impl UnsettledJobs {
    pub const fn is_empty(&self) -> bool {
        !self.any_runs() && self.ended.is_empty() && self.ended_hooks.is_empty()
    }

    /// Returns whether an agent or a hook still runs.
    pub const fn any_runs(&self) -> bool {
        !self.running.is_empty() || !self.running_hooks.is_empty()
    }

    /// Names what still runs.
    pub(super) const fn running_parts(&self) -> &'static str {
        match (self.running.is_empty(), self.running_hooks.is_empty()) {
            (_, true) => "agents",
            (true, false) => "hooks",
            (false, false) => "agents and hooks",
        }
    }
}

impl fmt::Display for UnsettledJobs {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let parts = [
            ("agents still run", &self.running),
            ("the results of ended agents are not in the store yet", &self.ended),
            ("hooks of jobs still run", &self.running_hooks),
            ("the results of ended hooks of jobs are not in the store yet", &self.ended_hooks),
        ];
        let parts = parts.into_iter().filter(|(_, jobs)| !jobs.is_empty());
        let parts: Vec<_> = parts.map(|(what, jobs)| format!("{what} ({})", list(jobs))).collect();
        write!(f, "{}", parts.join(", and "))
    }
}

impl fmt::Display for OtherStore {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { location, record, jobs, daemon_runs } = self;
        let start = if *daemon_runs { "" } else { "start the daemon with `cowhand start -d`, " };
        // The file in the state folder is the store if the config names none.
        let former = if is_postgres(location) {
            "Name the former store in `store` again"
        } else {
            "Use the former store again (remove `store` from the config, or put the former file back)"
        };
        let ends = match jobs.running_parts() {
            parts if jobs.any_runs() => format!("the {parts} would be ended and "),
            _ => String::new(),
        };
        write!(
            f,
            "{jobs}, and their jobs are in the store at {location}. `store` in the config names another store, or the \
             database was made again; with it, {ends}their results would be lost. {former}, {start}wait for the jobs, end \
             the daemon with `cowhand stop`, and change `store` afterwards. If the former database does not exist any more, \
             {}remove {}; these results are then lost",
            end_keepers(jobs),
            record.display()
        )
    }
}

/// The record of the store cannot be read, and there are attempts or hooks that are not settled.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct DamagedRecord {
    pub record: PathBuf,
    pub why: String,
    pub jobs: UnsettledJobs,
}

impl fmt::Display for DamagedRecord {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { record, why, jobs } = self;
        let record = record.display();
        write!(
            f,
            "{jobs}, and {record}, which names the store of their jobs, is damaged: {why}. With another store, their results \
             would be lost. Check that `store` in the config names the store of these jobs, then remove {record} and start \
             again"
        )
    }
}

/// Data that the file of a store has lost while agents or hooks run.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum LostData {
    /// The file is missing.
    All,
    /// The file does not know jobs that run, because its write-ahead log was removed or an older file replaced it.
    Newest,
}

/// Describes that the file of the store is missing, or is older than its jobs, while agents or hooks run.
pub(super) fn store_gone(database: &str, lost: LostData, jobs: &UnsettledJobs) -> String {
    let parts = jobs.running_parts();
    let running: BTreeSet<_> = jobs.running.iter().chain(&jobs.running_hooks).cloned().collect();
    let running = list(&Vec::from_iter(running));
    let keepers = jobs.keepers.iter().map(ToString::to_string).collect::<Vec<_>>().join(" ");
    match lost {
        LostData::All => format!(
            "{database} does not exist, but {parts} of its jobs still run ({running}). With a new store they would be ended and \
             the history would be lost. Restore a backup with `cowhand restore FILE`, or, to start with an empty history, \
             end the {parts} first with `kill {keepers}`"
        ),
        LostData::Newest => format!(
            "{database} has lost its newest data, because its write-ahead log was removed or an older file replaced it: {parts} \
             of its jobs still run ({running}), and it does not know all of them. Restore a newer backup with `cowhand \
             restore FILE`, or, to continue with the older data, end the {parts} first with `kill {keepers}`"
        ),
    }
}

fn end_keepers(jobs: &UnsettledJobs) -> String {
    if jobs.keepers.is_empty() {
        return String::new();
    }
    let keepers = jobs.keepers.iter().map(ToString::to_string).collect::<Vec<_>>().join(" ");
    format!("end the {} with `kill {keepers}` and ", jobs.running_parts())
}

fn list(jobs: &[JobId]) -> String {
    jobs.iter().map(ToString::to_string).collect::<Vec<_>>().join(", ")
}
