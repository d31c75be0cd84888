//! Usage of an ACP agent, from all updates and answers in which agents state it.
//!
//! Agents state the cost of the whole session (`usage_update`), so the cost before the prompt is subtracted. If a
//! session is resumed and its agent did not state the earlier cost, the new cost is unknown. A turn is the work on one
//! prompt. Agents state the tokens of a turn in the answer to the prompt, or with the chunks of each answer of the
//! model. The Gemini CLI also writes the tokens to its session record; the larger of both sums counts. As long as an
//! agent has stated no tokens, they are estimated from the size of the model's context in each step. A step is the part
//! of a turn up to the next tool result.

use std::collections::BTreeMap;

use cowhand_core::budget;
use cowhand_core::job::{JobUsage, ModelUsage};
use serde::{Deserialize, Serialize};
use serde_json::Value;

use super::super::MAX_MODELS;
use super::super::gemini::ChatRecord;
use super::super::json::{Fields, short_text};

#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize)]
#[serde(default)]
pub(super) struct AcpUsage {
    /// Requested model, or the model that the agent states.
    model: Option<String>,
    per_model: BTreeMap<String, ModelUsage>,
    /// Last cost of the session that the agent stated, in dollars.
    cost: Option<f64>,
    /// Set if the session began before this attempt.
    #[serde(rename = "goes_on")]
    resumed: bool,
    /// Set when the prompt was sent. Context sizes that were stated earlier do not count.
    prompted: bool,
    /// Cost of the session when the first prompt was sent, if known.
    #[serde(rename = "before")]
    cost_before: Option<f64>,
    /// Session record, if the agent is the Gemini CLI.
    chat: Option<ChatRecord>,
    steps: Steps,
}

/// Estimate of the tokens that were sent, from the size of the context in tokens: the whole context is sent again in
/// each step. The number of cached tokens among them is unknown.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(default)]
struct Steps {
    /// Sum of the largest sizes of the ended steps.
    done: u64,
    /// Largest size of the current step.
    #[serde(rename = "this")]
    current: u64,
}

impl AcpUsage {
    pub(super) fn new(model: Option<String>, resumed: bool) -> Self {
        Self { model, resumed, ..Self::default() }
    }

    pub(super) fn with_record(self, chat: Option<ChatRecord>) -> Self {
        Self { chat, ..self }
    }

    /// Reads new lines of the session record, if the agent is the Gemini CLI.
    pub(super) fn read_record(&mut self, session: Option<&str>) {
        if let Some(chat) = &mut self.chat {
            chat.read_new(session);
        }
    }

    /// Records that a prompt is sent.
    pub(super) fn begin(&mut self) {
        let cost_before = self.cost.or((!self.resumed).then_some(0.0));
        self.cost_before = self.cost_before.or(cost_before);
        self.prompted = true;
    }

    pub(super) fn set_model(&mut self, session: &Fields) {
        if self.model.is_some() {
            return;
        }
        let models = session.get("models").and_then(|models| models.get("currentModelId")?.as_str());
        let options = session.get("configOptions").and_then(Value::as_array).into_iter().flatten();
        let mut option = options.filter(|option| option["category"] == "model" || option["id"] == "model");
        let model = models.or_else(|| option.find_map(|option| option["currentValue"].as_str()));
        self.model = model.filter(|model| model.len() <= 200).map(str::to_owned);
    }

    pub(super) fn add_update(&mut self, update: &Fields) {
        let kind = short_text(update, "sessionUpdate");
        if kind == Some("tool_call_update")
            && matches!(short_text(update, "status"), Some("completed" | "failed"))
        {
            self.steps.done = self.steps.done.saturating_add(std::mem::take(&mut self.steps.current));
        }
        if kind == Some("usage_update") {
            let used = update.get("used").and_then(Value::as_u64).filter(|_| self.prompted);
            self.steps.current = self.steps.current.max(used.unwrap_or_default());
            let cost = update.get("cost").filter(|cost| cost["currency"] == "USD");
            self.cost = cost.and_then(|cost| cost["amount"].as_f64()).or(self.cost);
        }
        if let Some(usage) = update.get("_meta").and_then(|meta| meta.get("usage")) {
            self.add_tokens(None, &tokens(usage));
        }
    }

    /// Reads the usage in the answer to the prompt, at the end of a turn.
    pub(super) fn answered(&mut self, result: &Fields) {
        let quota = result.get("_meta").and_then(|meta| meta.get("quota"));
        let models = quota.and_then(|quota| quota["model_usage"].as_array()).into_iter().flatten();
        let models: Vec<(&str, &Value)> = models
            .filter_map(|each| Some((each["model"].as_str()?, each.get("token_count")?)))
            .take(MAX_MODELS)
            .collect();
        let usage = result.get("usage").filter(|usage| usage.is_object());
        match (models.as_slice(), usage) {
            ([], None) => {}
            ([], Some(usage)) => self.add_tokens(None, &tokens(usage)),
            ([(model, _)], Some(usage)) => self.add_tokens(Some(model), &tokens(usage)),
            (models, _) => {
                for (model, usage) in models {
                    self.add_tokens(Some(model), &tokens(usage));
                }
            }
        }
    }

    fn add_tokens(&mut self, model: Option<&str>, used: &ModelUsage) {
        let known = self.model.as_deref().unwrap_or("default");
        let model = model.filter(|model| model.len() <= 200).unwrap_or(known).to_owned();
        if self.per_model.len() < MAX_MODELS || self.per_model.contains_key(&model) {
            self.per_model.entry(model).or_default().add(used);
        }
    }

    /// Returns the cost since the prompt; `None` if it is unknown. If the session's cost is less than before the
    /// prompt, the agent has begun to count from zero again.
    fn cost_since(&self) -> Option<f64> {
        let cost_before = self.cost_before?;
        self.cost.map(|cost| if cost < cost_before { cost } else { cost - cost_before })
    }

    fn tokens_per_model(&self) -> BTreeMap<String, ModelUsage> {
        let sum = |models: &BTreeMap<String, ModelUsage>| {
            models.values().map(budget::tokens).fold(0, u64::saturating_add)
        };
        let recorded = self.chat.as_ref().and_then(ChatRecord::usage).map(|usage| usage.per_model);
        // Only the Gemini CLI has a record. Only its record includes cached tokens, and only its answer to the prompt
        // includes additional requests of the program. The larger sum is used.
        if let Some(recorded) = recorded.filter(|recorded| sum(recorded) >= sum(&self.per_model)) {
            return recorded;
        }
        let sent = self.steps.done.saturating_add(self.steps.current);
        if !self.per_model.is_empty() || sent == 0 {
            return self.per_model.clone();
        }
        // The estimate counts as cached tokens, which have the lowest price, so that no agent is stopped for costs that
        // it may not have caused.
        let used = ModelUsage { cache_read_input_tokens: sent, ..ModelUsage::default() };
        BTreeMap::from([(self.model.clone().unwrap_or_else(|| "default".to_owned()), used)])
    }

    pub(super) fn usage(&self) -> Option<JobUsage> {
        // An agent reports 0 for a model whose price it does not know.
        let total_cost_usd = self.cost_since().filter(|cost| *cost > 0.0);
        let mut per_model = self.tokens_per_model();
        if let (1, Some(used)) = (per_model.len(), per_model.values_mut().next()) {
            used.cost_usd = total_cost_usd;
        }
        let any = total_cost_usd.is_some() || !per_model.is_empty();
        any.then_some(JobUsage { per_model, total_cost_usd, ..JobUsage::default() })
    }
}

/// Reads token counts. Agents count differently: input may include cached tokens, and output may include thinking. If a
/// total is stated, it shows which sum is right.
fn tokens(usage: &Value) -> ModelUsage {
    let count = |keys: &[&str]| keys.iter().find_map(|key| usage.get(*key)?.as_u64()).unwrap_or(0);
    let input = count(&["inputTokens", "input_tokens"]);
    let output = count(&["outputTokens", "output_tokens"]);
    let thought = count(&["thoughtTokens", "reasoningOutputTokens"]);
    let read = count(&["cachedReadTokens", "cachedInputTokens"]);
    let written = count(&["cachedWriteTokens", "cacheWriteInputTokens"]);
    let total = count(&["totalTokens", "total_tokens"]);
    let cached = read.saturating_add(written);
    let sums = |cached: u64, thought: u64| {
        input.saturating_add(output).saturating_add(cached).saturating_add(thought) == total
    };
    let (input, output) = if sums(cached, 0) {
        (input, output)
    } else if sums(0, 0) {
        (input.saturating_sub(cached), output)
    } else if sums(0, thought) {
        (input.saturating_sub(cached), output.saturating_add(thought))
    } else if sums(cached, thought) {
        (input, output.saturating_add(thought))
    } else {
        (input, output)
    };
    ModelUsage {
        input_tokens: input,
        output_tokens: output,
        cache_creation_input_tokens: written,
        cache_read_input_tokens: read,
        cost_usd: None,
    }
}

/// Returns the HTTP status in a message, in one of the forms that known agents use. The statuses of rate limits, 429
/// and 529, are also recognised as bare numbers.
pub(super) fn status_in(message: &str) -> Option<u64> {
    const STATUS_PREFIXES: [&str; 6] =
        ["status ", "status: ", "status code ", "\"code\":", "\"statusCode\":", "API Error: "];
    let number = |after: &str| {
        let start = message.find(after)? + after.len();
        let digits = message[start..].trim_start();
        digits.get(..3)?.parse().ok().filter(|status| (400..600).contains(status))
    };
    let mut words = message.split(|letter: char| !letter.is_ascii_alphanumeric());
    let bare = || words.find(|word| matches!(*word, "429" | "529"))?.parse().ok();
    STATUS_PREFIXES.into_iter().find_map(number).or_else(bare)
}
