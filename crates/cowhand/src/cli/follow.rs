//! Follows answers of the API, also when one daemon replaces another.
//!
//! A daemon may end before it has sent everything. So when no daemon answers, the rest is read from the store first,
//! and only then the next daemon is awaited.

use std::time::{Duration, Instant};

use cowhand_core::duration;
use cowhand_core::id::JobId;
use cowhand_core::job::{JobRecord, JobStatus};
use serde::de::DeserializeOwned;

use super::background::POLL_DAEMON_EVERY;
use super::location::{Connection, FleetLocation};
use super::{Exit, Failure, print};
use cowhand_web::api::{ApiProblem, Client, Code, Lines};

/// Longest absence of a daemon before following ends with an error. It is longer than a restart by systemd, which waits
/// before it starts the daemon again.
const MAX_DAEMON_ABSENCE: Duration = Duration::from_secs(10);
const MIN_ANSWER_TIME: Duration = Duration::from_secs(1);

/// Condition under which no further line is expected.
#[derive(Debug, Clone, Copy)]
pub(super) enum FollowUntil<'a> {
    /// Only the lines that are available now are expected.
    Now,
    /// This job has ended.
    Ended(&'a JobId),
    Never,
}

impl FollowUntil<'_> {
    async fn is_over(self, client: &Client) -> bool {
        match self {
            Self::Now => true,
            Self::Never => false,
            Self::Ended(id) => client.get::<JobRecord>(&format!("jobs/{id}")).await.is_ok_and(|job| {
                matches!(job.status, JobStatus::Completed | JobStatus::Failed | JobStatus::Cancelled)
            }),
        }
    }
}

/// Lines that are followed, with the position up to which they were received.
pub(super) trait FollowedLines {
    /// Returns the address of the lines after the position.
    fn address(&self) -> String;

    /// Receives an answer, before its lines.
    fn on_answer(&mut self, _answer: &Lines) {}

    /// Receives a line, and advances the position.
    fn on_line(&mut self, line: &str);
}

/// Passes on each line once, until the answer ends. If the daemon ends before that, the request is repeated from the
/// position of `followed`, unless the store already has all lines that `until` expects.
pub(super) async fn lines(
    connection: &Connection<'_>,
    until: FollowUntil<'_>,
    followed: &mut impl FollowedLines,
) -> Result<(), Failure> {
    let mut absence = Absence::default();
    loop {
        let (requested_at, mut has_received) = (Instant::now(), false);
        let Err(problem) = pass_on(connection, followed, &mut has_received).await else { return Ok(()) };
        // If the request lasted long, a daemon was running, even if it sent nothing.
        if has_received || requested_at.elapsed() > MIN_ANSWER_TIME {
            absence = Absence::default();
        }
        if absence.begins_with(&problem)
            && let Ok(alone) = connection.open_store().await
        {
            // Check the end first and then read, so that no line before the end is missed.
            let is_over = until.is_over(&alone).await;
            if pass_on(&alone, followed, &mut false).await.is_ok() && is_over {
                return Ok(());
            }
        }
        absence.wait_or_fail(connection, problem).await?;
    }
}

async fn pass_on(
    client: &Client,
    followed: &mut impl FollowedLines,
    has_received: &mut bool,
) -> Result<(), ApiProblem> {
    let mut lines = client.lines(&followed.address()).await?;
    followed.on_answer(&lines);
    while let Some(line) = lines.next().await? {
        *has_received = true;
        followed.on_line(&line);
    }
    Ok(())
}

/// Gets one answer. If the daemon has ended, gets it from the store or, if the store cannot be opened, from the next
/// daemon.
pub(super) async fn get<T: DeserializeOwned>(connection: &Connection<'_>, path: &str) -> Result<T, Failure> {
    let mut absence = Absence::default();
    loop {
        let problem = match connection.get(path).await {
            Ok(answer) => return Ok(answer),
            Err(problem) => problem,
        };
        if absence.begins_with(&problem)
            && let Ok(alone) = connection.open_store().await
        {
            return Ok(alone.get(path).await?);
        }
        absence.wait_or_fail(connection, problem).await?;
    }
}

/// Period in which no daemon answers.
#[derive(Debug, Default)]
pub(super) struct Absence {
    since: Option<Instant>,
    /// True if no daemon answers at all and the user has been notified of that.
    notified: bool,
}

impl Absence {
    /// Returns true if this problem is the first sign that no daemon runs. The caller then reads the store once: until
    /// another daemon starts, the store gets no further lines of this node.
    fn begins_with(&self, problem: &ApiProblem) -> bool {
        problem.code == Code::NoDaemon && !self.notified
    }

    /// Waits before the next request. Fails if the problem is not an absence of the daemon, if the absence takes too
    /// long, or if the client reads the store alone.
    pub(super) async fn wait_or_fail(
        &mut self,
        client: &Connection<'_>,
        problem: ApiProblem,
    ) -> Result<(), Failure> {
        let is_absence = matches!(
            problem.code,
            Code::Unavailable | Code::StoreUnavailable | Code::Busy | Code::NoDaemon | Code::Stopping
        );
        if client.is_alone() || !is_absence {
            return Err(problem.into());
        }
        if self.begins_with(&problem) {
            print::note("the daemon does not answer; waiting for it");
            self.notified = true;
        }
        if self.since.get_or_insert_with(Instant::now).elapsed() > MAX_DAEMON_ABSENCE {
            return Err(given_up(client.location(), problem));
        }
        tokio::time::sleep(POLL_DAEMON_EVERY).await;
        Ok(())
    }
}

fn given_up(location: &FleetLocation, problem: ApiProblem) -> Failure {
    if problem.code != Code::NoDaemon {
        return problem.into();
    }
    let what = if Client::daemon_has_stopped(&location.state) { "was stopped" } else { "does not run" };
    let (waited, advice) = (duration::exact(MAX_DAEMON_ABSENCE), location.how_to_start());
    let message = format!("the daemon {what}, and no daemon answered for {waited}; {advice}");
    Failure::new(Exit::NoDaemon, message)
}
