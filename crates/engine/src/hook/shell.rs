//! Hooks that are shell commands. Each has a keeper, as attempts have: the keeper ends it in time with all its
//! processes, even while no daemon runs, and records how it ended.

use std::fs;
use std::io;
use std::path::Path;
use std::time::Duration;

use cowhand_core::hook::{HookKind, SHELL_HOOK_TIMEOUT};
use jiff::SignedDuration;
use tracing::warn;

use super::{HookCall, HookResult};
use crate::context::Engine;
use crate::secrets::kept::{self, GivenTexts};
use cowhand_run::attempt::Attempt;
use cowhand_run::ending::{Ending, ExitStatus};
use cowhand_run::launch;
use cowhand_run::process::StopSignal;
use cowhand_run::shortage;
use cowhand_run::start::{KeeperLimits, StartSpec};
use cowhand_run::supervision::AttemptState;
use cowhand_store::TakenHook;
use cowhand_system::fault;
use cowhand_system::remove::is_missing;

/// Time from the stop signal to the kill.
const GRACE_MS: u64 = 2_000;
/// Limit for each stream. Less is stored, so that no secret is cut in two and therefore not recognised.
const OUTPUT_BYTES: u64 = 64 << 10;
/// Interval between two looks without activity.
const POLL_EVERY: Duration = Duration::from_millis(500);
/// Time beyond the hook's limit after which the daemon kills the hook itself.
const KILL_AFTER_TIMEOUT: SignedDuration = SignedDuration::from_secs(20);

/// Follows a hook that was already started. It is never started again, because nobody knows how far it came. Returns
/// `None` if it never began.
pub(super) async fn follow_begun(engine: &Engine, taken: &TakenHook) -> Option<HookResult> {
    let node = taken.begun_by.as_ref().filter(|_| taken.run.kind == HookKind::Shell)?;
    if *node != engine.home.node {
        return Some(HookResult::failed(format!("lost: the node {node} ran it and is gone")));
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
    let inherited = launch::own_environment();
    let environment = launch::environment(call.agent, call.job, inherited, &call.loaded.variables);
    let environment: Vec<_> = environment.into_iter().collect();
    let start = StartSpec {
        // From a file, not as an argument: a variable that the config put into the command may be a secret.
        argv: vec!["sh".to_owned(), attempt.private().join(COMMAND).display().to_string()],
        directory: call.agent.directory.clone(),
        stop_signal: StopSignal::Terminate,
        grace_ms: GRACE_MS,
        reader: None,
        limits: Some(KeeperLimits { lifetime_ms: to_millis(timeout), output_bytes: OUTPUT_BYTES }),
        sandbox: None,
    };
    let files = [(COMMAND.to_owned(), format!("{command}\n"))];
    let context = call.context.to_string();
    let given =
        GivenTexts { arguments: &start.argv, environment: &environment, files: &files, input: &context };
    let launched = attempt
        .clear()
        .and_then(|()| attempt.write_private(&files))
        .and_then(|()| kept::keep(&attempt, call.redactor, &given))
        .and_then(|()| attempt.launch(&engine.program, &start, &context, &environment));
    let mut keeper = launched.map_err(|error| not_launched(&error))?;
    fault::place("hook_launched");
    // Reaped when it ends, however long that takes.
    if let Err(error) = std::thread::Builder::new().spawn(move || keeper.wait()) {
        warn!(job = %taken.job, "nobody waits for the keeper of its hook, which will be a zombie: {error}");
    }
    Ok(follow(engine, taken, &attempt).await)
}

const COMMAND: &str = "command";
/// Number of tries for a hook that the machine cannot start for lack of resources; the last tries are minutes apart.
const SHORTAGE_TRIES: u32 = 20;

/// Returns the result of a hook that never began. If the machine has run out of something, it is tried again.
fn not_launched(error: &io::Error) -> HookResult {
    let reason = format!("cannot start a keeper for it: {error}");
    if shortage::is_named_in(&reason) {
        return HookResult::Retry { reason, output: None, retry_after: None, max_tries: SHORTAGE_TRIES };
    }
    HookResult::failed(reason)
}

fn to_millis(timeout: Duration) -> u64 {
    u64::try_from(timeout.as_millis()).unwrap_or(u64::MAX)
}

async fn follow(engine: &Engine, taken: &TakenHook, attempt: &Attempt) -> HookResult {
    let wake = engine.watch.folder(attempt.folder());
    let limits = attempt.start().ok().and_then(|start| start.limits);
    let limit = limits.map_or_else(|| to_millis(SHELL_HOOK_TIMEOUT), |limits| limits.lifetime_ms);
    let limit = SignedDuration::from_millis(i64::try_from(limit).unwrap_or(i64::MAX));
    loop {
        let state = attempt.on_blocking_thread(Attempt::state).await;
        let ending = match state {
            Ok(AttemptState::Ended(ending)) => ending,
            Ok(AttemptState::Gone) => return result_of(attempt, None, limit),
            Ok(AttemptState::Kept | AttemptState::Unkept) => {
                let began = taken.run.started_at.unwrap_or_else(|| engine.clock.now());
                let age = engine.clock.now().duration_since(began);
                if let Ok(AttemptState::Unkept) = state
                    && let Err(error) = attempt.on_blocking_thread(Attempt::end_leftovers).await
                {
                    warn!(job = %taken.job, "what its hook has left cannot be ended at the moment: {error}");
                }
                if age > limit.saturating_add(KILL_AFTER_TIMEOUT) {
                    // The keeper hangs or has ended. The next look shows whether a process was left.
                    if let Err(error) = attempt.on_blocking_thread(Attempt::kill).await {
                        warn!(job = %taken.job, "its hook cannot be killed at the moment: {error}");
                    }
                }
                tokio::select! {
                    () = wake.changed() => {}
                    () = tokio::time::sleep(POLL_EVERY) => {}
                }
                continue;
            }
            Err(error) => return HookResult::failed(format!("lost: its folder cannot be read: {error}")),
        };
        return result_of(attempt, Some(&ending), limit);
    }
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
        None | Some((ExitStatus::Lost, _)) => failed("lost: nobody saw how it ended".to_owned()),
        Some((ExitStatus::StartFailed { message }, _)) => failed(message.clone()),
        Some((_, Some(_))) => failed(format!("it ran longer than {limit:#} and was ended")),
        Some((ExitStatus::Code { code: 0 }, None)) => HookResult::Done { output, note: leftover_note },
        Some((ExitStatus::Code { code }, None)) => failed(format!("exit code {code}")),
        Some((ExitStatus::Signal { signal }, None)) => failed(format!("ended by signal {signal}")),
    }
}

/// Returns the text of a file, or nothing if it cannot be read: the exit status is what counts.
fn read_text(path: &Path) -> String {
    fs::read(path).map(|bytes| String::from_utf8_lossy(&bytes).into_owned()).unwrap_or_default()
}
