//! Handling of Ctrl-C while a verb waits: a separate exit code, and a note about what continues to run.

use super::{Exit, Failure, print};

/// Returns the result of the work. If the user interrupts it, prints `note`, which states what continues to run, and
/// fails.
pub(super) async fn unless_interrupted<T>(
    work: impl Future<Output = Result<T, Failure>>,
    note: Option<&str>,
) -> Result<T, Failure> {
    unless_with_note(work, || note.map(str::to_owned)).await
}

/// Does the same as [`unless_interrupted`], with a note that is built only when the user interrupts.
pub(super) async fn unless_with_note<T>(
    work: impl Future<Output = Result<T, Failure>>,
    note: impl FnOnce() -> Option<String>,
) -> Result<T, Failure> {
    tokio::select! {
        answer = work => answer,
        Ok(()) = tokio::signal::ctrl_c() => {
            if let Some(text) = note() {
                print::note(text);
            }
            Err(Failure::reported(Exit::Interrupted))
        }
    }
}
