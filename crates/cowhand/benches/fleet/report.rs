//! The table and the JSON of a run.

use std::collections::HashMap;
use std::fmt::Write as _;
use std::fs;
use std::path::{Path, PathBuf};

use serde_json::{Value, json};

use super::Bench;
use super::chart;
use super::figure::{Figure, with_unit};
use super::machine;

/// Figures of a run, with those of the run before.
pub(crate) struct Report {
    folder: PathBuf,
    quick: bool,
    machine: Value,
    figures: Vec<(&'static str, Figure)>,
    failed: Vec<&'static str>,
    previous: HashMap<String, f64>,
}

impl Report {
    pub(crate) fn new(bench: &Bench) -> Self {
        let folder = target_folder().join("bench");
        let previous = read(&folder.join("latest.json"));
        let machine = machine::describe(bench);
        Self { folder, quick: bench.quick, machine, figures: Vec::new(), failed: Vec::new(), previous }
    }

    pub(crate) fn add(&mut self, group: &'static str, figures: Vec<Figure>) {
        for figure in &figures {
            let value = figure.value.map_or("refused".to_owned(), |value| with_unit(value, figure.unit));
            eprintln!("      {}: {value}  {}", figure.name, figure.result());
        }
        self.figures.extend(figures.into_iter().map(|figure| (group, figure)));
    }

    pub(crate) fn fail(&mut self, group: &'static str) {
        self.failed.push(group);
    }

    pub(crate) fn has_failures(&self) -> bool {
        !self.failed.is_empty()
    }

    /// Prints the table, and writes the files.
    pub(crate) fn finish(&self) {
        let all: Vec<&Figure> = self.figures.iter().map(|(_, figure)| figure).collect();
        print_table(&self.table(&all));
        for group in &self.failed {
            println!("{group}: not measured");
        }
        fs::create_dir_all(&self.folder).unwrap();
        let (latest, chart) = (self.folder.join("latest.json"), self.folder.join("growth.svg"));
        fs::rename(&latest, self.folder.join("previous.json")).ok();
        fs::write(&latest, format!("{:#}\n", self.json())).unwrap();
        fs::write(&chart, chart::draw(&all)).unwrap();
        println!("\n{}\n{}", latest.display(), chart.display());
    }

    fn table(&self, figures: &[&Figure]) -> Vec<[String; 8]> {
        let heading = ["figure", "cowhand", "limit", "ratio", "target", "result", "change", "note"];
        let row = |figure: &&Figure| {
            [
                figure.name.clone(),
                figure.value.map_or("refused".to_owned(), |value| with_unit(value, figure.unit)),
                figure.limit.map(|limit| with_unit(limit, figure.unit)).unwrap_or_default(),
                figure.ratio().map(|ratio| format!("{ratio:.2}×")).unwrap_or_default(),
                figure.target_text(),
                figure.result(),
                self.change(figure),
                figure.note.clone().unwrap_or_default(),
            ]
        };
        std::iter::once(heading.map(str::to_owned)).chain(figures.iter().map(row)).collect()
    }

    /// Returns the change since the run before, in percent.
    fn change(&self, figure: &Figure) -> String {
        match (figure.value, self.previous.get(&figure.name)) {
            (Some(value), Some(before)) if *before > 0.0 => {
                format!("{:+.0} %", (value / before - 1.0) * 100.0)
            }
            _ => String::new(),
        }
    }

    fn json(&self) -> Value {
        let figures: Vec<Value> =
            self.figures.iter().map(|(group, figure)| self.figure(group, figure)).collect();
        json!({
            "time": jiff::Timestamp::now().to_string(),
            "quick": self.quick,
            "machine": self.machine,
            "failed": self.failed,
            "figures": figures,
        })
    }

    fn figure(&self, group: &str, figure: &Figure) -> Value {
        json!({
            "group": group,
            "name": figure.name,
            "unit": figure.unit,
            "value": figure.value,
            "limit": figure.limit,
            "ratio": figure.ratio(),
            "target": figure.target_text(),
            "result": figure.result(),
            "distance": figure.distance(),
            "before": self.previous.get(&figure.name),
            "note": figure.note,
        })
    }
}

/// Returns the target folder. The program of a benchmark is at `target/PROFILE/deps/NAME`.
fn target_folder() -> PathBuf {
    let program = std::env::current_exe().unwrap();
    program.ancestors().nth(3).expect("a program of cargo's").to_owned()
}

/// Returns the figures of an earlier run by name; none if there is no earlier run.
fn read(path: &Path) -> HashMap<String, f64> {
    let text = fs::read_to_string(path).unwrap_or_default();
    let run: Value = serde_json::from_str(&text).unwrap_or_default();
    let figure = |figure: &Value| Some((figure["name"].as_str()?.to_owned(), figure["value"].as_f64()?));
    run["figures"].as_array().into_iter().flatten().filter_map(figure).collect()
}

/// Prints columns: the first and the last are aligned to the left, the others to the right.
fn print_table(rows: &[[String; 8]]) {
    let width = |column: usize| rows.iter().map(|row| row[column].chars().count()).max().unwrap_or_default();
    let widths: Vec<usize> = (0..8).map(width).collect();
    println!();
    for row in rows {
        let mut line = format!("{:<1$}", row[0], widths[0]);
        for column in 1..7 {
            write!(line, "  {:>1$}", row[column], widths[column]).unwrap();
        }
        println!("{}", format!("{line}  {}", row[7]).trim_end());
    }
}
