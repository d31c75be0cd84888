//! Finds the fleet of a verb, and connects to its daemon or store.

use std::collections::HashMap;
use std::io;
use std::ops::Deref;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Once};
use std::time::{Duration, Instant};

use cowhand_core::config::LoadedConfig;
use cowhand_core::duration;
use cowhand_core::job::JobStatus;
use jiff::Timestamp;
use tempfile::TempDir;

use super::advice::config_argument;
use super::start_options::StartOptions;
use super::{Exit, Failure, print};
use cowhand_engine::config::{self, FromDisk};
use cowhand_engine::daemon::{self, paused_agents};
use cowhand_engine::error::FleetError;
use cowhand_engine::secrets::redactor_without_daemon;
use cowhand_engine::state::{StateFolder, StoreMark};
use cowhand_run::redact::Redactor;
use cowhand_run::sandbox::writable;
use cowhand_store::{JobFilter, Store, StoreError, is_postgres};
use cowhand_system::clock::Clock;
use cowhand_system::disk::DiskProblem;
use cowhand_web::api::{Api, Client, Code};
use cowhand_work::{SourceContext, WorkSources};

/// Set if this process has shown, or must not show, the reason why no daemon can start.
static REFUSAL_IS_SHOWN: AtomicBool = AtomicBool::new(false);
/// Set if this process has shown, or must not show, the number of jobs that have ended and are not settled.
static UNSETTLED_IS_SHOWN: AtomicBool = AtomicBool::new(false);

/// Time for which a request is sent again if the daemon ends before it has answered.
const REPEAT_TIMEOUT: Duration = Duration::from_secs(10);
const REPEAT_INTERVAL: Duration = Duration::from_millis(50);

/// Advice if no daemon runs and the config has errors.
const CORRECT_CONFIG: &str = "the config has errors; `cowhand config check` lists them; when they are corrected, start it \
                              with `cowhand start -d`";

#[derive(Debug)]
pub(super) struct FleetLocation {
    pub(super) config: PathBuf,
    pub(super) state: StateFolder,
}

impl FleetLocation {
    /// Finds the fleet that `-c` names, or the one in or above the current directory, and prints notes about the
    /// choice.
    pub(super) fn find(config_option: Option<&Path>) -> Result<Self, Failure> {
        let (location, search_note) = Self::search(config_option)?;
        location.note(search_note);
        Ok(location)
    }

    /// Finds the fleet without printing, and returns the note about the search.
    pub(super) fn search(config_option: Option<&Path>) -> Result<(Self, Option<String>), Failure> {
        let current_dir = std::env::current_dir().map_err(|error| cannot("no working directory", &error))?;
        let found = config::find(config_option, &current_dir)
            .map_err(|error| Failure::new(Exit::Config, format!("{error:#}")))?;
        let location = Self::of(found.file);
        // If the file that the daemon was started with is removed, verbs still reach the daemon. If `-c` names another
        // file that does not exist, that is a mistake of the user.
        if config_option.is_some() && !location.config.exists() && location.runs_other_file().is_some() {
            let message = format!(
                "{} does not exist; `-c` takes a config file or its folder",
                location.config.display()
            );
            return Err(Failure::new(Exit::Config, message));
        }
        Ok((location, found.note))
    }

    /// Returns the fleet of this config file.
    pub(super) fn of(config: PathBuf) -> Self {
        Self { state: StateFolder::beside(&config), config }
    }

    /// Prints notes about the choice of the config file.
    pub(super) fn note(&self, search_note: Option<String>) {
        self.runs_other_file().or(search_note).into_iter().for_each(print::note);
        if let Some(root) = self.root() {
            print::note(root.note(&self.config));
        }
    }

    /// Returns a note if the daemon here was started with another file than the one that was found.
    pub(super) fn runs_other_file(&self) -> Option<String> {
        let running = StartOptions::read(&self.state).ok()?.config?;
        let name = |path: &Path| path.file_name().map(|name| name.to_string_lossy().into_owned());
        let (running, found) = (name(&running)?, name(&self.config)?);
        (running != found && self.state.is_locked()).then(|| {
            format!("the daemon here runs {running} and not {found}; `cowhand restart` makes it use {found}")
        })
    }

    /// Returns a fleet that includes this fleet: a fleet with a running daemon, or else the outermost fleet.
    pub(super) fn root(&self) -> Option<FleetAbove> {
        let above = config::including_configs(&self.config);
        let runs = |file: &PathBuf| StateFolder::beside(file).is_locked();
        let running = above.iter().find(|file| runs(file)).cloned();
        let runs = running.is_some();
        running.or_else(|| above.last().cloned()).map(|config| FleetAbove { config, runs })
    }

    /// Fails if the daemon of a fleet that includes this fleet runs its agents, or if the daemon of a sub-fleet runs
    /// some of them. `files` are the files of this fleet.
    pub(super) fn refuse_second_daemon(&self, files: &[PathBuf]) -> Result<(), Failure> {
        if let Some(part) = self.running_part(files) {
            let (own_config, config_option, part) =
                (self.config.display(), config_argument(&part), part.display());
            let message = format!(
                "{part} is part of the fleet {own_config}, and its own daemon runs: a second daemon would run its schedules twice; \
                 end that daemon with `cowhand {config_option} stop` first"
            );
            return Err(Failure::new(Exit::Refused, message));
        }
        let Some(FleetAbove { config, .. }) = self.root().filter(|root| root.runs) else { return Ok(()) };
        let message = format!(
            "{} is part of the fleet {}, whose daemon runs: a second daemon would run every schedule twice; name that fleet \
             with `{}`",
            self.config.display(),
            config.display(),
            config_argument(&config),
        );
        Err(Failure::new(Exit::Refused, message))
    }

    /// Fails if a daemon holds the state folder but does not answer. A later check would only report that a daemon
    /// runs, and advise `cowhand stop`, which cannot end such a daemon.
    pub(super) fn refuse_silent_daemon(&self) -> Result<(), Failure> {
        wait(async {
            match Client::of_daemon(&self.state).await {
                Err(problem) if problem.code == Code::NoDaemon => Err(problem.into()),
                // The caller reports a folder that cannot be opened.
                _ => Ok(()),
            }
        })
    }

    /// Returns whether other nodes may use the store of this fleet.
    pub(super) fn has_shared_store(&self) -> bool {
        config::load(&self.config).loaded.roster.store.is_some()
    }

    /// Returns advice for a fleet without a daemon. `cowhand start -d` is advised only if the start is not refused.
    pub(super) fn how_to_start(&self) -> String {
        self.instead_of_start().unwrap_or_else(|| "`cowhand start -d` starts it".to_owned())
    }

    /// Returns the text of [`Self::start_refusal`]. This method can be called inside and outside of a Tokio runtime.
    fn refusal_text(&self) -> Option<String> {
        let refusal =
            std::thread::scope(|scope| scope.spawn(|| wait(async { Ok(self.start_refusal().await) })).join());
        let refusal = refusal.ok()?.ok()??;
        REFUSAL_IS_SHOWN.store(true, Ordering::Relaxed);
        Some(refusal.to_string())
    }

    /// Describes why no daemon can start if the disk of the state folder cannot be written.
    fn disk_problem(&self) -> Option<String> {
        let folder = self.state.path();
        DiskProblem::find(folder).map(|problem| problem.sentence_without_daemon(folder.display()))
    }

    /// Describes why no daemon can use the state folder; `None` if one can.
    fn unusable_state(&self) -> Option<String> {
        let error = self.state.check().and_then(|()| self.state.check_files()).err()?;
        Some(format!("no daemon can start, because the state folder cannot be used: {error}"))
    }

    /// Returns advice if a start would fail because of another daemon, the disk, the state folder, another store, or
    /// errors in the config.
    fn instead_of_start(&self) -> Option<String> {
        let FromDisk { loaded, files, .. } = config::load(&self.config);
        if let Some(part) = self.running_part(&files) {
            let (config_option, own_config) = (config_argument(&part), config_argument(&self.config));
            return Some(format!(
                "a daemon runs its part {}; `cowhand {config_option} stop` ends that one, and `cowhand {own_config} start -d` then starts it",
                part.display()
            ));
        }
        let Some(FleetAbove { config, .. }) = self.root().filter(|root| root.runs) else {
            return self
                .disk_problem()
                .or_else(|| self.unusable_state())
                .or_else(|| self.refusal_text())
                .or_else(|| (loaded.errors() > 0).then(|| CORRECT_CONFIG.to_owned()));
        };
        let (root, config_option) = (config.display(), config_argument(&config));
        Some(format!("the daemon of {root} runs its agents; name that fleet with `{config_option}`"))
    }

    /// Replaces the advice to start a daemon if the start would be refused.
    fn with_working_advice(&self, failure: Failure) -> Failure {
        if !failure.has_exit(Exit::NoDaemon) || self.state.is_locked() {
            return failure;
        }
        let Some(instead) = self.instead_of_start() else { return failure };
        Failure::new(Exit::NoDaemon, format!("no daemon runs for {}; {instead}", self.config.display()))
    }

    /// Adds which agents of this node are paused, if the store cannot be reached.
    fn with_paused_agents(&self, failure: Failure) -> Failure {
        if !failure.has_exit(Exit::CannotRunHere) {
            return failure;
        }
        let now = Timestamp::now();
        let paused = paused_agents(&self.state);
        paused.into_iter().fold(failure, |failure, (job, since)| {
            let since = duration::relative_to_now(now, since);
            failure.with_line(&format!(
                "the agent of {job} was paused {since}, because the node cannot renew the lease of the job while the \
                 database does not answer; it continues when the database answers and no other node has taken the job \
                 over"
            ))
        })
    }

    /// Returns the config of a sub-fleet whose own daemon runs. `files` are the files of this fleet.
    fn running_part(&self, files: &[PathBuf]) -> Option<PathBuf> {
        let running = files.iter().find(|file| {
            let state = StateFolder::beside(file);
            let runs_it = || {
                let options = StartOptions::read(&state).ok().and_then(|options| options.config);
                options.is_some_and(|config| config.file_name() == file.file_name())
            };
            file.parent() != self.config.parent() && state.is_locked() && runs_it()
        });
        running.cloned()
    }

    /// Sends a request to the daemon or, if none runs, to the store. If the daemon ends before it has answered, for
    /// example because of a `cowhand restart`, the request is sent again, unless it may have had an effect.
    #[expect(clippy::needless_pass_by_value, reason = "callers write the closure in the call")]
    pub(super) fn ask<T>(
        &self,
        request: impl AsyncFn(&Connection<'_>) -> Result<T, Failure>,
    ) -> Result<T, Failure> {
        let mut is_alone = false;
        let mut unsettled_note = None;
        let mut has_effect = false;
        let answer = wait(async {
            let began = Instant::now();
            loop {
                let connection = self.connect().await?;
                is_alone = connection.is_alone();
                unsettled_note.clone_from(&connection.unsettled_note);
                let answer = request(&connection).await;
                has_effect = connection.has_effect();
                if answer.is_ok() || !connection.can_begin_again() || began.elapsed() >= REPEAT_TIMEOUT {
                    return answer;
                }
                tokio::time::sleep(REPEAT_INTERVAL).await;
            }
        });
        let answer =
            answer.map_err(|failure| if has_effect { failure } else { self.with_working_advice(failure) });
        let answer = answer.map_err(|failure| self.with_paused_agents(failure));
        if is_alone {
            self.note_refusal();
        }
        // A command may connect several times.
        if let Some(note) = unsettled_note
            && !UNSETTLED_IS_SHOWN.swap(true, Ordering::Relaxed)
        {
            print::note(note);
        }
        answer
    }

    /// Prints a note if a start is refused ([`Self::start_refusal`]), unless the reason is shown already. If a start
    /// is refused, the answer may be about a store that does not have the jobs of the state folder.
    fn note_refusal(&self) {
        if !REFUSAL_IS_SHOWN.load(Ordering::Relaxed)
            && let Some(refusal) = self.refusal_text()
        {
            print::note(format!("no daemon can start now: {refusal}"));
        }
    }

    /// Prevents the note about a refused start, because the verb shows the reason itself or shows no notes.
    pub(super) fn without_refusal_note() {
        REFUSAL_IS_SHOWN.store(true, Ordering::Relaxed);
    }

    /// Prevents the note about unsettled jobs, because the verb shows their number itself.
    pub(super) fn without_unsettled_note() {
        UNSETTLED_IS_SHOWN.store(true, Ordering::Relaxed);
    }

    /// Connects to the daemon or, if none runs, opens the store alone.
    async fn connect(&self) -> Result<Connection<'_>, Failure> {
        if let Some(client) = Client::of_daemon(&self.state).await? {
            return Ok(Connection {
                client,
                location: self,
                unsettled_note: None,
                has_config_errors: false,
                _empty_folder: None,
            });
        }
        self.open_store().await.map_err(without_daemon)
    }

    /// Returns the error with which a start is refused because of attempts that are not settled: their store is
    /// missing, the config names another store, or the record of their store is damaged. Returns none if the start is
    /// not refused for one of these reasons.
    pub(super) async fn start_refusal(&self) -> Option<FleetError> {
        let store = config::load(&self.config).loaded.roster.store;
        let refused = daemon::refuse_other_store(&self.state, store.as_deref()).await;
        let is_refused = |error: &FleetError| {
            matches!(
                error,
                FleetError::StoreGone { .. } | FleetError::OtherStore(_) | FleetError::DamagedStoreRecord(_)
            )
        };
        refused.err().filter(is_refused)
    }

    /// Returns the store that the last daemon used, if the config names another one.
    pub(super) async fn former_store(&self) -> Option<StoreMark> {
        let store = config::load(&self.config).loaded.roster.store;
        daemon::former_store(&self.state, store.as_deref()).await
    }

    /// Opens the store without the daemon, even if a daemon runs.
    pub(super) async fn open_store(&self) -> Result<Connection<'_>, Failure> {
        let config::FromDisk { loaded, variables, .. } = config::load(&self.config);
        if loaded.errors() > 0 {
            // A command may connect several times.
            static NOTED: Once = Once::new();
            NOTED.call_once(|| print::note(self.config_error_note()));
        }
        refuse_other_store(loaded.roster.store.as_deref())?;
        let file = self.state.database();
        let address = loaded.roster.store.clone().unwrap_or_else(|| file.display().to_string());
        // A fleet that never ran has no store. An empty store in a temporary folder is read instead, because reading
        // must not create a file in the state folder, or tables on a server.
        let exists = Store::exists(&address).await.map_err(|error| unreadable(&error))?;
        let empty = if exists { None } else { Some(empty_folder()?) };
        let address =
            empty.as_ref().map_or(address, |empty| empty.path().join("store.db").display().to_string());
        let store =
            Store::open(&address).await.map_err(|error| unreadable(&error))?.with_clock(Clock::System);
        let unsettled_note = unsettled_attempts(&store, &self.state).await;
        let redactor = self.redactor(&loaded, &variables);
        let sources = WorkSources::new(Arc::default(), self.source_context(&loaded, &variables));
        let program = std::env::current_exe().map_err(|error| {
            Failure::new(Exit::CannotRunHere, format!("cannot find this program: {error}"))
        })?;
        let has_config_errors = loaded.errors() > 0;
        let api = Api::alone(store, self.state.clone(), loaded.roster, sources, redactor, program);
        let client = Client::of_person(api);
        Ok(Connection { client, location: self, unsettled_note, has_config_errors, _empty_folder: empty })
    }

    /// Returns the note that the config has errors, or that its file does not exist.
    pub(super) fn config_error_note(&self) -> String {
        if self.config.exists() {
            return "the config has errors; `cowhand config check` shows them".to_owned();
        }
        format!("the config file {} does not exist; put it back", self.config.display())
    }

    /// Returns the redactor for the secrets of a config that was loaded from its files.
    pub(super) fn redactor(&self, loaded: &LoadedConfig, variables: &HashMap<String, String>) -> Redactor {
        redactor_without_daemon(loaded, variables, &self.source_context(loaded, variables), &self.state)
    }

    fn source_context(&self, loaded: &LoadedConfig, variables: &HashMap<String, String>) -> SourceContext {
        let base = self.config.parent().unwrap_or(Path::new(""));
        SourceContext::of_base(base, variables.clone()).writable(writable(&loaded.roster))
    }
}

/// Returns a sentence about the jobs that the store has as running, but whose attempts do not run on this machine.
/// Without a daemon, nobody records their results. None if there are no such jobs.
async fn unsettled_attempts(store: &Store, state: &StateFolder) -> Option<String> {
    let running = JobFilter { status: Some(JobStatus::Running), ..JobFilter::default() };
    let jobs = store.jobs(running, MAX_CHECKED).await.ok()?;
    let jobs = jobs.iter().map(|job| job.id().clone()).collect();
    let unsettled = daemon::unsettled_attempts(state, store, jobs).await.ok()?;
    let sentence = daemon::unsettled_sentence(unsettled.len())?;
    Some(format!("no daemon runs; {sentence}"))
}

/// Maximum number of running jobs whose attempts are checked.
const MAX_CHECKED: u32 = 1_000;

/// Returns the failure to open the store without a daemon.
fn unreadable(error: &StoreError) -> Failure {
    Failure::new(Exit::CannotRunHere, error.sentence_without_daemon())
}

/// Adds `no daemon runs` to the message of a failure to open the store. A failure with another exit code than
/// `CannotRunHere` is returned unchanged.
fn without_daemon(failure: Failure) -> Failure {
    if !failure.has_exit(Exit::CannotRunHere) {
        return failure;
    }
    let message = format!("no daemon runs, and the store cannot be read: {}", failure.into_message());
    Failure::new(Exit::CannotRunHere, message)
}

/// Fleet that includes the current one.
#[derive(Debug)]
pub(super) struct FleetAbove {
    config: PathBuf,
    runs: bool,
}

impl FleetAbove {
    fn note(&self, part: &Path) -> String {
        let (part, config_option, root) =
            (part.display(), config_argument(&self.config), self.config.display());
        let runs = if self.runs { ", whose daemon runs" } else { "" };
        format!(
            "{part} is part of the fleet {root}{runs}; this answer is about {part} alone, and `{config_option}` names that fleet"
        )
    }
}

/// Fails if `store` in the config is set and is not the address of a PostgreSQL server, as `config check` does. Without
/// this check, the value would be opened as the path of an SQLite file.
pub(super) fn refuse_other_store(configured: Option<&str>) -> Result<(), Failure> {
    match configured.filter(|address| !is_postgres(address)) {
        // The value may contain a password, so the message does not show it.
        Some(_) => Err(Failure::new(
            Exit::Config,
            "`store` in the config is not the address of a PostgreSQL server (`postgres://…`); `cowhand config check` shows where",
        )),
        None => Ok(()),
    }
}

/// Client of a fleet, with its location, so that another client can be made after the daemon has ended.
pub(super) struct Connection<'p> {
    client: Client,
    location: &'p FleetLocation,
    /// Sentence about jobs that have ended and are not settled, if no daemon runs.
    unsettled_note: Option<String>,
    /// Set if no daemon runs and the config has errors.
    has_config_errors: bool,
    _empty_folder: Option<TempDir>,
}

impl Connection<'_> {
    pub(super) const fn location(&self) -> &FleetLocation {
        self.location
    }

    pub(super) const fn has_config_errors(&self) -> bool {
        self.has_config_errors
    }

    /// Describes the problem of the disk, if no daemon runs and none can start because of it.
    pub(super) fn disk_problem(&self) -> Option<String> {
        self.is_alone().then(|| self.location.disk_problem()).flatten()
    }

    /// Opens the store that the daemon used before it ended. Fails if the config now names another store.
    pub(super) async fn open_store(&self) -> Result<Self, Failure> {
        if let Some(former) = Box::pin(self.location.former_store()).await {
            let message = format!(
                "the daemon used the store at {}, and `store` in the config names another one",
                former.location
            );
            return Err(Failure::new(Exit::CannotRunHere, message));
        }
        // The future is boxed, because it is large and would be part of every verb that waits.
        Box::pin(self.location.open_store()).await
    }
}

impl Deref for Connection<'_> {
    type Target = Client;

    fn deref(&self) -> &Client {
        &self.client
    }
}

fn empty_folder() -> Result<TempDir, Failure> {
    tempfile::tempdir().map_err(|error| cannot("no temporary folder", &error))
}

/// Finds the fleet and sends it a request.
pub(super) fn ask<T>(
    config: Option<&Path>,
    request: impl AsyncFn(&Connection<'_>) -> Result<T, Failure>,
) -> Result<T, Failure> {
    FleetLocation::find(config)?.ask(request)
}

pub(super) fn wait<T>(future: impl Future<Output = Result<T, Failure>>) -> Result<T, Failure> {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
    runtime.map_err(|error| cannot("cannot start the Tokio runtime", &error))?.block_on(future)
}

pub(super) fn cannot(what: &str, error: &io::Error) -> Failure {
    Failure::new(Exit::CannotRunHere, format!("{what}: {error}"))
}
