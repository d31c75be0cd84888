//! The refusal to start with a store that does not know the attempts of the state folder.

use std::fmt;
use std::path::PathBuf;

use cowhand_core::id::JobId;
use cowhand_store::is_postgres;

/// The attempts of the state folder that are not settled, and the store to which they belong.
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

/// The jobs of the attempts that are not settled.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct UnsettledJobs {
    /// Jobs whose agents still run.
    pub running: Vec<JobId>,
    /// Pids of the keepers of running agents.
    pub keepers: Vec<i32>,
    /// Jobs whose agents have ended.
    pub ended: Vec<JobId>,
}

impl UnsettledJobs {
    pub const fn is_empty(&self) -> bool {
        self.running.is_empty() && self.ended.is_empty()
    }
}

impl fmt::Display for UnsettledJobs {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match (self.running.is_empty(), self.ended.is_empty()) {
            (_, true) => write!(f, "agents still run ({})", list(&self.running)),
            (true, false) => {
                write!(f, "the results of ended agents are not in the store yet ({})", list(&self.ended))
            }
            (false, false) => write!(
                f,
                "agents still run ({}), and the results of ended agents are not in the store yet ({})",
                list(&self.running),
                list(&self.ended)
            ),
        }
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
        let ends = if jobs.running.is_empty() { "" } else { "the agents would be ended and " };
        write!(
            f,
            "{jobs}, and their jobs are in the store at {location}. `store` in the config names another store, or the \
             database was made again; with it, {ends}their results would be lost. {former}, {start}wait for the jobs, end \
             the daemon with `cowhand stop`, and change `store` afterwards. If the former database does not exist any more, \
             {}remove {}; these results are then lost",
            end_agents(&jobs.keepers),
            record.display()
        )
    }
}

/// The record of the store cannot be read, and there are attempts that are not settled.
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

fn end_agents(keepers: &[i32]) -> String {
    if keepers.is_empty() {
        return String::new();
    }
    let keepers = keepers.iter().map(ToString::to_string).collect::<Vec<_>>().join(" ");
    format!("end the agents with `kill {keepers}` and ")
}

fn list(jobs: &[JobId]) -> String {
    jobs.iter().map(ToString::to_string).collect::<Vec<_>>().join(", ")
}
