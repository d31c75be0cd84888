//! Faults for tests: at a named point in the code, the process is killed, as by a power failure, or a task panics.
//!
//! `COWHAND_FAULT=claimed` kills the process when it reaches the point `claimed`, and `COWHAND_FAULT=claimed:3` when it
//! reaches that point for the third time. `COWHAND_FAULT=panic:read:3` panics at the point `read` the first three
//! times. Without the variable, a point costs one read of a cached value.

use std::sync::OnceLock;
use std::sync::atomic::{AtomicU32, Ordering};

#[derive(Debug)]
struct PlannedFault {
    point: String,
    kind: FaultKind,
}

#[derive(Debug)]
enum FaultKind {
    /// Kills the process when the count reaches zero.
    Process(AtomicU32),
    /// Panics this number of times.
    Work(AtomicU32),
}

static PLANNED_FAULT: OnceLock<Option<PlannedFault>> = OnceLock::new();

pub fn point(name: &str) {
    let Some(fault) = PLANNED_FAULT.get_or_init(planned_fault).as_ref().filter(|fault| fault.point == name)
    else {
        return;
    };
    match &fault.kind {
        FaultKind::Process(left) => {
            if left.fetch_sub(1, Ordering::SeqCst) == 1 {
                std::process::abort();
            }
        }
        FaultKind::Work(left) => {
            let decreased = left.fetch_update(Ordering::SeqCst, Ordering::SeqCst, |left| left.checked_sub(1));
            assert!(decreased.is_err(), "injected fault at {name:?}");
        }
    }
}

fn planned_fault() -> Option<PlannedFault> {
    let text = std::env::var("COWHAND_FAULT").ok()?;
    let (text, panics) = text.strip_prefix("panic:").map_or((&*text, false), |text| (text, true));
    let (point, count) = text.split_once(':').unwrap_or((text, "1"));
    let count = AtomicU32::new(count.parse().ok()?);
    let kind = if panics { FaultKind::Work(count) } else { FaultKind::Process(count) };
    Some(PlannedFault { point: point.to_owned(), kind })
}
