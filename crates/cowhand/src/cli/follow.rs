//! Answers that go on, also while one daemon takes the place of another.
//!
//! A daemon that goes may go before it has told us everything. So whoever finds that none runs looks into the store
//! first, and only then waits for the next one.

use std::time::{Duration, Instant};

use cowhand_core::id::JobId;
use cowhand_core::job::{JobRecord, JobStatus};
use serde::de::DeserializeOwned;

use super::place::{Place, WayIn};
use super::{Exit, Failure, print};
use cowhand_web::api::{Client, Code, Problem};

/// How long a daemon may be away before whoever follows gives up. A restart takes a second; one by systemd, with
/// its pause in between, should not end anybody either.
const PATIENCE: Duration = Duration::from_secs(10);
const LOOK: Duration = Duration::from_millis(50);
const LASTED: Duration = Duration::from_secs(1);

/// When there is no more to come.
#[derive(Debug, Clone, Copy)]
pub(super) enum Until<'a> {
    /// What there is, is all.
    Now,
    /// This job has ended.
    Ended(&'a JobId),
    Never,
}

impl Until<'_> {
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

/// Every line of an answer once. `at` is how far we are: what is asked for when we have to ask again, and what
/// each line moves on.
pub(super) async fn lines<C: Copy>(
    way_in: &WayIn<'_>,
    until: Until<'_>,
    mut at: C,
    address: impl Fn(C) -> String,
    mut hear: impl FnMut(C, &str) -> C,
) -> Result<(), Failure> {
    let mut absence = Absence::default();
    loop {
        let (asked, mut heard) = (Instant::now(), false);
        let on = |at, line: &str| {
            heard = true;
            hear(at, line)
        };
        let Err(problem) = pass_on(way_in, &mut at, &address, on).await else { return Ok(()) };
        // An answer that lasted was a daemon that was there, also if it had nothing to tell.
        if heard || asked.elapsed() > LASTED {
            absence = Absence::default();
        }
        if absence.begins_with(&problem)
            && let Ok(alone) = way_in.alone().await
        {
            // First whether it is over, then what there is: so nothing that came before is missed.
            let over = until.is_over(&alone).await;
            if pass_on(&alone, &mut at, &address, &mut hear).await.is_ok() && over {
                return Ok(());
            }
        }
        absence.bear(way_in, problem).await?;
    }
}

async fn pass_on<C: Copy>(
    client: &Client,
    at: &mut C,
    address: impl Fn(C) -> String,
    mut hear: impl FnMut(C, &str) -> C,
) -> Result<(), Problem> {
    let mut lines = client.lines(&address(*at)).await?;
    while let Some(line) = lines.next().await? {
        *at = hear(*at, &line);
    }
    Ok(())
}

/// One answer, from the store or the next daemon if this one has gone.
pub(super) async fn get<T: DeserializeOwned>(way_in: &WayIn<'_>, path: &str) -> Result<T, Failure> {
    let mut absence = Absence::default();
    loop {
        let problem = match way_in.get(path).await {
            Ok(answer) => return Ok(answer),
            Err(problem) => problem,
        };
        if absence.begins_with(&problem)
            && let Ok(alone) = way_in.alone().await
        {
            return Ok(alone.get(path).await?);
        }
        absence.bear(way_in, problem).await?;
    }
}

/// How long the daemon is away, if it is.
#[derive(Debug, Default)]
struct Absence {
    since: Option<Instant>,
    /// Nobody answers at all, and we have said so.
    told: bool,
}

impl Absence {
    /// Whether this is the first sign that there is no daemon: what it left is all there is for now.
    fn begins_with(&self, problem: &Problem) -> bool {
        problem.code == Code::NoDaemon && !self.told
    }

    /// Returns when it is time to ask again. What is no absence, and one that takes too long, is the end.
    async fn bear(&mut self, client: &WayIn<'_>, problem: Problem) -> Result<(), Failure> {
        let away = matches!(
            problem.code,
            Code::Unavailable | Code::StoreUnavailable | Code::NoDaemon | Code::Stopping
        );
        if client.is_alone() || !away {
            return Err(problem.into());
        }
        if self.begins_with(&problem) {
            print::note("the daemon is away; waiting for the next one");
            self.told = true;
        }
        if self.since.get_or_insert_with(Instant::now).elapsed() > PATIENCE {
            return Err(given_up(client.place(), problem));
        }
        tokio::time::sleep(LOOK).await;
        Ok(())
    }
}

fn given_up(place: &Place, problem: Problem) -> Failure {
    if problem.code != Code::NoDaemon {
        return problem.into();
    }
    let what = if Client::daemon_has_stopped(&place.state) { "was stopped" } else { "is gone" };
    let (waited, advice) = (PATIENCE.as_secs(), place.how_to_start());
    let message = format!("the daemon {what}, and none came back for {waited}s; {advice}");
    Failure::new(Exit::NoDaemon, message)
}
