//! The launcher: starts the keepers of a daemon.

use std::io;
use std::os::unix::fs::MetadataExt as _;
use std::path::{Path, PathBuf};
use std::process::Child;
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use tracing::warn;

use super::attempt::{Attempt, BeforeOutput, PreparedLaunch};
use super::spawner::{Spawner, SpawnerError};
use super::start::StartSpec;

/// Time after which a spawner that does not answer is replaced.
const ANSWER_TIMEOUT: Duration = Duration::from_secs(10);

/// Starts keepers through a spawner. Without a spawner, the launcher executes the program for each keeper.
#[derive(Debug)]
pub struct Launcher {
    program: PathBuf,
    /// State folder, which the command line of the spawner shows.
    state: PathBuf,
    answer_timeout: Duration,
    /// File of the program when the daemon started. A spawner is started only if the file is still the same, because a
    /// spawner of another version could read requests in another way.
    file: Option<ProgramFile>,
    spawner: Mutex<SpawnerState>,
}

#[derive(Debug)]
enum SpawnerState {
    NotStarted,
    Started {
        spawner: Spawner,
        made_keepers: bool,
    },
    /// A spawner ended before it made any keeper. From then on, the program is executed for each keeper.
    Unusable,
}

/// Identity of the file of a program. It changes when the program is upgraded.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct ProgramFile {
    device: u64,
    inode: u64,
    modified: (i64, i64),
}

impl ProgramFile {
    fn of(program: &Path) -> Option<Self> {
        let metadata = program.metadata().ok()?;
        let modified = (metadata.mtime(), metadata.mtime_nsec());
        Some(Self { device: metadata.dev(), inode: metadata.ino(), modified })
    }
}

/// What an attempt gets at its launch.
#[derive(Debug, Clone)]
pub struct LaunchInput {
    pub before_output: BeforeOutput,
    pub start: StartSpec,
    /// Standard input of the agent.
    pub prompt: String,
    pub environment: Vec<(String, String)>,
}

/// Result of a request to the spawner.
enum Spawned {
    /// The keeper runs, or has run.
    Done,
    /// No keeper was made, and the program can be executed for the keeper instead.
    No(PreparedLaunch),
}

impl Launcher {
    pub fn new(program: PathBuf, state: PathBuf) -> Self {
        let spawner = Mutex::new(SpawnerState::NotStarted);
        let file = ProgramFile::of(&program);
        Self { program, state, answer_timeout: ANSWER_TIMEOUT, file, spawner }
    }

    /// Sets the time after which a spawner that does not answer is replaced.
    #[must_use]
    pub fn with_answer_timeout(self, answer_timeout: Duration) -> Self {
        Self { answer_timeout, ..self }
    }

    /// Creates the folder of the attempt and starts its keeper. A spawner that hangs blocks this call for some seconds.
    pub fn launch(&self, attempt: &Attempt, input: &LaunchInput) -> io::Result<()> {
        let LaunchInput { before_output, start, prompt, environment } = input;
        let launch = attempt.prepare_launch(before_output, &self.program, start, prompt)?;
        match self.spawn(attempt, environment, launch)? {
            Spawned::Done => Ok(()),
            Spawned::No(launch) => {
                let keeper = attempt.execute_keeper(&self.program, environment, launch)?;
                reap_in_thread(attempt, keeper);
                Ok(())
            }
        }
    }

    /// Requests the keeper from the spawner. Starts a spawner first if there is none.
    fn spawn(
        &self,
        attempt: &Attempt,
        environment: &[(String, String)],
        launch: PreparedLaunch,
    ) -> io::Result<Spawned> {
        let mut state = self.spawner.lock().unwrap_or_else(PoisonError::into_inner);
        if let SpawnerState::NotStarted = *state
            && self.file == ProgramFile::of(&self.program)
            && let Ok(spawner) = Spawner::start(&self.program, &self.state, self.answer_timeout)
        {
            *state = SpawnerState::Started { spawner, made_keepers: false };
        }
        // Without a spawner, for example after an upgrade of the program, the program is executed for the keeper. If
        // the program cannot be executed, neither a spawner nor the keeper starts, and the keeper's error is reported.
        let SpawnerState::Started { spawner, made_keepers } = &mut *state else {
            return Ok(Spawned::No(launch));
        };
        match spawner.spawn(attempt.folder(), environment, &launch) {
            Ok(_) => {
                *made_keepers = true;
                Ok(Spawned::Done)
            }
            Err(SpawnerError::Refused(error)) => Err(error),
            Err(SpawnerError::Impossible) => Ok(Spawned::No(launch)),
            Err(SpawnerError::NoAnswer(error)) => {
                warn!("the process that makes keepers does not answer, and is ended: {error}");
                let has_ended =
                    matches!(error.kind(), io::ErrorKind::UnexpectedEof | io::ErrorKind::BrokenPipe);
                let is_unusable = has_ended && !*made_keepers;
                let next = if is_unusable { SpawnerState::Unusable } else { SpawnerState::NotStarted };
                // This ends the spawner, so that it makes no further keeper.
                *state = next;
                after_no_answer(attempt, launch)
            }
        }
    }
}

/// Finds out whether a spawner that has ended made the keeper. If so, the keeper still has a copy of the lock, or it
/// has left its record in the attempt's folder.
fn after_no_answer(attempt: &Attempt, launch: PreparedLaunch) -> io::Result<Spawned> {
    let PreparedLaunch { lock, log } = launch;
    drop(lock);
    match attempt.try_lock()? {
        Some(lock) if !attempt.began()? => Ok(Spawned::No(PreparedLaunch { lock, log })),
        _ => Ok(Spawned::Done),
    }
}

/// Waits for the end of a keeper in a thread, so that the keeper does not become a zombie. The thread is not a blocking
/// task of the Tokio runtime, because the runtime would wait for such a task at shutdown.
fn reap_in_thread(attempt: &Attempt, mut keeper: Child) {
    if let Err(error) = std::thread::Builder::new().spawn(move || keeper.wait()) {
        let folder = attempt.folder().display();
        warn!(
            "cannot wait for the keeper of {folder}, which stays a zombie process until the daemon ends: {error}"
        );
    }
}
