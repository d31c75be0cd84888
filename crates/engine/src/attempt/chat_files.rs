//! Saves the files of a chat message in the working directory before an attempt. They are removed with the private files
//! of the attempt.

use std::io::Write as _;
use std::path::{Path, PathBuf};
use std::time::Duration;

use cowhand_chat::{ChatError, Connector, Post};
use cowhand_core::chat::attachment::{AttachedFile, MissingReason};
use cowhand_core::chat::markdown::post_limit;
use cowhand_core::chat::settings::AttachmentRules;
use cowhand_core::chat::split::shorten;
use cowhand_core::chat::texts;
use tracing::{info, warn};

use super::AttemptTask;
use super::start_error::{CannotStart, StartError};
use super::stoppable::Stoppable;
use crate::chat_bots::{Download, bots_of, missing_reason, post_key, wait_after};
use crate::secrets::redactor_over;
use cowhand_run::attempt::SavedFolder;
use cowhand_store::ChatAnswer;
use cowhand_system::beneath::NotOpened;
use cowhand_system::blocking::run_blocking;
use cowhand_system::fault;
use cowhand_system::work_dir::WorkDirPath;

/// Time limit for the download of one file, with all tries.
const DOWNLOAD_TIME: Duration = Duration::from_mins(5);
/// Maximum number of tries to tell the sender that a file is missing.
const MAX_TELL_TRIES: u32 = 3;
const TELL_TIME: Duration = Duration::from_secs(30);
/// Name and content of the file that keeps the saved files out of commits.
const IGNORE_FILE: (&str, &[u8]) = (".gitignore", b"*\n");

/// Reason why a file was not saved. The message is for the log and the sender; it can contain text of the platform.
#[derive(Debug, thiserror::Error)]
enum NotSaved {
    #[error("the agent takes no files any more")]
    NotTaken,
    #[error("the bot has no connection to the platform: {0}")]
    NoBot(String),
    #[error(transparent)]
    Download(#[from] ChatError),
    #[error("it cannot be saved in the working directory: {0}")]
    NotWritten(String),
}

impl NotSaved {
    /// Returns the reason for the agent.
    const fn reason(&self) -> MissingReason {
        match self {
            Self::NotTaken => MissingReason::NotTaken,
            Self::NoBot(_) => MissingReason::NoBot,
            Self::Download(error) => missing_reason(error),
            Self::NotWritten(_) => MissingReason::NotSaved,
        }
    }
}

/// A file that the agent does not get.
struct MissingFile<'a> {
    file: &'a AttachedFile,
    reason: MissingReason,
    /// What the sender is told, without secrets.
    details: String,
}

impl AttemptTask {
    /// Downloads and saves the files of the chat message that the job answers. Returns a note about missing files for
    /// the prompt; empty if no file is missing.
    pub(super) async fn save_chat_files(
        &self,
        directory: &Path,
        stoppable: &Stoppable,
    ) -> Result<String, StartError> {
        if self.job.chat().is_none() {
            return Ok(String::new());
        }
        let answer = self.engine.store.chat_answer_of_job(self.job.id().clone()).await;
        let Some(answer) = answer.map_err(StartError::FilesNotRead)? else { return Ok(String::new()) };
        let files: Vec<_> =
            answer.origin.details.attachments.iter().filter(|file| file.path.is_some()).collect();
        let Some(folder) = files.first().and_then(|file| folder_of(file)) else { return Ok(String::new()) };
        let loaded = self.engine.loaded();
        let saved = self.saved_folder(directory, folder).await;
        let platform = answer.origin.platform;
        let chat = loaded.roster.agent(self.job.agent()).and_then(|agent| agent.chat.as_ref()?.on(platform));
        let rules = chat.and_then(|chat| chat.attachments.as_ref());
        if let Ok(saved) = &saved
            && rules.is_none_or(|rules| rules.removed_after_job)
        {
            self.attempt().record_saved_folder(saved).map_err(CannotStart::PrivateFiles)?;
        }
        let connector = self.connector_of(&answer);
        let mut missing = Vec::new();
        for file in files {
            let result = stoppable.unless_stopped(save(&saved, file, &answer, rules, &connector)).await?;
            if let Err(error) = result {
                let details = redactor_over(&loaded, None).redact(&error.to_string()).into_owned();
                info!(job = %self.job.id(), "a file of its chat message is missing: {details}");
                missing.push(MissingFile { file, reason: error.reason(), details });
            }
        }
        fault::point("chat_files_saved");
        if missing.is_empty() {
            return Ok(String::new());
        }
        if let Ok(connector) = &connector {
            let told = stoppable.unless_stopped(tell_sender(&**connector, &answer, &missing)).await?;
            if let Err(error) = told {
                warn!(job = %self.job.id(), "cannot tell the sender that a file is missing: {error}");
            }
        }
        Ok(note(&missing))
    }

    /// Returns the folder of the files, with the real path of the working directory, or the reason why the working
    /// directory cannot be used.
    async fn saved_folder(&self, directory: &Path, below: PathBuf) -> Result<SavedFolder, String> {
        let (directory, workspaces) = (directory.to_owned(), self.engine.home.state.workspaces());
        let loaded = self.engine.loaded();
        let opened = run_blocking(move || {
            let writable = &loaded.writable;
            let path = WorkDirPath { directory: &directory, workspaces: &workspaces, writable };
            Ok(SavedFolder { directory: path.open()?.path()?, below })
        });
        opened.await.map_err(|error: NotOpened| error.to_string())
    }

    /// Returns the connector through which the message arrived, or the reason why there is none.
    fn connector_of(&self, answer: &ChatAnswer) -> Result<std::sync::Arc<dyn Connector>, String> {
        let loaded = self.engine.loaded();
        let bots = bots_of(&loaded.roster, &loaded.sources);
        let platform = answer.origin.platform;
        let of_agent = |(_, agents): &&(_, Vec<_>)| agents.contains(&answer.agent);
        let bot = bots.iter().filter(|(bot, _)| bot.platform == platform).find(of_agent);
        let Some((bot, _)) = bot else { return Err(format!("the agent is not on {platform} any more")) };
        bot.connector(Vec::new()).map_err(|error| error.to_string())
    }
}

/// Returns the folder of the files of one message, below the working directory.
fn folder_of(file: &AttachedFile) -> Option<PathBuf> {
    file.path.as_deref().and_then(|path| Path::new(path).parent()).map(Path::to_owned)
}

/// Downloads a file and saves it at its path.
async fn save(
    saved: &Result<SavedFolder, String>,
    file: &AttachedFile,
    answer: &ChatAnswer,
    rules: Option<&AttachmentRules>,
    connector: &Result<std::sync::Arc<dyn Connector>, String>,
) -> Result<(), NotSaved> {
    let saved = saved.clone().map_err(NotSaved::NotWritten)?;
    let max_bytes = rules.ok_or(NotSaved::NotTaken)?.max_file_bytes;
    let connector = connector.as_ref().map_err(|reason| NotSaved::NoBot(reason.clone()))?;
    let origin = &answer.origin;
    let (place, message, attachment) = (&origin.place, origin.message.as_str(), &file.attachment);
    let download = Download { place, message, attachment, max_bytes, patience: DOWNLOAD_TIME };
    let content = download.run(&**connector).await?;
    let name = file.path.as_deref().and_then(|path| Path::new(path).file_name()?.to_str());
    let name = name.unwrap_or_default().to_owned();
    let written = run_blocking(move || write(&saved, &name, &content)).await;
    written.map_err(|error| NotSaved::NotWritten(error.to_string()))
}

/// Writes a file. Returns an error if a link is on the path, because an agent may have put links into the working
/// directory.
fn write(saved: &SavedFolder, name: &str, content: &[u8]) -> Result<(), NotOpened> {
    let folder = saved.open_directory()?.make_directories(&saved.below)?;
    for (name, content) in [IGNORE_FILE, (name, content)] {
        // A file that an earlier attempt has left is replaced.
        folder.remove_all(name)?;
        folder.create_new(name)?.write_all(content)?;
    }
    Ok(())
}

/// Posts below the message which files are missing. The text is posted once, even if the attempt is repeated.
async fn tell_sender(
    connector: &dyn Connector,
    answer: &ChatAnswer,
    missing: &[MissingFile<'_>],
) -> Result<(), ChatError> {
    let origin = &answer.origin;
    let sentence = |missing: &MissingFile<'_>| {
        texts::attachment_failed(&missing.file.attachment, &missing.details, origin.platform)
    };
    let text: Vec<String> = missing.iter().map(sentence).collect();
    let post = Post {
        place: origin.place.clone(),
        key: post_key(&[&answer.schedule.to_string(), answer.key.as_str(), "missing files"]),
        first_tried_at: answer.created_at,
        reply_to: Some(origin.message.clone()),
        text: shorten(&text.join("\n"), post_limit(origin.platform)),
        buttons: Vec::new(),
        files: Vec::new(),
    };
    let mut failures = 0;
    let posted = tokio::time::timeout(TELL_TIME, async {
        loop {
            match connector.post(&post).await {
                Err(error) if error.is_temporary() && failures + 1 < MAX_TELL_TRIES => {
                    failures += 1;
                    tokio::time::sleep(wait_after(&error, failures)).await;
                }
                posted => return posted.map(drop),
            }
        }
    });
    posted.await.unwrap_or_else(|_| {
        let reason = format!("no answer within {} s", TELL_TIME.as_secs());
        Err(ChatError::Unavailable { platform: "the platform", reason })
    })
}

/// Returns the note for the agent. The note stands outside of the delimited text of the message. Therefore it contains
/// no text from outside: the paths are plain, and the reasons are cowhand's own.
fn note(missing: &[MissingFile<'_>]) -> String {
    let line = |missing: &MissingFile<'_>| {
        format!("- {}: {}\n", missing.file.path.as_deref().unwrap_or_default(), missing.reason)
    };
    let lines: Vec<String> = missing.iter().map(line).collect();
    format!("\n\nThese files of the message are missing:\n{}", lines.concat())
}
