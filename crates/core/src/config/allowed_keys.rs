//! The keys that a schema allows in a map.

use std::collections::{HashMap, HashSet};

use serde_json::Value as Json;

use super::schema::aliases_of;
use super::schema_node::{Compiler, Property, tag_key_of};
use super::suggest::one_of;

/// The rules for the keys of a map.
#[derive(Debug)]
pub(super) struct ObjectRules {
    /// The variants that the value of a key distinguishes, for example those of `type`.
    pub tag: Option<Tag>,
    /// Keys of all variants together, or the keys of a map without variants.
    pub all: AllowedKeys,
    /// Names of the keys that do not belong to a variant.
    own: HashSet<&'static str>,
}

/// A key whose value chooses a variant.
#[derive(Debug)]
pub(super) struct Tag {
    pub key: &'static str,
    /// Values of the key.
    pub words: Vec<&'static str>,
    /// Keys that are allowed with each of `words`.
    pub variants: Vec<AllowedKeys>,
    /// Names and aliases of the keys of each variant alone.
    own_keys: Vec<Vec<&'static str>>,
}

/// Keys that a map may have.
#[derive(Debug)]
pub(super) struct AllowedKeys {
    properties: Vec<Property>,
    /// Positions of the properties by their names and aliases.
    positions: HashMap<&'static str, usize>,
    /// Schema for the values of all other keys, if the map may have other keys.
    more: Option<Property>,
    /// Keys that must not be missing.
    pub required: Vec<&'static str>,
    /// The value of the tag that chose the variant, for example `cron`.
    pub tag_value: Option<&'static str>,
}

impl ObjectRules {
    pub(super) fn of(compiler: &mut Compiler, schema: &'static Json, variants: &[&'static Json]) -> Self {
        let own: Vec<&'static Json> =
            schema.get("properties").is_some().then_some(schema).into_iter().collect();
        let more = schema.get("additionalProperties").filter(|more| more.as_bool() != Some(false));
        let more = more.map(|more| compiler.property("", more));
        let tag = tag_key_of(variants).map(|key| Tag {
            key,
            words: variants.iter().map(|variant| tag_value(variant, key)).collect(),
            variants: variants
                .iter()
                .map(|variant| AllowedKeys {
                    tag_value: Some(tag_value(variant, key)),
                    ..AllowedKeys::of(compiler, own.iter().copied().chain([*variant]), more.clone())
                })
                .collect(),
            own_keys: variants.iter().map(|variant| keys_of(variant)).collect(),
        });
        let all = own.iter().chain(variants.iter().filter(|_| tag.is_some())).copied();
        let names = schema.get("properties").and_then(Json::as_object).into_iter().flat_map(|own| own.keys());
        Self { all: AllowedKeys::of(compiler, all, more), tag, own: names.map(String::as_str).collect() }
    }

    /// Checks whether this is the name of a key that does not belong to a variant.
    pub(super) fn has_own(&self, key: &str) -> bool {
        self.own.contains(key)
    }
}

fn tag_value(variant: &'static Json, key: &str) -> &'static str {
    variant["properties"][key]["const"].as_str().unwrap_or_default()
}

/// Returns the names and aliases of all keys of a schema.
fn keys_of(schema: &'static Json) -> Vec<&'static str> {
    let properties = schema["properties"].as_object().into_iter().flatten();
    let names = |(name, property): (&'static String, &'static Json)| {
        let aliases = aliases_of(property).map(|(alias, _)| alias);
        std::iter::once(name.as_str()).chain(aliases)
    };
    properties.flat_map(names).collect()
}

impl Tag {
    /// Returns the position of the variant with this value.
    pub(super) fn position(&self, value: &str) -> Option<usize> {
        self.words.iter().position(|word| *word == value)
    }

    /// Returns the values of the tag whose variants have this key.
    pub(super) fn values_with(&self, key: &str) -> Vec<&'static str> {
        let variants = self.words.iter().zip(&self.own_keys);
        variants.filter(|(_, keys)| keys.contains(&key)).map(|(word, _)| *word).collect()
    }
}

impl AllowedKeys {
    /// Returns the keys of several schemas together.
    fn of(
        compiler: &mut Compiler,
        schemas: impl Iterator<Item = &'static Json>,
        more: Option<Property>,
    ) -> Self {
        let (mut properties, mut required) = (Vec::new(), Vec::new());
        for schema in schemas {
            let own = schema.get("properties").and_then(Json::as_object).into_iter().flatten();
            properties.extend(own.map(|(name, property)| compiler.property(name, property)));
            let needed = schema.get("required").and_then(Json::as_array).into_iter().flatten();
            required.extend(needed.filter_map(Json::as_str));
        }
        // The name of a key takes precedence over the alias of another key.
        let mut positions = HashMap::new();
        for (position, property) in properties.iter().enumerate() {
            positions.entry(property.name).or_insert(position);
        }
        for (position, property) in properties.iter().enumerate() {
            for (alias, _) in &property.aliases {
                positions.entry(alias).or_insert(position);
            }
        }
        Self { properties, positions, more, required, tag_value: None }
    }

    /// Returns the property of a key. `key` is its name or one of its aliases.
    pub(super) fn find(&self, key: &str) -> Option<FoundKey<'_>> {
        match self.positions.get(key).and_then(|position| self.properties.get(*position)) {
            Some(property) => Some(FoundKey { name: Some(property.name), property }),
            None => Some(FoundKey { name: None, property: self.more.as_ref()? }),
        }
    }

    /// Returns a list of the possible keys, if there are few.
    pub(super) fn list(&self) -> Option<String> {
        let names: Vec<&str> = self.names().take(MAX_LISTED + 1).collect();
        (1..=MAX_LISTED).contains(&names.len()).then(|| format!("it is one of {}", one_of(names)))
    }

    pub(super) fn names(&self) -> impl Iterator<Item = &'static str> {
        self.properties.iter().flat_map(|property| {
            let aliases = property.aliases.iter().filter(|(_, old)| !old).map(|(alias, _)| *alias);
            std::iter::once(property.name).chain(aliases)
        })
    }
}

/// A key that is allowed.
#[derive(Clone, Copy)]
pub(super) struct FoundKey<'a> {
    /// Name of the key in the schema; none if the schema allows all keys here.
    pub name: Option<&'static str>,
    pub property: &'a Property,
}

/// Maximum number of keys in a message.
const MAX_LISTED: usize = 8;
