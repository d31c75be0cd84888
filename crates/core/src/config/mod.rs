//! Config files: they are parsed into a tree of nodes, variables are expanded, layers are merged, and the result is
//! converted to typed values.
//!
//! ```text
//! text → node (parse) → variables (interpolate) → layers (merge) → checked against the schema → shapes → roster
//! ```
//!
//! Each file is also checked against the schema before the merge.
//!
//! Each node has its file, line and column, so an error found after a merge still points to the line in the file. All
//! problems are collected; loading does not stop at the first problem.

mod agent;
mod allowed_keys;
mod chat;
mod checks;
mod compose;
mod digest;
pub mod editor;
mod format;
mod herdctl;
mod hint;
pub mod interpolate;
mod kept;
pub mod load;
mod map_check;
pub mod merge;
pub mod node;
mod notify;
pub mod parse;
pub mod problem;
mod reference;
pub mod report;
mod resolve;
mod scalar;
mod schema;
mod schema_check;
mod schema_node;
mod secret;
mod shown;
pub mod suggest;
mod syntax;

pub use kept::KeptFleets;
pub use load::{ConfigEnvironment, LoadedConfig, load, load_again};
pub use secret::{MASK, looks_secret, passwords};
pub use shown::ShownConfig;
