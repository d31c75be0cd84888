//! Work sources: the queues from which agents take their work items. A schedule decides when to look for items.
//!
//! To add a source, implement [`WorkSource`], register a factory for it ([`SourceRegistry`]), and test it with the same
//! [`contract`] as the built-in sources. `crates/cowhand/examples/own_work_source.rs` adds a source outside this crate.

mod built_in;
pub mod check;
pub mod context;
pub mod contract;
pub mod error;
pub mod files;
pub mod github;
pub mod quota;
pub mod registry;
pub mod source;
pub mod sources;
pub mod unusable;

pub use check::{SourceFinding, SourceHealth};
pub use context::SourceContext;
pub use error::WorkSourceError;
pub use registry::SourceRegistry;
pub use source::{Claimant, ExpiredClaim, QueueState, StatedClaimant, WorkSource, can_claim_another};
pub use source::{SOURCE_CHANGE_TIMEOUT, SOURCE_READ_TIMEOUT, catch_panic, with_timeout};
pub use sources::{NextItem, NextOptions, SourceOwner, WorkSources};
