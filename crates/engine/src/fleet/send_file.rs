//! Accepts files that agents send into the chats of their jobs: checks and copies a file, and stores that it has to be
//! posted. `chat/sent_files.rs` posts it.

use std::fs::{self, DirBuilder};
use std::io::{self, Write as _};
use std::os::unix::fs::DirBuilderExt as _;
use std::path::PathBuf;
use std::sync::atomic::Ordering;
use std::time::Duration;

use cowhand_core::chat::attachment::safe_name;
use cowhand_core::chat::sending::{MAX_SENT_FILES, MAX_SENT_MESSAGE_CHARS, SendRefused, max_sent_bytes};
use cowhand_core::id::JobId;
use cowhand_core::job::{Job, JobStatus};
use tokio::sync::Mutex;
use tokio::time::{Instant, sleep};
use tracing::warn;

use super::sent_content::{FilePlace, hidden_from, read};
use super::{Fleet, FleetError};
use crate::state::StateFolder;
use cowhand_run::attempt::Attempt;
use cowhand_run::tail;
use cowhand_store::{FileSent, SentFile};
use cowhand_system::blocking::run_blocking;
use cowhand_system::fault;
use cowhand_system::work_dir::WorkDirPath;

/// Longest wait until the output that was written before the file is read.
const READ_TIMEOUT: Duration = Duration::from_secs(2);
const READ_POLL: Duration = Duration::from_millis(10);
/// Lock that is held while a file is copied, because its content is in memory meanwhile.
static COPYING: Mutex<()> = Mutex::const_new(());

/// Request of an agent to send a file.
#[derive(Debug, Clone)]
pub struct FileToSend {
    /// Key that the agent has chosen for the request.
    pub key: String,
    /// Path in the working directory.
    pub path: String,
    /// Name for people; none means the name of the file.
    pub name: Option<String>,
    /// Text that is posted with the file, in Markdown.
    pub message: String,
}

impl Fleet {
    /// Accepts a file of a running attempt for the chat that its job answers. Returns the name under which the file is
    /// posted. If a request with the same key is repeated, the file is posted once.
    pub async fn send_file(
        &self,
        job: &JobId,
        attempt: u32,
        request: FileToSend,
    ) -> Result<String, FleetError> {
        let job = self.job(job).await?;
        let no_attempt = || FleetError::NoAttempt { job: job.id().clone(), attempt };
        if job.status() != JobStatus::Running || job.attempts() != attempt {
            return Err(no_attempt());
        }
        let written = written_bytes(&Attempt::new(self.state_folder().path(), job.id(), attempt));
        if let Some(name) = self.store().chat_file_of_key(job.id().clone(), request.key.clone()).await? {
            return Ok(name);
        }
        let answer = self.store().chat_answer_of_job(job.id().clone()).await?;
        let platform = answer.ok_or(FleetError::SendRefused(SendRefused::NoChat))?.origin.platform;
        let location = self.store().location_of_attempt(job.id().clone(), attempt).await?;
        let location = location.filter(|location| location.node == self.engine.home.node);
        let location = location.ok_or(FleetError::SendRefused(SendRefused::Elsewhere))?;
        let max_bytes = max_sent_bytes(platform);
        let file = {
            let _copying = COPYING.lock().await;
            if self.store().count_chat_files(job.id().clone()).await? >= MAX_SENT_FILES {
                return Err(FleetError::SendRefused(SendRefused::TooMany));
            }
            self.copied(&job, location.directory, max_bytes, request).await
        };
        let file = file.map_err(FleetError::SendRefused)?;
        fault::point("chat_file_copied");
        let after_line = self.lines_before(&job, written).await;
        let (name, content) = (file.name.clone(), self.state_folder().sent_file(job.id(), &file.key));
        let file = SentFile { after_line, ..file };
        let refused = match self.store().send_chat_file(file, attempt, MAX_SENT_FILES).await? {
            FileSent::Made(_) => {
                self.engine.sent_files.fetch_add(1, Ordering::Release);
                return Ok(name);
            }
            FileSent::TooMany => FleetError::SendRefused(SendRefused::TooMany),
            FileSent::NotRunning => no_attempt(),
        };
        if let Err(error) = run_blocking(move || fs::remove_file(content)).await {
            warn!(job = %job.id(), "cannot remove the copy of a file that was not accepted: {error}");
        }
        Err(refused)
    }

    /// Returns the number of files that jobs on this node have sent since the start of the daemon.
    pub fn sent_files(&self) -> u64 {
        self.engine.sent_files.load(Ordering::Acquire)
    }

    /// Checks the file, and copies it into the folder of the job.
    async fn copied(
        &self,
        job: &Job,
        directory: PathBuf,
        max_bytes: u64,
        request: FileToSend,
    ) -> Result<SentFile, SendRefused> {
        let FileToSend { key, path, name, message } = request;
        if path.is_empty() {
            return Err(SendRefused::NoPath);
        }
        let length = message.chars().count();
        if length > MAX_SENT_MESSAGE_CHARS {
            return Err(SendRefused::LongMessage(length));
        }
        let redactor = self.redactor_of(job);
        let name = name.filter(|name| !name.is_empty()).unwrap_or_else(|| path.clone());
        let name = safe_name(&redactor.redact(&name));
        let message = redactor.redact(&message).into_owned();
        let (state, id, file_key) = (self.state_folder().clone(), job.id().clone(), key.clone());
        let loaded = self.engine.loaded();
        let attempt = Attempt::new(state.path(), job.id(), job.attempts());
        let agent = job.agent().clone();
        run_blocking(move || {
            let workspaces = state.workspaces();
            let place = FilePlace {
                work_dir: WorkDirPath {
                    directory: &directory,
                    workspaces: &workspaces,
                    writable: &loaded.writable,
                },
                hidden: &hidden_from(&loaded, &agent, &attempt, &state),
            };
            let content = read(&place, &path, max_bytes)?;
            let content = match String::from_utf8(content) {
                Ok(text) => redactor.redact(&text).into_owned().into_bytes(),
                Err(error) => error.into_bytes(),
            };
            write(&state, &id, &file_key, &content)
                .map_err(|error| SendRefused::NotReadable { path, reason: error.to_string() })
        })
        .await?;
        Ok(SentFile {
            job: job.id().clone(),
            number: 0,
            key,
            node: self.engine.home.node.clone(),
            name,
            message,
            after_line: 0,
            created_at: self.engine.clock.now(),
            tried_at: None,
        })
    }

    /// Waits until the output that the agent wrote before it sent the file is read, and returns the number of lines of
    /// the job's output. The wait is limited, because an agent may never end a line.
    async fn lines_before(&self, job: &Job, written: u64) -> u64 {
        let attempt = Attempt::new(self.state_folder().path(), job.id(), job.attempts());
        let give_up_at = Instant::now() + READ_TIMEOUT;
        loop {
            let read = attempt.on_blocking_thread(|attempt| tail::read_so_far(attempt.folder())).await;
            match read {
                Some(read) if read.stdout >= written || Instant::now() > give_up_at => return read.lines,
                None if Instant::now() > give_up_at => return 0,
                Some(_) | None => sleep(READ_POLL).await,
            }
        }
    }
}

/// Returns the number of bytes that the agent has written to its standard output.
fn written_bytes(attempt: &Attempt) -> u64 {
    attempt.stdout().metadata().map_or(0, |about| about.len())
}

fn write(state: &StateFolder, job: &JobId, key: &str, content: &[u8]) -> io::Result<()> {
    let path = state.sent_file(job, key);
    let folder = path.parent().unwrap_or(state.path());
    DirBuilder::new().recursive(true).mode(0o700).create(folder)?;
    let mut file = tempfile::NamedTempFile::new_in(folder)?;
    file.write_all(content)?;
    file.persist(path)?;
    Ok(())
}
