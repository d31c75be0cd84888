//! Running agents: each attempt has its own keeper process.
//!
//! ```text
//!  daemon ──spawns──▶ keeper ──spawns──▶ agent ──▶ its tools, and theirs
//!     │                 │ parent and subreaper of all of them; outlives the daemon
//!     │                 ▼
//!     └──reads──▶ the attempt's folder: prompt, stdout, stderr, keeper.json, ending.json
//! ```
//!
//! Daemon and keeper share only the folder and signals. So after a crash, an upgrade or a restart, the daemon finds
//! every attempt again, with its output and its exit code.

pub mod acp;
pub mod address;
pub mod attempt;
mod bounded;
pub mod caps;
pub mod cgroup;
mod child;
pub mod descriptors;
pub mod ending;
pub mod gate;
pub mod growth;
pub mod jsonl;
pub mod keeper;
pub mod launch;
pub mod lines;
pub mod minder;
pub mod process;
mod reach;
pub mod redact;
pub mod runtime;
pub mod sandbox;
pub mod shortage;
pub mod start;
pub mod stopped;
pub mod supervision;
pub mod tail;
pub mod watch;
pub mod workspace;
