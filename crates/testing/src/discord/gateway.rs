//! The gateway: sessions over the WebSocket protocol.

use std::sync::{Arc, Mutex};

use futures_util::{SinkExt as _, StreamExt as _};
use serde_json::{Value, json};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::mpsc;
use tokio_websockets::{CloseCode, Message, ServerBuilder, WebSocketStream};

use super::state::{FakeDiscordSession, FakeDiscordState, GUILDS, GatewayOrder, MESSAGE_CONTENT};

/// Milliseconds between heartbeats.
const HEARTBEAT: u64 = 41_250;

type Shared = Arc<Mutex<FakeDiscordState>>;

/// Accepts connections. Only the address for resuming accepts sessions that are resumed.
pub(super) async fn serve(listener: TcpListener, state: Shared, is_for_resuming: bool) {
    loop {
        let (stream, _) = listener.accept().await.unwrap();
        tokio::spawn(connection(stream, Arc::clone(&state), is_for_resuming));
    }
}

async fn connection(stream: TcpStream, state: Shared, is_for_resuming: bool) {
    let Ok((request, mut socket)) = ServerBuilder::new().accept(stream).await else { return };
    let query = request.uri().query().unwrap_or_default();
    if !query.contains("v=10") || !query.contains("encoding=json") || query.contains("compress=") {
        return close(&mut socket, 4012, "Invalid version or encoding.").await;
    }
    let (orders, mut received) = mpsc::unbounded_channel();
    let _ = orders
        .send(GatewayOrder::Send(json!({ "op": 10, "d": { "heartbeat_interval": HEARTBEAT } }).to_string()));
    loop {
        tokio::select! {
            order = received.recv() => match order {
                Some(GatewayOrder::Send(text)) => {
                    if socket.send(Message::text(text)).await.is_err() {
                        break;
                    }
                }
                Some(GatewayOrder::Close(code, reason)) => {
                    close(&mut socket, code, reason).await;
                    break;
                }
                Some(GatewayOrder::Drop) | None => break,
            },
            message = socket.next() => {
                let Some(Ok(message)) = message else { break };
                if let Some(text) = message.as_text() {
                    take(&state, text, &orders, is_for_resuming);
                }
            }
        }
    }
    let mut state = state.lock().unwrap();
    for session in state.sessions.values_mut() {
        if session.uses(&orders) {
            session.connection = None;
        }
    }
}

async fn close(socket: &mut WebSocketStream<TcpStream>, code: u16, reason: &str) {
    let code = CloseCode::try_from(code).unwrap();
    let _ = socket.send(Message::close(Some(code), reason)).await;
    while let Some(Ok(_)) = socket.next().await {}
}

/// Handles a payload of the client.
fn take(state: &Shared, text: &str, orders: &mpsc::UnboundedSender<GatewayOrder>, is_for_resuming: bool) {
    let Ok(payload) = serde_json::from_str::<Value>(text) else {
        let _ = orders.send(GatewayOrder::Close(4002, "Error while decoding payload."));
        return;
    };
    let mut state = state.lock().unwrap();
    let data = &payload["d"];
    match payload["op"].as_u64() {
        Some(1) => {
            let _ = orders.send(GatewayOrder::Send(json!({ "op": 11 }).to_string()));
        }
        Some(2) => state.identify(data, orders),
        Some(3) => state.show_presence(data, orders),
        Some(6) => state.resume(data, orders, is_for_resuming),
        Some(4 | 8) => {}
        _ => {
            let _ = orders.send(GatewayOrder::Close(4001, "Unknown opcode."));
        }
    }
}

impl FakeDiscordState {
    /// Returns the bot whose token a payload contains.
    fn bot_of(&self, data: &Value) -> Option<String> {
        let token = data["token"].as_str()?;
        self.bot_with_token(token.strip_prefix("Bot ").unwrap_or(token))
    }

    fn show_presence(&mut self, data: &Value, orders: &mpsc::UnboundedSender<GatewayOrder>) {
        let mut sessions = self.sessions.values();
        let Some(bot) = sessions.find(|session| session.uses(orders)).map(|session| session.bot.clone())
        else {
            return;
        };
        self.bot_mut(&bot).unwrap().presence = Some(data["activities"][0].clone());
    }

    fn identify(&mut self, data: &Value, orders: &mpsc::UnboundedSender<GatewayOrder>) {
        let refuse = |code, reason| {
            let _ = orders.send(GatewayOrder::Close(code, reason));
        };
        let Some(id) = self.bot_of(data) else { return refuse(4004, "Authentication failed.") };
        let Some(intents) = data["intents"].as_u64() else { return refuse(4013, "Invalid intent(s).") };
        let bot = self.bot_mut(&id).unwrap();
        if intents & MESSAGE_CONTENT != 0 && bot.application_flags == 0 {
            return refuse(4014, "Disallowed intent(s).");
        }
        if data["presence"]["activities"][0].is_object() {
            bot.presence = Some(data["presence"]["activities"][0].clone());
        }
        self.starts_remaining = self.starts_remaining.saturating_sub(1);
        self.identified += 1;
        let session_id = format!("session{}", self.new_id());
        let guilds: Vec<String> = self.guilds.keys().cloned().collect();
        let mut user = self.user_json(&id);
        (user["verified"], user["mfa_enabled"], user["email"]) = (json!(true), json!(false), Value::Null);
        let unavailable = |id: &String| json!({ "id": id, "unavailable": true });
        let ready = json!({
            "v": 10,
            "user": user,
            "guilds": guilds.iter().map(unavailable).collect::<Vec<_>>(),
            "session_id": session_id,
            "resume_gateway_url": self.resume_url,
            "shard": [0, 1],
            "application": self.application_json(&id),
        });
        let connection = Some(orders.clone());
        let mut session = FakeDiscordSession { bot: id.clone(), intents, events: Vec::new(), connection };
        session.send("READY", &ready);
        if intents & GUILDS != 0 {
            for guild in &guilds {
                session.send("GUILD_CREATE", &self.guild_json(guild, &id));
            }
        }
        self.sessions.insert(session_id, session);
    }

    fn resume(&mut self, data: &Value, orders: &mpsc::UnboundedSender<GatewayOrder>, is_for_resuming: bool) {
        let send = |order| {
            let _ = orders.send(order);
        };
        let Some(bot) = self.bot_of(data) else {
            return send(GatewayOrder::Close(4004, "Authentication failed."));
        };
        let session = self.sessions.get_mut(data["session_id"].as_str().unwrap_or_default());
        let Some(session) = session.filter(|session| is_for_resuming && session.bot == bot) else {
            return send(GatewayOrder::Send(json!({ "op": 9, "d": false }).to_string()));
        };
        let Some(seen) = data["seq"].as_u64().and_then(|seq| usize::try_from(seq).ok()) else {
            return send(GatewayOrder::Close(4007, "Invalid seq."));
        };
        if seen > session.events.len() {
            return send(GatewayOrder::Close(4007, "Invalid seq."));
        }
        for event in &session.events[seen..] {
            send(GatewayOrder::Send(event.clone()));
        }
        session.connection = Some(orders.clone());
        session.send("RESUMED", &json!({}));
        self.resumed += 1;
    }
}
