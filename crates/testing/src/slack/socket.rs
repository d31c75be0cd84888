//! Socket Mode: sockets, envelopes, acknowledgements and redelivery.

use std::sync::Arc;
use std::time::Duration;

use futures_util::{SinkExt, StreamExt};
use serde_json::{Value, json};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::{mpsc, oneshot};
use tokio::time::{interval, timeout};
use tokio_websockets::{Message, ServerBuilder};

use super::{FakeSlack, FakeSlackState, FakeWorkspace};

const FAKE_PING_INTERVAL: Duration = Duration::from_secs(2);
/// Number of times that an event is sent again.
const MAX_REDELIVERIES: u32 = 3;

#[derive(Debug)]
pub(crate) struct FakeSocket {
    id: String,
    frames: mpsc::UnboundedSender<SocketFrame>,
    /// True after the end of the socket was announced. The socket gets no more envelopes, and is closed when another
    /// socket is open.
    is_leaving: bool,
}

#[derive(Debug)]
enum SocketFrame {
    Text(String),
    /// Closes the WebSocket properly.
    Close,
    /// Ends the TCP connection.
    Drop,
    /// Keeps the TCP connection open, and neither reads nor writes.
    Freeze,
}

/// Envelope that is not acknowledged.
#[derive(Debug)]
pub(crate) struct FakeEnvelope {
    /// True as soon as a socket has received it.
    is_sent: bool,
    acknowledged: Option<oneshot::Sender<Value>>,
    frame: Value,
}

pub(crate) async fn serve(workspace: Arc<FakeWorkspace>, listener: TcpListener) {
    loop {
        let (stream, _) = listener.accept().await.unwrap();
        tokio::spawn(serve_socket(Arc::clone(&workspace), stream));
    }
}

async fn serve_socket(workspace: Arc<FakeWorkspace>, stream: TcpStream) {
    let Ok((request, mut socket)) = ServerBuilder::new().accept(stream).await else { return };
    let ticket = request.uri().query().unwrap_or_default().trim_start_matches("ticket=").to_owned();
    let (frames, mut outgoing) = mpsc::unbounded_channel();
    let id = {
        let mut state = workspace.state();
        if !state.tickets.remove(&ticket) {
            return;
        }
        let id = state.next_id("socket-");
        let number = state.sockets.len() + 1;
        let hello = json!({ "type": "hello", "num_connections": number,
            "connection_info": { "app_id": "A1" }, "debug_info": { "host": "fake" } });
        frames.send(SocketFrame::Text(hello.to_string())).unwrap();
        for leaving in state.sockets.iter().filter(|socket| socket.is_leaving) {
            let _ = leaving.frames.send(SocketFrame::Close);
        }
        state.sockets.push(FakeSocket { id: id.clone(), frames, is_leaving: false });
        id
    };
    workspace.notify();
    let mut pings = interval(FAKE_PING_INTERVAL);
    loop {
        let is_sent = tokio::select! {
            frame = outgoing.recv() => match frame {
                Some(SocketFrame::Text(text)) => socket.send(Message::text(text)).await.is_ok(),
                Some(SocketFrame::Close) => {
                    let _ = timeout(Duration::from_secs(5), socket.close()).await;
                    false
                }
                Some(SocketFrame::Freeze) => std::future::pending().await,
                Some(SocketFrame::Drop) | None => false,
            },
            message = socket.next() => match message {
                Some(Ok(message)) => {
                    if let Some(text) = message.as_text() {
                        acknowledge(&workspace, text);
                    }
                    true
                }
                Some(Err(_)) | None => false,
            },
            _ = pings.tick() => socket.send(Message::ping("fake")).await.is_ok(),
        };
        if !is_sent {
            break;
        }
    }
    workspace.state().sockets.retain(|socket| socket.id != id);
    workspace.notify();
}

fn acknowledge(workspace: &FakeWorkspace, text: &str) {
    let Ok(mut frame) = serde_json::from_str::<Value>(text) else { return };
    let id = frame["envelope_id"].as_str().unwrap_or_default();
    let envelope = workspace.state().envelopes.remove(id);
    if let Some(acknowledged) = envelope.and_then(|envelope| envelope.acknowledged) {
        let _ = acknowledged.send(frame["payload"].take());
    }
    workspace.notify();
}

/// Sends an envelope to one of the sockets. Events are sent again if they are not acknowledged in time; commands and
/// presses are not. Returns the receiver of the payload of the acknowledgement.
pub(crate) fn send_envelope(
    workspace: &Arc<FakeWorkspace>,
    kind: &str,
    payload: &Value,
) -> oneshot::Receiver<Value> {
    let (acknowledged, receiver) = oneshot::channel();
    let id = {
        let mut state = workspace.state();
        let id = state.next_id("envelope-");
        let frame = json!({ "envelope_id": id, "type": kind, "payload": payload,
            "accepts_response_payload": kind != "events_api" });
        state
            .envelopes
            .insert(id.clone(), FakeEnvelope { is_sent: false, acknowledged: Some(acknowledged), frame });
        id
    };
    try_send(workspace, &id, 0);
    let is_repeated = kind == "events_api";
    let workspace = Arc::clone(workspace);
    tokio::spawn(async move {
        for attempt in 1..=MAX_REDELIVERIES + 1 {
            let wait = { workspace.state().acknowledge_within };
            tokio::time::sleep(wait).await;
            if !is_repeated || attempt > MAX_REDELIVERIES {
                break;
            }
            try_send(&workspace, &id, attempt);
        }
        workspace.state().envelopes.remove(&id);
        workspace.notify();
    });
    receiver
}

fn try_send(workspace: &FakeWorkspace, id: &str, attempt: u32) {
    let mut state = workspace.state();
    let Some(envelope) = state.envelopes.get(id) else { return };
    let mut frame = envelope.frame.clone();
    if frame["type"] == "events_api" {
        frame["retry_attempt"] = json!(attempt);
        frame["retry_reason"] = json!(if attempt == 0 { "" } else { "timeout" });
    }
    // The sockets take turns.
    if let Some(place) = state.sockets.iter().position(|socket| !socket.is_leaving) {
        let socket = state.sockets.remove(place);
        let _ = socket.frames.send(SocketFrame::Text(frame.to_string()));
        state.sockets.push(socket);
        state.envelopes.get_mut(id).unwrap().is_sent = true;
    }
    drop(state);
    workspace.notify();
}

impl FakeSlackState {
    fn unacknowledged(&self) -> usize {
        self.envelopes.values().filter(|envelope| envelope.is_sent).count()
    }
}

impl FakeSlack {
    /// Returns the number of open sockets.
    pub fn connections(&self) -> usize {
        self.state().sockets.len()
    }

    /// Returns the number of envelopes that were sent and not acknowledged. An event that was sent four times no longer
    /// counts.
    pub fn unacknowledged(&self) -> usize {
        self.state().unacknowledged()
    }

    /// Waits until this number of sockets is open, and the end of none of them was announced.
    pub async fn wait_for_connections(&self, count: usize) {
        let is_reached = |state: &mut FakeSlackState| {
            let is_staying = state.sockets.iter().all(|socket| !socket.is_leaving);
            (is_staying && state.sockets.len() == count).then_some(())
        };
        self.wait_for("connections", is_reached).await;
    }

    pub async fn wait_until_acknowledged(&self) {
        self.wait_until_unacknowledged(0).await;
    }

    pub async fn wait_until_unacknowledged(&self, count: usize) {
        self.wait_for("acknowledgements", |state| (state.unacknowledged() == count).then_some(())).await;
    }

    /// Announces the end of all connections. With `link_disabled` they end at once, otherwise as soon as another
    /// connection is open.
    pub fn disconnect(&self, reason: &str) {
        let frame = json!({ "type": "disconnect", "reason": reason, "debug_info": { "host": "fake" } });
        for socket in &mut self.state().sockets {
            socket.is_leaving = true;
            let _ = socket.frames.send(SocketFrame::Text(frame.to_string()));
            if reason == "link_disabled" {
                let _ = socket.frames.send(SocketFrame::Close);
            }
        }
    }

    /// Stops all sockets without closing them, as a network that loses all packets does. They no longer count.
    pub fn freeze_connections(&self) {
        for socket in self.state().sockets.drain(..) {
            let _ = socket.frames.send(SocketFrame::Freeze);
        }
    }

    /// Ends all TCP connections of sockets.
    pub fn drop_connections(&self) {
        for socket in &self.state().sockets {
            let _ = socket.frames.send(SocketFrame::Drop);
        }
    }
}
