//! Check of a tree against the schema, in one pass: finds all errors, and converts correct values to typed JSON.
//!
//! This module enforces the schema that editors read. Rules that a schema cannot express are in `resolve`, `checks` and
//! `reference`.

use std::fmt::Write as _;

use serde_json::{Map as JsonMap, Value as Json};

use super::allowed_keys::{AllowedKeys, is_open, kinds_of, tag_key_of, variants_of};
use super::hint;
use super::node::{Entry, Location, Node, Scalar, Sources, Value};
use super::problem::{Problem, Problems, Severity};
use super::scalar::untyped;
use super::schema::{ConfigSchema, SCHEMA, aliases_of};
use super::secret;
use super::suggest::{closest, did_you_mean, one_of};

/// Options for the interpretation of a tree.
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct CheckOptions<'a> {
    /// True for a herdctl fleet: unknown keys that herdctl ignores are warnings and not errors.
    pub herdctl: bool,
    /// True for an agent's own file.
    pub agent_file: bool,
    /// True if a merge may still add missing keys.
    pub partial: bool,
    /// Path of the tree itself, for messages.
    pub below: &'a str,
    /// Files of the tree, to which its paths (`x-path`) are relative. None leaves paths as they are written.
    pub sources: Option<&'a Sources>,
}

pub(super) struct Checker<'a> {
    pub(super) schema: &'static ConfigSchema,
    problems: &'a mut Problems,
    pub(super) reading: CheckOptions<'a>,
    path: Vec<Step>,
    /// Number of steps in the path that mark everything below as secret.
    secret: usize,
    secrets: Vec<String>,
    /// Whether the value belongs to a key that holds an address.
    is_address: bool,
    addresses: Vec<String>,
    wrong: Vec<String>,
}

enum Step {
    Key {
        written: String,
        /// Name of the key in the schema. `written` may be an alias.
        name: String,
    },
    Index(usize),
}

/// A checked tree: typed, with each alias of a key replaced by the name of the key in the schema.
#[derive(Debug, Default)]
pub(super) struct Checked {
    /// The value, ready for the shapes if there was no error.
    pub value: Json,
    /// JSON pointers to secrets.
    pub secrets: Vec<String>,
    /// JSON pointers to secrets that are addresses with a password in an unusual place.
    pub addresses: Vec<String>,
    /// JSON pointers to values that are wrong or contain a variable without a value. They can be missing or incomplete
    /// in `value`.
    pub wrong: Vec<String>,
}

/// Checks a tree. Also renames aliases and marks short forms in the tree, so that layers which use different names or
/// forms can be merged.
pub(super) fn check(
    node: &mut Node,
    schema: &'static Json,
    reading: CheckOptions<'_>,
    problems: &mut Problems,
) -> Checked {
    let mut checker = Checker {
        schema: &SCHEMA,
        problems,
        reading,
        path: Vec::new(),
        secret: 0,
        secrets: Vec::new(),
        is_address: false,
        addresses: Vec::new(),
        wrong: Vec::new(),
    };
    let value = checker.value(node, node.at, schema).unwrap_or_else(|| Json::Object(JsonMap::new()));
    let Checker { secrets, addresses, wrong, .. } = checker;
    Checked { value, secrets, addresses, wrong }
}

impl Checker<'_> {
    /// Checks a value. `blame` is the location to report for an error in a list or map as a whole, for example the
    /// location of its key.
    fn value(&mut self, node: &mut Node, blame: Location, schema: &'static Json) -> Option<Json> {
        let schema = self.schema.follow(schema);
        if node.is_null() {
            return None;
        }
        let variants = variants_of(schema);
        if let (false, [only]) = (schema.get("properties").is_some(), variants.as_slice()) {
            return self.value(node, blame, only);
        }
        if let (Value::Scalar(scalar), Some(key)) = (&mut node.value, schema.get("x-short-for")) {
            scalar.short_for = key.as_str();
        }
        if matches!(&node.value, Value::Scalar(scalar) if scalar.undefined) {
            self.wrong.push(self.pointer());
            return None;
        }
        if is_open(schema) {
            return Some(self.open(node));
        }
        let kinds = kinds_of(schema);
        if kinds.is_empty() {
            return self.union(node, blame, &variants);
        }
        match &mut node.value {
            Value::Scalar(scalar) => {
                self.note_secret(scalar, node.at);
                self.scalar(scalar, node.at, schema, &kinds)
            }
            Value::List(items) if kinds.contains(&"array") => Some(self.list(items, blame, schema)),
            Value::Map(_) if kinds.contains(&"object") => self.object(node, blame, schema, &variants),
            Value::List(_) | Value::Map(_) => self.wrong_collection(node, blame, &kinds),
        }
    }

    /// Checks a union, such as text or a map, or a path or a list: the kind of the node decides.
    fn union(&mut self, node: &mut Node, blame: Location, variants: &[&'static Json]) -> Option<Json> {
        let fits = |kind: &&str| match node.value {
            Value::Scalar(_) => !matches!(*kind, "array" | "object"),
            Value::List(_) => *kind == "array",
            Value::Map(_) => *kind == "object",
        };
        let kinds: Vec<&str> =
            variants.iter().flat_map(|schema| kinds_of(self.schema.follow(schema))).collect();
        let fitting = variants.iter().find(|schema| kinds_of(self.schema.follow(schema)).iter().any(fits));
        match (fitting, &node.value) {
            (Some(schema), _) => self.value(node, blame, schema),
            (None, Value::Scalar(scalar)) => {
                let found = self.quote(scalar);
                let help = self.hint(scalar, &kinds);
                self.mismatch(node.at, &kinds, &found, help)
            }
            (None, Value::List(_) | Value::Map(_)) => self.wrong_collection(node, blame, &kinds),
        }
    }

    /// Reports a list or a map where another kind is expected.
    fn wrong_collection(&mut self, node: &Node, blame: Location, kinds: &[&str]) -> Option<Json> {
        let path = self.names();
        let (found, help) = match node.entries() {
            Some(entries) if kinds.contains(&"array") => {
                ("a map", hint::of_map_for_list(&path, entries.keys().next().map(String::as_str)))
            }
            Some(_) => ("a map", None),
            None if kinds.contains(&"object") => ("a list", hint::of_list_for_map(&path)),
            None => ("a list", None),
        };
        self.mismatch(blame, kinds, found, help)
    }

    fn list(&mut self, items: &mut [Node], blame: Location, schema: &'static Json) -> Json {
        let least = schema.get("minItems").and_then(Json::as_u64).unwrap_or_default();
        if u64::try_from(items.len()).is_ok_and(|count| count < least) {
            self.error(blame, format!("this list has {} items; the minimum is {least}", items.len()), None);
        }
        let item_schema = schema.get("items").unwrap_or(&Json::Bool(true));
        let mut list = Vec::with_capacity(items.len());
        for (index, item) in items.iter_mut().enumerate() {
            self.path.push(Step::Index(index));
            let at = item.at;
            if item.is_null() {
                self.error(at, "this item of the list is empty".to_owned(), None);
            }
            list.extend(self.value(item, at, item_schema));
            self.path.pop();
        }
        Json::Array(list)
    }

    fn object(
        &mut self,
        node: &mut Node,
        blame: Location,
        schema: &'static Json,
        variants: &[&'static Json],
    ) -> Option<Json> {
        let allowed = self.allowed_keys(node, blame, schema, variants);
        let Value::Map(map) = &mut node.value else { return None };
        let mut out = JsonMap::new();
        for (written, mut entry) in std::mem::take(&mut map.entries) {
            let Some((name, property)) = allowed.find(&written) else {
                self.unknown_key(&written, &entry, schema, &allowed);
                map.entries.insert(written, entry);
                continue;
            };
            if allowed.wrong_tag_key == Some(name) {
                map.entries.insert(written, entry);
                continue;
            }
            self.path.push(Step::Key { written: written.clone(), name: name.to_owned() });
            let value = self.property(&written, &mut entry, property);
            if !map.entries.contains_key(name) || self.report_second_name(&written, name, entry.key_at) {
                out.extend(value.map(|value| (name.to_owned(), value)));
                map.entries.insert(name.to_owned(), entry);
            }
            self.path.pop();
        }
        if !self.reading.partial {
            self.missing_keys(node, blame, &allowed);
        }
        Some(Json::Object(out))
    }

    /// Reports a key that is given under two of its names. In a herdctl fleet this is only a warning, because in
    /// herdctl `cron` overrides `expression`. Returns true if the second value counts, that is, if it is written under
    /// an alias.
    fn report_second_name(&mut self, written: &str, name: &str, at: Location) -> bool {
        let severity = if self.reading.herdctl { Severity::Warning } else { Severity::Error };
        let message = format!("`{written}` is another name of a key that is already given");
        self.report(severity, at, message, Some("keep one of the two".to_owned()));
        written != name
    }

    /// Checks the value of a key, and reports a key that is pending, without effect, renamed or not allowed in this
    /// file.
    fn property(&mut self, written: &str, entry: &mut Entry, property: &'static Json) -> Option<Json> {
        if !entry.node.is_null() {
            self.remarks(written, entry.key_at, property);
        }
        let (outer, flag) = (self.reading, |keyword| property.get(keyword).is_some());
        if flag("x-secret") && !matches!(entry.node.value, Value::Scalar(_)) {
            self.problems.secret_at(entry.key_at);
        }
        self.reading.partial |= flag("x-partial");
        self.secret += usize::from(flag("x-secret"));
        let is_uri = property.get("format").is_some_and(|format| format == "uri");
        let outer_is_address = std::mem::replace(&mut self.is_address, is_uri || flag("x-address"));
        let blame = if matches!(entry.node.value, Value::Scalar(_)) { entry.node.at } else { entry.key_at };
        let value = self.value(&mut entry.node, blame, property);
        self.is_address = outer_is_address;
        self.secret -= usize::from(flag("x-secret"));
        self.reading = outer;
        value
    }

    fn remarks(&mut self, written: &str, at: Location, property: &Json) {
        let word = |keyword| property.get(keyword).and_then(Json::as_str);
        if let Some(pending) = word("x-pending") {
            self.warning(at, format!("`{written}` is accepted, but {pending}"), None);
        }
        if let Some(instead) = word("x-herdctl") {
            self.warning(at, format!("`{written}` has no effect here: {instead}"), None);
        }
        let old_name = aliases_of(property).any(|(alias, old)| old && alias == written);
        if let (true, Some(Step::Key { name, .. })) = (old_name, self.path.last()) {
            self.warning(at, format!("`{written}` is the old name of `{name}`"), None);
        }
        if self.reading.agent_file && property.get("x-fleet-only").is_some() {
            let help = "set it in the fleet file, under `defaults` or the agent's `overrides`";
            self.error(
                at,
                format!("`{written}` is not allowed in an agent's own file"),
                Some(help.to_owned()),
            );
        }
    }

    /// Returns the properties that apply here: the properties of the object and of the variant that `type` names.
    fn allowed_keys(
        &mut self,
        node: &Node,
        blame: Location,
        schema: &'static Json,
        variants: &[&'static Json],
    ) -> AllowedKeys {
        let own = schema.get("properties").is_some().then_some(schema);
        let more = schema.get("additionalProperties").filter(|more| more.as_bool() != Some(false));
        let mut allowed =
            AllowedKeys { applicable: own.into_iter().collect(), more, sure: true, ..AllowedKeys::default() };
        let Some(tag) = tag_key_of(variants) else { return allowed };
        let word_of =
            |variant: &'static Json| variant["properties"][tag]["const"].as_str().unwrap_or_default();
        let words: Vec<&str> = variants.iter().map(|variant| word_of(variant)).collect();
        let written = node.get(tag).and_then(Node::text);
        let chosen = written.and_then(|text| variants.iter().find(|variant| word_of(variant) == text));
        if let Some(variant) = chosen {
            allowed.applicable.push(variant);
            allowed.variants = variants.to_vec();
            allowed.tag_value = Some(word_of(variant));
            return allowed;
        }
        // If the variant is not known, allow the keys of all variants, so that a key is reported only if no variant has
        // it.
        allowed.applicable.extend(variants);
        allowed.sure = false;
        if let Some(Node { value: Value::Scalar(scalar), at }) = node.get(tag).filter(|_| written.is_some()) {
            allowed.wrong_tag_key = Some(tag);
            self.path.push(Step::key(tag));
            self.not_one_of(scalar, *at, &words);
            self.path.pop();
        } else if !self.reading.partial && node.get(tag).is_none() {
            self.error(blame, format!("`{tag}` is missing"), Some(format!("it is one of {}", one_of(words))));
        }
        allowed
    }

    fn missing_keys(&mut self, node: &Node, blame: Location, allowed: &AllowedKeys) {
        if !allowed.sure {
            return;
        }
        let required =
            allowed.applicable.iter().filter_map(|schema| schema.get("required")?.as_array()).flatten();
        for name in required.filter_map(Json::as_str) {
            if node.get(name).is_none() {
                let other = allowed.find(name).and_then(|(_, property)| aliases_of(property).next());
                let shown = other.filter(|(_, old)| !old).map_or(name, |(alias, _)| alias);
                let of = allowed.tag_value.map(|tag| format!(" (for `type: {tag}`)")).unwrap_or_default();
                self.error(blame, format!("`{shown}` is missing{of}"), None);
            }
        }
    }

    fn unknown_key(&mut self, key: &str, entry: &Entry, schema: &Json, allowed: &AllowedKeys) {
        let strict = schema.get("x-strict").is_some();
        let severity = if self.reading.herdctl && !strict { Severity::Warning } else { Severity::Error };
        let hint = hint::of_key(&self.names(), key).map(str::to_owned);
        self.path.push(Step::key(key));
        let elsewhere = allowed.types_with(key);
        let (message, help) = match allowed.tag_value {
            Some(tag) if !elsewhere.is_empty() => {
                let types: Vec<String> = elsewhere.iter().map(|word| format!("type: {word}")).collect();
                let help = format!("it belongs to {}", one_of(types.iter().map(String::as_str)));
                (format!("`{key}` does not belong to `type: {tag}`"), Some(help))
            }
            _ => {
                let close = || did_you_mean(key, allowed.names());
                (format!("unknown key `{key}`"), hint.or_else(close).or_else(|| allowed.list()))
            }
        };
        // A value that belongs to a secret key is also secret under a misspelt name.
        let meant = closest(key, allowed.names()).and_then(|name| allowed.find(name));
        let meant_secret = meant.is_some_and(|(_, property)| property.get("x-secret").is_some());
        if meant_secret || secret::looks_secret(key) {
            self.problems.secret_at(entry.key_at);
            self.problems.secret_at(entry.node.at);
        }
        self.report(severity, entry.key_at, message, help);
        self.path.pop();
        if severity == Severity::Error && !self.is_agent_or_schedule() {
            self.wrong.push(self.pointer());
        }
    }

    /// Checks whether this section is an agent or a schedule. If an agent or a schedule has an unknown key, its other
    /// keys are still used, so that their errors are found too.
    fn is_agent_or_schedule(&self) -> bool {
        matches!(*self.names().as_slice(), [] | ["schedules", _])
    }

    /// Converts a value without a schema; its variables may still be secret.
    fn open(&mut self, node: &Node) -> Json {
        match &node.value {
            Value::Scalar(scalar) => {
                self.note_secret(scalar, node.at);
                untyped(scalar)
            }
            Value::List(items) => {
                let mut list = Vec::new();
                for (index, item) in items.iter().enumerate() {
                    self.path.push(Step::Index(index));
                    list.push(self.open(item));
                    self.path.pop();
                }
                Json::Array(list)
            }
            Value::Map(map) => {
                let mut object = JsonMap::new();
                for (key, entry) in &map.entries {
                    self.path.push(Step::key(key));
                    object.insert(key.clone(), self.open(&entry.node));
                    self.path.pop();
                }
                Json::Object(object)
            }
        }
    }

    pub(super) fn mismatch(
        &mut self,
        at: Location,
        kinds: &[&str],
        found: &str,
        help: Option<String>,
    ) -> Option<Json> {
        let mut expected = Vec::new();
        for kind in kinds {
            let words = match *kind {
                "object" => "a map",
                "array" => "a list",
                "integer" => "a whole number",
                "number" => "a number",
                "boolean" => "true or false",
                _ => "text",
            };
            if !expected.contains(&words) {
                expected.push(words);
            }
        }
        self.error(at, format!("expected {}, found {found}", expected.join(" or ")), help);
        None
    }

    /// Returns a hint for values that are often written in a wrong form.
    pub(super) fn hint(&self, scalar: &Scalar, kinds: &[&str]) -> Option<String> {
        if self.is_secret(scalar) {
            return None;
        }
        let path = self.names();
        let key = path.last().filter(|_| kinds.contains(&"array"));
        let as_list = || key.map(|key| hint::of_text_for_list(key, &scalar.text));
        hint::of_value(&path, &scalar.text).or_else(as_list)
    }

    /// Returns the keys from the root of the tree to here, with their names in the schema.
    fn names(&self) -> Vec<&str> {
        let keys = self.path.iter().filter_map(|step| match step {
            Step::Key { name, .. } => Some(name.as_str()),
            Step::Index(_) => None,
        });
        keys.collect()
    }

    fn note_secret(&mut self, scalar: &Scalar, at: Location) {
        if self.is_secret(scalar) {
            self.secrets.push(self.pointer());
        }
        if self.is_address && secret::may_hold_unmasked_password(&scalar.text) {
            self.addresses.push(self.pointer());
        }
        // The value of a variable is not in the file, so the line can be shown.
        let is_on_line = self.secret > 0
            || secret::may_hold_password(&scalar.text)
            || (self.is_address && secret::address_may_hold_password(&scalar.text));
        if is_on_line && !scalar.interpolated {
            self.problems.secret_at(at);
        }
    }

    pub(super) fn is_secret(&self, scalar: &Scalar) -> bool {
        self.secret > 0
            || secret::holds_secret(scalar)
            || (self.is_address && secret::may_hold_unmasked_password(&scalar.text))
    }

    /// Quotes the value for a message, masked if it is secret.
    pub(super) fn quote(&self, scalar: &Scalar) -> String {
        const MAX_QUOTED: usize = 60;
        if self.is_secret(scalar) {
            return format!("`{}`", secret::MASK);
        }
        let text = secret::without_user(&scalar.text);
        let text = text.as_deref().unwrap_or(&scalar.text);
        let line = text.lines().next().unwrap_or_default();
        let cut: String = line.chars().take(MAX_QUOTED).collect();
        let more = if cut.len() < text.len() { "…" } else { "" };
        format!("`{cut}{more}`")
    }

    pub(super) fn error(&mut self, at: Location, message: String, help: Option<String>) {
        self.wrong.push(self.pointer());
        self.report(Severity::Error, at, message, help);
    }

    fn warning(&mut self, at: Location, message: String, help: Option<String>) {
        self.report(Severity::Warning, at, message, help);
    }

    fn report(&mut self, severity: Severity, at: Location, message: String, help: Option<String>) {
        let mut key = self.reading.below.to_owned();
        for step in &self.path {
            _ = match step {
                Step::Key { written, .. } if key.is_empty() => write!(key, "{written}"),
                Step::Key { written, .. } => write!(key, ".{written}"),
                Step::Index(index) => write!(key, "[{index}]"),
            };
        }
        self.problems.add(Problem { severity, ..Problem::error(at, message).key(key).help(help) });
    }

    fn pointer(&self) -> String {
        let mut pointer = String::new();
        for step in &self.path {
            _ = match step {
                Step::Key { name, .. } => write!(pointer, "/{}", name.replace('~', "~0").replace('/', "~1")),
                Step::Index(index) => write!(pointer, "/{index}"),
            };
        }
        pointer
    }
}

impl Step {
    fn key(name: &str) -> Self {
        Self::Key { written: name.to_owned(), name: name.to_owned() }
    }
}
