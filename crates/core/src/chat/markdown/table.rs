//! Formats tables as text in columns.

use std::fmt::Write;

use pulldown_cmark::{Event, Tag};
use unicode_width::UnicodeWidthStr;

/// Width above which a column is not aligned.
const MAX_COLUMN_WIDTH: usize = 60;
/// Size above which a table is not aligned if alignment would make it more than twice as long.
const MAX_ALIGNED_BYTES: usize = 20_000;
const SEPARATOR: &str = " | ";

/// Collects the cells of a table. The first row is the heading.
#[derive(Debug, Default)]
pub(super) struct TableText {
    rows: Vec<Vec<String>>,
}

impl TableText {
    pub(super) fn add(&mut self, event: &Event<'_>) {
        match event {
            Event::Start(Tag::TableHead | Tag::TableRow) => self.rows.push(Vec::new()),
            Event::Start(Tag::TableCell) => {
                if let Some(row) = self.rows.last_mut() {
                    row.push(String::new());
                }
            }
            Event::Text(text) | Event::Code(text) | Event::InlineHtml(text) => self.push(text),
            Event::SoftBreak | Event::HardBreak => self.push(" "),
            _ => {}
        }
    }

    fn push(&mut self, text: &str) {
        if let Some(cell) = self.rows.last_mut().and_then(|row| row.last_mut()) {
            cell.push_str(text);
        }
    }

    /// Formats the rows with a line below the heading. The columns are aligned if the table stays small.
    pub(super) fn to_text(&self) -> String {
        let mut widths: Vec<usize> = Vec::new();
        for row in &self.rows {
            widths.resize(widths.len().max(row.len()), 0);
            for (width, cell) in widths.iter_mut().zip(row) {
                *width = (*width).max(cell.width().min(MAX_COLUMN_WIDTH));
            }
        }
        let cells = self.rows.iter().flatten().map(String::len).sum::<usize>();
        let size = self.rows.len() * widths.iter().map(|width| width + SEPARATOR.len()).sum::<usize>();
        if size > MAX_ALIGNED_BYTES.max(2 * cells) {
            widths.fill(0);
        }
        let mut out = String::new();
        for (index, row) in self.rows.iter().enumerate() {
            let used = row.iter().rposition(|cell| !cell.is_empty()).map_or(0, |last| last + 1);
            let mut line = String::new();
            for (column, (width, cell)) in widths.iter().zip(&row[..used]).enumerate() {
                let separator = if column == 0 { "" } else { SEPARATOR };
                let _ = write!(line, "{separator}{cell}{}", " ".repeat(width.saturating_sub(cell.width())));
            }
            out += line.trim_end();
            out.push('\n');
            if index == 0 {
                let rules: Vec<String> = widths.iter().map(|width| "-".repeat((*width).max(1))).collect();
                out += &rules.join("-|-");
                out.push('\n');
            }
        }
        out
    }
}
