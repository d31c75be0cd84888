//! The line in which an agent states the result of its work. Most runtimes write a result line; a command may write
//! one.

use std::collections::BTreeMap;

use cowhand_core::cut::cut;
use cowhand_core::job::{ErrorKind, FailReason, JobError, JobUsage, ModelUsage, Outcome};
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};

use super::json::{count, number};
use super::output_record::{MAX_SUMMARY_BYTES, mentions_timeout, one_line};

#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub(super) struct ResultLine {
    subtype: Option<String>,
    is_error: bool,
    /// HTTP status of the answer of the model's server, if a request to the server failed.
    api_error_status: Option<u64>,
    text: Option<String>,
    pub(super) usage: JobUsage,
}

impl ResultLine {
    pub(super) fn read(fields: &Map<String, Value>) -> Self {
        let text = |key: &str| fields.get(key).and_then(Value::as_str).map(str::to_owned);
        let errors = fields.get("errors").and_then(Value::as_array).map(|errors| {
            errors.iter().map(|error| error.as_str().map_or_else(|| error.to_string(), str::to_owned))
        });
        let errors =
            errors.map(|errors| errors.collect::<Vec<_>>().join("; ")).filter(|text| !text.is_empty());
        Self {
            subtype: text("subtype").map(|word| one_line(&word)),
            is_error: fields.get("is_error").and_then(Value::as_bool).unwrap_or(false),
            api_error_status: fields.get("api_error_status").and_then(Value::as_u64),
            text: text("result").or(errors).map(|text| cut(&text, 0, MAX_SUMMARY_BYTES)),
            usage: JobUsage {
                per_model: fields.get("modelUsage").map(per_model).unwrap_or_default(),
                num_turns: fields.get("num_turns").and_then(number),
                total_cost_usd: fields.get("total_cost_usd").and_then(Value::as_f64),
                assumed_usd: None,
            },
        }
    }

    /// Creates a result for a runtime with another format. `error` is the message and, if the model's server failed,
    /// its status.
    pub(super) fn new(error: Option<(String, Option<u64>)>, usage: JobUsage) -> Self {
        let is_error = error.is_some();
        let (text, api_error_status) = error.map_or((None, None), |(text, status)| (Some(text), status));
        let text = text.map(|text| cut(&text, 0, MAX_SUMMARY_BYTES));
        Self { subtype: None, is_error, api_error_status, text, usage }
    }

    /// Sets the status of the model's server, unless the result itself states one.
    pub(super) fn set_status(&mut self, status: Option<u64>) {
        self.api_error_status = self.api_error_status.or(status);
    }

    pub(super) fn failed(&self) -> bool {
        self.is_error || self.subtype().starts_with("error")
    }

    pub(super) fn summary(&self) -> Option<String> {
        self.text.clone().filter(|text| !self.failed() && !text.trim().is_empty())
    }

    /// Returns the message of a failure for people.
    pub(super) fn message(&self) -> String {
        match (&self.text, self.api_error_status) {
            (Some(text), _) if !text.trim().is_empty() => one_line(text),
            (_, Some(status)) => format!("the model's server answered {status}"),
            _ => format!("the agent reported {} without a reason", self.code()),
        }
    }

    pub(super) fn code(&self) -> String {
        match self.api_error_status {
            _ if self.subtype().starts_with("error") => self.subtype().to_owned(),
            Some(status) => status.to_string(),
            None => "is_error".to_owned(),
        }
    }

    pub(super) fn outcome(&self) -> Outcome {
        if !self.failed() {
            return Outcome::Completed { summary: self.summary() };
        }
        let (reason, kind) = match self.subtype() {
            "error_max_turns" => (FailReason::MaxTurns, ErrorKind::Reported),
            "error_max_budget_usd" => (FailReason::Error, ErrorKind::Budget),
            _ if self.rate_limited() => (FailReason::Error, ErrorKind::RateLimited),
            _ if self.timed_out() => (FailReason::Timeout, ErrorKind::Reported),
            _ => (FailReason::Error, ErrorKind::Reported),
        };
        Outcome::Failed { reason, error: JobError { kind, message: self.message() }, summary: None }
    }

    fn subtype(&self) -> &str {
        self.subtype.as_deref().unwrap_or_default()
    }

    fn timed_out(&self) -> bool {
        matches!(self.api_error_status, Some(408 | 504)) || self.text.as_deref().is_some_and(mentions_timeout)
    }

    /// Returns true if the error is a rate limit. When the limit of a subscription is reached, there is no status, only
    /// a text.
    fn rate_limited(&self) -> bool {
        const RATE_LIMIT_WORDS: [&str; 9] = [
            "overloaded",
            "too many requests",
            "resource_exhausted",
            "usage limit",
            "session limit",
            "weekly limit",
            "rate limit",
            "rate_limit",
            "hit your limit",
        ];
        let text = self.text.as_deref().unwrap_or_default().to_lowercase();
        matches!(self.api_error_status, Some(429 | 529))
            || RATE_LIMIT_WORDS.iter().any(|words| text.contains(words))
    }
}

pub(super) fn per_model(models: &Value) -> BTreeMap<String, ModelUsage> {
    let models = models.as_object().into_iter().flatten().filter(|(model, _)| model.len() <= 200);
    // The number of models is limited, because their usage is part of every checkpoint.
    models
        .take(100)
        .map(|(model, counts)| {
            let count = |key: &str| count(counts, key);
            let usage = ModelUsage {
                input_tokens: count("inputTokens"),
                output_tokens: count("outputTokens"),
                cache_creation_input_tokens: count("cacheCreationInputTokens"),
                cache_read_input_tokens: count("cacheReadInputTokens"),
                cost_usd: counts.get("costUSD").and_then(Value::as_f64),
            };
            (model.clone(), usage)
        })
        .collect()
}
