//! Commands in messages. A message names them without `-c`, as the daemon and the store know no command line; what a person
//! reads has the `-c` of the command at hand.

use std::borrow::Cow;
use std::path::{Path, PathBuf};
use std::sync::OnceLock;

/// What `-c` named.
static ASKED: OnceLock<PathBuf> = OnceLock::new();

/// Keeps what `-c` names for the messages of this process, which has one command line.
pub(super) fn remember(config: Option<&Path>) {
    if let Some(config) = config {
        let _ = ASKED.set(config.to_owned());
    }
}

/// `cowhand VERB` as it has to be typed.
pub(super) fn command(verb: &str) -> String {
    format!("cowhand{} {verb}", option(ASKED.get().map(PathBuf::as_path)))
}

/// The text with the `-c` in each command that it names in backticks.
pub(super) fn advised(text: &str) -> Cow<'_, str> {
    with_option(text, &option(ASKED.get().map(PathBuf::as_path)))
}

/// Returns `-c FILE` as it has to be typed.
pub(super) fn naming(config: &Path) -> String {
    format!("-c {}", quoted(&config.display().to_string()))
}

fn option(asked: Option<&Path>) -> String {
    asked.map(|config| format!(" {}", naming(config))).unwrap_or_default()
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
        // The name of the program alone is no command, and one that has its `-c` keeps it.
        if part.starts_with(' ') && !part.starts_with(" -c ") {
            whole.push_str(option);
        }
        whole.push_str(part);
    }
    Cow::Owned(whole)
}

/// As a shell takes it for one word.
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
