//! Work sources from which nothing can ever be taken, and agents without work.

use cowhand_core::work_source::ConfiguredSource;

use super::mistakes::agent;
use super::{fine, lines, load_files, load_text};

const POLL: &str = "schedules: {poll: {type: interval, interval: 5m, prompt: Go.}}";

/// Returns `LEVEL LINE:COLUMN MESSAGE | HELP` of each problem.
fn problems(file: &str, text: &str) -> Vec<String> {
    let loaded = load_files(&[(file, text)], &[]);
    let helps = loaded.problems.iter().map(|problem| problem.help.clone().unwrap_or_default());
    lines(&loaded).into_iter().zip(helps).map(|(line, help)| format!("{line} | {help}")).collect()
}

#[test]
fn work_sources_that_yield_no_items_are_reported() {
    let source = |source: &str| agent(&format!("work_source: {{{source}}}\n{POLL}"));
    for (text, expected) in [
        ("type: github, repo: o/r", ""),
        ("type: files, path: tasks", ""),
        (
            "type: github",
            "cowhand.yaml:3:18 the work source of `poll` names no repository | add `repo: OWNER/NAME` to `work_source`, or to the agent",
        ),
        (
            "type: github, repo: o/r, labels: {ready: Busy, in_progress: busy}",
            "cowhand.yaml:3:79 `ready` and `in_progress` are both `Busy`, so an item that is taken still looks available | give them different labels, for example `ready` and `agent-working`",
        ),
        (
            "type: github, repo: o/r, labels: {ready: agent-working}",
            "cowhand.yaml:3:18 `ready` and `in_progress` are both `agent-working`, so an item that is taken still looks available | give them different labels, for example `ready` and `agent-working`",
        ),
        (
            "type: github, repo: o/r, exclude_labels: [wip, Ready]",
            "cowhand.yaml:3:60 `exclude_labels` holds `Ready`, which marks available work, so no item is ever taken | take it out of `exclude_labels`",
        ),
        (
            "type: files, path: missing",
            "cowhand.yaml:3:38 warning: there is no folder missing, so there is no work | `mkdir -p missing` makes it; each Markdown file in it is a work item",
        ),
    ] {
        assert_eq!(problems("cowhand.yaml", &source(text)).join("\n"), expected, "{text}");
        // herdctl continues with settings that can never work.
        let loaded = load_files(
            &[
                ("herdctl.yaml", "agents: [{path: a.yaml}]"),
                ("a.yaml", &source(text).replace("agents:\n  - name", "name").replace("\n    ", "\n")),
            ],
            &[],
        );
        assert_eq!(
            (loaded.errors(), loaded.warnings()),
            (0, usize::from(!expected.is_empty())),
            "{:?}",
            lines(&loaded)
        );
    }
}

#[test]
fn a_work_source_without_a_repository_uses_that_of_its_agent() {
    let text =
        format!("agents:\n  - name: a\n    repo: o/r\n    work_source: {{type: github}}\n    {POLL}\n");
    for file in ["cowhand.yaml", "herdctl.yaml"] {
        let loaded = load_files(&[(file, &text)], &[]);
        fine(&loaded);
        assert_eq!(loaded.warnings(), 0, "{:?}", lines(&loaded));
        let agent = &loaded.roster.agents[0];
        for source in [agent.work_source.as_ref(), agent.schedules[0].work_source.as_deref()] {
            let Some(ConfiguredSource::Github { repo, .. }) = source else { panic!("{source:?}") };
            assert_eq!(repo.as_deref(), Some("o/r"));
        }
    }
    let own = text.replace("{type: github}", "{type: github, repo: own/one}");
    let loaded = load_text(&own);
    let Some(ConfiguredSource::Github { repo, .. }) = &loaded.roster.agents[0].work_source else { panic!() };
    assert_eq!(repo.as_deref(), Some("own/one"));
    let odd = text.replace("repo: o/r", "repo: https://example.com/o/r");
    assert_eq!(load_text(&odd).errors(), 1);
}

#[test]
fn agents_with_nothing_to_do_are_reported() {
    let warned = |lines: &str| {
        let problems = problems("cowhand.yaml", &agent(lines));
        problems.iter().any(|line| line.contains("warning: `a` has nothing to do"))
    };
    assert_eq!(
        problems("cowhand.yaml", &agent("model: opus")),
        [
            "cowhand.yaml:2:11 warning: `a` has nothing to do: it has no schedules and no prompt | give it `schedules`, or run it by hand: `cowhand trigger a -p PROMPT`"
        ]
    );
    for (lines, expected) in [
        ("schedules: {}", true),
        ("model: opus", true),
        ("work_source: {type: github, repo: o/r}", true),
        ("hooks: {after_run: []}", true),
        ("timeout: 5m\nretry: {max_attempts: 2}", true),
        ("permission_mode: plan", false),
        ("schedules: {s: {type: manual}}", false),
        ("default_prompt: Go.", false),
        ("system_prompt: You review.", false),
        ("runtime: command\ncommand: [make]", false),
        ("followups: {from: [a]}", false),
    ] {
        assert_eq!(warned(lines), expected, "{lines}");
    }
}
