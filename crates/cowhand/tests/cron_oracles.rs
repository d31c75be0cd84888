//! `schedule next` against two other cron libraries, npm's cron-parser and croner.
//!
//! The test draws random expressions in ten zones. Half of the questions start shortly before a clock change. Where the
//! two oracles agree, the binary has to give the same answer. Where they differ (mostly for a fixed time inside a gap),
//! cowhand has its own rule, with its table in `cron::tests::clock_changes` in core.
//!
//! There is one exception, which the test checks exactly: both oracles drop a *list* of fixed times that falls into a
//! gap (`5 2,16 * * *`). cowhand treats a list of fixed times like a fixed time (docs/decisions/0001), so its answer is
//! the answer of the oracles plus one firing right after the gap.
//!
//! `COWHAND_SEED=7` draws other cases, `COWHAND_LONG=1` draws 5,000.

#![expect(
    clippy::unwrap_used,
    clippy::expect_used,
    reason = "clippy.toml allows them in #[test] functions, not in those they call"
)]

use std::fmt;
use std::io::Write;
use std::path::Path;
use std::process::{Command, Stdio};

use fastrand::Rng;
use jiff::tz::TimeZone;
use jiff::{Timestamp, ToSpan};
use serde::{Deserialize, Serialize};

/// Zones of both hemispheres, with offsets of whole and half hours. Some change the clock at midnight or by half an
/// hour, and some never change it.
const ZONES: [&str; 10] = [
    "UTC",
    "Asia/Kolkata",
    "Asia/Kathmandu",
    "Europe/Berlin",
    "America/New_York",
    "America/St_Johns",
    "America/Havana",
    "America/Santiago",
    "Australia/Lord_Howe",
    "Pacific/Auckland",
];

const COUNT: usize = 5;

#[derive(Serialize)]
struct Question {
    cron: String,
    zone: &'static str,
    from: Timestamp,
    count: usize,
}

#[derive(Deserialize)]
struct Oracles {
    cron_parser: Answer,
    croner: Answer,
}

/// Answer of an oracle or the binary: firings, or the reason why there are none.
#[derive(Deserialize)]
#[serde(untagged)]
enum Answer {
    Firings(Vec<String>),
    Refused(String),
}

#[test]
fn cowhand_answers_like_both_oracles_where_they_agree() {
    let long = std::env::var_os("COWHAND_LONG").is_some_and(|value| value == "1");
    let cases = if long { 5_000 } else { 200 };
    let seed =
        std::env::var("COWHAND_SEED").map_or(2026, |text| text.parse().expect("COWHAND_SEED: a number"));
    let mut rng = Rng::with_seed(seed);
    let questions: Vec<Question> = (0..cases).map(|place| draw_question(&mut rng, place)).collect();

    let (mut equal, mut after_gap, mut differing, mut wrong) = (0, 0, 0, Vec::new());
    for (question, Oracles { cron_parser, croner }) in questions.iter().zip(ask_oracles(&questions)) {
        if cron_parser != croner {
            differing += 1;
            continue;
        }
        let ours = ask_cowhand(question);
        if ours == croner {
            equal += 1;
        } else if is_list_after_gap(question, &ours, &croner) {
            after_gap += 1;
        } else {
            wrong.push(format!("{question}\n    ours    {ours}\n    oracles {croner}"));
        }
    }

    let compared = equal + after_gap + wrong.len();
    println!(
        "cron oracles: seed {seed}, {cases} cases, {compared} compared: {equal} equal, {after_gap} lists after a \
         gap, {} wrong; the oracles differ in {differing}",
        wrong.len()
    );
    assert!(wrong.is_empty(), "different from both oracles:\n{}", wrong.join("\n"));
    assert!(compared * 4 >= cases * 3, "only {compared} of {cases} cases could be compared");
}

/// Checks whether `ours` equals the oracles, plus firings exactly at the end of a gap, for a list of fixed
/// times.
fn is_list_after_gap(question: &Question, ours: &Answer, oracles: &Answer) -> bool {
    let fields: Vec<&str> = question.cron.split(' ').collect();
    let times = fields[..fields.len() - 3].join(" ");
    if times.contains(['*', '/', '-']) || !times.contains(',') {
        return false;
    }
    let zone = TimeZone::get(question.zone).unwrap();
    let common: Vec<&String> = ours.firings().iter().filter(|firing| !ends_a_gap(firing, &zone)).collect();
    common.len() < ours.firings().len() && oracles.firings().iter().take(common.len()).eq(common)
}

fn ends_a_gap(firing: &str, zone: &TimeZone) -> bool {
    let at: Timestamp = firing.parse().unwrap();
    zone.to_offset(at) > zone.to_offset(at - 1.second())
}

impl PartialEq for Answer {
    /// Compares answers. Two refusals are equal whatever their text; an empty list is a refusal of croner.
    fn eq(&self, other: &Self) -> bool {
        self.firings() == other.firings()
    }
}

impl Answer {
    fn firings(&self) -> &[String] {
        match self {
            Self::Firings(firings) => firings,
            Self::Refused(_) => &[],
        }
    }
}

impl fmt::Display for Answer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Firings(firings) => f.write_str(&firings.join(" ")),
            Self::Refused(why) => f.write_str(why),
        }
    }
}

impl fmt::Display for Question {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "--cron '{}' --timezone {} --from {}", self.cron, self.zone, self.from)
    }
}

fn ask_cowhand(question: &Question) -> Answer {
    let output = Command::new(env!("CARGO_BIN_EXE_cowhand"))
        .args(["schedule", "next", "--cron", &question.cron, "--timezone", question.zone])
        .args(["--from", &question.from.to_string(), "--count", &question.count.to_string(), "--json"])
        .output()
        .unwrap();
    if output.status.success() {
        serde_json::from_slice(&output.stdout).unwrap()
    } else {
        assert_eq!(output.status.code(), Some(2), "{question}: {output:?}");
        Answer::Refused(String::from_utf8(output.stderr).unwrap())
    }
}

fn ask_oracles(questions: &[Question]) -> Vec<Oracles> {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../tests/node");
    assert!(
        folder.join("node_modules/croner").is_dir() && folder.join("node_modules/cron-parser").is_dir(),
        "the cron oracles are not installed in tests/node: run scripts/test, which installs them"
    );
    let mut node = Command::new("node")
        .arg(folder.join("cron-oracles.mjs"))
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()
        .expect("node is not installed: run scripts/test, which installs it");
    node.stdin.take().unwrap().write_all(&serde_json::to_vec(questions).unwrap()).unwrap();
    let output = node.wait_with_output().unwrap();
    assert!(output.status.success(), "tests/node/cron-oracles.mjs failed: {}", output.status);
    let answers: Vec<Oracles> = serde_json::from_slice(&output.stdout).unwrap();
    assert_eq!(answers.len(), questions.len());
    answers
}

fn draw_question(rng: &mut Rng, place: usize) -> Question {
    let zone = ZONES[place % ZONES.len()];
    Question { cron: draw_cron(rng), zone, from: draw_start(rng, zone), count: COUNT }
}

/// Draws a start time. Half of the start times are in the two days before one of the year's clock changes, if the zone
/// has any.
fn draw_start(rng: &mut Rng, zone: &str) -> Timestamp {
    let new_year: Timestamp = "2026-01-01T00:00:00Z".parse().unwrap();
    let zone = TimeZone::get(zone).unwrap();
    let changes: Vec<Timestamp> = zone.following(new_year).take(2).map(|change| change.timestamp()).collect();
    match rng.choice(changes) {
        Some(change) if rng.bool() => change - rng.i64(0..48 * 3600).seconds(),
        _ => new_year + rng.i64(0..365 * 24 * 3600).seconds(),
    }
}

fn draw_cron(rng: &mut Rng) -> String {
    let mut fields =
        vec![draw_minute(rng), draw_hour(rng), draw_day(rng), draw_month(rng), draw_weekday(rng)];
    if rng.u8(..5) == 0 {
        fields.insert(0, draw_minute(rng));
    }
    fields.join(" ")
}

/// Draws a field of minutes or of seconds, which have the same grammar.
fn draw_minute(rng: &mut Rng) -> String {
    match rng.u8(..8) {
        0 => "*".to_owned(),
        1..=2 => format!("*/{}", rng.choice([1, 5, 7, 10, 15, 20, 30, 45]).unwrap()),
        3..=5 => rng.u8(..60).to_string(),
        6 => draw_list(rng, 0, 59),
        _ => draw_range(rng, 0, 59),
    }
}

/// Draws an hour, often early in the morning, where the clocks change.
fn draw_hour(rng: &mut Rng) -> String {
    match rng.u8(..10) {
        0..=1 => "*".to_owned(),
        2 => format!("*/{}", rng.u8(1..=8)),
        3..=5 => rng.u8(..4).to_string(),
        6 => rng.u8(..24).to_string(),
        7 => draw_list(rng, 0, 23),
        8 => draw_range(rng, 0, 5),
        _ => draw_range(rng, 0, 23),
    }
}

fn draw_day(rng: &mut Rng) -> String {
    match rng.u8(..12) {
        0 => "L".to_owned(),
        1 => rng.u8(1..=31).to_string(),
        2 => draw_list(rng, 1, 31),
        3 => draw_range(rng, 1, 31),
        4 => format!("*/{}", rng.u8(2..=10)),
        _ => "*".to_owned(),
    }
}

fn draw_month(rng: &mut Rng) -> String {
    const NAMES: [&str; 12] =
        ["JAN", "feb", "MAR", "Apr", "MAY", "jun", "JUL", "Aug", "SEP", "oct", "NOV", "Dec"];
    match rng.u8(..12) {
        0 => rng.u8(1..=12).to_string(),
        1 => NAMES[rng.usize(..12)].to_owned(),
        2 => draw_list(rng, 1, 12),
        3 => draw_range(rng, 1, 12),
        4 => format!("*/{}", rng.u8(2..=6)),
        5 => {
            let first = rng.usize(..11);
            format!("{}-{}", NAMES[first], NAMES[rng.usize(first + 1..12)])
        }
        _ => "*".to_owned(),
    }
}

fn draw_weekday(rng: &mut Rng) -> String {
    const NAMES: [&str; 7] = ["SUN", "MON", "tue", "WED", "Thu", "FRI", "sat"];
    match rng.u8(..16) {
        0 => rng.u8(..8).to_string(),
        1 => NAMES[rng.usize(..7)].to_owned(),
        2 => draw_list(rng, 0, 6),
        3 => draw_range(rng, 0, 6),
        4 => "MON-FRI".to_owned(),
        5 => format!("{}#{}", rng.u8(..7), rng.u8(1..=5)),
        6 => format!("{}L", rng.u8(..7)),
        _ => "*".to_owned(),
    }
}

fn draw_list(rng: &mut Rng, low: u8, high: u8) -> String {
    let values: Vec<String> = (0..rng.usize(2..=4)).map(|_| rng.u8(low..=high).to_string()).collect();
    values.join(",")
}

fn draw_range(rng: &mut Rng, low: u8, high: u8) -> String {
    let first = rng.u8(low..high);
    let last = rng.u8(first + 1..=high);
    if rng.bool() { format!("{first}-{last}") } else { format!("{first}-{last}/{}", rng.u8(2..=5)) }
}
