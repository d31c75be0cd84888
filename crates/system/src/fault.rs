//! Faults for tests: places where the process can be killed, as by a power failure, or where a task panics.
//!
//! `COWHAND_FAULT=claimed` kills the process when it reaches that place, `COWHAND_FAULT=claimed:3` the third time.
//! `COWHAND_FAULT=panic:read:3` panics there the first three times. Without the variable, a place costs one read of a
//! cached value.

use std::sync::OnceLock;
use std::sync::atomic::{AtomicU32, Ordering};

#[derive(Debug)]
struct Planned {
    place: String,
    end: End,
}

#[derive(Debug)]
enum End {
    /// Kills the process when the count reaches zero.
    Process(AtomicU32),
    /// Panics this number of times.
    Work(AtomicU32),
}

static PLANNED_FAULT: OnceLock<Option<Planned>> = OnceLock::new();

pub fn place(name: &str) {
    let Some(planned) = PLANNED_FAULT.get_or_init(planned).as_ref().filter(|planned| planned.place == name)
    else {
        return;
    };
    match &planned.end {
        End::Process(left) => {
            if left.fetch_sub(1, Ordering::SeqCst) == 1 {
                std::process::abort();
            }
        }
        End::Work(left) => {
            let took = left.fetch_update(Ordering::SeqCst, Ordering::SeqCst, |left| left.checked_sub(1));
            assert!(took.is_err(), "the fault that was planned for {name:?}");
        }
    }
}

fn planned() -> Option<Planned> {
    let planned = std::env::var("COWHAND_FAULT").ok()?;
    let (planned, panics) =
        planned.strip_prefix("panic:").map_or((&*planned, false), |planned| (planned, true));
    let (place, turn) = planned.split_once(':').unwrap_or((planned, "1"));
    let turn = AtomicU32::new(turn.parse().ok()?);
    Some(Planned { place: place.to_owned(), end: if panics { End::Work(turn) } else { End::Process(turn) } })
}
