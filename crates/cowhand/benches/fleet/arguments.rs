//! The arguments of `scripts/bench`.

use std::path::PathBuf;

use super::{Bench, FIGURE_GROUPS, FigureGroup};

pub(crate) const HELP: &str = "\
usage: scripts/bench [--quick] [--program PATH] [GROUP…]
       scripts/bench --list

Measures cowhand, and in the same run the limit of the same work. Prints a table, and writes latest.json and growth.svg
to target/bench. The earlier latest.json becomes previous.json, and the table shows the change.

  --quick         fewer samples and smaller sizes, in less than three minutes
  --program PATH  measures this program, and not the one of this build
  --list          lists the groups of figures
  GROUP…          measures only these groups
";

/// What a person asks for.
pub(crate) enum Request {
    Help,
    List,
    Measure { bench: Bench, groups: Vec<&'static FigureGroup> },
}

pub(crate) fn read(words: Vec<String>) -> Result<Request, String> {
    let mut bench = Bench { program: PathBuf::from(env!("CARGO_BIN_EXE_cowhand")), quick: false };
    let mut groups = Vec::new();
    let mut words = words.into_iter();
    while let Some(word) = words.next() {
        match word.as_str() {
            // Cargo adds this argument.
            "--bench" => {}
            "--help" | "-h" => return Ok(Request::Help),
            "--list" => return Ok(Request::List),
            "--quick" => bench.quick = true,
            "--program" => bench.program = program(words.next())?,
            option if option.starts_with('-') => return Err(format!("there is no option {option}")),
            name => groups.push(group(name)?),
        }
    }
    if groups.is_empty() {
        groups.extend(FIGURE_GROUPS);
    }
    Ok(Request::Measure { bench, groups })
}

fn group(name: &str) -> Result<&'static FigureGroup, String> {
    let found = FIGURE_GROUPS.iter().find(|group| group.name == name);
    found.ok_or_else(|| format!("there is no group '{name}'; --list names the groups"))
}

fn program(path: Option<String>) -> Result<PathBuf, String> {
    let path = path.ok_or("--program needs a path")?;
    std::fs::canonicalize(&path).map_err(|error| format!("{path}: {error}"))
}
