//! Planned faults of the platform.

use jiff::SignedDuration;
use serde_json::json;

use super::state::{FakeDiscordState, GatewayOrder};
use super::{BOT_ID, FakeDiscord};

/// Fault in the handling of the next requests that match.
#[derive(Debug, Clone)]
pub(super) struct FakeDiscordFault {
    /// Part of `METHOD /path`.
    route: String,
    count: usize,
    pub(super) kind: FakeDiscordFaultKind,
}

#[derive(Debug, Clone)]
pub(super) enum FakeDiscordFaultKind {
    RateLimit {
        retry_after: f64,
        is_global: bool,
    },
    /// Answers with this status instead of executing the request.
    Status(u16),
    /// Executes the request, and answers with this status.
    StatusAfterEffect(u16),
}

impl FakeDiscord {
    /// Answers the next `count` requests whose `METHOD /path` contains `route` with 429.
    pub fn rate_limit(&self, route: &str, count: usize, retry_after: f64) {
        self.plan(route, count, FakeDiscordFaultKind::RateLimit { retry_after, is_global: false });
    }

    /// Answers the next `count` requests with a 429 that states a limit on all requests of the bot.
    pub fn rate_limit_globally(&self, count: usize, retry_after: f64) {
        self.plan("", count, FakeDiscordFaultKind::RateLimit { retry_after, is_global: true });
    }

    /// Answers the next `count` requests whose `METHOD /path` contains `route` with a status, and does not execute them.
    pub fn fail(&self, route: &str, count: usize, status: u16) {
        self.plan(route, count, FakeDiscordFaultKind::Status(status));
    }

    /// Executes the next `count` requests whose `METHOD /path` contains `route`, but answers with a status.
    pub fn fail_after_effect(&self, route: &str, count: usize, status: u16) {
        self.plan(route, count, FakeDiscordFaultKind::StatusAfterEffect(status));
    }

    /// Ends the planned faults.
    pub fn end_faults(&self) {
        self.lock().faults.clear();
    }

    /// Forgets the nonces, as Discord does after some minutes.
    pub fn forget_nonces(&self) {
        self.lock().nonces.clear();
    }

    /// Lets the addresses of all files expire, as Discord does after a day.
    pub fn expire_files(&self) {
        self.lock().expire_addresses();
    }

    /// Sets by how much the clock of the platform is ahead of the clock of this machine.
    pub fn set_clock_offset(&self, offset: SignedDuration) {
        self.lock().clock_offset = offset;
    }

    /// States this size of every file from now on; none means its real size.
    pub fn state_file_size(&self, bytes: Option<usize>) {
        self.lock().stated_file_size = bytes;
    }

    /// Streams this number of bytes from now on, instead of the content of each file.
    pub fn stream_files(&self, bytes: Option<usize>) {
        self.lock().streamed_file_size = bytes;
    }

    /// Refuses the token of the first bot from now on, and closes its connections.
    pub fn revoke_token(&self) {
        let mut state = self.lock();
        state.bots[0].is_accepted = false;
        state.sessions.retain(|_, session| {
            let is_revoked = session.bot == BOT_ID;
            if is_revoked {
                session.order(GatewayOrder::Close(4004, "Authentication failed."));
            }
            !is_revoked
        });
    }

    /// Accepts the token of the first bot again.
    pub fn accept_token(&self) {
        self.lock().bots[0].is_accepted = true;
    }

    /// Switches the message content intent of the first bot off.
    pub fn refuse_intents(&self) {
        self.lock().bots[0].application_flags = 0;
    }

    /// Lets everybody add the first bot to their own servers.
    pub fn make_public(&self) {
        self.lock().bots[0].is_public = true;
    }

    /// Takes permissions from the bots.
    pub fn remove_permissions(&self, guild: &str, permissions: u64) {
        self.lock().guilds.get_mut(guild).unwrap().permissions &= !permissions;
    }

    /// Asks the client of each connection to connect again (op 7).
    pub fn reconnect(&self) {
        self.lock().order(|| GatewayOrder::Send(json!({ "op": 7, "d": null }).to_string()));
    }

    /// Declares the sessions invalid (op 9). If `is_resumable` is false, all sessions are
    /// forgotten.
    pub fn invalidate(&self, is_resumable: bool) {
        let mut state = self.lock();
        state.order(|| GatewayOrder::Send(json!({ "op": 9, "d": is_resumable }).to_string()));
        if !is_resumable {
            state.sessions.clear();
        }
    }

    /// Ends the connections without a close frame. The sessions can be resumed.
    pub fn drop_connections(&self) {
        let mut state = self.lock();
        state.order(|| GatewayOrder::Drop);
        for session in state.sessions.values_mut() {
            session.connection = None;
        }
    }

    /// Closes the connections with a code.
    pub fn close_connections(&self, code: u16) {
        self.lock().order(|| GatewayOrder::Close(code, ""));
    }

    /// Sets how many session starts `GET /gateway/bot` states as remaining. The fake does not enforce the number.
    pub fn limit_session_starts(&self, remaining: u32) {
        self.lock().starts_remaining = remaining;
    }

    fn plan(&self, route: &str, count: usize, kind: FakeDiscordFaultKind) {
        self.lock().faults.push_back(FakeDiscordFault { route: route.to_owned(), count, kind });
    }
}

impl FakeDiscordState {
    /// Returns the first fault that matches, and counts its use.
    pub(super) fn take_fault(&mut self, request: &str) -> Option<FakeDiscordFaultKind> {
        let index = self.faults.iter().position(|fault| request.contains(&fault.route))?;
        let fault = &mut self.faults[index];
        fault.count -= 1;
        let kind = fault.kind.clone();
        if fault.count == 0 {
            self.faults.remove(index);
        }
        Some(kind)
    }

    /// Gives an order to all connections.
    fn order(&self, order: impl Fn() -> GatewayOrder) {
        for session in self.sessions.values() {
            session.order(order());
        }
    }
}
