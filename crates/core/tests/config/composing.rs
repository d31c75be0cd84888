//! Fleets of fleets, and the layers of an agent.

use super::{fine, lines, load_files, load_text};
use cowhand_core::policy::{Misfire, Overlap};
use cowhand_core::roster::{Agent, Schedule};
use cowhand_core::work_source::ConfiguredSource;
use jiff::SignedDuration;

#[test]
fn agents_of_nested_fleets_have_prefixed_names_in_order() {
    let files = [
        (
            "/f/cowhand.yaml",
            "fleets: [{path: x/cowhand.yaml}, {path: y/fleet.yaml}, {path: z/c.yaml, name: zed}]\nagents: [{name: root}]",
        ),
        ("/f/x/cowhand.yaml", "fleet: {name: ex}\nagents: [{name: a}]\nfleets: [{path: ../w/c.yaml}]"),
        ("/f/w/c.yaml", "agents: [{name: deep}]"),
        ("/f/y/fleet.yaml", "agents: [{name: a}]"),
        ("/f/z/c.yaml", "fleet: {name: unused}\nagents: [{path: agents/../a.yaml}]"),
        ("/f/z/a.yaml", "name: a"),
    ];
    let loaded = load_files(&files, &[]);
    fine(&loaded);
    let names: Vec<_> = loaded.roster.agents.iter().map(|agent| agent.name.as_str()).collect();
    assert_eq!(names, ["root", "ex.a", "ex.w.deep", "y.a", "zed.a"]);
    let directories: Vec<_> =
        loaded.roster.agents.iter().map(|agent| agent.directory.to_str().unwrap()).collect();
    assert_eq!(directories, ["/f", "/f/x", "/f/w", "/f/y", "/f/z"]);
}

#[test]
fn invalid_fleets_are_refused() {
    let files = [
        (
            "cowhand.yaml",
            "fleets:\n  - {path: a/c.yaml}\n  - {path: b/c.yaml, name: a}\n  - {path: gone.yaml}\n  - {path: we ird/c.yaml}\nagents:\n  - {path: also-gone.yaml}\n",
        ),
        ("a/c.yaml", "fleets: [{path: ../d/c.yaml}]"),
        ("b/c.yaml", "agents: [{name: x}]"),
        ("d/c.yaml", "fleets: [{path: ../a/c.yaml}]"),
        ("we ird/c.yaml", "agents: []"),
    ];
    insta::assert_snapshot!(lines(&load_files(&files, &[])).join("\n"), @r#"
    cowhand.yaml:3:28 two fleets here are called `a`; the first is on line 2
    cowhand.yaml:4:12 cannot read gone.yaml: there is no such file
    cowhand.yaml:5:12 "we ird" is not a valid name; use the letters a-z and A-Z, digits, '_' and '-', starting with a letter or digit, at most 128 characters
    cowhand.yaml:7:12 cannot read also-gone.yaml: there is no such file
    d/c.yaml:1:17 this fleet contains itself: a/c.yaml → d/c.yaml → a/c.yaml
    "#);
}

#[test]
fn layers() {
    let root = "
defaults: {model: root, max_turns: 1, tools: [Read, Edit], instances: {max_concurrent: 3}, timeout: 2h, retry: {max_attempts: 3}}
fleets:
  - path: sub/cowhand.yaml
    overrides: {defaults: {max_turns: 4}, fleet: {name: renamed}}
";
    let sub = "
defaults: {model: sub, max_turns: 2, session: {max_turns: 7}, retry: {backoff: 1m}}
agents:
  - name: inherits
  - name: says
    model: own
    tools: []
    timeout: 0
    session: {timeout: 5h}
    overrides: {model: over, instances: null}
";
    let loaded = load_files(&[("cowhand.yaml", root), ("sub/cowhand.yaml", sub)], &[]);
    fine(&loaded);
    let seen = |agent: &Agent| {
        let tools = agent.tools.available.clone().unwrap_or_default().join(",");
        let (turns, model) = (agent.max_turns.unwrap(), agent.program.model.clone().unwrap());
        format!("{} {model} {turns} [{tools}] {}", agent.name, agent.max_concurrent)
    };
    let agents = &loaded.roster.agents;
    assert_eq!(seen(&agents[0]), "renamed.inherits sub 4 [Read,Edit] 3");
    assert_eq!(seen(&agents[1]), "renamed.says over 4 [] 1", "arrays replace, null takes away");
    assert_eq!((agents[0].retry.max_attempts, agents[0].retry.backoff.to_string()), (3, "1m".to_owned()));
    assert_eq!(loaded.shown.value()["agents"][1]["session"]["max_turns"], 7);
    assert_eq!(agents[1].session.expires, SignedDuration::from_hours(5));
    assert_eq!(agents[0].timeout.to_string(), "2h");
    assert_eq!(agents[1].timeout.duration(), None);
}

/// The defaults of a fleet file override its key `retention`. The key of the root file also applies to agents that are
/// no longer in the fleet.
#[test]
fn retention_is_inherited_key_by_key() {
    let root = "
retention: {max_age: 30d, max_jobs_per_agent: 100}
defaults: {retention: {max_bytes: 2GB, max_jobs_per_agent: 50}}
agents:
  - name: plain
  - {name: own, retention: {max_jobs_per_agent: 5, max_age: ~}}
  - {name: all, retention: ~}
fleets: [{path: sub/cowhand.yaml}, {path: keeper/cowhand.yaml}]
";
    let sub = "retention: {max_age: 1d}\nagents: [{name: a}]";
    let keeper = "retention: ~\nagents: [{name: a}, {name: b, retention: {max_bytes: 1000}}]";
    let files = [("cowhand.yaml", root), ("sub/cowhand.yaml", sub), ("keeper/cowhand.yaml", keeper)];
    let loaded = load_files(&files, &[]);
    fine(&loaded);
    for (agent, expected) in [
        ("plain", r#"{"max_jobs_per_agent":50,"max_age":"30d","max_bytes":"2GB"}"#),
        ("own", r#"{"max_jobs_per_agent":5,"max_age":null,"max_bytes":"2GB"}"#),
        ("all", r#"{"max_jobs_per_agent":null,"max_age":null,"max_bytes":null}"#),
        ("sub.a", r#"{"max_jobs_per_agent":50,"max_age":"1d","max_bytes":"2GB"}"#),
        ("keeper.a", r#"{"max_jobs_per_agent":null,"max_age":null,"max_bytes":null}"#),
        ("keeper.b", r#"{"max_jobs_per_agent":null,"max_age":null,"max_bytes":"1000"}"#),
        ("left", r#"{"max_jobs_per_agent":100,"max_age":"30d","max_bytes":null}"#),
    ] {
        let retention = loaded.roster.retention(&agent.parse().unwrap());
        assert_eq!(serde_json::to_string(&retention).unwrap(), expected, "{agent}");
    }
    assert_eq!(loaded.shown.value()["retention"]["max_age"], "30d");
}

#[test]
fn schedules_inherit_policies() {
    let text = "
defaults: {misfire: skip, overlap: queue, active_hours: {start: 09:00, end: 17:00}, timeout: 3h}
agents:
  - name: a
    timeout: 2h
    retry: {max_attempts: 5}
    schedules:
      plain: {type: interval, interval: 5m}
      own: {type: interval, interval: 5m, misfire: run_all, active_hours: {end: 12:00}, timeout: 10m, retry: {backoff: 2m}}
";
    let loaded = load_text(text);
    fine(&loaded);
    let [plain, own] = loaded.roster.agents[0].schedules.as_slice() else { panic!("two") };
    assert_eq!((plain.timing.misfire, plain.timing.overlap), (Misfire::Skip, Overlap::Queue));
    assert_eq!((own.timing.misfire, own.timing.overlap), (Misfire::RunAll, Overlap::Queue));
    let hours = own.timing.active_hours.as_ref().unwrap();
    assert_eq!((hours.start.to_string(), hours.end.to_string()), ("09:00".to_owned(), "12:00".to_owned()));
    assert_eq!((plain.timeout.to_string(), own.timeout.to_string()), ("2h".to_owned(), "10m".to_owned()));
    assert_eq!((plain.retry.max_attempts, own.retry.max_attempts), (5, 5));
    assert_eq!(
        (plain.retry.backoff.to_string(), own.retry.backoff.to_string()),
        ("30s".to_owned(), "2m".to_owned())
    );
    assert_eq!(own.idle_timeout.to_string(), "900s");
}

/// Layers that use different names of one key are merged.
#[test]
fn aliases_of_one_key_are_merged() {
    let root = "
defaults: {workspace: there}
agents:
  - {path: a/a.yaml, overrides: {schedules: {s: {expression: '@weekly'}}}}
  - {path: a/b.yaml}
";
    let a = "name: a\nschedules: {s: {type: cron, cron: '@daily'}, cron: {type: manual}}";
    let b = "name: b\nworking_directory: here";
    let loaded = load_files(&[("cowhand.yaml", root), ("a/a.yaml", a), ("a/b.yaml", b)], &[]);
    fine(&loaded);
    let [a, b] = loaded.roster.agents.shared() else { panic!("two") };
    assert!(format!("{:?}", a.schedules[0].trigger).contains("@weekly"));
    assert_eq!(a.schedules[1].name.as_str(), "cron", "a name that is also an alias elsewhere");
    assert_eq!((a.directory.to_str(), b.directory.to_str()), (Some("there"), Some("a/here")));
}

/// After a merge an error is still reported once, at the layer that is wrong.
#[test]
fn errors_of_layers_keep_their_place() {
    let root = "defaults:\n  session: {timeout: soon}\nagents:\n  - {path: a.yaml, overrides: {max_turns: none}}\n  - {name: b}\n  - {name: c}\n";
    let agent = "name: a\nschedules:\n  s:\n    type: cron\n";
    let loaded = load_files(&[("cowhand.yaml", root), ("a.yaml", agent)], &[]);
    insta::assert_snapshot!(lines(&loaded).join("\n"), @"
    cowhand.yaml:2:22 `soon` is not of the right form; for example `24h` or `2w`
    cowhand.yaml:4:43 expected a whole number, found `none`
    a.yaml:3:3 `cron` is missing (for `type: cron`)
    ");
}

#[test]
fn anchors_merge_keys_and_yaml_scalar_forms_are_accepted() {
    let text = "
fleet: {name: &n x, description: *n}
agents:
  - &base {name: a, model: opus, schedules: {s: &s {type: interval, interval: 5m}}}
  - {<<: *base, name: b, schedules: {t: {<<: [{interval: 1h}, *s], prompt: '${P:-none}'}}}
  - name: c
    system_prompt: !!str 5
    default_prompt: 5
    max_turns: 0x10
";
    let loaded = load_text(text);
    fine(&loaded);
    let [a, b, c] = loaded.roster.agents.shared() else { panic!("three") };
    assert_eq!((a.program.model.as_deref(), b.program.model.as_deref()), (Some("opus"), Some("opus")));
    assert!(format!("{:?}", b.schedules[0].trigger).contains("Hour"));
    assert_eq!(b.schedules[0].prompt.as_deref(), Some("none"));
    assert_eq!((c.system_prompt.as_deref(), c.default_prompt.as_deref()), (Some("5"), Some("5")));
    assert_eq!(c.max_turns, Some(16));
}

#[test]
fn variables_are_expanded_before_types_are_checked() {
    let text = "agents:\n  - name: ${NAME}\n    max_turns: ${TURNS}\n    instances: {max_concurrent: \"${N:-2}\"}\n    model: ${EMPTY:-m}\n    description: $${NAME} ${EMPTY}\n";
    let loaded = load_files(&[("cowhand.yaml", text)], &[("NAME", "a"), ("TURNS", "7"), ("EMPTY", "")]);
    fine(&loaded);
    let agent = &loaded.roster.agents[0];
    assert_eq!((agent.name.as_str(), agent.max_turns, agent.max_concurrent), ("a", Some(7), 2));
    assert_eq!(agent.program.model.as_deref(), Some("m"));
    assert_eq!(agent.description.as_deref(), Some("${NAME} "));
}

#[test]
fn an_empty_file_is_an_empty_fleet() {
    for text in ["# nothing\n", "---\n", "~", "agents:\ndefaults:\nfleets:\n"] {
        let loaded = load_text(text);
        assert_eq!(lines(&loaded), Vec::<String>::new(), "{text:?}");
        assert!(loaded.roster.agents.is_empty());
    }
    // A file is empty while somebody writes it.
    for text in ["", "   \n"] {
        let lines = lines(&load_text(text)).join("\n");
        assert!(lines.contains("cowhand.yaml is empty"), "{text:?}: {lines}");
    }
}

/// Paths are relative to the file that names them, also after a merge of layers with different paths.
#[test]
fn work_source_paths_are_relative_to_the_file_that_names_them() {
    let files = [
        (
            "/fleet/cowhand.yaml",
            "defaults: {work_source: {type: files, path: ./tasks}}\n\
             agents: [{name: a}, {path: sub/b.yaml}, {name: c, work_source: {path: /all/tasks}}]\n",
        ),
        (
            "/fleet/sub/b.yaml",
            "name: b\nwork_source: {path: mine}\nschedules:\n  s: {type: manual}\n  \
             t: {type: manual, work_source: {path: ../t}}\n",
        ),
    ];
    let loaded = load_files(&files, &[]);
    fine(&loaded);
    let path = |source: Option<&ConfiguredSource>| match source {
        Some(ConfiguredSource::Files { path, .. }) => path.clone(),
        other => panic!("{other:?}"),
    };
    let agents = &loaded.roster.agents;
    let of_agents: Vec<_> = agents.iter().map(|agent| path(agent.work_source.as_ref())).collect();
    assert_eq!(of_agents, ["/fleet/tasks", "/fleet/sub/mine", "/all/tasks"]);
    let of_schedules: Vec<_> =
        agents[1].schedules.iter().map(|schedule| path(schedule.work_source.as_deref())).collect();
    assert_eq!(of_schedules, ["/fleet/sub/mine", "/fleet/t"]);
}

/// `work_source: ~` removes the source that the schedule would inherit from its agent.
#[test]
fn a_schedule_can_remove_the_work_source_of_its_agent() {
    let yaml = "
agents:
  - name: a
    runtime: command
    command: [cat]
    work_source: {type: files, path: tasks}
    schedules:
      takes: {type: manual}
      without: {type: manual, work_source: ~}
";
    let roster = load_text(yaml).roster;
    let takes: Vec<bool> = roster.agents[0].schedules.iter().map(Schedule::takes_work).collect();
    assert_eq!(takes, [true, false]);
}
