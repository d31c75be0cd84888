//! Commands in texts for people. A masked word in a command is replaced by a placeholder, because a command with `***`
//! does not work.

use std::borrow::Cow;

use cowhand_core::config::MASK;

/// Replaces masked words in commands of cowhand between backticks by placeholders. Adds a note with the command that
/// shows the unmasked words. Returns `None` if no command contains a masked word.
pub fn with_placeholders(text: &str) -> Option<String> {
    let mut note = None;
    // Every second part is between backticks.
    let parts = text.split('`').enumerate().map(|(number, part)| {
        if number % 2 == 0 || !part.starts_with("cowhand ") || !part.contains(MASK) {
            return Cow::Borrowed(part);
        }
        let (name, explanation) = if part.starts_with("cowhand work ") {
            (
                "ITEM",
                "the id contains a secret and is masked in this text; `cowhand work list --all` shows it",
            )
        } else {
            (
                "NAME",
                "the name contains a secret and is masked in this text; `cowhand schedule list` shows it",
            )
        };
        note = Some(explanation);
        let words = part.split(' ').map(|word| if word.contains(MASK) { name } else { word });
        Cow::Owned(words.collect::<Vec<_>>().join(" "))
    });
    let replaced = parts.collect::<Vec<_>>().join("`");
    note.map(|note| format!("{} ({note})", replaced.trim_end_matches('.')))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn masked_words_in_commands_become_placeholders() {
        let of_item =
            "(the id contains a secret and is masked in this text; `cowhand work list --all` shows it)";
        let of_name =
            "(the name contains a secret and is masked in this text; `cowhand schedule list` shows it)";
        for (text, expected) in [
            ("`cowhand work retry files-1` retries it", None),
            ("files-*** failed; `cowhand job job-1` shows it", None),
            (
                "files-*** failed; `cowhand work retry files-***` retries it",
                Some(format!("files-*** failed; `cowhand work retry ITEM` retries it {of_item}")),
            ),
            (
                "a/*** is off; `cowhand schedule enable a/***` turns it on.",
                Some(format!("a/*** is off; `cowhand schedule enable NAME` turns it on {of_name}")),
            ),
        ] {
            assert_eq!(with_placeholders(text), expected);
        }
    }
}
