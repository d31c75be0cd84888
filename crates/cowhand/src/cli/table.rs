//! Tables for the terminal. Columns are as wide as their content, measured in terminal columns. A table that is wider
//! than the terminal is shortened: cells are cut, and optional columns are left out.

use anstyle::Style;
use cowhand_core::id::JobId;
use unicode_width::{UnicodeWidthChar, UnicodeWidthStr};

use super::print::{cell, line, width};
use super::style::{HEADING, style_of, styled};

#[derive(Debug)]
pub(super) struct Table {
    head: Vec<&'static str>,
    rows: Vec<Vec<String>>,
    /// Columns that are left out on a narrow terminal, in this order, but columns without content first.
    optional: &'static [&'static str],
}

/// Space between two columns.
const COLUMN_GAP: usize = 2;
/// Columns up to this width are never cut, except the last column. Examples are columns with a status, a time, a number
/// or the end of a job's id.
const MAX_UNCUT_WIDTH: usize = 12;

/// Steps by which a table that is too wide is reduced: first the text in its last column is cut, then the dates in ids
/// of jobs are left out, then long names are cut. If that is not enough, a column is left out, and the steps begin
/// again.
const SHRINK_STEPS: [ShrinkStep; 4] = [
    ShrinkStep { whole_ids: true, name: usize::MAX, last: 24 },
    ShrinkStep { whole_ids: false, name: usize::MAX, last: 24 },
    ShrinkStep { whole_ids: false, name: 20, last: 20 },
    ShrinkStep { whole_ids: false, name: MAX_UNCUT_WIDTH, last: 10 },
];

/// Steps for a table that is too wide after `SHRINK_STEPS` even if all its optional columns are left out. These steps
/// begin with all columns again.
const FINAL_SHRINK_STEPS: [ShrinkStep; 3] = [
    ShrinkStep { whole_ids: false, name: 8, last: 10 },
    ShrinkStep { whole_ids: false, name: 6, last: 0 },
    ShrinkStep { whole_ids: false, name: 3, last: 0 },
];

#[derive(Debug, Clone, Copy)]
struct ShrinkStep {
    whole_ids: bool,
    /// Smallest width of a name.
    name: usize,
    /// Smallest width of the last column.
    last: usize,
}

impl Table {
    pub(super) fn new(head: &[&'static str]) -> Self {
        Self { head: head.to_vec(), rows: Vec::new(), optional: &[] }
    }

    /// Sets the columns that are left out on a narrow terminal, the least important one first.
    pub(super) fn optional_columns(self, optional: &'static [&'static str]) -> Self {
        Self { optional, ..self }
    }

    /// Adds a row. Every cell becomes one line without control characters, because agents and outside systems choose
    /// some of the texts. A cell with a status is printed in the colour of the status.
    pub(super) fn row(&mut self, cells: impl IntoIterator<Item = String>) {
        self.rows.push(cells.into_iter().map(|text| cell(&text)).collect());
    }

    pub(super) fn print(self) {
        for (number, row) in self.fitting(width()).into_iter().enumerate() {
            let mut text = String::new();
            let mut gap = 0;
            for (cell, room) in row {
                let taken = cell.width();
                if taken > 0 {
                    text.push_str(&" ".repeat(gap));
                    let style = if number == 0 { HEADING } else { style_of(&cell) };
                    text.push_str(&if style == Style::new() { cell } else { styled(cell, style) });
                    gap = 0;
                }
                gap += room.saturating_sub(taken) + COLUMN_GAP;
            }
            line(text);
        }
    }

    /// Returns the head and the rows, shortened to the width of the terminal, each cell with the width of its column.
    /// Without a terminal nothing is shortened.
    fn fitting(&self, terminal: Option<usize>) -> Vec<Vec<(String, usize)>> {
        let head = self.head.iter().map(|name| (*name).to_owned()).collect();
        let all: Vec<Vec<String>> = std::iter::once(head).chain(self.rows.iter().cloned()).collect();
        let Some(terminal) = terminal else {
            let widths = natural_widths(&all, true);
            return cut_to(all, &widths, true);
        };
        let mut tables = vec![all];
        for column in self.left_out(&tables[0]) {
            let narrower = without(&tables[tables.len() - 1], column);
            tables.push(narrower);
        }
        let fits = |all: &Vec<Vec<String>>, steps: &[ShrinkStep]| {
            steps.iter().find_map(|step| Some((widths(all, *step, terminal)?, step.whole_ids)))
        };
        for steps in [&SHRINK_STEPS[..], &FINAL_SHRINK_STEPS[..]] {
            for all in &tables {
                if let Some((widths, whole_ids)) = fits(all, steps) {
                    return cut_to(all.clone(), &widths, whole_ids);
                }
            }
        }
        let all = tables.pop().unwrap_or_default();
        let widths: Vec<usize> =
            natural_widths(&all, false).into_iter().map(|width| width.min(MAX_UNCUT_WIDTH)).collect();
        cut_to(all, &widths, false)
    }

    /// Returns the positions of the columns that can be left out, in the order in which they are left out. Each
    /// position is counted in a table without the earlier columns of this list.
    fn left_out(&self, all: &[Vec<String>]) -> Vec<usize> {
        let mut head = self.head.clone();
        let is_empty = |name: &&&'static str| {
            let column = self.head.iter().position(|head| *head == **name);
            all.iter()
                .skip(1)
                .all(|row| column.and_then(|column| row.get(column)).is_none_or(String::is_empty))
        };
        let (empty, full): (Vec<_>, Vec<_>) = self.optional.iter().partition(is_empty);
        let position = |name: &'static str| {
            let position = head.iter().position(|head| *head == name)?;
            head.remove(position);
            Some(position)
        };
        empty.into_iter().chain(full).copied().filter_map(position).collect()
    }
}

fn without(rows: &[Vec<String>], column: usize) -> Vec<Vec<String>> {
    let rest = |row: &Vec<String>| {
        let cells = row.iter().enumerate().filter(|(index, _)| *index != column);
        cells.map(|(_, cell)| cell.clone()).collect()
    };
    rows.iter().map(rest).collect()
}

fn natural_widths(rows: &[Vec<String>], whole_ids: bool) -> Vec<usize> {
    let columns = rows.first().map_or(0, Vec::len);
    let width = |column: usize| {
        let cells = rows.iter().filter_map(|row| row.get(column));
        cells.map(|cell| displayed(cell, whole_ids).width()).max().unwrap_or_default()
    };
    (0..columns).map(width).collect()
}

/// Returns the widths of the columns at this step, or none if the table is still too wide.
fn widths(rows: &[Vec<String>], step: ShrinkStep, terminal: usize) -> Option<Vec<usize>> {
    let natural_widths = natural_widths(rows, step.whole_ids);
    let (last, names) = natural_widths.split_last()?;
    // Ids of jobs are never cut, even in the last column.
    let is_text = rows.iter().skip(1).filter_map(|row| row.last()).all(|cell| cell.parse::<JobId>().is_err());
    let min_last = if is_text { (*last).min(step.last) } else { *last };
    let names_cut_to = |max_width: usize| {
        let cut = |width: usize| if width > MAX_UNCUT_WIDTH { width.min(max_width) } else { width };
        names.iter().map(|width| cut(*width)).collect::<Vec<_>>()
    };
    let taken = |names: &[usize]| names.iter().map(|width| width + COLUMN_GAP).sum::<usize>();
    let widest = names.iter().copied().max().unwrap_or_default();
    let names = (step.name.min(widest)..=widest)
        .rev()
        .map(names_cut_to)
        .find(|names| taken(names) + min_last <= terminal)?;
    let room = terminal - taken(&names);
    let last = if room < 4 && *last > room { 0 } else { (*last).min(room) };
    Some(names.into_iter().chain([last]).collect())
}

fn cut_to(rows: Vec<Vec<String>>, widths: &[usize], whole_ids: bool) -> Vec<Vec<(String, usize)>> {
    let fit = |row: Vec<String>| {
        let cells = row.into_iter().zip(widths).enumerate();
        let cells = cells.map(|(column, (cell, width))| {
            let (cell, is_last) = (displayed(&cell, whole_ids), column + 1 == widths.len());
            (if is_last { cut_end(cell, *width) } else { cut(cell, *width) }, *width)
        });
        cells.collect()
    };
    rows.into_iter().map(fit).collect()
}

/// Returns the last six characters of a job's id if ids are not shown whole, and any other cell unchanged.
fn displayed(cell: &str, whole_ids: bool) -> &str {
    let is_id = !whole_ids && cell.starts_with("job-") && cell.parse::<JobId>().is_ok();
    if is_id { &cell[cell.len() - 6..] } else { cell }
}

/// Cuts a text. A name is cut in its middle, because many names have the same beginning. A text with spaces is cut at
/// its end, and so is every text if the width is below 8, which is too small for a cut in the middle.
fn cut(text: &str, width: usize) -> String {
    if text.width() <= width || text.contains(' ') || width < 8 {
        return cut_end(text, width);
    }
    let end = (width - 1) / 2;
    let reversed: String = text.chars().rev().collect();
    let tail: String = beginning(&reversed, end).chars().rev().collect();
    format!("{}…{tail}", beginning(text, width - 1 - end))
}

fn cut_end(text: &str, width: usize) -> String {
    match width {
        _ if text.width() <= width => text.to_owned(),
        0 => String::new(),
        _ => format!("{}…", beginning(text, width - 1)),
    }
}

/// Returns the beginning of a text that fits into this width.
pub(super) fn beginning(text: &str, width: usize) -> &str {
    let mut taken = 0;
    for (at, sign) in text.char_indices() {
        taken += sign.width().unwrap_or(0);
        if taken > width {
            return &text[..at];
        }
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    fn table(rows: &[[&str; 4]]) -> Table {
        let mut table = Table::new(&["JOB", "AGENT", "STATUS", "OUTCOME"]);
        for row in rows {
            table.row(row.map(str::to_owned));
        }
        table
    }

    fn lines(table: &Table, terminal: Option<usize>) -> Vec<String> {
        let line = |row: Vec<(String, usize)>| {
            let cells = row.into_iter().map(|(cell, width)| {
                let padding = " ".repeat(width - cell.width());
                format!("{cell}{padding}")
            });
            cells.collect::<Vec<_>>().join("  ").trim_end().to_owned()
        };
        table.fitting(terminal).into_iter().map(line).collect()
    }

    #[test]
    fn a_table_is_shortened_to_the_width_of_the_terminal() {
        let long = "a-very-long-name-of-an-agent-in-the-north";
        let rows = [
            [
                "job-2026-01-01-abc123",
                long,
                "completed",
                "It is done, and here is all that was done on the way.",
            ],
            ["job-2026-01-01-def456", "b", "failed", ""],
        ];
        assert_eq!(lines(&table(&rows), None)[1], rows[0].join("  "));
        for (terminal, expected) in [
            (
                110,
                "job-2026-01-01-abc123  a-very-long-name-of-an-agent-in-the-north  completed  It is done, and here is all that…",
            ),
            (
                90,
                "abc123  a-very-long-name-of-an-agent-in-the-north  completed  It is done, and here is all…",
            ),
            (60, "abc123  a-very-long-na…t-in-the-north  completed  It is don…"),
            (40, "abc123  a-ve…orth  completed  It is don…"),
            (30, "abc123  a-ve…orth  completed"),
        ] {
            let lines = lines(&table(&rows), Some(terminal));
            assert!(lines.iter().all(|line| line.width() <= terminal), "{lines:#?}");
            assert_eq!(lines[1], expected, "{terminal}");
        }
    }

    #[test]
    fn a_narrow_terminal_drops_columns_and_keeps_ids() {
        let head = ["JOB", "AGENT", "SCHEDULE", "STATUS", "CREATED", "TOOK", "OUTCOME"];
        for (schedule, terminal, expected) in [
            ("every-weekday-morning", 40, "abc123  backend-re…-the-north  completed"),
            ("every-weekday-morning", 50, "abc123  backend-r…the-north  completed  It is don…"),
            ("", 61, "abc123  backend…-north  completed  13s ago  1m 2s  It is don…"),
            (
                "every-weekday-morning",
                80,
                "abc123  backend…e-north  every-w…morning  completed  13s ago  1m 2s  It is done…",
            ),
        ] {
            let mut table = Table::new(&head).optional_columns(&["TOOK", "SCHEDULE", "CREATED", "OUTCOME"]);
            let agent = "backend-reviewer-for-the-north";
            let outcome = "It is done, and here is all that was done on the way.";
            let row = ["job-2026-01-01-abc123", agent, schedule, "completed", "13s ago", "1m 2s", outcome];
            table.row(row.map(str::to_owned));
            let lines = lines(&table, Some(terminal));
            assert!(lines.iter().all(|line| line.width() <= terminal), "{lines:#?}");
            assert_eq!(lines[1], expected, "{terminal}");
        }
    }

    #[test]
    fn cells_contain_no_control_characters() {
        let name = "a\u{1b}[2J\u{7}b\u{9b}31mc\r\u{202e}d\u{7f}\nsecond\u{1b}]0;title\u{7} line";
        let lines = lines(&table(&[[name, name, name, name]]), None);
        assert_eq!(lines.len(), 2, "{lines:?}");
        assert!(!lines[1].chars().any(|c| c.is_control() || c == '\u{202e}'), "{lines:?}");
        assert!(lines[1].contains("second line"), "{lines:?}");
    }

    #[test]
    fn wide_characters_count_as_two_columns() {
        let rows = [["job-2026-01-01-abc123", "审阅", "completed", "审阅完成"], ["x", "abcd", "failed", ""]];
        let lines = lines(&table(&rows), None);
        assert_eq!(lines[1], "job-2026-01-01-abc123  审阅   completed  审阅完成");
        assert_eq!(lines[2], "x                      abcd   failed");
        assert_eq!(cut("审阅所有打开的拉取请求", 9), "审阅…请求");
        assert_eq!(cut("审阅 所有打开的拉取请求", 8), "审阅 所…");
        assert_eq!(beginning("审阅", 3), "审");
    }
}
