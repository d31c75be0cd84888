//! Hooks: the actions after the end of a job. The modules `shell`, `webhook` and `chat` run them. `daemon/hooks`
//! decides when they run.

mod chat;
pub mod metadata;
pub(crate) mod request;
mod shell;
pub(crate) mod webhook;

use std::sync::Arc;
use std::time::Duration;

use cowhand_core::cut::cut;
use cowhand_core::hook::{HOOK_RETRIES, Hook, HookAction, HookContext, HookOutline, is_truthy};
use cowhand_core::job::Job;
use cowhand_core::roster::Agent;
use serde_json::Value;

use crate::context::Engine;
use crate::loaded::Loaded;
use crate::output;
use crate::secrets::{self, redactor_over};
use cowhand_run::redact::Redactor;
use cowhand_store::TakenHook;

/// Result of one try of a hook.
#[derive(Debug, PartialEq, Eq)]
pub enum HookResult {
    Done {
        output: Option<String>,
        note: Option<String>,
    },
    Failed {
        reason: String,
        output: Option<String>,
    },
    /// The hook may succeed later.
    Retry {
        reason: String,
        output: Option<String>,
        /// Pause that the receiver asks for.
        retry_after: Option<Duration>,
        /// Number of tries after which the hook has failed, including the first one.
        max_tries: u32,
    },
    Skipped {
        reason: String,
    },
}

impl HookResult {
    pub fn failed(reason: impl Into<String>) -> Self {
        Self::Failed { reason: reason.into(), output: None }
    }

    fn skipped(reason: impl Into<String>) -> Self {
        Self::Skipped { reason: reason.into() }
    }

    /// Masks secrets and cuts output, so that the result can be stored.
    fn redacted(self, redactor: &Redactor) -> Self {
        let hide = |text: String| redactor.redact(&text).into_owned();
        let short_output = |output: Option<String>| {
            let output = output.map(|output| cut(redactor.redact(&output).trim(), 0, HOOK_OUTPUT_CAP));
            output.filter(|output| !output.is_empty())
        };
        match self {
            Self::Done { output, note } => Self::Done { output: short_output(output), note: note.map(hide) },
            Self::Failed { reason, output } => {
                Self::Failed { reason: hide(reason), output: short_output(output) }
            }
            Self::Retry { reason, output, retry_after, max_tries } => {
                Self::Retry { reason: hide(reason), output: short_output(output), retry_after, max_tries }
            }
            Self::Skipped { reason } => Self::Skipped { reason: hide(reason) },
        }
    }
}

/// Longest stored output of a hook, in bytes.
const HOOK_OUTPUT_CAP: usize = 16 << 10;
/// Longest output of the job that is passed to a hook, in bytes.
const JOB_OUTPUT_CAP: usize = 1 << 20;

/// A hook with its job and its context.
struct HookCall<'a> {
    engine: &'a Engine,
    loaded: &'a Loaded,
    agent: &'a Agent,
    job: &'a Job,
    taken: &'a TakenHook,
    context: Value,
    redactor: &'a Redactor,
}

impl HookCall<'_> {
    /// Returns a variable of the environment or of `.env`.
    fn variable(&self, name: &str) -> Result<String, HookResult> {
        let found = self.loaded.sources.context().variable(name);
        found.ok_or_else(|| HookResult::failed(format!("the environment variable {name} is not set")))
    }
}

/// Tries the hook once, or follows the process that an earlier daemon started for it.
pub async fn run(engine: &Arc<Engine>, job: &Job, taken: &TakenHook) -> HookResult {
    let loaded = engine.loaded();
    let redactor = redactor_over(&loaded, loaded.roster.agent(&taken.agent));
    if let Some(begun) = shell::follow_begun(engine, taken).await {
        return begun.redacted(&redactor);
    }
    let agent = loaded.roster.agent(&taken.agent);
    let Some((agent, hook)) =
        agent.and_then(|agent| Some((agent, HookOutline::find(&agent.hooks, &taken.run)?)))
    else {
        return HookResult::skipped("it is no longer in the config");
    };
    let context = match context(engine, job, agent).await {
        Ok(context) => context,
        Err(error) => {
            let (reason, output) = (format!("cannot read the job of the hook: {error:#}"), None);
            return HookResult::Retry { reason, output, retry_after: None, max_tries: HOOK_RETRIES + 1 }
                .redacted(&redactor);
        }
    };
    if let Some(path) = hook.when.as_deref().filter(|path| !is_truthy(&context, path)) {
        return HookResult::skipped(format!("`when: {path}` is not true"));
    }
    let redactor = redactor.with_secrets(secrets::of_hook(hook));
    let call = HookCall { engine, loaded: &loaded, agent, job, taken, context, redactor: &redactor };
    call.run_action(hook).await.redacted(&redactor)
}

impl HookCall<'_> {
    async fn run_action(&self, hook: &Hook) -> HookResult {
        let result = match &hook.action {
            HookAction::Shell { command, timeout } => shell::run(self, command, *timeout).await,
            HookAction::Webhook { .. } => webhook::send(self, &hook.action).await,
            HookAction::Discord { channel_id, bot_token_env } => {
                chat::discord(self, channel_id, bot_token_env).await
            }
            HookAction::Slack { channel_id, bot_token_env } => {
                chat::slack(self, channel_id, bot_token_env).await
            }
        };
        result.unwrap_or_else(|failure| failure)
    }
}

async fn context(engine: &Engine, job: &Job, agent: &Agent) -> anyhow::Result<Value> {
    let metadata = engine.store.hook_metadata(job.id().clone()).await?;
    let output = output::result(&engine.home.state, job.id().clone()).await?;
    let output = output.map(|output| cut(&output, 0, JOB_OUTPUT_CAP));
    let context = HookContext::of(job, Some(&agent.display_name), output, metadata);
    let context = context.ok_or_else(|| anyhow::anyhow!("the job has not ended"))?;
    let report = engine.store.report_of(job.id().clone(), job.attempts()).await?;
    Ok(serde_json::to_value(HookContext { report, ..context })?)
}
