//! GitHub Apps: a signed word about ourselves, and the token that it buys for an hour.

use base64::Engine;
use base64::prelude::BASE64_URL_SAFE_NO_PAD;
use cowhand_core::github;
use jiff::{SignedDuration, Timestamp};
use ring::rand::SystemRandom;
use ring::signature::{RSA_PKCS1_SHA256, RsaKeyPair};
use rustls::pki_types::PrivateKeyDer;
use rustls::pki_types::pem::PemObject;
use serde_json::json;
use tokio::sync::Mutex;

use super::auth::Secret;
use crate::error::github::GitHubAuthError;
use crate::{SourceContext, WorkSourceError};
use cowhand_system::named_file::{self, MAX_KEY_BYTES};

#[derive(Debug)]
pub(super) struct GitHubApp {
    id: String,
    pub(super) installation_id: Option<u64>,
    key: RsaKeyPair,
    /// Held while a new one is bought, so that many callers buy one.
    pub(super) bought: Mutex<Option<Bought>>,
}

/// An installation's token.
#[derive(Debug, Clone)]
pub(super) struct Bought {
    pub(super) token: Secret,
    pub(super) expires_at: Timestamp,
}

impl Bought {
    /// A request that is under way when the token ends fails, so it is not used in its last minute.
    pub(super) fn is_good(&self, now: Timestamp) -> bool {
        self.expires_at.duration_since(now) > SignedDuration::from_mins(1)
    }
}

impl GitHubApp {
    pub(super) fn from_config(
        app: &github::AppAuth,
        setting: &SourceContext,
    ) -> Result<Self, WorkSourceError> {
        let pem = match (&app.private_key_env, &app.private_key_file) {
            (Some(name), None) => setting.variable(name).ok_or_else(|| {
                GitHubAuthError::new(format!("no private key: the variable {name} is not set"))
            })?,
            (None, Some(file)) => {
                named_file::read_text(&setting.base.join(file), MAX_KEY_BYTES).map_err(|error| {
                    GitHubAuthError::new(format!("the private key {file} cannot be read: {error}"))
                })?
            }
            (Some(_), Some(_)) | (None, None) => {
                let message = "auth.app needs either private_key_env or private_key_file";
                return Err(WorkSourceError::Config(message.into()));
            }
        };
        let key = read_key(&pem).ok_or_else(|| {
            GitHubAuthError::new("the private key is not an RSA key in PEM form, as GitHub hands it out")
        })?;
        let (id, installation_id) = (app.id.clone(), app.installation_id);
        Ok(Self { id, installation_id, key, bought: Mutex::new(None) })
    }

    /// Says who we are for the next nine minutes; GitHub accepts at most ten. Backdated, since clocks differ.
    pub(super) fn word(&self, now: Timestamp) -> Result<Secret, GitHubAuthError> {
        let part = |value: serde_json::Value| BASE64_URL_SAFE_NO_PAD.encode(value.to_string());
        let claims = json!({ "iat": now.as_second() - 60, "exp": now.as_second() + 540, "iss": self.id });
        let said = format!("{}.{}", part(json!({ "alg": "RS256", "typ": "JWT" })), part(claims));
        let mut signature = vec![0; self.key.public().modulus_len()];
        self.key
            .sign(&RSA_PKCS1_SHA256, &SystemRandom::new(), said.as_bytes(), &mut signature)
            .map_err(|_| GitHubAuthError::new("the private key cannot sign"))?;
        Ok(Secret::new(&format!("{said}.{}", BASE64_URL_SAFE_NO_PAD.encode(signature))))
    }

    /// After a 401: the next caller buys a new one, unless somebody has already.
    pub(super) async fn forget(&self, refused: &Secret) {
        let mut bought = self.bought.lock().await;
        if bought.as_ref().is_some_and(|bought| bought.token == *refused) {
            *bought = None;
        }
    }
}

/// Variables often hold the lines of a PEM file with `\n` between them.
fn read_key(pem: &str) -> Option<RsaKeyPair> {
    let pem = pem.replace("\\n", "\n");
    match PrivateKeyDer::from_pem_slice(pem.as_bytes()).ok()? {
        PrivateKeyDer::Pkcs1(key) => RsaKeyPair::from_der(key.secret_pkcs1_der()).ok(),
        PrivateKeyDer::Pkcs8(key) => RsaKeyPair::from_pkcs8(key.secret_pkcs8_der()).ok(),
        _ => None,
    }
}
