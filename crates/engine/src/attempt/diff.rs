//! The diff of a job. It is kept beside the job's output when an attempt ends, or as soon as that is possible. Until
//! then, the workspace stays.

use std::fs;
use std::io;
use std::sync::Arc;

use cowhand_core::job::Job;
use cowhand_core::workspace::Workspace;
use jiff::Timestamp;
use tracing::warn;

use super::AttemptTask;
use crate::context::Engine;
use crate::prune::workspaces::{WorkspacesError, run_git};
use crate::secrets::redactor_over;
use crate::state::StateFolder;
use crate::view::write_whole;
use cowhand_run::attempt::Attempt;
use cowhand_run::redact::Redactor;
use cowhand_run::workspace::{self, WorkspaceError};
use cowhand_system::fault;
use cowhand_system::remove::missing_is_ok;

/// Empty file in the folder of an attempt. If it exists, the diff of the attempt is already stored.
const DIFFED_FILE: &str = "diffed";

impl AttemptTask {
    /// Makes and keeps the diff of the attempt, which has ended. A failure does not delay the job: the diff is then
    /// made later, before the workspace is removed.
    pub(super) async fn keep_diff(&self, redactor: &Redactor) {
        if !self.may_have_workspace() {
            return;
        }
        let (engine, job) = (&self.engine, &self.job);
        let kept = match engine.store.workspace_of(engine.home.node.clone(), job.id().clone()).await {
            Ok(Some(stored)) => {
                keep(engine, stored.workspace, job.created_at(), self.attempt(), redactor.clone()).await
            }
            Ok(None) => return,
            Err(error) => Err(error.into()),
        };
        if let Err(error) = kept {
            warn!(job = %job.id(), "its diff is not kept yet: {error}");
        }
        fault::point("diffed");
    }

    /// Finds out without the store whether the attempt may have run in a workspace.
    pub(super) fn may_have_workspace(&self) -> bool {
        match self.engine.home.state.workspaces().canonicalize() {
            Ok(folder) => self.attempt().start().map_or(true, |start| start.directory.starts_with(folder)),
            Err(error) => error.kind() != io::ErrorKind::NotFound,
        }
    }
}

/// Makes and keeps the diff of an ended job, unless the diff is kept already.
pub(super) async fn keep_missing(engine: &Arc<Engine>, workspace: &Workspace) -> Result<(), WorkspacesError> {
    let Some(job) = engine.store.job(workspace.job.clone()).await? else { return Ok(()) };
    let (state, ended) = (engine.home.state.clone(), job.clone());
    let Some((attempt, number)) = run_git(move || without_diff(&state, &ended)).await? else { return Ok(()) };
    let token = engine.home.job_key.token(job.id(), number);
    let redactor = redactor_over(&engine.loaded(), None).with_secrets([token]);
    keep(engine, workspace.clone(), job.created_at(), attempt, redactor).await
}

/// Returns the last attempt on this machine whose agent may have worked, if its diff is not kept.
fn without_diff(state: &StateFolder, job: &Job) -> io::Result<Option<(Attempt, u32)>> {
    for number in (1..=job.attempts()).rev() {
        let attempt = Attempt::new(state.path(), job.id(), number);
        if attempt.began()? {
            let is_kept = fs::exists(attempt.folder().join(DIFFED_FILE))?;
            return Ok((!is_kept).then_some((attempt, number)));
        }
    }
    Ok(None)
}

async fn keep(
    engine: &Arc<Engine>,
    workspace: Workspace,
    since: Timestamp,
    attempt: Attempt,
    redactor: Redactor,
) -> Result<(), WorkspacesError> {
    let (state, minder) = (engine.home.state.clone(), engine.git_minder());
    run_git(move || {
        let scratch = state.workspaces().join(format!("{}.index", workspace.job));
        let (text, made) = match workspace::diff(&workspace, &scratch, since.into(), Some(&minder)) {
            Ok(text) => (text, Ok(())),
            // Nothing is left that could be compared later.
            Err(why @ WorkspaceError::Gone(_)) => {
                warn!(job = %workspace.job, "its diff cannot be made: {why}");
                (note(&why, ""), Ok(()))
            }
            Err(why) => {
                let text = note(&why, "; the workspace is kept until one can be made");
                (text, Err(WorkspacesError::DiffNotMade(why)))
            }
        };
        let written = write_whole(&state.diff(&workspace.job), &redactor.redact_bytes(&text));
        made.and(written.map_err(WorkspacesError::DiffNotKept))?;
        // Without this file, the diff would be made again after the removal of the workspace. The second diff would
        // lack changes and replace the first. The folder of a lost attempt may be missing.
        let marked = fs::write(attempt.folder().join(DIFFED_FILE), "");
        missing_is_ok(marked).map_err(WorkspacesError::DiffNotKept)
    })
    .await
}

/// Returns the text that is stored if no diff can be made. An empty diff would mean that nothing was changed.
fn note(why: &WorkspaceError, what_follows: &str) -> Vec<u8> {
    let why = why.to_string().replace('\n', " ");
    format!("# cowhand: no diff could be made: {why}{what_follows}\n").into_bytes()
}
