//! `when_command`: a program that decides whether a firing runs.

use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use anyhow::{Context, bail};
use cowhand_core::duration;

use super::child::{self, Bounds, ChildError};
use super::minder::MindedCommand;
use crate::redact::Redactor;

/// Timeout of the command. The command runs before every firing of its schedule, so it has to be quick.
const GATE_TIMEOUT: Duration = Duration::from_mins(1);

/// Number of lines at the end of stdout, and at the end of stderr, that are reported.
const MAX_GATE_LINES: usize = 3;
/// Number of characters at the end of such a line that are reported.
const MAX_GATE_LINE_CHARS: usize = 150;

/// Answer of the command.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct GateAnswer {
    pub allows: bool,
    /// Last lines of its output, joined and redacted; empty if there was no output.
    pub output: String,
}

/// Runs the command. Exit code 0 lets the firing run; codes 1 to 125 do not. If the program cannot be started, ends
/// with a higher code, is killed, or does not end in time, the result is an error, and the firing does not run. The
/// program and its descendants are ended when the future is dropped. `minder` is the `cowhand` program. The redactor
/// masks secrets in the output of the command.
pub async fn allows(
    minder: &Path,
    command: &[String],
    directory: &Path,
    redactor: Redactor,
) -> anyhow::Result<GateAnswer> {
    run_limited(minder, command, directory, GATE_TIMEOUT, redactor).await
}

/// Runs a command as [`allows`] does, with another time limit.
pub async fn run_limited(
    minder: &Path,
    command: &[String],
    directory: &Path,
    timeout: Duration,
    redactor: Redactor,
) -> anyhow::Result<GateAnswer> {
    let (minder, command, directory) = (minder.to_owned(), command.to_vec(), directory.to_owned());
    let stop_on_drop = StopOnDrop::default();
    let stop = Arc::clone(&stop_on_drop.0);
    let answer = tokio::task::spawn_blocking(move || {
        let redact = |text: &str| redactor.redact(text).into_owned();
        run_command(&minder, &command, &directory, timeout, &stop, &redact)
    })
    .await;
    drop(stop_on_drop);
    answer.context("the task that runs the command failed")?
}

/// Requests the end of the command when this value is dropped.
#[derive(Debug, Default)]
struct StopOnDrop(Arc<AtomicBool>);

impl Drop for StopOnDrop {
    fn drop(&mut self) {
        self.0.store(true, Ordering::Relaxed);
    }
}

/// Runs the command in the caller's thread, for a limited time or until `stop` is set. `redact` redacts a text.
pub fn run_command(
    minder: &Path,
    command: &[String],
    directory: &Path,
    timeout: Duration,
    stop: &AtomicBool,
    redact: &dyn Fn(&str) -> String,
) -> anyhow::Result<GateAnswer> {
    let Some((program, arguments)) = command.split_first() else { bail!("the command has no program") };
    let cannot_start = || format!("cannot start {program:?}");
    let mut process = MindedCommand::new(minder, program, arguments).with_context(cannot_start)?;
    process.command.current_dir(directory);
    let ran = child::run_minded(process, &Bounds { timeout: Some(timeout), max_stdout_bytes: 0, stop });
    let ran = match ran {
        Ok(ran) => ran,
        Err(ChildError::CannotStart(_)) if !directory.is_dir() => {
            bail!("cannot start {program:?}: its directory {} does not exist", directory.display())
        }
        Err(ChildError::CannotStart(error)) => return Err(error).with_context(cannot_start),
        Err(ChildError::Io(error)) => {
            return Err(error).with_context(|| format!("cannot wait for {program:?}"));
        }
        Err(ChildError::TimedOut(timeout)) => bail!("no answer within {}", duration::exact(timeout)),
        Err(ChildError::Stopped) => bail!("the command was stopped"),
    };
    let output = last_lines(&[&redact(&ran.stdout_end), &redact(&ran.stderr_end)]);
    let printed = printed_suffix(&output);
    match ran.status.code() {
        Some(0) => Ok(GateAnswer { allows: true, output }),
        Some(1..=125) => Ok(GateAnswer { allows: false, output }),
        Some(code) => bail!("{program:?} ended with code {code}, which means that it could not run{printed}"),
        None => bail!("{program:?} was killed{printed}"),
    }
}

/// Returns the end of a message about the command: `; it printed: …`, or nothing if there is no output.
pub fn printed_suffix(output: &str) -> String {
    if output.is_empty() { String::new() } else { format!("; it printed: {output}") }
}

fn last_lines(texts: &[&str]) -> String {
    let of_text = |text: &&str| {
        let mut lines: Vec<&str> = text.lines().map(str::trim).filter(|line| !line.is_empty()).collect();
        lines.drain(..lines.len().saturating_sub(MAX_GATE_LINES));
        lines.into_iter().map(end_of).collect::<Vec<_>>()
    };
    texts.iter().flat_map(of_text).collect::<Vec<_>>().join(" / ")
}

fn end_of(line: &str) -> String {
    match line.chars().count().checked_sub(MAX_GATE_LINE_CHARS) {
        Some(more) if more > 0 => format!("…{}", line.chars().skip(more).collect::<String>()),
        _ => line.to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_last_lines_of_output_are_joined() {
        let long = "x".repeat(MAX_GATE_LINE_CHARS + 1);
        for (texts, expected) in [
            (["", ""], String::new()),
            (["1\n2\n\n3\n4\n", "oops"], "2 / 3 / 4 / oops".to_owned()),
            (["", &long], format!("…{}", "x".repeat(MAX_GATE_LINE_CHARS))),
        ] {
            assert_eq!(last_lines(&texts), expected);
        }
    }
}
