//! The state of a connection while `Connector::run` runs.

use tokio::sync::watch;

use crate::{ConnectionEnd, ConnectionState};

/// Guard of a run. If the run is dropped before its end, the state does not stay `Connected`.
#[derive(Debug)]
pub(crate) struct ConnectionRun<'a> {
    state: &'a watch::Sender<ConnectionState>,
    /// State after the run.
    after: ConnectionState,
}

impl<'a> ConnectionRun<'a> {
    /// Begins a run, which is not connected yet.
    pub(crate) fn begin(state: &'a watch::Sender<ConnectionState>) -> Self {
        let after = ConnectionState::Connecting { problem: None };
        state.send_replace(after.clone());
        Self { state, after }
    }

    /// Ends the run, and records why it ended.
    pub(crate) fn end(mut self, end: &ConnectionEnd) {
        if let ConnectionEnd::Refused { reason } = end {
            self.after = ConnectionState::Refused { reason: reason.clone() };
        }
    }
}

impl Drop for ConnectionRun<'_> {
    fn drop(&mut self) {
        self.state.send_replace(self.after.clone());
    }
}
