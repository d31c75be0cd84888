//! Ctrl-C while a verb waits: an exit code of its own, and a word about what goes on all the same.

use super::{Exit, Failure, print};

/// What the work comes to, unless a person interrupts it first. `goes_on` tells them what does not end with us.
pub(super) async fn unless<T>(
    work: impl Future<Output = Result<T, Failure>>,
    goes_on: Option<&str>,
) -> Result<T, Failure> {
    unless_telling(work, || goes_on.map(str::to_owned)).await
}

/// As above, with words that are known only then.
pub(super) async fn unless_telling<T>(
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
