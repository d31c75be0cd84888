//! Access control of the server: the API and the metrics need a valid token with a sufficient scope.

use std::net::{IpAddr, SocketAddr};
use std::sync::Arc;
use std::time::Duration;

use axum::extract::{ConnectInfo, MatchedPath, Request, State};
use axum::http::{HeaderMap, HeaderValue, Method, header};
use axum::middleware::Next;
use axum::response::{IntoResponse, Response};
use cowhand_core::actor::Actor;
use cowhand_core::server::Scope;
use tracing::warn;

use super::origin_check::{announced_length, single_header};
use super::rate_limit::RateLimit;
use crate::api::{self, Api, ApiProblem, ByPage, Code, MAX_BODY_BYTES, RequestedEndpoint, hash};
use cowhand_engine::fleet::Fleet;
use cowhand_engine::state::StoreMark;
use cowhand_store::{TokenRecord, audit, is_postgres};
use cowhand_system::digest::sha256;

#[derive(Debug, Clone)]
pub struct Access {
    api: Api,
    fleet: Arc<Fleet>,
    /// Limit on requests without a valid token, for each address. A valid token is accepted even above the limit:
    /// behind a proxy, all clients have one address, and a program with an old token must not block the others.
    failures: Arc<RateLimit>,
    /// Name of the cookie with the token of a browser ([`cookie_name`]).
    cookie: Arc<str>,
}

/// Caller of a request.
#[derive(Debug)]
pub enum Caller {
    Known {
        token: TokenRecord,
        /// Set if the token came in a cookie.
        by_page: bool,
    },
    Unknown {
        /// Set if the request had a token or a cookie that is not valid.
        has_token: bool,
    },
}

/// Reason why a request is refused while its caller is identified.
#[derive(Debug)]
pub enum CallerRefused {
    /// The address has made too many requests without a valid token.
    TooMany(Response),
    Problem(ApiProblem),
}

impl From<ApiProblem> for CallerRefused {
    fn from(problem: ApiProblem) -> Self {
        Self::Problem(problem)
    }
}

impl IntoResponse for CallerRefused {
    fn into_response(self) -> Response {
        match self {
            Self::TooMany(response) => response,
            Self::Problem(problem) => problem.into_response(),
        }
    }
}

/// Header that a request with a cookie needs if it changes something. A form of another site cannot set it.
pub(super) const OWN_PAGE_HEADER: &str = "x-cowhand";

impl Access {
    pub(super) fn new(api: Api, fleet: Arc<Fleet>) -> Self {
        let failures = Arc::new(RateLimit::new(20, Duration::from_secs(3)));
        let cookie = cookie_name(fleet.store_mark()).into();
        Self { api, fleet, failures, cookie }
    }

    pub fn cookie(&self) -> &str {
        &self.cookie
    }

    /// Identifies the caller by the token in `Authorization`, else by the token in the cookie. Refuses unknown callers
    /// above the rate limit, and requests that a page of another site may have caused.
    pub async fn caller(
        &self,
        peer: IpAddr,
        method: &Method,
        headers: &HeaderMap,
    ) -> Result<Caller, CallerRefused> {
        let bearer = single_header(headers, "authorization").and_then(bearer_token);
        let from_cookie = if bearer.is_none() { cookie_value(headers, &self.cookie) } else { None };
        let token = bearer.or(from_cookie);
        let record = match token {
            Some(token) => self.fleet.store().use_token(&hash(token), self.fleet.clock().now()).await,
            None => Ok(None),
        };
        let Some(record) = record.map_err(ApiProblem::from)? else {
            self.failures.take(peer).map_err(|refusal| CallerRefused::TooMany(refusal.into_response()))?;
            warn!(%peer, "a request without a valid token");
            return Ok(Caller::Unknown { has_token: token.is_some() });
        };
        if from_cookie.is_some() && !method.is_safe() && single_header(headers, OWN_PAGE_HEADER) != Some("1")
        {
            let message = format!("with a cookie, this needs the header `{OWN_PAGE_HEADER}: 1`");
            return Err(ApiProblem::new(Code::Forbidden, message).into());
        }
        Ok(Caller::Known { token: record, by_page: from_cookie.is_some() })
    }
}

pub(super) async fn check(
    State(access): State<Access>,
    ConnectInfo(peer): ConnectInfo<SocketAddr>,
    mut request: Request,
    next: Next,
) -> Result<Response, Response> {
    if let Some(token) = api::job_token_in(request.headers()).map(str::to_owned) {
        let admitted = access.api.admit(&token, RequestedEndpoint::of(&request)).await;
        let job = match admitted {
            Ok(job) => job,
            Err(problem) => {
                if problem.code == Code::Unauthorized {
                    access.failures.take(peer.ip()).map_err(IntoResponse::into_response)?;
                }
                return Err(problem.into_response());
            }
        };
        return Ok(audit::by(job, next.run(request)).await);
    }
    let caller = access.caller(peer.ip(), request.method(), request.headers()).await;
    let (token, by_page) = match caller.map_err(IntoResponse::into_response)? {
        Caller::Known { token, by_page } => (token, by_page),
        Caller::Unknown { has_token } => return Err(unauthorized(has_token)),
    };
    let route = request.extensions().get::<MatchedPath>().map(MatchedPath::as_str);
    let needed = needed_scope(request.method(), route.unwrap_or_default());
    if token.scope < needed {
        let message = if route == Some(api::BACKUP_PATH) {
            api::ONLY_FOR_OWNER.to_owned()
        } else if api::is_only_for_jobs(request.method(), route.unwrap_or_default()) {
            api::ONLY_FOR_JOBS.to_owned()
        } else {
            let (name, scope) = (&token.name, token.scope);
            format!("the request needs the scope {needed}; the token {name} has the scope {scope}")
        };
        return Err(ApiProblem::new(Code::Forbidden, message).into_response());
    }
    // A body whose announced length is too large is refused here. A body without an announced length is limited to the
    // same length while it is read.
    if announced_length(request.headers()).is_some_and(|bytes| bytes > MAX_BODY_BYTES) {
        return Err(api::too_large(MAX_BODY_BYTES).into_response());
    }
    if by_page {
        request.extensions_mut().insert(ByPage);
    }
    let actor = Actor::Token { name: token.name, from: peer.ip(), browser: by_page };
    Ok(audit::by(actor, next.run(request)).await)
}

fn bearer_token(value: &str) -> Option<&str> {
    let (scheme, token) = value.split_once(' ')?;
    scheme.eq_ignore_ascii_case("bearer").then_some(token.trim())
}

/// Returns the name of the cookie of a fleet. A browser sends a cookie to every port of a host, so two fleets on one
/// machine need different names. The port is not part of the name, because the port may change with each start. Nodes
/// that share a store have the same name, because the token is valid on each of them.
fn cookie_name(store: &StoreMark) -> String {
    // A copy of a state folder has the same store id, but another path.
    let place = if is_postgres(&store.location) { "" } else { &store.location };
    let name: String = sha256(format!("{} {place}", store.id)).chars().take(12).collect();
    format!("cowhand-{name}")
}

/// Returns the value of the only cookie of this name; none if there is no such cookie, or more than one.
fn cookie_value<'h>(headers: &'h HeaderMap, name: &str) -> Option<&'h str> {
    let lines = headers.get_all(header::COOKIE).iter().filter_map(|line| line.to_str().ok());
    let pairs = lines.flat_map(|line| line.split(';')).filter_map(|pair| pair.trim().split_once('='));
    let mut values = pairs.filter(|(key, _)| *key == name).map(|(_, value)| value);
    let (first, second) = (values.next()?, values.next());
    if second.is_some() { None } else { Some(first) }
}

fn unauthorized(has_token: bool) -> Response {
    let message = if has_token {
        "the token is wrong, expired or revoked; `cowhand token create` makes a new one"
    } else {
        "this needs `Authorization: Bearer TOKEN`; `cowhand token create` makes a token"
    };
    let mut response = ApiProblem::new(Code::Unauthorized, message).into_response();
    response.headers_mut().insert(header::WWW_AUTHENTICATE, HeaderValue::from_static("Bearer"));
    response
}

/// Returns the scope for a route. A path without an endpoint needs `read` for GET and HEAD, and `operate` for other
/// methods.
fn needed_scope(method: &Method, route: &str) -> Scope {
    api::scope(method, route).unwrap_or(match *method {
        Method::GET | Method::HEAD => Scope::Read,
        _ => Scope::Operate,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_endpoint_needs_its_scope() {
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
            (Method::POST, "/api/v1/login", Scope::Admin),
            (Method::DELETE, "/api/v1/jobs/{job}", Scope::Admin),
            (Method::GET, "/api/v1/tokens", Scope::Admin),
            (Method::HEAD, "/api/v1/tokens", Scope::Admin),
            (Method::POST, "/api/v1/tokens/{name}/revoke", Scope::Admin),
        ] {
            assert_eq!(needed_scope(&method, route), expected, "{method} {route}");
        }
    }

    #[test]
    fn bearer_tokens_are_parsed() {
        for (value, expected) in [
            ("Bearer cow_x", Some("cow_x")),
            ("bearer  cow_x ", Some("cow_x")),
            ("Basic cow_x", None),
            ("cow_x", None),
            ("Bearer", None),
        ] {
            assert_eq!(bearer_token(value), expected, "{value:?}");
        }
    }

    #[test]
    fn each_fleet_on_a_machine_has_its_own_cookie() {
        let mark = |id: &str, location: &str| -> StoreMark {
            serde_json::from_value(serde_json::json!({ "id": id, "location": location })).unwrap()
        };
        let names = [
            mark("one", "/a/.cowhand/store.db"),
            mark("two", "/b/.cowhand/store.db"),
            mark("one", "/copy/.cowhand/store.db"),
            mark("three", "postgres://db/a"),
        ]
        .map(|mark| cookie_name(&mark));
        for (number, name) in names.iter().enumerate() {
            assert!(name.len() == 20 && name.starts_with("cowhand-"), "{name}");
            assert!(!names[..number].contains(name), "{names:?}");
        }
        assert_eq!(
            cookie_name(&mark("three", "postgresql://127.0.0.1/a")),
            names[3],
            "another node of the same fleet"
        );
    }

    #[test]
    fn the_cookie_of_the_fleet_is_found() {
        for (lines, expected) in [
            (&["cowhand-1=a"][..], Some("a")),
            (&["x=1; cowhand-1=a; cowhand-2=b"], Some("a")),
            (&["x=1", "cowhand-1=a"], Some("a")),
            (&["cowhand-1=a; cowhand-1=b"], None),
            (&["cowhand-1=a", "cowhand-1=b"], None),
            (&["xcowhand-1=a; cowhand-12=b; cowhand-1"], None),
            (&[], None),
        ] {
            let mut headers = HeaderMap::new();
            for line in lines {
                headers.append(header::COOKIE, line.parse().unwrap());
            }
            assert_eq!(cookie_value(&headers, "cowhand-1"), expected, "{lines:?}");
        }
    }
}
