//! Somebody for each job: whatever goes wrong while an attempt is looked after, the job is not held for ever.

use std::sync::Arc;
use std::time::Duration;

use cowhand_core::attempt::Settlement;
use cowhand_core::job::Outcome;
use cowhand_core::roster::Agent;
use tokio::time::Instant;
use tracing::{error, warn};

use super::attempt::{AttemptTask, Rules};
use super::workspaces;
use crate::context::LEASE;
use cowhand_run::attempt::Attempt;
use cowhand_run::supervision::AttemptState;
use cowhand_system::panic::{Panicked, caught};
use cowhand_system::remove::is_missing;

/// So many panics over one attempt, and it is given up: what goes wrong each time will go wrong again.
const MOST_PANICS: u32 = 5;
const FIRST_PAUSE: Duration = Duration::from_millis(200);
/// What is left of an attempt that is given up has so long to go.
const LAST_LOOKS: Duration = Duration::from_secs(15);
const LOOK: Duration = Duration::from_millis(100);

impl AttemptTask {
    /// The whole of it. After a panic the attempt is taken up again, as after a restart.
    pub(super) async fn supervise(self, fresh: bool) {
        let (id, engine) = (self.job.id().clone(), Arc::clone(&self.engine));
        let (mut fresh, mut pause, mut panics) = (fresh, FIRST_PAUSE, 0);
        while let Err(panicked) = caught(self.clone().run_to_end(fresh)).await {
            error!(job = %id, "looking after it {panicked}");
            panics += 1;
            if panics == MOST_PANICS {
                // If this goes wrong, too, nobody renews its lease any more, and that ends it.
                if let Err(panicked) = caught(self.clone().give_up(&panicked)).await {
                    error!(job = %id, "giving it up {panicked}");
                }
                break;
            }
            tokio::time::sleep(pause).await;
            if !self.is_ours().await {
                // Settled, so nothing of it is left; or somebody else's, and then nothing may be.
                self.end_all().await;
                break;
            }
            (fresh, pause) = (false, pause * 2);
        }
        if let Err(panicked) = caught(workspaces::tidy(&engine, &id)).await {
            error!(job = %id, "tidying up after it {panicked}");
        }
        engine.end(&id);
    }

    /// It may have been settled before the panic. A store that is away says nothing, and is asked again by all that follows.
    async fn is_ours(&self) -> bool {
        let (node, job) = (self.engine.home.node.clone(), self.job.id().clone());
        let held = self.engine.store.renew(node, vec![job], LEASE, self.now()).await;
        held.map_or(true, |held| held.iter().any(|held| held.epoch == self.epoch))
    }

    async fn run_to_end(mut self, fresh: bool) {
        let rules = self.rules();
        // What is taken up again runs on, also if its agent is gone from the config.
        let fresh = fresh && self.engine.loaded().roster.agent(self.job.agent()).is_some();
        if !fresh || Box::pin(self.launch(&rules)).await {
            Box::pin(self.run(&rules, fresh)).await;
        }
    }

    /// Of its agent, or of whoever stands in for it.
    fn rules(&self) -> Rules {
        let loaded = self.engine.loaded();
        // For one that is gone from the config the defaults are good enough to let it run out.
        let gone = || Agent::new(self.job.agent().clone());
        let agent = loaded.roster.agent(self.job.agent()).cloned().unwrap_or_else(gone);
        let other = self.fallback.and_then(|number| agent.fallback(number));
        let mut rules = Rules::of(&loaded, &other.unwrap_or(agent), &self.job);
        rules.redactor = rules.redactor.and([self.token()]);
        rules
    }

    async fn end_all(&self) {
        let (attempt, until) = (self.attempt(), Instant::now() + LAST_LOOKS);
        while Instant::now() < until && attempt.on_blocking_thread(lives).await {
            tokio::time::sleep(LOOK).await;
        }
    }

    /// Ends what runs, and settles the attempt as lost.
    async fn give_up(self, panicked: &Panicked) {
        self.end_all().await;
        let lost =
            format!("lost: looking after it went wrong {MOST_PANICS} times, and in the end {panicked}");
        self.settle(self.lost(lost), &self.rules()).await;
    }

    /// How an attempt ends of which nobody knows more than what was heard of it.
    pub(super) fn lost(&self, message: String) -> Settlement {
        Settlement { silent: self.tells_in_the_end(), ..Outcome::lost(message).into() }
    }
}

/// Whether anything of it is left; if so, it is killed.
fn lives(attempt: &Attempt) -> bool {
    if is_missing(attempt.folder()) {
        // What cannot be seen now may live.
        return attempt.end_strays().unwrap_or(true);
    }
    if matches!(attempt.state(), Ok(AttemptState::Ended(_) | AttemptState::Gone)) {
        return false;
    }
    if let Err(error) = attempt.kill() {
        warn!(attempt = attempt.name(), "it cannot be killed at the moment: {error}");
    }
    true
}
