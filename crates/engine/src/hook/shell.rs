//! Hooks that are shell commands. Each hook has a keeper, like an attempt. The keeper ends the hook with all its
//! processes when the time of the hook is over, even while no daemon runs, and records how the hook ended.

use std::fs;
use std::io;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use cowhand_core::duration;
use cowhand_core::hook::{HookKind, SHELL_HOOK_TIMEOUT};
use cowhand_core::moment::Moment;
use jiff::SignedDuration;
use tracing::warn;

use super::{HookCall, HookResult};
use crate::context::Engine;
use crate::secrets::kept::{self, GivenTexts};
use crate::state::modes;
use cowhand_run::attempt::{Attempt, BeforeOutput};
use cowhand_run::ending::{Ending, ExitStatus};
use cowhand_run::launch::{self, FleetVariables};
use cowhand_run::launcher::LaunchInput;
use cowhand_run::process::StopSignal;
use cowhand_run::shortage;
use cowhand_run::start::{KeeperLimits, StartSpec};
use cowhand_run::supervision::AttemptState;
use cowhand_store::TakenHook;
use cowhand_system::fault;
use cowhand_system::remove::is_missing;

/// Time from the stop signal to the kill.
const GRACE_MS: u64 = 2_000;
/// Limit for the captured output of each stream. It is larger than the stored output, so that a secret at the end of
/// the stored output is complete and can be recognised.
const OUTPUT_BYTES: u64 = 64 << 10;
/// Time after which the state of a hook is read again, if its folder does not change earlier.
const POLL_EVERY: Duration = Duration::from_millis(500);
/// Time beyond the hook's limit after which the daemon kills the hook, because the keeper has not ended it.
const KILL_AFTER_TIMEOUT: SignedDuration = SignedDuration::from_secs(20);

/// Follows a shell hook that an earlier daemon started. Such a hook is never started again, because nobody knows what
/// it has done already. A hook that another node started counts as failed. Returns `None` if the hook never began, or
/// is not a shell hook.
pub(super) async fn follow_begun(engine: &Engine, taken: &TakenHook) -> Option<HookResult> {
    let node = taken.begun_by.as_ref().filter(|_| taken.run.kind == HookKind::Shell)?;
    if *node != engine.home.node {
        return Some(HookResult::failed(format!("lost: the node {node} ran it and no longer runs")));
    }
    let attempt = Attempt::of_hook(engine.home.state.path(), &taken.job, taken.run.number);
    if is_missing(attempt.folder()) {
        return None;
    }
    match (attempt.on_blocking_thread(Attempt::state).await, attempt.began()) {
        (Ok(AttemptState::Gone), Ok(false)) => None,
        _ => Some(follow(engine, taken, &attempt).await),
    }
}

pub(super) async fn run(
    call: &HookCall<'_>,
    command: &str,
    timeout: Duration,
) -> Result<HookResult, HookResult> {
    let (engine, taken) = (call.engine, call.taken);
    let attempt = Attempt::of_hook(engine.home.state.path(), &taken.job, taken.run.number);
    let variables = FleetVariables::of(&call.loaded.roster, &call.loaded.variables);
    let environment = launch::environment(call.agent, call.job, &variables);
    let environment: Vec<_> = environment.into_iter().collect();
    let start = StartSpec {
        // The command is in a file and not in an argument, because the config may have put a secret into the command.
        argv: vec!["sh".to_owned(), attempt.private().join(COMMAND).display().to_string()],
        directory: call.agent.directory.clone(),
        stop_signal: StopSignal::Terminate,
        grace_ms: GRACE_MS,
        reader: None,
        input: None,
        limits: Some(KeeperLimits { lifetime_ms: to_millis(timeout), output_bytes: OUTPUT_BYTES }),
        sandbox: None,
        program: None,
        rules: None,
    };
    let files = [(COMMAND.to_owned(), format!("{command}\n"))];
    let context = call.context.to_string();
    let given =
        GivenTexts { arguments: &start.argv, environment: &environment, files: &files, input: &context };
    let prepared = attempt
        .clear()
        .and_then(|()| attempt.write_private(&files))
        .and_then(|()| kept::keep(&attempt, call.redactor, &given));
    prepared.map_err(|error| not_launched(&error))?;
    let input = LaunchInput { before_output: BeforeOutput::default(), start, prompt: context, environment };
    let launcher = Arc::clone(&engine.launcher);
    let result = attempt.on_blocking_thread(move |attempt| launcher.launch(attempt, &input)).await;
    result.map_err(|error| not_launched(&error))?;
    fault::point("hook_launched");
    Ok(follow(engine, taken, &attempt).await)
}

const COMMAND: &str = "command";
/// Number of tries for a hook that the machine cannot start for lack of resources; the last tries are minutes apart.
const SHORTAGE_TRIES: u32 = 20;

/// Returns the result of a hook that never began. If the machine has run out of a resource, the hook is tried again.
fn not_launched(error: &io::Error) -> HookResult {
    let reason = format!("cannot start a keeper for it: {error}");
    if shortage::is_shortage(&reason) {
        return HookResult::Retry { reason, output: None, retry_after: None, max_tries: SHORTAGE_TRIES };
    }
    HookResult::failed(reason)
}

fn to_millis(timeout: Duration) -> u64 {
    u64::try_from(timeout.as_millis()).unwrap_or(u64::MAX)
}

/// Follows a hook to its end. If its state cannot be read, for example because the daemon has no file descriptors left,
/// the state is read again later, because the hook may still run.
async fn follow(engine: &Engine, taken: &TakenHook, attempt: &Attempt) -> HookResult {
    let wake = engine.watch.folder(attempt.folder());
    let limits = attempt.start().ok().and_then(|start| start.limits);
    let limit = limits.map_or_else(|| to_millis(SHELL_HOOK_TIMEOUT), |limits| limits.lifetime_ms);
    let limit = SignedDuration::from_millis(i64::try_from(limit).unwrap_or(i64::MAX));
    // Usually the keeper ends the hook in time. The daemon checks the limit only because a keeper may hang. So the
    // daemon may count the time from now, also after a restart.
    let since = engine.clock.moment();
    let mut is_killed = false;
    loop {
        let state = attempt.on_blocking_thread(Attempt::state).await;
        match &state {
            Ok(AttemptState::Ended(ending)) => return result_of(attempt, Some(ending), limit),
            Ok(AttemptState::Gone) => return result_of(attempt, None, limit),
            Ok(AttemptState::Kept) => {}
            Ok(AttemptState::Unkept) => {
                if let Err(error) = attempt.on_blocking_thread(Attempt::end_leftovers).await {
                    warn!(job = %taken.job, "cannot end the remaining processes of its hook now: {error}");
                }
            }
            Err(error) if is_killed || is_missing(attempt.folder()) => {
                return HookResult::failed(format!("lost: its folder cannot be read: {error}"));
            }
            Err(error) => {
                warn!(job = %taken.job, "cannot read the state of its hook; trying again: {error}");
                modes::restore(&[attempt.folder()]);
            }
        }
        if is_overdue(since, engine.clock.moment(), limit) {
            // The keeper hangs or has ended. The next read of the state shows whether a process is left.
            match attempt.on_blocking_thread(Attempt::kill).await {
                Ok(()) => is_killed = true,
                Err(error) => warn!(job = %taken.job, "cannot kill its hook now: {error}"),
            }
        }
        tokio::select! {
            () = wake.changed() => {}
            () = tokio::time::sleep(POLL_EVERY) => {}
        }
    }
}

/// Returns whether a hook that the daemon has followed since `since` has to be killed. Setting the wall clock does not
/// change the result.
fn is_overdue(since: Moment, now: Moment, limit: SignedDuration) -> bool {
    now.since(since) > limit.saturating_add(KILL_AFTER_TIMEOUT)
}

fn result_of(attempt: &Attempt, ending: Option<&Ending>, limit: SignedDuration) -> HookResult {
    let output = Some([attempt.stdout(), attempt.stderr()].map(|path| read_text(&path)).concat());
    let leftover_note = ending.map(|ending| ending.leftovers).filter(|count| *count > 0);
    let leftover_note = leftover_note.map(|count| match count {
        1 => "a process that it left behind was ended".to_owned(),
        more => format!("{more} processes that it left behind were ended"),
    });
    let with_note = |reason: String| match &leftover_note {
        Some(note) => format!("{reason}; {note}"),
        None => reason,
    };
    let failed = |reason: String| HookResult::Failed { reason: with_note(reason), output: output.clone() };
    match ending.map(|ending| (&ending.status, ending.stopped)) {
        None | Some((ExitStatus::Lost { why: None }, _)) => {
            failed("lost: its exit status is not known".to_owned())
        }
        Some((ExitStatus::Lost { why: Some(why) }, _)) => failed(format!("lost: {why}")),
        Some((ExitStatus::StartFailed { message }, _)) => failed(message.clone()),
        Some((_, Some(_))) => failed(format!("it ran longer than {} and was ended", duration::exact(limit))),
        Some((ExitStatus::Code { code: 0 }, None)) => HookResult::Done { output, note: leftover_note },
        Some((ExitStatus::Code { code }, None)) => failed(format!("exit code {code}")),
        Some((ExitStatus::Signal { signal, .. }, None)) => failed(format!("ended by signal {signal}")),
    }
}

/// Returns the text of a file, or an empty text if it cannot be read, because only the exit status is necessary.
fn read_text(path: &Path) -> String {
    fs::read(path).map(|bytes| String::from_utf8_lossy(&bytes).into_owned()).unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use cowhand_core::moment::BootTime;
    use jiff::Timestamp;
    use uuid::Uuid;

    use super::*;

    #[test]
    fn a_clock_that_is_set_does_not_make_a_hook_overdue() {
        let moment = |wall: i64, boot: i64| Moment {
            wall: Timestamp::from_second(wall).unwrap(),
            boot: Some(BootTime::new(Uuid::from_u128(1), boot * 1_000_000)),
        };
        let (since, limit) = (moment(1_000, 50), SignedDuration::from_secs(30));
        for (case, now, expected) in [
            ("within its limit", moment(1_010, 60), false),
            ("within the time that its keeper has", moment(1_050, 100), false),
            ("set forward", moment(90_000, 60), false),
            ("overdue", moment(1_051, 101), true),
            ("overdue, set back", moment(10, 101), true),
        ] {
            assert_eq!(is_overdue(since, now, limit), expected, "{case}");
        }
    }
}
