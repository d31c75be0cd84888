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
            self.per_model.entry(model.clone()).or_default().add(more);
        }
        // None only if neither knows.
        if let Some(turns) = more.num_turns {
            self.num_turns = Some(self.num_turns.unwrap_or_default().saturating_add(turns));
        }
        self.total_cost_usd = sum(self.total_cost_usd, more.total_cost_usd);
    }
}

/// None only if neither is known.
fn sum(one: Option<f64>, other: Option<f64>) -> Option<f64> {
    one.map_or(other, |one| Some(one + other.unwrap_or_default()))
}

#[derive(Debug, Clone, Copy, PartialEq, Default, Serialize, Deserialize, JsonSchema)]
#[serde(default)]
pub struct ModelUsage {
    /// Fresh ones; those of the cache are counted beside them.
    pub input_tokens: u64,
    pub output_tokens: u64,
    pub cache_creation_input_tokens: u64,
    pub cache_read_input_tokens: u64,
    /// Of the job's dollars, what went to this model.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub cost_usd: Option<f64>,
}

impl ModelUsage {
    pub fn add(&mut self, more: &Self) {
        for (total, more) in [
            (&mut self.input_tokens, more.input_tokens),
            (&mut self.output_tokens, more.output_tokens),
            (&mut self.cache_creation_input_tokens, more.cache_creation_input_tokens),
            (&mut self.cache_read_input_tokens, more.cache_read_input_tokens),
        ] {
            *total = total.saturating_add(more);
        }
        self.cost_usd = sum(self.cost_usd, more.cost_usd);
    }
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
}
