//! One attempt: from the claim of its job to its settled end.

mod channel;
pub(crate) mod credentials;
mod follow;
pub(crate) mod orphans;
mod outcome;
mod prepare;
mod sandbox;
mod settle;
mod spending;
mod stop;
mod supervise;
pub(crate) mod unwritten;
pub(crate) mod workspaces;

pub(crate) use follow::AttemptTask;
