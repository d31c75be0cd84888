//! Refuses requests that name another host or come from a page of another site.
//!
//! A page of another site can make a browser send requests to a server on this machine: with a host name that resolves
//! to this machine, or with a form. The header `Host` shows the first case, and `Origin` the second. Answers have no
//! CORS headers, so no page of another site can read them.

use std::sync::Arc;

use axum::extract::{Request, State};
use axum::http::{HeaderMap, Uri};
use axum::middleware::Next;
use axum::response::Response;
use cowhand_core::server::ServerConfig as Settings;

use crate::api::{ApiProblem, Code};

pub(super) async fn check(
    State(settings): State<Arc<Settings>>,
    request: Request,
    next: Next,
) -> Result<Response, ApiProblem> {
    check_origin(&settings, request.uri(), request.headers())?;
    Ok(next.run(request).await)
}

fn check_origin(settings: &Settings, uri: &Uri, headers: &HeaderMap) -> Result<(), ApiProblem> {
    let host = single_header(headers, "host").filter(|host| settings.is_named(host));
    // A request may also name its host in the URI.
    let is_own_authority = uri.authority().is_none_or(|authority| settings.is_named(authority.as_str()));
    let Some(host) = host.filter(|_| is_own_authority) else {
        let message =
            "this server does not accept that host name; add it to `server.allowed_hosts` in the config";
        return Err(ApiProblem::new(Code::Misdirected, message));
    };
    if headers.contains_key("origin") {
        let origin = single_header(headers, "origin").unwrap_or_default();
        let origin = origin.strip_prefix("http://").or_else(|| origin.strip_prefix("https://"));
        if origin.is_none_or(|origin| !origin.eq_ignore_ascii_case(host)) {
            return Err(ApiProblem::new(Code::Forbidden, "requests from pages of other sites are refused"));
        }
    }
    Ok(())
}

/// Returns the value of a header; none if the header is missing, occurs several times, or is not text.
pub(super) fn single_header<'h>(headers: &'h HeaderMap, name: &str) -> Option<&'h str> {
    let mut values = headers.get_all(name).iter();
    let (first, second) = (values.next()?, values.next());
    if second.is_some() { None } else { first.to_str().ok() }
}

/// Returns the length of the body in bytes that `Content-Length` announces; none if that header is missing or wrong.
pub(super) fn announced_length(headers: &HeaderMap) -> Option<usize> {
    single_header(headers, "content-length")?.parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn requests_for_other_hosts_or_from_other_origins_are_refused() {
        let settings = Settings { allowed_hosts: vec!["fleet.org".into()], ..Settings::default() };
        let own_host = "127.0.0.1:3232";
        for (uri, hosts, origins, expected) in [
            ("/", &[own_host][..], &[][..], None),
            ("/", &["fleet.org"], &["https://fleet.org"], None),
            ("/", &[own_host], &["http://127.0.0.1:3232"], None),
            ("http://fleet.org/x", &["fleet.org"], &[], None),
            ("/", &[], &[], Some(Code::Misdirected)),
            ("/", &[""], &[], Some(Code::Misdirected)),
            ("/", &["evil.org"], &[], Some(Code::Misdirected)),
            ("/", &[own_host, "evil.org"], &[], Some(Code::Misdirected)),
            ("http://evil.org/", &[own_host], &[], Some(Code::Misdirected)),
            ("/", &[own_host], &["null"], Some(Code::Forbidden)),
            ("/", &[own_host], &[""], Some(Code::Forbidden)),
            ("/", &[own_host], &["http://evil.org"], Some(Code::Forbidden)),
            // A page of another program on the same machine.
            ("/", &[own_host], &["http://127.0.0.1:8080"], Some(Code::Forbidden)),
            ("/", &[own_host], &["http://127.0.0.1:3232", "http://evil.org"], Some(Code::Forbidden)),
            ("/", &[own_host], &["ftp://127.0.0.1:3232"], Some(Code::Forbidden)),
        ] {
            let mut headers = HeaderMap::new();
            for host in hosts {
                headers.append("host", host.parse().unwrap());
            }
            for origin in origins {
                headers.append("origin", origin.parse().unwrap());
            }
            let refused = check_origin(&settings, &uri.parse().unwrap(), &headers).err();
            assert_eq!(refused.map(|problem| problem.code), expected, "{uri} {hosts:?} {origins:?}");
        }
    }
}
