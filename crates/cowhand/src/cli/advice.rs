//! Adds the `-c` option of the current command line to the commands that messages name. The daemon and the
//! store write commands without `-c`, because they do not know the command line.

use std::borrow::Cow;
use std::path::{Path, PathBuf};
use std::sync::OnceLock;

use cowhand_core::config::MASK;

/// What `-c` named.
static CONFIG_OPTION: OnceLock<PathBuf> = OnceLock::new();

/// Stores the path given with `-c` for the messages of this process, which has one command line.
pub(super) fn remember(config: Option<&Path>) {
    if let Some(config) = config {
        let _ = CONFIG_OPTION.set(config.to_owned());
    }
}

/// Returns `cowhand VERB` as the user has to type it.
pub(super) fn command(verb: &str) -> String {
    format!("cowhand{} {verb}", option(CONFIG_OPTION.get().map(PathBuf::as_path)))
}

/// The text with the `-c` in each command that it names in backticks. A command with a masked word becomes one with a
/// placeholder.
pub(super) fn with_config_option(text: &str) -> Cow<'_, str> {
    let option = option(CONFIG_OPTION.get().map(PathBuf::as_path));
    match without_masked_words(text) {
        Some(text) => Cow::Owned(with_option(&text, &option).into_owned()),
        None => with_option(text, &option),
    }
}

/// Replaces masked words in commands, which nobody could type, by placeholders, and says where the words are. None if there
/// are no such words.
fn without_masked_words(text: &str) -> Option<String> {
    let mut note = None;
    // Every second part is between backticks.
    let parts = text.split('`').enumerate().map(|(number, part)| {
        if number % 2 == 0 || !part.starts_with("cowhand ") || !part.contains(MASK) {
            return Cow::Borrowed(part);
        }
        let (name, whose) = if part.starts_with("cowhand work ") {
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
        note = Some(whose);
        let words = part.split(' ').map(|word| if word.contains(MASK) { name } else { word });
        Cow::Owned(words.collect::<Vec<_>>().join(" "))
    });
    let replaced = parts.collect::<Vec<_>>().join("`");
    note.map(|note| format!("{} ({note})", replaced.trim_end_matches('.')))
}

/// Returns `-c FILE` as it has to be typed.
pub(super) fn config_argument(config: &Path) -> String {
    format!("-c {}", quoted(&config.display().to_string()))
}

fn option(asked: Option<&Path>) -> String {
    asked.map(|config| format!(" {}", config_argument(config))).unwrap_or_default()
}

fn with_option<'t>(text: &'t str, option: &str) -> Cow<'t, str> {
    const COMMAND: &str = "`cowhand";
    if option.is_empty() || !text.contains(COMMAND) {
        return Cow::Borrowed(text);
    }
    let mut parts = text.split(COMMAND);
    let mut whole = parts.next().unwrap_or_default().to_owned();
    for part in parts {
        whole.push_str(COMMAND);
        // The program name alone is not a command, and a command that already has `-c` keeps it.
        if part.starts_with(' ') && !part.starts_with(" -c ") {
            whole.push_str(option);
        }
        whole.push_str(part);
    }
    Cow::Owned(whole)
}

/// Quotes a text so that a shell reads it as one word.
fn quoted(word: &str) -> String {
    let is_plain = |sign: char| sign.is_alphanumeric() || "/._-+,:@%=".contains(sign);
    if !word.is_empty() && word.chars().all(is_plain) {
        return word.to_owned();
    }
    format!("'{}'", word.replace('\'', r"'\''"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_masked_word_is_no_part_of_a_command() {
        let of_item =
            "(the id contains a secret and is masked in this text; `cowhand work list --all` shows it)";
        let of_name =
            "(the name contains a secret and is masked in this text; `cowhand schedule list` shows it)";
        for (text, expected) in [
            ("`cowhand work retry files-1` has it tried again", None),
            ("files-*** failed; `cowhand job job-1` shows it", None),
            (
                "files-*** failed; `cowhand work retry files-***` has it tried again",
                Some(format!("files-*** failed; `cowhand work retry ITEM` has it tried again {of_item}")),
            ),
            (
                "a/*** is off; `cowhand schedule enable a/***` turns it on.",
                Some(format!("a/*** is off; `cowhand schedule enable NAME` turns it on {of_name}")),
            ),
        ] {
            assert_eq!(without_masked_words(text), expected);
        }
    }

    #[test]
    fn each_command_gets_the_option_once() {
        for (text, file, expected) in [
            ("run `cowhand jobs`", None, "run `cowhand jobs`"),
            ("run `cowhand jobs`", Some("a.yaml"), "run `cowhand -c a.yaml jobs`"),
            (
                "`cowhand stop`, then `cowhand start -d`",
                Some("it's mine/a.yaml"),
                r"`cowhand -c 'it'\''s mine/a.yaml' stop`, then `cowhand -c 'it'\''s mine/a.yaml' start -d`",
            ),
            ("`cowhand -c b.yaml stop`", Some("a.yaml"), "`cowhand -c b.yaml stop`"),
            ("`cowhand` and `cowhands x`", Some("a.yaml"), "`cowhand` and `cowhands x`"),
            ("cowhand jobs", Some("a.yaml"), "cowhand jobs"),
        ] {
            assert_eq!(with_option(text, &option(file.map(Path::new))), expected);
        }
    }
}
