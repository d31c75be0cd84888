//! The keys that a schema allows in a map, and the variants and kinds of value that it allows.

use serde_json::Value as Json;

use super::schema::aliases_of;
use super::suggest::one_of;

/// Keys that a map may have.
#[derive(Default)]
pub(super) struct AllowedKeys {
    /// Schemas whose properties apply here.
    pub applicable: Vec<&'static Json>,
    /// All variants, if the tag (for example `type`) chose one of them; otherwise empty.
    pub variants: Vec<&'static Json>,
    /// The value of the tag that chose the variant, for example `cron`.
    pub tag_value: Option<&'static str>,
    /// The key of the tag, if its value names no variant. This error is already reported.
    pub wrong_tag_key: Option<&'static str>,
    /// Schema for the values of all other keys, if the map may have other keys.
    pub more: Option<&'static Json>,
    /// False if the tag chose no variant. `applicable` then contains the schemas of all variants.
    pub sure: bool,
}

impl AllowedKeys {
    fn properties(&self) -> impl Iterator<Item = (&'static String, &'static Json)> {
        self.applicable.iter().filter_map(|schema| schema.get("properties")?.as_object()).flatten()
    }

    /// Returns the name of a key in the schema, and its schema. `key` is this name or one of its aliases.
    pub(super) fn find<'a>(&self, key: &'a str) -> Option<(&'a str, &'static Json)>
    where
        'static: 'a,
    {
        let exact = self.applicable.iter().find_map(|schema| schema.get("properties")?.get(key));
        let by_alias = || {
            self.properties()
                .find(|(_, property)| aliases_of(property).any(|(alias, _)| alias == key))
                .map(|(name, property)| (name.as_str(), property))
        };
        exact.map(|property| (key, property)).or_else(by_alias).or_else(|| Some((key, self.more?)))
    }

    /// Returns the values of `type` whose variants have this key.
    pub(super) fn types_with(&self, key: &str) -> Vec<&'static str> {
        let has = |variant: &&&'static Json| {
            let properties = variant["properties"].as_object();
            properties
                .into_iter()
                .flatten()
                .any(|(name, property)| name == key || aliases_of(property).any(|(alias, _)| alias == key))
        };
        let variants = self.variants.iter().filter(has);
        variants
            .filter_map(|variant| {
                tag_key_of(&[variant]).and_then(|tag| variant["properties"][tag]["const"].as_str())
            })
            .collect()
    }

    /// Returns a list of the possible keys, if there are few.
    pub(super) fn list(&self) -> Option<String> {
        let names: Vec<&str> = self.names().take(MAX_LISTED + 1).collect();
        (1..=MAX_LISTED).contains(&names.len()).then(|| format!("it is one of {}", one_of(names)))
    }

    pub(super) fn names(&self) -> impl Iterator<Item = &'static str> {
        self.properties().flat_map(|(name, property)| {
            std::iter::once(name.as_str())
                .chain(aliases_of(property).filter(|(_, old)| !old).map(|(alias, _)| alias))
        })
    }
}

/// Maximum number of keys in a message.
const MAX_LISTED: usize = 8;

/// Returns the variants of a schema, without null.
pub(super) fn variants_of(schema: &'static Json) -> Vec<&'static Json> {
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
pub(super) fn is_open(schema: &Json) -> bool {
    !["type", "oneOf", "anyOf", "enum", "const"].iter().any(|keyword| schema.get(keyword).is_some())
}

/// Returns the kinds of value that a schema accepts. A schema without `type` accepts objects if a tag distinguishes its
/// variants. It accepts strings if all its variants are constants, or if it has no variants, only an `enum` or `const`.
/// For every other union, the list is empty: then each variant has its own kinds.
pub(super) fn kinds_of(schema: &'static Json) -> Vec<&'static str> {
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
