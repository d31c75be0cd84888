//! The rate limits of Discord, as its answers state them.

use std::collections::HashMap;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use reqwest::Method;
use reqwest::header::HeaderMap;
use tokio::time::Instant;

use crate::retry_after::wait_of_seconds;

/// Number of buckets above which all buckets whose period has ended are removed.
const MOST_BUCKETS: usize = 1000;

/// Route of a request. Discord counts requests by route, and separately for each channel, guild and webhook.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub(super) struct RestRoute {
    /// Method and path without ids.
    template: String,
    /// The channel, guild or webhook.
    resource: String,
}

impl RestRoute {
    pub(super) fn new(method: &Method, path: &str) -> Self {
        let path = path.split('?').next().unwrap_or_default();
        let segments: Vec<&str> = path.split('/').filter(|segment| !segment.is_empty()).collect();
        let resource_segments = match segments.first() {
            Some(&("channels" | "guilds")) => 2,
            Some(&("webhooks" | "interactions")) => 3,
            _ => 0,
        };
        let mut template = method.to_string();
        let mut previous = "";
        for (index, segment) in segments.iter().enumerate() {
            let is_id = segment.bytes().all(|byte| byte.is_ascii_digit());
            let is_variable = previous == "reactions" || is_id || (0 < index && index < resource_segments);
            template.push('/');
            template.push_str(if is_variable { "*" } else { segment });
            previous = segment;
        }
        let resource = segments.iter().take(resource_segments).copied().collect::<Vec<_>>().join("/");
        Self { template, resource }
    }
}

#[derive(Debug, Default)]
pub(super) struct DiscordLimits(Mutex<LimitState>);

#[derive(Debug, Default)]
struct LimitState {
    /// Bucket of each template. Several templates can share a bucket.
    buckets_by_template: HashMap<String, String>,
    buckets: HashMap<(String, String), Bucket>,
    /// End of a limit that applies to all requests of the bot.
    global_until: Option<Instant>,
}

#[derive(Debug)]
struct Bucket {
    remaining: u32,
    resets_at: Instant,
}

impl DiscordLimits {
    /// Counts a request. Returns an error with the time after which the request may be tried again, if a limit is
    /// reached.
    pub(super) fn reserve(&self, route: &RestRoute) -> Result<(), Duration> {
        let now = Instant::now();
        let mut state = self.lock();
        if let Some(until) = state.global_until.filter(|until| *until > now) {
            return Err(until - now);
        }
        let key = state.key(route);
        match state.buckets.get_mut(&key) {
            Some(bucket) if bucket.resets_at > now => {
                if bucket.remaining == 0 {
                    return Err(bucket.resets_at - now);
                }
                bucket.remaining -= 1;
                Ok(())
            }
            _ => Ok(()),
        }
    }

    /// Records the limits that an answer states.
    pub(super) fn note(&self, route: &RestRoute, headers: &HeaderMap) {
        let text = |name: &str| headers.get(name).and_then(|value| value.to_str().ok());
        let mut state = self.lock();
        if let Some(bucket) = text("x-ratelimit-bucket") {
            state.buckets_by_template.insert(route.template.clone(), bucket.to_owned());
        }
        let remaining = text("x-ratelimit-remaining").and_then(|value| value.parse().ok());
        let reset_after = text("x-ratelimit-reset-after").and_then(|value| value.parse().ok());
        if let (Some(remaining), Some(seconds)) = (remaining, reset_after) {
            state.set(route, remaining, wait_of_seconds(seconds));
        }
    }

    /// Records a refusal with the status 429.
    pub(super) fn note_refusal(&self, route: &RestRoute, wait: Duration, is_global: bool) {
        let mut state = self.lock();
        if is_global {
            state.global_until = Some(Instant::now() + wait);
        } else {
            state.set(route, 0, wait);
        }
    }

    fn lock(&self) -> MutexGuard<'_, LimitState> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl LimitState {
    fn key(&self, route: &RestRoute) -> (String, String) {
        let bucket = self.buckets_by_template.get(&route.template).unwrap_or(&route.template);
        (bucket.clone(), route.resource.clone())
    }

    fn set(&mut self, route: &RestRoute, remaining: u32, wait: Duration) {
        let now = Instant::now();
        if self.buckets.len() >= MOST_BUCKETS {
            self.buckets.retain(|_, bucket| bucket.resets_at > now);
        }
        let key = self.key(route);
        let resets_at = now + wait;
        // Answers to simultaneous requests can arrive in another order, so the smaller number counts.
        let remaining = match self.buckets.get(&key) {
            Some(bucket) if bucket.resets_at > now => remaining.min(bucket.remaining),
            _ => remaining,
        };
        self.buckets.insert(key, Bucket { remaining, resets_at });
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn requests_share_a_limit_by_route_and_channel() {
        let route = |path| RestRoute::new(&Method::PUT, path);
        assert_eq!(route("/channels/1/messages/2/x"), route("/channels/1/messages/3/x"));
        assert_ne!(route("/channels/1/messages/2/x"), route("/channels/2/messages/2/x"));
        assert_eq!(
            route("/channels/1/messages/2/reactions/%F0/@me"),
            route("/channels/1/messages/4/reactions/eyes/@me")
        );
        assert_eq!(route("/channels/1/messages?limit=1"), route("/channels/1/messages?limit=2"));
        assert_ne!(route("/channels/1/messages"), RestRoute::new(&Method::GET, "/channels/1/messages"));
        assert_eq!(route("/interactions/1/abc/callback").template, "PUT/interactions/*/*/callback");
    }

    #[tokio::test(start_paused = true)]
    async fn a_used_up_bucket_waits_until_its_reset() {
        let limits = DiscordLimits::default();
        let route = RestRoute::new(&Method::POST, "/channels/1/messages");
        let mut headers = HeaderMap::new();
        headers.insert("x-ratelimit-bucket", "abc".parse().unwrap());
        headers.insert("x-ratelimit-remaining", "1".parse().unwrap());
        headers.insert("x-ratelimit-reset-after", "2.5".parse().unwrap());
        limits.note(&route, &headers);
        assert_eq!(limits.reserve(&route), Ok(()));
        assert_eq!(limits.reserve(&route), Err(Duration::from_millis(2500)));
        let other = RestRoute::new(&Method::POST, "/channels/2/messages");
        assert_eq!(limits.reserve(&other), Ok(()));
        tokio::time::advance(Duration::from_millis(2500)).await;
        assert_eq!(limits.reserve(&route), Ok(()));
        limits.note_refusal(&route, Duration::from_secs(3), true);
        assert_eq!(limits.reserve(&other), Err(Duration::from_secs(3)));
    }
}
