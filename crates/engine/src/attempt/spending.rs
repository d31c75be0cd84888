//! The spending of a running attempt: read from its output, stored, and compared with its budgets.

use std::time::{Duration, Instant};

use cowhand_core::attempt::Settlement;
use cowhand_core::budget::{
    self, Amount, Breach, Budget, OverBudget, Reservation, SpendLimits, Spending, UsageReporting,
};
use cowhand_core::job::{ErrorKind, FailReason, JobError, JobUsage, Outcome};
use cowhand_core::policy::Retry;
use tracing::warn;

use super::AttemptTask;
use super::rules::Rules;
use crate::job_limits::limits_of_job;
use cowhand_run::tail::Tailer;
use cowhand_store::UsageRecorded;

/// The spending of one attempt that the store has received.
#[derive(Debug, Default)]
pub(super) struct ReportedUsage {
    /// Number of lines of the output at its last examination.
    lines: u64,
    usage: Option<JobUsage>,
    breach: Option<(Breach, Instant)>,
}

/// Time that an agent over its budget still gets after its result. An agent that has given its result is about to end
/// by itself.
const OVER_BUDGET_GRACE: Duration = Duration::from_secs(10);

impl AttemptTask {
    /// Stores the usage of the attempt until now. Returns the breach of a budget for which the attempt has to be
    /// stopped now. An agent that has given its result is not stopped before [`OVER_BUDGET_GRACE`] has passed.
    pub(super) async fn record_usage(
        &self,
        tail: &mut Tailer,
        reported: &mut ReportedUsage,
    ) -> Option<Breach> {
        if tail.lines() != reported.lines {
            let usage = tail.usage().map(|usage| self.with_price(usage));
            if usage == reported.usage {
                reported.lines = tail.lines();
            } else if let Some(usage) = usage {
                match self.store_usage(usage.clone()).await {
                    Ok(breach) => {
                        let breach = match breach {
                            Some(over) => Some(Breach::Over(over)),
                            None => self.unpriced(&usage).await,
                        };
                        reported.breach = breach.map(|breach| (breach, Instant::now()));
                        (reported.usage, reported.lines) = (Some(usage), tail.lines());
                    }
                    Err(error) => {
                        warn!(job = %self.job.id(), "cannot store the usage of the attempt yet: {error}");
                    }
                }
            }
        }
        let grace = if tail.has_result() { OVER_BUDGET_GRACE } else { Duration::ZERO };
        reported.breach.filter(|(_, since)| since.elapsed() >= grace).map(|(breach, _)| breach)
    }

    /// Returns the budget that the final usage exceeds, for an attempt that was stopped for its budget.
    pub(super) async fn final_breach(&self, usage: Option<&JobUsage>) -> Option<OverBudget> {
        match self.store_usage(usage?.clone()).await {
            Ok(over) => over,
            Err(error) => {
                warn!(job = %self.job.id(), "which budget it has used up is not known: {error}");
                None
            }
        }
    }

    /// Returns a breach if dollars are limited and the used tokens have no price. Returns `None` for agents that report
    /// no tokens while they run.
    async fn unpriced(&self, usage: &JobUsage) -> Option<Breach> {
        let reports_tokens =
            matches!(self.usage_reporting()?, UsageReporting::Continuous | UsageReporting::TokensContinuous);
        if !reports_tokens || budget::unpriced(usage).is_none() {
            return None;
        }
        let limits = self.limits_with_person().await.unwrap_or_else(|_| self.limits());
        limits.is_some_and(|limits| limits.is_in_dollars()).then_some(Breach::Unpriced)
    }

    /// Returns when the running program reports its usage.
    fn usage_reporting(&self) -> Option<UsageReporting> {
        let loaded = self.engine.loaded();
        let Some(agent) = loaded.roster.agent(self.job.agent()) else {
            return self.stored_rules().map(|rules| rules.agent.usage_reporting);
        };
        let fallback = self.fallback.and_then(|number| agent.fallback(number));
        Some(fallback.as_ref().unwrap_or(agent).usage_reporting())
    }

    pub(super) fn reports_usage_at_end(&self) -> bool {
        self.usage_reporting() == Some(UsageReporting::AtEnd)
    }

    async fn store_usage(&self, usage: JobUsage) -> Result<Option<OverBudget>, cowhand_store::StoreError> {
        let id = self.job.id().clone();
        let limits = self.limits_with_person().await?;
        Ok(match self.engine.store.record_usage(id, self.epoch, usage, limits).await? {
            UsageRecorded::Recorded(over) => over,
            UsageRecorded::Fenced => None,
        })
    }

    fn limits(&self) -> Option<SpendLimits> {
        // An agent that was removed from the config still spends the fleet's budget and its own.
        SpendLimits::of(&self.engine.loaded().roster, &self.current_agent(), self.now())
    }

    /// Returns the budgets that apply, with that of the person whose message caused the job.
    async fn limits_with_person(&self) -> Result<Option<SpendLimits>, cowhand_store::StoreError> {
        let (engine, agent) = (&self.engine, self.current_agent());
        limits_of_job(&engine.store, &engine.loaded().roster, &agent, self.job.id(), self.now()).await
    }

    /// Returns the allowance of the attempt for the agent's program: the dollars that its budgets leave now. Returns
    /// `None` if no budget in dollars applies.
    pub(super) async fn allowance(&self) -> Option<Budget> {
        let limits = self.limits_and_spending().await?;
        let loaded = self.engine.loaded();
        let ledger = match self.engine.store.spending(&loaded.roster, self.now()).await {
            Ok(ledger) => ledger,
            Err(error) => {
                // The attempt is still stopped once it exceeds its budget.
                warn!(job = %self.job.id(), "cannot read the spending, so the allowance of the attempt is not \
                                             known: {error}");
                cowhand_core::budget::SpendingLedger::default()
            }
        };
        let (agent_spending, _) = ledger.agents.get(self.job.agent()).copied().unwrap_or_default();
        let microdollars =
            limits.allowance_microdollars(self.spent_before(), &agent_spending, &ledger.fleet)?;
        #[expect(clippy::cast_precision_loss, reason = "exact up to nine billion dollars")]
        let per_job_usd = Some(microdollars as f64 / 1e6);
        Some(Budget { per_job_usd, ..Budget::default() })
    }

    /// Returns the budgets that apply, with the spending of the person whose message caused the job.
    async fn limits_and_spending(&self) -> Option<SpendLimits> {
        let read = async {
            Ok::<_, cowhand_store::StoreError>(match self.limits_with_person().await? {
                Some(limits) => {
                    Some(self.engine.store.spending_of_person(self.job.agent().clone(), limits).await?)
                }
                None => None,
            })
        };
        read.await.unwrap_or_else(|error| {
            warn!(job = %self.job.id(), "cannot read the spending of the sender of the message: {error}");
            self.limits()
        })
    }

    fn spent_before(&self) -> Amount {
        self.job.usage().map(Amount::of).unwrap_or_default()
    }

    /// Returns the retry policy. A job that has used up its own budget is not tried again.
    pub(super) fn retry_after(&self, settlement: &Settlement, rules: &Rules) -> Retry {
        let reservation = Reservation { amount: Amount { microdollars: u64::MAX, tokens: 0 } };
        let assumed = budget::assume(settlement.usage.clone(), settlement.silent, reservation);
        let spent = self.spent_before().plus(assumed.as_ref().map(Amount::of).unwrap_or_default());
        let no_spending = Spending::default();
        let is_over =
            self.limits().is_some_and(|limits| limits.used_up(spent, &no_spending, &no_spending).is_some());
        if is_over { Retry::default() } else { rules.of_attempt.retry.clone() }
    }

    /// Returns the outcome of a job that the daemon stopped for its budget, or whose program stopped by itself at the
    /// limit that cowhand passed to the program.
    pub(super) fn budget_outcome(&self, breach: &Breach, usage: Option<JobUsage>) -> Outcome {
        let loaded = self.engine.loaded();
        let message = match breach {
            Breach::Over(over) => {
                format!("stopped: {}", over.sentence(self.job.agent(), loaded.roster.zone()))
            }
            Breach::Unpriced => {
                let usage = self.with_price(usage.unwrap_or_default());
                let model = budget::unpriced(&usage).unwrap_or("its model");
                budget::unpriced_sentence(self.job.agent(), model)
            }
        };
        let error = JobError { kind: ErrorKind::Budget, message };
        Outcome::Failed { reason: FailReason::Error, error, summary: None }
    }
}
