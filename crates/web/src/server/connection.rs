//! Connections: their limits, their timeouts and their end.
//!
//! `axum::serve` has no limit for connections and no timeouts. This module disconnects a client that sends the head of
//! its request too slowly or not at all. One address gets at most half of the connections. When all connections are in
//! use, further clients wait in the kernel's backlog, which uses no resources of this process.

use std::collections::HashMap;
use std::fmt::Debug;
use std::io;
use std::net::{IpAddr, SocketAddr};
use std::pin::pin;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use axum::Router;
use axum::body::Body;
use axum::extract::ConnectInfo;
use axum::http::{StatusCode, header};
use axum::response::IntoResponse;
use cowhand_core::duration;
use hyper::body::Incoming;
use hyper::server::conn::http1;
use hyper::service::service_fn;
use hyper_util::rt::{TokioIo, TokioTimer};
use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::{Semaphore, watch};
use tokio::task::JoinSet;
use tokio::time::timeout;
use tower::ServiceExt as _;
use tracing::{debug, warn};

use super::rate_limit::limited_address;
use super::write_timeout::WriteTimeout;
use crate::api::rebinding_listener::ACCEPT_PAUSE;
use cowhand_engine::tls::Tls;
use cowhand_engine::trigger::stopped;

/// Timeout for the head of a request, and between two requests.
const HEAD_TIMEOUT: Duration = Duration::from_secs(10);
const HANDSHAKE_TIMEOUT: Duration = Duration::from_secs(10);
/// Time for running requests to end when the server closes.
const CLOSE_TIMEOUT: Duration = Duration::from_secs(5);
/// Maximum size of the head of a request.
const MAX_HEAD_BYTES: usize = 64 << 10;

const MAX_CONNECTIONS: u64 = 4_096;
/// Number of file descriptors reserved for everything else: the store, agents' output, sources.
const RESERVED_FILES: u64 = 512;

/// Number of open connections of each address.
#[derive(Debug)]
struct ConnectionCounts {
    max_per_address: usize,
    by_address: Mutex<HashMap<IpAddr, usize>>,
}

/// Connection of an address. It is counted until this guard is dropped.
struct ConnectionGuard {
    counts: Arc<ConnectionCounts>,
    address: IpAddr,
}

impl ConnectionCounts {
    /// Counts a connection; returns none if the address already has its maximum.
    fn try_add(self: &Arc<Self>, peer: IpAddr) -> Option<ConnectionGuard> {
        let address = limited_address(peer);
        let mut counts = self.by_address.lock().unwrap_or_else(PoisonError::into_inner);
        let count = counts.entry(address).or_default();
        if *count >= self.max_per_address {
            return None;
        }
        *count += 1;
        Some(ConnectionGuard { counts: Arc::clone(self), address })
    }
}

impl Drop for ConnectionGuard {
    fn drop(&mut self) {
        let mut counts = self.counts.by_address.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(count) = counts.get_mut(&self.address) {
            *count -= 1;
            if *count == 0 {
                counts.remove(&self.address);
            }
        }
    }
}

/// Returns the number of connections that the limit on open files allows, but at least 64 and at most
/// [`MAX_CONNECTIONS`]. Raises the limit on open files if possible, because shells often set 1,024 and most systems
/// allow more.
fn max_connections() -> usize {
    let needed = MAX_CONNECTIONS + RESERVED_FILES;
    let limit = getrlimit(Resource::Nofile);
    let mut current = limit.current.unwrap_or(u64::MAX);
    if current < needed {
        let raised_limit = limit.maximum.map_or(needed, |maximum| maximum.min(needed));
        let raised = Rlimit { current: Some(raised_limit), maximum: limit.maximum };
        match setrlimit(Resource::Nofile, raised) {
            Ok(()) => current = raised_limit,
            Err(error) => warn!("cannot raise the limit of {current} open files: {error}"),
        }
    }
    let max = current.saturating_sub(RESERVED_FILES).clamp(64, MAX_CONNECTIONS);
    usize::try_from(max).unwrap_or(64)
}

/// Serves connections until `stop` is set, and then until all have ended, but at most for [`CLOSE_TIMEOUT`].
pub(super) async fn serve(
    listener: TcpListener,
    tls: Option<Arc<Tls>>,
    router: Router,
    stop: watch::Receiver<bool>,
) {
    let max = max_connections();
    let permits = Arc::new(Semaphore::new(max));
    let counts = Arc::new(ConnectionCounts { max_per_address: max / 2, by_address: Mutex::default() });
    let mut connections = JoinSet::new();
    let mut warned_at: Option<Instant> = None;
    loop {
        let accepted = async {
            let permit = Arc::clone(&permits).acquire_owned().await.map_err(io::Error::other)?;
            let (stream, peer) = listener.accept().await?;
            Ok::<_, io::Error>((permit, stream, peer))
        };
        let accepted = tokio::select! {
            accepted = accepted => accepted,
            Some(_) = connections.join_next() => continue,
            () = stopped(&stop) => break,
        };
        match accepted {
            Ok((permit, stream, peer)) => {
                if let Some(guard) = counts.try_add(peer.ip()) {
                    let guards = (permit, guard);
                    let connection = connection(stream, peer, tls.clone(), router.clone(), stop.clone());
                    connections.spawn(async move {
                        connection.await;
                        drop(guards);
                    });
                } else if warned_at.is_none_or(|at| at.elapsed() > Duration::from_mins(1)) {
                    warned_at = Some(Instant::now());
                    warn!(
                        peer = %peer.ip(),
                        "the address has {} connections; further ones are closed immediately",
                        counts.max_per_address
                    );
                }
            }
            Err(error) => {
                warn!("cannot accept a connection: {error}");
                tokio::time::sleep(ACCEPT_PAUSE).await;
            }
        }
    }
    drop(listener);
    let all_ended = async { while connections.join_next().await.is_some() {} };
    if timeout(CLOSE_TIMEOUT, all_ended).await.is_err() {
        debug!("{} connections did not end in time", connections.len());
    }
    connections.shutdown().await;
}

async fn connection(
    stream: TcpStream,
    peer: SocketAddr,
    tls: Option<Arc<Tls>>,
    router: Router,
    stop: watch::Receiver<bool>,
) {
    // Most answers are small and written as a whole, so Nagle's algorithm would only delay them.
    if let Err(error) = stream.set_nodelay(true) {
        debug!(%peer, "{error}");
    }
    let Some(tls) = tls else { return serve_stream(stream, peer, HEAD_TIMEOUT, router, stop).await };
    match timeout(HANDSHAKE_TIMEOUT, tls.acceptor().accept(stream)).await {
        Ok(Ok(stream)) => serve_stream(stream, peer, HEAD_TIMEOUT, router, stop).await,
        Ok(Err(error)) => debug!(%peer, "the TLS handshake failed: {error}"),
        Err(_) => debug!(%peer, "the TLS handshake took longer than {}", duration::exact(HANDSHAKE_TIMEOUT)),
    }
}

/// Answers the requests of a connection one after another. When `stop` is set, the running request is still answered,
/// and the connection ends.
pub(super) async fn serve_stream<S, P>(
    stream: S,
    peer: P,
    head_timeout: Duration,
    router: Router,
    stop: watch::Receiver<bool>,
) where
    S: AsyncRead + AsyncWrite + Unpin + Send + 'static,
    P: Clone + Debug + Send + Sync + 'static,
{
    let logged_peer = peer.clone();
    let service = service_fn(move |request: hyper::Request<Incoming>| {
        let (router, peer) = (router.clone(), peer.clone());
        async move {
            if head_bytes(&request) > MAX_HEAD_BYTES {
                let close = [(header::CONNECTION, "close")];
                return Ok((StatusCode::REQUEST_HEADER_FIELDS_TOO_LARGE, close).into_response());
            }
            let mut request = request.map(Body::new);
            request.extensions_mut().insert(ConnectInfo(peer));
            router.oneshot(request).await
        }
    });
    let connection = http1::Builder::new()
        .timer(TokioTimer::new())
        .header_read_timeout(head_timeout)
        .max_buf_size(MAX_HEAD_BYTES)
        .serve_connection(TokioIo::new(WriteTimeout::new(stream)), service);
    let mut connection = pin!(connection);
    let ended = tokio::select! {
        ended = connection.as_mut() => ended,
        () = stopped(&stop) => {
            connection.as_mut().graceful_shutdown();
            connection.await
        }
    };
    if let Err(error) = ended {
        debug!(peer = ?logged_peer, "a connection broke: {error}");
    }
}

/// Returns the size of the head of a request. The size is checked even though the read buffer has a limit, because
/// that limit is not exact: the last read may exceed it.
fn head_bytes<B>(request: &hyper::Request<B>) -> usize {
    let path = request.uri().path_and_query().map_or(0, |path| path.as_str().len());
    // Each header has a colon, a space and the end of its line.
    let headers = request.headers().iter().map(|(name, value)| name.as_str().len() + value.len() + 4);
    request.method().as_str().len() + path + headers.sum::<usize>()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn connections_of_one_address_are_limited() {
        let counts = Arc::new(ConnectionCounts { max_per_address: 2, by_address: Mutex::default() });
        let [one, other] = ["192.0.2.1", "192.0.2.2"].map(|text| text.parse::<IpAddr>().unwrap());
        let first = counts.try_add(one);
        let second = counts.try_add(one);
        assert!(first.is_some() && second.is_some() && counts.try_add(one).is_none());
        assert!(counts.try_add(other).is_some());
        drop(first);
        let again = counts.try_add(one);
        assert!(again.is_some() && counts.try_add(one).is_none());
        drop((second, again));
        assert!(counts.by_address.lock().unwrap().is_empty(), "addresses without connections are removed");
    }
}
