//! Access to the API: a good token, and a scope that is enough for what is asked.

use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use axum::extract::{ConnectInfo, MatchedPath, Request, State};
use axum::http::{HeaderValue, Method, header};
use axum::middleware::Next;
use axum::response::{IntoResponse, Response};
use cowhand_core::server::Scope;
use tracing::warn;

use super::door::{announced, only};
use super::limit::Limit;
use crate::api::{self, Code, Problem, hash};
use crate::fleet::Fleet;

/// What axum reads of a body.
const MOST_BYTES: usize = 2 << 20;

#[derive(Debug, Clone)]
pub(super) struct Access {
    fleet: Arc<Fleet>,
    /// How often an address may be wrong. A good token is let in however often another was wrong: behind a proxy all
    /// have one address, and one program with an old token must not keep the others out.
    wrong: Arc<Limit>,
}

impl Access {
    pub(super) fn new(fleet: Arc<Fleet>) -> Self {
        Self { fleet, wrong: Arc::new(Limit::new(20, Duration::from_secs(3))) }
    }
}

pub(super) async fn check(
    State(access): State<Access>,
    ConnectInfo(peer): ConnectInfo<SocketAddr>,
    request: Request,
    next: Next,
) -> Result<Response, Response> {
    let given = only(request.headers(), "authorization").and_then(bearer);
    let token = match given {
        Some(token) => {
            let used = access.fleet.store().use_token(&hash(token), access.fleet.clock().now()).await;
            used.map_err(|error| Problem::from(error).into_response())?
        }
        None => None,
    };
    let Some(token) = token else {
        access.wrong.take(peer.ip()).map_err(IntoResponse::into_response)?;
        warn!(peer = %peer.ip(), "a request without a good token");
        return Err(unauthorized(given.is_some()));
    };
    let asked = request.extensions().get::<MatchedPath>().map(MatchedPath::as_str);
    let needed = needed(request.method(), asked.unwrap_or_default());
    if token.scope < needed {
        let message =
            format!("this needs the scope {needed}, and the token {} has {}", token.name, token.scope);
        return Err(Problem::new(Code::Forbidden, message).into_response());
    }
    // Said at once; what is not announced is cut off where it is read, at the same length.
    if announced(request.headers()).is_some_and(|bytes| bytes > MOST_BYTES) {
        let message = format!("a request has at most {MOST_BYTES} bytes");
        return Err(Problem::new(Code::TooLarge, message).into_response());
    }
    Ok(next.run(request).await)
}

fn bearer(value: &str) -> Option<&str> {
    let (scheme, token) = value.split_once(' ')?;
    scheme.eq_ignore_ascii_case("bearer").then_some(token.trim())
}

fn unauthorized(was_given: bool) -> Response {
    let message = if was_given {
        "the token is wrong, expired or revoked; `cowhand token create` makes a new one"
    } else {
        "this needs `Authorization: Bearer TOKEN`; `cowhand token create` makes a token"
    };
    let mut response = Problem::new(Code::Unauthorized, message).into_response();
    response.headers_mut().insert(header::WWW_AUTHENTICATE, HeaderValue::from_static("Bearer"));
    response
}

/// What is no endpoint needs what its method would.
fn needed(method: &Method, route: &str) -> Scope {
    api::scope(method, route).unwrap_or(match *method {
        Method::GET | Method::HEAD => Scope::Read,
        _ => Scope::Operate,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_needs_which_scope() {
        for (method, route, expected) in [
            (Method::GET, "/api/v1/status", Scope::Read),
            (Method::HEAD, "/api/v1/jobs", Scope::Read),
            (Method::GET, "", Scope::Read),
            (Method::POST, "", Scope::Operate),
            (Method::POST, "/api/v1/agents/{agent}/trigger", Scope::Operate),
            (Method::POST, "/api/v1/reload", Scope::Operate),
            (Method::PUT, "/api/v1/anything", Scope::Operate),
            (Method::DELETE, "/api/v1/anything", Scope::Operate),
            (Method::POST, "/api/v1/stop", Scope::Admin),
            (Method::POST, "/api/v1/prune", Scope::Admin),
            (Method::DELETE, "/api/v1/jobs/{job}", Scope::Admin),
            (Method::GET, "/api/v1/tokens", Scope::Admin),
            (Method::HEAD, "/api/v1/tokens", Scope::Admin),
            (Method::POST, "/api/v1/tokens/{name}/revoke", Scope::Admin),
        ] {
            assert_eq!(needed(&method, route), expected, "{method} {route}");
        }
    }

    #[test]
    fn what_is_a_bearer() {
        for (value, expected) in [
            ("Bearer cow_x", Some("cow_x")),
            ("bearer  cow_x ", Some("cow_x")),
            ("Basic cow_x", None),
            ("cow_x", None),
            ("Bearer", None),
        ] {
            assert_eq!(bearer(value), expected, "{value:?}");
        }
    }
}
