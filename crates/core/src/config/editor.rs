//! The schema for editors: `x-partial` and the aliases of keys are expressed in plain JSON Schema. Editors ignore the
//! other schema extensions.

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

/// Adds a copy of each definition without required keys, for places where a merge may add missing keys.
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
        if let Some(variants) = schema.remove("oneOf") {
            schema.insert("anyOf".to_owned(), variants);
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

/// Adds a property for each alias of a key.
fn add_aliases(schema: &mut Map<String, Value>) {
    let Some(properties) = schema.get("properties").and_then(Value::as_object) else { return };
    let mut aliases = Vec::new();
    for (name, property) in properties {
        for (alias, old) in aliases_of(property) {
            aliases.push((name.clone(), alias.to_owned(), old, property.clone()));
        }
    }
    for (name, alias, old, property) in aliases {
        add_alias(schema, &name, &alias, old, property);
    }
}

fn add_alias(schema: &mut Map<String, Value>, name: &str, alias: &str, old: bool, mut property: Value) {
    if let Some(property) = property.as_object_mut() {
        property.insert("description".to_owned(), format!("The same as `{name}`.").into());
        property.remove("x-aliases");
        property.remove("x-old-names");
        if old {
            property.insert("deprecated".to_owned(), true.into());
        }
    }
    schema["properties"][alias] = property;
    if let Some(required) = schema.get_mut("required").and_then(Value::as_array_mut) {
        let before = required.len();
        required.retain(|required| required != name);
        if required.len() < before {
            schema.insert("anyOf".to_owned(), json!([{ "required": [name] }, { "required": [alias] }]));
        }
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
}
