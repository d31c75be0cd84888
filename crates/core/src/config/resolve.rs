//! Conversion of a merged agent to its resolved form: typed, with its full name and directory.

use std::path::PathBuf;
use std::sync::Arc;

use indexmap::IndexMap;
use serde::Deserialize as _;
use serde_json::{Map, Value as Json, json};

use super::load::{Draft, Loader, normalize};
use super::node::{Entry, Location, Node, Value};
use super::problem::{Problem, Severity};
use super::schema::SCHEMA;
use super::schema_check::{CheckOptions, Checked, check};
use super::{checks, herdctl, secret};
use crate::chat::prompt::CHAT_PROMPT;
use crate::id::{AgentName, IdError, ScheduleId, ScheduleName};
use crate::policy::{Retry, Timeout};
use crate::prompt::{Template, Variables};
use crate::roster::{Agent, FormerName, OWN_SERVER, Schedule, WebChat};
use crate::shape;
use crate::trigger::{LifecycleEvent, TriggerConfig, TriggerError};
use crate::workspace::Isolation;

/// Result of resolving an agent.
enum Resolved {
    /// The agent and the form in which it is shown.
    Whole(Box<Agent>, Json),
    /// The agent has errors, which are reported. The readable part, if there is one, is kept to check references to it.
    Broken(Option<Box<Agent>>),
}

/// Converts an agent to its typed form, checks it, and adds it to the agents of the loader. Only the parts of its draft
/// that other agents can refer to are kept, because the drafts of all agents need much memory.
pub(super) fn add_agent(loader: &mut Loader<'_>, mut draft: Draft) {
    match agent(loader, &mut draft) {
        Resolved::Whole(agent, shown) => {
            draft.reduce(&agent);
            loader.agents.agents.push(agent.into());
            loader.agents.drafts.push(Arc::new(draft));
            loader.agents.shown.push(shown.to_string().into());
        }
        Resolved::Broken(agent) => loader.broken.push((draft, agent)),
    }
}

/// Converts an agent to its typed form and checks it.
fn agent(loader: &mut Loader<'_>, draft: &mut Draft) -> Resolved {
    let before = loader.problems.errors();
    checks::work_source::inherit_repo(draft);
    let reading = CheckOptions {
        herdctl: draft.herdctl,
        below: &draft.key,
        sources: Some(&loader.sources),
        ..CheckOptions::default()
    };
    let checked = check(&mut draft.node, SCHEMA.agent, reading, &mut loader.problems);
    loader.remember_passwords(&checked);
    check_names(loader, draft);
    check_prompts(loader, draft);
    checks::runtime::check_command(loader, draft);
    checks::visible_secret::check(loader, draft);
    check_permissions(loader, draft);
    check_server_name(loader, draft);
    let named = name(loader, draft);
    let Some(name) = named.clone().or_else(|| placeholder_name(draft)) else { return Resolved::Broken(None) };
    let directory = working_directory(loader, draft);
    let Some(Typed { config, partial, wrong_keys }) = typed(&checked) else {
        if loader.problems.errors() == before {
            // The schema accepts a value that the type rejects. This is a bug in cowhand; the tests with random configs
            // search for such bugs. The message of serde is not shown, because it may contain a secret.
            let problem = Problem::error(draft.entry, "this agent passes the schema but cannot be read");
            loader.problems.add(problem.key(draft.key.as_str()));
        }
        return Resolved::Broken(None);
    };
    let mut shown = Loader::masked(checked);
    show_resolved(&mut shown, "working_directory", json!(directory));
    show_resolved(&mut shown, "name", json!(name));
    let web_chat = config.inherited.web_chat.unwrap_or_default();
    let mut agent = assemble(loader, draft, name, directory, config, &mut shown);
    if let Some(wrong) = wrong_keys {
        check_keys_together(loader, draft, &agent, &wrong);
    }
    agent.schedules.extend(self::schedules(loader, draft, &agent.name, partial, &mut shown));
    agent.web_chat = WebChat::of(&agent, &web_chat);
    checks::web_chat::check(loader, draft, &agent, &web_chat);
    checks::work_source::check(loader, draft, &agent);
    checks::calendar::check(loader, draft, &agent);
    if named.is_none() || loader.problems.errors() > before {
        return Resolved::Broken(Some(Box::new(agent)));
    }
    checks::work_source::nothing_to_do(loader, draft, &agent);
    Resolved::Whole(Box::new(agent), shown)
}

/// Runs the checks between keys, except the checks that need one of the wrong keys.
fn check_keys_together(loader: &mut Loader<'_>, draft: &Draft, agent: &Agent, wrong: &[String]) {
    type Check = fn(&mut Loader<'_>, &Draft, &Agent);
    let all: [(&[&str], Check); 8] = [
        (&checks::hooks::NEEDED_KEYS, checks::hooks::check),
        (&checks::runtime::NEEDED_KEYS, checks::runtime::check),
        (&checks::sandbox::NEEDED_KEYS, checks::sandbox::check),
        (&checks::budget::NEEDED_KEYS, checks::budget::check),
        (&checks::trust::NEEDED_KEYS, checks::trust::check),
        (&checks::unused::NEEDED_KEYS, checks::unused::check),
        (&checks::chat::NEEDED_KEYS, checks::chat::check),
        (&checks::notify::NEEDED_KEYS, checks::notify::check),
    ];
    for (needed, check) in all {
        if !wrong.iter().any(|key| needed.contains(&key.as_str())) {
            check(loader, draft, agent);
        }
    }
}

/// The readable part of an agent.
struct Typed {
    config: shape::AgentConfig,
    /// Schedules with errors, without their wrong keys. A wrong trigger is replaced by `manual`. `check_keys_together`
    /// does not get these schedules: without the removed keys, its checks could report problems that do not exist.
    partial: IndexMap<String, shape::ScheduleConfig>,
    /// Wrong keys of the agent, except `FREE_KEYS`. `config` does not contain them. None if only the schedules of the
    /// agent can be read.
    wrong_keys: Option<Vec<String>>,
}

/// Keys of agents and schedules on which no check of other keys depends. If one of them is wrong, the other keys can
/// still be checked.
const FREE_KEYS: [&str; 6] = ["name", "description", "retry", "timeout", "idle_timeout", "retention"];

/// Returns the readable part of an agent, so that one error does not hide errors elsewhere. The readable part is the
/// agent without its wrong keys, or only its schedules if the agent cannot be read without these keys.
fn typed(checked: &Checked) -> Option<Typed> {
    if checked.wrong.is_empty()
        && let Ok(config) = shape::AgentConfig::deserialize(&checked.value)
    {
        return Some(Typed { config, partial: IndexMap::new(), wrong_keys: Some(Vec::new()) });
    }
    let mut value = checked.value.clone();
    let mut wrong = Vec::new();
    for pointer in checked.wrong.iter().map(|pointer| Steps::of(pointer)) {
        let owner = match pointer.schedule {
            Some(name) => value.pointer_mut(&format!("/schedules/{name}")),
            None => Some(&mut value),
        };
        match (pointer.key, owner.and_then(Json::as_object_mut)) {
            (Some(key), Some(owner)) if FREE_KEYS.contains(&key) => _ = owner.remove(key),
            (Some("work_source"), Some(owner)) => {
                if !repair_source(owner, pointer.inner) {
                    wrong.push(pointer);
                }
            }
            _ => wrong.push(pointer),
        }
    }
    let mut partial = IndexMap::new();
    if let Some(schedules) = value.get_mut("schedules").and_then(Json::as_object_mut) {
        schedules.retain(|name, schedule| {
            let own = name.replace('~', "~0").replace('/', "~1");
            let mut wrong = wrong.iter().filter(|pointer| pointer.schedule == Some(&own)).peekable();
            let is_whole = wrong.peek().is_none();
            if !is_whole && let Some(rest) = without(schedule, wrong.map(|pointer| pointer.key)) {
                partial.insert(name.clone(), rest);
            }
            is_whole
        });
    }
    let of_agent = wrong.iter().filter(|pointer| pointer.schedule.is_none());
    let wrong_keys: Option<Vec<String>> = of_agent.map(|pointer| pointer.key.map(str::to_owned)).collect();
    let schedules = json!({ "schedules": value.get("schedules").cloned().unwrap_or_else(|| json!({})) });
    if let (Some(wrong), Some(agent)) = (&wrong_keys, value.as_object_mut()) {
        agent.retain(|key, _| !wrong.contains(key));
    }
    let config = wrong_keys.as_ref().and_then(|_| shape::AgentConfig::deserialize(&value).ok());
    Some(match config {
        Some(config) => Typed { config, partial, wrong_keys },
        None => {
            Typed { config: shape::AgentConfig::deserialize(&schedules).ok()?, partial, wrong_keys: None }
        }
    })
}

/// Keys of a work source on which the checks of its other keys depend.
const NEEDED_SOURCE_KEYS: [&str; 4] = ["type", "labels", "path", "name"];

/// Removes a wrong key from a work source, so that its other keys can be checked. Returns false if a check depends on
/// the key. A wrong repository is replaced, because a missing repository would be another error.
fn repair_source(owner: &mut Map<String, Json>, key: Option<&str>) -> bool {
    let source = owner.get_mut("work_source").and_then(Json::as_object_mut);
    let (Some(source), Some(key)) = (source, key) else { return false };
    if NEEDED_SOURCE_KEYS.contains(&key) {
        return false;
    }
    if key == "repo" {
        source.insert(key.to_owned(), json!("owner/name"));
    } else {
        source.remove(key);
    }
    true
}

/// Returns a schedule without its wrong keys; none if the other keys are not enough to read the schedule.
fn without<'a>(
    schedule: &Json,
    wrong: impl Iterator<Item = Option<&'a str>>,
) -> Option<shape::ScheduleConfig> {
    let mut rest = schedule.as_object()?.clone();
    let is_of_schedule = |key: &str| key != "type" && SCHEMA.schedule.get().object.has_own(key);
    let mut has_trigger = true;
    for key in wrong {
        match key? {
            // These keys do not decide which agent or schedule the trigger names.
            "status" => _ = rest.remove("status"),
            "event" => _ = rest.insert("event".to_owned(), json!(LifecycleEvent::SessionEnd)),
            key if is_of_schedule(key) => _ = rest.remove(key),
            _ => has_trigger = false,
        }
    }
    if !has_trigger {
        rest.retain(|key, _| is_of_schedule(key));
        rest.insert("type".to_owned(), json!("manual"));
    }
    shape::ScheduleConfig::deserialize(Json::Object(rest)).ok()
}

/// Beginning of a JSON pointer into an agent.
struct Steps<'a> {
    /// Name of the schedule, escaped.
    schedule: Option<&'a str>,
    /// Key of the schedule or of the agent; none for the schedule or the agent as a whole.
    key: Option<&'a str>,
    /// Key below `key`.
    inner: Option<&'a str>,
}

impl<'a> Steps<'a> {
    fn of(pointer: &'a str) -> Self {
        let mut steps = pointer.split('/').skip(1);
        let first = steps.next();
        if first == Some("schedules")
            && let Some(name) = steps.next()
        {
            return Self { schedule: Some(name), key: steps.next(), inner: steps.next() };
        }
        Self { schedule: None, key: first, inner: steps.next() }
    }
}

/// Replaces a written value with its resolved form, and makes it the first key. A masked value stays masked.
fn show_resolved(shown: &mut Json, key: &str, value: Json) {
    let Some(shown) = shown.as_object_mut() else { return };
    let written = shown.shift_remove(key);
    let masked = written.filter(|written| written.to_string().contains(secret::MASK));
    shown.shift_insert(0, key.to_owned(), masked.unwrap_or(value));
}

fn assemble(
    loader: &mut Loader<'_>,
    draft: &Draft,
    name: AgentName,
    directory: PathBuf,
    mut config: shape::AgentConfig,
    shown: &mut Json,
) -> Agent {
    let written = std::mem::take(&mut config.schedules);
    let schedules = self::schedules(loader, draft, &name, written, shown);
    let inherits_environment = draft.herdctl && herdctl::inherits_environment(&config);
    if draft.herdctl
        && let Some(chat) = &mut config.chat
    {
        herdctl::admit_everyone(chat);
    }
    let mut agent = Agent::from_config(name, config);
    if draft.herdctl
        && let Some(chat) = &mut agent.chat
    {
        herdctl::answer_threads(chat);
    }
    Agent { schedules, directory, inherits_environment, ..agent }
}

fn schedules(
    loader: &mut Loader<'_>,
    draft: &Draft,
    agent: &AgentName,
    written: IndexMap<String, shape::ScheduleConfig>,
    shown: &mut Json,
) -> Vec<Schedule> {
    let mut schedules = Vec::with_capacity(written.len());
    for (written, schedule) in written {
        // An invalid name is already reported.
        let Ok(name) = written.parse() else { continue };
        let schedule = self::schedule(loader, draft, agent, name, schedule);
        show_zone(&schedule.trigger, &mut shown["schedules"][&written]);
        schedules.push(schedule);
    }
    schedules
}

fn schedule(
    loader: &mut Loader<'_>,
    draft: &Draft,
    agent: &AgentName,
    name: ScheduleName,
    schedule: shape::ScheduleConfig,
) -> Schedule {
    let mut trigger = schedule.trigger;
    if let Err(error) = trigger.check() {
        // herdctl has no webhook secrets. A herdctl fleet without them still loads, and its deliveries are rejected.
        let is_only_warning = draft.herdctl && error == TriggerError::NoSecret;
        let severity = if is_only_warning { Severity::Warning } else { Severity::Error };
        let problem = Problem::error(schedule_at(draft, name.as_str()), error.to_string());
        let key = draft.key_of(&format!("schedules.{name}"));
        loader.problems.add(Problem { severity, ..problem.key(key) });
    }
    for variable in trigger.secret_names() {
        if (loader.environment.env)(variable).is_none_or(|secret| secret.trim().is_empty()) {
            let message =
                format!("the environment variable {variable} with the secret of this webhook is not set");
            let problem = Problem::error(schedule_at(draft, name.as_str()), message);
            let key = draft.key_of(&format!("schedules.{name}.secret_env"));
            loader.problems.add(Problem { severity: Severity::Warning, ..problem.key(key) });
        }
    }
    let pointers = schedule.filter.iter().flat_map(|filter| filter.payload.keys());
    for pointer in pointers.filter(|pointer| !pointer.is_empty() && !pointer.starts_with('/')) {
        let message = format!("{pointer:?} is not a JSON pointer; a valid one is /sender/login");
        let key = draft.key_of(&format!("schedules.{name}.filter.payload"));
        loader.problems.add(Problem::error(schedule_at(draft, name.as_str()), message).key(key));
    }
    if let (Some(start), Some(end)) = (schedule.timing.start_at, schedule.timing.end_at)
        && end <= start
    {
        let at = schedule_at(draft, name.as_str());
        let message =
            format!("`end_at` ({end}) is not after `start_at` ({start}), so the schedule can never fire");
        loader
            .problems
            .add(Problem::error(at, message).key(draft.key_of(&format!("schedules.{name}.end_at"))));
    }
    // A prompt of the agent has precedence over the prompt for chats.
    let has_default = draft.node.entry("default_prompt").is_some();
    let is_chat = matches!(trigger, TriggerConfig::Chat { .. });
    let usual_prompt = (is_chat && !has_default).then(|| CHAT_PROMPT.to_owned());
    let mut zone = loader.environment.zone.clone();
    if let TriggerConfig::Cron { timezone, .. } = &mut trigger {
        zone = timezone.get_or_insert(zone).clone();
    }
    let disabled_location =
        (schedule.enabled == Some(false)).then(|| disabled_location(loader, draft, name.as_str()));
    let adopts = schedule.adopt.as_deref().and_then(|former| adopted(loader, draft, agent, &name, former));
    Schedule {
        id: ScheduleId::of(agent, &name),
        name,
        adopts,
        enabled: schedule.enabled.unwrap_or(true),
        disabled_location,
        trigger,
        timing: schedule.timing,
        zone,
        filter: schedule.filter.map(Box::new),
        prompt: schedule.prompt.or(usual_prompt),
        work_source: schedule.work_source.filter(|_| !is_chat).map(|source| Box::new(source.into())),
        when_command: schedule.when_command,
        output_to_file: schedule.output_to_file.unwrap_or(false),
        isolation: schedule.isolation.as_ref().map(Isolation::rules).unwrap_or_default(),
        permissions: schedule.permissions.map(Box::new),
        retry: schedule.retry.map_or_else(Retry::shared_default, Arc::new),
        timeout: schedule.timeout.unwrap_or(Timeout::ATTEMPT),
        idle_timeout: schedule.idle_timeout.unwrap_or(Timeout::IDLE),
        sandbox_rules: schedule.sandbox.as_ref().map(|sandbox| Box::new(sandbox.rules())),
        breaker: schedule.breaker.unwrap_or_default(),
        trust: schedule.trust.map(Box::new),
        notify: schedule.notify.map(Box::new),
    }
}

/// Returns the location of `enabled: false` of the schedule, as `FILE:LINE`.
fn disabled_location(loader: &Loader<'_>, draft: &Draft, name: &str) -> String {
    let written = schedule_node(draft, name).and_then(|schedule| schedule.entry("enabled"));
    let at = written.map_or_else(|| schedule_at(draft, name), |entry| entry.key_at);
    format!("{}:{}", loader.sources.path(at.file).display(), at.line)
}

fn adopted(
    loader: &mut Loader<'_>,
    draft: &Draft,
    agent: &AgentName,
    name: &ScheduleName,
    former: &str,
) -> Option<FormerName> {
    match FormerName::read(former, agent) {
        Ok(former) => Some(former),
        Err(error) => {
            let problem = Problem::error(schedule_at(draft, name.as_str()), error.to_string());
            loader.problems.add(problem.key(draft.key_of(&format!("schedules.{name}.adopt"))));
            None
        }
    }
}

fn show_zone(trigger: &TriggerConfig, shown: &mut Json) {
    if let (TriggerConfig::Cron { timezone, .. }, None) = (trigger, shown.get("timezone")) {
        shown["timezone"] = json!(timezone);
    }
}

/// Reports `permissions` that have no effect, and keys that bypass them.
fn check_permissions(loader: &mut Loader<'_>, draft: &Draft) {
    if draft.node.get("permission_mode").and_then(Node::text) == Some("ask") {
        let allowed = draft.node.entry("allowed_tools").filter(|written| !written.node.is_null());
        if let Some(written) = allowed {
            let message = "`allowed_tools` would bypass the rules of `permission_mode: ask`";
            let problem = Problem::error(written.key_at, message).key(draft.key_of("allowed_tools"));
            loader.problems.add(problem.help("name them under `permissions.allow`".to_owned()));
        }
        return;
    }
    let of = |owner: &Node, key: String| {
        let written = owner.entry("permissions").filter(|written| !written.node.is_null())?;
        Some((written.key_at, key))
    };
    let schedules = draft.node.get("schedules").and_then(Node::entries).into_iter().flatten();
    let of_schedules =
        schedules.filter_map(|(name, schedule)| of(&schedule.node, format!("schedules.{name}.permissions")));
    for (at, key) in of(&draft.node, "permissions".to_owned()).into_iter().chain(of_schedules) {
        let problem = Problem::error(at, "`permissions` need `permission_mode: ask`");
        loader.problems.add(problem.key(draft.key_of(&key)));
    }
}

/// Checks that no MCP server of the agent has the name of the fleet's own MCP server, if the agent uses the fleet's
/// server.
fn check_server_name(loader: &mut Loader<'_>, draft: &Draft) {
    let word = |key: &str| draft.node.get(key).and_then(Node::text);
    let needed = if word("permission_mode") == Some("ask") {
        "permission_mode: ask"
    } else if draft.node.get("followups").and_then(|own| own.get("max")).is_some() {
        "followups"
    } else if word("fleet_tools") == Some("true") {
        "fleet_tools"
    } else {
        return;
    };
    let Some(written) = draft.node.get("mcp_servers").and_then(|servers| servers.entry(OWN_SERVER)) else {
        return;
    };
    let message =
        format!("with `{needed}`, the name `{OWN_SERVER}` is reserved for the MCP server of the fleet");
    let problem = Problem::error(written.key_at, message).key(draft.key_of("mcp_servers"));
    loader.problems.add(problem.help("give this one another name".to_owned()));
}

/// Checks the names of schedules as written, so that other errors do not hide a wrong name.
fn check_names(loader: &mut Loader<'_>, draft: &Draft) {
    let Some(schedules) = draft.node.get("schedules").and_then(Node::entries) else { return };
    for (name, entry) in schedules {
        if let Err(error) = name.parse::<ScheduleName>() {
            let problem = Problem::error(entry.key_at, error.to_string());
            loader.problems.add(problem.key(draft.key_of("schedules")));
        }
    }
}

/// Checks that all variables of a prompt are known for this type of schedule. herdctl has no templates, so in its
/// fleets unknown variables are only warnings. Checks prompts as written, so that other errors do not hide an unknown
/// variable.
fn check_prompts(loader: &mut Loader<'_>, draft: &Draft) {
    let Some(schedules) = draft.node.get("schedules").and_then(Node::entries) else { return };
    let default = draft.node.get("default_prompt").map(|node| (node, "default_prompt".to_owned()));
    for (name, entry) in schedules {
        let schedule = &entry.node;
        // If the type is misspelt, its variables are not known, so the prompt is not checked.
        let trigger = schedule.get("type").and_then(Node::text);
        let Some(trigger) = trigger.filter(|trigger| TriggerConfig::TYPES.contains(trigger)) else {
            continue;
        };
        let own = schedule.get("prompt").map(|node| (node, format!("schedules.{name}.prompt")));
        let Some((prompt, key)) = own.or_else(|| default.clone()) else { continue };
        let takes_items = |node: &&Node| trigger != "chat" && node.get("work_source").is_some();
        let has_source = [schedule, &draft.node].iter().any(takes_items);
        let severity = if draft.herdctl { Severity::Warning } else { Severity::Error };
        for error in Template::problems(prompt.text().unwrap_or_default(), Variables::of(trigger, has_source))
        {
            let problem = Problem::error(prompt.at, error.to_string()).key(draft.key_of(&key));
            loader.problems.add(Problem { severity, ..problem });
        }
    }
}

fn name(loader: &mut Loader<'_>, draft: &Draft) -> Option<AgentName> {
    let written = draft.node.get("name");
    if matches!(written, Some(Node { value: Value::Scalar(scalar), .. }) if scalar.undefined) {
        return None;
    }
    let Some((own, at)) = written.and_then(|name| Some((name.text()?, name.at))) else {
        let top = Location { file: draft.home, line: 1, column: 1, start: 0, end: 0 };
        let at = if draft.home == draft.entry.file { draft.entry } else { top };
        loader.problems.add(Problem::error(at, "this agent has no `name`").key(draft.key_of("name")));
        return None;
    };
    let qualified: Vec<&str> = draft.fleets.iter().map(String::as_str).chain([own]).collect();
    let name: AgentName = match qualified.join(".").parse() {
        Ok(name) => name,
        Err(error) => {
            loader.problems.add(Problem::error(at, IdError::to_string(&error)).key(draft.key_of("name")));
            return None;
        }
    };
    if let Some(first) = loader.name_locations.get(&name) {
        let (path, line) = (loader.sources.path(first.file).display(), first.line);
        let message = format!("the agent `{name}` is defined twice; the first is in {path}, line {line}");
        loader.problems.add(Problem::error(at, message).key(draft.key_of("name")));
        return Some(name);
    }
    loader.name_locations.insert(name.clone(), at);
    Some(name)
}

/// Returns a name for an agent without a valid name, so that its other errors are found. The name differs from the
/// placeholders of other agents.
fn placeholder_name(draft: &Draft) -> Option<AgentName> {
    let own = format!("unnamed-{}-{}", draft.entry.line, draft.entry.column);
    draft.fleets.iter().chain([&own]).cloned().collect::<Vec<_>>().join(".").parse().ok()
}

/// Returns the working directory. The path is relative to the file that sets it, which can be the file of any layer.
/// The default is the directory of the file that defines the agent.
fn working_directory(loader: &Loader<'_>, draft: &Draft) -> PathBuf {
    let written = draft.node.get("working_directory").and_then(|node| match node.value {
        Value::Map(_) => node.get("root"),
        _ => Some(node),
    });
    let own = written.and_then(|node| Some(loader.sources.directory(node.at.file).join(node.text()?)));
    normalize(&own.unwrap_or_else(|| loader.sources.directory(draft.home).to_owned()))
}

pub(super) fn schedule_at(draft: &Draft, name: &str) -> Location {
    schedule_entry(draft, name).map_or(draft.entry, |entry| entry.key_at)
}

pub(super) fn schedule_node<'a>(draft: &'a Draft, name: &str) -> Option<&'a Node> {
    schedule_entry(draft, name).map(|entry| &entry.node)
}

fn schedule_entry<'a>(draft: &'a Draft, name: &str) -> Option<&'a Entry> {
    draft.node.get("schedules").and_then(Node::entries).and_then(|schedules| schedules.get(name))
}
