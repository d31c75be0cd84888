//! Limits how many commands one person can send in a channel.

use std::collections::{HashMap, VecDeque};
use std::sync::{Mutex, PoisonError};

use jiff::{SignedDuration, Timestamp};

/// Maximum number of commands of one person in a channel in `WITHIN`.
pub(super) const MAX_COMMANDS: usize = 20;
pub(super) const WITHIN: SignedDuration = SignedDuration::from_secs(10);

/// The commands that people have sent shortly before, for each channel and person.
#[derive(Debug, Default)]
pub(super) struct CommandLimits(Mutex<HashMap<(String, String), SentCommands>>);

#[derive(Debug)]
struct SentCommands {
    /// Ids and times of the newest commands, the oldest first.
    newest: VecDeque<(String, Timestamp)>,
    /// Time of the last check.
    checked_at: Timestamp,
}

impl CommandLimits {
    /// Counts a command, and returns whether it is within the limit. A command that is checked again counts once.
    pub(super) fn allows(
        &self,
        channel: &str,
        user: &str,
        command: &str,
        sent_at: Timestamp,
        now: Timestamp,
    ) -> bool {
        let mut people = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        people.retain(|_, sent| now.duration_since(sent.checked_at) < WITHIN);
        let none = || SentCommands { newest: VecDeque::new(), checked_at: now };
        let sent = people.entry((channel.to_owned(), user.to_owned())).or_insert_with(none);
        sent.checked_at = now;
        if sent.newest.iter().any(|(id, _)| id == command) {
            return true;
        }
        sent.newest.push_back((command.to_owned(), sent_at));
        if sent.newest.len() <= MAX_COMMANDS {
            return true;
        }
        let oldest = sent.newest.pop_front();
        oldest.is_none_or(|(_, at)| sent_at.duration_since(at) >= WITHIN)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_commands_of_a_person_in_a_channel_are_limited() {
        let (limits, start) = (CommandLimits::default(), Timestamp::UNIX_EPOCH);
        let mut number = 0;
        let mut send = |channel: &str, user: &str, seconds: i64| {
            number += 1;
            let at = start + SignedDuration::from_secs(seconds);
            limits.allows(channel, user, &number.to_string(), at, at)
        };
        for _ in 0..MAX_COMMANDS {
            assert!(send("C1", "ann", 0));
        }
        assert!(!send("C1", "ann", 9));
        assert!(send("C2", "ann", 9), "another channel");
        assert!(send("C1", "bob", 9), "another person");
        assert!(send("C1", "ann", 10), "the first commands are old");
        for _ in 0..=MAX_COMMANDS {
            assert!(limits.allows("C1", "eve", "1000", start, start), "a repeated check counts once");
        }
    }
}
