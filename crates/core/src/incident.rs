//! Incidents follow from the event log. This module decides which events open, repeat and end incidents, and which
//! notifications follow from that.

mod change;
mod follow;

pub use change::{IncidentChange, changes};
pub use follow::{IncidentStep, OpenIncidents, PlannedNotification};
