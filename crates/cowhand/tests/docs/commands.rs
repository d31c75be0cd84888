//! Each command of cowhand is run, or at least parsed, by the real program.

use super::markdown::{Block, Page, Row, Span};
use super::program::{Answer, Program};
use super::words;

/// Numbers of commands that were run and parsed.
#[derive(Default)]
pub(super) struct Counts {
    pub(super) run: usize,
    pub(super) parsed: usize,
}

/// Checks the commands of one page.
pub(super) struct Check<'a> {
    pub(super) page: &'a Page,
    pub(super) program: &'a mut Program,
    /// The verbs of the program.
    pub(super) verbs: &'a [String],
    pub(super) problems: &'a mut Vec<String>,
    pub(super) counts: Counts,
}

impl Check<'_> {
    pub(super) fn all(mut self) -> Counts {
        let page = self.page;
        page.blocks.iter().for_each(|block| self.block(block));
        page.rows.iter().for_each(|row| self.row(row));
        page.spans.iter().for_each(|span| self.span(span));
        self.counts
    }

    fn block(&mut self, block: &Block) {
        match block.language.as_str() {
            "json" => self.mcp_servers(block),
            "console" | "sh" | "bash" => self.transcript(block),
            _ => {}
        }
    }

    /// Runs the commands of a block in order. In a `console` block, the lines without `$` are output.
    fn transcript(&mut self, block: &Block) {
        let is_command = |line: &str| block.language != "console" || line.starts_with("$ ");
        let mut lines = block.text.lines().zip(block.line + 1..).peekable();
        while let Some((text, line)) = lines.next() {
            let Some(command) = is_command(text).then(|| words::command_in(text)).flatten() else { continue };
            let mut printed = Vec::new();
            while let Some((text, _)) = lines.next_if(|(text, _)| !is_command(text)) {
                printed.push(text);
            }
            let differs = |answer: &Answer| answer.stdout.lines().ne(printed.iter().copied());
            let answers = self.run(line, command);
            if block.marker.as_deref() == Some("output") && answers.iter().any(differs) {
                let seen: String = answers.into_iter().map(|answer| answer.stdout).collect();
                self.problem(line, command, &format!("prints\n{seen}"));
            }
        }
    }

    /// Runs the commands of the MCP servers in the settings of an assistant.
    fn mcp_servers(&mut self, block: &Block) {
        if !block.text.contains("mcpServers") {
            return;
        }
        let settings: serde_json::Value = serde_json::from_str(&block.text).unwrap();
        for server in settings["mcpServers"].as_object().into_iter().flat_map(|servers| servers.values()) {
            let arguments = server["args"].as_array().into_iter().flatten();
            let words: Vec<&str> = arguments.filter_map(|argument| argument.as_str()).collect();
            self.run(block.line, &words.join(" "));
        }
    }

    /// Runs the command in the first cell. Options in the other cells belong to that command.
    fn row(&mut self, row: &Row) {
        let Some((first, others)) = row.cells.split_first() else { return };
        let mut group = "";
        if !["command", "verb"].contains(&row.head.as_str()) {
            return row.cells.iter().flatten().for_each(|span| self.mention(row.line, span));
        }
        for span in first {
            if let Some(command) = span.strip_prefix("cowhand ") {
                self.run(row.line, command);
                let verb = words::verb(command);
                let options = others.iter().flatten().filter(|span| span.starts_with('-'));
                options.for_each(|option| self.parse(row.line, &format!("{verb} {option}")));
            } else {
                // In a cell with `schedule show` and `enable`, the second command is `schedule enable`.
                let command = if self.is_verb(span) { span.clone() } else { format!("{group} {span}") };
                self.parse(row.line, &format!("{command} --json"));
                group = span.split_once(' ').map_or(group, |(group, _)| group);
            }
        }
        others.iter().flatten().for_each(|span| self.mention(row.line, span));
    }

    fn is_verb(&self, text: &str) -> bool {
        self.verbs.iter().any(|verb| text.split(' ').next() == Some(verb))
    }

    fn span(&mut self, span: &Span) {
        self.mention(span.line, &span.text);
    }

    /// Parses a code span of the text if it is a command, or a verb with an option. Arguments may be missing.
    fn mention(&mut self, line: usize, text: &str) {
        if let Some(command) = text.strip_prefix("cowhand ") {
            self.parse(line, command);
        } else if text.contains(" -") && self.is_verb(text) {
            self.parse(line, text);
        }
    }

    /// Runs each form of the command, without a daemon. A command that needs a daemon ends with exit code 4, and a
    /// command that names an unknown job with 5.
    fn run(&mut self, line: usize, command: &str) -> Vec<Answer> {
        let mut answers = Vec::new();
        for mut words in self.forms(line, command) {
            let verb = words.iter().find(|word| self.is_verb(word)).map(String::as_str);
            let expected: &[i32] = match verb {
                // The demo runs until somebody ends it, so it is only parsed.
                Some("demo") => return self.parse_words(line, command, words).into_iter().collect(),
                // These verbs would start a daemon or wait for a client. A missing config prevents that.
                Some("start" | "restart" | "mcp") => {
                    if !words.iter().any(|word| word == "-c") {
                        words.extend(["-c".to_owned(), "missing".to_owned()]);
                    }
                    &[3]
                }
                _ => &[0, 4, 5],
            };
            let answer = self.program.answer(&words);
            self.counts.run += 1;
            if !answer.code.is_some_and(|code| expected.contains(&code)) {
                self.problem(line, command, &format!("ends with {:?}: {}", answer.code, answer.stderr));
            }
            answers.push(answer);
        }
        answers
    }

    fn parse(&mut self, line: usize, command: &str) {
        for words in self.forms(line, command) {
            self.parse_words(line, command, words);
        }
    }

    /// Lets the program read the words. With `--help` at the end it refuses unknown verbs, options and values,
    /// and does nothing else.
    fn parse_words(&mut self, line: usize, command: &str, mut words: Vec<String>) -> Option<Answer> {
        words.push("--help".to_owned());
        let answer = self.program.answer(&words);
        self.counts.parsed += 1;
        let unfinished = answer.stderr.contains("a value is required for");
        if answer.code == Some(0) || unfinished {
            return Some(answer);
        }
        self.problem(line, command, &answer.stderr);
        None
    }

    fn forms(&mut self, line: usize, command: &str) -> Vec<Vec<String>> {
        words::forms(command, self.program.folder.path()).unwrap_or_else(|problem| {
            self.problem(line, command, &problem);
            Vec::new()
        })
    }

    fn problem(&mut self, line: usize, command: &str, problem: &str) {
        self.problems.push(format!("{}:{line}: `cowhand {command}`: {problem}", self.page.name));
    }
}
