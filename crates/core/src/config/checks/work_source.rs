//! Checks of work sources: labels that contradict each other, a missing repository or folder, and agents without work.
//! Also adds the `repo` of an agent to its GitHub sources.

use std::path::Path;

use crate::config::compose::each_schedule;
use crate::config::load::{Draft, Loader};
use crate::config::node::{Entry, Location, Node, Value};
use crate::config::problem::{Problem, Severity};
use crate::config::resolve::schedule_node;
use crate::roster::Agent;
use crate::runtime::Runtime;
use crate::work_source::ConfiguredSource;

/// Adds the agent's `repo` to its GitHub sources that name none.
pub(in crate::config) fn inherit_repo(draft: &mut Draft) {
    let Some(repo) = draft.node.entry("repo").filter(|entry| entry.node.text().is_some_and(is_repo)).cloned()
    else {
        return;
    };
    add_missing_repo(&mut draft.node, &repo);
    each_schedule(&mut draft.node, |schedule| add_missing_repo(schedule, &repo));
}

fn add_missing_repo(agent_or_schedule: &mut Node, repo: &Entry) {
    let Some(source) = agent_or_schedule.get_mut("work_source") else { return };
    if source.get("type").and_then(Node::text) != Some("github") || source.entry("repo").is_some() {
        return;
    }
    if let Value::Map(map) = &mut source.value {
        map.entries.insert("repo".to_owned(), repo.clone());
    }
}

/// Checks whether the text is `owner/name`.
fn is_repo(text: &str) -> bool {
    let is_part = |part: &str| {
        !part.is_empty()
            && part
                .chars()
                .all(|character| character.is_alphanumeric() || matches!(character, '_' | '.' | '-'))
    };
    text.split_once('/').is_some_and(|(owner, name)| is_part(owner) && is_part(name))
}

pub(in crate::config) fn check(loader: &mut Loader<'_>, draft: &Draft, agent: &Agent) {
    if let (Some(source), Some(node)) = (&agent.work_source, draft.node.get("work_source")) {
        check_source(loader, draft, source, node, "work_source");
    }
    for schedule in &agent.schedules {
        let node = schedule_node(draft, schedule.name.as_str()).and_then(|node| node.get("work_source"));
        let (Some(source), Some(node)) = (schedule.work_source.as_deref(), node) else { continue };
        let key = format!("schedules.{}.work_source", schedule.name);
        check_source(loader, draft, source, node, &key);
        if matches!(source, ConfiguredSource::Github { repo: None, .. }) {
            let message = format!("the work source of `{}` names no repository", schedule.name);
            let help = "add `repo: OWNER/NAME` to `work_source`, or to the agent";
            report(loader, draft, node.at, message, help, &format!("{key}.repo"));
        }
    }
}

fn check_source(loader: &mut Loader<'_>, draft: &Draft, source: &ConfiguredSource, node: &Node, key: &str) {
    match source {
        ConfiguredSource::Github { labels, exclude_labels, .. } => {
            let (ready, in_progress) = (&labels.ready, &labels.in_progress);
            let labels = node.get("labels");
            let label_at =
                |key: &str| labels.and_then(|labels| labels.get(key)).map_or(node.at, |label| label.at);
            if same_label(ready, in_progress) {
                let message = format!(
                    "`ready` and `in_progress` are both `{ready}`, so an item that is taken still looks available"
                );
                let help = "give them different labels, for example `ready` and `agent-working`";
                let (at, key) = (label_at("in_progress"), format!("{key}.labels.in_progress"));
                report(loader, draft, at, message, help, &key);
            }
            let excluded = exclude_labels.iter().find(|label| same_label(label, ready));
            if let (Some(excluded), Some(written)) =
                (excluded, node.get("exclude_labels").filter(|node| !node.is_null()))
            {
                let message = format!(
                    "`exclude_labels` holds `{excluded}`, which marks available work, so no item is ever taken"
                );
                let help = "take it out of `exclude_labels`";
                report(loader, draft, written.at, message, help, &format!("{key}.exclude_labels"));
            }
        }
        ConfiguredSource::Files { path, .. } if !(loader.environment.is_folder)(Path::new(path)) => {
            let at = node.get("path").map_or(node.at, |path| path.at);
            let problem = Problem::warning(at, format!("there is no folder {path}, so there is no work"));
            let help = format!("`mkdir -p {path}` makes it; each Markdown file in it is a work item");
            loader.problems.add(problem.key(draft.key_of(&format!("{key}.path"))).help(help));
        }
        ConfiguredSource::Files { .. } | ConfiguredSource::Custom { .. } => {}
    }
}

/// Reports an error. In a herdctl file it is only a warning, because herdctl accepts such a config.
fn report(loader: &mut Loader<'_>, draft: &Draft, at: Location, message: String, help: &str, key: &str) {
    let severity = if draft.herdctl { Severity::Warning } else { Severity::Error };
    let problem = Problem::error(at, message).key(draft.key_of(key)).help(help.to_owned());
    loader.problems.add(Problem { severity, ..problem });
}

/// Compares labels without regard to case, as GitHub does.
fn same_label(one: &str, other: &str) -> bool {
    one.to_lowercase() == other.to_lowercase()
}

/// Keys that neither state when the agent runs nor give it instructions.
const DESCRIPTIVE_KEYS: [&str; 17] = [
    "name",
    "description",
    "working_directory",
    "runtime",
    "model",
    "repo",
    "identity",
    "instances",
    "runs_on",
    "work_source",
    "hooks",
    "metadata_file",
    "retry",
    "timeout",
    "idle_timeout",
    "env",
    "pass_env",
];

/// Warns of an agent that has no schedules, and no keys except `DESCRIPTIVE_KEYS`. An agent without schedules but with
/// further keys, such as a prompt or permissions, is meant to be run by hand.
pub(in crate::config) fn nothing_to_do(loader: &mut Loader<'_>, draft: &Draft, agent: &Agent) {
    let entries = draft.node.entries().into_iter().flatten().filter(|(_, entry)| !entry.node.is_null());
    let says_more = entries.filter(|(key, entry)| match key.as_str() {
        "schedules" => entry.node.entries().is_some_and(|schedules| !schedules.is_empty()),
        key => !DESCRIPTIVE_KEYS.contains(&key),
    });
    if draft.herdctl || agent.runtime() == Runtime::Command || says_more.count() > 0 {
        return;
    }
    let message = format!("`{}` has nothing to do: it has no schedules and no prompt", agent.name);
    let help = format!("give it `schedules`, or run it by hand: `cowhand trigger {} -p PROMPT`", agent.name);
    let at = draft.node.get("name").map_or(draft.entry, |name| name.at);
    loader.problems.add(Problem::warning(at, message).key(draft.key_of("schedules")).help(help));
}
