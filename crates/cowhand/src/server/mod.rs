//! The server: the API of the socket over TCP, behind a door, webhooks beside it, and the dashboard.
//!
//! The door lets nobody in who names another host or comes from somebody else's page; the API wants a token, and a
//! webhook the signature of its schedule.

mod access;
mod door;
mod hooks;
mod limit;
mod pages;
mod signature;

use std::io;
use std::net::SocketAddr;
use std::sync::Arc;

use axum::Router;
use axum::middleware::{from_fn, from_fn_with_state};
use cowhand_core::server::Server as Settings;
use tokio::net::TcpListener;
use tokio::task::JoinHandle;
use tracing::{error, warn};

use crate::api::Api;
use crate::fleet::Fleet;

#[derive(Debug, thiserror::Error)]
#[error("cannot listen on {at}: {source}; `--listen ADDRESS:PORT` takes another place, `--no-server` none")]
pub struct ListenError {
    at: SocketAddr,
    source: io::Error,
}

/// A place that is ours, where nobody is answered yet: so a place that is taken is known before a fleet runs.
#[derive(Debug)]
pub struct Listener {
    listener: TcpListener,
    settings: Settings,
}

/// A server that answers.
#[derive(Debug)]
pub struct Server {
    task: JoinHandle<()>,
}

impl Listener {
    pub async fn bind(settings: Settings) -> Result<Self, ListenError> {
        let at = settings.listen;
        let bound = async {
            let listener = TcpListener::bind(at).await?;
            let listen = listener.local_addr()?;
            Ok(Self { listener, settings: Settings { listen, ..settings } })
        };
        let bound = bound.await.map_err(|source| ListenError { at, source })?;
        if !bound.settings.listen.ip().is_loopback() {
            warn!("{} can be reached from outside, without TLS; put a proxy in front", bound.url());
        }
        Ok(bound)
    }

    pub fn url(&self) -> String {
        format!("http://{}", self.settings.listen)
    }

    pub fn serve(self, api: Api, fleet: Arc<Fleet>) -> Server {
        let Self { listener, settings } = self;
        let router = router(api, fleet, settings).into_make_service_with_connect_info::<SocketAddr>();
        let task = tokio::spawn(async move {
            if let Err(error) = axum::serve(listener, router).await {
                error!("the server has ended: {error}");
            }
        });
        Server { task }
    }
}

impl Server {
    /// Takes nobody in any more.
    pub fn close(self) {
        self.task.abort();
    }
}

fn router(api: Api, fleet: Arc<Fleet>, settings: Settings) -> Router {
    let is_local = settings.listen.ip().is_loopback();
    let access = access::Access::new(Arc::clone(&fleet), settings.listen.port());
    let pages = pages::router(pages::Pages::new(api.clone(), access.clone()));
    let health = api.health();
    let api = api.router().layer(from_fn_with_state(access, access::check));
    let hooks = hooks::router(hooks::Hooks::new(fleet, is_local));
    let all = hooks.merge(pages).merge(api).merge(health);
    let all = all.layer(from_fn_with_state(Arc::new(settings), door::check));
    all.layer(from_fn(pages::harden))
}
