//! Answers that go on, also while one daemon takes the place of another.

use std::time::{Duration, Instant};

use serde::de::DeserializeOwned;

use super::{Exit, Failure, print};
use crate::api::{Client, Code, Problem};

/// How long a daemon may be away before whoever follows gives up. A restart takes a second; one by systemd, with
/// its pause in between, should not end anybody either.
const PATIENCE: Duration = Duration::from_secs(10);
const LOOK: Duration = Duration::from_millis(100);
const LASTED: Duration = Duration::from_secs(1);

/// Every line of an answer once. `at` is how far we are: what is asked for when we have to ask again, and what
/// each line moves on.
pub(super) async fn lines<C: Copy>(
    client: &Client,
    mut at: C,
    address: impl Fn(C) -> String,
    mut hear: impl FnMut(C, &str) -> C,
) -> Result<(), Failure> {
    let mut absence = Absence::default();
    loop {
        let asked = Instant::now();
        let problem = match client.lines(&address(at)).await {
            Err(problem) => problem,
            Ok(mut lines) => loop {
                match lines.next().await {
                    Ok(Some(line)) => (at, absence) = (hear(at, &line), Absence::default()),
                    Ok(None) => return Ok(()),
                    Err(problem) => break problem,
                }
            },
        };
        // An answer that lasted was a daemon that was there, also if it had nothing to tell.
        if asked.elapsed() > LASTED {
            absence = Absence::default();
        }
        absence.bear(client, problem).await?;
    }
}

/// One answer, from the next daemon if this one is about to go.
pub(super) async fn get<T: DeserializeOwned>(client: &Client, path: &str) -> Result<T, Failure> {
    let mut absence = Absence::default();
    loop {
        match client.get(path).await {
            Ok(answer) => return Ok(answer),
            Err(problem) => absence.bear(client, problem).await?,
        }
    }
}

/// Since when the daemon is away, if it is.
#[derive(Debug, Default)]
struct Absence {
    since: Option<Instant>,
}

impl Absence {
    /// Returns when it is time to ask again. What is no absence, and one that takes too long, is the end.
    async fn bear(&mut self, client: &Client, problem: Problem) -> Result<(), Failure> {
        let away = matches!(problem.code, Code::Unavailable | Code::NoDaemon | Code::Stopping);
        if client.is_alone() || !away {
            return Err(problem.into());
        }
        match self.since {
            None => {
                print::note("the daemon is away; waiting for the next one");
                self.since = Some(Instant::now());
            }
            Some(since) if since.elapsed() > PATIENCE => return Err(given_up(problem)),
            Some(_) => {}
        }
        tokio::time::sleep(LOOK).await;
        Ok(())
    }
}

fn given_up(problem: Problem) -> Failure {
    let waited = PATIENCE.as_secs();
    match problem.code {
        Code::NoDaemon => Failure::new(
            Exit::NoDaemon,
            format!(
                "the daemon was stopped, and none came back for {waited}s; `cowhand start -d` starts one"
            ),
        ),
        _ => problem.into(),
    }
}
