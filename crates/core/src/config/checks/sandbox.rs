//! Checks of sandbox settings. Settings that work on no machine are errors. Settings with which the agent may fail to
//! start or to work are warnings.

use std::path::{Path, PathBuf};

use crate::config::load::{Draft, Loader};
use crate::config::node::{Location, Node};
use crate::config::problem::Problem;
use crate::config::resolve::{schedule_at, schedule_node};
use crate::roster::{Agent, Schedule};
use crate::runtime::Runtime;
use crate::sandbox::{
    Container, Credentials, Network, NetworkAccess, Reach, RequestedSandbox, SandboxKind, SandboxRules,
};
use crate::workspace::IsolationKind;

/// Minimum of `memory`, in bytes. Even the smallest program needs more than this to start.
const MIN_MEMORY: u64 = 4_000_000;

/// Keys that the check needs. If one of them is wrong, the check is left out, because it could report errors that the
/// config does not have.
pub(in crate::config) const NEEDED_KEYS: [&str; 6] =
    ["sandbox", "docker", "runtime", "command", "working_directory", "isolation"];

pub(in crate::config) fn check(loader: &mut Loader<'_>, draft: &Draft, agent: &Agent) {
    if let Some(node) = draft.node.get("sandbox") {
        check_one(loader, draft, (agent, None), (Some(node), node.at), "sandbox");
    } else if let Some(node) = draft.node.get("docker") {
        check_docker(loader, draft, agent, node.at);
    }
    for schedule in agent.schedules.iter().filter(|schedule| schedule.sandbox_rules.is_some()) {
        let name = schedule.name.as_str();
        let node = schedule_node(draft, name).and_then(|node| node.get("sandbox"));
        let at = node.map_or_else(|| schedule_at(draft, name), |node| node.at);
        check_one(loader, draft, (agent, Some(schedule)), (node, at), &format!("schedules.{name}.sandbox"));
    }
}

/// Checks herdctl's key `docker`. A setting that cowhand does not support is a warning and not an error: the config is
/// loaded, and the agent is not started.
fn check_docker(loader: &mut Loader<'_>, draft: &Draft, agent: &Agent, at: Location) {
    let requested = agent.sandbox(None, false);
    if requested.kind != SandboxKind::Docker {
        return;
    }
    let why = requested.contradiction().map(str::to_owned);
    if let Some(why) = why.or_else(|| unsupported_reason(agent, &requested)) {
        let message = format!("this agent is not started: {why}");
        loader.problems.add(Problem::warning(at, message).key(draft.key_of("docker")));
    }
}

fn check_one(
    loader: &mut Loader<'_>,
    draft: &Draft,
    (agent, schedule): (&Agent, Option<&Schedule>),
    (node, at): (Option<&Node>, Location),
    key: &str,
) {
    let own = schedule.map_or(agent.sandbox_rules.as_ref(), |schedule| schedule.sandbox_rules.as_deref());
    let rules = own.cloned().unwrap_or_default();
    let requested = agent.sandbox(schedule.map(|schedule| &schedule.name), false);
    let contradictions = requested.contradictions().map(|message| ("", message.to_owned()));
    let wrong: Vec<_> =
        wrong_rules(&rules).into_iter().chain(contradictions).chain(wrong_for(agent, &requested)).collect();
    for (below, message) in &wrong {
        let found = node.and_then(|node| node.get(below));
        let key = if below.is_empty() { key.to_owned() } else { format!("{key}.{below}") };
        let at = found.map_or(at, |node| node.at);
        loader.problems.add(Problem::error(at, message.clone()).key(draft.key_of(&key)));
    }
    if !wrong.is_empty() {
        return;
    }
    if is_exposed(agent, schedule, &requested) {
        let directory = agent.directory.clone();
        loader.exposed.push(ExposedDirectory { directory, at, key: draft.key_of(key) });
    }
    if requested.network == NetworkAccess::None
        && requested.credentials == Credentials::Inside
        && agent.runtime() != Runtime::Command
    {
        let message = "with the network off, the agent cannot reach its model; set `network` (`hosts` with bubblewrap, `ports` with Landlock, `on` with docker), or `credentials: outside` with bubblewrap";
        loader.problems.add(Problem::warning(at, message).key(draft.key_of(key)));
    }
}

/// A directory in which Landlock cannot protect config files.
#[derive(Debug, Clone)]
pub(in crate::config) struct ExposedDirectory {
    directory: PathBuf,
    /// Location of the `sandbox` of the agent or schedule that works there, and the path of its key.
    at: Location,
    key: String,
}

/// Checks whether an agent with Landlock works in a shared directory. Config files in this directory are not protected,
/// because Landlock cannot exclude parts of a folder.
fn is_exposed(agent: &Agent, schedule: Option<&Schedule>, requested: &RequestedSandbox) -> bool {
    let isolation = agent.isolation_of(schedule.map(|schedule| &schedule.name)).kind;
    requested.kind == SandboxKind::Landlock && isolation == IsolationKind::Shared
}

/// Warns of exposed directories that contain config files; to be called when all config files are known. The problem is
/// not an error, because symbolic links can lead elsewhere, and only the machine that runs the agent has these links.
pub(in crate::config) fn report_exposed(loader: &mut Loader<'_>) {
    for ExposedDirectory { directory, at, key } in std::mem::take(&mut loader.exposed) {
        let here = directory == Path::new(".");
        let within = if here { Path::new("") } else { directory.as_path() };
        let Some(held) = loader.sources.paths().find(|path| path.starts_with(within)) else { continue };
        let message = format!(
            "{} is in the directory of this agent, and Landlock cannot protect it there, so the agent is not started unless a symbolic link leads elsewhere; set another `working_directory`, `isolation: worktree`, or `sandbox: bubblewrap`",
            held.file_name().unwrap_or_default().to_string_lossy()
        );
        loader.problems.add(Problem::warning(at, message).key(key));
    }
}

/// Returns the errors that the rules cause for every agent: the key below `sandbox` (empty for the section as a whole)
/// and the message.
fn wrong_rules(rules: &SandboxRules) -> Vec<(&'static str, String)> {
    let mut wrong = Vec::new();
    if let Some(Network::Reach(Reach { ports, hosts })) = &rules.network
        && ports.is_some() == hosts.is_some()
    {
        let message = "`network` names either `ports` (for Landlock) or `hosts` (for bubblewrap)";
        wrong.push(("", message.to_owned()));
    }
    for key in rules.unenforceable_keys() {
        let message = format!(
            "`{key}` needs a `kind` that can enforce it (`landlock`, `bubblewrap` or `docker`): `kind: none` enforces only caps"
        );
        wrong.push((key, message));
    }
    if rules.memory.is_some_and(|memory| memory.bytes() < MIN_MEMORY) {
        let message =
            "no program can start with so little memory; the minimum is 4MB, and most programs need far more";
        wrong.push(("memory", message.to_owned()));
    }
    let is_all = |path: &&String| matches!(path.trim_end_matches('/'), "" | "~");
    if let Some(all) = rules.write.iter().flatten().find(is_all) {
        let message = format!(
            "`{all}` contains the whole home directory of the user who runs cowhand, so the sandbox would protect nothing in it; list folders below it"
        );
        wrong.push(("write", message));
    }
    if let Some(socket) = rules.socket.as_ref().filter(|socket| Container::socket_path(socket).is_none()) {
        let message = format!("`socket` has to be the absolute path of a Unix socket, not {socket}");
        wrong.push(("socket", message));
    }
    wrong
}

/// Returns the errors because of which this agent cannot run with the requested sandbox: the key below `sandbox` and
/// the message. Contradictions between the rules are not included; `check_one` reports them itself.
fn wrong_for(agent: &Agent, requested: &RequestedSandbox) -> Vec<(&'static str, String)> {
    let mut wrong: Vec<_> =
        unsupported_reason(agent, requested).map(|why| ("kind", why)).into_iter().collect();
    let outside =
        requested.credentials == Credentials::Outside && requested.credentials_contradiction().is_none();
    let unable = agent.with_fallbacks().find(|(_, agent)| outside && !agent.can_leave_keys_outside());
    wrong.extend(unable.map(|(_, unable)| {
        let runtime = unable.runtime().name();
        let message = format!(
            "`credentials: outside` is not supported for `runtime: {runtime}`: cowhand does not know how to set the address of its provider"
        );
        ("credentials", message)
    }));
    wrong
}

/// Returns the reason if this kind of sandbox denies something that the agent needs.
fn unsupported_reason(agent: &Agent, requested: &RequestedSandbox) -> Option<String> {
    if requested.kind == SandboxKind::Docker && agent.runtime() == Runtime::Acp {
        let why =
            "`runtime: acp` needs cowhand's ACP client, which images do not contain; use another sandbox";
        return Some(why.to_owned());
    }
    // Jobs communicate with the fleet over a socket, which these kinds of sandbox do not make available.
    let closed = matches!(requested.kind, SandboxKind::Landlock | SandboxKind::Docker);
    (closed && agent.needs_job_channel()).then(|| {
        format!(
            "`permission_mode: ask`, `followups` and `fleet_tools` need a socket of the fleet, which `sandbox: {}` does not give to agents; use `sandbox: bubblewrap`",
            requested.kind
        )
    })
}
