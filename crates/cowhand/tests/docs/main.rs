//! Tests of the docs: each YAML block is checked, and each command in README.md and docs is run or parsed.

#![expect(clippy::unwrap_used, reason = "a test that cannot go on fails")]

mod commands;
mod markdown;
mod program;
mod words;
mod yaml;

use std::path::{Path, PathBuf};

use commands::{Check, Counts};
use markdown::Page;
use program::Program;
use yaml::Places;

fn pages() -> Vec<Page> {
    let root: PathBuf = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
    let entries = std::fs::read_dir(root.join("docs")).unwrap();
    let files = entries.map(|entry| entry.unwrap().path());
    let pages = files.filter(|file| file.extension().is_some_and(|extension| extension == "md"));
    let name = |page: PathBuf| format!("docs/{}", page.file_name().unwrap().to_str().unwrap());
    let mut names: Vec<String> = pages.map(name).collect();
    names.push("README.md".to_owned());
    names.sort();
    names.iter().map(|name| Page::read(&root, name)).collect()
}

/// Returns the verbs that `cowhand --help` lists.
fn verbs(program: &Program) -> Vec<String> {
    listed(program, &["--help"])
}

/// Returns the verbs in a help text.
fn listed(program: &Program, arguments: &[&str]) -> Vec<String> {
    let help = program.run(arguments, &[]).stdout;
    let listed =
        help.lines().skip_while(|line| *line != "Commands:").skip(1).take_while(|line| !line.is_empty());
    listed.filter_map(|line| line.split_whitespace().next()).map(str::to_owned).collect()
}

fn check_commands(
    page: &Page,
    program: &mut Program,
    verbs: &[String],
    problems: &mut Vec<String>,
) -> Counts {
    Check { page, program, verbs, problems, counts: Counts::default() }.all()
}

#[test]
fn each_config_is_accepted() {
    let places = Places::of(&Program::new());
    let (mut problems, mut total) = (Vec::new(), 0);
    for page in pages() {
        problems.extend(page.problems.iter().cloned());
        let count = yaml::check(&page, &places, &mut problems);
        println!("{}: {count} blocks of config", page.name);
        total += count;
    }
    println!("all pages: {total} blocks of config");
    assert!(problems.is_empty(), "{}", problems.join("\n\n"));
    assert_ne!(total, 0);
}

#[test]
fn each_command_is_accepted() {
    let mut program = Program::new();
    let verbs = verbs(&program);
    let (mut problems, mut total) = (Vec::new(), Counts::default());
    for page in pages() {
        let Counts { run, parsed } = check_commands(&page, &mut program, &verbs, &mut problems);
        println!("{}: {run} commands run, {parsed} parsed", page.name);
        total.run += run;
        total.parsed += parsed;
    }
    println!("all pages: {} commands run, {} parsed", total.run, total.parsed);
    assert!(problems.is_empty(), "{}", problems.join("\n\n"));
    assert!(total.run > 0 && total.parsed > 0);
}

/// docs/cli.md promises to list every verb.
#[test]
fn cli_page_lists_each_verb() {
    let program = Program::new();
    let pages = pages();
    let page = pages.iter().find(|page| page.name == "docs/cli.md").unwrap();
    let spans = page.rows.iter().filter_map(|row| row.cells.first()?.first()?.strip_prefix("cowhand "));
    let described: Vec<String> = spans.map(words::verb).collect();
    let mut missing = Vec::new();
    for verb in verbs(&program).into_iter().filter(|verb| verb != "help") {
        let below = listed(&program, &[&verb, "--help"]);
        let below: Vec<String> =
            below.iter().filter(|below| *below != "help").map(|below| format!("{verb} {below}")).collect();
        let all = if below.is_empty() { vec![verb] } else { below };
        missing.extend(all.into_iter().filter(|verb| !described.contains(verb)));
    }
    assert_eq!(missing, [""; 0]);
}

/// docs/cli.md promises to describe what every verb with `--json` prints.
#[test]
fn cli_page_describes_the_json_of_each_verb() {
    let program = Program::new();
    let pages = pages();
    let page = pages.iter().find(|page| page.name == "docs/cli.md").unwrap();
    let verbs = verbs(&program);
    let mut described = Vec::new();
    for row in page.rows.iter().filter(|row| row.head == "verb") {
        let spans: Vec<&str> = row.cells[0].iter().map(String::as_str).collect();
        let mut group = "";
        for span in spans.iter().filter(|span| !span.starts_with("cowhand ")) {
            let verb = words::verb(span);
            let first = verb.split(' ').next().unwrap();
            // In a cell with `schedule show` and `enable`, the second verb is `schedule enable`.
            if verbs.iter().any(|verb| verb == first) {
                group = span.split_once(' ').map_or("", |(group, _)| group);
                described.push(verb);
            } else {
                described.push(format!("{group} {verb}"));
            }
        }
    }
    let mut missing = Vec::new();
    for verb in verbs.iter().filter(|verb| *verb != "help") {
        let below = listed(&program, &[verb, "--help"]);
        let below = below.iter().filter(|below| *below != "help").map(|below| format!("{verb} {below}"));
        for verb in std::iter::once(verb.clone()).chain(below) {
            let words: Vec<&str> = verb.split(' ').chain(["--help"]).collect();
            let help = program.run(&words, &[]).stdout;
            // A verb with further verbs below it passes its options on to them.
            let has_json = help.contains("--json") && !help.contains("\nCommands:\n");
            if has_json && !described.contains(&verb) {
                missing.push(verb);
            }
        }
    }
    assert_eq!(missing, [""; 0]);
}

#[test]
fn each_fragment_is_placed_by_its_keys() {
    let places = Places::of(&Program::new());
    let fragments = [
        "server: {enabled: false}",
        "enabled: false\nlisten: 127.0.0.1:0",
        "model: opus\nmisfire: run_once",
        "name: builder\nmodel: opus",
        "model: opus\nschedules:\n  nightly: {type: cron, cron: 0 3 * * *}",
        "type: cron\ncron: 0 3 * * *",
        "nightly:\n  type: cron\n  cron: 0 3 * * *\nhourly:\n  type: interval\n  interval: 1h",
        "type: files\npath: tasks",
        "type: shell\ncommand: cat",
        "- type: shell\n  command: cat\n- type: shell\n  command: ls",
        "- name: coder\n- name: builder\n  model: opus",
    ];
    for fragment in fragments {
        assert_eq!(problems_of(&places, &format!("```yaml\n{fragment}\n```\n")), [""; 0], "{fragment}");
    }
}

/// Returns the problems of a page, each as it is reported.
fn problems_of(places: &Places, text: &str) -> Vec<String> {
    let mut program = Program::new();
    let verbs = verbs(&program);
    let page = Page::of("page.md", text);
    let mut problems = page.problems.clone();
    yaml::check(&page, places, &mut problems);
    check_commands(&page, &mut program, &verbs, &mut problems);
    problems
}

/// Each text has one mistake, and exactly one problem names its place and its cause.
#[test]
fn mistakes_in_docs_are_reported() {
    let places = Places::of(&Program::new());
    let table = [
        ("```yaml\nagents:\n  - name: coder\n    modle: opus\n```", "page.md:1: error: unknown key"),
        ("Text.\n\n```yaml\ntimeout: soon\n```", "page.md:3: error:"),
        (
            "```yaml\nagents:\n  - name: coder\n    work_source: {type: files, path: tasks}\n```",
            "page.md:1: warning: nothing takes items",
        ),
        ("```yaml\nservices: {web: {image: node}}\n```", "page.md:1: the keys of the block are not"),
        ("<!-- docs-test: refused -->\n```yaml\nagents: []\n```", "page.md:2: the block is accepted"),
        (
            "<!-- docs-test: skip -->\n```yaml\nagents: []\n```",
            "page.md:2: the marker `skip` is none of this",
        ),
        ("<!-- docs-test: output -->\n```yaml\nagents: []\n```", "page.md:2: the marker `output` is none of"),
        ("<!-- docs-test: refused -->\nText.", "page.md:1: the marker `refused` is above no block"),
        ("```\n$ cowhand status\n```", "page.md:1: the language"),
        ("```console\n$ cowhand sttaus\n```", "page.md:2: `cowhand sttaus`: ends with Some(2)"),
        (
            "```sh\nls\ncowhand jobs --colour > file\n```",
            "page.md:3: `cowhand jobs --colour > file`: ends with Some(2)",
        ),
        (
            "```sh\ncowhand start --listen nowhere\n```",
            "page.md:2: `cowhand start --listen nowhere`: ends with Some(2)",
        ),
        ("```sh\ncowhand job\n```", "page.md:2: `cowhand job`: ends with Some(2)"),
        ("```sh\ncowhand job THING\n```", "page.md:2: `cowhand job THING`: `THING` stands for nothing known"),
        (
            "<!-- docs-test: output -->\n```console\n$ cowhand jobs\nnone\n```",
            "page.md:3: `cowhand jobs`: prints",
        ),
        (
            "| verb | use |\n|---|---|\n| `cowhand look` | looks |",
            "page.md:3: `cowhand look`: ends with Some(2)",
        ),
        (
            "| verb | use |\n|---|---|\n| `cowhand jobs` | `--limit many` |",
            "page.md:3: `cowhand jobs --limit many`: error",
        ),
        (
            "| verb | shape |\n|---|---|\n| `work show`, `hide` | x |",
            "page.md:3: `cowhand work hide --json`: error",
        ),
        ("Use\n`cowhand schedule\nshow --all`.", "page.md:2: `cowhand schedule show --all`: error"),
        ("Use `events --old`.", "page.md:1: `cowhand events --old`: error"),
    ];
    for (text, expected) in table {
        let problems = problems_of(&places, &format!("{text}\n"));
        assert!(problems.len() == 1 && problems[0].starts_with(expected), "{text}\n{problems:#?}");
    }
}
