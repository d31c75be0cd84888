//! The files of a job: its output, its view, its diff, its folder, and a folder for each attempt.

use std::collections::HashMap;
use std::fs::{self, DirEntry};
use std::io;
use std::path::Path;

use cowhand_core::id::JobId;

use crate::state::StateFolder;
use cowhand_run::attempt::Attempt;
use cowhand_run::supervision::AttemptState;
use cowhand_system::fault;
use cowhand_system::remove::{missing_is_ok, remove_folder};
use cowhand_system::tree::size;

/// Returns the size of each job's files in bytes.
pub fn measure(state: &StateFolder) -> io::Result<HashMap<JobId, u64>> {
    let mut bytes: HashMap<JobId, u64> = HashMap::new();
    for folder in [state.jobs(), state.attempts()] {
        for entry in entries(&folder)? {
            let entry = entry?;
            if let Some(job) = job_of(&entry) {
                *bytes.entry(job).or_default() += size(&entry.path())?;
            }
        }
    }
    Ok(bytes)
}

/// Lists a folder. A missing folder counts as empty.
pub fn entries(folder: &Path) -> io::Result<impl Iterator<Item = io::Result<DirEntry>>> {
    match fs::read_dir(folder) {
        Ok(entries) => Ok(Some(entries).into_iter().flatten()),
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(None.into_iter().flatten()),
        Err(error) => Err(error),
    }
}

/// Returns the job to which an entry belongs: its name is the id of the job, alone or followed by a dot and more, for
/// example `<job>.yaml`. Returns `None` for other entries.
fn job_of(entry: &DirEntry) -> Option<JobId> {
    entry.file_name().to_str()?.split('.').next()?.parse().ok()
}

/// Removes all files of a job that no longer exists. The removal may be repeated. If an attempt still runs, its files
/// stay and an error is returned: its node has lost the job and is about to end the attempt.
pub fn remove(state: &StateFolder, job: &JobId, attempts: u32) -> io::Result<()> {
    for number in 1..=attempts {
        let attempt = Attempt::new(state.path(), job, number);
        if matches!(attempt.state(), Ok(AttemptState::Kept | AttemptState::Unkept)) {
            return Err(io::Error::other(format!("{job} is pruned, but its processes still run")));
        }
        ignore_missing(attempt.folder(), remove_folder(attempt.folder()))?;
    }
    fault::point("removing");
    for file in [state.output(job), state.view(job), state.diff(job)] {
        ignore_missing(&file, fs::remove_file(&file))?;
    }
    let folder = state.folder(job);
    ignore_missing(&folder, remove_folder(&folder))
}

fn ignore_missing(path: &Path, removed: io::Result<()>) -> io::Result<()> {
    missing_is_ok(removed)
        .map_err(|error| io::Error::new(error.kind(), format!("{}: {error}", path.display())))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_files_of_the_job_are_counted_and_removed() {
        let folder = tempfile::tempdir().unwrap();
        let state = StateFolder::at(folder.path().join(".cowhand"));
        assert!(measure(&state).unwrap().is_empty(), "there is no folder yet");
        state.create().unwrap();
        let elsewhere = folder.path().join("elsewhere");
        fs::write(&elsewhere, [0; 1_000]).unwrap();
        let [one, other]: [JobId; 2] =
            ["job-2026-01-05-aaaaaa", "job-2026-01-05-bbbbbb"].map(|id| id.parse().unwrap());
        for job in [&one, &other] {
            fs::write(state.output(job), [0; 10]).unwrap();
            fs::write(state.view(job), [0; 200]).unwrap();
            fs::write(state.diff(job), [0; 500]).unwrap();
            fs::create_dir(state.folder(job)).unwrap();
            fs::write(state.folder(job).join("output.log"), [0; 4_000]).unwrap();
            let attempt = Attempt::new(state.path(), job, 2);
            fs::create_dir_all(attempt.folder().join("deeper")).unwrap();
            fs::write(attempt.folder().join("deeper/stdout"), [0; 3_000]).unwrap();
            std::os::unix::fs::symlink(&elsewhere, attempt.folder().join("link")).unwrap();
        }
        fs::write(state.jobs().join("notes.txt"), "mine").unwrap();
        let link = elsewhere.as_os_str().len() as u64;
        assert_eq!(
            measure(&state).unwrap(),
            HashMap::from([(one.clone(), 7_710 + link), (other.clone(), 7_710 + link)])
        );
        remove(&state, &one, 2).unwrap();
        remove(&state, &one, 2).unwrap();
        assert_eq!(measure(&state).unwrap(), HashMap::from([(other, 7_710 + link)]));
        assert!(elsewhere.exists() && state.jobs().join("notes.txt").exists());
    }

    /// The views and a prune can remove the same job at the same time, while other code checks the state of its
    /// attempt, which takes the attempt's lock.
    #[test]
    fn a_job_can_be_removed_several_times_at_once() {
        let folder = tempfile::tempdir().unwrap();
        let state = StateFolder::at(folder.path().join(".cowhand"));
        state.create().unwrap();
        let job: JobId = "job-2026-01-05-aaaaaa".parse().unwrap();
        for round in 0..200 {
            let attempt = Attempt::new(state.path(), &job, 1);
            fs::create_dir_all(attempt.folder().join("private")).unwrap();
            fs::create_dir_all(state.folder(&job)).unwrap();
            for name in ["stdout", "start.json", "private/x"] {
                fs::write(attempt.folder().join(name), "text").unwrap();
            }
            let barrier = std::sync::Barrier::new(4);
            std::thread::scope(|scope| {
                let removers: Vec<_> = (0..2)
                    .map(|_| {
                        scope.spawn(|| {
                            barrier.wait();
                            remove(&state, &job, 1)
                        })
                    })
                    .collect();
                for _ in 0..2 {
                    scope.spawn(|| {
                        barrier.wait();
                        for _ in 0..20 {
                            // The attempt may have been removed already. The check must not disturb the removal.
                            attempt.state().ok();
                            fs::write(attempt.folder().join("keeper.log"), "last words").ok();
                        }
                    });
                }
                for remover in removers {
                    let removed = remover.join().unwrap();
                    assert!(removed.is_ok(), "round {round}: {removed:?}");
                }
            });
            remove(&state, &job, 1).unwrap();
            assert!(!attempt.folder().exists());
        }
    }
}
