//! cowhand runs fleets of coding agents on schedules, on events and from issue trackers.
//!
//! The library: [`Fleet`] is the way in. The crates below it are re-exported under the names of what they hold.

pub mod cli;

pub use cowhand_engine::fleet::Fleet;
pub use cowhand_engine::{config, daemon, fleet, herdctl, queues, state, trigger};
pub use cowhand_run as run;
pub use cowhand_run::redact;
pub use cowhand_store as store;
pub use cowhand_store::audit;
pub use cowhand_system::clock;
pub use cowhand_web::{api, mcp, server};
pub use cowhand_work as work;
