//! The errors of requests to a fleet.

mod other_store;

use std::io;
use std::path::Path;
use std::time::Duration;

use cowhand_core::ask::{AskId, AskRefused};
use cowhand_core::chat::sending::SendRefused;
use cowhand_core::config::suggest::closest;
use cowhand_core::id::{AgentName, JobId, ScheduleName};
use cowhand_core::job::JobStatus;
use cowhand_core::report::ReportRefused;
use cowhand_core::roster::{Agent, Roster};
use cowhand_core::schedule::SkipReason;
use cowhand_core::shell::{schedule_word, trigger_words};
use cowhand_core::steering::{MAX_STEERING_MESSAGES, MAX_WAITING_MESSAGE_BYTES};
use cowhand_core::trigger::MAX_KEY_BYTES;
use cowhand_core::web_chat::MAX_WEB_MESSAGE_BYTES;
use cowhand_core::work::WorkItemId;
use jiff::Timestamp;

pub use self::other_store::{DamagedRecord, LostData, OtherStore, UnsettledJobs};
use crate::herdctl::HerdctlError;
use crate::queues::NeededNames;
use crate::schedule_view::{off_in_file_advice, passed_while_off_sentence};
use cowhand_store::StoreError;
use cowhand_system::disk::DiskProblem;
use cowhand_work::WorkSourceError;

/// Reason why a fleet accepts no work now. The text contains no path, because anybody can request it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum Unready {
    #[error("stopping")]
    Stopping,
    #[error("{}", not_written("the store", *.0))]
    Store(WriteProblem),
    #[error("{}", not_written("the state folder", *.0))]
    Folder(WriteProblem),
}

fn not_written(what: &str, problem: WriteProblem) -> String {
    match problem {
        WriteProblem::Disk(problem) => problem.sentence("the state folder"),
        other => format!("{what} cannot be written{other}"),
    }
}

impl Unready {
    /// Describes the reason for the owner of the fleet, who may know the path of the state folder.
    pub fn with_path(self, state_folder: &Path) -> String {
        match self {
            Self::Store(WriteProblem::Disk(problem)) | Self::Folder(WriteProblem::Disk(problem)) => {
                problem.sentence(state_folder.display())
            }
            other => other.to_string(),
        }
    }
}

/// Why a write failed. The text is the end of a sentence, without paths.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum WriteProblem {
    #[error(": its disk cannot be written")]
    Disk(DiskProblem),
    #[error(": the disk of the server is full")]
    ServerFull,
    #[error(": the server is read-only")]
    ServerReadOnly,
    #[error(": permission denied")]
    PermissionDenied,
    #[error(": it was removed or replaced")]
    Removed,
    #[error(": it does not answer")]
    NoAnswer,
    #[error(": the server refuses the connection")]
    ServerRefuses,
    #[error(": the user of the database lacks rights")]
    NoRights,
    #[error(": the database is locked by another connection")]
    Locked,
    #[error("; is the disk full, or read-only?")]
    Other,
}

/// Error of a request to a fleet. The messages are for people; a program decides by the variant.
#[derive(Debug, thiserror::Error)]
pub enum FleetError {
    #[error("a daemon is running in {0} already; `cowhand stop` ends it")]
    AlreadyRunning(String),
    /// All problems of the config, as text.
    #[error("{0}")]
    Config(String),
    #[error("cannot use the state folder {folder}: {source}{}", state_folder_advice(source))]
    State { folder: String, source: io::Error },
    #[error(
        "the state folder {folder} was removed, moved or replaced while the daemon ran, so the daemon can no longer \
         write to it; the daemon stops its agents and itself. Before the next start, put the folder back or restore \
         a backup with `cowhand restore FILE`"
    )]
    HomeGone { folder: String },
    #[error(
        "the lock file `daemon.lock` in the state folder {folder} was removed, and another daemon uses the folder now; \
         this daemon ends, and leaves its agents to the other daemon"
    )]
    HomeTaken { folder: String },
    #[error("{}", other_store::store_gone(.database, *.lost, .jobs))]
    StoreGone { database: String, lost: LostData, jobs: Box<UnsettledJobs> },
    #[error("{0}")]
    OtherStore(Box<OtherStore>),
    #[error("{0}")]
    DamagedStoreRecord(Box<DamagedRecord>),
    #[error(
        "another daemon runs with the node name of the state folder {folder} and the same store, perhaps because the folder \
         was copied or the machine was cloned. Both would settle the same jobs. To run this one as a node of its own, remove \
         `node` and `attempts` in its state folder. If the machine of the other daemon failed a moment ago, try again in half \
         a minute"
    )]
    NodeTaken { folder: String },
    #[error("{0}")]
    Unready(Unready),
    #[error(transparent)]
    Herdctl(HerdctlError),
    #[error("there is no agent {agent} in the fleet;{} `cowhand agents` lists them", did_you_mean(.nearest.as_deref()))]
    NoAgent { agent: AgentName, nearest: Option<String> },
    #[error("{}; `cowhand why {agent}` shows its jobs and what waits for it", agent_left(.agent))]
    AgentRemoved { agent: AgentName },
    #[error("{agent} has no schedule {schedule};{} `cowhand schedule list` lists them", did_you_mean(.nearest.as_deref()))]
    NoSchedule { agent: AgentName, schedule: String, nearest: Option<String> },
    #[error("{}; `cowhand why {}` shows its jobs", schedule_left(.agent, .schedule.as_str()), schedule_word(.agent, .schedule))]
    ScheduleRemoved { agent: AgentName, schedule: ScheduleName },
    /// The schedule was removed from the config before its firing had a job.
    #[error(
        "{agent}/{schedule} was removed from the config before its firing had a job; the firing waits until the schedule is \
         back, and `cowhand why {}` shows it",
        schedule_word(.agent, .schedule)
    )]
    ScheduleRemovedWhilePreparing { agent: AgentName, schedule: ScheduleName },
    #[error("no agent has a schedule {schedule};{} `cowhand schedule list` lists them", did_you_mean(.nearest.as_deref()))]
    NoScheduleAnywhere { schedule: String, nearest: Option<String> },
    #[error("there is no job {0}; `cowhand jobs` lists them")]
    NoJob(JobId),
    #[error(
        "{job} has ended ({status}), so its agent takes no more messages; if its runtime can fork sessions, \
         `cowhand fork {job} -p TEXT` continues with a copy of its session, and `cowhand retry {job} -p TEXT` runs it again"
    )]
    JobEnded { job: JobId, status: JobStatus },
    #[error(
        "{0} is being cancelled, so its agent takes no more messages; `cowhand retry {0} -p TEXT` runs it again"
    )]
    JobCancelling(JobId),
    #[error("the message is empty; write a text")]
    EmptyMessage,
    #[error(
        "{0} has got {MAX_STEERING_MESSAGES} messages, which is the maximum; send the next ones to a later job"
    )]
    TooManyMessages(JobId),
    #[error(
        "the messages to {0} that wait may have {MAX_WAITING_MESSAGE_BYTES} bytes together; put a longer text into a file that \
         the agent can read, and name the file in the message"
    )]
    MessagesTooLarge(JobId),
    #[error("there is no ask {0}; `cowhand asks --all` lists them")]
    NoAsk(AskId),
    #[error(transparent)]
    AskRefused(AskRefused),
    #[error(
        "the agent {0} may not ask, because its config has neither `permission_mode: ask` nor `fleet_tools` nor \
         `followups`; set `fleet_tools: true` to let it ask"
    )]
    MayNotAsk(AgentName),
    #[error(transparent)]
    ReportRefused(ReportRefused),
    #[error(transparent)]
    SendRefused(SendRefused),
    #[error("attempt {attempt} of {job} does not run")]
    NoAttempt { job: JobId, attempt: u32 },
    #[error("cannot read the output of {job}: {source}")]
    Output { job: JobId, source: io::Error },
    #[error("there is no work item {0} in the queues of the fleet; `cowhand work list --all` lists them")]
    NoItem(WorkItemId),
    #[error("{}", in_other_queue(.item, .agent, .elsewhere))]
    ItemElsewhere { item: WorkItemId, agent: AgentName, elsewhere: Vec<AgentName> },
    #[error("there is no queue {queue:?}; {}", queue_list(.known))]
    NoQueue { queue: String, known: Vec<String> },
    #[error("there is no work item {item} in the queue {queue}; `cowhand work list --all` lists them")]
    NotInQueue { item: WorkItemId, queue: String },
    /// Several queues have an item of this id. `queues` has the names that a command needs for each of them.
    #[error("{}", several_message(.item, .queues))]
    SeveralItems { item: WorkItemId, queues: Vec<NeededNames> },
    #[error("{0} no longer exists, so it cannot be tried again; its failures are deleted")]
    ItemForgotten(WorkItemId),
    #[error("{item} is held by {by}; {}", release_advice(item, by, .needed))]
    ItemHeld { item: WorkItemId, by: String, needed: NeededNames },
    #[error(
        "{item} is being claimed for a job by the node {node}, and the job does not exist yet; try again when the claim is \
         complete"
    )]
    ItemBeingClaimed { item: WorkItemId, node: String },
    #[error("{item} cannot be tried again: {why}")]
    ItemNotOffered { item: WorkItemId, why: String },
    #[error("{item} cannot be claimed: {why}")]
    ItemRefused { item: WorkItemId, why: String },
    /// The state of the item does not allow the action of a person: a claim, a release or a completion.
    #[error("{item} was not changed: {why}")]
    ItemLeftAlone { item: WorkItemId, why: String },
    #[error(transparent)]
    WorkSource(WorkSourceError),
    #[error("{job} is {status}; cancel it first{}", if *.can_fork { ", or fork it" } else { "" })]
    NotFinished { job: JobId, status: JobStatus, can_fork: bool },
    #[error("{}", in_use(.job, .by))]
    InUse { job: JobId, by: JobId },
    #[error(
        "the hooks of {0} have not all run, and they need the job; delete it when they have ended: `cowhand job {0}` shows \
         them"
    )]
    HooksOpen(JobId),
    /// The session of the job cannot be forked. The text is the reason.
    #[error("{0}")]
    CannotFork(String),
    #[error("{0}")]
    Prune(String),
    #[error("an idempotency key needs a schedule, because it identifies a firing of the schedule")]
    KeyWithoutSchedule,
    #[error(
        "values are inserted only into the prompt of a `manual` schedule; name such a schedule, and give no prompt of your \
         own"
    )]
    UnusedValues,
    #[error(
        "`{name}` has a value already, which cowhand sets in every prompt; {}",
        values_in_words(.schedule, .own)
    )]
    ReservedValue { name: String, schedule: String, own: Vec<String> },
    #[error("the prompt of {schedule} does not use {}; it uses {}", quoted(.unused), names_or_none(.own))]
    UnknownValues { unused: Vec<String>, schedule: String, own: Vec<String> },
    #[error(
        "an idempotency key has 1 to {MAX_KEY_BYTES} bytes, and this one has {bytes}; use for example a UUID, or the \
         SHA-256 of a longer text"
    )]
    KeyLength { bytes: usize },
    #[error(
        "there is no conversation {0}; it was removed together with the jobs of its messages, or it never existed"
    )]
    NoConversation(String),
    #[error(
        "people cannot talk to {agent} in the web chat; `web_chat` and the schedules in its config decide that"
    )]
    WebChatOff { agent: AgentName },
    #[error(
        "a message has at most {MAX_WEB_MESSAGE_BYTES} bytes, and this one has {bytes}; put a longer text into a file that \
         the agent can read, and name the file instead"
    )]
    MessageTooLong { bytes: usize },
    #[error("the key was used before for {agent}/{schedule}, and its job no longer exists")]
    KeyUsed { agent: AgentName, schedule: ScheduleName },
    #[error(
        "{agent}/{schedule} answers chat messages, and its prompt needs a message; give a prompt, for example \
         `cowhand trigger {} -p PROMPT`",
        trigger_words(.agent, .schedule)
    )]
    NeedsMessage { agent: AgentName, schedule: ScheduleName },
    #[error("{agent}/{schedule} is turned off; `cowhand schedule enable {}` turns it on", schedule_word(.agent, .schedule))]
    ScheduleOff { agent: AgentName, schedule: ScheduleName },
    #[error("{agent}/{schedule} is {}", off_in_file_advice(.agent, .schedule, .location, *.off_by_person))]
    OffInFile { agent: AgentName, schedule: ScheduleName, location: String, off_by_person: bool },
    #[error(
        "{agent}/{schedule} has finished: its `end_at` ({end}) has passed; {}",
        later_end_advice(.agent, .schedule, *.off_by_person)
    )]
    Finished { agent: AgentName, schedule: ScheduleName, end: Timestamp, off_by_person: bool },
    #[error(
        "{agent}/{schedule} has finished: it has fired, and a `delay` fires once; `cowhand trigger {}` runs \
         it again, and a new `run_at` or `in` in its file arms it again",
        trigger_words(.agent, .schedule)
    )]
    HasFired { agent: AgentName, schedule: ScheduleName },
    #[error("{agent}/{schedule} has finished: {}", passed_while_off_sentence(.agent, .schedule, *.due))]
    PassedWhileOff { agent: AgentName, schedule: ScheduleName, due: Timestamp },
    #[error("{agent}/{schedule} is of type {kind}, which does not accept such deliveries")]
    TakesNoDeliveries { agent: AgentName, schedule: ScheduleName, kind: &'static str },
    #[error("{agent}/{schedule} did not run: {}; `cowhand why {}` shows what happened", not_run_reason(*.reason, note.as_deref()), schedule_word(.agent, .schedule))]
    NotRun { agent: AgentName, schedule: ScheduleName, reason: SkipReason, note: Option<String> },
    #[error("the daemon is stopping and accepts no new work; start it again first")]
    Stopping,
    /// The stop timed out. The running jobs are being cancelled; [`crate::fleet::Fleet::ended`] waits for their end.
    #[error("shutdown timed out after {}ms with {running_jobs} job(s) still running", .timeout.as_millis())]
    StopTimedOut { timeout: Duration, running_jobs: usize },
    #[error("the daemon failed; read its log for the reason")]
    Died,
    #[error(transparent)]
    Store(StoreError),
}

/// Explains how to release an item that somebody in this fleet holds.
fn release_advice(item: &WorkItemId, holder: &str, needed: &NeededNames) -> String {
    if holder.contains('@') {
        format!("`cowhand work release {}` releases it", needed.command_words(item))
    } else {
        "`cowhand cancel` ends a job and releases its item".to_owned()
    }
}

/// Returns the message for an item that is not in the queues of the named agent.
fn in_other_queue(item: &WorkItemId, agent: &AgentName, elsewhere: &[AgentName]) -> String {
    let missing = format!("there is no work item {item} in the queue of {agent}");
    if elsewhere.is_empty() {
        return format!(
            "{missing}, nor in another queue of the fleet; `cowhand work list --all` lists all items"
        );
    }
    let options: Vec<String> = elsewhere.iter().map(|agent| format!("`--agent {agent}`")).collect();
    let agents: Vec<&str> = elsewhere.iter().map(AgentName::as_str).collect();
    format!(
        "{missing}; it is in the queue of {}: repeat the command with {} instead of `--agent {agent}`",
        agents.join(" and in the queue of "),
        options.join(" or ")
    )
}

/// Returns the message for an id that several queues have. It names options and no command, because the command may
/// have further options.
fn several_message(item: &WorkItemId, queues: &[NeededNames]) -> String {
    let options = queues.iter().filter_map(NeededNames::option).map(|option| format!("`{option}`"));
    let options = options.collect::<Vec<_>>().join(" or ");
    let agents: Option<Vec<&str>> =
        queues.iter().map(|needed| needed.agent_needed.as_ref().map(AgentName::as_str)).collect();
    let queue_text = match agents {
        Some(agents) => format!("the queue of each of {}", agents.join(" and ")),
        None => format!("each of {} queues", queues.len()),
    };
    format!("there is an item {item} in {queue_text}; repeat the command and add {options}")
}

/// Lists the queues of a fleet.
fn queue_list(queues: &[String]) -> String {
    if queues.is_empty() {
        "no agent has one".to_owned()
    } else {
        format!("there are: {}", queues.join(", "))
    }
}

impl FleetError {
    /// Returns the error for an unknown agent, with the agent that was probably meant. For an agent of a sub-fleet, the
    /// last part of the name is enough.
    pub fn no_agent(roster: &Roster, agent: &AgentName) -> Self {
        let names = || roster.agents.iter().map(|agent| agent.name.as_str());
        let ending = format!(".{agent}");
        let nearest =
            names().find(|name| name.ends_with(&ending)).or_else(|| closest(agent.as_str(), names()));
        Self::NoAgent { agent: agent.clone(), nearest: nearest.map(str::to_owned) }
    }

    /// Returns the error for an unknown schedule, with the schedule that was probably meant.
    pub fn no_schedule(agent: &Agent, schedule: &str) -> Self {
        let nearest = closest(schedule, agent.schedules.iter().map(|schedule| schedule.name.as_str()));
        let (agent, schedule) = (agent.name.clone(), schedule.to_owned());
        Self::NoSchedule { agent, schedule, nearest: nearest.map(str::to_owned) }
    }
}

/// Describes that an agent with jobs or firings is not in the config, and what to do.
pub fn agent_left(agent: &AgentName) -> String {
    format!("the agent {agent} is not in the config any more; put it back under this name to use it")
}

/// Describes that a schedule with jobs or firings is not in the config, and what to do. The agent is in the config.
pub fn schedule_left(agent: &AgentName, schedule: &str) -> String {
    format!(
        "the schedule {agent}/{schedule} is not in the config any more; put it back under this name, or continue its \
         history in another schedule of {agent}, with `adopt: {schedule}`"
    )
}

fn did_you_mean(nearest: Option<&str>) -> String {
    nearest.map(|nearest| format!(" did you mean {nearest}?")).unwrap_or_default()
}

fn in_use(job: &JobId, user: &JobId) -> String {
    if job == user {
        return format!("{job} has not ended; cancel it first");
    }
    format!("{user} began from {job} and has not ended; wait for its end")
}

/// Explains why a firing made no job, from its row in the ledger.
fn not_run_reason(reason: SkipReason, note: Option<&str>) -> String {
    match (reason, note) {
        (_, Some(note)) => note.to_owned(),
        (SkipReason::NoWork, None) => format!("{reason}, its work source has nothing to do"),
        (_, None) => reason.to_string(),
    }
}

impl From<HerdctlError> for FleetError {
    fn from(error: HerdctlError) -> Self {
        match error {
            HerdctlError::Store(error) => error.into(),
            HerdctlError::State { folder, source } => Self::State { folder, source },
            HerdctlError::Died => Self::Died,
            HerdctlError::Running { .. } | HerdctlError::Unreadable { .. } => Self::Herdctl(error),
        }
    }
}

impl From<StoreError> for FleetError {
    fn from(error: StoreError) -> Self {
        match error {
            StoreError::NoJob(id) => Self::NoJob(id),
            StoreError::Closed => Self::Stopping,
            other => Self::Store(other),
        }
    }
}
/// Returns advice about a state folder that cannot be used, to append to a message; empty if there is none.
pub fn state_folder_advice(error: &io::Error) -> &'static str {
    match error.kind() {
        io::ErrorKind::ReadOnlyFilesystem => {
            "; the state folder is beside the config, so mount the disk of this folder writable, or move the config to \
             another disk"
        }
        io::ErrorKind::PermissionDenied => {
            "; the state folder is beside the config, so this user needs write access to both folders"
        }
        io::ErrorKind::AlreadyExists => {
            "; a file, or a symbolic link without a target, is at the path of the state folder; remove or rename it"
        }
        _ => "",
    }
}
/// Describes the names for which a prompt takes values.
fn values_in_words(schedule: &str, own: &[String]) -> String {
    format!("the prompt of {schedule} uses {}", names_or_none(own))
}

fn names_or_none(names: &[String]) -> String {
    if names.is_empty() { "no values".to_owned() } else { quoted(names) }
}

/// Describes how to continue a schedule whose `end_at` has passed.
fn later_end_advice(agent: &AgentName, schedule: &ScheduleName, off_by_person: bool) -> String {
    if !off_by_person {
        return "it fires again with a later `end_at` in its file".to_owned();
    }
    let word = schedule_word(agent, schedule);
    format!(
        "it is also turned off: to continue it, set a later `end_at` in its file, and then run \
         `cowhand schedule enable {word}`"
    )
}

fn quoted(names: &[String]) -> String {
    names.iter().map(|name| format!("`{name}`")).collect::<Vec<_>>().join(", ")
}
