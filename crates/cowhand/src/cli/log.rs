//! The daemon's log, as text or JSON. A repeated warning or error is written once, and again later with the number of
//! repetitions.

use std::borrow::Cow;
use std::collections::HashMap;
use std::fmt::{self, Write as _};
use std::io::{self, IsTerminal};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use clap::ValueEnum;
use jiff::Timestamp;
use serde::{Deserialize, Serialize};
use serde_json::json;
use tracing::field::{Field, Visit};
use tracing::{Event, Level, Subscriber, error, warn};
use tracing_subscriber::EnvFilter;
use tracing_subscriber::fmt::format::Writer;
use tracing_subscriber::fmt::{FmtContext, FormatEvent, FormatFields};
use tracing_subscriber::registry::LookupSpan;

use cowhand_engine::secrets::process::known;

#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(super) enum LogFormat {
    Text,
    Json,
}

/// Starts to write the log to standard error.
pub(super) fn begin(format: LogFormat) {
    let filter = EnvFilter::try_from_env("COWHAND_LOG").unwrap_or_else(|_| EnvFilter::new("info,sqlx=warn"));
    let colour = io::stderr().is_terminal() && std::env::var_os("NO_COLOR").is_none();
    let log = tracing_subscriber::fmt().with_env_filter(filter).with_target(false).with_ansi(colour);
    let log = log.with_writer(move || LossyStderr { format });
    let repeats = Arc::new(Repeats::default());
    write_counts(Arc::clone(&repeats));
    match format {
        LogFormat::Text => {
            log.map_event_format(|inner| Deduplicate { inner, repeats }).init();
            std::panic::set_hook(Box::new(|panic| {
                let thread = std::thread::current();
                let line = format!("thread '{}' {panic}\n", thread.name().unwrap_or("<unnamed>"));
                io::Write::write_all(&mut LossyStderr { format: LogFormat::Text }, line.as_bytes())
                    .unwrap_or_default();
            }));
        }
        LogFormat::Json => {
            log.json().flatten_event(true).map_event_format(|inner| Deduplicate { inner, repeats }).init();
            // A panic is logged too, because a reader of JSON lines cannot parse anything else.
            std::panic::set_hook(Box::new(|panic| error!("{panic}")));
        }
    }
}

/// Masks the known secrets in a finished line, so that no caller has to mask them. The redactor is fetched again for
/// each line, because a reload adds secrets.
fn masked(line: &[u8], format: LogFormat) -> Cow<'_, [u8]> {
    let redactor = known();
    match (format, str::from_utf8(line)) {
        // The mask of a number needs quotes in JSON.
        (LogFormat::Json, Ok(line)) => match redactor.redact_line(line.trim_end()) {
            Cow::Owned(masked) => Cow::Owned(format!("{masked}\n").into_bytes()),
            Cow::Borrowed(_) => Cow::Borrowed(line.as_bytes()),
        },
        (LogFormat::Json, Err(_)) | (LogFormat::Text, _) => redactor.redact_bytes(line),
    }
}

/// Standard error for the log. A line that cannot be written, for example because the disk is full, is dropped, so that
/// the daemon does not end because of its log. The number of dropped lines is written before the next line.
struct LossyStderr {
    format: LogFormat,
}

/// Number of lines that were dropped since the last written line.
static LOST_LINES: AtomicU64 = AtomicU64::new(0);

impl LossyStderr {
    /// Formats the line about lost lines. It begins with a line break because the last line may be incomplete.
    fn lost_lines(&self, lost: u64) -> String {
        let (at, message) = (Timestamp::now(), format!("{lost} lines of the log could not be written"));
        match self.format {
            LogFormat::Text => format!("\n{at}  WARN {message}\n"),
            LogFormat::Json => {
                format!("\n{}\n", json!({"timestamp": at, "level": "WARN", "message": message}))
            }
        }
    }
}

impl io::Write for LossyStderr {
    fn write(&mut self, line: &[u8]) -> io::Result<usize> {
        let (length, line) = (line.len(), masked(line, self.format));
        let mut stderr = io::stderr().lock();
        let lost = LOST_LINES.swap(0, Ordering::Relaxed);
        let note = if lost == 0 { String::new() } else { self.lost_lines(lost) };
        if stderr.write_all(note.as_bytes()).and_then(|()| stderr.write_all(&line)).is_err() {
            LOST_LINES.fetch_add(lost + 1, Ordering::Relaxed);
        }
        Ok(length)
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

/// Target of the lines with counts, which are always written.
const REPEATED_TARGET: &str = "cowhand::repeated";
/// Wait before the first count; it doubles with each count, up to `MAX_COUNT_INTERVAL`.
const FIRST_COUNT_AFTER: Duration = Duration::from_secs(10);
const MAX_COUNT_INTERVAL: Duration = Duration::from_mins(10);
/// Largest number of different lines that are remembered. Further lines are written each time.
const MAX_REMEMBERED_LINES: usize = 1_000;

/// Event formatter that leaves out warnings and errors that were written recently.
struct Deduplicate<F> {
    inner: F,
    repeats: Arc<Repeats>,
}

impl<S, N, F> FormatEvent<S, N> for Deduplicate<F>
where
    S: Subscriber + for<'s> LookupSpan<'s>,
    N: for<'n> FormatFields<'n> + 'static,
    F: FormatEvent<S, N>,
{
    fn format_event(
        &self,
        context: &FmtContext<'_, S, N>,
        writer: Writer<'_>,
        event: &Event<'_>,
    ) -> fmt::Result {
        if self.repeats.is_new(event) { self.inner.format_event(context, writer, event) } else { Ok(()) }
    }
}

#[derive(Debug, Default)]
struct Repeats {
    seen: Mutex<HashMap<String, Seen>>,
    /// Notification that a line was seen for the first time.
    more: Condvar,
}

#[derive(Debug)]
struct Seen {
    level: Level,
    /// Number of repetitions since the line was last written.
    times: u64,
    /// Time of the last repetition.
    last_at: Timestamp,
    /// Time at which the count is written.
    until: Instant,
    pause: Duration,
}

/// Line that was repeated and left out since it was last written.
#[derive(Debug, PartialEq, Eq)]
struct Count {
    level: Level,
    text: String,
    times: u64,
    last_at: Timestamp,
}

impl Count {
    /// Writes the line with the time of its last repetition: the cause may have ended since then.
    fn write(&self) {
        let Self { level, text, times: repeated, last_at } = self;
        let message = format!("repeated until {last_at:.0}: {text}");
        if *level == Level::ERROR {
            error!(target: REPEATED_TARGET, repeated, "{message}");
        } else {
            warn!(target: REPEATED_TARGET, repeated, "{message}");
        }
    }
}

impl Repeats {
    fn is_new(&self, event: &Event<'_>) -> bool {
        let level = *event.metadata().level();
        if level > Level::WARN || event.metadata().target() == REPEATED_TARGET {
            return true;
        }
        let mut text = Text::default();
        event.record(&mut text);
        self.note(level, text.joined(), Instant::now(), Timestamp::now())
    }

    fn note(&self, level: Level, text: String, now: Instant, last_at: Timestamp) -> bool {
        let mut seen = self.lock();
        if let Some(known) = seen.get_mut(&text) {
            known.times += 1;
            known.last_at = last_at;
            return false;
        }
        if seen.len() < MAX_REMEMBERED_LINES {
            seen.insert(
                text,
                Seen { level, times: 0, last_at, until: now + FIRST_COUNT_AFTER, pause: FIRST_COUNT_AFTER },
            );
            self.more.notify_one();
        }
        true
    }

    /// Returns the counts that are due. Forgets lines whose time has come and that were not repeated.
    fn due(&self, now: Instant) -> Vec<Count> {
        let mut counts = Vec::new();
        self.lock().retain(|text, seen| {
            if now < seen.until {
                return true;
            }
            if seen.times == 0 {
                return false;
            }
            let Seen { level, times, last_at, .. } = *seen;
            counts.push(Count { level, text: text.clone(), times, last_at });
            seen.pause = (seen.pause * 2).min(MAX_COUNT_INTERVAL);
            (seen.times, seen.until) = (0, now + seen.pause);
            true
        });
        counts
    }

    /// Waits until the next count may be due. Waits without a limit if no line is remembered.
    fn wait(&self) {
        let seen = self.lock();
        let next = seen.values().map(|seen| seen.until).min();
        match next {
            Some(next) => {
                let pause = next.saturating_duration_since(Instant::now());
                drop(self.more.wait_timeout(seen, pause));
            }
            None => drop(self.more.wait(seen)),
        }
    }

    fn lock(&self) -> MutexGuard<'_, HashMap<String, Seen>> {
        self.seen.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Writes counts from a separate thread, so that they appear even if nothing else is logged.
fn write_counts(repeats: Arc<Repeats>) {
    std::thread::spawn(move || {
        loop {
            repeats.wait();
            repeats.due(Instant::now()).iter().for_each(Count::write);
        }
    });
}

/// Text by which lines are compared: the message, then the fields.
#[derive(Debug, Default)]
struct Text {
    message: String,
    fields: String,
}

impl Text {
    fn joined(self) -> String {
        without_temporary_names(&(self.message + &self.fields))
    }
}

impl Visit for Text {
    fn record_debug(&mut self, field: &Field, value: &dyn fmt::Debug) {
        // Writing to a `String` does not fail.
        if field.name() == "message" {
            write!(self.message, "{value:?}").unwrap_or_default();
        } else {
            write!(self.fields, " {}={value:?}", field.name()).unwrap_or_default();
        }
    }
}

/// Removes the random part of temporary file names, so that lines that differ only there are equal.
fn without_temporary_names(text: &str) -> String {
    const TEMPORARY_PREFIX: &str = "/.tmp";
    const RANDOM_LENGTH: usize = 6;
    let mut parts = text.split(TEMPORARY_PREFIX);
    let mut joined = parts.next().unwrap_or_default().to_owned();
    for part in parts {
        let random = part.chars().take_while(char::is_ascii_alphanumeric).count() == RANDOM_LENGTH;
        joined += TEMPORARY_PREFIX;
        joined += if random { &part[RANDOM_LENGTH..] } else { part };
    }
    joined
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn repeated_lines_are_counted_at_growing_intervals() {
        let repeats = Repeats::default();
        let start = Instant::now();
        let at = |seconds| start + Duration::from_secs(seconds);
        let time = |seconds| Timestamp::from_second(seconds).unwrap();
        let note = |text: &str, seconds: u32| {
            repeats.note(Level::WARN, text.to_owned(), at(seconds.into()), time(seconds.into()))
        };
        let full = |times, last: i64| Count {
            level: Level::WARN,
            text: "full".to_owned(),
            times,
            last_at: time(last),
        };
        assert!(note("full", 0) && note("slow", 1), "each is new");
        assert!(!note("full", 1) && !note("full", 9));
        assert_eq!(repeats.due(at(9)), []);
        assert_eq!(repeats.due(at(11)), [full(2, 9)]);
        assert!(note("slow", 12), "it was not repeated, so it was forgotten");
        assert!(!note("full", 20));
        assert_eq!(repeats.due(at(30)), [], "the wait has doubled to twenty seconds");
        assert_eq!(repeats.due(at(31)), [full(1, 20)], "with the time of the last repetition");
        assert_eq!(repeats.due(at(71)), []);
        assert!(note("full", 72));
    }

    #[test]
    fn names_of_temporary_files_make_no_difference() {
        let with = |name| format!("cannot write a.yaml: No such file at path \"/fleet/jobs/{name}\"");
        assert_eq!(without_temporary_names(&with(".tmpKs6Ajx")), with(".tmp"));
        for text in [with(".tmp-mine"), with("kept"), String::new()] {
            assert_eq!(without_temporary_names(&text), text);
        }
    }

    #[test]
    fn lines_beyond_the_limit_are_written_each_time() {
        let repeats = Repeats::default();
        let now = Instant::now();
        for number in 0..MAX_REMEMBERED_LINES {
            assert!(repeats.note(Level::ERROR, number.to_string(), now, Timestamp::UNIX_EPOCH));
        }
        assert!(repeats.note(Level::ERROR, "more".to_owned(), now, Timestamp::UNIX_EPOCH));
        assert!(repeats.note(Level::ERROR, "more".to_owned(), now, Timestamp::UNIX_EPOCH));
    }
}
