//! Ctrl-C while a verb waits: its own exit code, and a note about what continues.

use super::{Exit, Failure, print};

/// Returns the result of the work, unless the user interrupts it. `goes_on` is the note about what continues
/// then.
pub(super) async fn unless<T>(
    work: impl Future<Output = Result<T, Failure>>,
    goes_on: Option<&str>,
) -> Result<T, Failure> {
    unless_with_note(work, || goes_on.map(str::to_owned)).await
}

/// Does the same with a note that is made only at the interrupt.
pub(super) async fn unless_with_note<T>(
    work: impl Future<Output = Result<T, Failure>>,
    goes_on: impl FnOnce() -> Option<String>,
) -> Result<T, Failure> {
    tokio::select! {
        answer = work => answer,
        Ok(()) = tokio::signal::ctrl_c() => {
            if let Some(goes_on) = goes_on() {
                print::note(goes_on);
            }
            Err(Failure::reported(Exit::Interrupted))
        }
    }
}
