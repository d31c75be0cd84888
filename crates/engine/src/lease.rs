//! How long the lease of a job is valid, and when it is renewed.

use jiff::SignedDuration;

/// Time for which a lease is valid without a renewal.
pub(crate) const JOB_LEASE: SignedDuration = SignedDuration::from_secs(30);
/// Time between two renewals of the leases.
pub(crate) const HEARTBEAT: SignedDuration = SignedDuration::from_secs(10);
