//! Asks of running agents, decided by the permission rules or by a person.

use std::sync::Arc;

use cowhand_core::ask::{ASK_TIMEOUT, Ask, AskAnswer, AskId, AskState, AskSubject};
use cowhand_core::cut::cut;
use cowhand_core::id::JobId;
use cowhand_core::job::Job;
use cowhand_core::permission::{self, ToolVerdict};
use cowhand_core::roster::JobRestrictions;
use jiff::{SignedDuration, Timestamp};
use tracing::info;

use super::{Fleet, FleetError};
use crate::job_token;
use crate::secrets::{redactor, redactor_over};
use cowhand_run::redact::Redactor;
use cowhand_store::{AskAnswered, AskMade};
use cowhand_system::digest::sha256;

/// The immediate answer to an agent's ask.
#[derive(Debug, Clone, PartialEq)]
pub enum AskDecision {
    Allowed,
    Denied {
        message: String,
    },
    /// A person has to answer, or has answered already.
    Asked(Ask),
}

/// Prefix under which Claude Code knows the tools of cowhand's own MCP server. No other server can have this name.
const OWN_TOOLS: &str = "mcp__cowhand__";

/// Largest ask in bytes; no person reads more before an approval.
const MAX_ASK_SIZE: usize = 256 << 10;

/// Maximum length in bytes of a stored tool name. Real names are shorter; a longer name would only use space in the
/// tables.
const MAX_TOOL_NAME: usize = 200;

/// Maximum length in bytes of a stored rule. The rule is part of an index, and the index of PostgreSQL refuses long
/// texts.
const MAX_RULE: usize = 500;

impl Fleet {
    /// Returns the job of a token, if its attempt runs.
    pub async fn job_of_token(&self, token: &str) -> Result<Option<JobId>, FleetError> {
        Ok(job_token::job_of(&self.engine.home.job_key, self.store(), token).await?)
    }

    /// Decides an ask of an attempt. `key` is the attempt's own id of the ask: the same question with the same key is a
    /// repetition after a lost connection. An approval never applies to a different question.
    pub async fn ask(
        &self,
        job: &JobId,
        attempt: u32,
        key: String,
        subject: AskSubject,
    ) -> Result<AskDecision, FleetError> {
        let job = self.job(job).await?;
        let roster = self.roster();
        // The agent of a running job may have been removed from the config. Its job may still ask.
        if roster.agent(job.agent()).is_some_and(|agent| !agent.needs_job_channel()) {
            return Err(FleetError::MayNotAsk(job.agent().clone()));
        }
        if let AskSubject::Tool { tool, input } = &subject {
            match self.verdict(&job, tool, input) {
                ToolVerdict::Allow => return Ok(AskDecision::Allowed),
                ToolVerdict::Deny { rule } => return self.deny(&job, attempt, tool, rule).await,
                ToolVerdict::Ask => {}
            }
        }
        let key = sha256(format!("{key}\n{}", serde_json::to_string(&subject).unwrap_or_default()));
        let loaded = self.engine.loaded();
        let agent = loaded.roster.agent(job.agent());
        let subject = redacted_subject(subject, &self.redactor_of(&job));
        if serde_json::to_string(&subject).is_ok_and(|text| text.len() > MAX_ASK_SIZE) {
            let message = "the tool call is too large to show to a person, so nobody was asked".to_owned();
            return Ok(AskDecision::Denied { message });
        }
        let timeout = agent.map_or(ASK_TIMEOUT, |agent| agent.ask_timeout);
        let now = self.engine.clock.now();
        let expires_at = now.checked_add(timeout).unwrap_or(Timestamp::MAX);
        let result = self.store().make_ask(job.id().clone(), attempt, key, subject, expires_at, now).await?;
        match result {
            AskMade::Made(ask) => {
                self.engine.answer_waits.made(&ask.id, self.engine.clock.moment());
                Ok(AskDecision::Asked(ask))
            }
            AskMade::NotRunning => Err(FleetError::NoAttempt { job: job.id().clone(), attempt }),
            AskMade::TooMany => {
                let message = "this job has made too many asks".to_owned();
                Ok(AskDecision::Denied { message })
            }
        }
    }

    /// Denies the use of a tool and records the denial, so that a person can see what the agent tried.
    async fn deny(
        &self,
        job: &Job,
        attempt: u32,
        tool: &str,
        rule: String,
    ) -> Result<AskDecision, FleetError> {
        let message = format!("the rule {rule} of this fleet denies it; do not try it in another way");
        let tool = cut(&self.redactor_of(job).redact(tool), 0, MAX_TOOL_NAME);
        let rule = cut(&rule, 0, MAX_RULE);
        info!(job = %job.id(), %tool, %rule, "denied by a rule");
        let now = self.engine.clock.now();
        self.store().denied(job.id().clone(), attempt, tool, rule, now).await?;
        Ok(AskDecision::Denied { message })
    }

    /// Returns the redactor for the secrets of the fleet.
    pub fn redactor(&self) -> Arc<Redactor> {
        redactor(&self.engine.loaded())
    }

    /// Returns the redactor for text from a job's agent, which also masks the job token.
    pub fn redactor_of(&self, job: &Job) -> Redactor {
        let loaded = self.engine.loaded();
        let token = self.engine.home.job_key.token(job.id(), job.attempts());
        redactor_over(&loaded, loaded.roster.agent(job.agent())).with_secrets([token])
    }

    /// Applies the permission rules of the current config. If the job's agent was removed from the config, a person is
    /// asked. If only the job's schedule was removed, a person is asked too, unless a rule of the agent denies the use.
    fn verdict(&self, job: &Job, tool: &str, input: &serde_json::Value) -> ToolVerdict {
        let roster = self.roster();
        let Some(agent) = roster.agent(job.agent()) else { return ToolVerdict::Ask };
        let restrictions = agent.restrictions(job);
        let schedule_rules = restrictions.schedule().and_then(|schedule| schedule.permissions.as_deref());
        let verdict = permission::decide(agent.tools.permissions.as_ref(), schedule_rules, tool, input);
        // The removed schedule may have denied what the agent's rules allow.
        let verdict = if matches!(restrictions, JobRestrictions::Removed(_)) {
            verdict.max(ToolVerdict::Ask)
        } else {
            verdict
        };
        // Cowhand's own tools need no approval, because the agent uses them to ask.
        if verdict == ToolVerdict::Ask && tool.starts_with(OWN_TOOLS) { ToolVerdict::Allow } else { verdict }
    }

    /// Waits as [`Self::wait_for_ask`] does, for the agent that asked. This time does not count for the agent's
    /// timeouts.
    pub async fn wait_as_agent(&self, id: &AskId, timeout: SignedDuration) -> Result<Ask, FleetError> {
        // An ask that does not exist must not use memory.
        self.ask_by_id(id).await?;
        let _open = self.engine.answer_waits.begin(id.clone(), &self.engine.clock);
        self.wait_for_ask(id, timeout).await
    }

    /// Waits until the ask is no longer open, at most for `timeout`, and returns the ask.
    pub async fn wait_for_ask(&self, id: &AskId, timeout: SignedDuration) -> Result<Ask, FleetError> {
        let deadline = tokio::time::Instant::now() + timeout.unsigned_abs();
        loop {
            let seen = self.store().committed();
            let ask = self.ask_by_id(id).await?;
            let now = self.engine.clock.now();
            if ask.state != AskState::Open {
                return Ok(ask);
            }
            if !ask.is_open(now) {
                self.store().expire_asks(now).await?;
                continue;
            }
            let expiry = self.engine.clock.wait_until(Some(ask.expires_at));
            tokio::select! {
                () = self.store().changed(seen) => {}
                () = expiry => {}
                () = tokio::time::sleep_until(deadline) => return Ok(ask),
            }
        }
    }

    pub async fn ask_by_id(&self, id: &AskId) -> Result<Ask, FleetError> {
        self.store().ask(id.clone()).await?.ok_or_else(|| FleetError::NoAsk(id.clone()))
    }

    /// Returns the open asks, the oldest first.
    pub async fn open_asks(&self, limit: u32) -> Result<Vec<Ask>, FleetError> {
        self.store().expire_asks(self.engine.clock.now()).await?;
        Ok(self.store().open_asks(limit).await?)
    }

    pub async fn answer(&self, id: AskId, answer: AskAnswer) -> Result<Ask, FleetError> {
        let now = self.engine.clock.now();
        self.store().expire_asks(now).await?;
        match self.store().answer_ask(id.clone(), answer, now).await? {
            AskAnswered::Done(ask) => Ok(ask),
            AskAnswered::Refused(refused) => Err(FleetError::AskRefused(refused)),
            AskAnswered::NoAsk => Err(FleetError::NoAsk(id)),
        }
    }
}

pub(crate) fn redacted_subject(subject: AskSubject, redactor: &Redactor) -> AskSubject {
    match subject {
        AskSubject::Tool { tool, mut input } => {
            redactor.redact_value(&mut input);
            AskSubject::Tool { tool: redactor.redact(&tool).into_owned(), input }
        }
        AskSubject::Question { question, options } => {
            let redact = |text: String| redactor.redact(&text).into_owned();
            let options = options.into_iter().map(redact).collect();
            AskSubject::Question { question: redact(question), options }
        }
    }
}
