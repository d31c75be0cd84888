//! `when_command`: a program that says whether a firing runs.

use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use anyhow::{Context, bail};

use super::child::{self, Bounds, WhyNot};
use super::minder::Minded;

/// It is asked before every firing, so it has to be quick.
const PATIENCE: Duration = Duration::from_mins(1);

/// Exit code 0 lets the firing run, any other up to 125 does not. A program that cannot be started, is killed, or does
/// not answer has said nothing, and that is an error: what asks for permission does not run without it. It is ended, with all
/// that it started, when nobody waits for the answer any more. `minder` is the `cowhand` program.
pub(crate) async fn allows(minder: &Path, command: &[String], directory: &Path) -> anyhow::Result<bool> {
    let (minder, command, directory) = (minder.to_owned(), command.to_vec(), directory.to_owned());
    let unwanted = Unwanted::default();
    let stop = Arc::clone(&unwanted.0);
    let answer =
        tokio::task::spawn_blocking(move || ask(&minder, &command, &directory, PATIENCE, &stop)).await;
    drop(unwanted);
    answer.context("nobody asked")?
}

/// Says that the answer is not wanted any more when it is dropped.
#[derive(Debug, Default)]
struct Unwanted(Arc<AtomicBool>);

impl Drop for Unwanted {
    fn drop(&mut self) {
        self.0.store(true, Ordering::Relaxed);
    }
}

/// As above, in the caller's thread, for at most so long, or until `stop` is set.
pub fn ask(
    minder: &Path,
    command: &[String],
    directory: &Path,
    patience: Duration,
    stop: &AtomicBool,
) -> anyhow::Result<bool> {
    let Some((program, arguments)) = command.split_first() else { bail!("it names no program") };
    let cannot = || format!("cannot start {program:?}");
    let mut watched = Minded::new(minder, program, arguments).with_context(cannot)?;
    watched.command.current_dir(directory);
    let ran = child::run_minded(watched, &Bounds { patience: Some(patience), most: 0, stop });
    let ran = match ran {
        Ok(ran) => ran,
        Err(WhyNot::CannotStart(_)) if !directory.is_dir() => {
            bail!("cannot start {program:?}: its directory {} is not there", directory.display())
        }
        Err(WhyNot::CannotStart(error)) => return Err(error).with_context(cannot),
        Err(WhyNot::TookTooLong(patience)) => bail!("no answer within {}s", patience.as_secs()),
        Err(WhyNot::Stopped) => bail!("nobody waits for the answer any more"),
    };
    match ran.status.code() {
        Some(0) => Ok(true),
        Some(1..=125) => Ok(false),
        Some(code) => bail!("{program:?} ended with code {code}, which means that it could not run"),
        None => bail!("{program:?} was killed"),
    }
}
