//! `state.yaml`: the disabled schedules, and the last run and the last error of each schedule.

use cowhand_core::config::node::Node;

use super::error::HerdctlFileError;
use super::{HerdctlError, HerdctlFolder, field, yaml};
use cowhand_store::PastSchedule;

const STATE_FILE: &str = "state.yaml";

pub(super) fn read(folder: &HerdctlFolder) -> Result<Vec<PastSchedule>, HerdctlError> {
    let unreadable = |why: HerdctlFileError| HerdctlError::Unreadable {
        file: folder.0.join(STATE_FILE),
        why: why.to_string(),
    };
    match folder.text(STATE_FILE).map_err(|error| unreadable(error.into()))? {
        Some(text) => schedules(&text).map_err(unreadable),
        None => Ok(Vec::new()),
    }
}

fn schedules(text: &str) -> Result<Vec<PastSchedule>, HerdctlFileError> {
    if text.trim().is_empty() {
        return Ok(Vec::new());
    }
    let node = yaml(text)?;
    let mut schedules = Vec::new();
    for (agent, state) in node.get("agents").and_then(Node::entries).into_iter().flatten() {
        let entries = state.node.get("schedules").and_then(Node::entries).into_iter().flatten();
        for (name, state) in entries {
            let in_schedule = |why| HerdctlFileError::InSchedule {
                agent: agent.clone(),
                name: name.clone(),
                why: Box::new(why),
            };
            schedules.push(schedule(agent, name, &state.node).map_err(in_schedule)?);
        }
    }
    Ok(schedules)
}

fn schedule(agent: &str, name: &str, state: &Node) -> Result<PastSchedule, HerdctlFileError> {
    Ok(PastSchedule {
        agent: agent.parse().map_err(|_| HerdctlFileError::InvalidAgentName(agent.to_owned()))?,
        name: name.parse().map_err(|_| HerdctlFileError::InvalidScheduleName(name.to_owned()))?,
        disabled: state.get("status").and_then(Node::text) == Some("disabled"),
        last_run_at: field(state, "last_run_at")?,
        last_error: field(state, "last_error")?,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn disabled_schedules_and_last_runs_are_read() {
        let text = "fleet: {}\nagents:\n  coder:\n    status: idle\n    schedules:\n      \
            hourly: {last_run_at: 2026-08-01T10:00:00.123Z, next_run_at: null, status: idle, last_error: boom}\n      \
            nightly: {status: disabled}\n  sub.other: {status: idle}\n";
        let read = schedules(text).unwrap();
        let values: Vec<_> = read
            .iter()
            .map(|past| {
                let at = past.last_run_at.map(|at| at.to_string());
                (past.name.as_str(), past.disabled, at, past.last_error.as_deref())
            })
            .collect();
        assert_eq!(
            values,
            [
                ("hourly", false, Some("2026-08-01T10:00:00.123Z".to_owned()), Some("boom")),
                ("nightly", true, None, None)
            ]
        );
        assert_eq!(schedules("").unwrap(), []);
        assert_eq!(schedules("{}").unwrap(), []);
    }

    #[test]
    fn errors_name_the_position_in_the_file() {
        for (text, why) in [
            (
                "agents: {coder: {schedules: {hourly: {last_run_at: yesterday}}}}",
                "agents.coder.schedules.hourly: `last_run_at: yesterday` cannot be read",
            ),
            ("agents:\n  - [", "line 2:"),
        ] {
            let error = schedules(text).unwrap_err().to_string();
            assert!(error.contains(why), "{error}");
        }
    }
}
