//! Firings that have to be prepared before their jobs are created.

mod expired;
mod in_order;
mod items;
mod prepare;
mod trust;

pub(super) use in_order::prepare_in_order;
pub(super) use prepare::CLAIM_VALID_FOR;
