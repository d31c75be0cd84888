//! Formats tables as text in columns.

use std::fmt::Write;

use pulldown_cmark::{Event, Tag};
use unicode_width::UnicodeWidthStr;

/// Width above which a column is not aligned.
const MAX_COLUMN_WIDTH: usize = 60;

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

    /// Formats the rows with aligned columns and a line below the heading.
    pub(super) fn to_text(&self) -> String {
        let columns = self.rows.iter().map(Vec::len).max().unwrap_or_default();
        let width = |column: usize| {
            self.rows
                .iter()
                .filter_map(|row| row.get(column))
                .map(|cell| cell.width())
                .max()
                .unwrap_or_default()
        };
        let widths: Vec<usize> = (0..columns).map(|column| width(column).min(MAX_COLUMN_WIDTH)).collect();
        let mut out = String::new();
        for (index, row) in self.rows.iter().enumerate() {
            let mut line = String::new();
            for (column, width) in widths.iter().enumerate() {
                let cell = row.get(column).map_or("", String::as_str);
                let separator = if column == 0 { "" } else { " | " };
                let _ = write!(line, "{separator}{cell}{}", " ".repeat(width.saturating_sub(cell.width())));
            }
            out += line.trim_end();
            out.push('\n');
            if index == 0 {
                let rules: Vec<String> = widths.iter().map(|width| "-".repeat(*width)).collect();
                out += &rules.join("-|-");
                out.push('\n');
            }
        }
        out
    }
}
