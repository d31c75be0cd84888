//! The outcome of an attempt, from the last messages of its program and the end of its processes.

use std::time::Duration;

use cowhand_core::attempt::{Settlement, UsageLimit};
use cowhand_core::budget::Breach;
use cowhand_core::duration;
use cowhand_core::job::{ErrorKind, FailReason, JobError, JobUsage, Outcome, Termination};
use cowhand_core::provider::OnLimit;
use cowhand_core::runtime::Runtime;
use jiff::Timestamp;
use serde_json::Value;

use super::AttemptTask;
use super::rules::Rules;
use super::stop::StopReason;
use crate::hook::metadata;
use cowhand_run::attempt::Attempt;
use cowhand_run::ending::{Ending, LeaseLoss};
use cowhand_run::runtime::Finish;
use cowhand_run::shortage;
use cowhand_run::tail::Tailer;
use cowhand_system::work_dir::WorkDirPath;

/// Time in which a disk has to report its free space. A disk that does not answer in time, such as a network disk whose
/// server is away, does not count as full.
const DISK_TIMEOUT: Duration = Duration::from_secs(5);

impl AttemptTask {
    /// Returns the settlement of an attempt whose processes have ended; `None` if this node may not settle the job.
    pub(super) async fn settlement(
        &mut self,
        rules: &Rules,
        finish: Finish,
        ending: &Ending,
        tail: &mut Tailer,
    ) -> Option<Settlement> {
        let attempt = self.attempt();
        let usage = finish.usage.clone().map(|usage| self.with_price(usage));
        // The program may have stopped by itself at the limit that cowhand passed to it, or an earlier daemon may have
        // stopped it for its budget.
        let is_budget = |error: &JobError| error.kind == ErrorKind::Budget;
        let is_budget_stop = matches!(&finish.outcome, Outcome::Failed { error, .. } if is_budget(error))
            || (ending.stopped.is_some() && ending.lease_loss.is_none() && self.stopped.is_none());
        // A program that was stopped for its budget may have reported more usage before its end.
        let was_over = matches!(self.stopped, Some(StopReason::OverBudget(Breach::Over(_))));
        if (is_budget_stop || was_over)
            && let Some(breach) = self.final_breach(usage.as_ref()).await
        {
            self.stopped = Some(StopReason::OverBudget(Breach::Over(breach)));
        }
        // If a command does not report its usage, nothing is known about its use of tools.
        let reports_tools = usage.is_some() || rules.agent.runtime() != Runtime::Command;
        let used_no_tool = reports_tools && tail.tool_calls() == 0;
        let metadata = self.metadata(rules, &attempt);
        let resets_at = finish.resets_at;
        let mut outcome = self.outcome(finish, ending)?;
        if self.stopped.is_none() {
            note_full_disk(&attempt, ending, &mut outcome).await;
        }
        let limit = self.limit(rules, &outcome, resets_at);
        let silent = self.reports_usage_at_end() && !matches!(outcome, Outcome::Completed { .. });
        let is_known = !ending.status.is_lost();
        Some(Settlement {
            outcome,
            usage,
            silent,
            metadata,
            breaker: None,
            used_no_tool,
            limit,
            ended_at: is_known.then_some(ending.at),
            ended_boot: ending.boot.filter(|_| is_known),
            agent_began_at: attempt.agent_began(),
            delivered: tail.confirmed_messages().to_vec(),
        })
    }

    /// Returns the outcome; `None` if this node may not settle the job.
    fn outcome(&self, finish: Finish, ending: &Ending) -> Option<Outcome> {
        let kill_note = ending.stopped.map_or("", |termination| match termination {
            Termination::Forced => " and had to be killed",
            Termination::Graceful | Termination::NotStarted | Termination::BetweenAttempts => "",
        });
        let too_long = |kind, message: String| {
            let error = JobError { kind, message: format!("{message}{kill_note}") };
            Some(Outcome::Failed { reason: FailReason::Timeout, error, summary: None })
        };
        match self.stopped {
            Some(StopReason::Abandoned) => None,
            Some(StopReason::TookTooLong(limit)) => {
                too_long(ErrorKind::Timeout, format!("it ran longer than {}", duration::exact(limit)))
            }
            Some(StopReason::SilentTooLong(limit)) => {
                too_long(ErrorKind::Idle, format!("it was silent for {}", duration::exact(limit)))
            }
            // The attempt had no time to end by itself, so its exit status has no meaning.
            Some(StopReason::OverBudget(breach)) => Some(self.budget_outcome(&breach, finish.usage)),
            // Without a keeper, nobody recorded the end that the daemon caused.
            Some(StopReason::Cancelled) if ending.status.is_lost() => {
                Some(Outcome::Cancelled { how: Termination::Forced })
            }
            None if !matches!(finish.outcome, Outcome::Completed { .. }) => {
                Some(ending.lease_loss.map_or(finish.outcome, lost_with_lease))
            }
            Some(StopReason::Cancelled) | None => Some(finish.outcome),
        }
    }

    /// Returns the usage limit that the attempt reached; `None` if it reached no limit. Also returns `None` if
    /// `on_limit` of the provider is not `park`, because the job then does not wait for the end of the limit.
    fn limit(&self, rules: &Rules, outcome: &Outcome, resets_at: Option<Timestamp>) -> Option<UsageLimit> {
        let provider = rules.agent.provider().filter(|_| outcome.is_limit())?;
        let loaded = self.engine.loaded();
        let on_limit =
            loaded.roster.providers.get(provider).map(|provider| provider.on_limit).unwrap_or_default();
        (on_limit == OnLimit::Park).then_some(UsageLimit { resets_at })
    }

    /// Reads the metadata that the agent left for its hooks, before the next agent can overwrite it.
    fn metadata(&self, rules: &Rules, attempt: &Attempt) -> Option<Value> {
        if rules.agent.hooks.is_empty() {
            return None;
        }
        let work_dir = attempt.start().ok().map(|start| start.directory);
        let work_dir = work_dir.unwrap_or_else(|| rules.agent.directory.clone());
        let (workspaces, loaded) = (self.engine.home.state.workspaces(), self.engine.loaded());
        let location = metadata::MetadataLocation {
            file: &rules.agent.metadata_file,
            work_dir: WorkDirPath {
                directory: &work_dir,
                workspaces: &workspaces,
                writable: &loaded.writable,
            },
        };
        let mut metadata = metadata::read(&location, self.job.id())?;
        self.redactor(rules).redact_value(&mut metadata);
        Some(metadata)
    }

    /// Adds dollars according to the prices of the config if the runtime reported none, and applies
    /// [`JobUsage::bounded`].
    pub(super) fn with_price(&self, mut usage: JobUsage) -> JobUsage {
        self.engine.loaded().roster.prices.fill_in(&mut usage);
        usage.bounded()
    }
}

/// Returns the outcome of an attempt that its keeper ended because the lease of the job was not renewed.
fn lost_with_lease(loss: LeaseLoss) -> Outcome {
    const WHY: &str = "lost: the node could not renew the lease of the job";
    Outcome::lost(match loss {
        LeaseLoss::AtDeadline => format!("{WHY}, so its agent was ended (`on_lost_lease: end`)"),
        LeaseLoss::AfterPause { paused_ms } => {
            let paused = Duration::from_millis(paused_ms);
            format!("{WHY}, and its agent was ended after a pause of {}", duration::exact(paused))
        }
    })
}

/// Adds a note to a failure if the disk of the attempt's directory or folder is full, because the agent may not report
/// that. A failure because of a usage limit gets no note. The keeper has checked the disk when the agent ended; an agent
/// without a keeper is checked now.
async fn note_full_disk(attempt: &Attempt, ending: &Ending, outcome: &mut Outcome) {
    if outcome.is_limit() {
        return;
    }
    let Outcome::Failed { error, .. } = outcome else { return };
    if let Some(full) = &ending.full_disk {
        error.message = format!("{}; {full}", error.message);
        return;
    }
    let check = attempt.on_blocking_thread(|attempt| {
        let directory = attempt.start().ok().map(|start| start.directory);
        shortage::full_disk(&[directory.as_deref().unwrap_or(attempt.folder()), attempt.folder()])
    });
    if let Ok(Some(full)) = tokio::time::timeout(DISK_TIMEOUT, check).await {
        error.message = format!("{}; {full}", error.message);
    }
}
