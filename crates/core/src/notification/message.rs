//! The content of a notification.

use jiff::Timestamp;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::{Incident, IncidentEnd, IncidentKind, IncidentSeverity, NotificationKind};
use crate::id::{AgentName, JobId, ScheduleName};
use crate::shell::{schedule_word, shell_word};

/// Largest number of entries that the text of a digest lists.
const MAX_DIGEST_LINES: usize = 30;

/// The content of a notification, as commands and webhooks get it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct NotificationMessage {
    pub kind: NotificationKind,
    /// The highest severity of its incidents.
    pub severity: IncidentSeverity,
    /// One line for people.
    pub title: String,
    /// Details for people; may be empty or have several lines.
    pub text: String,
    /// Time at which the notification was made.
    pub at: Timestamp,
    /// The incident; absent in a digest and a test.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub incident: Option<IncidentFields>,
    /// The notifications of a digest.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub entries: Vec<DigestEntry>,
}

/// The incident of a notification.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[schemars(rename = "Incident")]
pub struct IncidentFields {
    pub id: i64,
    pub kind: IncidentKind,
    pub subject: String,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub agent: Option<AgentName>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub schedule: Option<ScheduleName>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub job: Option<JobId>,
    /// Number of equal events so far.
    pub count: u64,
    pub opened_at: Timestamp,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub ended_at: Option<Timestamp>,
    /// How it ended; absent while it is open.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub end: Option<IncidentEnd>,
}

/// One notification of a digest.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct DigestEntry {
    pub kind: NotificationKind,
    pub severity: IncidentSeverity,
    pub title: String,
    pub at: Timestamp,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub incident: Option<IncidentFields>,
}

/// The title and the text of a message.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct NotificationText {
    pub title: String,
    pub text: String,
}

impl NotificationMessage {
    pub fn of(incident: &Incident, kind: NotificationKind, end: Option<IncidentEnd>, now: Timestamp) -> Self {
        let NotificationText { title, text } = match end {
            Some(end) => ended(incident, end),
            None => open(incident, kind),
        };
        Self {
            kind,
            severity: incident.severity(),
            title,
            text,
            at: now,
            incident: Some(IncidentFields {
                id: incident.id,
                kind: incident.kind,
                subject: incident.subject.clone(),
                agent: incident.agent.clone(),
                schedule: incident.schedule.clone(),
                job: incident.job.clone(),
                count: incident.count,
                opened_at: incident.opened_at,
                ended_at: end.map(|_| now),
                end,
            }),
            entries: Vec::new(),
        }
    }

    /// Returns the message that tests a target. `fleet` is the name of the fleet.
    pub fn test(fleet: Option<&str>, now: Timestamp) -> Self {
        let fleet = fleet.map(|name| format!(" of the fleet {name}")).unwrap_or_default();
        Self {
            kind: NotificationKind::Test,
            severity: IncidentSeverity::Info,
            title: format!("Test of the notifications{fleet}"),
            text: "`cowhand notify test` sent this message. No action is needed.".to_owned(),
            at: now,
            incident: None,
            entries: Vec::new(),
        }
    }

    /// Joins notifications that were held back, the oldest first.
    pub fn digest(messages: Vec<Self>, now: Timestamp) -> Self {
        let entries: Vec<DigestEntry> = messages
            .into_iter()
            .map(|Self { kind, severity, title, at, incident, .. }| DigestEntry {
                kind,
                severity,
                title,
                at,
                incident,
            })
            .collect();
        let NotificationText { title, text } = digest_text(&entries);
        Self {
            kind: NotificationKind::Digest,
            severity: entries.iter().map(|entry| entry.severity).max().unwrap_or_default(),
            title,
            text,
            at: now,
            incident: None,
            entries,
        }
    }

    /// Changes every text for people, for example to mask secrets.
    #[must_use]
    pub fn map_texts(mut self, change: impl Fn(&str) -> String) -> Self {
        self.title = change(&self.title);
        self.text = change(&self.text);
        for entry in &mut self.entries {
            entry.title = change(&entry.title);
        }
        let of_entries = self.entries.iter_mut().filter_map(|entry| entry.incident.as_mut());
        for incident in self.incident.iter_mut().chain(of_entries) {
            incident.subject = change(&incident.subject);
        }
        self
    }
}

/// Returns the text of a digest: one line for each notification.
pub fn digest_text(entries: &[DigestEntry]) -> NotificationText {
    let title = format!("{} notifications from the quiet hours", entries.len());
    let lines =
        entries.iter().take(MAX_DIGEST_LINES).map(|entry| format!("{:.0}  {}", entry.at, entry.title));
    let more = entries.len().saturating_sub(MAX_DIGEST_LINES);
    let more = (more > 0).then(|| format!("… and {more} more; `cowhand notifications` lists all"));
    let text = lines.chain(more).collect::<Vec<_>>().join("\n");
    NotificationText { title, text }
}

fn open(incident: &Incident, kind: NotificationKind) -> NotificationText {
    let state = state(incident);
    let title = if kind == NotificationKind::Reminder { format!("Still open: {state}") } else { state };
    let since = (incident.count > 1 || kind != NotificationKind::Opened)
        .then(|| format!("Since {:.0}.", incident.opened_at));
    let parts = [Some(incident.detail.clone()), since, Some(advice(incident))];
    let text = parts.into_iter().flatten().filter(|part| !part.is_empty()).collect::<Vec<_>>().join("\n");
    NotificationText { title, text }
}

/// Describes an open incident.
fn state(incident: &Incident) -> String {
    let subject = &incident.subject;
    let agent = incident.agent.as_ref().map_or("An agent", AgentName::as_str);
    let state = match incident.kind {
        IncidentKind::JobFailed => format!("{subject} failed"),
        IncidentKind::AskWaiting => format!("{agent} waits for an answer"),
        IncidentKind::BudgetLow => format!("The {subject} is spent to 80 %"),
        IncidentKind::BudgetSpent => format!("The {subject} is spent"),
        IncidentKind::SchedulePaused => format!("{subject} has paused itself"),
        IncidentKind::ScheduleError => format!("The trigger of {subject} cannot continue"),
        IncidentKind::ProviderParked => format!("The provider {subject} has reached a usage limit"),
        IncidentKind::ItemGivenUp => format!("The work item {subject} was given up"),
        IncidentKind::ConfigRefused => "The config has errors and was refused".to_owned(),
        IncidentKind::NodeLost => format!("The node {subject} is lost"),
        IncidentKind::DiskLow => format!("The disk of the node {subject} has little free space"),
    };
    match incident.count {
        0 | 1 => state,
        count => format!("{state} ({count} times)"),
    }
}

/// States what a person can do.
fn advice(incident: &Incident) -> String {
    let of_schedule = |verb: &str| match (&incident.agent, &incident.schedule) {
        (Some(agent), Some(schedule)) => format!("`cowhand {verb} {}`", schedule_word(agent, schedule)),
        _ => format!("`cowhand {verb} {}`", shell_word(&incident.subject)),
    };
    match incident.kind {
        IncidentKind::JobFailed => {
            incident.job.as_ref().map(|job| format!("`cowhand job {job}` shows the job.")).unwrap_or_default()
        }
        IncidentKind::AskWaiting => {
            format!("`cowhand asks {}` shows the ask and how to answer it.", incident.subject)
        }
        IncidentKind::BudgetLow | IncidentKind::BudgetSpent => {
            let until = incident.ends_at.map(|at| format!(" The next period begins at {at:.0}."));
            format!("`cowhand usage` shows the spending.{}", until.unwrap_or_default())
        }
        IncidentKind::SchedulePaused => {
            format!(
                "{} explains the pause; {} ends it.",
                of_schedule("why"),
                of_schedule("schedule enable")
            )
        }
        IncidentKind::ScheduleError => format!(
            "{} explains the error; when it is fixed, {} starts the trigger again.",
            of_schedule("why"),
            of_schedule("schedule enable")
        ),
        IncidentKind::ProviderParked => {
            let until = incident.ends_at.map(|at| format!("The limit ends at {at:.0}. "));
            let unpark = shell_word(&incident.subject);
            format!("{}`cowhand unpark {unpark}` ends the wait earlier.", until.unwrap_or_default())
        }
        IncidentKind::ItemGivenUp => {
            format!("`cowhand work retry {}` offers it again.", shell_word(&incident.subject))
        }
        IncidentKind::ConfigRefused => {
            "The previous config stays in force. `cowhand config check` shows the errors.".to_owned()
        }
        IncidentKind::NodeLost => {
            "Its daemon ended without `cowhand stop`, or has no connection to the database. Other nodes settle its \
             jobs. Start its daemon again on that machine."
                .to_owned()
        }
        IncidentKind::DiskLow => {
            "Free space on the disk of its state folder, or set limits in `retention`.".to_owned()
        }
    }
}

fn ended(incident: &Incident, end: IncidentEnd) -> NotificationText {
    let subject = &incident.subject;
    let agent = incident.agent.as_ref().map_or("an agent", AgentName::as_str);
    let title = match (end, incident.kind) {
        (IncidentEnd::Recovered, _) => match incident.count {
            1 => format!("{subject} recovered"),
            count => format!("{subject} recovered after {count} failures"),
        },
        (IncidentEnd::Answered, _) => format!("The ask of {agent} was answered"),
        (IncidentEnd::Expired, _) => format!("The ask of {agent} ended without an answer"),
        (IncidentEnd::Resumed, IncidentKind::ProviderParked) => {
            format!("The provider {subject} can be used again")
        }
        (IncidentEnd::Resumed, _) => format!("{subject} continues"),
        (IncidentEnd::Renewed, _) => format!("A new period began for the {subject}"),
        (IncidentEnd::Relieved | IncidentEnd::Replaced, _) => format!("The {subject} has room again"),
        (IncidentEnd::Reopened, _) => format!("The work item {subject} is no longer given up"),
        (IncidentEnd::Accepted, _) => "The config was accepted".to_owned(),
        (IncidentEnd::Returned, _) => format!("The node {subject} runs again"),
        (IncidentEnd::Freed, _) => format!("The disk of the node {subject} has enough free space again"),
        (IncidentEnd::Removed, _) => format!("Over: {}; it is no longer in the config", state(incident)),
    };
    let text = format!("It began at {:.0}.", incident.opened_at);
    NotificationText { title, text }
}
