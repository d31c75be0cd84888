//! The session with which an attempt begins, and the directory to which the session belongs.

use std::fs::File;
use std::io::Read;
use std::path::PathBuf;

use cowhand_core::id::JobId;
use cowhand_core::job::{Origin, Outcome};
use cowhand_core::roster::Agent;
use cowhand_core::web_chat::{conversation_of, is_reset};
use cowhand_core::workspace::IsolationKind;
use jiff::Timestamp;
use tracing::{info, warn};

use super::AttemptTask;
use super::rules::Rules;
use super::start_error::CannotStart;
use super::workspaces;
use cowhand_run::runtime::description::SessionRefusal;
use cowhand_run::runtime::{SessionChoice, description};
use cowhand_store::{StoreError, StoredSession};

/// The session, directory and notes with which an attempt begins.
#[derive(Debug, Default)]
pub(super) struct SessionStart {
    pub(super) session: SessionChoice,
    /// Directory in a workspace, if the session was started there and continues there. `None` for a fresh session, and
    /// for a session that continues in the agent's own directory.
    pub(super) directory: Option<PathBuf>,
    /// Notes for people, written to the output.
    pub(super) notes: Vec<String>,
    /// True if the session already contains the task, so that the agent only has to continue.
    pub(super) continues_task: bool,
}

/// Why an earlier session does not continue. The message is for people.
#[derive(Debug, thiserror::Error)]
pub(super) enum NotContinued {
    #[error(transparent)]
    Unsupported(#[from] SessionRefusal),
    #[error("it belongs to `runtime: {0}`")]
    OtherRuntime(String),
    #[error("it is on another machine")]
    OtherMachine,
    #[error("it belongs to {}, and the agent works in {}", session.display(), agent.display())]
    OtherDirectory { session: PathBuf, agent: PathBuf },
    #[error("there are no workspaces here")]
    NoWorkspaces,
    #[error("the workspace that it belongs to, {}, is gone", .0.display())]
    WorkspaceGone(PathBuf),
    #[error("another job works in the workspace that it belongs to")]
    WorkspaceBusy,
}

/// Prompt of an agent that a usage limit stopped. It does not state that the limit has ended, because a fallback may
/// run, or a person may have ended the wait.
pub(super) const CONTINUE_PROMPT: &str = "Your provider's usage limit stopped you here. You can go on now: continue \
    your task where you left off, and do not repeat what is done.";

/// Number of bytes of stderr that are searched for the message about a missing session.
const MAX_STDERR_SEARCHED: u64 = 16 << 10;

impl AttemptTask {
    /// Chooses the session. A job that a usage limit stopped continues its own session. A job whose prompt consists of
    /// messages to an earlier job continues the session of that job. A fork begins with a copy of its parent's session,
    /// and so does the first job of a conversation that continues another job. Other jobs follow the session policy of
    /// the agent. A session continues only in the directory to which it belongs.
    pub(super) async fn choose_session(&self, rules: &Rules) -> Result<SessionStart, StoreError> {
        let (store, agent) = (&self.engine.store, &rules.agent);
        if let Some(start) = self.session_after_limit(agent).await? {
            return Ok(start);
        }
        if let Some(start) = self.session_of_turn_before(agent).await? {
            return Ok(start);
        }
        let forked = match self.job.origin() {
            Some(Origin::ForkOf(parent)) => Some(parent.clone()),
            _ => None,
        };
        let stored = match (&forked, agent.session_key_of(&self.job)) {
            (Some(parent), _) => store.session_of(parent.clone()).await?,
            (None, Some(key)) => {
                let expires = agent.session_of(self.job.chat()).expires;
                let since = self.now().checked_sub(expires).unwrap_or(Timestamp::MIN);
                let (agent, job) = (agent.name.clone(), self.job.id().clone());
                store.newest_session(agent, key, Some(job), since).await?
            }
            (None, None) => None,
        };
        let Some(stored) = stored else {
            return match self.continued_in_web_chat().await? {
                Some(job) => self.copy_of_session(job, agent).await,
                None => Ok(SessionStart::default()),
            };
        };
        let of = stored.session_id.clone();
        let session = if forked.is_some() {
            SessionChoice::Fork { of, as_id: None }
        } else {
            let session = SessionChoice::Resume(of);
            let runtime = agent.runtime();
            if let Some(refusal) = description::refusal(runtime, &session) {
                return Ok(fresh_start(&stored, &refusal.into()));
            }
            session
        };
        Ok(match self.directory_of(&stored, agent).await? {
            Ok(directory) => SessionStart { session, directory, ..SessionStart::default() },
            Err(why) => fresh_start(&stored, &why),
        })
    }

    /// Returns the job with a copy of whose session the job has to begin, because a conversation of the web chat continues
    /// that job.
    async fn continued_in_web_chat(&self) -> Result<Option<JobId>, StoreError> {
        let chat = self.job.chat().filter(|chat| !is_reset(chat));
        let Some(conversation) = chat.and_then(conversation_of) else { return Ok(None) };
        let (conversation, job) = (conversation.to_owned(), self.job.id().clone());
        self.engine.store.web_conversation_continues(conversation, job).await
    }

    /// Begins with a copy of the session of another job.
    async fn copy_of_session(&self, job: JobId, agent: &Agent) -> Result<SessionStart, StoreError> {
        let Some(stored) = self.engine.store.session_of(job.clone()).await? else {
            let note =
                format!("{job} has no session, or was removed, so this attempt starts a fresh session");
            return Ok(SessionStart { notes: vec![note], ..SessionStart::default() });
        };
        let session = SessionChoice::Fork { of: stored.session_id.clone(), as_id: None };
        if let Some(refusal) = description::refusal(agent.runtime(), &session) {
            return Ok(fresh_start(&stored, &refusal.into()));
        }
        Ok(match self.directory_of(&stored, agent).await? {
            Ok(directory) => SessionStart { session, directory, ..SessionStart::default() },
            Err(why) => fresh_start(&stored, &why),
        })
    }

    /// Continues the session of the job whose messages are the prompt. Returns `None` for all other jobs, and if that job
    /// has no session.
    async fn session_of_turn_before(&self, agent: &Agent) -> Result<Option<SessionStart>, StoreError> {
        let store = &self.engine.store;
        let Some(before) = store.turn_before(self.job.id().clone()).await? else { return Ok(None) };
        let Some(stored) = store.session_of(before).await? else { return Ok(None) };
        let session = SessionChoice::Resume(stored.session_id.clone());
        if let Some(refusal) = description::refusal(agent.runtime(), &session) {
            return Ok(Some(fresh_start(&stored, &refusal.into())));
        }
        Ok(Some(match self.directory_of(&stored, agent).await? {
            Ok(directory) => SessionStart { session, directory, ..SessionStart::default() },
            Err(why) => fresh_start(&stored, &why),
        }))
    }

    /// Continues the session of a job that a usage limit stopped. Returns `None` for all other jobs.
    async fn session_after_limit(&self, agent: &Agent) -> Result<Option<SessionStart>, StoreError> {
        let (store, id) = (&self.engine.store, self.job.id());
        if self.job.parks() == 0 {
            return Ok(None);
        }
        // This is the session of the last attempt that began. An attempt that could not be started did nothing.
        let Some(stored) = store.session_of(id.clone()).await? else { return Ok(None) };
        if !stored.outcome.as_ref().is_some_and(Outcome::is_limit) {
            return Ok(None);
        }
        let session = SessionChoice::Resume(stored.session_id.clone());
        if let Some(refusal) = description::refusal(agent.runtime(), &session) {
            return Ok(Some(fresh_start(&stored, &refusal.into())));
        }
        let notes =
            vec!["a usage limit stopped the previous attempt; this attempt continues its session".to_owned()];
        Ok(Some(match self.directory_of(&stored, agent).await? {
            Ok(directory) => SessionStart { session, directory, notes, continues_task: true },
            Err(why) => fresh_start(&stored, &why),
        }))
    }

    /// Returns the directory in which the session can continue, `None` for the agent's own directory, or the reason why
    /// the session cannot continue.
    async fn directory_of(
        &self,
        stored: &StoredSession,
        agent: &Agent,
    ) -> Result<Result<Option<PathBuf>, NotContinued>, StoreError> {
        let runtime = agent.runtime().name();
        if let Some(earlier) = stored.runtime.as_deref().filter(|earlier| *earlier != runtime) {
            return Ok(Err(NotContinued::OtherRuntime(earlier.to_owned())));
        }
        // Earlier versions did not store the directory, and used the agent's own directory for all jobs.
        let Some(directory) = &stored.directory else { return Ok(Ok(None)) };
        if stored.node != self.engine.home.node {
            return Ok(Err(NotContinued::OtherMachine));
        }
        let is_isolated = agent.isolation.kind != IsolationKind::Shared;
        if !is_isolated && *directory == agent.directory {
            return Ok(Ok(None));
        }
        if is_isolated {
            return workspaces::take(&self.engine, directory, self.job.id()).await;
        }
        let (session, agent) = (directory.clone(), agent.directory.clone());
        Ok(Err(NotContinued::OtherDirectory { session, agent }))
    }

    /// Returns whether the program ended because the session to continue does not exist.
    pub(super) fn is_session_missing(&self, rules: &Rules) -> bool {
        let attempt = self.attempt();
        let runtime = rules.agent.runtime();
        let Some(session) = attempt.resumed() else { return false };
        let mut text = Vec::new();
        let stderr = File::open(attempt.stderr());
        // If stderr cannot be read, the attempt is not started again, and its outcome is reported as it is.
        if let Err(error) = stderr.and_then(|stderr| stderr.take(MAX_STDERR_SEARCHED).read_to_end(&mut text))
        {
            warn!(job = %self.job.id(), "cannot check whether the session exists: {error}");
        }
        description::reports_missing_session(runtime, &session, &String::from_utf8_lossy(&text))
    }

    /// Forgets a session that the program did not find, and clears the folder for a start with a fresh session. The
    /// program has done nothing yet.
    pub(super) async fn replace_session(&self) -> Result<SessionStart, CannotStart> {
        let attempt = self.attempt();
        let session = attempt.resumed().unwrap_or_default();
        let note = format!("the session {session} no longer exists; this attempt starts a fresh session");
        info!(job = %self.job.id(), "{note}");
        self.forget_session(&session).await;
        match attempt.discard() {
            Ok(()) => Ok(SessionStart { notes: vec![note], ..SessionStart::default() }),
            Err(error) => Err(CannotStart::FolderNotClearedAgain { note, error }),
        }
    }

    async fn forget_session(&self, session: &str) {
        let Some(key) = self
            .engine
            .loaded()
            .roster
            .agent(self.job.agent())
            .and_then(|agent| agent.session_key_of(&self.job))
        else {
            return;
        };
        let (agent, job) = (self.job.agent().clone(), self.job.id().clone());
        let newest = self.engine.store.newest_session(agent, key, Some(job), Timestamp::MIN).await;
        let result = match newest {
            Ok(Some(newest)) if newest.session_id == session => {
                self.engine.store.forget_session(newest.job).await
            }
            Ok(_) => Ok(()),
            Err(error) => Err(error),
        };
        if let Err(error) = result {
            warn!(job = %self.job.id(), "cannot store that the session no longer exists: {error}");
        }
    }
}

fn fresh_start(stored: &StoredSession, why: &NotContinued) -> SessionStart {
    let note = format!(
        "the session {} of {} is not continued: {why}; this attempt starts a fresh session",
        stored.session_id, stored.job
    );
    SessionStart { notes: vec![note], ..SessionStart::default() }
}
