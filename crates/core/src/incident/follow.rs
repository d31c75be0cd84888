//! The rule that turns events into notifications: an event, the open incidents, the rules and the time give the
//! notifications to send.

use jiff::{SignedDuration, Timestamp};

use super::{IncidentChange, changes};
use crate::event::{Event, Fact};
use crate::notification::{
    Incident, IncidentEnd, IncidentKind, NotificationKind, NotificationMessage, NotifyRule,
};
use crate::roster::Roster;

/// The open incidents of a fleet.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct OpenIncidents(Vec<Incident>);

/// A change of one incident, with the notifications that follow from it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct IncidentStep {
    /// The incident after the change.
    pub incident: Incident,
    /// True if the incident is new.
    pub is_new: bool,
    /// How the incident ended; none while it is open.
    pub ended: Option<IncidentEnd>,
    pub notifications: Vec<PlannedNotification>,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PlannedNotification {
    pub target: String,
    pub message: NotificationMessage,
}

impl OpenIncidents {
    pub fn new(incidents: Vec<Incident>) -> Self {
        Self(incidents)
    }

    /// Applies an event, and returns the changed incidents. An incident that no rule selects is not opened.
    pub fn apply(&mut self, event: &Event, roster: &Roster, now: Timestamp) -> Vec<IncidentStep> {
        let mut steps = Vec::new();
        for change in changes(event) {
            match change {
                IncidentChange::Happens { kind, subject, detail, ends } => {
                    let known = self.0.iter_mut().find(|own| own.kind == kind && own.subject == subject);
                    match known {
                        Some(incident) => {
                            repeat(incident, event, detail, ends);
                            steps.push(IncidentStep::of(incident.clone(), Vec::new()));
                        }
                        None => steps.extend(self.open(event, roster, (kind, subject, detail, ends), now)),
                    }
                }
                IncidentChange::Ends { kind, subject, how } => {
                    let is_it = |own: &Incident| own.kind == kind && own.subject == subject;
                    steps.extend(self.end_all(is_it, how, now));
                }
            }
        }
        if matches!(event.fact, Fact::FleetReloaded { .. }) {
            steps.extend(self.end_removed(roster, now));
        }
        steps
    }

    fn open(
        &mut self,
        event: &Event,
        roster: &Roster,
        (kind, subject, detail, ends): (IncidentKind, String, String, Option<(Timestamp, IncidentEnd)>),
        now: Timestamp,
    ) -> Option<IncidentStep> {
        let mut routes = NotifyRule::routes(rules_for(roster, event), kind);
        // A notification about the past would report what no longer holds.
        let is_over = ends.is_some_and(|(at, _)| at <= now);
        if routes.is_empty() || is_over {
            return None;
        }
        for route in &mut routes {
            route.told = 1;
            route.remind_at = route.remind_seconds.and_then(|seconds| after(now, seconds));
        }
        let incident = Incident {
            id: event.seq,
            kind,
            subject,
            agent: event.agent.clone(),
            schedule: event.schedule.clone(),
            job: event.job.clone(),
            detail,
            opened_at: event.at,
            last_at: event.at,
            count: 1,
            ends_at: ends.map(|(at, _)| at),
            ends_as: ends.map(|(_, how)| how),
            routes,
        };
        self.0.push(incident.clone());
        let targets = incident.routes.iter().map(|route| route.target.clone());
        let notifications =
            targets.map(|target| planned(&incident, target, NotificationKind::Opened, None, now));
        let notifications = notifications.collect();
        Some(IncidentStep { is_new: true, ..IncidentStep::of(incident, notifications) })
    }

    /// Returns what the time alone changes: incidents that end, and reminders.
    pub fn at_time(&mut self, now: Timestamp) -> Vec<IncidentStep> {
        let ended: Vec<(i64, IncidentEnd)> = self
            .0
            .iter()
            .filter(|incident| incident.ends_at.is_some_and(|at| at <= now))
            .map(|incident| (incident.id, incident.ends_as.unwrap_or(IncidentEnd::Resumed)))
            .collect();
        let mut steps = Vec::new();
        for (id, how) in ended {
            steps.extend(self.end_all(|own| own.id == id, how, now));
        }
        steps.extend(self.0.iter_mut().filter_map(|incident| remind(incident, now)));
        steps
    }

    /// Ends the incidents that no longer hold when a daemon starts with this config: its config was accepted, and the
    /// config may no longer have an agent or a schedule.
    pub fn at_start(&mut self, roster: &Roster, now: Timestamp) -> Vec<IncidentStep> {
        let mut steps =
            self.end_all(|own| own.kind == IncidentKind::ConfigRefused, IncidentEnd::Accepted, now);
        steps.extend(self.end_removed(roster, now));
        steps
    }

    fn end_removed(&mut self, roster: &Roster, now: Timestamp) -> Vec<IncidentStep> {
        let is_removed = |own: &Incident| {
            let Some(name) = &own.agent else { return false };
            let Some(agent) = roster.agent(name) else { return true };
            own.schedule.is_some() && agent.schedule(own.schedule.as_ref()).is_none()
        };
        self.end_all(is_removed, IncidentEnd::Removed, now)
    }

    fn end_all(
        &mut self,
        ends: impl Fn(&Incident) -> bool,
        how: IncidentEnd,
        now: Timestamp,
    ) -> Vec<IncidentStep> {
        let (ended, open) = std::mem::take(&mut self.0).into_iter().partition(|own| ends(own));
        self.0 = open;
        let ended: Vec<Incident> = ended;
        let step = |incident: Incident| {
            let is_silent = how == IncidentEnd::Replaced;
            let routes = incident.routes.iter().filter(|route| route.tells_end && !is_silent);
            let notifications = routes
                .map(|route| {
                    planned(&incident, route.target.clone(), NotificationKind::Ended, Some(how), now)
                })
                .collect();
            IncidentStep { ended: Some(how), ..IncidentStep::of(incident, notifications) }
        };
        ended.into_iter().map(step).collect()
    }
}

impl IncidentStep {
    fn of(incident: Incident, notifications: Vec<PlannedNotification>) -> Self {
        Self { incident, is_new: false, ended: None, notifications }
    }
}

/// Returns the rules for the incidents of an event: those of the root file, and those of its schedule or agent.
fn rules_for<'a>(roster: &'a Roster, event: &Event) -> impl Iterator<Item = &'a NotifyRule> {
    let agent = event.agent.as_ref().and_then(|name| roster.agent(name));
    let own = agent.map(|agent| {
        let schedule = agent.schedule(event.schedule.as_ref());
        &schedule.and_then(|schedule| schedule.notify.as_deref()).unwrap_or(&agent.notify).rules
    });
    roster.notifications.rules.iter().chain(own.into_iter().flatten())
}

fn repeat(incident: &mut Incident, event: &Event, detail: String, ends: Option<(Timestamp, IncidentEnd)>) {
    incident.count += 1;
    incident.last_at = event.at;
    incident.detail = detail;
    incident.job.clone_from(&event.job);
    if let Some((at, how)) = ends {
        incident.ends_at = incident.ends_at.max(Some(at));
        incident.ends_as = Some(how);
    }
}

/// Returns the reminders that are due. A target that has not been told about the last events gets an update.
fn remind(incident: &mut Incident, now: Timestamp) -> Option<IncidentStep> {
    let is_due = |at: Option<Timestamp>| at.is_some_and(|at| at <= now);
    if !incident.routes.iter().any(|route| is_due(route.remind_at)) {
        return None;
    }
    let mut due = Vec::new();
    for route in incident.routes.iter_mut().filter(|route| is_due(route.remind_at)) {
        let has_news = route.told < incident.count;
        due.push((
            route.target.clone(),
            if has_news { NotificationKind::Update } else { NotificationKind::Reminder },
        ));
        route.told = incident.count;
        route.remind_at = route.remind_seconds.and_then(|seconds| after(now, seconds));
    }
    let notifications =
        due.into_iter().map(|(target, kind)| planned(incident, target, kind, None, now)).collect();
    Some(IncidentStep::of(incident.clone(), notifications))
}

fn planned(
    incident: &Incident,
    target: String,
    kind: NotificationKind,
    end: Option<IncidentEnd>,
    now: Timestamp,
) -> PlannedNotification {
    PlannedNotification { target, message: NotificationMessage::of(incident, kind, end, now) }
}

fn after(now: Timestamp, seconds: i64) -> Option<Timestamp> {
    now.checked_add(SignedDuration::from_secs(seconds)).ok()
}

#[cfg(test)]
mod tests;
