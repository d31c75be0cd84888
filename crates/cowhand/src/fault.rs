//! Places where a test can make the program die, as a power cut would: at once, with nothing cleaned up.
//!
//! `COWHAND_FAULT=claimed` kills the process when it comes to that place, `COWHAND_FAULT=claimed:3` the third time.
//! Without the variable a place costs one look at a value that was read once.

use std::sync::OnceLock;
use std::sync::atomic::{AtomicU32, Ordering};

#[derive(Debug)]
struct Planned {
    place: String,
    left: AtomicU32,
}

static PLANNED: OnceLock<Option<Planned>> = OnceLock::new();

pub(crate) fn place(name: &str) {
    let Some(planned) = PLANNED.get_or_init(planned).as_ref() else { return };
    if planned.place == name && planned.left.fetch_sub(1, Ordering::SeqCst) == 1 {
        std::process::abort();
    }
}

fn planned() -> Option<Planned> {
    let wish = std::env::var("COWHAND_FAULT").ok()?;
    let (place, turn) = wish.split_once(':').unwrap_or((&wish, "1"));
    Some(Planned { place: place.to_owned(), left: AtomicU32::new(turn.parse().ok()?) })
}
