//! The problems (errors and warnings) of a config. They are collected, so that one problem does not hide other
//! problems.

use std::collections::{HashMap, HashSet};
use std::fmt::Write as _;

use super::node::{FileId, Location};

#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Severity {
    Error,
    Warning,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Problem {
    pub severity: Severity,
    pub at: Location,
    /// Path of the key, for example `agents[3].schedules.nightly.prompt`; empty for the file as a whole.
    pub key: String,
    pub message: String,
    /// Correct form or next step.
    pub help: Option<String>,
    /// True if there is a secret on the same line, so that the line may not be shown.
    pub on_secret_line: bool,
}

impl Problem {
    pub fn error(at: Location, message: impl Into<String>) -> Self {
        let (severity, key, message) = (Severity::Error, String::new(), message.into());
        Self { severity, at, key, message, help: None, on_secret_line: false }
    }

    pub fn warning(at: Location, message: impl Into<String>) -> Self {
        Self { severity: Severity::Warning, ..Self::error(at, message) }
    }

    #[must_use]
    pub fn key(self, key: impl Into<String>) -> Self {
        Self { key: key.into(), ..self }
    }

    /// Returns the path of the key from one level above; `step` is a key, or `[index]`.
    pub fn key_below(&self, step: &str) -> String {
        let dot = if self.key.is_empty() || self.key.starts_with('[') { "" } else { "." };
        format!("{step}{dot}{}", self.key)
    }

    #[must_use]
    pub fn help(self, help: impl Into<Option<String>>) -> Self {
        Self { help: help.into(), ..self }
    }
}

#[derive(Debug, Clone, Default)]
pub struct Problems {
    all: Vec<Problem>,
    errors: usize,
    secret_lines: HashSet<(FileId, u32)>,
}

impl Problems {
    pub fn add(&mut self, problem: Problem) {
        self.errors += usize::from(problem.severity == Severity::Error);
        self.all.push(problem);
    }

    pub fn len(&self) -> usize {
        self.all.len()
    }

    pub fn is_empty(&self) -> bool {
        self.all.is_empty()
    }

    /// Adds the problems and the secret lines of a part of the config.
    pub(super) fn extend(&mut self, part: Self) {
        self.errors += part.errors;
        self.all.extend(part.all);
        self.secret_lines.extend(part.secret_lines);
    }

    /// Prefixes the keys of the problems from index `from` on, which were found below `key`.
    pub fn prefix_keys(&mut self, from: usize, key: &str) {
        for problem in &mut self.all[from..] {
            problem.key = problem.key_below(key);
        }
    }

    /// Records that there is a secret at this location.
    pub fn secret_at(&mut self, at: Location) {
        self.secret_lines.insert((at.file, at.line));
    }

    pub fn errors(&self) -> usize {
        self.errors
    }

    /// Returns the problems sorted by file and line, each once. A section is checked as written and again after
    /// merging, and defaults once for each agent, so the same problem is often found several times.
    pub fn finish(mut self) -> Vec<Problem> {
        // The sort is stable, so the first of two equal problems remains. Its key is the path of the key from the
        // file's root.
        self.all.sort_by(|a, b| (a.at, a.severity, &a.message).cmp(&(b.at, b.severity, &b.message)));
        self.all.dedup_by(|a, b| a.at == b.at && a.message == b.message);
        for problem in &mut self.all {
            problem.on_secret_line = self.secret_lines.contains(&(problem.at.file, problem.at.line));
        }
        join_repeated_warnings(self.all)
    }
}

/// Joins equal warnings of a file: if fifty agents cause the same warning, it is reported once, at the first agent,
/// with the number of other places.
fn join_repeated_warnings(problems: Vec<Problem>) -> Vec<Problem> {
    let mut first: HashMap<(FileId, String), (usize, usize)> = HashMap::new();
    let mut kept: Vec<Problem> = Vec::new();
    for problem in problems {
        if problem.severity == Severity::Warning {
            let place = first.entry((problem.at.file, problem.message.clone())).or_insert((kept.len(), 0));
            place.1 += 1;
            if place.1 > 1 {
                continue;
            }
        }
        kept.push(problem);
    }
    for (place, count) in first.into_values().filter(|(_, count)| *count > 1) {
        let places = if count == 2 { "place" } else { "places" };
        _ = write!(kept[place].message, " (here and in {} more {places} of this file)", count - 1);
    }
    kept
}
