//! What a request brings, read so that a mistake in it is answered in our one shape.

use std::str::FromStr;

use axum::body::Bytes;
use axum::extract::{FromRequest, FromRequestParts, Query, Request};
use axum::http::StatusCode;
use axum::http::request::Parts;
use schemars::JsonSchema;
use serde::Deserialize;
use serde::de::DeserializeOwned;

use super::{Code, Problem};

/// What stands behind the `?`.
pub(super) struct Params<T>(pub(super) T);

impl<T: DeserializeOwned, S: Send + Sync> FromRequestParts<S> for Params<T> {
    type Rejection = Problem;

    async fn from_request_parts(parts: &mut Parts, state: &S) -> Result<Self, Problem> {
        let query = Query::from_request_parts(parts, state).await;
        query.map(|Query(params)| Self(params)).map_err(|error| Problem::bad_request(error.body_text()))
    }
}

/// `1` or `true`, `0` or `false`; unset means no.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Deserialize, JsonSchema)]
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

/// A JSON body; none at all means that nothing special is asked for.
pub(super) struct Given<T>(pub(super) T);

impl<T: DeserializeOwned + Default, S: Send + Sync> FromRequest<S> for Given<T> {
    type Rejection = Problem;

    async fn from_request(request: Request, state: &S) -> Result<Self, Problem> {
        let bytes = Bytes::from_request(request, state).await;
        let bytes = bytes.map_err(|error| match error.status() {
            StatusCode::PAYLOAD_TOO_LARGE => Problem::new(Code::TooLarge, error.body_text()),
            _ => Problem::bad_request(error.body_text()),
        })?;
        if bytes.is_empty() {
            return Ok(Self(T::default()));
        }
        serde_json::from_slice(&bytes).map(Self).map_err(|error| Problem::bad_request(error.to_string()))
    }
}

/// A name or an id from an address.
pub(super) fn named<T>(text: &str) -> Result<T, Problem>
where
    T: FromStr,
    T::Err: std::fmt::Display,
{
    text.parse().map_err(|error: T::Err| Problem::bad_request(error.to_string()))
}
