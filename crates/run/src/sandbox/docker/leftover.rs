//! Containers that have to be removed: found by the record in their attempt's folder, or by their labels.

use std::fs;
use std::io;
use std::path::{Path, PathBuf};
use std::time::Duration;

use serde::{Deserialize, Serialize};
use tracing::warn;

use super::DockerError;
use super::engine::{ContainerEngine, EngineError, block_on_new_thread};
use crate::attempt::Attempt;
use cowhand_system::remove::is_missing;

/// Record in the attempt's folder, from before the container is created until it is removed.
const CONTAINER_FILE: &str = "container";
/// Delay before a removal is tried again if the engine reports that another removal is in progress.
const REMOVE_RETRY_DELAY: Duration = Duration::from_millis(100);
const MAX_REMOVE_TRIES: u32 = 100;
/// Time for the engine to finish creating a container. A container that is created later is found only by its labels.
const CREATE_GRACE: Duration = Duration::from_secs(1);

/// Label of every container, with the state folder of its fleet.
pub(super) const STATE_LABEL: &str = "cowhand.state";
/// Label of every container, with the name of its attempt.
pub(super) const ATTEMPT_LABEL: &str = "cowhand.attempt";

/// Record of an attempt's container.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct Record {
    pub(super) socket: PathBuf,
    pub(super) name: String,
}

impl Record {
    pub(super) fn write(&self, attempt: &Attempt) -> io::Result<()> {
        attempt.write(CONTAINER_FILE, self)
    }

    pub(super) fn remove(attempt: &Attempt) -> io::Result<()> {
        match fs::remove_file(attempt.folder().join(CONTAINER_FILE)) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(()),
            removed => removed,
        }
    }

    /// Reads the record; `None` if there is no container. Returns an error if the record cannot be read, because there
    /// may be a container.
    fn of(attempt: &Attempt) -> Result<Option<Self>, DockerError> {
        let read = match attempt.open(CONTAINER_FILE) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
            opened => opened.and_then(|file| Ok(serde_json::from_reader(file)?)),
        };
        let file = attempt.folder().join(CONTAINER_FILE);
        read.map(Some).map_err(|error| DockerError::UnknownName { file, error })
    }
}

/// Kills and removes a container, and returns whether it existed.
pub(super) async fn end(engine: &ContainerEngine, name: &str) -> Result<bool, EngineError> {
    // The container is killed first, because some engines send a stop signal on removal and wait. An error is ignored,
    // because the container may have ended.
    engine.signal(name, "KILL").await.ok();
    for _ in 0..MAX_REMOVE_TRIES {
        match engine.remove(name).await {
            // Another process is removing the container.
            Err(EngineError::Refused { status: 409, .. }) => tokio::time::sleep(REMOVE_RETRY_DELAY).await,
            removed => return removed,
        }
    }
    engine.remove(name).await
}

/// Removes the container of an ended attempt, if there is one. After an error, the container may still exist.
pub async fn end_container_of(attempt: &Attempt) -> Result<(), DockerError> {
    let Some(Record { socket, name }) = Record::of(attempt)? else { return Ok(()) };
    let ended = async {
        let engine = ContainerEngine::find(&socket).await?;
        if !end(&engine, &name).await? {
            // The engine may still be creating the container for a process that was killed.
            tokio::time::sleep(CREATE_GRACE).await;
            end(&engine, &name).await?;
        }
        Ok::<_, EngineError>(())
    };
    ended.await.map_err(|error| DockerError::NotRemoved { name, error })?;
    Ok(Record::remove(attempt)?)
}

/// Whether the container of an attempt is paused.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum ContainerPause {
    /// There is no container.
    NoContainer,
    Paused,
    NotPaused,
}

/// Pauses the container of an attempt, if there is one.
pub(crate) async fn pause_container_of(attempt: &Attempt) -> Result<ContainerPause, DockerError> {
    let Some(Record { socket, name }) = Record::of(attempt)? else { return Ok(ContainerPause::NoContainer) };
    let paused = async { ContainerEngine::find(&socket).await?.pause(&name).await };
    match paused.await {
        Ok(()) => Ok(ContainerPause::Paused),
        // The container does not run yet, or has ended. The engines report this with different codes.
        Err(EngineError::Refused { .. }) => Ok(ContainerPause::NotPaused),
        Err(error) => Err(DockerError::NotPaused { name, error }),
    }
}

/// Lets the container of an attempt continue.
pub(crate) async fn resume_container_of(attempt: &Attempt) -> Result<(), DockerError> {
    let Some(Record { socket, name }) = Record::of(attempt)? else { return Ok(()) };
    let resumed = async { ContainerEngine::find(&socket).await?.resume(&name).await };
    resumed.await.map_err(|error| DockerError::NotPaused { name, error })
}

/// Reason why a container was not started, written by `cowhand contain`.
const REFUSAL_FILE: &str = "refusal";
/// Reason why the exit code of a container is unknown, written by `cowhand contain`.
const LOSS_FILE: &str = "loss";

impl Attempt {
    /// Ends the container, for synchronous callers. An error is only logged, because the processes can still be found
    /// by their mark.
    pub(crate) fn end_container(&self) {
        if is_missing(&self.folder().join(CONTAINER_FILE)) {
            return;
        }
        let ended = block_on_new_thread(end_container_of(self)).map_err(DockerError::Io).flatten();
        if let Err(why) = ended {
            warn!(attempt = self.name(), "{why}");
        }
    }

    pub(super) fn refuse(&self, why: &str) -> io::Result<()> {
        self.write(REFUSAL_FILE, &why)
    }

    pub fn refusal(&self) -> Option<String> {
        serde_json::from_reader(self.open(REFUSAL_FILE).ok()?).ok()
    }

    pub(super) fn note_container_loss(&self, why: &str) -> io::Result<()> {
        self.write(LOSS_FILE, &why)
    }

    /// Returns why the exit code of the container is unknown; `None` if it is known or there was no container.
    pub(crate) fn container_loss(&self) -> Option<String> {
        serde_json::from_reader(self.open(LOSS_FILE).ok()?).ok()
    }
}

/// Removes the containers of this state folder whose attempts no longer run, and returns the number of removed
/// containers. `is_running` gets the folder of an attempt and returns whether the attempt still runs.
pub async fn sweep(socket: &Path, state: &Path, is_running: fn(&Path) -> bool) -> Result<usize, DockerError> {
    let found = async {
        let engine = ContainerEngine::find(socket).await?;
        let found = engine.labelled(STATE_LABEL, &state.to_string_lossy(), ATTEMPT_LABEL).await?;
        Ok::<_, EngineError>((engine, found))
    };
    let (engine, found) = found.await?;
    let mut ended = 0;
    for (id, attempt) in found {
        let folder = state.join("attempts").join(&attempt);
        let watched = tokio::task::spawn_blocking(move || is_running(&folder)).await;
        if watched? {
            continue;
        }
        end(&engine, &id).await.map_err(|error| DockerError::NotSwept { attempt, error })?;
        ended += 1;
    }
    Ok(ended)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn an_unreadable_container_record_is_an_error() {
        let folder = tempfile::tempdir().unwrap();
        let place = folder.path().join("job-2026-11-16-abc123.1");
        fs::create_dir(&place).unwrap();
        let attempt = Attempt::at(&place).unwrap();
        end_container_of(&attempt).await.unwrap();
        for wrong in ["", "rubbish", "{\"socket\":\"/x\"}"] {
            fs::write(place.join(CONTAINER_FILE), wrong).unwrap();
            let why = end_container_of(&attempt).await.unwrap_err().to_string();
            assert!(
                why.contains("a container of the attempt may still exist, and its name is unknown"),
                "{why}"
            );
            assert!(place.join(CONTAINER_FILE).exists());
        }
    }
}
