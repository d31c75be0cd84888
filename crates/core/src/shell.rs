//! Words of a command that a person copies into a shell.

use crate::id::{AgentName, ScheduleName};

/// Returns `AGENT/SCHEDULE` as one word for a shell.
pub fn schedule_word(agent: &AgentName, schedule: &ScheduleName) -> String {
    shell_word(&format!("{agent}/{schedule}"))
}

/// Quotes a text so that a shell reads it as one word.
pub fn shell_word(word: &str) -> String {
    let is_plain = |character: char| character.is_alphanumeric() || "/._-+,:@%=".contains(character);
    if !word.is_empty() && word.chars().all(is_plain) {
        return word.to_owned();
    }
    format!("'{}'", word.replace('\'', r"'\''"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_word_is_quoted_only_where_it_has_to_be() {
        for (word, expected) in
            [("files-1", "files-1"), ("", "''"), ("files /f/q", "'files /f/q'"), ("it's", r"'it'\''s'")]
        {
            assert_eq!(shell_word(word), expected);
        }
    }
}
