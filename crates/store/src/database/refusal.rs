//! Requests that a PostgreSQL server refuses for a reason that a person can remove.

use super::error::StoreError;
use super::open::server_message;

const WRONG_PASSWORD: &str = "28P01";
const NO_ACCESS: &str = "28000";
const NO_DATABASE: &str = "3D000";
const TOO_MANY_CONNECTIONS: &str = "53300";
const NO_RIGHTS: &str = "42501";
const LOCK_TIMEOUT: &str = "55P03";

/// Returns the error for a request that the server refused, if the reason is known.
pub(super) fn refusal(error: &sqlx::Error, location: impl Fn() -> String) -> Option<StoreError> {
    let (code, why) = (error.as_database_error()?.code()?, server_message(error));
    let refuses = |advice| StoreError::ServerRefuses { location: location(), why: why.clone(), advice };
    match code.as_ref() {
        WRONG_PASSWORD | NO_ACCESS => Some(refuses(
            "check the user and the password of `store` in the config. A daemon that was started with an old password uses \
             the new one after `cowhand stop --keep-agents` and `cowhand start -d`; running agents continue",
        )),
        NO_DATABASE => Some(refuses("create the database, or correct `store` in the config")),
        TOO_MANY_CONNECTIONS => Some(refuses(
            "a node uses up to 18 connections, so raise the limit of the role (`alter role USER connection limit N`) or of \
             the server (`max_connections`), or close other connections. Running agents continue, and the daemon continues \
             by itself",
        )),
        NO_RIGHTS => Some(StoreError::NoRights { location: location(), why }),
        LOCK_TIMEOUT => Some(StoreError::Locked { location: location(), why }),
        _ => None,
    }
}
