//! The job filter of verbs, and reading the matching jobs page by page.

use std::str::FromStr;

use clap::Args;
use cowhand_core::id::{AgentName, ScheduleName};
use cowhand_core::interval::Interval;
use cowhand_core::job::{JobRecord, JobStatus, TriggerType};
use jiff::civil::{Date, DateTime, Time};
use jiff::tz::TimeZone;
use jiff::{Timestamp, ToSpan};
use serde::de::DeserializeOwned;

use super::location::Connection;
use super::{Failure, complete};
use cowhand_web::api::{ApiProblem, Code, Page, segment};

#[derive(Debug, Clone, Args)]
pub(super) struct JobFilterArgs {
    /// Only jobs of this agent
    #[arg(long, add = complete::agents())]
    pub(super) agent: Option<AgentName>,
    /// Only jobs of schedules with this name, or of one schedule: AGENT/SCHEDULE
    #[arg(long, value_name = "NAME")]
    pub(super) schedule: Option<ScheduleName>,
    /// Only pending, running, completed, failed or cancelled jobs
    #[arg(long)]
    pub(super) status: Option<JobStatus>,
    /// Only jobs of this trigger type: manual, schedule, webhook, chat, discord, slack, web or fork
    #[arg(long, value_name = "TYPE")]
    pub(super) trigger_type: Option<TriggerType>,
    /// Only jobs created since then: a time, a date, or how long ago (2h)
    #[arg(long, value_name = "TIME")]
    pub(super) since: Option<SinceTime>,
    /// Only jobs created until then; a date means the end of that day
    #[arg(long, value_name = "TIME")]
    pub(super) until: Option<UntilTime>,
}

/// Start of a time range.
#[derive(Debug, Clone, Copy)]
pub(super) struct SinceTime(Timestamp);

impl SinceTime {
    pub(super) fn at(self) -> Timestamp {
        self.0
    }
}

/// End of a time range.
#[derive(Debug, Clone, Copy)]
pub(super) struct UntilTime(Timestamp);

impl FromStr for SinceTime {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        match text.parse::<Date>() {
            Ok(date) if is_plain_date(text) => local(date.to_datetime(Time::midnight())).map(Self),
            _ => instant(text).map(Self),
        }
    }
}

impl FromStr for UntilTime {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        match text.parse::<Date>() {
            Ok(date) if is_plain_date(text) => {
                let next = date.checked_add(1.day()).map_err(|error| error.to_string())?;
                let next = local(next.to_datetime(Time::midnight()))?;
                next.checked_sub(1.microsecond()).map(Self).map_err(|error| error.to_string())
            }
            _ => instant(text).map(Self),
        }
    }
}

/// Returns true if the text is only a date. Jiff also parses the date of a text that has a time.
fn is_plain_date(text: &str) -> bool {
    text.len() == "2026-01-31".len()
}

/// Parses a time with its zone, a time in the zone of this machine, or a duration before now.
fn instant(text: &str) -> Result<Timestamp, String> {
    if let Ok(at) = text.parse() {
        return Ok(at);
    }
    if let Ok(at) = text.parse::<DateTime>()
        && !is_plain_date(text)
    {
        return local(at);
    }
    let ago: Interval = text.parse().map_err(|_| {
        "expected a time (2026-01-31T09:00:00Z), a date (2026-01-31) or how long ago (30m, 2h, 7d)".to_owned()
    })?;
    Timestamp::now().checked_sub(ago.duration()).map_err(|error| error.to_string())
}

fn local(at: DateTime) -> Result<Timestamp, String> {
    TimeZone::system().to_timestamp(at).map_err(|error| error.to_string())
}

/// Largest number of jobs that the API returns in one page.
const MAX_JOBS_PER_PAGE: usize = 1000;

impl JobFilterArgs {
    /// Returns true if the filter has any condition.
    pub(super) fn is_set(&self) -> bool {
        !self.query().is_empty()
    }

    /// Returns true if the filter has a condition that a firing without a job cannot meet.
    pub(super) fn has_conditions_of_jobs(&self) -> bool {
        let Self { agent: _, schedule: _, status, trigger_type, since, until } = self;
        let is_of_jobs = trigger_type.is_some() || since.is_some() || until.is_some();
        is_of_jobs || status.is_some_and(|status| status != JobStatus::Pending)
    }

    fn query(&self) -> String {
        self.values()
            .fold(String::new(), |query, (name, value)| format!("{query}&{name}={}", segment(&value)))
    }

    /// Returns the filter as it is written on a command line, with a space before each option.
    pub(super) fn arguments(&self) -> String {
        self.values().fold(String::new(), |line, (name, value)| {
            let separator = if value.starts_with('-') { '=' } else { ' ' };
            format!("{line} --{}{separator}{}", name.replace('_', "-"), for_shell(&value))
        })
    }

    /// Returns the filter with `--schedule AGENT/SCHEDULE` split into both names. Returns none if the option has
    /// another form, or if `--agent` names another agent.
    fn of_one_schedule(&self) -> Option<Self> {
        let (agent, schedule) = self.schedule.as_ref()?.as_str().split_once('/')?;
        let (agent, schedule) = (agent.parse().ok()?, schedule.parse().ok()?);
        let is_same_agent = self.agent.as_ref().is_none_or(|filtered_agent| *filtered_agent == agent);
        is_same_agent.then(|| Self { agent: Some(agent), schedule: Some(schedule), ..self.clone() })
    }

    /// Returns the filter that [`Self::jobs`] uses: with both names of `--schedule AGENT/SCHEDULE`, unless the whole
    /// text is the name of a schedule.
    pub(super) async fn with_split_schedule(&self, client: &Connection<'_>) -> Result<Self, Failure> {
        let Some(split_filter) = self.of_one_schedule() else { return Ok(self.clone()) };
        match pages::<JobRecord>(client, &self.query(), None, Some(1)).await {
            Ok(_) => Ok(self.clone()),
            Err(problem) if problem.code == Code::NotFound => Ok(split_filter),
            Err(problem) => Err(problem.into()),
        }
    }

    fn values(&self) -> impl Iterator<Item = (&'static str, String)> {
        let filters = [
            ("agent", self.agent.as_ref().map(ToString::to_string)),
            ("schedule", self.schedule.as_ref().map(ToString::to_string)),
            ("status", self.status.map(|status| status.to_string())),
            ("trigger_type", self.trigger_type.map(|kind| kind.to_string())),
            ("since", self.since.map(|SinceTime(at)| at.to_string())),
            ("until", self.until.map(|UntilTime(at)| at.to_string())),
        ];
        filters.into_iter().filter_map(|(name, value)| Some((name, value?)))
    }

    /// Returns the matching jobs, the newest first: at most `limit`, or all without a limit. With `after`, begins with
    /// the jobs created before that job. Also returns whether there are more jobs.
    pub(super) async fn jobs<T: DeserializeOwned>(
        &self,
        client: &Connection<'_>,
        after: Option<String>,
        limit: Option<usize>,
    ) -> Result<(Vec<T>, bool), Failure> {
        match pages(client, &self.query(), after.clone(), limit).await {
            // The name of a schedule may contain a slash, so the whole text is tried as a name first.
            Err(problem) if problem.code == Code::NotFound => match self.of_one_schedule() {
                Some(split_filter) => Ok(pages(client, &split_filter.query(), after, limit).await?),
                None => Err(problem.into()),
            },
            result => Ok(result?),
        }
    }
}

async fn pages<T: DeserializeOwned>(
    client: &Connection<'_>,
    query: &str,
    after: Option<String>,
    limit: Option<usize>,
) -> Result<(Vec<T>, bool), ApiProblem> {
    let (mut jobs, mut cursor) = (Vec::new(), after);
    loop {
        let after = cursor.map(|after| format!("&after={}", segment(&after))).unwrap_or_default();
        // Request one job more than the limit, to find out whether there are more.
        let page_size =
            limit.map_or(MAX_JOBS_PER_PAGE, |limit| (limit + 1 - jobs.len()).min(MAX_JOBS_PER_PAGE));
        let page: Page<T> = client.get(&format!("jobs?limit={page_size}{query}{after}")).await?;
        jobs.extend(page.items);
        cursor = page.next_cursor;
        match limit {
            Some(limit) if jobs.len() > limit => {
                jobs.truncate(limit);
                return Ok((jobs, true));
            }
            _ if cursor.is_none() => return Ok((jobs, false)),
            _ => {}
        }
    }
}

/// Quotes a value if it has characters that may have a special meaning in a shell.
fn for_shell(value: &str) -> String {
    let is_plain = |letter: char| letter.is_ascii_alphanumeric() || "-_./:".contains(letter);
    if value.chars().all(is_plain) { value.to_owned() } else { format!("'{}'", value.replace('\'', r"'\''")) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_filter_is_written_as_it_is_given() {
        let filter = JobFilterArgs {
            agent: Some("a".parse().unwrap()),
            schedule: Some("Jo's day".parse().unwrap()),
            status: Some(JobStatus::Failed),
            trigger_type: Some(TriggerType::Manual),
            since: Some("2026-01-31T09:00:00Z".parse().unwrap()),
            until: None,
        };
        let line = r" --agent a --schedule 'Jo'\''s day' --status failed --trigger-type manual --since 2026-01-31T09:00:00Z";
        assert_eq!(filter.arguments(), line);
        let hyphen = JobFilterArgs {
            schedule: Some("-x".parse().unwrap()),
            status: None,
            trigger_type: None,
            since: None,
            ..filter
        };
        assert_eq!(hyphen.arguments(), " --agent a --schedule=-x");
    }

    #[test]
    fn times_and_dates_of_filters_are_parsed() {
        let zone = TimeZone::system();
        let local = |text: &str| zone.to_timestamp(text.parse::<DateTime>().unwrap()).unwrap();
        let since = |text: &str| text.parse::<SinceTime>().map(|SinceTime(at)| at);
        let until = |text: &str| text.parse::<UntilTime>().map(|UntilTime(at)| at);
        let exact = "2026-01-31T09:00:00Z".parse::<Timestamp>().unwrap();
        assert_eq!((since("2026-01-31T09:00:00Z"), until("2026-01-31T09:00:00Z")), (Ok(exact), Ok(exact)));
        assert_eq!(since("2026-01-31"), Ok(local("2026-01-31T00:00:00")));
        assert_eq!(until("2026-01-31"), Ok(local("2026-01-31T23:59:59.999999")));
        assert_eq!(since("2026-01-31T09:00"), Ok(local("2026-01-31T09:00:00")));
        assert!(since("2h").unwrap() < Timestamp::now());
        for wrong in ["", "soon", "2026-13-01", "2026-02-30", "31.01.2026"] {
            assert!(since(wrong).is_err() && until(wrong).is_err(), "{wrong}");
        }
    }
}
