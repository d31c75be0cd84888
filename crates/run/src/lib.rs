//! Running agents: their processes, sandboxes, workspaces and output. Each attempt has its own keeper process.
//!
//! ```text
//!  daemon ──requests──▶ keeper ──spawns──▶ agent ──▶ its tools and their processes
//!     │                 │ parent of the agent, subreaper of all its processes; outlives the daemon
//!     │                 ▼
//!     └──reads──▶ the attempt's folder: prompt, stdout, stderr, keeper.json, ending.json
//! ```
//!
//! Daemon and keeper communicate only through the folder and signals. So after a crash, an upgrade or a restart, the
//! daemon finds every attempt again, with its output and its ending.

pub mod acp;
pub mod address;
pub mod attempt;
pub mod boot_timer;
mod bounded;
pub mod caps;
mod cgroup;
mod child;
mod clone_into;
pub mod deadline;
pub mod descriptors;
pub mod ending;
mod feeder;
mod fence;
mod folder_access;
pub mod gate;
pub mod growth;
pub mod input;
pub mod jsonl;
pub mod keeper;
pub mod launch;
pub mod launcher;
pub mod lines;
pub mod minder;
mod pause;
pub mod process;
pub mod redact;
pub mod runtime;
pub mod sandbox;
pub mod shortage;
pub mod spawner;
pub mod start;
pub mod stopped;
pub mod supervision;
pub mod tail;
pub mod watch;
pub mod workspace;
