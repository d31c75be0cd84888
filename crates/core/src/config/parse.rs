//! Parsing of YAML text into a tree.
//!
//! YAML 1.2: `yes` and `on` are text. Anchors, aliases and `<<` work. Duplicate keys, a second document and files
//! beyond the limits below are rejected. The limits also bound the depth, so that every later pass over the tree may
//! recurse. The number of written values is not limited, but aliases may add only a number of values that depends on
//! the size of the file.

use std::collections::HashMap;

use granit_parser::{ErrorKind, Event, Options, Parser, ScalarStyle, ScanError, Span, Tag};

use super::node::{Entry, FileId, Location, Map, Node, Scalar, Value};
use super::problem::{Problem, Problems};
use super::syntax;

/// Maximum size of a file, in bytes. A larger file is not a config, and may not fit into the memory. The limit also
/// ensures that a location in a file fits into 32 bits.
pub const MAX_CONFIG_BYTES: usize = 1 << 30;
/// Number of nodes that the aliases of a file may add, however small the file is.
const MIN_ALIAS_LIMIT: usize = 200_000;
/// Number of bytes that a file needs for each node that its aliases add. A file without aliases has at most one node
/// for every two bytes, so aliases add at most half as many nodes as such a file can have.
const BYTES_PER_ALIASED_NODE: usize = 4;
/// Maximum depth of nesting.
pub const MAX_LEVELS: usize = 64;

/// Returns the tree of a file; none if its text is not valid YAML, has a second document or exceeds a limit. An empty
/// file is an empty map.
pub fn parse(file: FileId, text: &str, problems: &mut Problems) -> Option<Node> {
    if text.len() > MAX_CONFIG_BYTES {
        let message = format!("the file is larger than {} MiB", MAX_CONFIG_BYTES >> 20);
        problems.add(Problem::error(Location::whole(file), message));
        return None;
    }
    let mut builder = Builder::new(file, text, problems);
    for event in Parser::new_from_str_with_options(text, options()) {
        let taken = match event {
            Ok((event, span)) => builder.take(event, &span),
            Err(error) => Err(builder.syntax_error(&error)),
        };
        if let Err(problem) = taken {
            // An error on the line of a value that begins with `{{` has the same cause as the error already reported
            // there.
            if builder.unquoted != Some(problem.at.line) {
                problems.add(problem);
            }
            return None;
        }
    }
    let top = Location { file, line: 1, column: 1, start: 0, end: 0 };
    Some(builder.root.filter(|root| !root.is_null()).unwrap_or_else(|| Node::empty_map(top)))
}

fn options() -> Options {
    granit_parser::options! {
        emit_comments: false,
        flow_nesting_limit: MAX_LEVELS + 1,
        block_nesting_limit: MAX_LEVELS + 1,
    }
}

struct Builder<'a> {
    file: FileId,
    text: &'a str,
    problems: &'a mut Problems,
    /// Collections that have not ended yet, outermost first.
    open: Vec<Open>,
    anchors: HashMap<usize, Anchored>,
    /// Number of nodes that aliases have added, plus the number of nodes in the copies that are stored for aliases.
    aliased: usize,
    documents: usize,
    root: Option<Node>,
    /// Line of the last value that begins with `{{` and has no quotes.
    unquoted: Option<u32>,
}

struct Anchored {
    node: Node,
    count: usize,
    height: usize,
}

struct Open {
    at: Location,
    anchor: usize,
    content: Content,
}

enum Content {
    List(Vec<Node>),
    Map {
        map: Map,
        key: Option<Key>,
        merged: Vec<Node>,
        /// True if the map was meant as a text: it begins with `{{`, without quotes. This error is already reported.
        is_text: bool,
    },
}

enum Key {
    Name(String, Location),
    Merge,
    /// The key is already rejected; its value is dropped.
    Unusable,
}

type Taken = Result<(), Problem>;

impl<'a> Builder<'a> {
    fn new(file: FileId, text: &'a str, problems: &'a mut Problems) -> Self {
        let (open, anchors) = (Vec::new(), HashMap::new());
        Self { file, text, problems, open, anchors, aliased: 0, documents: 0, root: None, unquoted: None }
    }

    fn take(&mut self, event: Event<'_>, span: &Span) -> Taken {
        let at = self.location(span);
        match event {
            Event::DocumentStart(..) => {
                self.documents += 1;
                if self.documents > 1 {
                    return Err(Problem::error(
                        at,
                        "a config file is one YAML document; a second one begins here",
                    ));
                }
            }
            Event::Scalar(text, style, anchor, tag) => {
                let plain = style == ScalarStyle::Plain && !self.is_text(tag.as_deref(), at);
                let scalar = Scalar { text: text.into_owned(), plain, ..Scalar::default() };
                self.finish(Node { value: Value::Scalar(scalar), at }, anchor)?;
            }
            Event::SequenceStart(_, anchor, tag) => {
                self.is_text(tag.as_deref(), at);
                self.begin(Open { at, anchor, content: Content::List(Vec::new()) })?;
            }
            Event::MappingStart(_, anchor, tag) => {
                self.is_text(tag.as_deref(), at);
                let content =
                    Content::Map { map: Map::default(), key: None, merged: Vec::new(), is_text: false };
                self.begin(Open { at, anchor, content })?;
            }
            Event::SequenceEnd | Event::MappingEnd => {
                if let Some(open) = self.open.pop() {
                    let (at, anchor) = (open.at, open.anchor);
                    let value = self.close(open.content);
                    self.finish(Node { value, at }, anchor)?;
                }
            }
            Event::Alias(anchor) => self.alias(anchor, at)?,
            _ => {}
        }
        Ok(())
    }

    fn begin(&mut self, open: Open) -> Taken {
        if self.open.len() >= MAX_LEVELS {
            return Err(too_deep(open.at));
        }
        self.open.push(open);
        Ok(())
    }

    fn close(&mut self, content: Content) -> Value {
        match content {
            Content::List(items) => Value::List(items),
            Content::Map { is_text: true, .. } => {
                Value::Scalar(Scalar { undefined: true, ..Scalar::default() })
            }
            Content::Map { mut map, merged, .. } => {
                for source in merged {
                    self.merge_into(&mut map, source);
                }
                Value::Map(map)
            }
        }
    }

    /// Merges the source of `<<`. Keys of the map itself take precedence, then keys of earlier sources.
    fn merge_into(&mut self, map: &mut Map, source: Node) {
        match source.value {
            Value::Map(source) => {
                for (key, entry) in source.entries {
                    map.entries.entry(key).or_insert(entry);
                }
            }
            Value::List(sources) if sources.iter().all(|source| source.entries().is_some()) => {
                for source in sources {
                    self.merge_into(map, source);
                }
            }
            _ => {
                let message = "`<<` takes a map, or a list of maps, for example `<<: *defaults`";
                self.problems.add(Problem::error(source.at, message).key("<<"));
            }
        }
    }

    fn alias(&mut self, anchor: usize, at: Location) -> Taken {
        let Some(anchored) = self.anchors.get(&anchor) else {
            return Err(Problem::error(at, "this alias is used inside its own anchor"));
        };
        if self.open.len() + anchored.height > MAX_LEVELS {
            return Err(too_deep(at));
        }
        let count = anchored.count;
        self.count_aliased(count, at)?;
        if let Some(node) = self.anchors.get(&anchor).map(|anchored| anchored.node.clone()) {
            self.place(node);
        }
        Ok(())
    }

    /// Counts nodes before they are copied, so that an alias bomb is refused without being expanded.
    fn count_aliased(&mut self, count: usize, at: Location) -> Taken {
        let limit = (self.text.len() / BYTES_PER_ALIASED_NODE).max(MIN_ALIAS_LIMIT);
        self.aliased += count;
        if self.aliased <= limit {
            return Ok(());
        }
        let message = format!("the aliases of this file add more than {limit} values");
        let help =
            "the limit depends on the size of the file: one value for each 4 bytes, and at least 200000";
        Err(Problem::error(at, message).help(help.to_owned()))
    }

    /// Finishes a node: stores it for its aliases and adds it to its parent.
    fn finish(&mut self, node: Node, anchor: usize) -> Taken {
        if anchor != 0 {
            let (count, height) = (node.count(), node.height());
            // The stored copy uses memory, so its nodes count as well.
            self.count_aliased(count, node.at)?;
            self.anchors.insert(anchor, Anchored { node: node.clone(), count, height });
        }
        self.place(node);
        Ok(())
    }

    fn place(&mut self, node: Node) {
        match self.open.last_mut().map(|open| &mut open.content) {
            None => self.root = Some(node),
            Some(Content::List(items)) => items.push(node),
            Some(Content::Map { map, key, merged, is_text }) => match key.take() {
                None => match syntax::braces(self.text, node.at.start as usize) {
                    Some(mistake) if node.entries().is_some() => {
                        let at =
                            Location { column: node.at.column - 1, start: to_u32(mistake.start), ..node.at };
                        self.problems.add(Problem::error(at, mistake.message).help(mistake.help));
                        self.unquoted = Some(at.line);
                        (*key, *is_text) = (Some(Key::Unusable), true);
                    }
                    _ => *key = Some(as_key(node, self.problems)),
                },
                Some(Key::Unusable) => {}
                Some(Key::Merge) => merged.push(node),
                Some(Key::Name(name, key_at)) => {
                    if let Some(first) = map.entries.get(&name) {
                        let message =
                            format!("`{name}` is given twice; the first is on line {}", first.key_at.line);
                        let problem = Problem::error(key_at, message).key(name);
                        let problem = self.open.iter().rev().skip(1).fold(problem, below);
                        self.problems.add(problem);
                    } else {
                        map.entries.insert(name, Entry { key_at, node });
                    }
                }
            },
        }
    }

    /// Checks whether the tag marks the value as text. Reports tags that YAML does not define.
    fn is_text(&mut self, tag: Option<&Tag>, at: Location) -> bool {
        let Some(tag) = tag else { return false };
        match tag.core_suffix() {
            Some("str") => true,
            Some("int" | "float" | "bool" | "null" | "map" | "seq") => false,
            _ if tag.original() == "!" => true,
            _ => {
                let message = format!("unknown YAML tag `{}`", tag.original());
                self.problems.add(Problem::error(at, message));
                false
            }
        }
    }

    fn location(&self, span: &Span) -> Location {
        let range = span.byte_range().unwrap_or_default();
        let line = self.text.get(range.clone()).and_then(|text| text.lines().next()).unwrap_or_default();
        Location {
            file: self.file,
            line: to_u32(span.start.line()),
            column: to_u32(span.start.col() + 1),
            start: to_u32(range.start),
            end: to_u32(range.start + line.trim_end().len()),
        }
    }

    /// Returns the byte offset of a line and column, because the parser does not report the offset for every error.
    fn byte_of(&self, at: Location) -> usize {
        let lines = self.text.split_inclusive('\n').take((at.line as usize).saturating_sub(1));
        let begin: usize = lines.map(str::len).sum();
        let line = self.text[begin..].char_indices().nth((at.column as usize).saturating_sub(1));
        line.map_or(self.text.len(), |(offset, _)| begin + offset)
    }

    /// Returns the location from a byte to the end of its line.
    fn location_of(&self, start: usize) -> Location {
        let before = &self.text[..start];
        let begin = before.rfind('\n').map_or(0, |end| end + 1);
        let rest = self.text[start..].lines().next().unwrap_or_default();
        Location {
            file: self.file,
            line: to_u32(before.matches('\n').count() + 1),
            column: to_u32(before[begin..].chars().count() + 1),
            start: to_u32(start),
            end: to_u32(start + rest.trim_end().len()),
        }
    }

    fn syntax_error(&self, error: &ScanError) -> Problem {
        let at = self.location(&Span::empty(*error.marker()));
        if matches!(error.kind(), ErrorKind::RecursionLimitExceeded) {
            return too_deep(at);
        }
        let offset = self.byte_of(at);
        if let Some(mistake) = syntax::syntax_mistake(self.text, error.kind(), offset) {
            return Problem::error(self.location_of(mistake.start), mistake.message).help(mistake.help);
        }
        let line = self.text.lines().nth((at.line as usize).saturating_sub(1)).unwrap_or_default();
        let help =
            line.contains("${").then(|| "inside { } and [ ] put a value with `${` in quotes".to_owned());
        Problem::error(at, format!("not valid YAML: {}", error.info())).help(help)
    }
}

/// Prefixes the key of a problem with the step from an unfinished collection to its current value.
fn below(problem: Problem, open: &Open) -> Problem {
    let step = match &open.content {
        Content::List(items) => format!("[{}]", items.len()),
        Content::Map { key: Some(Key::Name(name, _)), .. } => name.clone(),
        Content::Map { .. } => return problem,
    };
    let key = problem.key_below(&step);
    problem.key(key)
}

fn as_key(node: Node, problems: &mut Problems) -> Key {
    match node.value {
        Value::Scalar(scalar) if scalar.plain && scalar.text == "<<" => Key::Merge,
        Value::Scalar(scalar) => Key::Name(scalar.text, node.at),
        _ => {
            problems.add(Problem::error(node.at, "a key is a word, not a list or a map"));
            Key::Unusable
        }
    }
}

fn too_deep(at: Location) -> Problem {
    Problem::error(at, format!("nested more than {MAX_LEVELS} levels deep"))
}

/// Converts a number. Files are smaller than 4 GiB, so the conversion never saturates.
pub(super) fn to_u32(number: usize) -> u32 {
    u32::try_from(number).unwrap_or(u32::MAX)
}
