//! The docs say what the program does: each YAML block and each command in README.md and docs is tried out.

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
use yaml::Keys;

fn pages() -> Vec<Page> {
    let root: PathBuf = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
    let entries = std::fs::read_dir(root.join("docs")).unwrap();
    let names = entries.map(|entry| format!("docs/{}", entry.unwrap().file_name().to_str().unwrap()));
    let mut names: Vec<String> = names.filter(|name| name.ends_with(".md")).collect();
    names.push("README.md".to_owned());
    names.sort();
    names.iter().map(|name| Page::read(&root, name)).collect()
}

/// Returns the verbs that `cowhand --help` lists.
fn verbs(program: &Program) -> Vec<String> {
    let help = program.run(&["--help"], &[]).stdout;
    let listed = help.lines().skip_while(|line| *line != "Commands:").skip(1).take_while(|line| !line.is_empty());
    listed.filter_map(|line| line.split_whitespace().next()).map(str::to_owned).collect()
}

fn check_commands(page: &Page, program: &mut Program, verbs: &[String], problems: &mut Vec<String>) -> Counts {
    Check { page, program, verbs, problems, counts: Counts::default() }.all()
}

#[test]
fn each_config_is_accepted() {
    let keys = Keys::of(&Program::new());
    let (mut problems, mut total) = (Vec::new(), 0);
    for page in pages() {
        problems.extend(page.problems.iter().cloned());
        let count = yaml::check(&page, &keys, &mut problems);
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
