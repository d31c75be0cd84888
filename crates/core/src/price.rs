//! Prices of tokens, for runtimes that do not report costs.

use std::collections::BTreeMap;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::job::{JobUsage, ModelUsage};

/// Prices by the name of the model: the name that the runtime reports, or the value of `model` of the agent.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize, JsonSchema)]
#[serde(transparent)]
pub struct Prices(BTreeMap<String, Price>);

/// Dollars for a million tokens.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Price {
    #[schemars(range(min = 0), extend("maximum" = 1_000_000))]
    pub input: f64,
    /// Input that the provider reads from its cache; unset means the price of other input.
    #[serde(default)]
    #[schemars(range(min = 0), extend("maximum" = 1_000_000))]
    pub cached_input: Option<f64>,
    /// Input that the provider writes to its cache; unset means a quarter more than other input, the usual price.
    #[serde(default)]
    #[schemars(range(min = 0), extend("maximum" = 1_000_000))]
    pub cache_write: Option<f64>,
    #[schemars(range(min = 0), extend("maximum" = 1_000_000))]
    pub output: f64,
}

impl Prices {
    pub fn of(prices: impl IntoIterator<Item = (String, Price)>) -> Self {
        Self(prices.into_iter().collect())
    }

    pub fn has(&self, model: &str) -> bool {
        self.0.contains_key(model)
    }

    /// Adds the cost of models without a reported cost, and the total cost. Changes nothing if the runtime has reported
    /// a total. If a used model has neither a reported cost nor a price, no total is set, because a partial total would
    /// be wrong.
    pub fn fill_in(&self, usage: &mut JobUsage) {
        if usage.total_cost_usd.is_some() || usage.per_model.is_empty() {
            return;
        }
        for (model, used) in &mut usage.per_model {
            used.cost_usd = used.cost_usd.or_else(|| Some(self.0.get(model)?.cost(used)));
        }
        let each: Option<Vec<f64>> = usage.per_model.values().map(|used| used.cost_usd).collect();
        usage.total_cost_usd = each.map(|each| each.iter().sum());
    }
}

impl Price {
    #[expect(clippy::cast_precision_loss, reason = "nobody uses so many tokens that it shows")]
    fn cost(&self, used: &ModelUsage) -> f64 {
        let millions = |tokens: u64| tokens as f64 / 1_000_000.0;
        millions(used.input_tokens) * self.input
            + millions(used.cache_creation_input_tokens) * self.cache_write.unwrap_or(self.input * 1.25)
            + millions(used.cache_read_input_tokens) * self.cached_input.unwrap_or(self.input)
            + millions(used.output_tokens) * self.output
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_cost_is_unknown_if_a_model_has_no_price() {
        let prices: Prices = serde_json::from_str(
            r#"{"big": {"input": 2, "cached_input": 0.5, "output": 10}, "small": {"input": 1, "output": 1}}"#,
        )
        .unwrap();
        let used = |cache| ModelUsage {
            input_tokens: 1_000_000,
            output_tokens: 500_000,
            cache_read_input_tokens: cache,
            ..ModelUsage::default()
        };
        for (models, expected) in [
            (vec![("big", used(2_000_000))], Some(8.0)),
            (vec![("small", used(2_000_000))], Some(3.5)),
            (vec![("big", used(0)), ("small", used(0))], Some(8.5)),
            (vec![("big", used(0)), ("new", used(0))], None),
            (vec![], None),
        ] {
            let per_model = models.into_iter().map(|(model, used)| (model.to_owned(), used)).collect();
            let mut usage = JobUsage { per_model, ..JobUsage::default() };
            prices.fill_in(&mut usage);
            assert_eq!(usage.total_cost_usd, expected, "{usage:?}");
        }
        let written = |cache_write: Option<f64>| {
            let price = Price { input: 2.0, cached_input: None, cache_write, output: 1.0 };
            price.cost(&ModelUsage { cache_creation_input_tokens: 1_000_000, ..ModelUsage::default() })
        };
        assert_eq!((written(None), written(Some(4.0)), written(Some(0.0))), (2.5, 4.0, 0.0));
        let usage = BTreeMap::from([("big".to_owned(), used(0))]);
        let mut usage = JobUsage { per_model: usage, total_cost_usd: Some(0.1), ..JobUsage::default() };
        prices.fill_in(&mut usage);
        assert_eq!(usage.total_cost_usd, Some(0.1));
    }
}
