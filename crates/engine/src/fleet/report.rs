//! Reports of agents about their work: checks the artifacts of a report, masks its secrets, and stores it.

use std::fs;
use std::path::PathBuf;

use cowhand_core::id::JobId;
use cowhand_core::job::JobStatus;
use cowhand_core::report::{self, Artifact, Report, ReportRefused, ReportedOutcome, is_plain};

use super::{Fleet, FleetError};
use cowhand_store::ReportOutcome;
use cowhand_system::work_dir::WorkDirPath;

impl Fleet {
    /// Stores the report of a running attempt. A later report replaces it.
    pub async fn report(
        &self,
        job: &JobId,
        attempt: u32,
        outcome: ReportedOutcome,
        summary: &str,
        artifacts: &[String],
    ) -> Result<Report, FleetError> {
        let job = self.job(job).await?;
        // The attempt is checked first, so that the error for an ended attempt is not about its artifacts.
        if job.status() != JobStatus::Running || job.attempts() != attempt {
            return Err(FleetError::NoAttempt { job: job.id().clone(), attempt });
        }
        let redactor = self.redactor_of(&job);
        let names = report::artifacts(artifacts).map_err(FleetError::ReportRefused)?;
        let names = self.artifact_names(job.id(), attempt, names).await?;
        // A mask can be longer than the secret, but the difference is too small to matter for the limit.
        let summary = report::summary(&redactor.redact(summary)).map_err(FleetError::ReportRefused)?;
        let artifacts = names.iter().map(|artifact| redactor.redact(artifact).into_owned()).collect();
        let now = self.engine.clock.now();
        let report = Report { outcome, summary, artifacts, reported_at: now };
        match self.store().report(job.id().clone(), attempt, report, now).await? {
            ReportOutcome::Made(report) => Ok(report),
            ReportOutcome::NotRunning => Err(FleetError::NoAttempt { job: job.id().clone(), attempt }),
        }
    }

    /// Returns the names of the artifacts. Paths become relative to the directory of the attempt. Paths are refused if
    /// the attempt runs on another node.
    async fn artifact_names(
        &self,
        job: &JobId,
        attempt: u32,
        artifacts: Vec<Artifact>,
    ) -> Result<Vec<String>, FleetError> {
        let work_dir = self.store().location_of_attempt(job.clone(), attempt).await?;
        let directory = work_dir
            .filter(|work_dir| work_dir.node == self.engine.home.node)
            .map(|work_dir| work_dir.directory);
        let (workspaces, loaded) = (self.state_folder().workspaces(), self.engine.loaded());
        let names = tokio::task::spawn_blocking(move || {
            let writable = &loaded.writable;
            let work_dir = directory.as_deref();
            let work_dir =
                work_dir.map(|directory| WorkDirPath { directory, workspaces: &workspaces, writable });
            artifacts.into_iter().map(|artifact| artifact_name(artifact, work_dir.as_ref())).collect()
        });
        let names: Result<_, ReportRefused> = names.await.map_err(|_| FleetError::Died)?;
        names.map_err(FleetError::ReportRefused)
    }
}

fn artifact_name(artifact: Artifact, work_dir: Option<&WorkDirPath<'_>>) -> Result<String, ReportRefused> {
    match artifact {
        Artifact::Name(name) => Ok(name),
        Artifact::Path(path) => {
            let work_dir = work_dir.ok_or(ReportRefused::Elsewhere)?;
            // A missing path and a path outside give the same error, so that an agent learns nothing about files it
            // cannot see.
            inside(work_dir, &path).filter(|name| is_plain(name)).ok_or(ReportRefused::NotInside(path))
        }
    }
}

/// Returns the path relative to the working directory, with links resolved, so that no link leads outside. Returns
/// `None` if the path does not exist or is outside, or if the agent has replaced its working directory by a link.
fn inside(work_dir: &WorkDirPath<'_>, path: &str) -> Option<String> {
    let directory = work_dir.open().ok()?.path().ok()?;
    let found: PathBuf = fs::canonicalize(directory.join(path)).ok()?;
    found.strip_prefix(&directory).ok()?.to_str().map(str::to_owned)
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::symlink;
    use std::path::Path;

    use super::*;

    #[test]
    fn only_paths_inside_the_directory_are_artifacts() {
        let folder = tempfile::tempdir().unwrap();
        let (work_dir, secret) = (folder.path().join("work"), folder.path().join("secret"));
        fs::create_dir_all(work_dir.join("out")).unwrap();
        for file in [work_dir.join("out/a.txt"), work_dir.join("b\u{1b}[2J"), secret.clone()] {
            fs::write(file, "").unwrap();
        }
        symlink(&secret, work_dir.join("leads-out")).unwrap();
        symlink("out/a.txt", work_dir.join("leads-in")).unwrap();
        symlink("round", work_dir.join("round")).unwrap();
        let absolute = work_dir.join("out/a.txt").display().to_string();
        for (path, expected) in [
            ("out/a.txt", Some("out/a.txt")),
            ("./out/../out/a.txt", Some("out/a.txt")),
            ("out", Some("out")),
            ("leads-in", Some("out/a.txt")),
            (absolute.as_str(), Some("out/a.txt")),
            ("leads-out", None),
            ("../secret", None),
            ("../work/../secret", None),
            ("/etc/passwd", None),
            ("nothing", None),
            ("round", None),
            (".", None),
            ("b\u{1b}[2J", None),
        ] {
            assert_eq!(artifact_of(folder.path(), &work_dir, path).as_deref(), expected, "{path:?}");
        }
        assert_eq!(artifact_name(Artifact::Path("out".to_owned()), None), Err(ReportRefused::Elsewhere));
    }

    /// Returns the name of an artifact in a folder that contains `workspaces`.
    fn artifact_of(folder: &Path, directory: &Path, path: &str) -> Option<String> {
        let workspaces = folder.join("workspaces");
        let work_dir = WorkDirPath { directory, workspaces: &workspaces, writable: &[] };
        artifact_name(Artifact::Path(path.to_owned()), Some(&work_dir)).ok()
    }

    #[test]
    fn an_agent_that_replaces_its_directory_by_a_link_learns_nothing() {
        let folder = tempfile::tempdir().unwrap();
        let root = folder.path().canonicalize().unwrap();
        let directory = root.join("workspaces/job/sub");
        fs::create_dir_all(&directory).unwrap();
        fs::create_dir(root.join("outside")).unwrap();
        for folder in [&directory, &root.join("outside")] {
            fs::write(folder.join("key"), "").unwrap();
        }
        assert_eq!(artifact_of(&root, &directory, "key").as_deref(), Some("key"));
        fs::remove_dir_all(&directory).unwrap();
        symlink(root.join("outside"), &directory).unwrap();
        assert_eq!(artifact_of(&root, &directory, "key"), None);
    }
}
