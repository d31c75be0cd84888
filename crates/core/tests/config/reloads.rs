//! A load that takes unchanged fleets from the previous load has the same result as a load that reads all fleets.

use std::collections::BTreeMap;
use std::io;
use std::path::{Path, PathBuf};

use cowhand_core::config::report;
use cowhand_core::config::{ConfigEnvironment, KeptFleets, LoadedConfig, load_again};
use cowhand_core::policy::Zone;
use jiff::{SignedDuration, Timestamp};
use proptest::prelude::*;

/// The files, variables, folders and time of a load.
#[derive(Debug, Clone, Default)]
struct Inputs {
    files: BTreeMap<PathBuf, String>,
    variables: BTreeMap<String, String>,
    has_folder: bool,
    days: i64,
}

fn load(inputs: &Inputs, kept: KeptFleets) -> LoadedConfig {
    let mut read =
        |path: &Path| inputs.files.get(path).cloned().ok_or_else(|| io::Error::from(io::ErrorKind::NotFound));
    let environment = ConfigEnvironment {
        read: &mut read,
        env: &|name| inputs.variables.get(name).cloned(),
        is_folder: &|_| inputs.has_folder,
        zone: Zone::UTC,
        now: "2026-01-01T00:00:00Z".parse::<Timestamp>().unwrap()
            + SignedDuration::from_hours(24 * inputs.days),
    };
    load_again(Path::new("cowhand.yaml"), environment, kept)
}

/// Compares everything that a load returns, except the fleets for the next load.
fn assert_same(again: &LoadedConfig, fresh: &LoadedConfig) {
    assert_eq!(again.problems, fresh.problems);
    assert_eq!(again.roster, fresh.roster);
    assert_eq!(again.shown.value(), fresh.shown.value());
    assert_eq!(again.sources.paths().collect::<Vec<_>>(), fresh.sources.paths().collect::<Vec<_>>());
    let rendered = |loaded| report::render(loaded, Path::new(""), false) + &report::summary(loaded);
    assert_eq!(rendered(again), rendered(fresh));
}

/// Files of fleets and agents. A file may be named by several others, and its content decides whether it is read as a
/// fleet or as an agent.
const FLEETS: [&str; 4] = ["one/fleet.yaml", "two/fleet.yaml", "three/herdctl.yaml", "one/below/fleet.yaml"];
const AGENTS: [&str; 2] = ["agents/x.yaml", "agents/y.yaml"];

fn schedule() -> impl Strategy<Value = String> {
    prop::sample::select(vec![
        "{type: cron, cron: 0 9 * * *, prompt: Look.}",
        "{type: cron, cron: 0 9 * * *, timezone: Europe/Berlin, prompt: 'Look at ${PLACE}.'}",
        "{type: cron, cron: 0 9 * * *, prompt: 'Look at ${PLACE:-nothing}.', overlap: queue}",
        "{type: interval, interval: 5m, overlap: queue, misfire: skip}",
        "{type: interval, interval: 5m, enabled: false}",
        "{type: interval, interval: 5m, end_at: '2026-01-03T00:00:00Z'}",
        "{type: delay, run_at: '2026-01-02T00:00:00Z', end_at: '2026-01-03T00:00:00Z'}",
        "{type: webhook, secret_env: HOOK_SECRET}",
        "{type: webhook, secret: 'a-secret-${PLACE:-x}'}",
        "{type: dispatch_result, schedule: a/s}",
        "{type: dispatch_result, schedule: one.b/s, status: failed}",
        "{type: dispatch_result}",
        "{type: agent_lifecycle, event: session_end, agent: one.a}",
        "{type: interval, interval: 1h, adopt: former}",
        "{type: interval, interval: 1h, adopt: two.a/s}",
        "{type: interval, interval: 1h, work_source: {type: files, path: queue}}",
        "{type: interval, interval: 1h, work_source: {type: github, repo: o/r, api_url: 'https://me:password-1@host'}}",
        "{type: interval, promt: x}",
        "{type: interval, interval: 1 hour}",
        "{type: manual, prompt: '{{nothing}}'}",
        "{type: manual, sandbox: {write: [out]}}",
    ])
    .prop_map(str::to_owned)
}

fn agent() -> impl Strategy<Value = String> {
    let name = prop::sample::select(vec!["a", "b", "c", "one.a", "${NAME:-d}"]);
    let keys = prop::sample::subsequence(
        vec![
            "description: Text",
            "working_directory: work",
            "default_prompt: Go.",
            "model: opus",
            "sandbox: landlock",
            "repo: o/r",
            "retry: {max_attempts: 2, on: []}",
            "followups: {max: 1, from: [a, two.b]}",
            "followups: {}",
            "budget: {per_job_usd: 5, per_day_usd: 1}",
            "env: {API_TOKEN: '${TOKEN:-none}'}",
            "modle: opus",
        ],
        0..4,
    );
    (name, keys, prop::collection::vec(schedule(), 0..4)).prop_map(|(name, keys, schedules)| {
        let schedules: Vec<String> = schedules
            .iter()
            .enumerate()
            .map(|(at, text)| format!("{}: {text}", ["s", "t", "u", "v"][at]))
            .collect();
        let keys = keys.iter().map(|key| format!(", {key}")).collect::<Vec<_>>().concat();
        format!(
            "{{name: '{name}', runtime: command, command: ['true']{keys}, schedules: {{{}}}}}",
            schedules.join(", ")
        )
    })
}

/// An entry under `agents`: an agent, or a reference to its file.
fn agent_entry() -> impl Strategy<Value = String> {
    let reference =
        (prop::sample::select(AGENTS.to_vec()), any::<bool>()).prop_map(|(path, has_overrides)| {
            let overrides = if has_overrides { ", overrides: {name: z, model: haiku}" } else { "" };
            format!("{{path: ROOT/{path}{overrides}}}")
        });
    prop_oneof![4 => agent(), 1 => reference]
}

fn list(agents: &[String]) -> String {
    agents.iter().map(|agent| format!("  - {agent}\n")).collect::<Vec<_>>().concat()
}

fn fleet() -> impl Strategy<Value = String> {
    let top = prop::sample::subsequence(
        vec![
            "# a comment\n",
            "defaults: {timeout: 1h, overlap: queue, work_source: {type: files, path: all}}\n",
            "retention: {max_age: 30d}\n",
            "budget: {per_day_usd: 9}\n",
            "fleet: {name: own}\n",
        ],
        0..3,
    );
    let below = prop::collection::vec((prop::sample::select(FLEETS.to_vec()), 0..3_usize), 0..2);
    (top, prop::collection::vec(agent_entry(), 0..4), below).prop_map(|(top, agents, below)| {
        let agents = list(&agents);
        let below: String = below.iter().map(reference).collect();
        format!("{}agents:\n{agents}fleets:\n{below}", top.concat())
    })
}

fn reference((path, kind): &(&str, usize)) -> String {
    let rest = ["", ", name: named", ", overrides: {defaults: {model: sonnet}}"][*kind];
    format!("  - {{path: ROOT/{path}{rest}}}\n")
}

/// Root files mostly name all fleets.
fn root() -> impl Strategy<Value = String> {
    let top = prop::sample::subsequence(
        vec![
            "# a comment\n",
            "defaults: {model: opus, jitter: 3, work_source: {type: files, path: all}}\n",
            "server: {listen: '0.0.0.0:7777'}\n",
            "prices: {opus: {input: 1, output: 2}}\n",
            "budget: {per_day_usd: 9}\n",
            "providers: {p: {max_concurrent: 1}}\n",
        ],
        0..3,
    );
    let references = prop::sample::subsequence(FLEETS.to_vec(), 2..=4).prop_shuffle();
    (top, prop::collection::vec(agent_entry(), 0..2), references, 0..3_usize).prop_map(
        |(top, agents, references, kind)| {
            let agents = list(&agents);
            let fleets: String = references
                .iter()
                .enumerate()
                .map(|(at, path)| reference(&(path, if at == 0 { kind } else { 0 })))
                .collect();
            format!("{}agents:\n{agents}fleets:\n{fleets}", top.concat())
        },
    )
}

/// A change between two loads.
#[derive(Debug, Clone)]
enum Edit {
    File(String, Option<String>),
    Root(String),
    /// A line at the top of a file, which moves all other lines.
    Comment(usize),
    Variable(&'static str, Option<&'static str>),
    Folder,
    Day,
    Nothing,
}

fn edit() -> impl Strategy<Value = Edit> {
    let path = |list: &'static [&'static str]| prop::sample::select(list.to_vec()).prop_map(str::to_owned);
    prop_oneof![
        4 => (path(&FLEETS), fleet()).prop_map(|(path, text)| Edit::File(path, Some(text))),
        2 => (path(&AGENTS), agent()).prop_map(|(path, text)| Edit::File(path, Some(text))),
        1 => path(&FLEETS).prop_map(|path| Edit::File(path, None)),
        2 => root().prop_map(Edit::Root),
        2 => (0..7_usize).prop_map(Edit::Comment),
        2 => (
            prop::sample::select(vec!["PLACE", "HOOK_SECRET", "NAME", "TOKEN"]),
            prop::sample::select(vec![None, Some("first"), Some("second")]),
        )
            .prop_map(|(name, value)| Edit::Variable(name, value)),
        1 => Just(Edit::Folder),
        1 => Just(Edit::Day),
        1 => Just(Edit::Nothing),
    ]
}

impl Inputs {
    fn change(&mut self, edit: Edit) {
        let root = |text: String| text.replace("ROOT/", "/fleet/");
        match edit {
            Edit::File(path, Some(text)) => _ = self.files.insert(Path::new("/fleet").join(path), root(text)),
            Edit::File(path, None) => _ = self.files.remove(&Path::new("/fleet").join(path)),
            Edit::Root(text) => _ = self.files.insert("cowhand.yaml".into(), root(text)),
            Edit::Comment(at) => {
                if let Some(text) = self.files.values_mut().nth(at) {
                    text.insert_str(0, "# another comment\n");
                }
            }
            Edit::Variable(name, Some(value)) => _ = self.variables.insert(name.to_owned(), value.to_owned()),
            Edit::Variable(name, None) => _ = self.variables.remove(name),
            Edit::Folder => self.has_folder = !self.has_folder,
            Edit::Day => self.days += 1,
            Edit::Nothing => {}
        }
    }
}

fn inputs() -> impl Strategy<Value = Inputs> {
    let fleets = prop::collection::vec(fleet(), FLEETS.len());
    let agents = prop::collection::vec(agent(), AGENTS.len());
    (root(), fleets, agents).prop_map(|(root, fleets, agents)| {
        let mut inputs = Inputs { has_folder: true, ..Inputs::default() };
        inputs.change(Edit::Root(root));
        for (path, text) in FLEETS.iter().zip(fleets).chain(AGENTS.iter().zip(agents)) {
            inputs.change(Edit::File((*path).to_owned(), Some(text)));
        }
        inputs
    })
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 400, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn a_load_after_another_finds_the_same(first in inputs(), edits in prop::collection::vec(edit(), 1..8)) {
        let mut inputs = first;
        let mut kept = load(&inputs, KeptFleets::default()).kept;
        for edit in edits {
            inputs.change(edit);
            let again = load(&inputs, kept);
            assert_same(&again, &load(&inputs, KeptFleets::default()));
            kept = again.kept;
        }
    }
}

fn small_fleet(number: usize) -> String {
    format!(
        "agents: [{{name: a, runtime: command, command: ['true'], schedules: {{s: {{type: interval, interval: 5m, prompt: Round {number}.}}}}}}]"
    )
}

/// Only the changed fleet is loaded again: the other agents are the same objects as before.
#[test]
fn unchanged_fleets_keep_their_agents() {
    let mut inputs = Inputs::default();
    inputs.change(Edit::Root(
        "fleets: [{path: /one.yaml, name: one}, {path: /two.yaml, name: two}]".to_owned(),
    ));
    inputs.files.insert("/one.yaml".into(), small_fleet(1));
    inputs.files.insert("/two.yaml".into(), small_fleet(1));
    let first = load(&inputs, KeptFleets::default());
    assert_eq!(first.problems, []);
    inputs.files.insert("/two.yaml".into(), small_fleet(2));
    let again = load(&inputs, first.kept);
    let is_kept = |at: usize| {
        std::sync::Arc::ptr_eq(&first.roster.agents.shared()[at], &again.roster.agents.shared()[at])
    };
    assert_eq!([is_kept(0), is_kept(1)], [true, false]);
    assert_same(&again, &load(&inputs, KeptFleets::default()));
}

/// A change of the inputs; the text is a root file.
type Change = fn(&mut Inputs, &str);

/// Random edits rarely make these changes: each of them adds a problem to a fleet whose file has not changed.
#[test]
fn a_change_elsewhere_adds_a_problem_to_an_unchanged_fleet() {
    let root = |agents: &str| format!("agents: [{agents}]\nfleets: [{{path: /one.yaml, name: one}}]");
    let with_end = small_fleet(1).replace("interval: 5m", "interval: 5m, end_at: '2026-01-03T00:00:00Z'");
    let in_folder =
        small_fleet(1).replace("interval: 5m", "interval: 5m, work_source: {type: files, path: q}");
    let same_name = root("{name: one.a, runtime: command, command: ['true']}");
    let cases: [(&str, String, Change); 3] = [
        ("is defined twice", small_fleet(1), |inputs, root| {
            _ = inputs.files.insert("cowhand.yaml".into(), root.to_owned());
        }),
        ("has no further due times", with_end, |inputs, _| inputs.days += 9),
        ("there is no folder", in_folder, |inputs, _| inputs.has_folder = false),
    ];
    for (message, fleet, change) in cases {
        let mut inputs = Inputs { has_folder: true, ..Inputs::default() };
        inputs.files.insert("cowhand.yaml".into(), root(""));
        inputs.files.insert("/one.yaml".into(), fleet);
        let first = load(&inputs, KeptFleets::default());
        assert_eq!(first.problems, [], "{message}");
        change(&mut inputs, &same_name);
        let again = load(&inputs, first.kept);
        assert!(again.problems.iter().any(|problem| problem.message.contains(message)), "{message}");
        assert_same(&again, &load(&inputs, KeptFleets::default()));
    }
}
