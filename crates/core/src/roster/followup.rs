//! Rules for follow-ups between agents.

use super::{Agent, Roster};
use crate::followup::{FollowupRefused, Followups};
use crate::id::AgentName;

impl Roster {
    /// Returns the bounds that apply when a job of the agent `by` requests a job of the agent `of`, or the reason for a
    /// refusal. `by` needs `followups.max` in its config. If `of` is another agent, its `followups.from` has to name
    /// `by`.
    pub fn followup_rules(&self, by: &AgentName, of: &Agent) -> Result<Vec<Followups>, FollowupRefused> {
        let own = self.agent(by).and_then(|agent| agent.followups.as_ref());
        let own = own.filter(|own| own.max.is_some()).ok_or(FollowupRefused::NotAllowed)?;
        if of.name == *by {
            return Ok(vec![own.clone()]);
        }
        let means = |name: &String| self.agent_near(&of.name, name).is_some_and(|agent| agent.name == *by);
        let theirs = of.followups.as_ref().filter(|theirs| theirs.from.iter().any(means));
        let refused = || FollowupRefused::NotFrom { by: by.clone(), of: of.name.clone() };
        theirs.map(|theirs| vec![own.clone(), theirs.clone()]).ok_or_else(refused)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn follow_ups_need_the_consent_of_both_agents() {
        let agent = |name: &str, followups: &str| {
            let mut agent = Agent::new(name.parse().unwrap());
            agent.followups = serde_json::from_str(followups).unwrap();
            agent
        };
        let roster = Roster::of(vec![
            agent("planner", r#"{"max": 5}"#),
            agent("coder", r#"{"max": 9, "from": ["planner"]}"#),
            agent("mute", r#"{"from": ["planner", "coder"]}"#),
            agent("web.planner", r#"{"max": 5}"#),
            agent("web.coder", r#"{"max": 7, "from": ["planner", "web.coder"]}"#),
            agent("web.closed", "null"),
        ]);
        let not_allowed = "this agent may not ask for follow-ups: it has no `followups.max` in its config";
        let not_from = |by: &str, of: &str| {
            format!("{of} takes no follow-ups from {by}: {by} is not among `followups.from` of {of}")
        };
        for (by, of, expected) in [
            ("planner", "planner", Ok(vec![Some(5)])),
            ("coder", "coder", Ok(vec![Some(9)])),
            ("planner", "coder", Ok(vec![Some(5), Some(9)])),
            ("planner", "mute", Ok(vec![Some(5), None])),
            ("coder", "planner", Err(not_from("coder", "planner"))),
            // In `followups.from` of web.coder, `planner` means web.planner, and not the agent of the root fleet.
            ("planner", "web.coder", Err(not_from("planner", "web.coder"))),
            ("web.planner", "web.coder", Ok(vec![Some(5), Some(7)])),
            ("web.coder", "web.closed", Err(not_from("web.coder", "web.closed"))),
            ("mute", "mute", Err(not_allowed.to_owned())),
            ("mute", "coder", Err(not_allowed.to_owned())),
            ("web.closed", "web.closed", Err(not_allowed.to_owned())),
            ("gone", "coder", Err(not_allowed.to_owned())),
        ] {
            let found =
                roster.followup_rules(&by.parse().unwrap(), roster.agent(&of.parse().unwrap()).unwrap());
            let found = found.map(|rules| rules.into_iter().map(|rules| rules.max).collect::<Vec<_>>());
            assert_eq!(found.map_err(|refused| refused.to_string()), expected, "{by} {of}");
        }
    }
}
