//! The JSON Schema of the config, generated once from the shapes.

use std::sync::LazyLock;

use schemars::generate::SchemaSettings;
use serde_json::{Map, Value};

use super::schema_node::{Compiler, SchemaNode, SchemaRef};
use crate::shape::FleetFile;

/// The schema of a fleet file as JSON.
static FLEET: LazyLock<Value> = LazyLock::new(|| {
    let generator = SchemaSettings::draft2020_12().into_generator();
    let mut fleet = generator.into_root_schema_for::<FleetFile>().to_value();
    for_each_schema(&mut fleet, &mut close);
    fleet
});

/// The schema that the checker uses.
pub(super) static SCHEMA: LazyLock<ConfigSchema> = LazyLock::new(ConfigSchema::generate);

#[derive(Debug)]
pub(super) struct ConfigSchema {
    nodes: Vec<SchemaNode>,
    /// Schema of a fleet file.
    pub fleet: SchemaRef,
    pub agent: SchemaRef,
    pub schedule: SchemaRef,
}

impl ConfigSchema {
    fn generate() -> Self {
        let mut compiler = Compiler::new(&FLEET);
        let fleet = compiler.node(&FLEET);
        let agent = compiler.node(&FLEET["$defs"]["Agent"]);
        let schedule = compiler.node(&FLEET["$defs"]["Schedule"]);
        Self { nodes: compiler.finish(), fleet, agent, schedule }
    }

    pub(super) fn nodes(&self) -> &[SchemaNode] {
        &self.nodes
    }
}

/// Returns the schema of a fleet file as JSON.
pub(super) fn fleet_json() -> &'static Value {
    &FLEET
}

/// Closes an object, so that it accepts no other keys than its own.
fn close(schema: &mut Map<String, Value>) {
    // A variant of a flattened union does not list the keys of the object that contains the union. If the variant were closed, it would refuse these keys. Therefore only the containing object is closed.
    if schema.remove(FLATTENED).is_some() {
        schema.remove("additionalProperties");
        return;
    }
    let open = !schema.contains_key("additionalProperties") && !schema.contains_key("unevaluatedProperties");
    if open && schema.contains_key("properties") {
        let keyword =
            if schema.contains_key("oneOf") { "unevaluatedProperties" } else { "additionalProperties" };
        schema.insert(keyword.to_owned(), Value::Bool(false));
    }
    if schema.contains_key("properties") {
        for variant in schema.get_mut("oneOf").and_then(Value::as_array_mut).into_iter().flatten() {
            variant[FLATTENED] = Value::Bool(true);
        }
    }
}

/// Temporary key of the variants that are flattened into an object; removed when the variants are visited.
const FLATTENED: &str = "x-flattened";

/// Returns the other names of a property, and whether they are old names.
pub(super) fn aliases_of(property: &Value) -> impl Iterator<Item = (&str, bool)> {
    [("x-aliases", false), ("x-old-names", true)].into_iter().flat_map(|(keyword, old)| {
        let names = property.get(keyword).and_then(Value::as_array).into_iter().flatten();
        names.filter_map(Value::as_str).map(move |name| (name, old))
    })
}

/// Visits all schemas, parents before children.
pub(super) fn for_each_schema(schema: &mut Value, visit: &mut dyn FnMut(&mut Map<String, Value>)) {
    let Some(object) = schema.as_object_mut() else { return };
    visit(object);
    for (keyword, value) in object {
        match keyword.as_str() {
            "$defs" | "properties" => {
                let below = value.as_object_mut().into_iter().flat_map(|below| below.values_mut());
                below.for_each(|schema| for_each_schema(schema, visit));
            }
            "oneOf" | "anyOf" | "allOf" => {
                let below = value.as_array_mut().into_iter().flatten();
                below.for_each(|schema| for_each_schema(schema, visit));
            }
            "items" | "additionalProperties" => for_each_schema(value, visit),
            _ => {}
        }
    }
}

#[cfg(test)]
mod tests {
    use regex::Regex;

    use super::*;
    use crate::config::schema_node::follow;

    /// All keywords that the checker enforces, and the annotations that it does not enforce.
    const KNOWN_KEYWORDS: [&str; 34] = [
        "$ref",
        "$defs",
        "$schema",
        "type",
        "properties",
        "required",
        "additionalProperties",
        "unevaluatedProperties",
        "items",
        "enum",
        "const",
        "oneOf",
        "anyOf",
        "minimum",
        "maximum",
        "exclusiveMinimum",
        "minLength",
        "minItems",
        "pattern",
        "format",
        "x-aliases",
        "x-old-names",
        "x-secret",
        "x-address",
        "x-path",
        "x-herdctl",
        "x-partial",
        "x-fleet-only",
        "x-strict",
        "x-short-for",
        "title",
        "description",
        "default",
        "examples",
    ];

    #[test]
    fn the_checker_understands_every_keyword() {
        let mut fleet = FLEET.clone();
        for_each_schema(&mut fleet, &mut |schema| {
            for keyword in schema.keys() {
                assert!(KNOWN_KEYWORDS.contains(&keyword.as_str()), "{keyword} in {schema:?}");
            }
        });
    }

    /// Two types that are a text or a map have no `x-short-for`, because they are not merged as maps: plugins are items
    /// of a list, and `network: off` is not short for any map.
    #[test]
    fn every_value_that_is_short_for_a_map_is_marked() {
        let is_a = |schema: &Value, kind: &str| {
            let schema = follow(&FLEET, schema);
            schema.get("type").is_some_and(|own| own == kind)
                || schema
                    .get("oneOf")
                    .is_some_and(|words| words[0].get("const").is_some() && kind == "string")
        };
        let unmarked = FLEET["$defs"].as_object().unwrap().iter().filter(|(_, schema)| {
            let variants = schema.get("anyOf").and_then(Value::as_array).cloned().unwrap_or_default();
            let has = |kind| variants.iter().any(|variant| is_a(variant, kind));
            has("string") && has("object") && schema.get("x-short-for").is_none()
        });
        let unmarked: Vec<&str> = unmarked.map(|(name, _)| name.as_str()).collect();
        assert_eq!(unmarked, ["Plugin", "Network"]);
    }

    #[test]
    fn every_pattern_and_format_is_known() {
        let mut fleet = FLEET.clone();
        for_each_schema(&mut fleet, &mut |schema| {
            if let Some(pattern) = schema.get("pattern") {
                assert!(Regex::new(pattern.as_str().unwrap()).is_ok(), "{pattern}");
            }
            if let Some(format) = schema.get("format").and_then(Value::as_str) {
                assert!(super::super::format::is_known(format), "{format}");
            }
        });
    }
}
