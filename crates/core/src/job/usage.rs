//! The usage of a job: tokens, turns and costs.

use std::collections::BTreeMap;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::cut::cut;

/// Maximum number of tokens of each kind that count for one attempt. Agents report these numbers, and their sums must
/// not overflow.
pub const MAX_TOKENS: u64 = 1_000_000_000_000;
/// Maximum dollars that count for one attempt.
pub const MAX_USD: f64 = 1_000_000.0;

/// Maximum length of the name of a model, in bytes. Agents report the name, and it is part of an index of the store,
/// which refuses long texts.
const MAX_MODEL_NAME: usize = 200;
/// Maximum number of models of one attempt. The usage of further models is summed under [`OTHER_MODELS`].
const MAX_MODELS: usize = 100;
const OTHER_MODELS: &str = "(other models)";

/// Tokens by model, and the turns and costs that the runtime reports. Some runtimes report neither.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize, JsonSchema)]
pub struct JobUsage {
    #[serde(default)]
    pub per_model: BTreeMap<String, ModelUsage>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub num_turns: Option<u64>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub total_cost_usd: Option<f64>,
    /// Assumed dollars, in addition to the reported ones.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub assumed_usd: Option<f64>,
}

impl JobUsage {
    /// Limits the usage of one attempt: the sums of its tokens and dollars over all models, its turns, the number of
    /// its models and the length of their names. All usage that is shown, summed or stored has passed through this
    /// function.
    #[must_use]
    pub fn bounded(mut self) -> Self {
        let mut named = BTreeMap::<String, ModelUsage>::new();
        for (name, usage) in self.per_model {
            let name = cut(&name, 0, MAX_MODEL_NAME);
            let kept = named.keys().filter(|name| *name != OTHER_MODELS).count();
            let name =
                if kept >= MAX_MODELS && !named.contains_key(&name) { OTHER_MODELS.to_owned() } else { name };
            named.entry(name).or_default().add(&usage);
        }
        self.per_model = named;
        let (mut left, mut dollars_left) = ([MAX_TOKENS; 4], MAX_USD);
        for model in self.per_model.values_mut() {
            for (tokens, left) in model.kinds().into_iter().zip(&mut left) {
                *tokens = (*tokens).min(*left);
                *left -= *tokens;
            }
            if let Some(dollars) = &mut model.cost_usd {
                *dollars = dollars.clamp(0.0, dollars_left);
                dollars_left -= *dollars;
            }
        }
        self.num_turns = self.num_turns.map(|turns| turns.min(MAX_TOKENS));
        for dollars in [&mut self.total_cost_usd, &mut self.assumed_usd].into_iter().flatten() {
            *dollars = dollars.clamp(0.0, MAX_USD);
        }
        self
    }

    /// Adds the usage of another attempt of the same job.
    pub fn add(&mut self, more: &Self) {
        for (model, more) in &more.per_model {
            self.per_model.entry(model.clone()).or_default().add(more);
        }
        // The number of turns stays none only if both numbers are none.
        if let Some(turns) = more.num_turns {
            self.num_turns = Some(self.num_turns.unwrap_or_default().saturating_add(turns));
        }
        self.total_cost_usd = sum(self.total_cost_usd, more.total_cost_usd);
        self.assumed_usd = sum(self.assumed_usd, more.assumed_usd);
    }

    /// Checks whether the cost of at least one model, or of all together, was reported.
    pub fn has_reported_cost(&self) -> bool {
        self.total_cost_usd.is_some() || self.per_model.values().any(|model| model.cost_usd.is_some())
    }

    /// Returns the usage since `before`, for runtimes that continue their counters from one attempt to the next. Models
    /// that were not used since `before` are left out. Turns are not subtracted, because each attempt counts its turns
    /// from zero.
    #[must_use]
    pub fn since(mut self, before: &Self) -> Self {
        for (model, before) in &before.per_model {
            let Some(used) = self.per_model.get_mut(model) else { continue };
            used.take_off(before);
            if used.is_unused() {
                self.per_model.remove(model);
            }
        }
        self.total_cost_usd = rest(self.total_cost_usd, before.total_cost_usd);
        self
    }
}

/// Adds two amounts. An unknown amount counts as 0; the result is none if both are unknown.
fn sum(one: Option<f64>, other: Option<f64>) -> Option<f64> {
    one.map_or(other, |one| Some(one + other.unwrap_or_default()))
}

fn rest(whole: Option<f64>, before: Option<f64>) -> Option<f64> {
    whole.map(|whole| (whole - before.unwrap_or_default()).max(0.0))
}

#[derive(Debug, Clone, Copy, PartialEq, Default, Serialize, Deserialize, JsonSchema)]
#[serde(default)]
pub struct ModelUsage {
    /// Input tokens without those of the cache, which are counted separately.
    pub input_tokens: u64,
    pub output_tokens: u64,
    pub cache_creation_input_tokens: u64,
    pub cache_read_input_tokens: u64,
    /// Cost of the tokens of this model.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub cost_usd: Option<f64>,
}

impl ModelUsage {
    /// Returns the number of input and output tokens, without the tokens of the cache.
    pub const fn fresh_tokens(&self) -> u64 {
        self.input_tokens.saturating_add(self.output_tokens)
    }

    const fn kinds(&mut self) -> [&mut u64; 4] {
        [
            &mut self.input_tokens,
            &mut self.output_tokens,
            &mut self.cache_creation_input_tokens,
            &mut self.cache_read_input_tokens,
        ]
    }

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

    fn take_off(&mut self, before: &Self) {
        for (total, before) in [
            (&mut self.input_tokens, before.input_tokens),
            (&mut self.output_tokens, before.output_tokens),
            (&mut self.cache_creation_input_tokens, before.cache_creation_input_tokens),
            (&mut self.cache_read_input_tokens, before.cache_read_input_tokens),
        ] {
            *total = total.saturating_sub(before);
        }
        self.cost_usd = rest(self.cost_usd, before.cost_usd);
    }

    /// Checks whether the model used no token.
    pub const fn is_unused(&self) -> bool {
        self.input_tokens == 0
            && self.output_tokens == 0
            && self.cache_creation_input_tokens == 0
            && self.cache_read_input_tokens == 0
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn invalid_and_huge_usage_is_bounded() {
        let absurd = ModelUsage {
            input_tokens: u64::MAX,
            output_tokens: u64::MAX,
            cache_creation_input_tokens: 5,
            cache_read_input_tokens: u64::MAX,
            cost_usd: Some(1e300),
        };
        let per_model = BTreeMap::from([("a".to_owned(), absurd), ("b".to_owned(), absurd)]);
        let usage = JobUsage {
            per_model,
            num_turns: Some(u64::MAX),
            total_cost_usd: Some(f64::INFINITY),
            assumed_usd: Some(-1.0),
        };
        let bounded = usage.bounded();
        assert_eq!((bounded.total_cost_usd, bounded.assumed_usd), (Some(MAX_USD), Some(0.0)));
        let mut all = ModelUsage::default();
        bounded.per_model.values().for_each(|model| all.add(model));
        assert_eq!((all.input_tokens, all.cache_creation_input_tokens), (MAX_TOKENS, 10));
        assert_eq!((all.cost_usd, all.fresh_tokens()), (Some(MAX_USD), 2 * MAX_TOKENS));
        assert_eq!(absurd.fresh_tokens(), u64::MAX);
        assert_eq!(bounded.clone().bounded(), bounded);
    }

    #[test]
    fn names_of_models_are_bounded() {
        let used = ModelUsage { input_tokens: 1, ..ModelUsage::default() };
        let many = (0..300).map(|number| (format!("model-{number}"), used));
        let per_model = many.chain([("x".repeat(100_000), used), ("x".repeat(100_001), used)]).collect();
        let bounded = JobUsage { per_model, ..JobUsage::default() }.bounded();
        assert_eq!(bounded.per_model.len(), MAX_MODELS + 1);
        assert!(bounded.per_model.keys().all(|name| name.len() <= MAX_MODEL_NAME));
        let tokens: u64 = bounded.per_model.values().map(|model| model.input_tokens).sum();
        assert_eq!(tokens, 302, "all tokens are counted");
        assert_eq!(bounded.clone().bounded(), bounded);
    }

    #[test]
    fn usage_of_attempts_is_added_for_each_model() {
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
    fn usage_of_a_run_is_the_difference_of_two_totals() {
        let usage = |json: &str| serde_json::from_str::<JobUsage>(json).unwrap();
        let before = usage(
            r#"{"per_model":{"a":{"input_tokens":10,"cost_usd":0.5},"b":{"output_tokens":5}},"total_cost_usd":0.5}"#,
        );
        let after = usage(
            r#"{"per_model":{"a":{"input_tokens":12,"output_tokens":1,"cost_usd":0.75},"b":{"output_tokens":5}},"num_turns":1,"total_cost_usd":0.75}"#,
        );
        let run = after.since(&before);
        assert_eq!(run.per_model.keys().collect::<Vec<_>>(), ["a"]);
        assert_eq!((run.per_model["a"].input_tokens, run.per_model["a"].output_tokens), (2, 1));
        assert_eq!(run.per_model["a"].cost_usd, Some(0.25));
        assert_eq!((run.num_turns, run.total_cost_usd), (Some(1), Some(0.25)));
        // A runtime whose counters began at zero again.
        let anew = usage(r#"{"per_model":{"a":{"input_tokens":3}},"total_cost_usd":0.1}"#).since(&before);
        assert_eq!((anew.per_model.len(), anew.total_cost_usd), (0, Some(0.0)));
    }
}
