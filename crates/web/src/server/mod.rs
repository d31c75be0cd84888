//! The server: the API over TCP with access control, metrics, webhooks, and the pages of the dashboard.
//!
//! The server refuses requests that name another host or come from a page of another site. The API requires a token,
//! except for its health checks. A delivery needs a signature with the secret of its schedule, unless the schedule
//! allows unsigned deliveries and the server listens on loopback.

mod access;
mod connection;
mod intake;
mod job_socket;
mod metrics;
mod origin_check;
mod rate_limit;
mod security_headers;
mod signature;
mod webhooks;
mod write_timeout;

use std::io;
use std::net::SocketAddr;
use std::sync::Arc;

use axum::Router;
use axum::body::Body;
use axum::extract::State;
use axum::http::header;
use axum::middleware::{from_fn, from_fn_with_state, map_response_with_state};
use axum::response::Response;
use cowhand_core::server::ServerConfig as Settings;
use futures_util::StreamExt as _;
use tokio::net::TcpListener;
use tokio::sync::watch;
use tokio::task::JoinHandle;
use tracing::{error, warn};

use crate::api::Api;
pub use access::{Access, Caller, CallerRefused};
use cowhand_engine::fleet::Fleet;
use cowhand_engine::tls::{Tls, TlsError};
use cowhand_engine::trigger::stopped;
use cowhand_system::blocking::run_blocking;
pub use job_socket::JobSocket;
pub use rate_limit::{RateLimit, TooMany};

#[derive(Debug, thiserror::Error)]
pub enum ListenError {
    #[error(
        "cannot listen on {at}: {source}; `--listen ADDRESS:PORT` uses another address, `--no-server` starts no server"
    )]
    CannotBind { at: SocketAddr, source: io::Error },
    #[error("`server.tls`: {0}")]
    Tls(#[from] TlsError),
}

/// Bound address that does not answer yet. The server binds before the fleet starts, so that an address in use or an
/// invalid certificate is reported first.
#[derive(Debug)]
pub struct HttpListener {
    socket: TcpListener,
    settings: Settings,
    tls: Option<Arc<Tls>>,
}

/// State of the server that its pages use.
#[derive(Debug)]
pub struct PagesContext {
    pub api: Api,
    pub access: Access,
    /// Set if browsers connect over TLS; they then never send the cookie without TLS.
    pub has_tls: bool,
}

/// Function that builds the router of the pages. It is passed to the server, because the crate of the pages depends on
/// this crate.
pub type BuildPages = fn(PagesContext) -> Router;

/// Running server.
#[derive(Debug)]
pub struct HttpServer {
    stop: watch::Sender<bool>,
    task: JoinHandle<()>,
}

impl HttpListener {
    pub async fn bind(settings: Settings) -> Result<Self, ListenError> {
        let at = settings.listen;
        let files = settings.tls.clone();
        let tls = run_blocking(move || files.map(Tls::open).transpose()).await?.map(Arc::new);
        let bound = async {
            let socket = TcpListener::bind(at).await?;
            let listen = socket.local_addr()?;
            Ok(Self { socket, settings: Settings { listen, ..settings }, tls })
        };
        let bound = bound.await.map_err(|source| ListenError::CannotBind { at, source })?;
        if !bound.settings.listen.ip().is_loopback() && bound.tls.is_none() {
            warn!(
                "{} can be reached from outside, without TLS; set `server.tls`, or put a proxy in front",
                bound.url()
            );
        }
        Ok(bound)
    }

    pub fn url(&self) -> String {
        let scheme = if self.tls.is_some() { "https" } else { "http" };
        format!("{scheme}://{}", self.settings.listen)
    }

    pub fn serve(self, api: Api, fleet: Arc<Fleet>, pages: BuildPages) -> HttpServer {
        let Self { socket, settings, tls } = self;
        let (stop, stopping) = watch::channel(false);
        let mut reloads = fleet.reloads();
        fleet.listens_at(settings.listen);
        let router = router(api, fleet, settings, pages, stopping.clone());
        let task = tokio::spawn(async move {
            let reload_certificates = async {
                while reloads.changed().await.is_ok() {
                    if let Some(tls) = tls.clone() {
                        run_blocking(move || tls.reload()).await;
                    }
                }
                std::future::pending::<()>().await;
            };
            tokio::select! {
                () = connection::serve(socket, tls.clone(), router, stopping) => {}
                () = reload_certificates => {}
            }
        });
        HttpServer { stop, task }
    }
}

impl HttpServer {
    /// Stops accepting connections, ends streams, and waits for the answers of running requests for some seconds.
    pub async fn close(self) {
        self.stop.send_replace(true);
        if let Err(error) = self.task.await {
            error!("the server has failed: {error}");
        }
    }
}

fn router(
    api: Api,
    fleet: Arc<Fleet>,
    settings: Settings,
    pages: BuildPages,
    stop: watch::Receiver<bool>,
) -> Router {
    let is_local = settings.listen.ip().is_loopback();
    let access = Access::new(api.clone(), Arc::clone(&fleet));
    let has_tls = settings.tls.is_some();
    let pages = pages(PagesContext { api: api.clone(), access: access.clone(), has_tls });
    let health = api.health();
    let metrics = metrics::router(metrics::Metrics::new(Arc::clone(&fleet)));
    let api = api.router().merge(metrics).layer(from_fn_with_state(access, access::check));
    let webhooks = webhooks::router(webhooks::WebhookReceiver::new(fleet, is_local));
    webhooks
        .merge(pages)
        .merge(api)
        .merge(health)
        .layer(from_fn_with_state(Arc::new(settings), origin_check::check))
        .layer(map_response_with_state(stop, end_with_server))
        .layer(from_fn(security_headers::add_security_headers))
}

/// Ends streams of server-sent events when the server closes, because such a stream may have no end of its own. Clients
/// reconnect and continue at their cursor.
async fn end_with_server(State(stop): State<watch::Receiver<bool>>, response: Response) -> Response {
    let content_type = response.headers().get(header::CONTENT_TYPE);
    if !content_type.is_some_and(|content_type| content_type.as_bytes().starts_with(b"text/event-stream")) {
        return response;
    }
    let stopped = async move { stopped(&stop).await };
    response.map(|body| Body::from_stream(body.into_data_stream().take_until(Box::pin(stopped))))
}
