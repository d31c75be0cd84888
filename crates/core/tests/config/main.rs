//! Loading of config files into fleets or problems, through the public API of the library.

#![expect(clippy::unwrap_used, reason = "a test that cannot go on fails")]

mod adopting;
mod budgets;
mod calendar;
mod chat;
mod composing;
mod herdctl;
mod hints;
mod hostile;
mod mistakes;
mod nodes;
mod notifications;
mod one_pass;
mod prompts;
mod properties;
mod providers;
mod reloads;
mod seeds;
mod side_effects;
mod trust;
mod unused;
mod web;
mod web_addresses;
mod work_sources;
mod workspaces;

use std::io;
use std::path::Path;

use cowhand_core::config::problem::Severity;
use cowhand_core::config::{ConfigEnvironment, LoadedConfig, load, report};
use cowhand_core::policy::Zone;

/// Time at which the files are loaded.
const NOW: &str = "2026-01-05T12:00:00Z";

/// Loads files; the first one is the root file.
fn load_files(files: &[(&str, &str)], env: &[(&str, &str)]) -> LoadedConfig {
    let mut read = |path: &Path| {
        let found = files.iter().find(|(name, _)| Path::new(name) == path);
        found.map(|(_, text)| (*text).to_owned()).ok_or_else(|| io::Error::from(io::ErrorKind::NotFound))
    };
    let env = |name: &str| env.iter().find(|(key, _)| *key == name).map(|(_, value)| (*value).to_owned());
    let zone = "Europe/Berlin".parse::<Zone>().unwrap();
    load(
        Path::new(files[0].0),
        ConfigEnvironment {
            read: &mut read,
            env: &env,
            is_folder: &|path| !path.ends_with("missing"),
            zone,
            now: NOW.parse().unwrap(),
        },
    )
}

fn load_text(text: &str) -> LoadedConfig {
    load_files(&[("cowhand.yaml", text)], &[])
}

fn rendered(loaded: &LoadedConfig) -> String {
    format!("{}\n{}", report::render(loaded, Path::new(""), false), report::summary(loaded))
}

/// Returns `file:line:column message` of each problem.
fn lines(loaded: &LoadedConfig) -> Vec<String> {
    let line = |problem: &cowhand_core::config::problem::Problem| {
        let file = loaded.sources.path(problem.at.file).display();
        let warning = if problem.severity == Severity::Warning { "warning: " } else { "" };
        format!("{file}:{}:{} {warning}{}", problem.at.line, problem.at.column, problem.message)
    };
    loaded.problems.iter().map(line).collect()
}

#[track_caller]
fn fine(loaded: &LoadedConfig) {
    assert_eq!(loaded.errors(), 0, "{}", rendered(loaded));
}
