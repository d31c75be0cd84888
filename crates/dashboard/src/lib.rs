//! The dashboard: pages for people, made only from answers of the API.
//!
//! Each page is one file; the other files have parts that pages use. The server renders the whole page, so that it can
//! be read without the script. After an event, the script replaces the parts that are marked `data-live`. It also shows
//! times in local time, and sends a person's decisions to the API.

mod agent;
mod answer;
mod asks;
mod assets;
mod budgets;
mod chat;
mod chat_bots;
mod compare;
mod conversation;
mod definition;
mod elements;
mod events;
mod fleet;
mod hook_runs;
mod job;
mod jobs;
mod layout;
mod live_output;
mod login;
mod messages;
mod nodes;
mod notifications;
mod output;
mod removed;
mod reports;
mod schedule;
mod settings;
mod tail;
mod text;
mod timeline;
mod usage;
mod work;
mod workspace;

use std::net::SocketAddr;
use std::sync::Arc;

use axum::Router;
use axum::extract::{ConnectInfo, FromRequestParts, Query, Request, State};
use axum::http::request::Parts;
use axum::http::{StatusCode, Uri};
use axum::middleware::{Next, from_fn, from_fn_with_state};
use axum::response::{Html, IntoResponse, Response};
use axum::routing::get;
use cowhand_core::ask::Ask;
use cowhand_core::event::Event;
use jiff::Timestamp;
use maud::{Markup, html};
use serde::de::DeserializeOwned;

use cowhand_web::api::{ApiProblem, Client, Code, Page, method_not_allowed, require_utf8_path, segment};
use cowhand_web::server::{Access, Caller, CallerRefused, PagesContext};
use layout::{Frame, Tab};

tokio::task_local! {
    /// `seq` of the newest event before any data of the current page was read. Every later event is new to the page,
    /// even if it happened while the data was read.
    static NEWEST_EVENT: i64;
}

/// State that the pages share.
#[derive(Debug, Clone)]
struct Pages {
    client: Arc<Client>,
    access: Access,
    login: login::Login,
    tails: tail::TailCache,
}

impl Pages {
    fn new(context: PagesContext) -> Self {
        let PagesContext { api, access, has_tls } = context;
        let login = login::Login::new(api.logins(), has_tls);
        Self { client: Arc::new(Client::alone(api)), access, login, tails: tail::TailCache::default() }
    }

    /// Returns the `seq` of the newest event, or 0 if there are no events.
    async fn newest_event(&self) -> Result<i64, ApiProblem> {
        let page: Page<Event> = self.client.get("events?limit=1").await?;
        Ok(page.items.last().map_or(0, |event| event.seq))
    }

    /// Returns the number of open asks, for the title.
    async fn open_asks(&self) -> Result<usize, ApiProblem> {
        Ok(self.client.get::<Page<Ask>>("asks").await?.items.len())
    }

    async fn page(&self, frame: Frame<'_>, main: Markup) -> PageAnswer {
        let seq = match NEWEST_EVENT.try_get() {
            Ok(seq) => seq,
            // `require_token` sets the `seq`, but only for pages that need a login.
            Err(_) => self.newest_event().await?,
        };
        let asks = self.open_asks().await?;
        Ok(Html(layout::page(&frame, Some(seq), asks, &main).into_string()).into_response())
    }
}

/// Query parameters of a page. The answer to a wrong parameter is also a page.
struct Params<T>(T);

impl<T: DeserializeOwned, S: Send + Sync> FromRequestParts<S> for Params<T> {
    type Rejection = ProblemPage;

    async fn from_request_parts(parts: &mut Parts, state: &S) -> Result<Self, ProblemPage> {
        let query = Query::from_request_parts(parts, state).await;
        query
            .map(|Query(params)| Self(params))
            .map_err(|error| ApiProblem::bad_query(&error.body_text()).into())
    }
}

/// Builds the problem for a path without a page.
async fn no_page(uri: Uri) -> ProblemPage {
    ApiProblem::not_found(format!("there is no page {}", uri.path())).into()
}

/// Page, or a problem that is shown as a page.
type PageAnswer = Result<Response, ProblemPage>;

#[derive(Debug)]
struct ProblemPage(ApiProblem);

impl From<ApiProblem> for ProblemPage {
    fn from(problem: ApiProblem) -> Self {
        Self(problem)
    }
}

impl IntoResponse for ProblemPage {
    fn into_response(self) -> Response {
        let status = self.0.clone().into_response().status();
        let title = if self.0.code == Code::NotFound { "Not found" } else { "Error" };
        let main = html! {
            h1 { (title) }
            p.lead { (text::ShownMessage(&self.0.message)) }
            p { a href="/" { "Back to the fleet" } }
        };
        let page = layout::page(&Frame { title, tab: Tab::None, follow: None }, None, 0, &main);
        (status, Html(page.into_string())).into_response()
    }
}

/// Builds the router of all pages, for the server of `cowhand-web`.
pub fn router(context: PagesContext) -> Router {
    let pages = Pages::new(context);
    let with_login = Router::new()
        .route("/", get(fleet::page))
        .route("/agents/{agent}", get(agent::page))
        .route("/schedules/{agent}/{schedule}", get(schedule::page))
        .route("/jobs", get(jobs::page))
        .route("/jobs/{job}", get(job::page))
        .route("/jobs/{job}/live", get(live_output::stream))
        .route("/jobs/{job}/diff", get(compare::page))
        .route("/chat", get(chat::page))
        .route("/chat/new", get(chat::new))
        .route("/chat/{conversation}", get(conversation::page))
        .route("/work", get(work::page))
        .route("/timeline", get(timeline::page))
        .route("/usage", get(usage::page))
        .route("/events", get(events::page))
        .route("/notifications", get(notifications::page))
        .route("/nodes", get(nodes::page))
        .route("/settings", get(settings::page))
        .route("/{*rest}", get(no_page))
        .layer(from_fn_with_state(pages.clone(), require_token));
    let without_login =
        Router::new().route("/login/{code}", get(login::log_in)).route("/assets/{name}", get(assets::serve));
    let without_login = without_login.method_not_allowed_fallback(method_not_allowed);
    with_login
        .merge(without_login)
        .layer(from_fn(refuse_hook_paths))
        .layer(from_fn(require_utf8_path))
        .with_state(pages)
}

/// Refuses requests to addresses below `/hooks` that are not the address of a webhook. The senders of such requests are
/// programs, so the answer is a problem document and not the login page.
async fn refuse_hook_paths(request: Request, next: Next) -> Response {
    let path = request.uri().path();
    if path == "/hooks" || path.starts_with("/hooks/") {
        return ApiProblem::not_found("there is no such webhook; its address is /hooks/AGENT/SCHEDULE")
            .into_response();
    }
    next.run(request).await
}

/// Requires a valid token. Pages show what the scope `read` allows, and every token has at least that scope. The list
/// of tokens needs the scope `admin`, which the page of settings checks.
async fn require_token(
    State(pages): State<Pages>,
    ConnectInfo(peer): ConnectInfo<SocketAddr>,
    mut request: Request,
    next: Next,
) -> Result<Response, Response> {
    let caller = pages.access.caller(peer.ip(), request.method(), request.headers()).await;
    let caller = caller.map_err(|refused| match refused {
        CallerRefused::TooMany(response) => response,
        CallerRefused::Problem(problem) => ProblemPage(problem).into_response(),
    });
    match caller? {
        Caller::Known { token, .. } => {
            request.extensions_mut().insert(token);
            let seq = pages.newest_event().await.map_err(|problem| ProblemPage(problem).into_response())?;
            Ok(NEWEST_EVENT.scope(seq, next.run(request)).await)
        }
        Caller::Unknown { has_token } => Err(login::login_needed(has_token)),
    }
}

/// Builds a page for visitors who are not logged in.
fn public_page(status: StatusCode, title: &str, main: &Markup) -> Response {
    (status, Html(layout::public_page(title, main).into_string())).into_response()
}

/// Formats the fields that are not empty as a query. Each field ends with `&`, so that another field can follow.
fn query(fields: &[(&str, &str)]) -> String {
    let set = fields.iter().filter(|(_, value)| !value.is_empty());
    set.flat_map(|(key, value)| [key, "=", &segment(value), "&"].map(str::to_owned)).collect()
}

fn now() -> Timestamp {
    Timestamp::now()
}
