//! The workspace of a job, as the API shows it.

use std::path::PathBuf;

use cowhand_core::workspace::IsolationKind;
use jiff::Timestamp;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use cowhand_store::{StoredWorkspace, WorkspaceState};

/// Worktree or clone of a job. It exists, or it is removed and only its branch is left.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct WorkspaceView {
    pub kind: IsolationKind,
    pub state: WorkspacePhase,
    /// Node that has the workspace.
    pub node: String,
    pub path: PathBuf,
    pub branch: String,
    /// Commit at which the workspace started.
    pub base: String,
    /// Time until which the workspace is kept at least, because the session of its job may continue there.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub keep_until: Option<Timestamp>,
    /// Why the workspace is kept although its job has ended: its diff could not be made yet, or its commits could not
    /// be stored in the repository yet. The daemon tries again.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub unfinished: Option<String>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum WorkspacePhase {
    /// It is being created and may be incomplete.
    Making,
    Used,
    /// Its job has ended, and cowhand has not decided yet whether to keep the workspace.
    Ended,
    /// Its job has ended, and the workspace is kept.
    Kept,
    /// The directory does not exist any more, although cowhand did not remove it.
    Gone,
    /// The directory is removed; the branch has commits that are nowhere else.
    Branch,
}

impl WorkspaceView {
    pub(super) fn new(stored: StoredWorkspace, is_gone: bool, unfinished: Option<String>) -> Self {
        let is_live = stored.is_live();
        let (state, keep_until) = match stored.state {
            WorkspaceState::Making => (WorkspacePhase::Making, None),
            WorkspaceState::Used if is_live => (WorkspacePhase::Used, None),
            WorkspaceState::Used | WorkspaceState::Kept { .. } if is_gone => (WorkspacePhase::Gone, None),
            WorkspaceState::Used => (WorkspacePhase::Ended, None),
            WorkspaceState::Kept { until } => (WorkspacePhase::Kept, until),
            WorkspaceState::Branch => (WorkspacePhase::Branch, None),
        };
        let workspace = stored.workspace;
        Self {
            kind: workspace.kind,
            state,
            node: workspace.node,
            path: workspace.path,
            branch: workspace.branch,
            base: workspace.base,
            keep_until,
            unfinished: unfinished.filter(|_| state != WorkspacePhase::Branch),
        }
    }
}

impl WorkspacePhase {
    /// Returns the text for people.
    pub const fn label(self) -> &'static str {
        match self {
            Self::Making => "being created",
            Self::Used => "in use",
            Self::Ended => "its job has ended",
            Self::Kept => "kept",
            Self::Gone => "gone",
            Self::Branch => "removed; its branch has commits that exist nowhere else",
        }
    }
}
