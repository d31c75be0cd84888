//! The arguments of `scripts/bench`.

use std::path::PathBuf;

use super::{Bench, ROWS, Row};

pub(crate) const HELP: &str = "\
usage: scripts/bench [--quick] [--program PATH] [ROW…]
       scripts/bench --list

Measures cowhand, and in the same run the limit of the same work. Prints a table, and writes latest.json and growth.svg
to target/bench. The earlier latest.json becomes previous.json, and the table shows the change.

  --quick         fewer samples and smaller sizes, in less than three minutes
  --program PATH  measures this program, and not the one of this build
  --list          lists the rows
  ROW…            measures only these rows
";

/// What a person asks for.
pub(crate) enum Request {
    Help,
    List,
    Measure { bench: Bench, rows: Vec<&'static Row> },
}

pub(crate) fn read(words: Vec<String>) -> Result<Request, String> {
    let mut bench = Bench { program: PathBuf::from(env!("CARGO_BIN_EXE_cowhand")), quick: false };
    let mut rows = Vec::new();
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
            name => rows.push(row(name)?),
        }
    }
    if rows.is_empty() {
        rows.extend(ROWS);
    }
    Ok(Request::Measure { bench, rows })
}

fn row(name: &str) -> Result<&'static Row, String> {
    let found = ROWS.iter().find(|row| row.name == name);
    found.ok_or_else(|| format!("there is no row '{name}'; --list names the rows"))
}

fn program(path: Option<String>) -> Result<PathBuf, String> {
    let path = path.ok_or("--program needs a path")?;
    std::fs::canonicalize(&path).map_err(|error| format!("{path}: {error}"))
}
