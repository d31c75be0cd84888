//! Waiting for a daemon that may hang. A request may take long, so its duration does not show whether the daemon hangs.
//! Therefore a second, short request checks whether the daemon answers at all.

use std::io::Write as _;
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use axum::body::Body;
use axum::http::{Request, Response, header};
use cowhand_core::duration;
use hyper::body::Incoming;
use hyper_util::rt::TokioIo;
use tokio::time::{Instant, sleep, timeout};

use super::socket::Socket;
use super::{ApiProblem, Code};
use cowhand_engine::state::StateFolder;

/// Time after which the daemon is checked, and the time limit for its answer to the check.
const CHECK_AFTER: Duration = Duration::from_secs(5);
/// Time from the first check without an answer until the request fails.
const MAX_SILENCE: Duration = Duration::from_mins(1);
/// Time limit for the answer to a check, after an earlier request of the command has failed because of [`MAX_SILENCE`].
const LATER_CHECK_TIMEOUT: Duration = Duration::from_secs(1);

/// Time of the first check that got no answer; `None` after an answer. All requests of a command share it, so that a
/// command waits and reports once.
static SILENT_SINCE: Mutex<Option<Instant>> = Mutex::new(None);

fn silent_since() -> Option<Instant> {
    *SILENT_SINCE.lock().unwrap_or_else(PoisonError::into_inner)
}

fn set_silent_since(since: Option<Instant>) {
    *SILENT_SINCE.lock().unwrap_or_else(PoisonError::into_inner) = since;
}

/// Waits for an answer of the daemon. Prints a note when the daemon does not answer at all, and fails after
/// [`MAX_SILENCE`].
pub(super) async fn await_answer(
    state: &StateFolder,
    pid: Option<i32>,
    answer: impl Future<Output = hyper::Result<Response<Incoming>>>,
) -> Result<Response<Incoming>, ApiProblem> {
    let mut answer = std::pin::pin!(answer);
    loop {
        let has_failed = silent_since().is_some_and(|since| since.elapsed() >= MAX_SILENCE);
        let (pause, check_timeout) =
            if has_failed { (Duration::ZERO, LATER_CHECK_TIMEOUT) } else { (CHECK_AFTER, CHECK_AFTER) };
        let check = async {
            sleep(pause).await;
            timeout(check_timeout, is_alive(state)).await.unwrap_or(false)
        };
        let is_alive = tokio::select! {
            answer = &mut answer => {
                set_silent_since(None);
                return answer.map_err(|error| super::client::connection_failed(&error));
            }
            is_alive = check => is_alive,
        };
        if is_alive {
            set_silent_since(None);
            continue;
        }
        let daemon = pid.map_or_else(|| "the daemon".to_owned(), |pid| format!("the daemon (pid {pid})"));
        match silent_since() {
            None => {
                set_silent_since(Some(Instant::now()));
                let limit = duration::exact(MAX_SILENCE);
                // A closed standard error is not a failure.
                let _ = writeln!(std::io::stderr(), "{daemon} does not answer; waiting up to {limit} more");
            }
            Some(since) if since.elapsed() >= MAX_SILENCE => {
                let message = format!(
                    "{daemon} runs, but has answered nothing for {}; see its log, resume it if it is \
                     suspended (kill -CONT), or end it (kill -KILL) and start it again: running jobs continue",
                    duration::exact(MAX_SILENCE)
                );
                return Err(ApiProblem::new(Code::NoDaemon, message));
            }
            Some(_) => {}
        }
    }
}

/// Requests a path that does not exist, so that the daemon has little to do, and returns whether an answer comes.
async fn is_alive(state: &StateFolder) -> bool {
    let Ok(Some(stream)) = Socket::connect(state).await else { return false };
    let Ok((mut sender, connection)) = hyper::client::conn::http1::handshake(TokioIo::new(stream)).await
    else {
        return false;
    };
    tokio::spawn(connection);
    let request = Request::get("/api/v1/-").header(header::HOST, "cowhand").body(Body::empty());
    let Ok(request) = request else { return false };
    sender.send_request(request).await.is_ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    /// This test needs its own process, because all requests of a process share [`SILENT_SINCE`].
    #[tokio::test(start_paused = true)]
    async fn several_requests_of_a_command_share_the_time_limit() {
        let folder = tempfile::tempdir().unwrap();
        let state = StateFolder::at(folder.path());
        let began = Instant::now();
        for _ in 0..3 {
            let problem = await_answer(&state, Some(7), std::future::pending()).await.unwrap_err();
            assert!(
                problem.message.contains("(pid 7) runs, but has answered nothing"),
                "{}",
                problem.message
            );
        }
        // The clock of the test advances only while all tasks wait.
        assert!(
            began.elapsed() <= MAX_SILENCE + 2 * CHECK_AFTER + 3 * LATER_CHECK_TIMEOUT,
            "{:?}",
            began.elapsed()
        );
    }
}
