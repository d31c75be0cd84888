//! Login of a browser with a link that works once and for a short time.
//!
//! Users of the owner's socket and callers with the scope `admin` can create a link, which ends with a secret code.
//! The browser that opens the link gets a new token as a cookie.

use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use axum::Json;
use axum::extract::State;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use subtle::ConstantTimeEq;

use super::tokens::{hash, random_secret};
use super::{Api, ApiProblem};

/// Time for which a link works, in minutes, because messages state the time in minutes.
pub const LINK_VALID_MINUTES: u64 = 10;
const LINK_VALID_FOR: Duration = Duration::from_mins(LINK_VALID_MINUTES);
/// Maximum number of links that nobody has opened yet. For a further link, the first of the list is removed.
const MAX_OPEN_LINKS: usize = 20;

/// Login links that are not opened yet. They are in memory, so they end with the daemon. Only the hashes of their codes
/// are kept.
#[derive(Debug, Clone, Default)]
pub struct Logins(Arc<Mutex<Vec<Login>>>);

#[derive(Debug)]
struct Login {
    hash: String,
    expires_at: Instant,
}

/// Login link for a browser.
#[derive(Clone, Serialize, Deserialize, JsonSchema)]
pub struct LoginLink {
    pub url: String,
}

impl std::fmt::Debug for LoginLink {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("LoginLink").finish_non_exhaustive()
    }
}

impl Logins {
    fn add(&self, now: Instant) -> Result<String, ApiProblem> {
        let code = random_secret()?;
        let mut open = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        open.retain(|login| now < login.expires_at);
        if open.len() >= MAX_OPEN_LINKS {
            open.remove(0);
        }
        open.push(Login { hash: hash(&code), expires_at: now + LINK_VALID_FOR });
        Ok(code)
    }

    /// Takes the code of a link; returns none if the code is not valid. While the returned value exists, the code
    /// cannot be taken again.
    pub fn take(&self, code: &str) -> Option<TakenCode> {
        self.take_at(code, Instant::now())
    }

    fn take_at(&self, code: &str, now: Instant) -> Option<TakenCode> {
        let code_hash = hash(code);
        let mut open = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        open.retain(|login| now < login.expires_at);
        let index =
            open.iter().position(|login| bool::from(login.hash.as_bytes().ct_eq(code_hash.as_bytes())))?;
        Some(TakenCode { login: Some(open.remove(index)), logins: self.clone() })
    }
}

/// Code that is in use for a login. If the login does not complete, the code becomes valid again.
#[derive(Debug)]
pub struct TakenCode {
    login: Option<Login>,
    logins: Logins,
}

impl TakenCode {
    /// Invalidates the code permanently, after the login is complete.
    pub fn use_up(mut self) {
        self.login = None;
    }
}

impl Drop for TakenCode {
    fn drop(&mut self) {
        if let Some(login) = self.login.take() {
            self.logins.0.lock().unwrap_or_else(PoisonError::into_inner).push(login);
        }
    }
}

impl Api {
    /// Creates a link. Refuses the request if there is no daemon or no server.
    pub fn login_link(&self) -> Result<LoginLink, ApiProblem> {
        self.daemon()?;
        let base = self.url.as_deref().ok_or_else(|| {
            ApiProblem::conflict(
                "this daemon has no server, and so no dashboard; `cowhand restart --listen 127.0.0.1:PORT` starts one",
            )
        })?;
        // A browser cannot open the unspecified address, so the link uses loopback.
        let base = base.replace("//0.0.0.0:", "//127.0.0.1:").replace("//[::]:", "//[::1]:");
        let code = self.logins.add(Instant::now())?;
        Ok(LoginLink { url: format!("{base}/login/{code}") })
    }

    pub fn logins(&self) -> Logins {
        self.logins.clone()
    }
}

pub(super) async fn create(State(api): State<Api>) -> Result<Json<LoginLink>, ApiProblem> {
    api.login_link().map(Json)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_code_is_valid_once_and_for_ten_minutes() {
        let logins = Logins::default();
        let start = Instant::now();
        let [first, second, third] = [0; 3].map(|_| logins.add(start).unwrap());
        let at = |minutes| start + Duration::from_mins(minutes);
        let used = |code: &str, at| logins.take_at(code, at).map(TakenCode::use_up).is_some();
        assert!(!used("", at(0)) && !used(&first[1..], at(0)));
        assert!(used(&first, at(0)));
        assert!(!used(&first, at(0)), "a used code is not valid");
        assert!(used(&second, at(9)));
        assert!(!used(&third, at(10)), "a code expires after ten minutes");
    }

    #[test]
    fn a_failed_login_leaves_its_code_valid() {
        let logins = Logins::default();
        let start = Instant::now();
        let code = logins.add(start).unwrap();
        let taken = logins.take_at(&code, start).unwrap();
        assert!(logins.take_at(&code, start).is_none(), "a taken code cannot be taken again");
        drop(taken);
        assert!(logins.take_at(&code, start).is_some(), "a code is valid again after its login has failed");
        assert!(
            logins.take_at(&code, start + LINK_VALID_FOR).is_none(),
            "a failed login does not extend the time of its code"
        );
    }

    #[test]
    fn the_number_of_codes_is_limited_and_only_hashes_are_kept() {
        let logins = Logins::default();
        let now = Instant::now();
        let codes: Vec<String> = (0..=MAX_OPEN_LINKS).map(|_| logins.add(now).unwrap()).collect();
        assert!(codes.iter().all(|code| !format!("{logins:?}").contains(code.as_str())));
        assert!(logins.take_at(&codes[0], now).is_none(), "the oldest code is removed");
        assert!(codes[1..].iter().all(|code| logins.take_at(code, now).is_some()));
    }
}
