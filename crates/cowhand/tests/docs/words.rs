//! The words of a command as the docs write it.

use std::path::Path;

/// Values of the placeholders. The names are those of the fleet in which commands run.
const PLACEHOLDERS: [(&str, &str); 24] = [
    ("ADDRESS:PORT", "127.0.0.1:0"),
    ("AGENT", "coder"),
    ("AGENT/SCHEDULE", "coder/nightly"),
    ("ASK", "job-2026-01-05-k3x9q2.1"),
    ("DIR", "."),
    ("FILE", "fleet.db"),
    ("ID", "job-2026-01-05-k3x9q2"),
    ("ITEM", "files-1"),
    ("QUEUE", "files tasks"),
    ("JOB", "job-2026-01-05-k3x9q2"),
    ("KEY", "key"),
    ("N", "3"),
    ("NAME", "ci"),
    ("OLD", "coder"),
    ("NODE", "node-1"),
    ("PROVIDER", "claude"),
    ("SCHEDULE", "nightly"),
    ("SEQ", "7"),
    ("SHELL", "bash"),
    ("SIZE", "1MB"),
    ("TARGET", "ops"),
    ("TEXT", "yes"),
    ("TIME", "10s"),
    ("VERB", "status"),
];

/// Returns what follows `cowhand` in a line of a shell, if the line runs it.
pub(super) fn command_in(line: &str) -> Option<&str> {
    let line = line.trim_start_matches("$ ");
    let line = line.strip_prefix("source <(").unwrap_or(line);
    line.strip_prefix("cowhand ").or_else(|| line.strip_prefix("cargo run --release -- "))
}

/// Returns the words before the first option or placeholder.
pub(super) fn verb(command: &str) -> String {
    let is_verb = |word: &&str| word.chars().all(|letter| letter.is_ascii_lowercase());
    command.split(' ').take_while(is_verb).collect::<Vec<_>>().join(" ")
}

/// Returns each form of a command: with and without `[X]`, and with each of `a|b`. Placeholders are replaced,
/// and an absolute path is put below the folder.
pub(super) fn forms(command: &str, folder: &Path) -> Result<Vec<Vec<String>>, String> {
    let mut forms = vec![Vec::new()];
    for (word, quoted) in split(command) {
        let choices = if quoted { vec![Some(word)] } else { choices(&word) };
        let mut longer = Vec::new();
        for form in &forms {
            for choice in &choices {
                let mut form: Vec<String> = form.clone();
                form.extend(choice.as_deref().map(|word| filled_in(word, quoted, folder)).transpose()?);
                longer.push(form);
            }
        }
        forms = longer;
    }
    Ok(forms)
}

/// Splits a command into words, and returns for each word whether it was in quotes. A pipe, a redirection, a comment or
/// a closing bracket ends the command.
fn split(command: &str) -> Vec<(String, bool)> {
    let mut words = Vec::new();
    let mut rest = command.trim_start();
    while let Some(first) = rest.chars().next() {
        if ['|', '>', '#'].contains(&first) {
            break;
        }
        let quote = Some(first).filter(|first| ['\'', '"'].contains(first));
        let inside = if quote.is_some() { &rest[1..] } else { rest };
        let end = match quote {
            Some(quote) => inside.find(quote).unwrap_or(inside.len()),
            None => inside.find([' ', ')']).unwrap_or(inside.len()),
        };
        words.push((inside[..end].to_owned(), quote.is_some()));
        rest = inside[end..].strip_prefix(['\'', '"']).unwrap_or(&inside[end..]);
        if rest.starts_with(')') {
            break;
        }
        rest = rest.trim_start();
    }
    words
}

/// Returns the alternatives of a word; None means that it is omitted.
fn choices(word: &str) -> Vec<Option<String>> {
    let optional = word.strip_prefix('[').and_then(|word| word.strip_suffix(']'));
    let omitted = optional.map(|_| None);
    let alternatives = optional.unwrap_or(word).split('|').map(|word| Some(word.to_owned()));
    omitted.into_iter().chain(alternatives).collect()
}

fn filled_in(word: &str, quoted: bool, folder: &Path) -> Result<String, String> {
    if let Some(path) = word.strip_prefix('/') {
        let path = folder.join(path);
        std::fs::create_dir_all(path.parent().unwrap_or(folder)).map_err(|error| error.to_string())?;
        return Ok(path.to_str().unwrap_or_default().to_owned());
    }
    let is_capital = |letter: char| letter.is_ascii_uppercase() || ['/', ':'].contains(&letter);
    if quoted || !word.chars().all(is_capital) {
        return Ok(word.to_owned());
    }
    let known = PLACEHOLDERS.iter().find(|(name, _)| *name == word);
    known.map(|(_, value)| (*value).to_owned()).ok_or_else(|| format!("`{word}` stands for nothing known"))
}
