//! Redaction of views, of answers of the API and of the shown config: known secrets are masked in free text, and other
//! values are not changed.

use serde_json::Value;

use super::Redactor;
use super::advice::with_placeholders;

/// Keys of free text that people, agents and outside systems write, and keys of paths. Paths are masked because the
/// config can put the value of a variable into a path. Other values are ids, names of agents and schedules, times,
/// states and numbers, which a mask would make invalid. The name of a queue can be masked, because a request can also
/// name the queue by its masked name.
const FREE_TEXT_KEYS: [&str; 27] = [
    "certificate_problem",
    "prompt",
    "title",
    "description",
    "labels",
    "metadata",
    "url",
    "summary",
    "message",
    "last_error",
    "prepare_error",
    "adopt_note",
    "note",
    "why",
    "details",
    "detail",
    "payload",
    "confined",
    "result",
    "artifacts",
    "directory",
    "queue",
    "queues",
    "untaken",
    "preparing_by",
    "skip_note",
    "failed_attempt",
];

/// Keys whose sentences cowhand writes. A sentence may contain a command with an id or name that contains a secret.
const ADVICE_KEYS: [&str; 8] =
    ["message", "last_error", "prepare_error", "adopt_note", "note", "why", "detail", "skip_note"];

impl Redactor {
    /// Redacts a view or an answer that is written as JSON. Returns `None` if there is nothing to redact, or if the
    /// JSON is not valid.
    pub fn redact_json(&self, json: &[u8]) -> Option<Vec<u8>> {
        // With escapes, a secret can have many spellings.
        if !json.contains(&b'\\') && self.ranges(json).is_empty() {
            return None;
        }
        let mut view: Value = serde_json::from_slice(json).ok()?;
        self.redact_view(&mut view).then(|| view.to_string().into_bytes())
    }

    /// Masks every known secret in the free text of a view or an answer, and returns whether there was one.
    pub fn redact_view(&self, view: &mut Value) -> bool {
        match view {
            Value::Array(items) => {
                items.iter_mut().fold(false, |redacted, item| self.redact_view(item) | redacted)
            }
            Value::Object(fields) => fields.iter_mut().fold(false, |redacted, (key, field)| {
                let is_text =
                    FREE_TEXT_KEYS.contains(&key.as_str()) || (key == "reason" && is_sentence(field));
                let changed = if is_text { self.redact_words(field) } else { self.redact_view(field) };
                if changed && ADVICE_KEYS.contains(&key.as_str()) {
                    let advice = field.as_str().and_then(with_placeholders);
                    *field = advice.map_or_else(|| field.take(), Value::String);
                }
                changed | redacted
            }),
            Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) => false,
        }
    }

    /// Masks every known secret in the texts of a config. Keys, types, runtimes and the names of agents and sub-fleets
    /// stay, because other parts of the config and other pages refer to them.
    pub fn redact_config(&self, config: &mut Value) {
        match config {
            Value::String(_) => {
                self.redact_value(config);
            }
            Value::Array(items) => items.iter_mut().for_each(|item| self.redact_config(item)),
            Value::Object(fields) => {
                for (key, field) in fields {
                    match (key.as_str(), field) {
                        ("type" | "runtime", _) => {}
                        ("agents" | "fleets", Value::Array(items)) => {
                            for item in items {
                                self.redact_named(item);
                            }
                        }
                        (_, field) => self.redact_config(field),
                    }
                }
            }
            Value::Null | Value::Bool(_) | Value::Number(_) => {}
        }
    }

    /// Masks the texts of an agent or a sub-fleet, except its name.
    fn redact_named(&self, named: &mut Value) {
        let name = named.get("name").cloned();
        self.redact_config(named);
        if let Some((own, name)) = named.get_mut("name").zip(name) {
            *own = name;
        }
    }

    /// Redacts the value of a key of free text, and returns whether there was anything to redact. A number alone or in
    /// a list stays; a number inside an object is redacted.
    fn redact_words(&self, words: &mut Value) -> bool {
        match words {
            Value::Number(_) => false,
            Value::Array(items) => {
                items.iter_mut().fold(false, |redacted, item| self.redact_words(item) | redacted)
            }
            words => self.redact_value(words),
        }
    }
}

/// Returns true if a reason is free text and not one of the fixed words that programs use.
fn is_sentence(reason: &Value) -> bool {
    let is_of_word = |character: char| character.is_ascii_lowercase() || character == '_';
    reason.as_str().is_some_and(|reason| !reason.chars().all(is_of_word))
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn texts_are_masked_and_names_are_not() {
        let redactor = Redactor::of(vec!["canary".to_owned(), "1234567".to_owned()]);
        let item = json!({"id": "files-canary", "title": "A canary", "labels": ["canary", "x"],
            "metadata": {"own": {"canary": ["a canary"]}}, "url": "file:///canary.md"});
        let mut view = json!({"agent": "canary", "prompt": "Feed the canary.", "usage": {"total": 1_234_567},
            "error": {"kind": "exit", "message": "no canary"}, "result": 1_234_567, "items": [{"work_item": item}],
            "given_up": {"reason": "a canary"}, "skipped": {"reason": "canary"},
            "directory": "/work/canary", "queues": ["files /tasks-canary"]});
        assert!(redactor.redact_view(&mut view));
        let item = json!({"id": "files-canary", "title": "A ***", "labels": ["***", "x"],
            "metadata": {"own": {"***": ["a ***"]}}, "url": "file:///***.md"});
        let expected = json!({"agent": "canary", "prompt": "Feed the ***.", "usage": {"total": 1_234_567},
            "error": {"kind": "exit", "message": "no ***"}, "result": 1_234_567, "items": [{"work_item": item}],
            "given_up": {"reason": "a ***"}, "skipped": {"reason": "canary"},
            "directory": "/work/***", "queues": ["files /tasks-***"]});
        assert_eq!(view, expected);
        assert!(!redactor.redact_view(&mut view));
    }

    #[test]
    fn values_of_a_config_are_masked() {
        let redactor = Redactor::of(vec!["canary".to_owned(), "1234567".to_owned()]);
        let mut config = json!({"agents": [{"name": "canary", "command": ["feed", "a canary"], "limit": 1_234_567,
            "hooks": {"after_run": [{"type": "shell", "name": "feed the canary"}]},
            "schedules": {"canary": {"type": "manual", "prompt": "Feed the canary."}}}]});
        redactor.redact_config(&mut config);
        let expected = json!({"agents": [{"name": "canary", "command": ["feed", "a ***"], "limit": 1_234_567,
            "hooks": {"after_run": [{"type": "shell", "name": "feed the ***"}]},
            "schedules": {"canary": {"type": "manual", "prompt": "Feed the ***."}}}]});
        assert_eq!(config, expected);
    }

    #[test]
    fn commands_in_advice_contain_no_masked_words() {
        let redactor = Redactor::of(vec!["canary".to_owned()]);
        let command = "`cowhand work retry files-canary` tries it again";
        let mut view = json!({"message": command, "prompt": command, "why": ["a canary"]});
        assert!(redactor.redact_view(&mut view));
        let advice = view["message"].as_str().unwrap();
        assert!(advice.starts_with("`cowhand work retry ITEM` tries it again (the id contains"), "{advice}");
        assert_eq!(
            view["prompt"], "`cowhand work retry files-***` tries it again",
            "a prompt is not written by cowhand"
        );
        assert_eq!(view["why"], json!(["a ***"]));
    }
}
