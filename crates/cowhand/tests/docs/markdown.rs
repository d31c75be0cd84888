//! The parts of a Markdown page that can be tested: fenced blocks, rows of tables and code spans.

use std::path::Path;

/// The languages of fenced blocks. A block without a language is refused, because it would not be tested.
const LANGUAGES: [&str; 9] = ["bash", "console", "ini", "json", "markdown", "rust", "sh", "text", "yaml"];

/// The markers `<!-- docs-test: NAME -->` directly above a block, each with the language of its block.
const MARKERS: [(&str, &str); 3] = [("not-config", "yaml"), ("refused", "yaml"), ("output", "console")];

#[derive(Default)]
pub(super) struct Page {
    pub(super) name: String,
    pub(super) blocks: Vec<Block>,
    pub(super) rows: Vec<Row>,
    /// The code spans of the text, without those in tables.
    pub(super) spans: Vec<Span>,
    pub(super) problems: Vec<String>,
}

pub(super) struct Block {
    pub(super) line: usize,
    pub(super) language: String,
    pub(super) marker: Option<String>,
    pub(super) text: String,
}

/// The code spans of each cell of a row of a table.
pub(super) struct Row {
    pub(super) line: usize,
    /// The first cell of the head of the table.
    pub(super) head: String,
    pub(super) cells: Vec<Vec<String>>,
}

pub(super) struct Span {
    pub(super) line: usize,
    pub(super) text: String,
}

impl Page {
    pub(super) fn read(root: &Path, name: &str) -> Self {
        Self::of(name, &std::fs::read_to_string(root.join(name)).unwrap())
    }

    pub(super) fn of(name: &str, text: &str) -> Self {
        let mut page = Self { name: name.to_owned(), ..Self::default() };
        let mut lines = text.lines().enumerate().map(|(index, line)| (index + 1, line));
        let mut marker: Option<(usize, String)> = None;
        let mut paragraph: Option<Span> = None;
        let mut head: Option<String> = None;
        while let Some((number, line)) = lines.next() {
            let trimmed = line.trim();
            if let Some(language) = trimmed.strip_prefix("```") {
                let block = lines.by_ref().map(|(_, line)| line).take_while(|line| line.trim() != "```");
                let text = dedented(&block.collect::<Vec<_>>());
                let marker = marker.take().map(|(_, name)| name);
                page.add_block(Block { line: number, language: language.to_owned(), marker, text });
            } else if let Some(name) = trimmed.strip_prefix("<!-- docs-test:") {
                marker = Some((number, name.trim_end_matches("-->").trim().to_owned()));
                continue;
            }
            if trimmed.starts_with('|') {
                let first = || trimmed.split('|').nth(1).unwrap_or_default().trim().to_owned();
                let head = head.get_or_insert_with(first).clone();
                page.rows.push(Row { line: number, head, cells: cells(trimmed) });
            } else {
                head = None;
            }
            if let Some((line, name)) = marker.take_if(|_| !trimmed.is_empty()) {
                page.problems.push(format!("{}:{line}: the marker `{name}` is above no block", page.name));
            }
            let ends = trimmed.is_empty() || trimmed.starts_with('|') || trimmed.starts_with("```");
            if ends {
                page.add_spans(paragraph.take());
            } else {
                let paragraph = paragraph.get_or_insert_with(|| Span { line: number, text: String::new() });
                paragraph.text.push_str(trimmed);
                paragraph.text.push('\n');
            }
        }
        page.add_spans(paragraph);
        page
    }

    fn add_block(&mut self, block: Block) {
        let place = format!("{}:{}", self.name, block.line);
        if !LANGUAGES.contains(&block.language.as_str()) {
            self.problems.push(format!("{place}: the language of the block is none of {LANGUAGES:?}"));
        }
        let known = |marker: &str| MARKERS.contains(&(marker, &block.language));
        if let Some(marker) = block.marker.as_deref().filter(|marker| !known(marker)) {
            self.problems
                .push(format!("{place}: the marker `{marker}` is none of this block; known: {MARKERS:?}"));
        }
        self.blocks.push(block);
    }

    /// Adds the code spans of a paragraph. A span can continue on the next line.
    fn add_spans(&mut self, paragraph: Option<Span>) {
        let Some(Span { mut line, text }) = paragraph else { return };
        for (index, part) in text.split('`').enumerate() {
            if index % 2 == 1 {
                self.spans.push(Span { line, text: part.replace('\n', " ") });
            }
            line += part.matches('\n').count();
        }
    }
}

/// Returns the code spans of each cell. In a table, `\|` is a bar.
fn cells(row: &str) -> Vec<Vec<String>> {
    let row = row.trim_matches('|').replace("\\|", "\0");
    let spans = |cell: &str| {
        let parts = cell.split('`').enumerate().filter(|(index, _)| index % 2 == 1);
        parts.map(|(_, span)| span.replace('\0', "|")).collect()
    };
    row.split('|').map(spans).collect()
}

/// Removes the indentation that all lines have.
fn dedented(lines: &[&str]) -> String {
    let filled = lines.iter().filter(|line| !line.trim().is_empty());
    let depth = filled.map(|line| line.len() - line.trim_start().len()).min().unwrap_or_default();
    lines.iter().flat_map(|line| [line.get(depth..).unwrap_or_default(), "\n"]).collect()
}
