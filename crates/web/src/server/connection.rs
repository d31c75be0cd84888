//! Connections: their limits, their timeouts and their end.
//!
//! axum's own loop accepts everybody and waits for ever. Here a client that sends its head too slowly, or
//! nothing at all, is disconnected; one address gets at most half of the connections; and when all are in
//! use, further clients wait in the kernel, where they cost nothing.

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

use super::rate_limit::source;
use super::write_timeout::WriteTimeout;
use cowhand_engine::tls::Tls;
use cowhand_engine::trigger::stopped;

/// Timeout for the head of a request, and between two requests.
const HEAD_TIMEOUT: Duration = Duration::from_secs(10);
const HANDSHAKE_TIMEOUT: Duration = Duration::from_secs(10);
/// Time for running requests to end when the server closes.
const CLOSE_TIMEOUT: Duration = Duration::from_secs(5);
/// Pause after an error of the system, most often too many open files.
const ACCEPT_RETRY_AFTER: Duration = Duration::from_millis(100);
/// Buffer that has to hold the head of a request.
const MAX_HEAD_BYTES: usize = 64 << 10;

const MAX_CONNECTIONS: u64 = 4_096;
/// Number of file descriptors reserved for everything else: the store, agents' output, sources.
const RESERVED_FILES: u64 = 512;

/// Open connections by address.
#[derive(Debug)]
struct ConnectionCounts {
    most_of_one: usize,
    by_source: Mutex<HashMap<IpAddr, usize>>,
}

/// Connection of an address, counted until this is dropped.
struct ConnectionGuard {
    counts: Arc<ConnectionCounts>,
    source: IpAddr,
}

impl ConnectionCounts {
    /// Counts a connection; returns none if the address already has its maximum.
    fn enter(self: &Arc<Self>, peer: IpAddr) -> Option<ConnectionGuard> {
        let source = source(peer);
        let mut all = self.by_source.lock().unwrap_or_else(PoisonError::into_inner);
        let here = all.entry(source).or_default();
        if *here >= self.most_of_one {
            return None;
        }
        *here += 1;
        Some(ConnectionGuard { counts: Arc::clone(self), source })
    }
}

impl Drop for ConnectionGuard {
    fn drop(&mut self) {
        let mut all = self.counts.by_source.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(here) = all.get_mut(&self.source) {
            *here -= 1;
            if *here == 0 {
                all.remove(&self.source);
            }
        }
    }
}

/// Returns the largest number of connections that the limit on open files allows. Raises that limit if
/// possible: shells often set 1,024, and most systems allow a process more.
fn most_connections() -> usize {
    let wanted = MAX_CONNECTIONS + RESERVED_FILES;
    let limit = getrlimit(Resource::Nofile);
    let mut current = limit.current.unwrap_or(u64::MAX);
    if current < wanted {
        let more = limit.maximum.map_or(wanted, |most| most.min(wanted));
        let raised = Rlimit { current: Some(more), maximum: limit.maximum };
        match setrlimit(Resource::Nofile, raised) {
            Ok(()) => current = more,
            Err(error) => warn!("cannot have more than {current} open files: {error}"),
        }
    }
    let most = current.saturating_sub(RESERVED_FILES).clamp(64, MAX_CONNECTIONS);
    usize::try_from(most).unwrap_or(64)
}

/// Serves connections until `stop` is set, and then until all have ended.
pub(super) async fn serve(
    listener: TcpListener,
    tls: Option<Arc<Tls>>,
    router: Router,
    stop: watch::Receiver<bool>,
) {
    let most = most_connections();
    let places = Arc::new(Semaphore::new(most));
    let counts = Arc::new(ConnectionCounts { most_of_one: most / 2, by_source: Mutex::default() });
    let mut connections = JoinSet::new();
    let mut warned_at: Option<Instant> = None;
    loop {
        let accepted = async {
            let place = Arc::clone(&places).acquire_owned().await.map_err(io::Error::other)?;
            let (stream, peer) = listener.accept().await?;
            Ok::<_, io::Error>((place, stream, peer))
        };
        let accepted = tokio::select! {
            accepted = accepted => accepted,
            Some(_) = connections.join_next() => continue,
            () = stopped(&stop) => break,
        };
        match accepted {
            Ok((place, stream, peer)) => {
                if let Some(guard) = counts.enter(peer.ip()) {
                    let held = (place, guard);
                    let connection = connection(stream, peer, tls.clone(), router.clone(), stop.clone());
                    connections.spawn(async move {
                        connection.await;
                        drop(held);
                    });
                } else if warned_at.is_none_or(|at| at.elapsed() > Duration::from_mins(1)) {
                    warned_at = Some(Instant::now());
                    warn!(peer = %peer.ip(), "has {} connections; more are closed at once", counts.most_of_one);
                }
            }
            Err(error) => {
                warn!("cannot take a connection: {error}");
                tokio::time::sleep(ACCEPT_RETRY_AFTER).await;
            }
        }
    }
    drop(listener);
    let all_gone = async { while connections.join_next().await.is_some() {} };
    if timeout(CLOSE_TIMEOUT, all_gone).await.is_err() {
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
    // Answers are small and written as a whole.
    if let Err(error) = stream.set_nodelay(true) {
        debug!(%peer, "{error}");
    }
    let Some(tls) = tls else { return serve_stream(stream, peer, HEAD_TIMEOUT, router, stop).await };
    match timeout(HANDSHAKE_TIMEOUT, tls.acceptor().accept(stream)).await {
        Ok(Ok(stream)) => serve_stream(stream, peer, HEAD_TIMEOUT, router, stop).await,
        Ok(Err(error)) => debug!(%peer, "no TLS: {error}"),
        Err(_) => debug!(%peer, "no TLS within {} s", HANDSHAKE_TIMEOUT.as_secs()),
    }
}

/// Answers requests one after another. When the server closes, the running request is still answered.
pub(super) async fn serve_stream<S, P>(
    stream: S,
    peer: P,
    silence: Duration,
    router: Router,
    stop: watch::Receiver<bool>,
) where
    S: AsyncRead + AsyncWrite + Unpin + Send + 'static,
    P: Clone + Debug + Send + Sync + 'static,
{
    let who = peer.clone();
    let answer = service_fn(move |request: hyper::Request<Incoming>| {
        let mut request = request.map(Body::new);
        request.extensions_mut().insert(ConnectInfo(peer.clone()));
        router.clone().oneshot(request)
    });
    let connection = http1::Builder::new()
        .timer(TokioTimer::new())
        .header_read_timeout(silence)
        .max_buf_size(MAX_HEAD_BYTES)
        .serve_connection(TokioIo::new(WriteTimeout::new(stream)), answer);
    let mut connection = pin!(connection);
    let ended = tokio::select! {
        ended = connection.as_mut() => ended,
        () = stopped(&stop) => {
            connection.as_mut().graceful_shutdown();
            connection.await
        }
    };
    if let Err(error) = ended {
        debug!(peer = ?who, "a connection broke: {error}");
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_address_gets_so_many_and_gives_them_back() {
        let counts = Arc::new(ConnectionCounts { most_of_one: 2, by_source: Mutex::default() });
        let [one, other] = ["192.0.2.1", "192.0.2.2"].map(|text| text.parse::<IpAddr>().unwrap());
        let first = counts.enter(one);
        let second = counts.enter(one);
        assert!(first.is_some() && second.is_some() && counts.enter(one).is_none());
        assert!(counts.enter(other).is_some());
        drop(first);
        let again = counts.enter(one);
        assert!(again.is_some() && counts.enter(one).is_none());
        drop((second, again));
        assert!(counts.by_source.lock().unwrap().is_empty(), "nobody is remembered who is gone");
    }
}
