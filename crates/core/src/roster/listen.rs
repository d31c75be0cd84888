//! The events that trigger a schedule.

use super::{Agent, Roster, Schedule};
use crate::event::{Event, Fact};
use crate::id::ScheduleId;
use crate::job::Termination;
use crate::trigger::{EndStatus, EventTrigger, LifecycleEvent, TriggerKind};

/// A schedule that is triggered by events, with its agent and roster.
#[derive(Debug, Clone, Copy)]
pub struct EventListener<'a> {
    pub roster: &'a Roster,
    pub agent: &'a Agent,
    pub schedule: &'a Schedule,
}

impl EventListener<'_> {
    /// Checks whether the event triggers the schedule. A job never triggers the schedule that it came from.
    pub fn matches(self, event: &Event) -> bool {
        let from = event.schedule_id();
        from != Some(self.schedule.id)
            && match self.schedule.trigger.kind() {
                TriggerKind::Event(EventTrigger::Lifecycle { event: required, agent }) => {
                    lifecycle_event(&event.fact) == Some(required) && self.is_of(agent, event)
                }
                TriggerKind::Event(EventTrigger::JobEnded { id, schedule, status }) => {
                    let ended = end_status(&event.fact);
                    let id = id.map(ScheduleId);
                    ended.is_some()
                        && (status.is_none() || status == ended)
                        && (id.is_none() || id == from)
                        && self.came_from(schedule, from)
                }
                _ => false,
            }
    }

    fn is_of(self, name: Option<&str>, event: &Event) -> bool {
        let agent = name.map_or(Some(self.agent), |name| self.roster.agent_near(&self.agent.name, name));
        agent.is_some_and(|agent| Some(&agent.name) == event.agent.as_ref())
    }

    fn came_from(self, name: Option<&str>, from: Option<ScheduleId>) -> bool {
        let Some(name) = name else { return true };
        let source = self.roster.schedule_near(&self.agent.name, name);
        source.is_some_and(|source| Some(source.id) == from)
    }
}

/// Returns the lifecycle event of a fact. A job that was cancelled before it ran had no session.
const fn lifecycle_event(fact: &Fact) -> Option<LifecycleEvent> {
    match fact {
        Fact::JobStarted { attempt: 1, .. } => Some(LifecycleEvent::SessionStart),
        Fact::JobCancelled { termination: Termination::NotStarted, .. } => None,
        Fact::JobCompleted { .. } | Fact::JobFailed { .. } | Fact::JobCancelled { .. } => {
            Some(LifecycleEvent::SessionEnd)
        }
        Fact::AgentCleared => Some(LifecycleEvent::ContextClear),
        _ => None,
    }
}

/// Returns the status of an ended job, if the fact is the end of a job.
pub const fn end_status(fact: &Fact) -> Option<EndStatus> {
    match fact {
        Fact::JobCompleted { .. } => Some(EndStatus::Completed),
        Fact::JobFailed { .. } => Some(EndStatus::Failed),
        Fact::JobCancelled { .. } => Some(EndStatus::Cancelled),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use jiff::Timestamp;

    use super::*;
    use crate::job::{ErrorKind, ExitReason};
    use crate::trigger::TriggerConfig;

    /// Checks whether an event triggers the schedule `listener` of the agent `coder`. Both `coder` and `web.coder` have
    /// a schedule `build`.
    fn matches(trigger: &str, agent: &str, schedule: Option<&str>, fact: Fact) -> bool {
        let trigger = trigger.replace("BUILD", &id("coder", "build").to_string());
        let trigger: TriggerConfig = serde_json::from_str(&trigger).unwrap();
        let mut coder = Agent::new("coder".parse().unwrap());
        let own = Schedule::new(&coder.name, "listener".parse().unwrap(), trigger);
        let build = |of: &Agent| Schedule::new(&of.name, "build".parse().unwrap(), TriggerConfig::Manual {});
        coder.schedules = vec![own, build(&coder)];
        let mut other = Agent::new("web.coder".parse().unwrap());
        other.schedules = vec![build(&other)];
        let roster = Roster::of(vec![coder, other]);
        let event = Event {
            seq: 1,
            at: Timestamp::UNIX_EPOCH,
            agent: Some(agent.parse().unwrap()),
            by: None,
            schedule: schedule.map(|name| name.parse().unwrap()),
            job: None,
            fact,
            job_record: None,
            original_job_record: None,
        };
        let agent = &roster.agents[0];
        EventListener { roster: &roster, agent, schedule: &agent.schedules[0] }.matches(&event)
    }

    fn id(agent: &str, schedule: &str) -> ScheduleId {
        ScheduleId::of(&agent.parse().unwrap(), &schedule.parse().unwrap())
    }

    fn started(attempt: u32) -> Fact {
        Fact::JobStarted { attempt, node: "n".into() }
    }

    fn completed() -> Fact {
        Fact::JobCompleted { exit_reason: ExitReason::Success, duration_seconds: 1 }
    }

    fn failed() -> Fact {
        let (kind, message) = (ErrorKind::Lost, "gone".into());
        Fact::JobFailed { exit_reason: ExitReason::Error, duration_seconds: 1, kind, message }
    }

    fn cancelled(termination: Termination) -> Fact {
        Fact::JobCancelled { termination, duration_seconds: 1 }
    }

    #[test]
    fn dispatch_result_triggers_match_ended_jobs() {
        let any = r#"{"type":"dispatch_result"}"#;
        let failures = r#"{"type":"dispatch_result","status":"failed"}"#;
        let build = r#"{"type":"dispatch_result","source_workflow_id":"BUILD"}"#;
        let by_name = r#"{"type":"dispatch_result","schedule":"build"}"#;
        let of_other = r#"{"type":"dispatch_result","schedule":"web.coder/build","status":"completed"}"#;
        let both = r#"{"type":"dispatch_result","source_workflow_id":"BUILD","status":"failed"}"#;
        for (trigger, agent, schedule, fact, expected) in [
            (any, "coder", Some("build"), completed(), true),
            (any, "coder", None, failed(), true),
            (any, "web.coder", Some("build"), cancelled(Termination::NotStarted), true),
            (any, "coder", Some("listener"), completed(), false),
            (any, "coder", Some("build"), started(1), false),
            (failures, "coder", Some("build"), failed(), true),
            (failures, "coder", Some("build"), completed(), false),
            (failures, "coder", Some("build"), cancelled(Termination::Forced), false),
            (build, "coder", Some("build"), failed(), true),
            (build, "web.coder", Some("build"), failed(), false),
            (build, "coder", None, failed(), false),
            (by_name, "coder", Some("build"), completed(), true),
            (by_name, "web.coder", Some("build"), completed(), false),
            (of_other, "web.coder", Some("build"), completed(), true),
            (of_other, "web.coder", Some("build"), failed(), false),
            (of_other, "coder", Some("build"), completed(), false),
            (both, "coder", Some("build"), failed(), true),
            (both, "coder", Some("build"), completed(), false),
            (both, "web.coder", Some("build"), failed(), false),
        ] {
            let shown = format!("{trigger} {agent}/{schedule:?} {fact:?}");
            assert_eq!(matches(trigger, agent, schedule, fact), expected, "{shown}");
        }
    }

    #[test]
    fn agent_lifecycle_triggers_match_session_events() {
        let on = |event: &str| format!(r#"{{"type":"agent_lifecycle","event":"{event}"}}"#);
        let (start, end, clear) = (on("session_start"), on("session_end"), on("context_clear"));
        let of_other = r#"{"type":"agent_lifecycle","event":"session_end","agent":"web.coder"}"#;
        for (trigger, agent, schedule, fact, expected) in [
            (start.as_str(), "coder", Some("build"), started(1), true),
            (&start, "coder", None, started(1), true),
            (&start, "coder", None, started(2), false),
            (&start, "web.coder", None, started(1), false),
            (&start, "coder", Some("listener"), started(1), false),
            (&start, "coder", None, completed(), false),
            (&end, "coder", None, completed(), true),
            (&end, "coder", None, failed(), true),
            (&end, "coder", None, cancelled(Termination::Graceful), true),
            (&end, "coder", None, cancelled(Termination::NotStarted), false),
            (&end, "coder", Some("listener"), failed(), false),
            (of_other, "web.coder", Some("build"), failed(), true),
            (of_other, "coder", Some("build"), failed(), false),
            (&clear, "coder", None, Fact::AgentCleared, true),
            (&clear, "web.coder", None, Fact::AgentCleared, false),
            (&clear, "coder", None, completed(), false),
        ] {
            let shown = format!("{trigger} {agent}/{schedule:?} {fact:?}");
            assert_eq!(matches(trigger, agent, schedule, fact), expected, "{shown}");
        }
    }
}
