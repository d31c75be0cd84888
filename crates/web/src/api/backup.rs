//! Backup of the current store.

use std::fs::File;
use std::io::Read;

use axum::body::{Body, Bytes};
use axum::extract::State;
use axum::http::header;
use axum::response::{IntoResponse, Response};
use cowhand_core::actor::Actor;
use futures_util::stream;
use schemars::JsonSchema;
use serde::Deserialize;

use super::extract::{Params, Switch};
use super::problem::Code;
use super::{Api, ApiProblem};
use cowhand_engine::backup;
use cowhand_store::StoreError;
use cowhand_store::audit;

pub(super) const BACKUP_MEDIA_TYPE: &str = "application/vnd.sqlite3";

/// Path of the endpoint, which refuses every token, whatever its scope.
pub(crate) const BACKUP_PATH: &str = "/api/v1/backup";
pub(crate) const ONLY_FOR_OWNER: &str = "a backup contains secrets, so only the owner of the state folder can get it, and no token: run `cowhand backup FILE` on the daemon's machine";
const CHUNK_BYTES: usize = 1 << 18;

#[derive(Debug, Default, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub(super) struct BackupQuery {
    /// Leave out the output of jobs.
    no_output: Switch,
}

pub(super) async fn backup(
    State(api): State<Api>,
    Params(query): Params<BackupQuery>,
) -> Result<Response, ApiProblem> {
    // The store contains the secrets of the config, and no answer over TCP may contain a secret.
    if !matches!(audit::current(), None | Some(Actor::Person { .. })) {
        return Err(ApiProblem::new(Code::Forbidden, ONLY_FOR_OWNER));
    }
    if api.store.is_postgres() {
        return Err(StoreError::PostgresBackup.into());
    }
    let backup = backup::make(&api.store, &api.state, !query.no_output.is_on()).await;
    let file = backup.map_err(|error| {
        ApiProblem::store_unavailable(format!("no backup was made: {}", without_repetition(&error)))
    })?;
    let length = file.metadata().map_err(|error| ApiProblem::store_unavailable(error.to_string()))?.len();
    let chunks = stream::unfold(Some(file), |file| async { next_chunk(file?) });
    let headers =
        [(header::CONTENT_TYPE, BACKUP_MEDIA_TYPE.to_owned()), (header::CONTENT_LENGTH, length.to_string())];
    Ok((headers, Body::from_stream(chunks)).into_response())
}

/// Reads the next chunk. Returns the chunk and the file, an error without the file, or `None` at the end of the file.
fn next_chunk(mut file: File) -> Option<(std::io::Result<Bytes>, Option<File>)> {
    let mut chunk = vec![0; CHUNK_BYTES];
    match file.read(&mut chunk) {
        Ok(0) => None,
        Ok(length) => {
            chunk.truncate(length);
            Some((Ok(chunk.into()), Some(file)))
        }
        Err(error) => Some((Err(error), None)),
    }
}

/// Formats the error and its causes, without causes that the text before them already contains.
fn without_repetition(error: &anyhow::Error) -> String {
    error.chain().map(ToString::to_string).fold(String::new(), |text, cause| match text.as_str() {
        "" => cause,
        _ if text.contains(&cause) => text,
        _ => format!("{text}: {cause}"),
    })
}
