//! GitHub Apps: a signed JWT, and the installation token that GitHub issues for it. The installation token is valid for
//! an hour.

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
    /// Current installation token. The lock is held while a new token is requested, so that concurrent callers request
    /// only one token.
    pub(super) token_cache: Mutex<Option<CachedToken>>,
}

/// Token of an installation.
#[derive(Debug, Clone)]
pub(super) struct CachedToken {
    pub(super) token: Secret,
    pub(super) expires_at: Timestamp,
}

impl CachedToken {
    /// Returns true if the token is valid for more than a minute. This margin is needed because a request fails if the
    /// token expires while the request runs.
    pub(super) fn is_valid(&self, now: Timestamp) -> bool {
        self.expires_at.duration_since(now) > SignedDuration::from_mins(1)
    }
}

impl GitHubApp {
    pub(super) fn from_config(
        app: &github::AppAuth,
        context: &SourceContext,
    ) -> Result<Self, WorkSourceError> {
        let pem = match (&app.private_key_env, &app.private_key_file) {
            (Some(name), None) => context.variable(name).ok_or_else(|| {
                GitHubAuthError::new(format!("no private key: the variable {name} is not set"))
            })?,
            (None, Some(file)) => {
                named_file::read_text(&context.base.join(file), MAX_KEY_BYTES).map_err(|error| {
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
        Ok(Self { id, installation_id, key, token_cache: Mutex::new(None) })
    }

    /// Signs a JWT that expires in nine minutes; GitHub accepts at most ten. Its issue time is one minute in the past,
    /// because clocks differ.
    pub(super) fn sign_jwt(&self, now: Timestamp) -> Result<Secret, GitHubAuthError> {
        let part = |value: serde_json::Value| BASE64_URL_SAFE_NO_PAD.encode(value.to_string());
        let claims = json!({ "iat": now.as_second() - 60, "exp": now.as_second() + 540, "iss": self.id });
        let signed_part = format!("{}.{}", part(json!({ "alg": "RS256", "typ": "JWT" })), part(claims));
        let mut signature = vec![0; self.key.public().modulus_len()];
        self.key
            .sign(&RSA_PKCS1_SHA256, &SystemRandom::new(), signed_part.as_bytes(), &mut signature)
            .map_err(|_| GitHubAuthError::new("the private key cannot sign"))?;
        Ok(Secret::new(&format!("{signed_part}.{}", BASE64_URL_SAFE_NO_PAD.encode(signature))))
    }

    /// Drops the token that GitHub refused with 401, so that the next caller requests a new token.
    pub(super) async fn forget(&self, refused: &Secret) {
        let mut token_cache = self.token_cache.lock().await;
        if token_cache.as_ref().is_some_and(|cached| cached.token == *refused) {
            *token_cache = None;
        }
    }
}

/// Reads a private key. Variables often contain a PEM file with `\n` instead of line breaks.
fn read_key(pem: &str) -> Option<RsaKeyPair> {
    let pem = pem.replace("\\n", "\n");
    match PrivateKeyDer::from_pem_slice(pem.as_bytes()).ok()? {
        PrivateKeyDer::Pkcs1(key) => RsaKeyPair::from_der(key.secret_pkcs1_der()).ok(),
        PrivateKeyDer::Pkcs8(key) => RsaKeyPair::from_pkcs8(key.secret_pkcs8_der()).ok(),
        _ => None,
    }
}
