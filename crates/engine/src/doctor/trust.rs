//! Checks that the permissions of people can be requested, if `trust` needs them.

use cowhand_core::roster::{Agent, Roster, Schedule};
use cowhand_core::trigger::TriggerConfig;

use super::Finding;
use crate::trigger::GithubAccess;
use cowhand_work::WorkSources;
use cowhand_work::github::RepositoryAccess;

/// Returns only problems. Work sources are checked separately.
pub(super) fn check(sources: &WorkSources, roster: &Roster) -> Vec<Finding> {
    let schedules =
        roster.agents.iter().flat_map(|agent| agent.schedules.iter().map(move |schedule| (agent, schedule)));
    schedules
        .filter_map(|(agent, schedule)| {
            let error =
                sources.author_permissions().check(&permission_access(agent, schedule)?, sources.context()).err()?;
            let what = format!("trust of {}/{}", agent.name, schedule.name);
            let why = format!(
                "{error}; `min_permission` needs access to GitHub, and no job of this schedule starts without it"
            );
            Some(Finding::of(what, Err(why)))
        })
        .collect()
}

/// Returns the repository and credentials for requests of permissions; `None` if there are no requests, or if `gh`
/// makes them.
fn permission_access(agent: &Agent, schedule: &Schedule) -> Option<RepositoryAccess> {
    let trusts = agent.trusts(Some(schedule));
    if trusts.iter().all(|trust| trust.min_permission.is_none()) {
        return None;
    }
    match (GithubAccess::of(&schedule.trigger), &schedule.trigger) {
        (Some(access), _) if access.is_by_gh() => None,
        (Some(GithubAccess { owner, repo, api_url, auth, .. }), _) => {
            Some(RepositoryAccess { repo: format!("{owner}/{repo}"), api_url, auth })
        }
        (None, TriggerConfig::Webhook { .. }) => {
            let api_url = trusts.iter().rev().find_map(|trust| trust.api_url.clone());
            let auth = trusts.iter().rev().find_map(|trust| trust.auth.clone()).unwrap_or_default();
            // A delivery names the repository; the credentials are the same for all repositories.
            Some(RepositoryAccess { repo: "owner/name".to_owned(), api_url, auth })
        }
        (None, _) => None,
    }
}

#[cfg(test)]
mod tests {
    use std::collections::HashMap;
    use std::path::Path;
    use std::sync::Arc;

    use super::*;
    use cowhand_work::SourceContext;

    fn found(trigger: &str, trust: &str) -> Vec<String> {
        let mut agent = Agent::new("a".parse().unwrap());
        let trigger = serde_json::from_str(trigger).unwrap();
        let mut schedule = Schedule::new(&agent.name, "s".parse().unwrap(), trigger);
        schedule.trust = Some(serde_json::from_str(trust).unwrap());
        agent.schedules.push(schedule);
        let variables = HashMap::from([("DOCTOR_SET".to_owned(), "ghp_1".to_owned())]);
        let sources = WorkSources::new(Arc::default(), SourceContext::of_base(Path::new("/"), variables));
        let findings = check(&sources, &Roster::of(vec![agent]));
        findings.into_iter().map(|finding| format!("{}: {}", finding.what, finding.detail)).collect()
    }

    #[test]
    fn permissions_need_a_token() {
        let webhook = r#"{"type":"webhook","secret":"x"}"#;
        let issues = |auth: &str| {
            format!(r#"{{"type":"github_issues","owner":"o","repo":"r","auth":{{"token_env":"{auth}"}}}}"#)
        };
        let trust_with =
            |auth: &str| format!(r#"{{"min_permission":"write","auth":{{"token_env":"{auth}"}}}}"#);
        let unset = "trust of a/s: ";
        for (trigger, trust, missing) in [
            (webhook.to_owned(), trust_with("DOCTOR_UNSET"), true),
            (webhook.to_owned(), trust_with("DOCTOR_SET"), false),
            (
                webhook.to_owned(),
                r#"{"allow_authors":["ann"],"auth":{"token_env":"DOCTOR_UNSET"}}"#.to_owned(),
                false,
            ),
            // A GitHub trigger uses its own credentials.
            (issues("DOCTOR_UNSET"), trust_with("DOCTOR_SET"), true),
            (issues("DOCTOR_SET"), trust_with("DOCTOR_UNSET"), false),
            (r#"{"type":"manual"}"#.to_owned(), trust_with("DOCTOR_UNSET"), false),
        ] {
            let findings = found(&trigger, &trust);
            let is_unset =
                |line: &String| line.starts_with(unset) && line.contains("DOCTOR_UNSET is not set");
            assert_eq!(findings.len(), usize::from(missing), "{trigger} {trust} {findings:?}");
            assert!(findings.iter().all(is_unset), "{trigger} {trust} {findings:?}");
        }
    }
}
