//! The listener of a Unix socket. If somebody removes or replaces the file of the socket, clients cannot connect to it
//! any more. The listener then binds the socket again.

use std::fs::{self, Metadata, Permissions};
use std::io;
use std::os::unix::fs::{MetadataExt, PermissionsExt, symlink};
use std::path::PathBuf;
use std::time::Duration;

use axum::serve::Listener;
use tokio::net::unix::SocketAddr;
use tokio::net::{UnixListener, UnixStream};
use tokio::time::{Interval, MissedTickBehavior, interval, sleep};
use tracing::{error, warn};

use super::Api;
use cowhand_engine::fleet::Fleet;
use cowhand_engine::state::StateFolder;
use cowhand_system::remove::missing_is_ok;

/// Time between two checks of the file.
const CHECK_EVERY: Duration = Duration::from_secs(1);
/// Pause after a failed accept, whose most frequent cause is too many open files.
pub(crate) const ACCEPT_PAUSE: Duration = Duration::from_millis(100);

/// Path of a socket.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct SocketPath {
    /// Path in the state folder.
    pub(crate) link: PathBuf,
    /// Path at which the socket is bound: `link` itself or, if `link` is too long for a socket, a shorter path to which
    /// `link` is a symbolic link.
    pub(crate) real: PathBuf,
}

/// Function that finds the path of a socket, and creates its folder if needed.
pub(crate) type FindPath = fn(&StateFolder) -> io::Result<SocketPath>;

pub(crate) struct RebindingListener {
    api: Api,
    find_path: FindPath,
    path: SocketPath,
    listener: UnixListener,
    /// Metadata of the file that the bind created, to recognise a replaced file.
    file: Metadata,
    checks: Interval,
}

impl RebindingListener {
    /// Binds the socket. The daemon has locked the state folder, so an existing file was left by an earlier daemon.
    pub(crate) fn bind(api: Api, find_path: FindPath) -> io::Result<Self> {
        let path = find_path(api.state())?;
        let (listener, file) = path.bind()?;
        let mut checks = interval(CHECK_EVERY);
        checks.set_missed_tick_behavior(MissedTickBehavior::Delay);
        Ok(Self { api, find_path, path, listener, file, checks })
    }

    pub(crate) const fn path(&self) -> &SocketPath {
        &self.path
    }

    /// Waits for the next connection. Meanwhile, binds the socket again if its file was removed or replaced.
    pub(crate) async fn next_stream(&mut self) -> io::Result<(UnixStream, SocketAddr)> {
        loop {
            tokio::select! {
                accepted = self.listener.accept() => return accepted,
                _ = self.checks.tick() => self.bind_again_if_lost(),
            }
        }
    }

    fn bind_again_if_lost(&mut self) {
        let holds_folder = || self.api.daemon().is_ok_and(Fleet::holds_state_folder);
        if self.path.is_bound(&self.file) || !holds_folder() {
            return;
        }
        let bound = (self.find_path)(self.api.state()).and_then(|path| Ok((path.bind()?, path)));
        let link = self.path.link.display();
        match bound {
            Ok(((listener, file), path)) => {
                warn!("the socket {link} was removed or replaced; cowhand has made it again");
                (self.listener, self.file, self.path) = (listener, file, path);
            }
            Err(error) => {
                error!("the socket {link} was removed or replaced, and cannot be made again: {error}");
            }
        }
    }
}

impl Listener for RebindingListener {
    type Io = UnixStream;
    type Addr = SocketAddr;

    async fn accept(&mut self) -> (UnixStream, SocketAddr) {
        loop {
            match self.next_stream().await {
                Ok(accepted) => return accepted,
                Err(error) => {
                    warn!("cannot accept a connection: {error}");
                    sleep(ACCEPT_PAUSE).await;
                }
            }
        }
    }

    fn local_addr(&self) -> io::Result<SocketAddr> {
        self.listener.local_addr()
    }
}

impl SocketPath {
    fn bind(&self) -> io::Result<(UnixListener, Metadata)> {
        self.remove()?;
        let listener = UnixListener::bind(&self.real)?;
        fs::set_permissions(&self.real, Permissions::from_mode(0o600))?;
        if self.real != self.link {
            symlink(&self.real, &self.link)?;
        }
        Ok((listener, fs::symlink_metadata(&self.real)?))
    }

    pub(crate) fn remove(&self) -> io::Result<()> {
        missing_is_ok(fs::remove_file(&self.link))?;
        missing_is_ok(fs::remove_file(&self.real))
    }

    /// Returns whether clients find the socket. If the file cannot be examined at the moment, it counts as present.
    fn is_bound(&self, file: &Metadata) -> bool {
        let is_missing = |error: io::Error| {
            matches!(
                error.kind(),
                io::ErrorKind::NotFound | io::ErrorKind::NotADirectory | io::ErrorKind::InvalidInput
            )
        };
        let is_same = match fs::symlink_metadata(&self.real) {
            Ok(found) => (found.dev(), found.ino()) == (file.dev(), file.ino()),
            Err(error) => !is_missing(error),
        };
        let is_linked = self.real == self.link
            || fs::read_link(&self.link).map_or_else(|error| !is_missing(error), |real| real == self.real);
        is_same && is_linked
    }
}
