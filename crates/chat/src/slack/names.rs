//! Names of users, with a cache.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use serde_json::Value;
use tokio::time::{Instant, timeout};

use super::api::{CallRepeat, SlackApi};

/// Time for which a name is used before it is requested again.
const NAME_LIFE: Duration = Duration::from_hours(1);
/// Time for which an id is used as the name after a failed request.
const FAILURE_LIFE: Duration = Duration::from_mins(1);
/// Time for which an event waits for a name.
const NAME_TIMEOUT: Duration = Duration::from_secs(2);
/// Number of names at which the cache is emptied.
const MAX_CACHED_NAMES: usize = 10_000;

#[derive(Clone)]
struct CachedName {
    name: String,
    is_bot: bool,
    until: Instant,
}

pub(super) struct UserNames {
    api: Arc<SlackApi>,
    cached: Mutex<HashMap<String, CachedName>>,
}

impl UserNames {
    pub(super) fn new(api: Arc<SlackApi>) -> Self {
        Self { api, cached: Mutex::new(HashMap::new()) }
    }

    /// Returns the name of a user that was looked up a short time ago, and whether the user is a bot.
    pub(super) fn cached(&self, user: &str) -> Option<(String, bool)> {
        let names = self.cached.lock().unwrap_or_else(PoisonError::into_inner);
        let cached = names.get(user).filter(|cached| cached.until > Instant::now())?;
        Some((cached.name.clone(), cached.is_bot))
    }

    /// Returns the name of a user, and whether the user is a bot. The name is the id if Slack does not state a name.
    pub(super) async fn of(&self, user: &str) -> (String, bool) {
        if let Some(known) = self.cached(user) {
            return known;
        }
        let params = vec![("user", user.to_owned())];
        let call = self.api.call("users.info", &params, CallRepeat::Never);
        let (name, is_bot, life) = match timeout(NAME_TIMEOUT, call).await {
            Ok(Ok(answer)) => {
                let name = name_in(&answer["user"]).unwrap_or(user).to_owned();
                (name, answer["user"]["is_bot"] == true, NAME_LIFE)
            }
            Ok(Err(_)) | Err(_) => (user.to_owned(), false, FAILURE_LIFE),
        };
        let cached = CachedName { name: name.clone(), is_bot, until: Instant::now() + life };
        let mut names = self.cached.lock().unwrap_or_else(PoisonError::into_inner);
        if names.len() >= MAX_CACHED_NAMES {
            names.clear();
        }
        names.insert(user.to_owned(), cached);
        (name, is_bot)
    }
}

fn name_in(user: &Value) -> Option<&str> {
    let profile = &user["profile"];
    let candidates = [&profile["display_name"], &profile["real_name"], &user["real_name"], &user["name"]];
    candidates.into_iter().filter_map(Value::as_str).find(|name| !name.is_empty())
}
