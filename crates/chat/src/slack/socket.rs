//! One WebSocket of Socket Mode: frames, envelopes, acknowledgements, pings.
//!
//! Several connections can be open at the same time. The current one is the newest. If Slack announces the end of a
//! connection, a new one is opened, and the old one stays open until Slack closes it, but at most for `LINGER`. Envelopes
//! of all open connections are received.

use std::sync::Arc;
use std::time::Duration;

use futures_util::{SinkExt, StreamExt};
use serde_json::{Value, json};
use tokio::net::TcpStream;
use tokio::sync::{mpsc, oneshot};
use tokio::time::{Instant, MissedTickBehavior, interval, sleep_until, timeout};
use tokio_websockets::{ClientBuilder, MaybeTlsStream, Message, WebSocketStream};

use super::api::SlackApi;
use super::dispatch::Incoming;
use super::respond::{Interaction, respond};
use crate::EventReply;

const PING_INTERVAL: Duration = Duration::from_secs(10);
/// Time without any frame after which the connection counts as lost.
const MAX_SILENCE: Duration = Duration::from_secs(30);
const OPEN_TIMEOUT: Duration = Duration::from_secs(30);
const SEND_TIMEOUT: Duration = Duration::from_secs(10);
/// Maximum time for which a connection stays in use after Slack has announced its end.
const LINGER: Duration = Duration::from_mins(1);

pub(super) type SlackStream = WebSocketStream<MaybeTlsStream<TcpStream>>;

/// Reason why a connection is not the current one any more.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum SocketEnd {
    /// Slack will close the connection. The connection stays in use until then, but at most for `LINGER`.
    Refresh,
    /// Socket Mode was disabled.
    Disabled,
    Lost {
        reason: String,
    },
}

/// Kind of an envelope.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum EnvelopeKind {
    Event,
    Command,
    Interactive,
}

/// Message of Slack that has to be acknowledged.
pub(super) struct Envelope {
    pub(super) kind: EnvelopeKind,
    pub(super) payload: Value,
    pub(super) acknowledgement: Acknowledgement,
    /// Channel end for the reply to a command or a press; none for an event. The task [`respond`] starts to wait for
    /// the reply when the envelope arrives.
    pub(super) reply: Option<oneshot::Sender<EventReply>>,
}

/// Handle with which an envelope is acknowledged.
#[derive(Clone)]
pub(super) struct Acknowledgement {
    envelope: String,
    outgoing: mpsc::UnboundedSender<String>,
}

impl Acknowledgement {
    /// Acknowledges the envelope. Returns false if its connection has ended.
    pub(super) fn send(&self, payload: Option<Value>) -> bool {
        let mut frame = json!({ "envelope_id": self.envelope });
        if let Some(payload) = payload {
            frame["payload"] = payload;
        }
        self.outgoing.send(frame.to_string()).is_ok()
    }
}

/// Connects, and waits for the frame `hello`. The address contains a ticket, so no error contains the address.
pub(super) async fn open(url: &str) -> Result<SlackStream, SocketEnd> {
    let lost = |reason: &str| SocketEnd::Lost { reason: reason.to_owned() };
    let opening = async {
        let builder = ClientBuilder::new().uri(url).map_err(|_| lost("Slack named an invalid address"))?;
        let connected = builder.connect().await;
        let (mut stream, _) = connected.map_err(|error| lost(&format!("the WebSocket: {error}")))?;
        while let Some(frame) = stream.next().await {
            let frame = frame.map_err(|error| lost(&format!("the WebSocket: {error}")))?;
            match read_frame(&frame) {
                Some(SlackFrame::Hello) => return Ok(stream),
                Some(SlackFrame::End(end)) => return Err(end),
                Some(SlackFrame::Envelope { .. }) | None => {}
            }
        }
        Err(lost("Slack closed the WebSocket"))
    };
    let seconds = OPEN_TIMEOUT.as_secs();
    let too_late = || lost(&format!("the connection to Slack was not ready within {seconds} seconds"));
    timeout(OPEN_TIMEOUT, opening).await.unwrap_or_else(|_| Err(too_late()))
}

enum SlackFrame {
    Hello,
    End(SocketEnd),
    Envelope { id: String, kind: Option<EnvelopeKind>, frame: Value },
}

fn read_frame(message: &Message) -> Option<SlackFrame> {
    let frame: Value = serde_json::from_str(message.as_text()?).ok()?;
    match frame["type"].as_str()? {
        "hello" => Some(SlackFrame::Hello),
        "disconnect" => Some(SlackFrame::End(match frame["reason"].as_str() {
            Some("link_disabled") => SocketEnd::Disabled,
            _ => SocketEnd::Refresh,
        })),
        kind => {
            let id = frame["envelope_id"].as_str()?.to_owned();
            let kind = match kind {
                "events_api" => Some(EnvelopeKind::Event),
                "slash_commands" => Some(EnvelopeKind::Command),
                "interactive" => Some(EnvelopeKind::Interactive),
                _ => None,
            };
            Some(SlackFrame::Envelope { id, kind, frame })
        }
    }
}

/// Serves a connection until it ends. `end` is sent once, when the connection is no longer the current one.
pub(super) async fn serve(
    mut stream: SlackStream,
    api: Arc<SlackApi>,
    queue: mpsc::Sender<Incoming>,
    end: oneshot::Sender<SocketEnd>,
) {
    let mut end = Some(end);
    let (outgoing, mut waiting) = mpsc::unbounded_channel();
    let (mut last_frame, mut closes_at) = (Instant::now(), None);
    let mut pings = interval(PING_INTERVAL);
    pings.set_missed_tick_behavior(MissedTickBehavior::Delay);
    let reason = loop {
        let closing = closes_at.unwrap_or(last_frame + MAX_SILENCE);
        tokio::select! {
            frame = stream.next() => {
                let frame = match frame {
                    Some(Ok(frame)) => frame,
                    Some(Err(error)) => break format!("the WebSocket: {error}"),
                    None => break "Slack closed the WebSocket".to_owned(),
                };
                last_frame = Instant::now();
                match read_frame(&frame) {
                    Some(SlackFrame::End(reason)) => {
                        closes_at.get_or_insert(last_frame + LINGER);
                        if let Some(end) = end.take() {
                            let _ = end.send(reason);
                        }
                    }
                    Some(SlackFrame::Envelope { id, kind, frame }) => {
                        let acknowledgement = Acknowledgement { envelope: id, outgoing: outgoing.clone() };
                        receive(acknowledgement, kind, frame, &api, &queue);
                    }
                    Some(SlackFrame::Hello) | None => {}
                }
            }
            Some(text) = waiting.recv() => {
                let sent = timeout(SEND_TIMEOUT, stream.send(Message::text(text))).await;
                if !matches!(sent, Ok(Ok(()))) {
                    break "an acknowledgement could not be sent".to_owned();
                }
            }
            _ = pings.tick() => {
                let sent = timeout(SEND_TIMEOUT, stream.send(Message::ping("cowhand"))).await;
                if !matches!(sent, Ok(Ok(()))) {
                    break "a ping could not be sent".to_owned();
                }
            }
            () = sleep_until(closing) => break "Slack has sent nothing for some time".to_owned(),
        }
    };
    let _ = timeout(SEND_TIMEOUT, stream.close()).await;
    if let Some(end) = end {
        let _ = end.send(SocketEnd::Lost { reason });
    }
}

/// Queues an envelope. An envelope that does not fit into the queue is not acknowledged, so Slack sends it again.
fn receive(
    acknowledgement: Acknowledgement,
    kind: Option<EnvelopeKind>,
    mut frame: Value,
    api: &Arc<SlackApi>,
    queue: &mpsc::Sender<Incoming>,
) {
    let Some(kind) = kind else {
        acknowledgement.send(None);
        return;
    };
    let payload = frame["payload"].take();
    let reply = (kind != EnvelopeKind::Event).then(|| {
        let (reply, replied) = oneshot::channel();
        let interaction = Interaction {
            acknowledgement: acknowledgement.clone(),
            response_url: payload["response_url"].as_str().map(str::to_owned),
            shows_payload: kind == EnvelopeKind::Command && frame["accepts_response_payload"] == true,
        };
        tokio::spawn(respond(Arc::clone(api), interaction, replied));
        reply
    });
    let _ = queue.try_send(Incoming::Envelope(Envelope { kind, payload, acknowledgement, reply }));
}
