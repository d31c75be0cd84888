//! Advice on what to check when GitHub refuses a request: the repository, the token, and the permissions that the token
//! needs.

use super::client::ApiRequest;
use super::response::ApiResponse;
use crate::error::github::TokenFacts;

/// Reads facts about the token from an answer that refuses a request, and adds advice. `origin` says in messages where
/// the token comes from.
pub(super) fn read(call: &ApiRequest, reply: &ApiResponse, repo: &str, origin: &str) -> TokenFacts {
    let scopes = reply.header("x-oauth-scopes").map(words);
    // A request that names no repository is about the account.
    let about_repo = call.path.starts_with("repos/");
    let advice = match reply.status {
        401 => Some(format!(
            "{origin} was refused for {repo}: check that it is whole, has not expired and was not revoked"
        )),
        403 => Some(forbidden(reply, scopes.as_deref(), repo, origin)),
        404 if about_repo => Some(unseen(scopes.as_deref(), repo, origin)),
        _ => None,
    };
    TokenFacts { scopes, advice }
}

/// Splits a header at its commas and leaves out empty parts.
pub(super) fn words(header: &str) -> Vec<String> {
    header.split(',').map(|word| word.trim().to_owned()).filter(|word| !word.is_empty()).collect()
}

fn forbidden(reply: &ApiResponse, scopes: Option<&[String]>, repo: &str, origin: &str) -> String {
    if reply.header("x-github-sso").is_some_and(|header| header.starts_with("required")) {
        return format!(
            "the organization of {repo} requires single sign-on; authorize {origin} with `Configure SSO` in the \
             list of your tokens"
        );
    }
    let accepted = reply.header("x-accepted-oauth-scopes").map(words).unwrap_or_default();
    if let Some(found) = scopes
        && !accepted.is_empty()
        && !accepted.iter().any(|scope| found.contains(scope))
    {
        return format!(
            "{origin} has the scopes {} and needs one of {} for {repo}",
            listed(found),
            accepted.join(", ")
        );
    }
    let needed = reply.header("x-accepted-github-permissions").map(|needed| format!(" ({needed})"));
    format!(
        "{origin} may not do this in {repo}: check that it may read and write issues there{}",
        needed.unwrap_or_default()
    )
}

fn unseen(scopes: Option<&[String]>, repo: &str, origin: &str) -> String {
    let lacks = scopes.filter(|found| !found.iter().any(|scope| scope == "repo"));
    let lacks =
        lacks.map(|found| format!("; its scopes are {}, and a private repository needs repo", listed(found)));
    format!(
        "there is no {repo}, or {origin} cannot see it: check the name, and that it was given access to this repository{}",
        lacks.unwrap_or_default()
    )
}

fn listed(scopes: &[String]) -> String {
    if scopes.is_empty() { "none".to_owned() } else { scopes.join(", ") }
}

#[cfg(test)]
mod tests {
    use reqwest::header::{HeaderName, HeaderValue};

    use super::*;

    fn advice(status: u16, headers: &[(&'static str, &'static str)]) -> String {
        let pairs = headers
            .iter()
            .map(|(name, value)| (HeaderName::from_static(name), HeaderValue::from_static(value)));
        let reply = ApiResponse { status, headers: pairs.collect(), body: Vec::new(), was_redirected: false };
        let call = ApiRequest::get("repos/o/r/issues");
        read(&call, &reply, "o/r", "the token in MY_TOKEN").advice.unwrap_or_default()
    }

    /// A scope counts as missing only if the answer states the scopes.
    #[test]
    fn advice_follows_the_status_and_headers_of_an_answer() {
        const SCOPES_HEADER: &str = "x-oauth-scopes";
        const ACCEPTED_SCOPES_HEADER: &str = "x-accepted-oauth-scopes";
        for (status, headers, expected, has_scopes) in [
            (401, &[][..], "the token in MY_TOKEN was refused for o/r", false),
            (401, &[(SCOPES_HEADER, "")], "the token in MY_TOKEN was refused for o/r", false),
            (403, &[], "may not do this in o/r: check that it may read and write issues there", false),
            (403, &[("x-accepted-github-permissions", "issues=write")], "there (issues=write)", false),
            (
                403,
                &[(SCOPES_HEADER, "repo"), (ACCEPTED_SCOPES_HEADER, "repo")],
                "check that it may read and write issues",
                false,
            ),
            (
                403,
                &[(SCOPES_HEADER, "gist"), (ACCEPTED_SCOPES_HEADER, "public_repo, repo")],
                "has the scopes gist and needs one of public_repo, repo for o/r",
                true,
            ),
            (403, &[("x-github-sso", "required; url=https://x")], "single sign-on", false),
            (404, &[], "there is no o/r, or the token in MY_TOKEN cannot see it", false),
            (404, &[(SCOPES_HEADER, "repo, gist")], "there is no o/r", false),
            (404, &[(SCOPES_HEADER, "")], "its scopes are none, and a private repository needs repo", true),
            (422, &[], "", false),
        ] {
            let text = advice(status, headers);
            assert!(text.contains(expected), "{status} {headers:?}: {text}");
            assert_eq!(text.contains("scopes"), has_scopes, "{status} {headers:?}: {text}");
            assert!(text.is_empty() || (text.contains("MY_TOKEN") && text.contains("o/r")), "{text}");
        }
    }
}
