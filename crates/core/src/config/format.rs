//! Checks of the `format` of a text, with the parser that will read it.

use core::net::SocketAddr;

use jiff::Timestamp;
use jiff::civil::Date;
use regex::Regex;
use uuid::Uuid;

use crate::cron::Cron;
use crate::id::check_name;
use crate::interval::Interval;
use crate::notification::Mailbox;
use crate::percent::Percent;
use crate::permission::Rule;
use crate::policy::{ClockTime, Day, Timeout, Zone};
use crate::sandbox::Host;
use crate::size::Size;
use crate::store_address::check_store_address;
use crate::workspace::BranchName;

use super::secret::has_unescaped_password;

/// Format whose errors never quote the text, so the errors may be shown even if the text is secret.
const POSTGRES: &str = "postgres";
/// Names of one variable, and of several. A person may write the value of the variable by mistake, so their errors never
/// quote the text.
const VARIABLE: &str = "variable";
const VARIABLES: &str = "variables";

/// Checks whether the error of this format contains no part of the text.
pub(super) fn never_quotes_text(format: &str, text: &str) -> bool {
    format == POSTGRES || may_be_value_of_variable(format) || (format == "uri" && text.contains('@'))
}

/// Checks whether a text that does not have this format may be the value of a variable instead of its name.
pub(super) fn may_be_value_of_variable(format: &str) -> bool {
    [VARIABLE, VARIABLES].contains(&format)
}

/// Returns the error in the text, if there is one; none for a format that is not listed here.
pub(super) fn validate(format: &str, text: &str) -> Option<String> {
    match format {
        "name" => message(check_name(text)),
        "interval" => message(text.parse::<Interval>()),
        "timeout" => message(text.parse::<Timeout>()),
        "size" => message(text.parse::<Size>()),
        "percent" => message(text.parse::<Percent>()),
        "host" => message(text.parse::<Host>()),
        "branch" => message(text.parse::<BranchName>()),
        "permission" => message(text.parse::<Rule>()),
        "cron" => message(text.parse::<Cron>()),
        "timezone" => message(text.parse::<Zone>()),
        "clock-time" => message(text.parse::<ClockTime>()),
        "weekday" => message(text.parse::<Day>()),
        "regex" => message(Regex::new(text))
            .map(|message| format!("not a regular expression: {}", last_line(&message))),
        "date" => plain(text.parse::<Date>().is_ok(), text, "a date", "2026-12-31"),
        "date-time" => plain(text.parse::<Timestamp>().is_ok(), text, "a time", "2026-12-31T09:00:00Z"),
        "uuid" => plain(text.parse::<Uuid>().is_ok(), text, "a UUID", "3f2504e0-4f89-41d3-9a0c-0305e82c3301"),
        "address" => {
            plain(text.parse::<SocketAddr>().is_ok(), text, "an address with a port", "127.0.0.1:3232")
        }
        POSTGRES => message(check_store_address(text)),
        VARIABLE => variable(text),
        VARIABLES => text.split(',').map(str::trim).filter(|name| !name.is_empty()).find_map(variable),
        "uri" => web_address(text),
        "mailbox" => message(text.parse::<Mailbox>()),
        _ => None,
    }
}

#[cfg(test)]
pub(super) fn is_known(format: &str) -> bool {
    const TEXT_FORMATS: [&str; 22] = [
        "name",
        "interval",
        "timeout",
        "size",
        "percent",
        "host",
        "branch",
        "permission",
        "cron",
        "timezone",
        "clock-time",
        "weekday",
        "regex",
        "date",
        "date-time",
        "uuid",
        "uri",
        "address",
        "mailbox",
        POSTGRES,
        VARIABLE,
        VARIABLES,
    ];
    TEXT_FORMATS.contains(&format) || super::scalar::number_range(format).is_some() || format == "double"
}

fn message<T, E: std::fmt::Display>(parsed: Result<T, E>) -> Option<String> {
    parsed.err().map(|error| error.to_string())
}

/// Returns the last line of a regex error, which states the error. The lines before it show the expression.
fn last_line(message: &str) -> &str {
    message.lines().last().unwrap_or_default().trim_start_matches("error: ")
}

fn plain(ok: bool, text: &str, what: &str, example: &str) -> Option<String> {
    (!ok).then(|| format!("{text:?} is not {what}; for example {example}"))
}

/// Checks the name of an environment variable.
fn variable(text: &str) -> Option<String> {
    let begins = text.starts_with(|first: char| first.is_ascii_alphabetic() || first == '_');
    let is_name = begins && text.chars().all(|one| one.is_ascii_alphanumeric() || one == '_');
    let message = "this is not the name of an environment variable; the key takes the NAME of the variable, for example \
                   SLACK_BOT_TOKEN, and never the value";
    (!is_name).then(|| message.to_owned())
}

/// Checks a web address. If the text contains an `@`, it may contain a password, so the message does not quote it.
fn web_address(text: &str) -> Option<String> {
    if has_unescaped_password(text) {
        let message = "the password of this address contains an unescaped character, or there is an `@` after the host; \
                       in a user or a password, `/` is written %2F, `\\` %5C, `?` %3F, `#` %23 and `@` %40, and after \
                       the host `@` is written %40";
        return Some(message.to_owned());
    }
    let (what, example) = ("a web address", "https://example.com/hook");
    if text.contains('@') && !is_http(text) {
        return Some(format!("this is not {what}; for example {example}"));
    }
    plain(is_http(text), text, what, example)
}

fn is_http(text: &str) -> bool {
    let host = ["http://", "https://"].iter().find_map(|scheme| text.strip_prefix(scheme));
    host.is_some_and(|host| !host.is_empty() && !host.starts_with('/') && !text.contains(char::is_whitespace))
}
