//! Formatting of problems: for people with the line that has the problem, for a log on one line each, and for programs
//! as JSON.

use std::path::Path;

use annotate_snippets::{AnnotationKind, Group, Level, Origin, Renderer, Snippet};
use serde_json::{Value as Json, json};

use super::load::LoadedConfig;
use super::node::Sources;
use super::problem::{Problem, Severity};

/// Renders one block for each problem. `colour` adds the colours of a terminal; paths are relative to `base`.
pub fn render(loaded: &LoadedConfig, base: &Path, colour: bool) -> String {
    let renderer = if colour { Renderer::styled() } else { Renderer::plain() };
    let blocks: Vec<String> = loaded
        .problems
        .iter()
        .map(|problem| {
            let block = renderer.render(&[group(problem, &loaded.sources, base)]);
            let shows_line = shows_line(problem, &loaded.sources);
            if shows_line {
                return block + "\n";
            }
            // A block without a source line has no margin, so its further lines are indented here. Nor does it contain
            // the label of the underlined part, which is the key.
            let key = Some(&problem.key).filter(|key| !key.is_empty());
            let key = key.map(|key| format!("\n  = key: {key}")).unwrap_or_default();
            block.replace('\n', "\n ") + &key + "\n"
        })
        .collect();
    blocks.join("\n")
}

fn group<'a>(problem: &'a Problem, sources: &'a Sources, base: &Path) -> Group<'a> {
    let level = match problem.severity {
        Severity::Error => Level::ERROR,
        Severity::Warning => Level::WARNING,
    };
    let path = shown_path(problem, sources, base);
    let title = level.primary_title(problem.message.as_str());
    let (text, start, end) = line_of(problem, sources);
    let group = if problem.at.line == 0 {
        title.element(Origin::path(path))
    } else if !shows_line(problem, sources) {
        let (line, column) = (problem.at.line as usize, problem.at.column as usize);
        title.element(Origin::path(path).line(line).char_column(column))
    } else {
        let annotation = AnnotationKind::Primary.span(start..end).label(problem.key.as_str());
        let snippet = Snippet::source(text).line_start(problem.at.line as usize).path(path);
        title.element(snippet.annotation(annotation))
    };
    match &problem.help {
        Some(help) => group.element(Level::HELP.message(help.as_str())),
        None => group,
    }
}

/// Checks whether the line that has the problem is shown.
fn shows_line(problem: &Problem, sources: &Sources) -> bool {
    problem.at.line > 0 && !problem.on_secret_line && line_of(problem, sources).0.len() <= MAX_LINE_LENGTH
}

/// Maximum length of a shown line, in bytes; a longer line would hide the message.
const MAX_LINE_LENGTH: usize = 1_000;

/// Returns the line that has the problem, and the start and end of the part to underline, as bytes of this line. Only
/// this line is passed to the renderer, because the renderer would scan a large file again for each problem.
fn line_of<'a>(problem: &Problem, sources: &'a Sources) -> (&'a str, usize, usize) {
    let text = sources.text(problem.at.file);
    let mut start = (problem.at.start as usize).min(text.len());
    while !text.is_char_boundary(start) {
        start -= 1;
    }
    let begin = text[..start].rfind('\n').map_or(0, |at| at + 1);
    let line = text[begin..].lines().next().unwrap_or_default();
    let end = (problem.at.end as usize).clamp(start, begin + line.len().max(start - begin));
    (line, start - begin, end - begin)
}

fn shown_path(problem: &Problem, sources: &Sources, base: &Path) -> String {
    let path = sources.path(problem.at.file);
    path.strip_prefix(base).unwrap_or(path).display().to_string()
}

/// Returns each warning on one line, for a log: `cowhand.yaml:3:5: message; help`.
pub fn warnings(loaded: &LoadedConfig, base: &Path) -> Vec<String> {
    let warnings = loaded.problems.iter().filter(|problem| problem.severity == Severity::Warning);
    let line = |problem: &Problem| {
        let path = shown_path(problem, &loaded.sources, base);
        let place = match problem.at.line {
            0 => path,
            line => format!("{path}:{line}:{}", problem.at.column),
        };
        let help = problem.help.as_ref().map(|help| format!("; {help}")).unwrap_or_default();
        format!("{place}: {}{help}", problem.message)
    };
    warnings.map(line).collect()
}

/// Returns a summary: `3 errors, 2 warnings in 4 files`, or `ok: 50 agents, 83 schedules`.
pub fn summary(loaded: &LoadedConfig) -> String {
    let (errors, warnings) = (loaded.errors(), loaded.warnings());
    let files = counted(loaded.sources.len(), "file");
    match (errors, warnings) {
        (0, 0) => format!("ok: {}", contents(loaded)),
        (0, _) => format!("ok: {}; {}", contents(loaded), counted(warnings, "warning")),
        (_, 0) => format!("{} in {files}", counted(errors, "error")),
        _ => format!("{}, {} in {files}", counted(errors, "error"), counted(warnings, "warning")),
    }
}

fn contents(loaded: &LoadedConfig) -> String {
    let schedules = loaded.roster.agents.iter().map(|agent| agent.schedules.len()).sum();
    format!("{}, {}", counted(loaded.roster.agents.len(), "agent"), counted(schedules, "schedule"))
}

fn counted(count: usize, noun: &str) -> String {
    format!("{count} {noun}{}", if count == 1 { "" } else { "s" })
}

/// Returns the problems as JSON, for programs.
pub fn as_json(loaded: &LoadedConfig, base: &Path) -> Json {
    let problems: Vec<Json> = loaded
        .problems
        .iter()
        .map(|problem| {
            json!({
                "severity": match problem.severity {
                    Severity::Error => "error",
                    Severity::Warning => "warning",
                },
                "file": shown_path(problem, &loaded.sources, base),
                "line": problem.at.line,
                "column": problem.at.column,
                "key": problem.key,
                "message": problem.message,
                "help": problem.help,
            })
        })
        .collect();
    let schedules: usize = loaded.roster.agents.iter().map(|agent| agent.schedules.len()).sum();
    json!({
        "ok": loaded.errors() == 0,
        "errors": loaded.errors(),
        "warnings": loaded.warnings(),
        "files": loaded.sources.len(),
        "agents": loaded.roster.agents.len(),
        "schedules": schedules,
        "problems": problems,
    })
}
