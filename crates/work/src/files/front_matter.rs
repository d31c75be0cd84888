//! A Markdown file of a work item. Its YAML front matter is edited without changing other text of the file.
//!
//! An edit replaces one value, adds one line or removes one line. The rest of the YAML is not rewritten, so comments,
//! order, quotes and unknown keys stay. The result is parsed again, and it is written only if exactly the wanted keys
//! have changed. A form of YAML that the edit does not support is therefore refused and not damaged.

use std::ops::Range;

use cowhand_core::config::node::{Entry, Node, Sources, Value};
use cowhand_core::config::parse::parse;
use cowhand_core::config::problem::{Problems, Severity};
use indexmap::IndexMap;

#[derive(Debug, Clone)]
pub(super) struct Document {
    text: String,
    front: Option<Front>,
}

#[derive(Debug, Clone)]
struct Front {
    /// Range of the YAML, without the `---` line before it and the `---` or `...` line after it.
    yaml: Range<usize>,
    /// Offset of the first byte of the body, after the line that ends the front matter.
    end: usize,
    node: Node,
}

const BOM: char = '\u{feff}';

impl Document {
    /// Parses a file. An error message continues the sentence "the file …".
    pub(super) fn parse(text: String) -> Result<Self, String> {
        let front = match front_matter_range(&text)? {
            None => None,
            Some((yaml, end)) => Some(Front { node: tree(&text[yaml.clone()])?, yaml, end }),
        };
        Ok(Self { text, front })
    }

    pub(super) fn text(&self) -> &str {
        &self.text
    }

    pub(super) fn body(&self) -> &str {
        self.front.as_ref().map_or_else(|| self.text.trim_start_matches(BOM), |front| &self.text[front.end..])
    }

    pub(super) fn get(&self, key: &str) -> Option<&Node> {
        self.front.as_ref()?.node.get(key)
    }

    pub(super) fn entries(&self) -> impl Iterator<Item = (&String, &Entry)> {
        self.front.as_ref().and_then(|front| front.node.entries()).into_iter().flatten()
    }

    /// Sets each key to its text, or removes the key if there is no text. A file without front matter gets front
    /// matter. After an error, the document is unchanged.
    pub(super) fn set(&mut self, changes: &[(&str, Option<&str>)]) -> Result<(), String> {
        let mut after = self.clone();
        for (key, value) in changes {
            let text = match value {
                Some(value) => after.with(key, &as_yaml(value)),
                None => after.without(key),
            };
            after = Self::parse(text).map_err(|_| cannot_be_edited(key))?;
        }
        self.differs_only_in(&after, changes)?;
        *self = after;
        Ok(())
    }

    /// Checks that the front matter can be changed as a claim and a result change it.
    pub(super) fn check_editable(&self) -> Result<(), String> {
        let Some(front) = &self.front else { return Ok(()) };
        if self.text[front.yaml.clone()].lines().all(is_plain_line) {
            return Ok(());
        }
        // The body does not matter, and may be large.
        let mut trial = Self { text: self.text[..front.end].to_owned(), front: Some(front.clone()) };
        let created: &[_] = if self.get("created").is_none() { &[("created", Some("x"))] } else { &[] };
        let claim = [("status", Some("claimed")), ("claimed_by", Some("x")), ("claimed_until", Some("x"))];
        trial.set(&[&claim[..], created].concat())?;
        trial.set(&[("status", Some("completed")), ("claimed_by", None), ("claimed_until", None)])
    }

    /// Appends a section to the body, after an empty line.
    pub(super) fn append(&mut self, section: &str) {
        let newline = self.newline();
        if !self.text.ends_with('\n') {
            self.text.push_str(newline);
        }
        for line in std::iter::once("").chain(section.lines()) {
            self.text.push_str(line);
            self.text.push_str(newline);
        }
    }

    fn with(&self, key: &str, value: &str) -> String {
        let newline = self.newline();
        let mut text = self.text.clone();
        let Some(front) = &self.front else {
            let top = if text.starts_with(BOM) { BOM.len_utf8() } else { 0 };
            text.insert_str(top, &format!("---{newline}{key}: {value}{newline}---{newline}"));
            return text;
        };
        let entries = front.node.entries();
        if let Some(entry) = entries.and_then(|entries| entries.get(key)) {
            let at = front.place(entry.node.at.start)..front.place(entry.node.at.end);
            if at.is_empty() {
                // The key has no value, for example `status:`.
                let colon = text[front.place(entry.key_at.end)..].find(':').unwrap_or_default();
                text.insert_str(front.place(entry.key_at.end) + colon + 1, &format!(" {value}"));
            } else {
                text.replace_range(at, value);
            }
            return text;
        }
        let first = entries.and_then(|entries| entries.values().next());
        let indent = " ".repeat(first.map_or(0, |entry| entry.key_at.column.saturating_sub(1) as usize));
        text.insert_str(front.yaml.end, &format!("{indent}{key}: {value}{newline}"));
        text
    }

    fn without(&self, key: &str) -> String {
        let mut text = self.text.clone();
        let entry = self.front.as_ref().and_then(|front| Some((front, front.node.entries()?.get(key)?)));
        if let Some((front, entry)) = entry {
            let at = front.place(entry.key_at.start);
            let begin = text[..at].rfind('\n').map_or(0, |newline| newline + 1);
            let end = text[at..].find('\n').map_or(text.len(), |newline| at + newline + 1);
            text.replace_range(begin..end, "");
        }
        text
    }

    fn differs_only_in(&self, after: &Self, changes: &[(&str, Option<&str>)]) -> Result<(), String> {
        for (key, value) in changes {
            if after.get(key).and_then(Node::text) != *value {
                return Err(cannot_be_edited(key));
            }
        }
        let others = |document: &Self| {
            let own = |key: &String| changes.iter().any(|(changed, _)| changed == key);
            let others = document.entries().filter(|(key, _)| !own(key));
            others.map(|(key, entry)| (key.clone(), entry.node.clone())).collect::<IndexMap<_, _>>()
        };
        let (old, new) = (others(self), others(after));
        let same = old.len() == new.len()
            && old.iter().all(|(key, node)| new.get(key).is_some_and(|new| means_the_same(node, new)));
        if same && self.body() == after.body() {
            Ok(())
        } else {
            let keys: Vec<&str> = changes.iter().map(|(key, _)| *key).collect();
            Err(cannot_be_edited(&keys.join("`, `")))
        }
    }

    fn newline(&self) -> &'static str {
        let first = self.text.find('\n');
        if first.is_some_and(|at| self.text[..at].ends_with('\r')) { "\r\n" } else { "\n" }
    }
}

impl Front {
    /// Converts an offset in the parsed text to an offset in the file. The parsed text has an additional empty line at
    /// its start.
    fn place(&self, byte: u32) -> usize {
        (self.yaml.start + byte as usize).saturating_sub(1).clamp(self.yaml.start, self.yaml.end)
    }
}

/// Returns true for a comment, and for a line of one key with a value that the parser reads as written. Front matter
/// that consists of such lines can be changed.
fn is_plain_line(line: &str) -> bool {
    let is_name = |key: &str| !key.is_empty() && key.bytes().all(|b| b.is_ascii_alphanumeric() || b == b'_');
    let is_plain = |value: &str| value.starts_with(|c: char| c.is_alphanumeric());
    line.starts_with('#')
        || line.split_once(": ").is_some_and(|(key, value)| is_name(key) && is_plain(value.trim()))
}

fn cannot_be_edited(keys: &str) -> String {
    format!("has front matter in which `{keys}` cannot be changed safely; write one key on each line")
}

/// Returns the range of the YAML and the start of the body; `None` if the first line is not `---`.
fn front_matter_range(text: &str) -> Result<Option<(Range<usize>, usize)>, String> {
    let top = text.len() - text.trim_start_matches(BOM).len();
    let mut lines = text[top..].split_inclusive('\n');
    let Some(first) = lines.next().filter(|line| line.trim_end() == "---") else { return Ok(None) };
    let start = top + first.len();
    let mut at = start;
    for line in lines {
        let after = at + line.len();
        if matches!(line.trim_end(), "---" | "...") {
            return Ok(Some((start..at, after)));
        }
        at = after;
    }
    Err("begins with `---`, but no second `---` ends its front matter".to_owned())
}

fn tree(yaml: &str) -> Result<Node, String> {
    // The empty line replaces the first `---` line, so that messages state the line number of the file.
    let text = format!("\n{yaml}");
    let (mut sources, mut problems) = (Sources::default(), Problems::default());
    let file = sources.add("".into(), String::new());
    let node = parse(file, &text, &mut problems);
    if let Some(problem) = problems.finish().into_iter().find(|found| found.severity == Severity::Error) {
        return Err(format!(
            "has front matter that cannot be read: line {}: {}",
            problem.at.line, problem.message
        ));
    }
    node.filter(|node| node.entries().is_some())
        .ok_or_else(|| "has front matter that is not a list of `key: value` lines".to_owned())
}

/// Compares two nodes by value, without their positions.
fn means_the_same(one: &Node, other: &Node) -> bool {
    match (&one.value, &other.value) {
        (Value::Scalar(one), Value::Scalar(other)) => one == other,
        (Value::List(one), Value::List(other)) => {
            one.len() == other.len() && one.iter().zip(other).all(|(one, other)| means_the_same(one, other))
        }
        (Value::Map(one), Value::Map(other)) => {
            one.entries.len() == other.entries.len()
                && one.entries.iter().all(|(key, entry)| {
                    other.entries.get(key).is_some_and(|other| means_the_same(&entry.node, &other.node))
                })
        }
        _ => false,
    }
}

/// Writes a value without quotes if it needs none, or else in double quotes with JSON escapes, which YAML also accepts.
fn as_yaml(value: &str) -> String {
    let plain = value.starts_with(|c: char| c.is_ascii_alphanumeric())
        && value.ends_with(|c: char| c.is_ascii_alphanumeric())
        && value.bytes().all(|b| b.is_ascii_alphanumeric() || b"_-./:@+".contains(&b));
    if plain { value.to_owned() } else { serde_json::Value::from(value).to_string() }
}

#[cfg(test)]
mod tests;
