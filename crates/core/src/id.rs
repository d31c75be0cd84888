//! Ids and names, which are checked before they are used in a path, a URL or a row.

use std::fmt;
use std::str::FromStr;

use jiff::civil::Date;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use uuid::Uuid;

const SUFFIX_LENGTH: usize = 6;
const SUFFIX_DIGITS: &[u8; 36] = b"0123456789abcdefghijklmnopqrstuvwxyz";

/// Id of a job, `job-YYYY-MM-DD-xxxxxx`: the UTC date of creation and six random characters.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize, JsonSchema)]
#[serde(try_from = "String", into = "String")]
#[schemars(with = "String", extend("pattern" = r"^job-[0-9]{4}-[0-9]{2}-[0-9]{2}-[0-9a-z]{6}$"))]
pub struct JobId(String);

impl JobId {
    /// Creates an id. The same date and random number always give the same id.
    pub fn new(date: Date, mut random: u64) -> Self {
        let mut suffix = [0_u8; SUFFIX_LENGTH];
        for place in suffix.iter_mut().rev() {
            *place = SUFFIX_DIGITS[usize::try_from(random % 36).unwrap_or_default()];
            random /= 36;
        }
        Self(format!("job-{date}-{}", String::from_utf8_lossy(&suffix)))
    }

    pub fn as_str(&self) -> &str {
        &self.0
    }

    /// Returns the six random characters, a short name of the job.
    pub fn suffix(&self) -> &str {
        &self.0[self.0.len() - SUFFIX_LENGTH..]
    }
}

impl FromStr for JobId {
    type Err = IdError;

    fn from_str(text: &str) -> Result<Self, IdError> {
        let refused = || IdError::Job(text.to_owned());
        let rest = text.strip_prefix("job-").ok_or_else(refused)?;
        let (date, suffix) = rest.split_at_checked(10).ok_or_else(refused)?;
        let suffix = suffix.strip_prefix('-').ok_or_else(refused)?;
        let digits_and_dashes = date.bytes().all(|b| b.is_ascii_digit() || b == b'-');
        let suffix_is_plain = suffix.len() == SUFFIX_LENGTH
            && suffix.bytes().all(|b| b.is_ascii_digit() || b.is_ascii_lowercase());
        if digits_and_dashes && date.parse::<Date>().is_ok() && suffix_is_plain {
            Ok(Self(text.to_owned()))
        } else {
            Err(refused())
        }
    }
}

/// Checks the name of an agent, a fleet or a token: `^[a-zA-Z0-9][a-zA-Z0-9_-]*$`, at most 128 bytes.
pub fn check_name(name: &str) -> Result<(), IdError> {
    let mut bytes = name.bytes();
    let starts_well = bytes.next().is_some_and(|b| b.is_ascii_alphanumeric());
    let goes_on_well = bytes.all(|b| b.is_ascii_alphanumeric() || b == b'_' || b == b'-');
    if starts_well && goes_on_well && name.len() <= MAX_NAME {
        Ok(())
    } else {
        Err(IdError::Name(name.to_owned()))
    }
}

const MAX_NAME: usize = 128;

/// Qualified name of an agent: the names of its sub-fleets and its own name, joined by dots. Agents of the root file
/// have no prefix.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize, JsonSchema)]
#[serde(try_from = "String", into = "String")]
#[schemars(with = "String", extend("pattern" = r"^[a-zA-Z0-9][a-zA-Z0-9_-]{0,127}([.][a-zA-Z0-9][a-zA-Z0-9_-]{0,127})*$"))]
pub struct AgentName(String);

impl AgentName {
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl FromStr for AgentName {
    type Err = IdError;

    fn from_str(text: &str) -> Result<Self, IdError> {
        // Report the whole name, because that is what the user wrote.
        text.split('.').try_for_each(check_name).map_err(|_| IdError::Name(text.to_owned()))?;
        Ok(Self(text.to_owned()))
    }
}

/// Name of a schedule within its agent. Existing fleets use any text, so only these names are rejected: blank names,
/// names of more than 128 bytes, names with control characters, which would break a line or a log, and `.` and `..`,
/// which would break a URL.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize, JsonSchema)]
#[serde(try_from = "String", into = "String")]
#[schemars(with = "String", extend("pattern" = r"^[^\x00-\x1f\x7f-\x9f]{1,128}$"))]
pub struct ScheduleName(String);

impl ScheduleName {
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl FromStr for ScheduleName {
    type Err = IdError;

    fn from_str(text: &str) -> Result<Self, IdError> {
        let empty = text.trim().is_empty();
        if empty || text.len() > MAX_NAME || text.chars().any(char::is_control) || matches!(text, "." | "..")
        {
            return Err(IdError::Schedule(text.to_owned()));
        }
        Ok(Self(text.to_owned()))
    }
}

/// Name of an API token.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize, JsonSchema)]
#[serde(try_from = "String", into = "String")]
#[schemars(with = "String", extend("pattern" = r"^[a-zA-Z0-9][a-zA-Z0-9_-]{0,127}$"))]
pub struct TokenName(String);

impl TokenName {
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl FromStr for TokenName {
    type Err = IdError;

    fn from_str(text: &str) -> Result<Self, IdError> {
        check_name(text)?;
        Ok(Self(text.to_owned()))
    }
}

/// Name by which people refer to a job: its id, its id without `job-`, or the last six characters.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(try_from = "String", into = "String")]
#[schemars(with = "String", extend("pattern" = r"^((job-)?[0-9]{4}-[0-9]{2}-[0-9]{2}-)?[0-9a-z]{6}$"))]
pub enum JobName {
    Id(JobId),
    /// The last six characters of the id. The store has to find the job.
    Suffix(String),
}

impl FromStr for JobName {
    type Err = IdError;

    fn from_str(text: &str) -> Result<Self, IdError> {
        let is_digit = |byte: u8| SUFFIX_DIGITS.contains(&byte);
        if text.len() == SUFFIX_LENGTH && text.bytes().all(is_digit) {
            return Ok(Self::Suffix(text.to_owned()));
        }
        let id = text.parse().or_else(|_| format!("job-{text}").parse());
        id.map(Self::Id).map_err(|_| IdError::JobName(text.to_owned()))
    }
}

impl fmt::Display for JobName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Id(id) => id.fmt(f),
            Self::Suffix(suffix) => f.write_str(suffix),
        }
    }
}

impl From<JobName> for String {
    fn from(name: JobName) -> Self {
        name.to_string()
    }
}

impl TryFrom<String> for JobName {
    type Error = IdError;

    fn try_from(text: String) -> Result<Self, IdError> {
        text.parse()
    }
}

/// Id of a schedule: the `UUIDv5` of `agent/schedule`, which is the same on every machine and after every restart.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize, JsonSchema)]
pub struct ScheduleId(pub Uuid);

impl ScheduleId {
    pub fn of(agent: &AgentName, schedule: &ScheduleName) -> Self {
        // Changing this namespace would change the id of every schedule.
        const NAMESPACE: Uuid = Uuid::from_u128(0x3f9d_7c52_61ab_4e0f_9a44_c0b7_4a6d_0001);
        Self(Uuid::new_v5(&NAMESPACE, format!("{agent}/{schedule}").as_bytes()))
    }
}

impl fmt::Display for ScheduleId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

impl FromStr for ScheduleId {
    type Err = IdError;

    fn from_str(text: &str) -> Result<Self, IdError> {
        text.parse().map(Self).map_err(|_| IdError::ScheduleId(text.to_owned()))
    }
}

/// Implements the conversions from and to text for the checked names.
macro_rules! text_newtype {
    ($($name:ident),+) => {$(
        impl fmt::Display for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str(&self.0)
            }
        }
        impl From<$name> for String {
            fn from(name: $name) -> Self {
                name.0
            }
        }
        impl TryFrom<String> for $name {
            type Error = IdError;
            fn try_from(text: String) -> Result<Self, IdError> {
                text.parse()
            }
        }
    )+};
}
text_newtype!(JobId, AgentName, ScheduleName, TokenName);

#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum IdError {
    #[error("{0:?} is not a job id; expected job-YYYY-MM-DD-xxxxxx, for example job-2024-01-19-abc123")]
    Job(String),
    #[error("{0:?} does not name a job; expected job-2024-01-19-abc123, 2024-01-19-abc123 or abc123")]
    JobName(String),
    #[error(
        "{0:?} is not the id of an ask; expected a job id and a number, for example job-2024-01-19-abc123.1"
    )]
    Ask(String),
    #[error(
        "{0:?} is not a valid name; use the letters a-z and A-Z, digits, '_' and '-', starting with a letter or digit, at most {MAX_NAME} characters"
    )]
    Name(String),
    #[error(
        "{0:?} is not a valid schedule name; use 1 to {MAX_NAME} bytes that are not all blanks, without control characters, and neither `.` nor `..`"
    )]
    Schedule(String),
    #[error("{0:?} is not a schedule id; expected a UUID")]
    ScheduleId(String),
}

#[cfg(test)]
mod tests {
    use super::*;
    use jiff::civil::date;

    #[test]
    fn job_ids_are_deterministic_for_a_date_and_a_random_number() {
        for (random, id) in [
            (0, "job-2024-01-19-000000"),
            (35, "job-2024-01-19-00000z"),
            (36, "job-2024-01-19-000010"),
            (36_u64.pow(6) + 1, "job-2024-01-19-000001"),
        ] {
            let drawn = JobId::new(date(2024, 1, 19), random);
            assert_eq!(drawn.as_str(), id);
            assert_eq!(drawn.as_str().parse::<JobId>().unwrap(), drawn);
        }
    }

    #[test]
    fn invalid_job_ids_are_refused() {
        assert!("job-2024-01-19-abc123".parse::<JobId>().is_ok());
        for bad in [
            "",
            "job-",
            "job-2024-01-19-ABC123",
            "job-2024-01-19-abc12",
            "job-2024-01-19-abc1234",
            "job-2024-13-19-abc123",
            "job-2024-1-19-abc123",
            "job-2024-01-19-abc12/",
            "job-2024-01-19-../../",
            "job-2024-01-19-abc12é",
            "job-2024-01-1\u{e9}-abc123",
            " job-2024-01-19-abc123",
        ] {
            assert_eq!(bad.parse::<JobId>(), Err(IdError::Job(bad.to_owned())), "{bad}");
        }
    }

    #[test]
    fn a_job_is_named_by_its_id_or_a_part_of_it() {
        let id: JobId = "job-2024-01-19-abc123".parse().unwrap();
        assert_eq!(id.suffix(), "abc123");
        for (text, expected) in [
            ("job-2024-01-19-abc123", JobName::Id(id.clone())),
            ("2024-01-19-abc123", JobName::Id(id)),
            ("abc123", JobName::Suffix("abc123".to_owned())),
        ] {
            assert_eq!(text.parse::<JobName>(), Ok(expected), "{text}");
        }
        for bad in [
            "",
            "abc12",
            "abc1234",
            "ABC123",
            "abc12%",
            "job-abc123",
            "2024-13-19-abc123",
            "../../x",
            "ab\u{e9}12",
        ] {
            assert_eq!(bad.parse::<JobName>(), Err(IdError::JobName(bad.to_owned())), "{bad}");
        }
    }

    #[test]
    fn names() {
        for good in ["a", "A-1_b", "0x", "bragdoc-marketer"] {
            assert!(check_name(good).is_ok(), "{good}");
        }
        for bad in ["", "-a", "_a", "a b", "a.b", "a/b", "é", "a\n", &"a".repeat(129)] {
            assert!(check_name(bad).is_err(), "{bad}");
        }
        assert!("fleet.sub.agent".parse::<AgentName>().is_ok());
        for bad in ["", ".", "a.", ".a", "a..b", "a/../b"] {
            assert!(bad.parse::<AgentName>().is_err(), "{bad}");
        }
        for good in ["check-issues", "Täglich um 9", "a/b"] {
            assert!(good.parse::<ScheduleName>().is_ok(), "{good}");
        }
        for bad in ["", "  ", "..", "a\nb", "\u{1b}[31m"] {
            assert!(bad.parse::<ScheduleName>().is_err(), "{bad}");
        }
    }

    #[test]
    fn a_schedule_keeps_its_id() {
        let (agent, schedule) = ("fleet.coder".parse().unwrap(), "nightly".parse().unwrap());
        insta::assert_snapshot!(ScheduleId::of(&agent, &schedule), @"cb40843c-f682-5c80-8a0e-b03ade9a4181");
    }
}
