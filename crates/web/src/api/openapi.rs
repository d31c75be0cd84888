//! The `OpenAPI` document, generated from the list of routes and their types.

use axum::Json;
use cowhand_core::id::{AgentName, JobId, ScheduleName, TokenName};
use cowhand_core::work::WorkItemId;
use schemars::generate::SchemaSettings;
use schemars::{Schema, SchemaGenerator, json_schema};
use serde_json::{Map, Value, json};

use super::problem::Details;
use super::route::{AnswerForm, Creates, JobAccess, Route, RouteAnswer};
use super::{BACKUP_PATH, Code, routes};
use cowhand_engine::fleet::PreparingFiring;

pub(super) async fn document() -> Json<Value> {
    Json(describe(&routes::all()))
}

/// Errors that any endpoint may return.
const COMMON_ERRORS: [Code; 11] = [
    Code::BadRequest,
    Code::Unauthorized,
    Code::Forbidden,
    Code::Misdirected,
    Code::TooLarge,
    Code::TooMany,
    Code::Unavailable,
    Code::StoreUnavailable,
    Code::Busy,
    Code::Stopping,
    Code::NoDaemon,
];

fn describe(routes: &[Route]) -> Value {
    let settings = || {
        let mut settings = SchemaSettings::draft2020_12();
        settings.definitions_path = "/components/schemas".into();
        settings.meta_schema = None;
        settings
    };
    // A field with a default is optional in a request and always present in an answer, so requests and answers have
    // different schemas.
    let mut request_schemas = settings().for_deserialize().into_generator();
    let mut answer_schemas = settings().for_serialize().into_generator();
    let mut paths = Map::new();
    for route in routes {
        let operation = operation(route, &mut request_schemas, &mut answer_schemas);
        let methods = paths.entry(route.path).or_insert_with(|| json!({}));
        methods[route.method.as_str().to_lowercase()] = operation;
    }
    let mut schemas = request_schemas.take_definitions(true);
    schemas.append(&mut answer_schemas.take_definitions(true));
    json!({
        "openapi": "3.1.0",
        "info": {
            "title": "cowhand",
            "version": env!("CARGO_PKG_VERSION"),
            "description": "The API of a fleet. It is the same over TCP and on the Unix socket in the state folder, \
                where no token is needed.",
        },
        "security": [{ "token": [] }],
        "paths": paths,
        "components": {
            "schemas": schemas,
            "securitySchemes": {
                "token": { "type": "http", "scheme": "bearer", "description": "`cowhand token create` creates a token." },
            },
        },
    })
}

fn operation(
    route: &Route,
    request_schemas: &mut SchemaGenerator,
    answer_schemas: &mut SchemaGenerator,
) -> Value {
    let mut parameters = path_parameters(route.path, request_schemas);
    parameters
        .extend(route.params.map(|params| query_parameters(&params(request_schemas))).into_iter().flatten());
    let mut operation = json!({
        "operationId": operation_id(route),
        "summary": route.about,
        "description": access(route),
        "parameters": parameters,
        "responses": responses(route, answer_schemas),
    });
    if let Some(body) = route.body {
        let schema = body(request_schemas);
        operation["requestBody"] = json!({ "content": { "application/json": { "schema": schema } } });
    }
    operation
}

/// Describes which tokens open an endpoint.
fn access(route: &Route) -> String {
    match route.job_access {
        JobAccess::No if route.path == BACKUP_PATH => {
            "Only on the owner's socket: every token is refused, whatever its scope.".to_owned()
        }
        JobAccess::No => format!("Needs the scope `{}`.", route.scope),
        JobAccess::Also => format!("Needs the scope `{}`, or the token of the job.", route.scope),
        JobAccess::Only => "Needs the token of the job.".to_owned(),
    }
}

/// Returns an id such as `get_jobs_job_output`.
fn operation_id(route: &Route) -> String {
    let path = route.path.trim_start_matches("/api/v1/").replace(['{', '}'], "").replace(['/', '.'], "_");
    format!("{}_{path}", route.method.as_str().to_lowercase())
}

fn path_parameters(path: &str, request_schemas: &mut SchemaGenerator) -> Vec<Value> {
    let names = path.split('/').filter_map(|part| part.strip_prefix('{')?.strip_suffix('}'));
    let parameter = |name| {
        let schema = match name {
            "agent" => request_schemas.subschema_for::<AgentName>(),
            "schedule" => request_schemas.subschema_for::<ScheduleName>(),
            "job" => request_schemas.subschema_for::<JobId>(),
            "item" => request_schemas.subschema_for::<WorkItemId>(),
            "name" => request_schemas.subschema_for::<TokenName>(),
            _ => json_schema!({ "type": "string" }),
        };
        json!({ "name": name, "in": "path", "required": true, "schema": schema })
    };
    names.map(parameter).collect()
}

/// Returns a parameter for each field.
fn query_parameters(schema: &Schema) -> Vec<Value> {
    let Some(Value::Object(fields)) = schema.get("properties").cloned() else { return Vec::new() };
    let parameter = |(name, mut schema): (String, Value)| {
        let description = schema.as_object_mut().and_then(|schema| schema.remove("description"));
        // An optional parameter in a query is left out and never `null`.
        if let Some(Value::Array(kinds)) = schema.get_mut("type") {
            kinds.retain(|kind| kind != "null");
        }
        if let Some(Value::Array(variants)) = schema.get_mut("anyOf") {
            variants.retain(|variant| variant["type"] != "null");
        }
        let mut parameter = json!({ "name": name, "in": "query", "schema": schema });
        if let Some(description) = description {
            parameter["description"] = description;
        }
        parameter
    };
    fields.into_iter().map(parameter).collect()
}

fn responses(route: &Route, answer_schemas: &mut SchemaGenerator) -> Map<String, Value> {
    let mut responses = Map::new();
    if let Some(answer) = &route.answer {
        let content = content(answer, answer_schemas);
        let response = |description| json!({ "description": description, "content": content });
        match answer.creates {
            Creates::Nothing => drop(responses.insert("200".into(), response("The requested data."))),
            Creates::Always => drop(responses.insert("201".into(), response("The object was created."))),
            Creates::OncePerKey | Creates::UnlessRepeated => {
                responses.insert("201".into(), response("The object was created."));
                responses.insert(
                    "200".into(),
                    response("An earlier request with the same key created the object."),
                );
            }
        }
        if answer.creates == Creates::UnlessRepeated {
            let content = json!({ "application/json": { "schema": answer_schemas.subschema_for::<PreparingFiring>() } });
            let description = "The firing is stored and has no job yet, because the daemon stops. The next daemon prepares it.";
            responses.insert("202".into(), json!({ "description": description, "content": content }));
        }
    }
    let problem = answer_schemas.subschema_for::<Details>();
    let mut codes: Vec<Code> = COMMON_ERRORS.iter().chain(route.refusals).copied().collect();
    codes.sort_by_key(|code| code.status());
    for same_status in codes.chunk_by(|one, other| one.status() == other.status()) {
        let names: Vec<String> = same_status.iter().map(|code| format!("`{}`", code.as_str())).collect();
        let content = json!({ "application/problem+json": { "schema": problem } });
        let response = json!({ "description": names.join(" or "), "content": content });
        responses.insert(same_status[0].status().as_u16().to_string(), response);
    }
    responses
}

fn content(answer: &RouteAnswer, answer_schemas: &mut SchemaGenerator) -> Value {
    let schema = (answer.schema)(answer_schemas);
    let lines = json!({ "schema": { "type": "string" } });
    match answer.form {
        AnswerForm::Json => json!({ "application/json": { "schema": schema } }),
        AnswerForm::Text => json!({ "text/plain": { "schema": schema } }),
        AnswerForm::Bytes(media_type) => json!({ media_type: {} }),
        AnswerForm::LinesIfRequested => json!({
            "application/json": { "schema": schema },
            "application/x-ndjson": lines,
            "text/event-stream": lines,
        }),
        AnswerForm::Lines => json!({
            "application/x-ndjson": { "schema": { "type": "string", "x-line": schema } },
            "text/event-stream": lines,
        }),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_openapi_document_matches_the_snapshot() {
        insta::assert_json_snapshot!(describe(&routes::all()));
    }

    #[test]
    fn every_endpoint_has_a_unique_id_and_a_description() {
        let routes = routes::all();
        let mut ids: Vec<String> = routes.iter().map(operation_id).collect();
        ids.sort();
        ids.dedup();
        assert_eq!(ids.len(), routes.len());
        for route in routes {
            assert!(route.about.ends_with('.') && route.answer.is_some(), "{}", route.path);
        }
    }
}
