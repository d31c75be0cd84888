//! Check of a tree against the schema, in one pass: finds all errors, and converts correct values to typed JSON.
//!
//! This module enforces the schema that editors read. Rules that a schema cannot express are in `resolve`, `checks` and
//! `reference`.

use std::fmt::Write as _;

use serde_json::{Map as JsonMap, Value as Json};

use super::hint;
use super::node::{Location, Node, Scalar, Sources, Value};
use super::problem::{Problem, Problems, Severity};
use super::scalar::untyped;
use super::schema_node::{SchemaNode, SchemaRef};
use super::secret;

/// Options for the interpretation of a tree.
#[derive(Debug, Clone, Copy, Default)]
#[expect(clippy::struct_excessive_bools, reason = "each is an option of its own")]
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
    /// True if only the problems are needed. The typed value is then not made.
    pub only_problems: bool,
}

pub(super) struct Checker<'a> {
    pub(super) problems: &'a mut Problems,
    pub(super) reading: CheckOptions<'a>,
    pub(super) path: Vec<PathStep>,
    /// Number of steps in the path that mark everything below as secret.
    pub(super) secret: usize,
    secrets: Vec<String>,
    /// True if the value belongs to a key that holds an address.
    pub(super) is_address: bool,
    addresses: Vec<String>,
    pub(super) wrong: Vec<String>,
}

pub(super) enum PathStep {
    Key {
        written: String,
        /// Name of the key in the schema, if `written` is an alias.
        name: Option<&'static str>,
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
    schema: SchemaRef,
    reading: CheckOptions<'_>,
    problems: &mut Problems,
) -> Checked {
    let mut checker = Checker {
        problems,
        reading,
        path: Vec::new(),
        secret: 0,
        secrets: Vec::new(),
        is_address: false,
        addresses: Vec::new(),
        wrong: Vec::new(),
    };
    let value = checker.value(node, node.at, schema.get()).unwrap_or_else(|| Json::Object(JsonMap::new()));
    let Checker { secrets, addresses, wrong, .. } = checker;
    Checked { value, secrets, addresses, wrong }
}

impl Checker<'_> {
    /// Checks a value. `blame` is the location to report for an error in a list or map as a whole, for example the
    /// location of its key.
    pub(super) fn value(
        &mut self,
        node: &mut Node,
        blame: Location,
        schema: &'static SchemaNode,
    ) -> Option<Json> {
        if node.is_null() {
            return None;
        }
        if let (Value::Scalar(scalar), Some(key)) = (&mut node.value, schema.short_for) {
            scalar.short_for = Some(key);
        }
        if matches!(&node.value, Value::Scalar(scalar) if scalar.undefined) {
            self.wrong.push(self.pointer());
            return None;
        }
        if schema.is_open {
            return Some(self.open(node));
        }
        let kinds = schema.kinds.as_slice();
        if kinds.is_empty() {
            return self.union(node, blame, schema);
        }
        match &mut node.value {
            Value::Scalar(scalar) => {
                self.note_secret(scalar, node.at);
                self.scalar(scalar, node.at, schema)
            }
            Value::List(items) if kinds.contains(&"array") => Some(self.list(items, blame, schema)),
            Value::Map(_) if kinds.contains(&"object") => self.object(node, blame, schema),
            Value::List(_) | Value::Map(_) => self.wrong_collection(node, blame, kinds),
        }
    }

    /// Checks a union, such as text or a map, or a path or a list: the kind of the node decides.
    fn union(&mut self, node: &mut Node, blame: Location, schema: &'static SchemaNode) -> Option<Json> {
        let fits = |kind: &&str| match node.value {
            Value::Scalar(_) => !matches!(*kind, "array" | "object"),
            Value::List(_) => *kind == "array",
            Value::Map(_) => *kind == "object",
        };
        if let Some((fitting, _)) = schema.union.iter().find(|(_, kinds)| kinds.iter().any(fits)) {
            return self.value(node, blame, fitting.get());
        }
        let kinds: Vec<&str> = schema.union.iter().flat_map(|(_, kinds)| kinds.iter().copied()).collect();
        match &node.value {
            Value::Scalar(scalar) => {
                let found = self.quote(scalar);
                let help = self.hint(scalar, &kinds);
                self.mismatch(node.at, &kinds, &found, help)
            }
            Value::List(_) | Value::Map(_) => self.wrong_collection(node, blame, &kinds),
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

    fn list(&mut self, items: &mut [Node], blame: Location, schema: &'static SchemaNode) -> Json {
        let least = schema.min_items;
        if u64::try_from(items.len()).is_ok_and(|count| count < least) {
            self.error(blame, format!("this list has {} items; the minimum is {least}", items.len()), None);
        }
        let item_schema = schema.items.get();
        let mut list = Vec::with_capacity(if self.reading.only_problems { 0 } else { items.len() });
        for (index, item) in items.iter_mut().enumerate() {
            self.path.push(PathStep::Index(index));
            let at = item.at;
            if item.is_null() {
                self.error(at, "this item of the list is empty".to_owned(), None);
            }
            list.extend(self.value(item, at, item_schema).filter(|_| !self.reading.only_problems));
            self.path.pop();
        }
        Json::Array(list)
    }

    /// Converts a value without a schema; its variables may still be secret.
    fn open(&mut self, node: &Node) -> Json {
        match &node.value {
            Value::Scalar(scalar) => {
                self.note_secret(scalar, node.at);
                if self.reading.only_problems { Json::Null } else { untyped(scalar) }
            }
            Value::List(items) => {
                let mut list = Vec::new();
                for (index, item) in items.iter().enumerate() {
                    self.path.push(PathStep::Index(index));
                    list.push(self.open(item));
                    self.path.pop();
                }
                Json::Array(list)
            }
            Value::Map(map) => {
                let mut object = JsonMap::new();
                for (key, entry) in &map.entries {
                    self.path.push(PathStep::key(key));
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
    pub(super) fn names(&self) -> Vec<&str> {
        let keys = self.path.iter().filter_map(|step| match step {
            PathStep::Key { written, name } => Some(name.unwrap_or(written.as_str())),
            PathStep::Index(_) => None,
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

    /// Treats a value as a secret, so that neither it nor its line is shown.
    pub(super) fn hide(&mut self, scalar: &Scalar, at: Location) {
        self.secrets.push(self.pointer());
        if !scalar.interpolated {
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

    pub(super) fn warning(&mut self, at: Location, message: String, help: Option<String>) {
        self.report(Severity::Warning, at, message, help);
    }

    pub(super) fn report(&mut self, severity: Severity, at: Location, message: String, help: Option<String>) {
        let mut key = self.reading.below.to_owned();
        for step in &self.path {
            _ = match step {
                PathStep::Key { written, .. } if key.is_empty() => write!(key, "{written}"),
                PathStep::Key { written, .. } => write!(key, ".{written}"),
                PathStep::Index(index) => write!(key, "[{index}]"),
            };
        }
        self.problems.add(Problem { severity, ..Problem::error(at, message).key(key).help(help) });
    }

    pub(super) fn pointer(&self) -> String {
        let mut pointer = String::new();
        for step in &self.path {
            _ = match step {
                PathStep::Key { written, name } => {
                    let name = name.unwrap_or(written.as_str());
                    write!(pointer, "/{}", name.replace('~', "~0").replace('/', "~1"))
                }
                PathStep::Index(index) => write!(pointer, "/{index}"),
            };
        }
        pointer
    }
}

impl PathStep {
    pub(super) fn key(name: &str) -> Self {
        Self::Key { written: name.to_owned(), name: None }
    }
}
