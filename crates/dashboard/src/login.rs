//! Login to the dashboard: a login link, which works once, sets a cookie with a token.

use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use axum::extract::{ConnectInfo, Path, State};
use axum::http::{HeaderValue, Method, StatusCode, header};
use axum::response::{IntoResponse, Redirect, Response};
use cowhand_core::actor::Actor;
use cowhand_core::server::Scope;
use maud::html;
use tracing::{info, warn};

use super::text::ShownMessage;
use super::{Pages, public_page};
use cowhand_store::audit;
use cowhand_web::api::{ApiProblem, Code, CreatedToken, LINK_VALID_MINUTES, Logins, TokenRequest};
use cowhand_web::server::RateLimit;

const TOKEN_DAYS: u32 = 30;

#[derive(Debug, Clone)]
pub(super) struct Login {
    codes: Logins,
    /// Limit on how often an address can open a login link.
    tries: Arc<RateLimit>,
    has_tls: bool,
}

impl Login {
    pub(super) fn new(codes: Logins, has_tls: bool) -> Self {
        Self { codes, tries: Arc::new(RateLimit::new(10, Duration::from_secs(6))), has_tls }
    }
}

pub(super) async fn log_in(
    State(pages): State<Pages>,
    ConnectInfo(peer): ConnectInfo<SocketAddr>,
    method: Method,
    Path(code): Path<String>,
) -> Result<Response, Response> {
    // A program that only checks links sends HEAD. It must not use up the link, and learns nothing about it.
    if method == Method::HEAD {
        return Ok(StatusCode::NO_CONTENT.into_response());
    }
    pages.login.tries.take(peer.ip()).map_err(IntoResponse::into_response)?;
    let Some(taken) = pages.login.codes.take(&code) else {
        warn!(peer = %peer.ip(), "somebody opened a login link that is not valid");
        return Err(public_page(
            StatusCode::UNAUTHORIZED,
            "This link is no longer valid",
            &html! {
                p.lead { "A link works once, and for " (LINK_VALID_MINUTES)
                    " minutes. Run this where the fleet runs, and open the link that it prints:" }
                pre.type-this { "cowhand dashboard" }
                p { "If you are already logged in, " a href="/" { "go to the fleet" } "." }
            },
        ));
    };
    let created =
        audit::by(Actor::Link { from: peer.ip() }, create_token(&pages)).await.map_err(login_failed)?;
    info!(peer = %peer.ip(), name = %created.about.name, "a browser has logged in");
    let seconds = u64::from(TOKEN_DAYS) * 24 * 60 * 60;
    let secure = if pages.login.has_tls { "; Secure" } else { "" };
    let cookie = format!(
        "{}={}; Max-Age={seconds}; Path=/; HttpOnly; SameSite=Strict{secure}",
        pages.access.cookie(),
        created.token
    );
    let cookie = HeaderValue::from_str(&cookie)
        .map_err(|_| ApiProblem::unavailable("the cookie cannot be written").into_response())?;
    let mut response = Redirect::to("/").into_response();
    response.headers_mut().insert(header::SET_COOKIE, cookie);
    taken.use_up();
    Ok(response)
}

/// Builds the page for a login that could not be completed; the link is not used up.
fn login_failed(problem: ApiProblem) -> Response {
    warn!("a browser could not log in: {problem}");
    let message = problem.message.clone();
    public_page(
        problem.into_response().status(),
        "Login is not possible now",
        &html! {
            p.lead { (ShownMessage(&message)) }
            p { "The link is not used up: open the same link again when the problem is solved, within "
                (LINK_VALID_MINUTES) " minutes of its creation." }
        },
    )
}

/// Creates a token with a name that no other token has.
async fn create_token(pages: &Pages) -> Result<CreatedToken, ApiProblem> {
    let expires_in = format!("{TOKEN_DAYS}d")
        .parse()
        .map_err(|_| ApiProblem::unavailable("the lifetime of the token is not valid"))?;
    let mut request =
        TokenRequest { name: String::new(), scope: Some(Scope::Admin), expires_in: Some(expires_in) };
    let mut tries = 0;
    loop {
        request.name = format!("browser-{:04x}", fastrand::u16(..));
        tries += 1;
        match pages.client.post("tokens", &request).await {
            Err(problem) if problem.code == Code::Conflict && tries < 20 => {}
            answer => return answer,
        }
    }
}

/// Builds the page for visitors without a valid token. `has_token` is set if the request has a token.
pub(super) fn login_needed(has_token: bool) -> Response {
    let title = if has_token { "You are no longer logged in" } else { "Log in to this fleet" };
    public_page(
        StatusCode::UNAUTHORIZED,
        title,
        &html! {
            p.lead { "Run this where the fleet runs, and open the link that it prints:" }
            pre.type-this { "cowhand dashboard" }
            p.muted { "The link works once. After that, this browser stays logged in for " (TOKEN_DAYS) " days; "
                code { "cowhand token list" } " shows this browser's token, and " code { "cowhand token revoke" } " revokes it." }
        },
    )
}
