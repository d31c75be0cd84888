//! Adds the `-c` option of the current command line to commands in messages. The daemon and the store write commands
//! without `-c`, because they do not know the command line.

use std::borrow::Cow;
use std::path::{Path, PathBuf};
use std::sync::OnceLock;

use cowhand_core::shell::shell_word;
use cowhand_run::redact::with_placeholders;

/// Path that was given with `-c`.
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

/// Adds the `-c` option to each command in backticks. A masked word in a command becomes a placeholder.
pub(super) fn with_config_option(text: &str) -> Cow<'_, str> {
    let option = option(CONFIG_OPTION.get().map(PathBuf::as_path));
    match with_placeholders(text) {
        Some(text) => Cow::Owned(with_option(&text, &option).into_owned()),
        None => with_option(text, &option),
    }
}

/// Returns `-c FILE` as it has to be typed.
pub(super) fn config_argument(config: &Path) -> String {
    format!("-c {}", shell_word(&config.display().to_string()))
}

fn option(config: Option<&Path>) -> String {
    config.map(|config| format!(" {}", config_argument(config))).unwrap_or_default()
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
