//! Keeps a connection of Socket Mode open, and replaces it when it ends.

use std::sync::Arc;
use std::time::Duration;

use cowhand_core::backoff::Backoff;
use cowhand_core::chat::BotAccount;
use jiff::SignedDuration;
use tokio::sync::{mpsc, oneshot};
use tokio::task::JoinSet;
use tokio::time::{Instant, sleep};

use super::SlackConnector;
use super::api::{CallError, CallRepeat, TokenKind};
use super::dispatch::Incoming;
use super::socket::{SlackStream, SocketEnd, open, serve};
use crate::{ChatError, ConnectionEnd, ConnectionState, ReceivedEvent};

const RECONNECT_WAITS: Backoff =
    Backoff::doubling(SignedDuration::from_millis(500), SignedDuration::from_mins(2));
/// Length of a connection after which its end does not count as a failure.
const STABLE_CONNECTION: Duration = Duration::from_secs(10);
/// Number of short connections in a row after whose announced end the next connection is opened without a wait.
const MAX_QUICK_REFRESHES: u32 = 5;
/// Maximum number of received envelopes that wait.
const MAX_WAITING_ENVELOPES: usize = 4096;
/// Errors of a method that mean that Slack refuses the app, and would refuse it again.
const REFUSING_CODES: [&str; 7] = [
    "access_denied",
    "app_not_installed",
    "invalid_app",
    "missing_scope",
    "no_permission",
    "not_allowed_token_type",
    "team_access_not_granted",
];
pub(super) const SOCKET_MODE_ADVICE: &str =
    "Socket Mode is disabled: enable it in the settings of the Slack app";

impl SlackConnector {
    pub(super) async fn run_connection(&self, events: mpsc::Sender<ReceivedEvent>) -> ConnectionEnd {
        self.api.refusal.clear();
        let (queue, envelopes) = mpsc::channel(MAX_WAITING_ENVELOPES);
        tokio::select! {
            end = self.keep_connected(queue) => end,
            end = self.dispatch(envelopes, &events) => end,
            () = events.closed() => ConnectionEnd::Stopped,
            reason = self.api.refusal.recorded() => {
                refused(format!("Slack does not accept the bot token: {reason}"))
            }
        }
    }

    async fn keep_connected(&self, queue: mpsc::Sender<Incoming>) -> ConnectionEnd {
        // Dropping the set ends the connections.
        let mut sockets = JoinSet::new();
        let mut failures = 0;
        loop {
            let (end, length) = match self.connect_before_gap(&queue, &mut sockets).await {
                Ok(socket_end) => {
                    let start = Instant::now();
                    let lost = SocketEnd::Lost { reason: "the connection ended".to_owned() };
                    (socket_end.await.unwrap_or(lost), start.elapsed())
                }
                Err(ConnectError::Refused { reason }) => return refused(reason),
                Err(ConnectError::Ended(end)) => (end, Duration::ZERO),
            };
            failures = if length < STABLE_CONNECTION { failures + 1 } else { 0 };
            let wait = match end {
                SocketEnd::Disabled => return refused(SOCKET_MODE_ADVICE.to_owned()),
                // The old connection stays in use until Slack closes it, but at most for `LINGER`.
                SocketEnd::Refresh if failures <= MAX_QUICK_REFRESHES => Duration::ZERO,
                SocketEnd::Refresh => {
                    let problem = Some("Slack ends each connection at once".to_owned());
                    self.state.send_replace(ConnectionState::Connecting { problem });
                    RECONNECT_WAITS.wait_after(failures - MAX_QUICK_REFRESHES)
                }
                SocketEnd::Lost { reason } => {
                    tracing::info!("the connection to Slack is lost: {reason}");
                    self.state.send_replace(ConnectionState::Connecting { problem: Some(reason) });
                    RECONNECT_WAITS.wait_after(failures)
                }
            };
            sleep(wait).await;
        }
    }

    /// Opens a connection, while the old ones stay in use. If the last of them ends before, the state shows that there
    /// is no connection, and the new one is announced: messages may be missing. Returns the receiver of its end.
    async fn connect_before_gap(
        &self,
        queue: &mpsc::Sender<Incoming>,
        sockets: &mut JoinSet<()>,
    ) -> Result<oneshot::Receiver<SocketEnd>, ConnectError> {
        let mut opening = std::pin::pin!(self.open_socket());
        let opened = loop {
            tokio::select! {
                biased;
                Some(_) = sockets.join_next() => if sockets.is_empty() {
                    self.note_gap();
                },
                opened = &mut opening => break opened,
            }
        };
        let (stream, account) = opened?;
        let is_new = !matches!(*self.state.borrow(), ConnectionState::Connected(_));
        self.state.send_replace(ConnectionState::Connected(account.clone()));
        if is_new && queue.send(Incoming::Connected(account)).await.is_err() {
            return Err(ConnectError::Ended(SocketEnd::Lost { reason: "stopped".to_owned() }));
        }
        let (end, ended) = oneshot::channel();
        sockets.spawn(serve(stream, Arc::clone(&self.api), queue.clone(), end));
        Ok(ended)
    }

    /// Records that the last connection has ended before another one was open.
    fn note_gap(&self) {
        let problem = Some("Slack closed the connection before another one was open".to_owned());
        self.state.send_if_modified(|state| {
            let is_connected = matches!(state, ConnectionState::Connected(_));
            if is_connected {
                *state = ConnectionState::Connecting { problem };
            }
            is_connected
        });
    }

    async fn open_socket(&self) -> Result<(SlackStream, BotAccount), ConnectError> {
        let identity = self.read_identity().await?;
        let opened =
            self.api.call_as(TokenKind::App, "apps.connections.open", &Vec::new(), CallRepeat::Always).await;
        let opened = opened.map_err(ConnectError::of_app_token)?.body;
        let url = opened["url"].as_str().unwrap_or_default();
        let stream = open(url).await.map_err(ConnectError::Ended)?;
        Ok((stream, identity.account()))
    }
}

fn refused(reason: String) -> ConnectionEnd {
    ConnectionEnd::Refused { reason }
}

enum ConnectError {
    /// Slack refuses the app, and would refuse it again.
    Refused {
        reason: String,
    },
    Ended(SocketEnd),
}

impl ConnectError {
    fn of_app_token(error: CallError) -> Self {
        match Self::from(error) {
            Self::Refused { reason } => Self::Refused { reason: format!("with the app token: {reason}") },
            Self::Ended(end) => Self::Ended(end),
        }
    }
}

impl From<CallError> for ConnectError {
    fn from(error: CallError) -> Self {
        let is_refusal = error.code().is_some_and(|code| REFUSING_CODES.contains(&code));
        match ChatError::from(error) {
            error @ ChatError::Revoked { .. } => Self::Refused { reason: error.to_string() },
            error if is_refusal => Self::Refused { reason: error.to_string() },
            error => Self::Ended(SocketEnd::Lost { reason: error.to_string() }),
        }
    }
}
