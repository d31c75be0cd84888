//! Places where a test can make the program die, as a power cut would: at once, with nothing cleaned up; or where it can
//! make a piece of work panic.
//!
//! `COWHAND_FAULT=claimed` kills the process when it comes to that place, `COWHAND_FAULT=claimed:3` the third time.
//! `COWHAND_FAULT=panic:read:3` panics there the first three times. Without the variable a place costs one look at a
//! value that was read once.

use std::sync::OnceLock;
use std::sync::atomic::{AtomicU32, Ordering};

#[derive(Debug)]
struct Planned {
    place: String,
    end: End,
}

#[derive(Debug)]
enum End {
    /// Of the process, when so many are left that it is this one.
    Process(AtomicU32),
    /// Of whoever comes by, so many times.
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
    let wish = std::env::var("COWHAND_FAULT").ok()?;
    let (wish, panics) = wish.strip_prefix("panic:").map_or((&*wish, false), |wish| (wish, true));
    let (place, turn) = wish.split_once(':').unwrap_or((wish, "1"));
    let turn = AtomicU32::new(turn.parse().ok()?);
    Some(Planned { place: place.to_owned(), end: if panics { End::Work(turn) } else { End::Process(turn) } })
}
