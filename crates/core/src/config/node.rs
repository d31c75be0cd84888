//! The tree of a config file: untyped, with a location on every node.
//!
//! Types are assigned last: a plain `8080` becomes text or a number, as the schema requires at that position. So
//! variables can be expanded and files merged before the types are known.

use std::path::{Path, PathBuf};

use indexmap::IndexMap;

use super::load::normalize;

/// Location in a file. Lines and columns count from 1, columns in characters. Line 0 means the file as a whole.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Location {
    pub file: FileId,
    pub line: u32,
    pub column: u32,
    /// First byte to underline, as an offset in the file.
    pub start: u32,
    /// End of the bytes to underline (exclusive), on the same line.
    pub end: u32,
}

impl Location {
    /// Returns the location of a file as a whole, for example of a file that cannot be read.
    pub const fn whole(file: FileId) -> Self {
        Self { file, line: 0, column: 0, start: 0, end: 0 }
    }
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct FileId(u32);

impl FileId {
    /// Returns how many files were read before this file.
    pub(super) const fn number(self) -> usize {
        self.0 as usize
    }
}

/// All files that were read, in the order of reading.
#[derive(Debug, Default)]
pub struct Sources {
    files: Vec<(PathBuf, String)>,
    /// Size of all files together.
    bytes: usize,
}

impl Sources {
    pub fn add(&mut self, path: PathBuf, text: String) -> FileId {
        let id = FileId(u32::try_from(self.files.len()).unwrap_or(u32::MAX));
        self.bytes = self.bytes.saturating_add(text.len());
        self.files.push((path, text));
        id
    }

    pub(super) fn ids(&self) -> impl Iterator<Item = FileId> + use<> {
        (0..u32::try_from(self.files.len()).unwrap_or(u32::MAX)).map(FileId)
    }

    pub fn path(&self, file: FileId) -> &Path {
        self.files.get(file.0 as usize).map_or(Path::new(""), |(path, _)| path)
    }

    pub fn text(&self, file: FileId) -> &str {
        self.files.get(file.0 as usize).map_or("", |(_, text)| text)
    }

    /// Returns the directory to which paths in the file are relative.
    pub fn directory(&self, file: FileId) -> &Path {
        self.path(file).parent().unwrap_or(Path::new(""))
    }

    /// Resolves a path that the file contains, relative to the directory of the file.
    pub(super) fn resolve(&self, file: FileId, path: &str) -> PathBuf {
        normalize(&self.directory(file).join(path))
    }

    pub fn paths(&self) -> impl Iterator<Item = &Path> {
        self.files.iter().map(|(path, _)| path.as_path())
    }

    pub(super) const fn bytes(&self) -> usize {
        self.bytes
    }

    pub fn len(&self) -> usize {
        self.files.len()
    }

    pub fn is_empty(&self) -> bool {
        self.files.is_empty()
    }
}

#[derive(Debug, Clone, PartialEq)]
pub struct Node {
    pub value: Value,
    pub at: Location,
}

#[derive(Debug, Clone, PartialEq)]
pub enum Value {
    Scalar(Scalar),
    List(Vec<Node>),
    Map(Map),
}

#[derive(Debug, Clone, PartialEq, Default)]
pub struct Map {
    pub entries: IndexMap<String, Entry>,
    /// True if this map replaced a value that is not a map, or stands for a short form. Then it also replaces the value
    /// of every lower layer. This makes merging associative.
    pub replaces_all: bool,
}

#[derive(Debug, Clone, PartialEq)]
pub struct Entry {
    pub key_at: Location,
    pub node: Node,
}

#[derive(Debug, Clone, PartialEq, Default)]
pub struct Scalar {
    pub text: String,
    /// True if the text was written without quotes, so that it may become a number, a boolean or null.
    pub plain: bool,
    /// True if the text was written with `${` in it.
    pub interpolated: bool,
    /// Environment variables whose values are in the text.
    pub variables: Vec<String>,
    /// True if the text is not known, because a variable has no value, or because a text without quotes begins with
    /// `{{`. The error is already reported.
    pub undefined: bool,
    /// The only key of the map for which a short form stands: `kind` for `worktree`, which is short for
    /// `{kind: worktree}`. None for other scalars. Set by the check against the schema.
    pub short_for: Option<&'static str>,
    /// The `format` of the schema that the text is known to have. Set by the check against the schema, so that the text
    /// is not parsed again after the merge.
    pub valid_format: Option<&'static str>,
}

impl Scalar {
    pub fn is_null(&self) -> bool {
        self.plain && !self.undefined && matches!(self.text.as_str(), "" | "~" | "null" | "Null" | "NULL")
    }
}

impl Node {
    pub fn empty_map(at: Location) -> Self {
        Self { value: Value::Map(Map::default()), at }
    }

    pub fn is_null(&self) -> bool {
        matches!(&self.value, Value::Scalar(scalar) if scalar.is_null())
    }

    pub fn entries(&self) -> Option<&IndexMap<String, Entry>> {
        match &self.value {
            Value::Map(map) => Some(&map.entries),
            _ => None,
        }
    }

    pub fn get(&self, key: &str) -> Option<&Node> {
        self.entry(key).map(|entry| &entry.node)
    }

    pub fn get_mut(&mut self, key: &str) -> Option<&mut Node> {
        match &mut self.value {
            Value::Map(map) => map.entries.get_mut(key).map(|entry| &mut entry.node),
            _ => None,
        }
    }

    pub fn entry(&self, key: &str) -> Option<&Entry> {
        self.entries()?.get(key).filter(|entry| !entry.node.is_null())
    }

    pub fn list(&self) -> &[Node] {
        match &self.value {
            Value::List(items) => items,
            _ => &[],
        }
    }

    /// Returns the text of a scalar, unless it is null or not known.
    pub fn text(&self) -> Option<&str> {
        match &self.value {
            Value::Scalar(scalar) if !scalar.is_null() && !scalar.undefined => Some(&scalar.text),
            _ => None,
        }
    }

    pub fn remove(&mut self, key: &str) -> Option<Node> {
        match &mut self.value {
            Value::Map(map) => map.entries.shift_remove(key).map(|entry| entry.node),
            _ => None,
        }
    }

    /// Counts this node and all nodes below.
    pub fn count(&self) -> usize {
        1 + match &self.value {
            Value::Scalar(_) => 0,
            Value::List(items) => items.iter().map(Node::count).sum(),
            Value::Map(map) => map.entries.values().map(|entry| entry.node.count()).sum(),
        }
    }

    pub fn height(&self) -> usize {
        1 + match &self.value {
            Value::Scalar(_) => 0,
            Value::List(items) => items.iter().map(Node::height).max().unwrap_or(0),
            Value::Map(map) => map.entries.values().map(|entry| entry.node.height()).max().unwrap_or(0),
        }
    }
}
