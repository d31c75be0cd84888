//! The order in which messages were written, by the ids that their platform gave them.

use super::ChatPlatform;

impl ChatPlatform {
    /// Checks by their ids whether a message was written before another message of the same channel. Returns false if
    /// the ids do not say so, for example if they are of different channels of Slack.
    pub fn is_written_before(self, first: &str, second: &str) -> bool {
        match self {
            Self::Slack => slack_order(first).zip(slack_order(second)).is_some_and(
                |((channel, first), (other_channel, second))| channel == other_channel && first < second,
            ),
            Self::Discord => {
                let order = |id: &str| id.parse::<u64>().ok();
                order(first).zip(order(second)).is_some_and(|(first, second)| first < second)
            }
        }
    }
}

/// Splits `CHANNEL:SECONDS.MICROSECONDS` into the channel, and a value that grows with the time.
fn slack_order(id: &str) -> Option<(&str, (u64, u64))> {
    let (channel, time) = id.rsplit_once(':')?;
    let (seconds, fraction) = time.split_once('.')?;
    Some((channel, (seconds.parse().ok()?, format!("{fraction:0<6.6}").parse().ok()?)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ids_state_the_order_of_messages() {
        use ChatPlatform::{Discord, Slack};
        for (platform, first, second, expected) in [
            (Slack, "C1:1700000000.000100", "C1:1700000000.000200", true),
            (Slack, "C1:1700000000.000200", "C1:1700000000.000100", false),
            (Slack, "C1:1700000000.000100", "C1:1700000000.000100", false),
            (Slack, "C1:999.5", "C1:1000.1", true),
            (Slack, "C1:5.9", "C1:5.10", false),
            (Slack, "C1:5.000009", "C1:5.1", true),
            (Slack, "C1:1.000001", "C2:2.000001", false),
            (Slack, "C1", "C1:2.000001", false),
            (Slack, "C1:x.000001", "C1:2.000001", false),
            (Discord, "175928847299117063", "175928847299117064", true),
            (Discord, "999999999999999999", "1000000000000000000", true),
            (Discord, "175928847299117064", "175928847299117063", false),
            (Discord, "175928847299117063", "175928847299117063", false),
            (Discord, "", "1", false),
            (Discord, "1", "x", false),
        ] {
            assert_eq!(platform.is_written_before(first, second), expected, "{platform} {first} {second}");
        }
    }
}
