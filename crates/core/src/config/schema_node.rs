//! The schema of the config as nodes, the form that the checker reads. The keywords of each schema are looked up once,
//! when the nodes are made, because a check of a large fleet reads them millions of times.

use std::collections::HashMap;

use regex::Regex;
use serde_json::Value as Json;

use super::allowed_keys::ObjectRules;
use super::scalar::NumberRange;
use super::schema::{SCHEMA, aliases_of};

/// A schema. Each `$ref` is replaced by its definition. A union of one schema and null is replaced by this one schema.
#[derive(Debug)]
pub(super) struct SchemaNode {
    /// True if every value is accepted.
    pub is_open: bool,
    /// Kinds of value that are accepted; empty for a union whose variants have their own kinds.
    pub kinds: Vec<&'static str>,
    /// Variants of a union, each with its kinds. Empty if `kinds` is not empty.
    pub union: Vec<(SchemaRef, Vec<&'static str>)>,
    /// Key of the map that a short form stands for.
    pub short_for: Option<&'static str>,
    /// True if an unknown key is an error also in a herdctl fleet.
    pub is_strict: bool,
    pub min_items: u64,
    /// Schema of the items of a list.
    pub items: SchemaRef,
    pub object: ObjectRules,
    pub text: TextRules,
    pub integers: NumberRange,
    /// Value that a number has to exceed.
    pub above: Option<f64>,
    pub minimum: Option<f64>,
    pub maximum: Option<f64>,
}

/// The rules for a text.
#[derive(Debug)]
pub(super) struct TextRules {
    /// The values of an enumeration; none if other texts are accepted.
    pub words: Option<Vec<&'static str>>,
    pub min_length: u64,
    pub format: &'static str,
    pub pattern: Option<TextPattern>,
    pub examples: Vec<&'static str>,
    /// True if the text is a path.
    pub is_path: bool,
}

#[derive(Debug)]
pub(super) struct TextPattern {
    pub text: &'static str,
    /// `None` if the pattern is not a valid regular expression; then no text matches.
    pub regex: Option<Regex>,
}

/// A key of a map.
#[derive(Debug, Clone)]
#[expect(clippy::struct_excessive_bools, reason = "each is an extension of the schema")]
pub(super) struct Property {
    pub name: &'static str,
    /// Other names of the key, and whether they are old names.
    pub aliases: Vec<(&'static str, bool)>,
    pub is_secret: bool,
    pub is_address: bool,
    pub is_partial: bool,
    pub is_fleet_only: bool,
    /// Last part of the warning about a key of herdctl that has no effect: what to write instead, or why nothing is
    /// needed. None for all other keys.
    pub herdctl: Option<&'static str>,
    pub schema: SchemaRef,
}

/// Position of a node in the schema of the config.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct SchemaRef(usize);

impl SchemaRef {
    /// Returns the node. A reference is made only together with its node, so the node exists.
    pub(super) fn get(self) -> &'static SchemaNode {
        &SCHEMA.nodes()[self.0]
    }
}

/// Converts the schemas of a root schema to nodes.
pub(super) struct Compiler {
    root: &'static Json,
    nodes: Vec<Option<SchemaNode>>,
    /// Nodes by the place of their schema in memory. A schema that is already here is not converted again, because
    /// schemas refer to each other in cycles.
    known: HashMap<*const Json, SchemaRef>,
}

static ANY: Json = Json::Bool(true);

impl Compiler {
    pub(super) fn new(root: &'static Json) -> Self {
        Self { root, nodes: Vec::new(), known: HashMap::new() }
    }

    pub(super) fn finish(self) -> Vec<SchemaNode> {
        self.nodes.into_iter().flatten().collect()
    }

    /// Returns the node of a schema.
    pub(super) fn node(&mut self, schema: &'static Json) -> SchemaRef {
        let mut schema = self.follow(schema);
        while let (None, [only]) = (schema.get("properties"), variants_of(schema).as_slice()) {
            schema = self.follow(only);
        }
        if let Some(known) = self.known.get(&std::ptr::from_ref(schema)) {
            return *known;
        }
        let own = SchemaRef(self.nodes.len());
        self.known.insert(schema, own);
        self.nodes.push(None);
        let node = self.compile(schema);
        self.nodes[own.0] = Some(node);
        own
    }

    fn compile(&mut self, schema: &'static Json) -> SchemaNode {
        let kinds = kinds_of(schema);
        let variants = variants_of(schema);
        let union = if kinds.is_empty() { variants.clone() } else { Vec::new() };
        let union = union.into_iter().map(|variant| (self.node(variant), kinds_of(self.follow(variant))));
        let number = |keyword| schema.get(keyword).and_then(Json::as_f64);
        SchemaNode {
            is_open: is_open(schema),
            union: union.collect(),
            kinds,
            short_for: word(schema, "x-short-for"),
            is_strict: schema.get("x-strict").is_some(),
            min_items: schema.get("minItems").and_then(Json::as_u64).unwrap_or_default(),
            items: self.node(schema.get("items").unwrap_or(&ANY)),
            object: ObjectRules::of(self, schema, &variants),
            text: TextRules::of(schema),
            integers: NumberRange::of(schema),
            above: number("exclusiveMinimum"),
            minimum: number("minimum"),
            maximum: number("maximum"),
        }
    }

    fn follow(&self, schema: &'static Json) -> &'static Json {
        follow(self.root, schema)
    }

    pub(super) fn property(&mut self, name: &'static str, schema: &'static Json) -> Property {
        let has = |keyword| schema.get(keyword).is_some();
        Property {
            name,
            aliases: aliases_of(schema).collect(),
            is_secret: has("x-secret"),
            is_address: has("x-address") || word(schema, "format") == Some("uri"),
            is_partial: has("x-partial"),
            is_fleet_only: has("x-fleet-only"),
            herdctl: word(schema, "x-herdctl"),
            schema: self.node(schema),
        }
    }
}

impl TextRules {
    fn of(schema: &'static Json) -> Self {
        let pattern = word(schema, "pattern");
        let examples = schema.get("examples").and_then(Json::as_array).into_iter().flatten();
        Self {
            words: words_of(schema),
            min_length: schema.get("minLength").and_then(Json::as_u64).unwrap_or_default(),
            format: word(schema, "format").unwrap_or_default(),
            pattern: pattern.map(|text| TextPattern { text, regex: Regex::new(text).ok() }),
            examples: examples.filter_map(Json::as_str).collect(),
            is_path: schema.get("x-path").is_some(),
        }
    }
}

/// Returns the schema to which `$ref` refers, or the given schema if it has no `$ref`.
pub(super) fn follow<'a>(root: &'a Json, mut schema: &'a Json) -> &'a Json {
    while let Some(name) = schema.get("$ref").and_then(Json::as_str) {
        schema = match name.strip_prefix("#/$defs/") {
            Some(name) => &root["$defs"][name],
            // `#`: a fleet inside a fleet.
            None => root,
        };
    }
    schema
}

fn word(schema: &'static Json, keyword: &str) -> Option<&'static str> {
    schema.get(keyword).and_then(Json::as_str)
}

/// Returns the variants of a schema, without null.
fn variants_of(schema: &'static Json) -> Vec<&'static Json> {
    let all = schema.get("oneOf").or_else(|| schema.get("anyOf")).and_then(Json::as_array);
    all.into_iter()
        .flatten()
        .filter(|variant| variant.get("type").is_none_or(|kind| kind != "null"))
        .collect()
}

/// Returns the key whose constant value distinguishes the variants.
pub(super) fn tag_key_of(variants: &[&'static Json]) -> Option<&'static str> {
    let mut tags = variants.iter().map(|variant| {
        let properties = variant.get("properties")?.as_object()?;
        properties.iter().find(|(_, property)| property.get("const").is_some()).map(|(name, _)| name.as_str())
    });
    let first = tags.next()??;
    tags.all(|tag| tag == Some(first)).then_some(first)
}

/// Checks whether the schema accepts every value.
fn is_open(schema: &Json) -> bool {
    !["type", "oneOf", "anyOf", "enum", "const"].iter().any(|keyword| schema.get(keyword).is_some())
}

/// Returns the kinds of value that a schema accepts.
///
/// The `type` of the schema names them. A schema without `type` accepts objects if a tag distinguishes its variants,
/// and strings if each variant is a constant. A schema with neither `type` nor variants has
/// an `enum` or a `const`, or is open; it counts as a schema for strings. For every other union, the list is empty, and each variant
/// has its own kinds.
fn kinds_of(schema: &'static Json) -> Vec<&'static str> {
    match schema.get("type") {
        Some(Json::String(kind)) => return vec![kind],
        Some(Json::Array(kinds)) => {
            return kinds.iter().filter_map(Json::as_str).filter(|kind| *kind != "null").collect();
        }
        _ => {}
    }
    let variants = variants_of(schema);
    if tag_key_of(&variants).is_some() {
        vec!["object"]
    } else if variants.iter().all(|variant| variant.get("const").is_some()) {
        vec!["string"]
    } else {
        Vec::new()
    }
}

/// Returns the values of an enumeration, which a schema can write as `const`, `enum` or `oneOf`; none for other
/// schemas.
fn words_of(schema: &'static Json) -> Option<Vec<&'static str>> {
    if let Some(word) = word(schema, "const") {
        return Some(vec![word]);
    }
    if let Some(words) = schema.get("enum").and_then(Json::as_array) {
        return Some(words.iter().filter_map(Json::as_str).collect());
    }
    let variants = schema.get("oneOf").and_then(Json::as_array)?;
    let words: Vec<Vec<&str>> = variants.iter().filter_map(words_of).collect();
    (words.len() == variants.len()).then(|| words.concat())
}
