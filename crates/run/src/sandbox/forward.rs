//! The programs of cowhand inside a bubblewrap sandbox. `cowhand enclosed` is started by `bwrap` and executes the
//! agent. `cowhand forward`, the forwarder, accepts TCP connections on the loopback address and passes them on to the
//! proxy's Unix socket.

use std::io;
use std::net::TcpListener;
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::process::CommandExt;
use std::process::{Command, ExitCode, Stdio};

use super::EXIT_CANNOT_START;
use super::proxy;
use super::seccomp::{self, Confinement};
use cowhand_system::stderr;

/// Path of cowhand's program inside the sandbox. The sandbox has its own `/dev`, in which no path of the config is
/// bound.
pub(super) const PROGRAM_PATH: &str = "/dev/cowhand/cowhand";
/// Path of the proxy's socket inside the sandbox.
pub(super) const SOCKET_PATH: &str = "/dev/cowhand/proxy.sock";

/// `cowhand enclosed ROUTE NETWORK PROGRAM ARGUMENT…`: starts the forwarder if there is a proxy, installs the seccomp
/// filters, and executes the agent.
pub(super) const ENCLOSED_VERB: &str = "enclosed";
/// Value of `ROUTE` if there is a proxy.
pub(super) const WITH_PROXY: &str = "proxied";
/// Value of `ROUTE` if there is no proxy.
pub(super) const WITHOUT_PROXY: &str = "direct";
/// Value of `NETWORK` if the sandbox has its own network.
pub(super) const OWN_NETWORK: &str = "own-network";
/// Value of `NETWORK` if the sandbox has the network of the host.
pub(super) const SHARED_NETWORK: &str = "shared-network";
/// `cowhand forward`: its stdin is the listening socket.
const FORWARD_VERB: &str = "forward";
/// Argument of the forwarder's second process, which is detached from its parent.
const DETACHED: &str = "detached";

/// Executes the agent. Returns only after an error.
pub fn run_enclosed(argv: &[std::ffi::OsString]) -> ExitCode {
    let [route, network, program, arguments @ ..] = argv else { return ExitCode::from(EXIT_CANNOT_START) };
    let opened = if route == WITH_PROXY { start_forwarder() } else { Ok(()) };
    let held = Confinement::Namespaces { own_network: network == OWN_NETWORK };
    let closed = opened.and_then(|()| seccomp::restrict(held).map_err(io::Error::other));
    let why = match closed {
        Ok(()) => {
            let error = Command::new(program).args(arguments).exec();
            format!("cannot start {}: {error}", program.display())
        }
        Err(error) => format!("the agent is not started, because its sandbox cannot be set up: {error}"),
    };
    stderr::write_line(format!("cowhand: {why}"));
    ExitCode::from(EXIT_CANNOT_START)
}

fn start_forwarder() -> io::Result<()> {
    let listener = TcpListener::bind(proxy::PROXY_ADDRESS)?;
    // This process becomes the agent by `exec`, and the agent must have no child that it did not start. So this command
    // starts the forwarder as a detached process, and ends.
    let status = Command::new(PROGRAM_PATH).arg(FORWARD_VERB).stdin(OwnedFd::from(listener)).status()?;
    if status.success() { Ok(()) } else { Err(io::Error::other("the forwarder did not start")) }
}

/// Runs the forwarder. The first process, without `detached`, only starts the second one and ends. The second process
/// forwards connections. It has its own process group, so that signals for the agent do not reach it.
pub fn forward(detached: bool) -> ExitCode {
    let done = if detached {
        forward_all()
    } else {
        let mut second = Command::new(PROGRAM_PATH);
        second
            .args([FORWARD_VERB, DETACHED])
            .stdin(Stdio::inherit())
            .stdout(Stdio::null())
            .stderr(Stdio::null());
        second.process_group(0).spawn().map(drop)
    };
    match done {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            stderr::write_line(format!("cowhand: the forwarder: {error}"));
            ExitCode::FAILURE
        }
    }
}

fn forward_all() -> io::Result<()> {
    let listener = TcpListener::from(io::stdin().as_fd().try_clone_to_owned()?);
    listener.set_nonblocking(true)?;
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    runtime.block_on(async {
        let listener = tokio::net::TcpListener::from_std(listener)?;
        loop {
            let (mut near, _) = listener.accept().await?;
            tokio::spawn(async move {
                // If the proxy cannot be reached, the connection is closed.
                if let Ok(mut far) = tokio::net::UnixStream::connect(SOCKET_PATH).await {
                    tokio::io::copy_bidirectional(&mut near, &mut far).await.ok();
                }
            });
        }
    })
}
