//! Check of a map against the schema: its keys, and the values of its keys.

use serde_json::{Map as JsonMap, Value as Json};

use super::allowed_keys::{AllowedKeys, FoundKey, ObjectRules, Tag};
use super::hint;
use super::node::{Entry, Location, Map, Node, Value};
use super::problem::Severity;
use super::schema_check::{Checker, PathStep};
use super::schema_node::{Property, SchemaNode};
use super::secret;
use super::suggest::{closest, did_you_mean, one_of};

/// The keys that a map may have, according to the value of its tag.
#[derive(Clone, Copy)]
struct Choice {
    keys: &'static AllowedKeys,
    tag: Option<&'static Tag>,
    /// The key of the tag, if its value names no variant. This error is already reported.
    wrong_tag_key: Option<&'static str>,
    /// False if the tag chose no variant. `keys` then contains the keys of all variants.
    is_sure: bool,
}

impl Checker<'_> {
    pub(super) fn object(
        &mut self,
        node: &mut Node,
        blame: Location,
        schema: &'static SchemaNode,
    ) -> Option<Json> {
        let choice = self.choose(node, blame, &schema.object);
        let Value::Map(map) = &mut node.value else { return None };
        let mut out = JsonMap::new();
        // Names of keys that are written as an alias.
        let mut aliased = Vec::new();
        for index in 0..map.entries.len() {
            let Some((written, entry)) = map.entries.get_index_mut(index) else { break };
            let Some(FoundKey { name, property }) = choice.keys.find(written) else {
                self.unknown_key(written, entry, schema, choice);
                continue;
            };
            if name.is_some() && choice.wrong_tag_key == name {
                continue;
            }
            let alias_of = name.filter(|name| *name != written.as_str());
            self.path.push(PathStep::Key { written: written.clone(), name: alias_of });
            let value = self.property(entry, property);
            let key_at = entry.key_at;
            let is_before = |name: &str| map.entries.get_index_of(name).is_some_and(|other| other < index);
            let is_second =
                name.is_some_and(|name| aliased.contains(&name)) || alias_of.is_some_and(is_before);
            let is_kept = !is_second || self.report_second_name(alias_of.is_some(), key_at);
            if let (true, Some(value), false) = (is_kept, value, self.reading.only_problems) {
                out.insert(name.unwrap_or(self.written()).to_owned(), value);
            }
            aliased.extend(alias_of);
            self.path.pop();
        }
        if !aliased.is_empty() {
            rename_aliases(map, choice.keys);
        }
        if !self.reading.partial {
            self.missing_keys(node, blame, choice);
        }
        Some(Json::Object(out))
    }

    /// Reports a key that is given under two of its names. In a herdctl fleet this is only a warning, because herdctl
    /// accepts a schedule with both `cron` and `expression`, and uses `cron`. Returns true if the second value counts,
    /// that is, if it is written under an alias.
    fn report_second_name(&mut self, is_alias: bool, at: Location) -> bool {
        let severity = if self.reading.herdctl { Severity::Warning } else { Severity::Error };
        let message = format!("`{}` is another name of a key that is already given", self.written());
        self.report(severity, at, message, Some("keep one of the two".to_owned()));
        is_alias
    }

    /// Returns the last key of the path, as it is written.
    fn written(&self) -> &str {
        match self.path.last() {
            Some(PathStep::Key { written, .. }) => written,
            Some(PathStep::Index(_)) | None => "",
        }
    }

    /// Checks the value of a key, and reports a key that is without effect, renamed or not allowed in this
    /// file.
    fn property(&mut self, entry: &mut Entry, property: &'static Property) -> Option<Json> {
        if !entry.node.is_null() {
            self.remarks(entry.key_at, property);
        }
        let outer = self.reading;
        if property.is_secret && !matches!(entry.node.value, Value::Scalar(_)) {
            self.problems.secret_at(entry.key_at);
        }
        self.reading.partial |= property.is_partial;
        self.secret += usize::from(property.is_secret);
        let outer_is_address = std::mem::replace(&mut self.is_address, property.is_address);
        let blame = if matches!(entry.node.value, Value::Scalar(_)) { entry.node.at } else { entry.key_at };
        let value = self.value(&mut entry.node, blame, property.schema.get());
        self.is_address = outer_is_address;
        self.secret -= usize::from(property.is_secret);
        self.reading = outer;
        value
    }

    fn remarks(&mut self, at: Location, property: &Property) {
        if let Some(instead) = property.herdctl {
            self.warning(at, format!("`{}` has no effect here: {instead}", self.written()), None);
        }
        if property.aliases.iter().any(|(alias, old)| *old && *alias == self.written()) {
            let message = format!("`{}` is the old name of `{}`", self.written(), property.name);
            self.warning(at, message, None);
        }
        if self.reading.agent_file && property.is_fleet_only {
            let help = "set it in the fleet file, under `defaults` or the agent's `overrides`";
            let message = format!("`{}` is not allowed in an agent's own file", self.written());
            self.error(at, message, Some(help.to_owned()));
        }
    }

    /// Returns the keys that apply here: the keys of the object and of the variant that `type` names.
    fn choose(&mut self, node: &Node, blame: Location, rules: &'static ObjectRules) -> Choice {
        let all = Choice { keys: &rules.all, tag: None, wrong_tag_key: None, is_sure: true };
        let Some(tag) = &rules.tag else { return all };
        let written = node.get(tag.key).and_then(Node::text);
        if let Some(variant) = written.and_then(|text| tag.variants.get(tag.position(text)?)) {
            return Choice { keys: variant, tag: Some(tag), ..all };
        }
        // If the variant is not known, allow the keys of all variants, so that a key is reported only if no variant has
        // it.
        let mut unsure = Choice { is_sure: false, ..all };
        if let Some(Node { value: Value::Scalar(scalar), at }) =
            node.get(tag.key).filter(|_| written.is_some())
        {
            unsure.wrong_tag_key = Some(tag.key);
            self.path.push(PathStep::key(tag.key));
            self.not_one_of(scalar, *at, &tag.words);
            self.path.pop();
        } else if !self.reading.partial && node.get(tag.key).is_none() {
            let help = format!("it is one of {}", one_of(tag.words.iter().copied()));
            self.error(blame, format!("`{}` is missing", tag.key), Some(help));
        }
        unsure
    }

    fn missing_keys(&mut self, node: &Node, blame: Location, choice: Choice) {
        if !choice.is_sure {
            return;
        }
        for name in choice.keys.required.iter().filter(|name| node.get(name).is_none()) {
            let other = choice.keys.find(name).and_then(|found| found.property.aliases.first());
            let shown = other.filter(|(_, old)| !old).map_or(name, |(alias, _)| alias);
            let of = choice.keys.tag_value.map(|tag| format!(" (for `type: {tag}`)")).unwrap_or_default();
            self.error(blame, format!("`{shown}` is missing{of}"), None);
        }
    }

    fn unknown_key(&mut self, key: &str, entry: &Entry, schema: &SchemaNode, choice: Choice) {
        let is_lenient = self.reading.herdctl && !schema.is_strict;
        let severity = if is_lenient { Severity::Warning } else { Severity::Error };
        let hint = hint::of_key(&self.names(), key).map(str::to_owned);
        self.path.push(PathStep::key(key));
        let keys = choice.keys;
        let elsewhere = choice.tag.map(|tag| tag.values_with(key)).unwrap_or_default();
        let (message, help) = match keys.tag_value {
            Some(tag) if !elsewhere.is_empty() => {
                let types: Vec<String> = elsewhere.iter().map(|word| format!("type: {word}")).collect();
                let help = format!("it belongs to {}", one_of(types.iter().map(String::as_str)));
                (format!("`{key}` does not belong to `type: {tag}`"), Some(help))
            }
            _ => {
                let close = || did_you_mean(key, keys.names());
                (format!("unknown key `{key}`"), hint.or_else(close).or_else(|| keys.list()))
            }
        };
        // A value that belongs to a secret key is also secret under a misspelt name.
        let meant = closest(key, keys.names()).and_then(|name| keys.find(name));
        if meant.is_some_and(|meant| meant.property.is_secret) || secret::looks_secret(key) {
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
}

/// Replaces each alias by the name of its key in the schema. If a key is given under two of its names, the value of a
/// later alias replaces the earlier value, and a later value under the name itself is dropped.
fn rename_aliases(map: &mut Map, keys: &AllowedKeys) {
    let mut renamed = indexmap::IndexMap::with_capacity(map.entries.len());
    for (written, entry) in std::mem::take(&mut map.entries) {
        let name = keys.find(&written).and_then(|found| found.name);
        match name.filter(|name| *name != written) {
            Some(name) => _ = renamed.insert(name.to_owned(), entry),
            None => _ = renamed.entry(written).or_insert(entry),
        }
    }
    map.entries = renamed;
}
