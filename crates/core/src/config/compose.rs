//! Collects the agents of a fleet and its sub-fleets: reads the files that the root file names, and merges the layers
//! of each agent, defaults → agent → `overrides`.

use std::collections::HashMap;
use std::path::{Path, PathBuf};
use std::rc::Rc;
use std::sync::Arc;

use indexmap::IndexMap;
use serde::Deserialize as _;
use serde_json::Value as Json;

use super::checks::{self, unused};
use super::kept::{FleetInputs, FleetKey};
use super::load::{Draft, Loader, normalize};
use super::merge::{long_form, merge};
use super::node::{Entry, FileId, Location, Map, Node, Scalar, Sources, Value};
use super::problem::Problem;
use super::schema::SCHEMA;
use super::schema_check::{CheckOptions, check};
use super::{chat, herdctl, notify, resolve};
use crate::budget::FleetBudget;
use crate::id::check_name;
use crate::price::Prices;
use crate::retention::Retention;
use crate::sandbox::SandboxKind;
use crate::server::ServerConfig;
use crate::shape::NotifyConfig;
use crate::traces::TracesConfig;

/// Maximum depth of nested fleets: deeper than any real fleet, and safe for the stack.
const MAX_LEVELS: usize = 32;
/// Maximum number of fleets. Each file may name the next file many times, so a limit on the depth alone is not enough.
const MAX_FLEETS: usize = 1_000;
/// Number of nodes that the merged agents may have in any fleet, even if its files are small.
const MIN_MERGED_LIMIT: usize = 250_000;

/// Keys that count only in the root file, because they apply to the whole fleet.
const ROOT_FILE_KEYS: [&str; 9] =
    ["store", "leases", "providers", "prices", "budget", "server", "web", "traces", "notify"];

/// Context of a fleet, from the fleets above it and its own reference.
struct FleetContext {
    /// Files from the root file to the file of this fleet, both included.
    files: Vec<PathBuf>,
    /// Names of the sub-fleets from the outermost to this fleet; empty for the root file.
    names: Vec<String>,
    defaults: Option<Arc<Node>>,
    herdctl: bool,
}

/// The defaults of a fleet, divided into the keys for agents and the keys for schedules.
struct Layers {
    agent: Node,
    schedule: Node,
}

impl Layers {
    fn of(defaults: &Node) -> Self {
        let part = |is_of_agent: bool| {
            let rules = &SCHEMA.agent.get().object;
            with_keys(defaults, |key| rules.has_own(key) == is_of_agent)
        };
        Self { agent: part(true), schedule: part(false) }
    }
}

/// Returns a map with only some of its keys.
fn with_keys(map: &Node, is_kept: impl Fn(&str) -> bool) -> Node {
    let Value::Map(Map { entries, replaces_all }) = &map.value else { return map.clone() };
    let kept = entries.iter().filter(|(key, _)| is_kept(key));
    let entries = kept.map(|(key, entry)| (key.clone(), entry.clone())).collect();
    Node { value: Value::Map(Map { entries, replaces_all: *replaces_all }), at: map.at }
}

/// Collects the agents of the root file and of all fleets below. Returns the keys of the root file without `agents`,
/// `fleets` and `defaults`, with secrets masked.
pub(super) fn root(loader: &mut Loader<'_>, path: &Path) -> Json {
    let above = FleetContext {
        files: vec![path.to_owned()],
        names: Vec::new(),
        defaults: None,
        herdctl: herdctl::is_herdctl(path),
    };
    let reading = CheckOptions { herdctl: above.herdctl, ..CheckOptions::default() };
    let Some((node, file)) = loader.file(path, None, reading) else {
        return Json::Object(serde_json::Map::new());
    };
    loader.name = node.get("fleet").and_then(|fleet| fleet.get("name")?.text()).map(str::to_owned);
    loader.store = node.get("store").and_then(Node::text).map(str::to_owned);
    warn_about_empty_store(loader, &node);
    let limit = node.get("fleet").and_then(|fleet| fleet.get("max_concurrent")?.text());
    // The schema has reported a value that is not a number.
    loader.max_concurrent = limit.and_then(|limit| limit.parse().ok());
    let mut rest = with_keys(&node, |key| !["agents", "fleets", "defaults"].contains(&key));
    // The root file is checked a second time only to get its typed value. The second check finds the same problems;
    // each problem is reported once.
    let checked = check(&mut rest, SCHEMA.fleet, reading, &mut loader.problems);
    // Values that cannot be read are already reported, and a fleet with errors is not run.
    checks::lease::read(loader, &node, &checked.value);
    let retention = checked.value.get("retention").and_then(|value| Retention::deserialize(value).ok());
    loader.retention = retention.unwrap_or_default();
    let prices = checked.value.get("prices").and_then(|value| Prices::deserialize(value).ok());
    loader.prices = prices.unwrap_or_default();
    let providers = checked.value.get("providers");
    loader.providers = providers.and_then(|value| IndexMap::deserialize(value).ok()).unwrap_or_default();
    let named = node.get("providers").and_then(Node::entries).into_iter().flatten();
    loader.provider_locations = named.map(|(name, entry)| (name.clone(), entry.key_at)).collect();
    let budget = checked.value.get("budget").and_then(|value| FleetBudget::deserialize(value).ok());
    loader.budget = budget.unwrap_or_default();
    if let Some(written) = node.get("budget") {
        unused::check_budget(&mut loader.unused, written, &loader.budget.limits, "budget");
    }
    let written = checked.value.get("server");
    let server = written.and_then(|value| ServerConfig::deserialize(value).ok()).unwrap_or_default();
    let listen_chosen =
        written.is_some_and(|server| server.get("listen").is_some_and(|listen| !listen.is_null()));
    loader.server = ServerConfig { listen_chosen, ..server }.below(loader.sources.directory(file));
    herdctl::apply_web(loader, &node);
    loader.traces = checked.value.get("traces").and_then(|value| TracesConfig::deserialize(value).ok());
    if let (Some(traces), Some(written)) = (&loader.traces, node.get("traces"))
        && let Some((key, message)) = traces.validate()
    {
        let at = written.get(key).map_or(written.at, |wrong| wrong.at);
        loader.problems.secret_at(at);
        loader.problems.add(Problem::error(at, message).key(format!("traces.{key}")));
    }
    if let (Some(traces), Some(written)) = (&loader.traces, node.get("traces"))
        && traces.endpoint.is_none()
        && !traces.headers.is_empty()
        && traces.validate().is_none()
    {
        let message = "`headers` have no effect without `endpoint`: nothing is sent, and with `traces` in the config the variables `OTEL_EXPORTER_OTLP_…` do not count";
        let at = written.get("headers").map_or(written.at, |headers| headers.at);
        loader.problems.add(Problem::warning(at, message).key("traces.headers".to_owned()));
    }
    let config = checked.value.get("notify").and_then(|value| NotifyConfig::deserialize(value).ok());
    loader.notifications = notify::settings(config.unwrap_or_default(), loader.sources.directory(file));
    if let Some(written) = node.get("notify") {
        checks::notify::check_root(loader, written);
    }
    loader.keep_settings();
    fleet(loader, &node, file, above);
    loader.remember_passwords(&checked);
    Loader::masked(checked)
}

/// Warns about a `store` without a value, for example because its variable is empty.
fn warn_about_empty_store(loader: &mut Loader<'_>, root: &Node) {
    let store = root.entries().and_then(|entries| entries.get("store"));
    let Some(entry) = store.filter(|entry| entry.node.is_null()) else { return };
    let message = "`store` is empty, so the store is the file `store.db` in the state folder";
    let help = "set it to an address, postgres://…, or remove the key";
    loader.problems.add(Problem::warning(entry.key_at, message).key("store").help(help.to_owned()));
}

fn fleet(loader: &mut Loader<'_>, node: &Node, file: FileId, mut above: FleetContext) {
    let retention = retention_as_defaults(node);
    let web = herdctl::web_as_defaults(node).filter(|_| above.names.is_empty());
    let own = node.get("defaults").cloned();
    let source = own.as_ref().and_then(|defaults| defaults.entry("work_source"));
    loader.default_work_sources.extend(source.cloned());
    let inherited = above.defaults.take().map(|defaults| Node::clone(&defaults));
    above.defaults = [inherited, retention, web, own].into_iter().flatten().reduce(merge).map(Arc::new);
    let layers = above.defaults.as_deref().map(Layers::of);
    for (index, entry) in node.get("agents").map(Node::list).unwrap_or_default().iter().enumerate() {
        if agent(loader, entry, &format!("agents[{index}]"), file, &above, layers.as_ref()).is_none() {
            loader.complete = false;
        }
    }
    let mut names = HashMap::new();
    for (index, entry) in node.get("fleets").map(Node::list).unwrap_or_default().iter().enumerate() {
        if sub_fleet(loader, entry, &format!("fleets[{index}]"), file, &above, &mut names).is_none() {
            loader.complete = false;
        }
    }
}

/// Returns `retention` of a fleet file, which applies to all agents, in the form of `defaults`.
fn retention_as_defaults(fleet: &Node) -> Option<Node> {
    let key = "retention";
    let entry = fleet.entries()?.get(key)?.clone();
    let entries = [(key.to_owned(), entry)].into_iter().collect();
    Some(Node { value: Value::Map(Map { entries, replaces_all: false }), at: fleet.at })
}

/// Collects an agent. Returns none if the agent cannot be read, or if all agents together have too many nodes; the
/// reason is reported.
fn agent(
    loader: &mut Loader<'_>,
    entry: &Node,
    key: &str,
    file: FileId,
    above: &FleetContext,
    layers: Option<&Layers>,
) -> Option<()> {
    if loader.has_too_many_nodes {
        return None;
    }
    let (mut node, home) = written(loader, entry, key, file, above)?;
    if let Some(layers) = layers {
        node = merge(layers.agent.clone(), node);
    }
    if let Some(overrides) = entry.get("overrides") {
        node = merge(node, overrides.clone());
    }
    chat::add_schedule(&mut node);
    if let Some(layers) = layers.filter(|layers| layers.schedule.entries().is_some_and(|own| !own.is_empty()))
    {
        each_schedule(&mut node, |schedule| merge_below(&layers.schedule, schedule));
    }
    inherit_from_agent(&mut node);
    add_sandbox_kinds(&mut node);
    loader.merged = loader.merged.saturating_add(node.count());
    let limit = merged_limit(&loader.sources);
    if loader.merged > limit {
        loader.has_too_many_nodes = true;
        let message = format!("the agents have more than {limit} values once the defaults are merged in");
        let help = "the limit depends on the size of the files: one value for each byte".to_owned();
        loader.problems.add(Problem::error(entry.at, message).key(key).help(help));
        return None;
    }
    let (fleets, herdctl) = (above.names.clone(), above.herdctl);
    let key = if home == file { key.to_owned() } else { String::new() };
    resolve::add_agent(loader, Draft { node, fleets, home, entry: entry.at, key, herdctl });
    Some(())
}

/// Returns the maximum number of nodes of all merged agents. Without this limit, large `defaults` that are merged into
/// many agents would use too much memory. A usual config stays below the limit: without layers and aliases, a file
/// has at most one node for each two bytes.
pub(super) fn merged_limit(files: &Sources) -> usize {
    files.bytes().max(MIN_MERGED_LIMIT)
}

/// Merges a node over a layer below it.
fn merge_below(layer: &Node, node: &mut Node) {
    let own = std::mem::replace(node, Node::empty_map(node.at));
    *node = merge(layer.clone(), own);
}

/// Returns the agent as written, and the file that defines it: the file that `path` names, else this file.
fn written(
    loader: &mut Loader<'_>,
    entry: &Node,
    key: &str,
    file: FileId,
    above: &FleetContext,
) -> Option<(Node, FileId)> {
    let entries = entry.entries()?;
    let Some(path) = entry.get("path") else {
        return Some((with_keys(entry, |key| key != "overrides"), file));
    };
    for (other, beside) in entries.iter().filter(|(key, _)| !matches!(key.as_str(), "path" | "overrides")) {
        let problem = Problem::error(beside.key_at, format!("`{other}` cannot be used together with `path`"));
        let help = format!("move `{other}` under `overrides`, or leave out `path`");
        loader.problems.add(problem.key(format!("{key}.{other}")).help(help));
    }
    let target = resolve_path(loader, file, path.text()?);
    let reading =
        CheckOptions { herdctl: above.herdctl, agent_file: true, partial: true, ..CheckOptions::default() };
    let (node, home) = loader.file(&target, Some((path.at, format!("{key}.path"))), reading)?;
    Some((Node::clone(&node), home))
}

/// Merges some keys of the agent into its schedules, so that a schedule inherits the values that it does not set. A
/// schedule of type `chat` inherits no work source, because a message is answered by one job.
fn inherit_from_agent(agent: &mut Node) {
    for key in ["work_source", "isolation", "retry", "timeout", "idle_timeout", "breaker"] {
        let Some(from) = agent.entry(key).cloned() else { continue };
        each_schedule(agent, |schedule| {
            let is_chat = schedule.get("type").and_then(Node::text) == Some("chat");
            if is_chat && key == "work_source" {
                return;
            }
            if let Value::Map(map) = &mut schedule.value {
                match map.entries.get_mut(key) {
                    Some(own) => merge_below(&from.node, &mut own.node),
                    None => _ = map.entries.insert(key.to_owned(), from.clone()),
                }
            }
        });
    }
}

/// Adds a `kind` to each sandbox that sets none: the sandbox of a schedule gets the kind of the agent's sandbox, and a
/// strict sandbox gets the default kind. The other keys are not merged here: if both the agent and the schedule set a
/// key, the stricter of the two values applies.
fn add_sandbox_kinds(agent: &mut Node) {
    let of_agent = sandbox_kind(agent);
    add_strict_kind(agent);
    each_schedule(agent, |schedule| {
        add_strict_kind(schedule);
        if let (Some(sandbox), Some(kind)) = (schedule.get_mut("sandbox"), &of_agent) {
            add_kind(sandbox, kind.clone());
        }
    });
}

/// Returns the `kind` of the agent's sandbox. If it is not set, an enabled `docker` of herdctl counts as a sandbox.
fn sandbox_kind(agent: &Node) -> Option<Entry> {
    let own = agent.entry("sandbox").map(|sandbox| long_form(sandbox.node.clone()));
    let docker = agent.get("docker").filter(|own| own.get("enabled").and_then(Node::text) == Some("true"));
    own.and_then(|sandbox| sandbox.entry(KIND).cloned())
        .or_else(|| Some(kind_entry(SandboxKind::Docker, docker?.at)))
}

fn add_strict_kind(owner: &mut Node) {
    if let Some(sandbox) = owner.get_mut("trust").and_then(|trust| trust.get_mut("sandbox")) {
        let kind = kind_entry(SandboxKind::STRICT, sandbox.at);
        add_kind(sandbox, kind);
    }
}

const KIND: &str = "kind";

fn kind_entry(kind: SandboxKind, at: Location) -> Entry {
    let value = Value::Scalar(Scalar { text: kind.to_string(), plain: true, ..Scalar::default() });
    Entry { key_at: at, node: Node { value, at } }
}

fn add_kind(sandbox: &mut Node, kind: Entry) {
    if let Value::Map(map) = &mut sandbox.value {
        map.entries.entry(KIND.to_owned()).or_insert(kind);
    }
}

pub(super) fn each_schedule(agent: &mut Node, mut change: impl FnMut(&mut Node)) {
    let Value::Map(map) = &mut agent.value else { return };
    let Some(Value::Map(schedules)) = map.entries.get_mut("schedules").map(|entry| &mut entry.node.value)
    else {
        return;
    };
    for schedule in schedules.entries.values_mut().filter(|schedule| schedule.node.entries().is_some()) {
        change(&mut schedule.node);
    }
}

/// Collects the agents of a sub-fleet. Returns none if the sub-fleet cannot be read; the reason is reported.
fn sub_fleet(
    loader: &mut Loader<'_>,
    entry: &Node,
    key: &str,
    file: FileId,
    above: &FleetContext,
    names: &mut HashMap<String, Location>,
) -> Option<()> {
    let (at, path) = entry.get("path").and_then(|path| Some((path.at, path.text()?)))?;
    let path = resolve_path(loader, file, path);
    loader.fleets += 1;
    if let Some(message) = too_many(loader.fleets, &path, above) {
        // Report only once that there are too many fleets. Each further fleet would repeat the message.
        if loader.fleets <= MAX_FLEETS + 1 {
            loader.problems.add(Problem::error(at, message).key(format!("{key}.path")));
        }
        return None;
    }
    let herdctl = above.herdctl || herdctl::is_herdctl(&path);
    let name = entry.get("name").and_then(Node::text).map(str::to_owned);
    let fleet_key = FleetKey { path, above: above.names.clone(), name };
    let inputs = FleetInputs {
        files: above.files.clone(),
        defaults: above.defaults.clone(),
        overrides: entry.get("overrides").cloned(),
        herdctl,
    };
    if let Some(name) = loader.take_earlier(&fleet_key, &inputs, names) {
        names.insert(name, entry.get("name").map_or(at, |name| name.at));
        return Some(());
    }
    let part = loader.begin_fleet();
    let path = fleet_key.path.clone();
    let collected = collect(loader, entry, key, (at, path), above, herdctl, names);
    loader.drop_tree(&fleet_key.path, herdctl);
    loader.end_fleet(part, fleet_key, inputs, collected.as_ref());
    collected.map(|_| ())
}

/// The name of a sub-fleet that was collected, and whether it has sub-fleets itself.
pub(super) struct CollectedFleet {
    pub name: String,
    pub has_fleets: bool,
}

/// Reads the file of a sub-fleet and collects its agents. Returns none if the sub-fleet cannot be read; the reason is
/// reported.
fn collect(
    loader: &mut Loader<'_>,
    entry: &Node,
    key: &str,
    (at, path): (Location, PathBuf),
    above: &FleetContext,
    herdctl: bool,
    names: &mut HashMap<String, Location>,
) -> Option<CollectedFleet> {
    let reading = CheckOptions { herdctl, ..CheckOptions::default() };
    let (mut node, file) = loader.file(&path, Some((at, format!("{key}.path"))), reading)?;
    if let Some(overrides) = entry.get("overrides") {
        node = Rc::new(merge(Node::clone(&node), overrides.clone()));
    }
    report_root_only_keys(loader, &node, file, key);
    let (name, name_at) = name_of(entry, &node, &path, at);
    if let Err((message, help)) = take_name(&name, name_at, names) {
        loader.problems.add(Problem::error(name_at, message).key(key).help(help.to_owned()));
        return None;
    }
    let below = FleetContext {
        files: above.files.iter().cloned().chain([path]).collect(),
        names: above.names.iter().cloned().chain([name.clone()]).collect(),
        defaults: above.defaults.clone(),
        herdctl,
    };
    let has_fleets = node.get("fleets").is_some_and(|fleets| !fleets.list().is_empty());
    fleet(loader, &node, file, below);
    Some(CollectedFleet { name, has_fleets })
}

/// Reports keys of a sub-fleet that count only in the root file. A budget is an error there, because its author expects
/// it to limit spending.
fn report_root_only_keys(loader: &mut Loader<'_>, fleet: &Node, file: FileId, reference: &str) {
    if let Some(limit) = fleet.get("fleet").and_then(|own| own.entry("max_concurrent")) {
        let message = "only the root file's `fleet.max_concurrent` counts; this key has no effect";
        loader.problems.add(Problem::warning(limit.key_at, message).key("fleet.max_concurrent"));
    }
    for (key, written) in ROOT_FILE_KEYS.iter().filter_map(|key| Some((*key, fleet.entry(key)?))) {
        let (message, at) = (format!("only the root file's `{key}` counts"), written.key_at);
        let problem = if key == "budget" {
            let help = "`defaults: {budget: …}` is for each agent of this fleet; `budget` of the root file is for all agents together";
            Problem::error(at, message + ", so this budget has no effect").help(help.to_owned())
        } else {
            Problem::warning(at, message + "; this key has no effect")
        };
        let is_override = at.file != file;
        let place = if is_override { format!("{reference}.overrides.{key}") } else { key.to_owned() };
        loader.problems.add(problem.key(place));
    }
}

/// Checks the name of a sub-fleet and adds it to `names`. The error is a message and a help text.
fn take_name(
    name: &str,
    at: Location,
    names: &mut HashMap<String, Location>,
) -> Result<(), (String, &'static str)> {
    check_name(name).map_err(|error| (error.to_string(), "give the reference a `name`"))?;
    match names.insert(name.to_owned(), at) {
        None => Ok(()),
        Some(first) => Err((
            format!("two fleets here are called `{name}`; the first is on line {}", first.line),
            "give one of the references another `name`",
        )),
    }
}

fn too_many(fleets: usize, path: &Path, above: &FleetContext) -> Option<String> {
    if fleets > MAX_FLEETS {
        return Some(format!("there are more than {MAX_FLEETS} fleets"));
    }
    if let Some(first) = above.files.iter().position(|file| file == path) {
        let round: Vec<String> = above.files[first..].iter().map(|file| file.display().to_string()).collect();
        return Some(format!("this fleet contains itself: {} → {}", round.join(" → "), path.display()));
    }
    let deep = above.files.len() >= MAX_LEVELS;
    deep.then(|| format!("fleets are nested more than {MAX_LEVELS} levels deep"))
}

/// Returns the name of a sub-fleet, and the location at which to report an error in the name. The name is taken from
/// its entry in `fleets`, else from its file, else from its directory.
fn name_of(entry: &Node, fleet: &Node, path: &Path, path_at: Location) -> (String, Location) {
    let own = entry.get("name").and_then(|name| Some((name.text()?.to_owned(), name.at)));
    let fleets = || fleet.get("fleet")?.get("name")?.text().map(|name| (name.to_owned(), path_at));
    let directory =
        || path.parent().and_then(Path::file_name).unwrap_or_default().to_string_lossy().into_owned();
    own.or_else(fleets).unwrap_or_else(|| (directory(), path_at))
}

fn resolve_path(loader: &Loader<'_>, file: FileId, path: &str) -> PathBuf {
    normalize(&loader.sources.directory(file).join(path))
}
