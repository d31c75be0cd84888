//! cowhand runs fleets of coding agents on schedules, on events and from issue trackers.
//!
//! [`Fleet`] is the entry point of the library. Other crates of cowhand, or some of their modules, are re-exported,
//! each under the name of its subject.
//!
//! ```no_run
//! use cowhand::Fleet;
//! use cowhand::fleet::{Options, Stop, TriggerRequest};
//!
//! # async fn example() -> Result<(), cowhand::fleet::FleetError> {
//! let fleet = Fleet::start(Options::of("cowhand.yaml", "/usr/local/bin/cowhand")).await?;
//! let mut events = fleet.subscribe().await?;
//! fleet.trigger(&"coder".parse().expect("a name"), TriggerRequest::default()).await?;
//! // `fleet.output(job)` returns the output of a job, `fleet.result(job)` its result.
//! while let Some(event) = events.next().await? {
//!     println!("{} {:?}", event.subject(), event.fact);
//! }
//! fleet.stop(Stop::default()).await
//! # }
//! ```

pub mod cli;

pub use cowhand_dashboard as dashboard;
pub use cowhand_engine::fleet::Fleet;
pub use cowhand_engine::{config, daemon, fleet, herdctl, queues, state, trigger};
pub use cowhand_run as run;
pub use cowhand_run::redact;
pub use cowhand_store as store;
pub use cowhand_store::audit;
pub use cowhand_system::clock;
pub use cowhand_web::{api, mcp, server};
pub use cowhand_work as work;
