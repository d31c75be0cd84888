//! The proxy of a bubblewrap sandbox: it connects to allowed hosts, and to the provider with the provider's key. A
//! sandbox that does not share the host's network has no other network access.
//!
//! The proxy runs in the keeper, outside the namespaces, and listens on a Unix socket that is bound into the sandbox.
//! Inside the sandbox, `cowhand forward` passes TCP connections to that socket. Refused requests are noted in the job's
//! output.

mod allowed_hosts;
mod gateway;

use std::fs::File;
use std::io::{self, Write};
use std::os::fd::AsRawFd;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

use cowhand_core::sandbox::Host;
use hyper::body::Incoming;
use hyper::header::HeaderValue;
use hyper::server::conn::http1;
use hyper::service::service_fn;
use hyper::{Method, Request, Response, StatusCode, Uri};
use hyper_util::rt::TokioIo;
use reqwest::Body;
use tokio::net::{TcpStream, UnixListener, UnixStream};
use tokio::sync::{OwnedSemaphorePermit, Semaphore};

use allowed_hosts::AllowedHosts;
use gateway::Gateway;
pub use gateway::ProxyCredentials;

/// Address of the proxy inside the sandbox.
pub const PROXY_ADDRESS: &str = "127.0.0.1:3128";

/// Maximum number of concurrent connections, including tunnels; each needs two descriptors of the keeper.
const MAX_CONNECTIONS: usize = 200;
/// Maximum number of notes about refused requests.
const MAX_NOTES: usize = 50;

/// Why a request of the agent is not forwarded. The message is for the agent.
#[derive(Debug, thiserror::Error)]
enum ProxyError {
    #[error("it is not in `hosts` of the sandbox")]
    NotAllowed,
    /// The address is invalid, cannot be found, or is not public.
    #[error("{0}")]
    Address(String),
    #[error("the path has to begin with /")]
    NoPath,
    #[error("a path with . or .. segments is not passed on, because it may leave the provider's address")]
    DotSegment,
    #[error("it cannot be reached: {0}")]
    Unreachable(String),
}

impl ProxyError {
    /// Returns the status of the answer to a request to the provider.
    const fn status(&self) -> StatusCode {
        match self {
            Self::NoPath | Self::DotSegment => StatusCode::BAD_REQUEST,
            Self::NotAllowed | Self::Address(_) | Self::Unreachable(_) => StatusCode::BAD_GATEWAY,
        }
    }
}

struct Proxy {
    hosts: AllowedHosts,
    gateway: Option<Gateway>,
    notes: Notes,
}

/// Notes about refused requests, on the agent's stderr.
struct Notes {
    file: Mutex<File>,
    written: AtomicUsize,
}

impl Notes {
    fn refused(&self, what: &str, why: &str) {
        let before = self.written.fetch_add(1, Ordering::Relaxed);
        let line = match before {
            0..MAX_NOTES => format!("cowhand: the sandbox refused {what}: {why}\n"),
            MAX_NOTES => "cowhand: the sandbox refused more requests; they are not listed\n".to_owned(),
            _ => return,
        };
        // The line is written in one call, so that it is not mixed with other output.
        self.file.lock().unwrap_or_else(PoisonError::into_inner).write_all(line.as_bytes()).ok();
    }
}

/// Starts the proxy, which runs until the keeper ends, and returns the path of its socket.
pub fn start(
    folder: &Path,
    stderr: File,
    hosts: Vec<Host>,
    credentials: Option<&ProxyCredentials>,
) -> io::Result<PathBuf> {
    let path = folder.join(SOCKET_FILE);
    let listener = bind_socket(folder)?;
    listener.set_nonblocking(true)?;
    let gateway = credentials.map(Gateway::new).transpose()?;
    let notes = Notes { file: Mutex::new(stderr), written: AtomicUsize::new(0) };
    let proxy = Arc::new(Proxy { hosts: AllowedHosts::new(hosts), gateway, notes });
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    let listener = {
        let _within = runtime.enter();
        UnixListener::from_std(listener)?
    };
    std::thread::Builder::new()
        .name("proxy".to_owned())
        .spawn(move || runtime.block_on(serve(listener, proxy)))?;
    Ok(path)
}

const SOCKET_FILE: &str = "proxy.sock";

/// Opens the socket. The path of a socket has to be short, and the path of the attempt's folder may be long, so the
/// folder is named by its descriptor.
fn bind_socket(folder: &Path) -> io::Result<std::os::unix::net::UnixListener> {
    let opened = File::open(folder)?;
    let short = format!("/proc/self/fd/{}/{SOCKET_FILE}", opened.as_raw_fd());
    std::os::unix::net::UnixListener::bind(short)
}

async fn serve(listener: UnixListener, proxy: Arc<Proxy>) {
    let permits = Arc::new(Semaphore::new(MAX_CONNECTIONS));
    loop {
        let Ok(permit) = Arc::clone(&permits).acquire_owned().await else { return };
        // An error means a broken socket, or too many open files, which is temporary.
        let Ok((stream, _)) = listener.accept().await else {
            tokio::time::sleep(std::time::Duration::from_millis(50)).await;
            continue;
        };
        let proxy = Arc::clone(&proxy);
        tokio::spawn(connection(stream, proxy, Arc::new(permit)));
    }
}

/// Serves a connection. A tunnel holds the permit for longer than this function runs.
async fn connection(stream: UnixStream, proxy: Arc<Proxy>, permit: Arc<OwnedSemaphorePermit>) {
    let answering = service_fn(move |request| {
        let (proxy, permit) = (Arc::clone(&proxy), Arc::clone(&permit));
        async move { Ok::<_, std::convert::Infallible>(proxy.answer(request, permit).await) }
    });
    let served = http1::Builder::new().serve_connection(TokioIo::new(stream), answering).with_upgrades();
    // It is not an error if a client disconnects.
    served.await.ok();
}

impl Proxy {
    async fn answer(&self, request: Request<Incoming>, permit: Arc<OwnedSemaphorePermit>) -> Response<Body> {
        if request.method() == Method::CONNECT {
            return self.tunnel(request, permit).await;
        }
        let is_own = |uri: &Uri| uri.authority().is_none_or(|authority| authority.as_str() == PROXY_ADDRESS);
        if is_own(request.uri()) {
            return match &self.gateway {
                Some(gateway) => gateway.pass(request).await.unwrap_or_else(|why| {
                    if matches!(why, ProxyError::DotSegment) {
                        self.notes.refused("a request to the provider", &why.to_string());
                    }
                    text_response(why.status(), &why.to_string())
                }),
                None => text_response(StatusCode::BAD_REQUEST, "this is a proxy; it has no pages"),
            };
        }
        self.plain(request).await
    }

    /// Opens a tunnel for encrypted connections.
    async fn tunnel(&self, request: Request<Incoming>, permit: Arc<OwnedSemaphorePermit>) -> Response<Body> {
        let Some(host) =
            request.uri().authority().and_then(|to| Some(Host::new(bare(to.host()), to.port_u16()?)))
        else {
            return text_response(StatusCode::BAD_REQUEST, "CONNECT needs a host and a port");
        };
        let addresses = match self.hosts.addresses(&host).await {
            Ok(addresses) => addresses,
            Err(why) => return self.refused(&host, &why),
        };
        let mut remote = match TcpStream::connect(addresses.as_slice()).await {
            Ok(remote) => remote,
            Err(error) => {
                return text_response(StatusCode::BAD_GATEWAY, &format!("{host} cannot be reached: {error}"));
            }
        };
        tokio::spawn(async move {
            if let Ok(client) = hyper::upgrade::on(request).await {
                // It is not an error if one end breaks the connection.
                tokio::io::copy_bidirectional(&mut TokioIo::new(client), &mut remote).await.ok();
            }
            drop(permit);
        });
        Response::new(Body::default())
    }

    /// Forwards an unencrypted request, which contains its whole URL.
    async fn plain(&self, request: Request<Incoming>) -> Response<Body> {
        let authority = request.uri().authority().cloned();
        let scheme = request.uri().scheme_str();
        let Some(authority) = authority.filter(|_| scheme == Some("http")) else {
            return text_response(
                StatusCode::BAD_REQUEST,
                "only http:// is supported without CONNECT; use CONNECT for https://",
            );
        };
        let host = Host::new(bare(authority.host()), authority.port_u16().unwrap_or(80));
        let addresses = match self.hosts.addresses(&host).await {
            Ok(addresses) => addresses,
            Err(why) => return self.refused(&host, &why),
        };
        let url = request.uri().to_string();
        let answered = match gateway::client(Some(addresses)) {
            Ok(client) => gateway::forward(&client, &url, request, &[]).await,
            Err(why) => Err(why),
        };
        answered.unwrap_or_else(|why| text_response(StatusCode::BAD_GATEWAY, &why.to_string()))
    }

    fn refused(&self, host: &Host, why: &ProxyError) -> Response<Body> {
        self.notes.refused(&host.to_string(), &why.to_string());
        text_response(StatusCode::FORBIDDEN, &format!("{host} may not be reached: {why}"))
    }
}

/// Removes the brackets of an IPv6 address.
fn bare(host: &str) -> &str {
    host.trim_start_matches('[').trim_end_matches(']')
}

fn text_response(status: StatusCode, text: &str) -> Response<Body> {
    let mut response = Response::new(Body::from(format!("{text}\n")));
    *response.status_mut() = status;
    response.headers_mut().insert("x-cowhand-sandbox", HeaderValue::from_static("1"));
    response
}

#[cfg(test)]
mod tests {
    use std::io::{BufRead, BufReader};
    use std::net::TcpListener;
    use std::os::unix::net::UnixStream;
    use std::time::Duration;

    use super::*;

    #[test]
    fn tunnels_count_as_connections() {
        let folder = tempfile::tempdir().unwrap();
        let server = TcpListener::bind("127.0.0.1:0").unwrap();
        let address = server.local_addr().unwrap();
        std::thread::spawn(move || {
            for mut stream in server.incoming().flatten() {
                std::thread::spawn(move || io::copy(&mut stream, &mut io::sink()));
            }
        });
        let hosts = vec![address.to_string().parse().unwrap()];
        let socket = start(folder.path(), tempfile::tempfile().unwrap(), hosts, None).unwrap();
        let connect = || {
            let mut stream = UnixStream::connect(&socket).unwrap();
            write!(stream, "CONNECT {address} HTTP/1.1\r\nHost: {address}\r\n\r\n").unwrap();
            stream
        };
        let answer = |stream: &UnixStream| {
            let mut line = String::new();
            BufReader::new(stream).read_line(&mut line).map(|_| line)
        };
        let mut tunnels: Vec<_> = (0..MAX_CONNECTIONS).map(|_| connect()).collect();
        for tunnel in &tunnels {
            assert!(answer(tunnel).unwrap().contains("200"));
        }
        let further = connect();
        further.set_read_timeout(Some(Duration::from_millis(300))).unwrap();
        assert!(answer(&further).is_err(), "more than {MAX_CONNECTIONS} tunnels are open");
        further.set_read_timeout(None).unwrap();
        tunnels.pop();
        assert!(answer(&further).unwrap().contains("200"));
    }
}
