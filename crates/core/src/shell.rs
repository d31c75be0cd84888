//! Words of a command that a person copies into a shell.

use crate::id::{AgentName, ScheduleName};

/// Returns `AGENT/SCHEDULE` as one word for a shell.
pub fn schedule_word(agent: &AgentName, schedule: &ScheduleName) -> String {
    shell_word(&format!("{agent}/{schedule}"))
}

/// Returns the agent and the schedule as the arguments of `cowhand trigger`: `AGENT SCHEDULE`, or `AGENT/SCHEDULE` if
/// the name of the schedule alone would be read as an option.
pub fn trigger_words(agent: &AgentName, schedule: &ScheduleName) -> String {
    if schedule.as_str().starts_with('-') {
        return schedule_word(agent, schedule);
    }
    format!("{} {}", shell_word(agent.as_str()), shell_word(schedule.as_str()))
}

/// Returns an option with its value: `--schedule NAME`, or `--schedule=-NAME` if the value alone would be read as an
/// option.
pub fn option_words(option: &str, value: &str) -> String {
    let separator = if value.starts_with('-') { '=' } else { ' ' };
    format!("{option}{separator}{}", shell_word(value))
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

    #[test]
    fn a_name_that_begins_with_a_hyphen_is_not_read_as_an_option() {
        let agent: AgentName = "a".parse().unwrap();
        for (name, words, option) in [
            ("daily", "a daily", "--schedule daily"),
            ("two words", "a 'two words'", "--schedule 'two words'"),
            ("-d", "a/-d", "--schedule=-d"),
            ("-d e", "'a/-d e'", "--schedule='-d e'"),
        ] {
            assert_eq!(trigger_words(&agent, &name.parse().unwrap()), words);
            assert_eq!(option_words("--schedule", name), option);
        }
    }
}
