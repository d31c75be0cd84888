//! Extractors and checks for the parameters, paths and bodies of requests. They report every mistake as an
//! [`ApiProblem`].

use std::borrow::Cow;
use std::str::FromStr;

use axum::body::Bytes;
use axum::extract::{FromRequest, FromRequestParts, Query, Request};
use axum::http::StatusCode;
use axum::http::request::Parts;
use axum::middleware::Next;
use axum::response::Response;
use percent_encoding::percent_decode_str;
use schemars::{JsonSchema, Schema, SchemaGenerator, json_schema};
use serde::Deserialize;
use serde::de::DeserializeOwned;
use serde_json::Value;

use super::{ApiProblem, Code};

/// Query parameters.
pub(super) struct Params<T>(pub(super) T);

impl<T: DeserializeOwned, S: Send + Sync> FromRequestParts<S> for Params<T> {
    type Rejection = ApiProblem;

    async fn from_request_parts(parts: &mut Parts, state: &S) -> Result<Self, ApiProblem> {
        let query = Query::from_request_parts(parts, state).await;
        query.map(|Query(params)| Self(params)).map_err(|error| ApiProblem::bad_query(&error.body_text()))
    }
}

/// Flag: `1` or `true`, `0` or `false`; unset means false.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Deserialize)]
pub(super) enum Switch {
    #[default]
    #[serde(rename = "0", alias = "false")]
    Off,
    #[serde(rename = "1", alias = "true")]
    On,
}

impl Switch {
    pub(super) fn is_on(self) -> bool {
        self == Self::On
    }
}

impl JsonSchema for Switch {
    fn schema_name() -> Cow<'static, str> {
        "Switch".into()
    }

    fn json_schema(_: &mut SchemaGenerator) -> Schema {
        json_schema!({ "type": "string", "enum": ["0", "1", "false", "true"] })
    }
}

/// Number of entries of a list, from 1 to 1000.
#[derive(Debug, Clone, Copy, Deserialize, JsonSchema)]
#[serde(try_from = "u32")]
#[schemars(extend("minimum" = 1, "maximum" = 1000))]
pub(super) struct Count(u32);

impl Count {
    pub(super) const MAX_COUNT: u32 = 1000;

    pub(super) fn or(count: Option<Self>, default: u32) -> u32 {
        count.map_or(default, |Self(count)| count)
    }
}

impl TryFrom<u32> for Count {
    type Error = String;

    fn try_from(count: u32) -> Result<Self, String> {
        match count {
            1..=Self::MAX_COUNT => Ok(Self(count)),
            _ => Err(format!("{count} is not from 1 to {}", Self::MAX_COUNT)),
        }
    }
}

/// JSON body; an empty body means the defaults.
pub(super) struct JsonBody<T>(pub(super) T);

impl<T: DeserializeOwned + Default, S: Send + Sync> FromRequest<S> for JsonBody<T> {
    type Rejection = ApiProblem;

    async fn from_request(request: Request, state: &S) -> Result<Self, ApiProblem> {
        let bytes = read_body(request, state).await?;
        if bytes.is_empty() {
            return Ok(Self(T::default()));
        }
        // Serde would also accept an array, and assign its elements to the fields in order.
        if bytes.trim_ascii_start().first() != Some(&b'{') {
            return Err(ApiProblem::bad_request("the body has to be a JSON object"));
        }
        serde_json::from_slice(&bytes).map(Self).map_err(|error| ApiProblem::bad_request(error.to_string()))
    }
}

/// Largest body of a request, in bytes. It is the default of `DefaultBodyLimit`.
pub(crate) const MAX_BODY_BYTES: usize = 2 << 20;

/// Largest body of a request of a job, in bytes.
pub(crate) const MAX_JOB_BODY_BYTES: usize = 1 << 20;

/// Extension of a request whose body has another limit than [`MAX_BODY_BYTES`].
#[derive(Debug, Clone, Copy)]
pub(crate) struct BodyLimit(pub(crate) usize);

/// Builds the problem for a body that is larger than `limit`.
pub(crate) fn too_large(limit: usize) -> ApiProblem {
    let message = format!(
        "a request has at most {limit} bytes; put a longer text into a file that the agent can read, and name the file \
         instead"
    );
    ApiProblem::new(Code::TooLarge, message)
}

async fn read_body<S: Send + Sync>(request: Request, state: &S) -> Result<Bytes, ApiProblem> {
    let limit = request.extensions().get().map_or(MAX_BODY_BYTES, |BodyLimit(limit)| *limit);
    Bytes::from_request(request, state).await.map_err(|error| match error.status() {
        StatusCode::PAYLOAD_TOO_LARGE => too_large(limit),
        _ => ApiProblem::bad_request(error.body_text()),
    })
}

/// Builds the problem for a method that the endpoint does not have.
pub async fn method_not_allowed() -> ApiProblem {
    ApiProblem::new(Code::BadMethod, "this endpoint does not support this method")
}

/// Refuses a path that is not UTF-8 after percent-decoding.
pub async fn require_utf8_path(request: Request, next: Next) -> Result<Response, ApiProblem> {
    match percent_decode_str(request.uri().path()).decode_utf8() {
        Ok(_) => Ok(next.run(request).await),
        Err(_) => Err(ApiProblem::bad_request("the path is not UTF-8 after percent-decoding")),
    }
}

/// Refuses a body with content. White space, `null` and `{}` count as an empty body.
pub(super) async fn require_empty_body(request: Request) -> Result<(), ApiProblem> {
    #[derive(Deserialize)]
    #[serde(deny_unknown_fields)]
    struct EmptyObject {}
    let bytes = read_body(request, &()).await?;
    let is_empty = match bytes.trim_ascii() {
        b"" | b"null" => true,
        object => object.starts_with(b"{") && serde_json::from_slice::<EmptyObject>(object).is_ok(),
    };
    if is_empty { Ok(()) } else { Err(ApiProblem::bad_request("this endpoint takes no body")) }
}

/// Returns the number of the attempt that makes a request. Refuses 0, which means that the field is missing.
pub(super) fn require_attempt(number: u32) -> Result<u32, ApiProblem> {
    if number == 0 {
        let message =
            "the field `attempt` is missing: the number of the attempt that sends the request, from 1";
        return Err(ApiProblem::bad_request(message));
    }
    Ok(number)
}

/// Returns a transform that marks fields as required in the schema. The types have defaults for these fields, so that
/// the handler itself can report a missing field with a clear message.
pub(super) fn require_fields<const N: usize>(fields: [&'static str; N]) -> impl FnMut(&mut Schema) {
    move |schema| {
        for field in fields {
            let property = schema.pointer_mut(&format!("/properties/{field}")).and_then(Value::as_object_mut);
            property.map(|property| property.remove("default"));
        }
        schema.insert("required".to_owned(), fields.to_vec().into());
    }
}

/// Extension of a request that a page of the dashboard sent. The access check sets it.
#[derive(Debug, Clone, Copy)]
pub struct ByPage;

/// Parses a name or an id from a path.
pub(super) fn parse_name<T>(text: &str) -> Result<T, ApiProblem>
where
    T: FromStr,
    T::Err: std::fmt::Display,
{
    text.parse().map_err(|error: T::Err| ApiProblem::bad_request(error.to_string()))
}
