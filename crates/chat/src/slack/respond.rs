//! Replies to slash commands and button presses.

use std::sync::Arc;
use std::time::Duration;

use cowhand_core::backoff::Backoff;
use jiff::SignedDuration;
use reqwest::header::CONTENT_TYPE;
use serde_json::json;
use tokio::sync::oneshot;
use tokio::time::{sleep, timeout};

use super::api::SlackApi;
use super::socket::Acknowledgement;
use crate::EventReply;

/// Time after which an envelope is acknowledged without the text. Slack waits for three seconds.
const TEXT_DEADLINE: Duration = Duration::from_millis(2_500);
/// Time for which Slack accepts texts at the response URL.
const RESPONSE_URL_LIFE: Duration = Duration::from_mins(30);
const RESPONSE_TIMEOUT: Duration = Duration::from_secs(10);
const MAX_RESPONSE_TRIES: u32 = 4;
const RESPONSE_WAITS: Backoff =
    Backoff::doubling(SignedDuration::from_secs(1), SignedDuration::from_secs(10));

/// A command or button press that waits for its reply.
pub(super) struct Interaction {
    pub(super) acknowledgement: Acknowledgement,
    pub(super) response_url: Option<String>,
    /// True if Slack shows a text in the acknowledgement, as it does for commands, but not for buttons.
    pub(super) shows_payload: bool,
}

/// Acknowledges an interaction and sends its text. If the reply takes too long, acknowledges the interaction first. If
/// the channel end for the reply is dropped, does not acknowledge it.
pub(super) async fn respond(
    api: Arc<SlackApi>,
    interaction: Interaction,
    mut reply: oneshot::Receiver<EventReply>,
) {
    let Interaction { acknowledgement, response_url, shows_payload } = interaction;
    let Ok(reply) = timeout(TEXT_DEADLINE, &mut reply).await else {
        acknowledgement.send(None);
        if let Ok(Ok(EventReply::Text(text))) = timeout(RESPONSE_URL_LIFE, reply).await {
            send_text(&api, response_url, &text).await;
        }
        return;
    };
    match reply {
        Ok(EventReply::Stored | EventReply::Suggestions(_)) => {
            acknowledgement.send(None);
        }
        Ok(EventReply::Text(text)) => {
            let payload = shows_payload.then(|| json!({ "response_type": "ephemeral", "text": text }));
            let is_acknowledged = acknowledgement.send(payload);
            if !(shows_payload && is_acknowledged) {
                send_text(&api, response_url, &text).await;
            }
        }
        Err(_) => {}
    }
}

/// Sends a text that only the user sees. The URL is secret and needs no token.
async fn send_text(api: &SlackApi, response_url: Option<String>, text: &str) {
    let Some(url) = response_url else { return };
    let body = json!({ "response_type": "ephemeral", "replace_original": false, "text": text }).to_string();
    for failures in 1..=MAX_RESPONSE_TRIES {
        let request = api.http.post(&url).timeout(RESPONSE_TIMEOUT);
        let request = request.header(CONTENT_TYPE, "application/json").body(body.clone());
        match request.send().await {
            Ok(response) if response.status().is_success() => return,
            Ok(response) if response.status().as_u16() != 429 && response.status().is_client_error() => {
                tracing::warn!("Slack refused a reply to a command: HTTP status {}", response.status());
                return;
            }
            Ok(_) | Err(_) => sleep(RESPONSE_WAITS.wait_after(failures)).await,
        }
    }
    tracing::warn!("a reply to a command on Slack could not be sent");
}
