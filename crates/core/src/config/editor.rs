//! The schema for editors. Two things are expressed in plain JSON Schema: `x-partial`, which marks a value to which a
//! merge may add missing keys, and the aliases of keys. Editors ignore the other extensions of the schema.

use serde_json::{Map, Value, json};

use super::schema::{aliases_of, fleet_json, for_each_schema};

/// Returns the schema of a fleet file.
pub fn fleet_schema() -> Value {
    for_editors(fleet_json().clone())
}

/// Returns the schema of an agent's own file.
pub fn agent_schema() -> Value {
    let fleet = fleet_json();
    // An agent's own file is merged over defaults, so none of its keys is required.
    let mut schema = json!({ "$schema": fleet["$schema"], "title": "Agent", "$ref": "#/$defs/PartialAgent" });
    schema["$defs"] = fleet["$defs"].clone();
    for_editors(schema)
}

fn for_editors(mut root: Value) -> Value {
    add_partial_definitions(&mut root);
    for_each_schema(&mut root, &mut |schema| {
        if schema.remove("x-partial").is_some() {
            loosen(schema);
        }
    });
    for_each_schema(&mut root, &mut add_aliases);
    drop_unused_definitions(&mut root);
    root
}

/// Adds, for each definition, a copy that requires no keys, for places where a merge may add missing keys.
fn add_partial_definitions(root: &mut Value) {
    let mut whole = fleet_json().clone();
    let mut definitions = whole["$defs"].take();
    if let Some(whole) = whole.as_object_mut() {
        whole.remove("$defs");
        whole.remove("$schema");
    }
    definitions["FleetFile"] = whole;
    for (name, mut definition) in definitions.as_object().cloned().unwrap_or_default() {
        if let Some(definition) = definition.as_object_mut() {
            loosen(definition);
        }
        root["$defs"][format!("Partial{name}")] = definition;
    }
}

fn loosen(schema: &mut Map<String, Value>) {
    let mut value = Value::Object(std::mem::take(schema));
    for_each_schema(&mut value, &mut |schema| {
        schema.remove("required");
        schema.remove("x-partial");
        // Without its `type`, a value may be of any variant that its keys fit.
        if let Some(Value::Array(variants)) = schema.remove("oneOf") {
            add_any_of(schema, variants);
        }
        let reference = schema.get("$ref").and_then(Value::as_str).map(|reference| match reference {
            "#" => "#/$defs/PartialFleetFile".to_owned(),
            other => other.replace("#/$defs/", "#/$defs/Partial"),
        });
        if let Some(reference) = reference {
            schema.insert("$ref".to_owned(), reference.into());
        }
    });
    if let Value::Object(loose) = value {
        *schema = loose;
    }
}

/// Adds a property for each alias of a key. A required key can be written by any of its names.
fn add_aliases(schema: &mut Map<String, Value>) {
    let Some(properties) = schema.get("properties").and_then(Value::as_object) else { return };
    let mut keys = Vec::new();
    for (name, property) in properties {
        let aliases: Vec<_> = aliases_of(property).map(|(alias, old)| (alias.to_owned(), old)).collect();
        if !aliases.is_empty() {
            keys.push((name.clone(), property.clone(), aliases));
        }
    }
    for (name, property, aliases) in keys {
        let mut names = vec![name.clone()];
        for (alias, old) in aliases {
            schema["properties"][&alias] = alias_property(property.clone(), &name, old);
            names.push(alias);
        }
        if let Some(required) = schema.get_mut("required").and_then(Value::as_array_mut)
            && let Some(at) = required.iter().position(|required| *required == name)
        {
            required.remove(at);
            let one_of_them = names.iter().map(|name| json!({ "required": [name] })).collect();
            add_any_of(schema, one_of_them);
        }
    }
}

fn alias_property(mut property: Value, name: &str, old: bool) -> Value {
    if let Some(property) = property.as_object_mut() {
        property.insert("description".to_owned(), format!("The same as `{name}`.").into());
        property.remove("x-aliases");
        property.remove("x-old-names");
        if old {
            property.insert("deprecated".to_owned(), true.into());
        }
    }
    property
}

/// Adds an `anyOf`, in addition to an `anyOf` that the schema has.
fn add_any_of(schema: &mut Map<String, Value>, variants: Vec<Value>) {
    if !schema.contains_key("anyOf") {
        schema.insert("anyOf".to_owned(), variants.into());
        return;
    }
    let all = schema.entry("allOf").or_insert_with(|| Value::Array(Vec::new()));
    if let Some(all) = all.as_array_mut() {
        all.push(json!({ "anyOf": variants }));
    }
}

fn drop_unused_definitions(root: &mut Value) {
    let mut used = Vec::new();
    let mut body = root.clone();
    body["$defs"] = Value::Null;
    references(&mut body, &mut used);
    let mut next = 0;
    while let Some(name) = used.get(next).cloned() {
        references(&mut root["$defs"][name].clone(), &mut used);
        next += 1;
    }
    if let Some(definitions) = root["$defs"].as_object_mut() {
        definitions.retain(|name, _| used.contains(name));
    }
}

fn references(schema: &mut Value, used: &mut Vec<String>) {
    for_each_schema(schema, &mut |schema| {
        let name = schema.get("$ref").and_then(Value::as_str).and_then(|name| name.strip_prefix("#/$defs/"));
        used.extend(name.filter(|name| !used.iter().any(|used| used == name)).map(str::to_owned));
    });
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn schemas_for_editors_match_the_snapshot() {
        insta::assert_json_snapshot!("fleet_schema", fleet_schema());
        let agent = agent_schema();
        assert_eq!(agent["$defs"]["PartialAgent"], fleet_schema()["$defs"]["PartialAgent"]);
        assert!(agent["$defs"].get("Agent").is_none(), "definitions that are not used are removed");
    }

    #[test]
    fn each_required_key_can_be_written_by_any_of_its_names() {
        let required = |names: &[&str]| -> Value {
            names.iter().map(|name| json!({ "required": [name] })).collect::<Vec<_>>().into()
        };
        let schema = |own: Value| {
            let mut schema = json!({
                "properties": {
                    "kind": { "x-aliases": ["type"] },
                    "name": { "x-aliases": ["title"], "x-old-names": ["label"] },
                    "note": { "x-aliases": ["remark"] },
                    "size": {},
                },
                "required": ["name", "kind", "size"],
            });
            for (keyword, value) in own.as_object().unwrap() {
                schema[keyword] = value.clone();
            }
            add_aliases(schema.as_object_mut().unwrap());
            schema
        };
        let (of_kind, of_name) = (required(&["kind", "type"]), required(&["name", "title", "label"]));
        let own = json!({ "anyOf": [{ "required": ["note"] }], "allOf": [{ "minProperties": 1 }] });
        for (own, any, all) in [
            (json!({}), of_kind.clone(), json!([{ "anyOf": of_name }])),
            (
                own.clone(),
                own["anyOf"].clone(),
                json!([{ "minProperties": 1 }, { "anyOf": of_kind }, { "anyOf": of_name }]),
            ),
        ] {
            let schema = schema(own);
            assert_eq!(schema["required"], json!(["size"]));
            assert_eq!((&schema["anyOf"], &schema["allOf"]), (&any, &all));
            assert_eq!(schema["properties"]["label"]["deprecated"], true);
        }
    }

    #[test]
    fn a_partial_schema_keeps_its_own_alternatives() {
        let mut schema = json!({
            "oneOf": [{ "required": ["a"], "minProperties": 1 }],
            "anyOf": [{ "maxProperties": 9 }],
        });
        loosen(schema.as_object_mut().unwrap());
        let expected =
            json!({ "anyOf": [{ "maxProperties": 9 }], "allOf": [{ "anyOf": [{ "minProperties": 1 }] }] });
        assert_eq!(schema, expected);
    }
}
