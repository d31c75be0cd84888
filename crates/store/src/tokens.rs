//! Tokens: access to the API over TCP. The store contains only hashes of tokens.

use cowhand_core::event::Fact;
use cowhand_core::id::TokenName;
use cowhand_core::server::Scope;
use jiff::{SignedDuration, Timestamp};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use subtle::ConstantTimeEq;
use uuid::Uuid;

use super::database::db::{Row, Tx, args};
use super::database::dialect::statements;
use super::database::event_log::NewEvent;
use super::{Store, StoreError};

statements! {
    ALL_TOKENS = same "select * from tokens order by created_at, id";
    LIVE_TOKEN = locked "select * from tokens where name = $1 and revoked_at is null";
    ADD_TOKEN = same "insert into tokens (id, name, scope, hash, created_at, expires_at) \
        values ($1, $2, $3, $4, $5, $6) on conflict do nothing";
    REVOKE_TOKEN = same "update tokens set revoked_at = $2 where id = $1 and revoked_at is null";
    TOKEN_USED = same "update tokens set last_used_at = $2 where id = $1 and revoked_at is null";
}

/// Record of a token, without the token itself.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[schemars(rename = "Token")]
pub struct TokenRecord {
    pub name: TokenName,
    pub scope: Scope,
    pub created_at: Timestamp,
    pub last_used_at: Option<Timestamp>,
    pub expires_at: Option<Timestamp>,
    pub revoked_at: Option<Timestamp>,
}

/// A token to be added.
#[derive(Debug, Clone)]
pub struct NewToken {
    pub name: TokenName,
    pub scope: Scope,
    /// SHA-256 in hexadecimal.
    pub hash: String,
    pub expires_at: Option<Timestamp>,
}

impl TokenRecord {
    pub fn is_valid(&self, now: Timestamp) -> bool {
        self.revoked_at.is_none() && self.expires_at.is_none_or(|end| now < end)
    }
}

/// Resolution of the time of the last use, so that not every request writes to the store.
const TOKEN_USE_RESOLUTION: SignedDuration = SignedDuration::from_mins(1);

impl Store {
    /// Adds a token. Returns `None` if a token with this name exists and is not revoked.
    pub async fn add_token(&self, new: NewToken, now: Timestamp) -> Result<Option<TokenRecord>, StoreError> {
        self.write(move |tx| {
            Box::pin(async move {
                let NewToken { name, scope, hash, expires_at } = new;
                let id = Uuid::now_v7().to_string();
                let row = args![id, name.as_str(), scope.as_str(), hash, now, expires_at];
                if tx.execute(ADD_TOKEN, row).await? == 0 {
                    return Ok(None);
                }
                tx.record(NewEvent::of_fleet(Fact::TokenCreated { name: name.clone(), scope }, now));
                lock_live_token(tx, &name).await?.map(|row| read(&row)).transpose()
            })
        })
        .await
    }

    /// Returns all tokens, the oldest first, including revoked tokens.
    pub async fn tokens(&self) -> Result<Vec<TokenRecord>, StoreError> {
        let rows = self.read(|tx| Box::pin(async move { tx.all(ALL_TOKENS, args![]).await })).await?;
        rows.iter().map(read).collect()
    }

    /// Revokes a token. Returns `None` if there is no such token, or if it is already revoked.
    pub async fn revoke_token(
        &self,
        name: TokenName,
        now: Timestamp,
    ) -> Result<Option<TokenRecord>, StoreError> {
        self.write(move |tx| {
            Box::pin(async move {
                let Some(row) = lock_live_token(tx, &name).await? else { return Ok(None) };
                let id: String = row.get("id")?;
                tx.execute(REVOKE_TOKEN, args![id, now]).await?;
                tx.record(NewEvent::of_fleet(Fact::TokenRevoked { name }, now));
                Ok(Some(TokenRecord { revoked_at: Some(now), ..read(&row)? }))
            })
        })
        .await
    }

    /// Returns the token with this hash, unless it is revoked or expired, and records the time of the use. Every row is
    /// compared in constant time, so that the duration does not reveal how much of a hash is correct.
    pub async fn use_token(&self, hash: &str, now: Timestamp) -> Result<Option<TokenRecord>, StoreError> {
        let rows = self.read(|tx| Box::pin(async move { tx.all(ALL_TOKENS, args![]).await })).await?;
        let mut matching_row = None;
        for row in rows {
            let stored_hash: String = row.get("hash")?;
            if bool::from(stored_hash.as_bytes().ct_eq(hash.as_bytes())) {
                matching_row = Some(row);
            }
        }
        let Some(row) = matching_row else { return Ok(None) };
        let token = read(&row)?;
        if !token.is_valid(now) {
            return Ok(None);
        }
        if token.last_used_at.is_none_or(|last| now.duration_since(last) >= TOKEN_USE_RESOLUTION) {
            let id: String = row.get("id")?;
            // A store that cannot be written can often be read. So the token is valid even if this write fails. The
            // next use tries the write again.
            let _ = self
                .write(move |tx| Box::pin(async move { tx.execute(TOKEN_USED, args![id, now]).await }))
                .await;
        }
        Ok(Some(token))
    }
}

async fn lock_live_token(tx: &mut Tx<'_>, name: &TokenName) -> Result<Option<Row>, StoreError> {
    tx.one(LIVE_TOKEN, args![name.as_str()]).await
}

fn read(row: &Row) -> Result<TokenRecord, StoreError> {
    Ok(TokenRecord {
        name: row.parse("name")?,
        scope: row.parse("scope")?,
        created_at: row.time("created_at")?,
        last_used_at: row.time_opt("last_used_at")?,
        expires_at: row.time_opt("expires_at")?,
        revoked_at: row.time_opt("revoked_at")?,
    })
}
