//! Work sources: *what* agents work on. A schedule decides when to look; a source has the items.
//!
//! Adding one is implementing [`WorkSource`] and registering a factory for it ([`registry`]).

pub mod error;
pub mod github;
pub mod source;

pub use error::WorkSourceError;
pub use source::{Claimant, WorkSource};
