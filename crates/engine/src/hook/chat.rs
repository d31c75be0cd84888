//! Hooks that send a chat message with the error and the final output of the job.

use std::time::Duration;

use cowhand_core::chat::ChatPlatform;
use cowhand_core::cut::cut;
use cowhand_core::duration::rounded_from_seconds;
use cowhand_core::hook::{HOOK_RETRIES, HookEvent};
use reqwest::header::{AUTHORIZATION, CONTENT_TYPE, HeaderMap, HeaderValue};
use reqwest::{Method, StatusCode, Url};
use serde_json::{Value, json};

use super::request::{Reply, Request};
use super::webhook::value;
use super::{HookCall, HookResult};

const CHAT_TIMEOUT: Duration = Duration::from_secs(10);
/// Longest text, in bytes. Discord accepts 4096 characters; Slack accepts 3000 characters without cutting them.
const MAX_TEXT_BYTES: usize = 2_800;

pub(super) async fn discord(
    call: &HookCall<'_>,
    channel: &str,
    token_env: &str,
) -> Result<HookResult, HookResult> {
    let token = call.variable(token_env)?;
    let path = format!(
        "api/v10/channels/{}/messages",
        percent_encoding::utf8_percent_encode(channel, PERCENT_ENCODED)
    );
    let service = Service::of(call, ChatPlatform::Discord, token_env);
    let message = to_discord(&Message::of(call));
    match service.post(&path, &format!("Bot {token}"), &message).await? {
        Ok(reply) if reply.status == StatusCode::TOO_MANY_REQUESTS => {
            let answer: Value = serde_json::from_str(&reply.body).unwrap_or_default();
            let retry_after =
                answer["retry_after"].as_f64().and_then(|pause| Duration::try_from_secs_f64(pause).ok());
            let retry_after =
                retry_after.map(|pause| pause.min(Duration::from_mins(5))).or(reply.retry_after);
            let reason = "Discord's rate limit is reached".to_owned();
            Ok(HookResult::Retry {
                reason,
                output: Some(reply.body),
                retry_after,
                max_tries: HOOK_RETRIES + 1,
            })
        }
        Ok(reply) => Ok(reply.result(HOOK_RETRIES)),
        Err(result) => Ok(result),
    }
}

pub(super) async fn slack(
    call: &HookCall<'_>,
    channel: &str,
    token_env: &str,
) -> Result<HookResult, HookResult> {
    let token = call.variable(token_env)?;
    let service = Service::of(call, ChatPlatform::Slack, token_env);
    let message = to_slack(channel, &Message::of(call));
    match service.post("chat.postMessage", &format!("Bearer {token}"), &message).await? {
        // Slack reports errors in the body.
        Ok(reply) if reply.status == StatusCode::OK => Ok(slack_result(&reply)),
        Ok(reply) => Ok(reply.result(HOOK_RETRIES)),
        Err(result) => Ok(result),
    }
}

fn slack_result(reply: &Reply) -> HookResult {
    let answer: Value = serde_json::from_str(&reply.body).unwrap_or_default();
    if answer["ok"] == true {
        return HookResult::Done { output: None, note: None };
    }
    let error = answer["error"].as_str().unwrap_or("its answer cannot be read");
    let (reason, output) = (format!("Slack answered: {}", cut(error, 0, 200)), None);
    let temporary =
        ["ratelimited", "internal_error", "fatal_error", "service_unavailable", "request_timeout"];
    if temporary.contains(&error) {
        return HookResult::Retry {
            reason,
            output,
            retry_after: reply.retry_after,
            max_tries: HOOK_RETRIES + 1,
        };
    }
    HookResult::Failed { reason, output }
}

/// Characters that are percent-encoded: everything except letters, digits and `-`, `_`, `.`.
const PERCENT_ENCODED: &percent_encoding::AsciiSet =
    &percent_encoding::NON_ALPHANUMERIC.remove(b'-').remove(b'_').remove(b'.');

struct Service {
    base: String,
    /// True if the config or the environment sets the address, which can then be on a private network.
    overridden: bool,
}

impl Service {
    /// Returns the service with the address of the chat bot that has the same token, if there is one.
    fn of(call: &HookCall<'_>, platform: ChatPlatform, token_env: &str) -> Self {
        let (variable, usual) = match platform {
            ChatPlatform::Discord => ("COWHAND_DISCORD_API", "https://discord.com/"),
            ChatPlatform::Slack => ("COWHAND_SLACK_API", "https://slack.com/api/"),
        };
        let chats = call.loaded.roster.agents.iter().filter_map(|agent| agent.chat.as_ref()?.on(platform));
        let mut bots = chats.map(|chat| &chat.bot).filter(|bot| bot.token_env == token_env);
        let of_bot = bots.find_map(|bot| bot.api_url.clone());
        match of_bot.or_else(|| std::env::var(variable).ok()).filter(|base| !base.is_empty()) {
            Some(base) => Self { base: format!("{}/", base.trim_end_matches('/')), overridden: true },
            None => Self { base: usual.to_owned(), overridden: false },
        }
    }

    async fn post(
        &self,
        path: &str,
        token: &str,
        message: &Value,
    ) -> Result<Result<Reply, HookResult>, HookResult> {
        let url = Url::parse(&self.base).and_then(|base| base.join(path));
        let mut headers = HeaderMap::new();
        headers.insert(CONTENT_TYPE, HeaderValue::from_static("application/json; charset=utf-8"));
        let request = Request {
            method: Method::POST,
            url: url.map_err(|error| HookResult::failed(format!("no address of the chat: {error}")))?,
            headers,
            own_headers: HeaderMap::from_iter([(AUTHORIZATION, value(token)?)]),
            body: message.to_string().into_bytes(),
            timeout: CHAT_TIMEOUT,
            allow_private: self.overridden,
            sender: "hook",
        };
        Ok(request.send().await.map_err(|unsent| unsent.result(HOOK_RETRIES)))
    }
}

/// The content of the message, the same for each service.
#[derive(Debug)]
struct Message {
    id: String,
    event: HookEvent,
    title: String,
    text: String,
    footer: String,
    at: String,
}

impl Message {
    fn of(call: &HookCall<'_>) -> Self {
        let context = &call.context;
        let text_of = |value: &Value| value.as_str().unwrap_or_default().to_owned();
        let (job, result) = (&context["job"], &context["result"]);
        let event = call.taken.run.event;
        let error = result["error"].as_str().map(|error| format!("{error}\n\n"));
        let schedule = job["scheduleName"].as_str().map(|name| format!(" · {name}"));
        let duration = rounded_from_seconds(job["durationMs"].as_u64().unwrap_or_default() / 1000);
        Self {
            id: format!("{}.{}", call.taken.job, call.taken.run.number),
            event,
            title: format!("{}: {event}", text_of(&context["agent"]["name"])),
            text: cut(
                format!("{}{}", error.unwrap_or_default(), text_of(&result["output"])).trim(),
                0,
                MAX_TEXT_BYTES,
            ),
            footer: format!("{}{} · {duration}", text_of(&job["id"]), schedule.unwrap_or_default()),
            at: text_of(&job["completedAt"]),
        }
    }

    const fn color(&self) -> u32 {
        match self.event {
            HookEvent::Completed => 0x002e_7d32,
            HookEvent::Failed => 0x00c6_2828,
            HookEvent::Timeout => 0x00ef_6c00,
            HookEvent::Cancelled => 0x0075_7575,
        }
    }
}

fn to_discord(message: &Message) -> Value {
    json!({
        "embeds": [{
            "title": message.title,
            "description": message.text,
            "color": message.color(),
            "footer": { "text": message.footer },
            "timestamp": message.at,
        }],
        // Text of an agent must not mention anybody.
        "allowed_mentions": { "parse": [] },
        // Discord drops a second message with the same nonce within a few minutes.
        "nonce": message.id,
        "enforce_nonce": true,
    })
}

fn to_slack(channel: &str, message: &Message) -> Value {
    // The text is escaped, so that text of an agent mentions nobody and makes no links.
    let plain = |text: &str| text.replace('&', "&amp;").replace('<', "&lt;").replace('>', "&gt;");
    json!({
        "channel": channel,
        "text": plain(&message.title),
        "attachments": [{
            "color": format!("#{:06x}", message.color()),
            "text": plain(&message.text),
            "footer": plain(&message.footer),
            "mrkdwn_in": [],
        }],
        "unfurl_links": false,
        "unfurl_media": false,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn messages_mention_nobody() {
        let message = Message {
            id: "job-2026-01-01-000001.1".into(),
            event: HookEvent::Failed,
            title: "coder: failed".into(),
            text: "@everyone <!channel> & more".into(),
            footer: "job-2026-01-01-000001 · nightly · 2s".into(),
            at: "2026-01-01T00:00:00Z".into(),
        };
        assert_eq!(to_discord(&message)["allowed_mentions"], json!({ "parse": [] }));
        let slack = to_slack("C1", &message);
        assert_eq!(slack["attachments"][0]["text"], "@everyone &lt;!channel&gt; &amp; more");
        assert_eq!((&slack["channel"], &slack["text"]), (&json!("C1"), &json!("coder: failed")));
    }

    #[test]
    fn slack_answers_become_hook_results() {
        let answered = |body: &str| {
            slack_result(&Reply { status: StatusCode::OK, retry_after: None, body: body.to_owned() })
        };
        assert_eq!(answered(r#"{"ok":true}"#), HookResult::Done { output: None, note: None });
        assert_eq!(
            answered(r#"{"ok":false,"error":"not_in_channel"}"#),
            HookResult::failed("Slack answered: not_in_channel")
        );
        assert!(matches!(answered(r#"{"ok":false,"error":"ratelimited"}"#), HookResult::Retry { .. }));
        assert!(matches!(answered("<html>"), HookResult::Failed { .. }));
    }
}
