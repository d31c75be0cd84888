//! Tokens of the API: creation, list and revocation.

use axum::Json;
use axum::extract::{Path, State};
use base64::Engine as _;
use base64::prelude::BASE64_URL_SAFE_NO_PAD;
use cowhand_core::id::TokenName;
use cowhand_core::interval::Interval;
use cowhand_core::server::Scope;
use ring::rand::{SecureRandom, SystemRandom};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use tracing::info;

use super::extract::{JsonBody, parse_name};
use super::{Api, ApiProblem, Page};
use cowhand_run::redact::TOKEN_PREFIX;
use cowhand_store::{NewToken, TokenRecord};
use cowhand_system::digest::sha256;

#[derive(Debug, Clone, Default, Serialize, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
#[schemars(rename = "TokenAsked")]
pub struct TokenRequest {
    #[schemars(with = "TokenName")]
    pub name: String,
    /// Scope; unset means `read`.
    pub scope: Option<Scope>,
    /// Time until the token expires; unset means that it never expires.
    pub expires_in: Option<Interval>,
}

/// New token. No other answer contains its secret.
#[derive(Clone, Serialize, Deserialize, JsonSchema)]
#[schemars(rename = "TokenMade")]
pub struct CreatedToken {
    pub token: String,
    #[serde(flatten)]
    pub about: TokenRecord,
}

impl std::fmt::Debug for CreatedToken {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("CreatedToken").field("about", &self.about).finish_non_exhaustive()
    }
}

pub(super) async fn create(
    State(api): State<Api>,
    JsonBody(request): JsonBody<TokenRequest>,
) -> Result<Json<CreatedToken>, ApiProblem> {
    api.daemon()?;
    let name = parse_name::<TokenName>(&request.name)?;
    let scope = request.scope.unwrap_or(Scope::Read);
    let now = api.now();
    let expires_at = request.expires_in.map(|interval| now.checked_add(interval.duration()));
    let expires_at =
        expires_at.transpose().map_err(|_| ApiProblem::bad_request("the expiry time is too far away"))?;
    let token = new_token()?;
    let new = NewToken { name: name.clone(), scope, hash: hash(&token), expires_at };
    let about = api.store.add_token(new, now).await?.ok_or_else(|| {
        ApiProblem::conflict(format!(
            "there is a token {name} already; `cowhand token revoke {name}` ends it"
        ))
    })?;
    info!(%name, %scope, "token created");
    Ok(Json(CreatedToken { token, about }))
}

pub(super) async fn list(State(api): State<Api>) -> Result<Json<Page<TokenRecord>>, ApiProblem> {
    Ok(Json(Page::all(api.store.tokens().await?)))
}

pub(super) async fn revoke(
    State(api): State<Api>,
    Path(name): Path<String>,
) -> Result<Json<TokenRecord>, ApiProblem> {
    api.daemon()?;
    let name = parse_name::<TokenName>(&name)?;
    let token = api.store.revoke_token(name.clone(), api.now()).await?;
    let token = token.ok_or_else(|| {
        ApiProblem::not_found(format!("there is no token {name} in use; `cowhand token list` lists them"))
    })?;
    info!(%name, "token revoked");
    Ok(Json(token))
}

fn new_token() -> Result<String, ApiProblem> {
    Ok(format!("{TOKEN_PREFIX}{}", random_secret()?))
}

/// Returns 256 random bits from the system as text.
pub(super) fn random_secret() -> Result<String, ApiProblem> {
    let mut bytes = [0; 32];
    let filled = SystemRandom::new().fill(&mut bytes);
    filled.map_err(|_| ApiProblem::unavailable("the system returned no random bytes"))?;
    Ok(BASE64_URL_SAFE_NO_PAD.encode(bytes))
}

/// Returns the hash that the store keeps. A random token needs no salt and no slow hash, because it cannot be guessed.
pub fn hash(token: &str) -> String {
    sha256(token)
}
