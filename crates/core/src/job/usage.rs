//! What a job cost.

use std::collections::BTreeMap;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// Tokens by model, and what the runtime says about turns and money; some runtimes know neither.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize, JsonSchema)]
pub struct JobUsage {
    #[serde(default)]
    pub per_model: BTreeMap<String, ModelUsage>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub num_turns: Option<u64>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub total_cost_usd: Option<f64>,
}

impl JobUsage {
    /// What another attempt of the same job cost, too.
    pub fn add(&mut self, more: &Self) {
        for (model, more) in &more.per_model {
            let total = self.per_model.entry(model.clone()).or_default();
            total.input_tokens = total.input_tokens.saturating_add(more.input_tokens);
            total.output_tokens = total.output_tokens.saturating_add(more.output_tokens);
            total.cache_creation_input_tokens =
                total.cache_creation_input_tokens.saturating_add(more.cache_creation_input_tokens);
            total.cache_read_input_tokens =
                total.cache_read_input_tokens.saturating_add(more.cache_read_input_tokens);
        }
        // None only if neither knows.
        if let Some(turns) = more.num_turns {
            self.num_turns = Some(self.num_turns.unwrap_or_default().saturating_add(turns));
        }
        if let Some(cost) = more.total_cost_usd {
            self.total_cost_usd = Some(self.total_cost_usd.unwrap_or_default() + cost);
        }
    }

    /// What came after `before`, of figures that go on from one run to the next. Models that were not used since are
    /// not in it; turns are counted anew by each run.
    #[must_use]
    pub fn since(mut self, before: &Self) -> Self {
        for (model, before) in &before.per_model {
            let Some(used) = self.per_model.get_mut(model) else { continue };
            used.input_tokens = used.input_tokens.saturating_sub(before.input_tokens);
            used.output_tokens = used.output_tokens.saturating_sub(before.output_tokens);
            used.cache_creation_input_tokens =
                used.cache_creation_input_tokens.saturating_sub(before.cache_creation_input_tokens);
            used.cache_read_input_tokens =
                used.cache_read_input_tokens.saturating_sub(before.cache_read_input_tokens);
            if *used == ModelUsage::default() {
                self.per_model.remove(model);
            }
        }
        let spent = before.total_cost_usd.unwrap_or_default();
        self.total_cost_usd = self.total_cost_usd.map(|cost| (cost - spent).max(0.0));
        self
    }
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize, JsonSchema)]
#[serde(default)]
pub struct ModelUsage {
    /// Fresh ones; those of the cache are counted beside them.
    pub input_tokens: u64,
    pub output_tokens: u64,
    pub cache_creation_input_tokens: u64,
    pub cache_read_input_tokens: u64,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn attempts_add_up_model_by_model() {
        let usage = |json: &str| serde_json::from_str::<JobUsage>(json).unwrap();
        let mut total =
            usage(r#"{"per_model":{"a":{"input_tokens":1,"output_tokens":2}},"total_cost_usd":0.5}"#);
        total.add(&usage(r#"{"per_model":{"a":{"input_tokens":10},"b":{"output_tokens":5}},"num_turns":3}"#));
        total.add(&usage(r#"{"total_cost_usd":0.25}"#));
        assert_eq!((total.num_turns, total.total_cost_usd), (Some(3), Some(0.75)));
        assert_eq!((total.per_model["a"].input_tokens, total.per_model["a"].output_tokens), (11, 2));
        assert_eq!(total.per_model["b"].output_tokens, 5);
    }

    #[test]
    fn figures_that_go_on_become_those_of_one_run() {
        let usage = |json: &str| serde_json::from_str::<JobUsage>(json).unwrap();
        let before =
            usage(r#"{"per_model":{"a":{"input_tokens":10},"b":{"output_tokens":5}},"total_cost_usd":0.5}"#);
        let after = usage(
            r#"{"per_model":{"a":{"input_tokens":12,"output_tokens":1},"b":{"output_tokens":5}},"num_turns":1,"total_cost_usd":0.75}"#,
        );
        let run = after.since(&before);
        assert_eq!(run.per_model.keys().collect::<Vec<_>>(), ["a"]);
        assert_eq!((run.per_model["a"].input_tokens, run.per_model["a"].output_tokens), (2, 1));
        assert_eq!((run.num_turns, run.total_cost_usd), (Some(1), Some(0.25)));
        // One that began anew all the same.
        let anew = usage(r#"{"per_model":{"a":{"input_tokens":3}},"total_cost_usd":0.1}"#).since(&before);
        assert_eq!((anew.per_model.len(), anew.total_cost_usd), (0, Some(0.0)));
    }
}
