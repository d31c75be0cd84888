use super::*;

fn at(seconds: i64) -> Timestamp {
    Timestamp::from_second(1_800_000_000 + seconds).unwrap()
}

fn claimant(fleet: &str, holder: &str, until: i64) -> Claimant {
    Claimant { fleet: fleet.into(), holder: holder.into(), until: at(until) }
}

struct Written {
    id: u64,
    created: i64,
    updated: i64,
    holder: &'static str,
    until: i64,
    renewed_before: Option<i64>,
}

/// Returns a claim that was created and last written at the same time, and never renewed.
const fn written(id: u64, created: i64, holder: &'static str, until: i64) -> Written {
    Written { id, created, updated: created, holder, until, renewed_before: None }
}

fn marks(now: i64, all: &[Written]) -> Marks {
    let marked = |written: &Written| Marked {
        id: written.id,
        author: Some("bot".into()),
        created_at: at(written.created),
        updated_at: at(written.updated),
        marker: Marker::Claim(ClaimMarker {
            fleet: "f".into(),
            fleet_name: None,
            holder: written.holder.into(),
            until: at(written.until),
            renewed_before: written.renewed_before.map(at),
        }),
    };
    Marks { all: all.iter().map(marked).collect(), now: at(now), viewer: Some("bot".into()) }
}

#[test]
fn markers_are_read_back_and_cannot_be_closed_early() {
    let nasty = claimant("a --> b <!-- c", "@everyone \"\\ \u{1b}[31m\n--!> 🐄", 500);
    for marker in [
        Marker::Claim(ClaimMarker::of(&nasty, at(0))),
        Marker::Claim(ClaimMarker::of(&nasty, at(0)).renewed(&nasty, at(1))),
        Marker::Report(ResultMarker::of(&nasty, Some(7))),
        Marker::Release(ResultMarker::of(&nasty, None)),
    ] {
        let line = marker.line();
        assert_eq!(line.matches('>').count(), 1, "{line}");
        assert_eq!(line.matches('<').count(), 1, "{line}");
        assert!(!line.contains(['@', '\n', '\u{1b}']), "{line}");
        assert_eq!(Marker::read(&format!("{line}\r\nseen by people")), Some(marker));
    }
}

#[test]
fn invalid_markers_are_ignored() {
    let good = Marker::Claim(ClaimMarker::of(&claimant("f", "h", 500), at(0))).line();
    let long =
        Marker::Claim(ClaimMarker::of(&claimant(&"f".repeat(MAX_MARKER_BYTES), "h", 500), at(0))).line();
    for body in [
        "",
        "\n",
        "text",
        &format!("> {good}"),
        &format!(" {good}"),
        &format!("look:\n{good}"),
        &good[..good.len() - 1],
        &good.replace("claim", "clam"),
        &good.replace("2027", "soon"),
        "<!-- cowhand:claim {} -->",
        "<!-- cowhand:claim [] -->",
        "<!-- cowhand:claim -->",
        "<!-- cowhand: -->",
        "<!-- cowhand:report {\"fleet\": 1, \"holder\": \"h\"} -->",
        &long,
    ] {
        assert_eq!(Marker::read(body), None, "{body}");
    }
}

#[test]
fn the_earliest_live_claim_holds() {
    let late = |mut claim: Written, renewed_before, updated| {
        (claim.renewed_before, claim.updated) = (Some(renewed_before), updated);
        claim
    };
    for (case, now, all, holder) in [
        ("no claim", 0, vec![], None),
        ("one claim", 5, vec![written(1, 0, "a", 60)], Some("a")),
        ("the older claim", 5, vec![written(9, 0, "a", 60), written(1, 1, "b", 60)], Some("a")),
        ("same second: the lower id", 5, vec![written(2, 0, "a", 60), written(1, 0, "b", 60)], Some("b")),
        ("at the end of the margin", 70, vec![written(1, 0, "a", 60)], Some("a")),
        ("after the margin", 71, vec![written(1, 0, "a", 60)], None),
        ("the first claim has expired", 71, vec![written(1, 0, "a", 60), written(2, 65, "b", 90)], Some("b")),
        ("renewed in time", 80, vec![late(written(1, 0, "a", 120), 60, 59)], Some("a")),
        ("renewed in the margin", 80, vec![late(written(1, 0, "a", 120), 60, 70)], Some("a")),
        ("renewed too late", 80, vec![late(written(1, 0, "a", 120), 60, 71)], None),
        (
            "renewed too late, after another claim",
            80,
            vec![late(written(1, 0, "a", 120), 60, 75), written(2, 71, "b", 120)],
            Some("b"),
        ),
        ("at most a day", 24 * 3600, vec![written(1, 0, "a", i64::from(i32::MAX))], Some("a")),
        ("after a day and the margin", 24 * 3600 + 11, vec![written(1, 0, "a", i64::from(i32::MAX))], None),
    ] {
        let marks = marks(now, &all);
        assert_eq!(marks.holder().map(|(_, claim)| claim.holder.as_str()), holder, "{case}");
    }
}

#[test]
fn a_claim_ends_at_a_whole_second_within_a_day() {
    let mut by = claimant("f", "h", 60);
    by.until += SignedDuration::from_millis(900);
    assert_eq!(ClaimMarker::of(&by, at(0)).until, at(60));
    by.until = at(1_000_000);
    assert_eq!(ClaimMarker::of(&by, at(0)).until, at(24 * 3600));
}

#[test]
fn only_markers_of_the_own_account_count_as_own() {
    let by = claimant("f", "a", 60);
    let mut marks = marks(5, &[written(1, 0, "a", 60)]);
    assert_eq!((marks.claims_of(&by).count(), marks.rival(&by)), (1, None));
    marks.all[0].author = Some("somebody".into());
    assert_eq!(marks.claims_of(&by).count(), 0);
    assert!(marks.rival(&by).is_some());
    marks.all[0].author = None;
    assert!(marks.rival(&by).is_some(), "a deleted account is not ours");
    marks.viewer = None;
    assert!(marks.rival(&by).is_none(), "if our account is not known, fleet and holder decide");
}

#[test]
fn a_result_is_reported_once_for_each_claim() {
    let by = claimant("f", "h", 60);
    for (reported, asked, expected) in [
        (None, None, true),
        (Some(1), Some(1), true),
        (Some(1), None, true),
        (None, Some(1), true),
        (Some(1), Some(2), false),
    ] {
        let reported = Marker::Report(ResultMarker::of(&by, reported));
        let mut marks = marks(0, &[written(3, 0, "h", 60)]);
        marks.all[0].marker = reported;
        assert_eq!(marks.has_reported(&Marker::Report(ResultMarker::of(&by, asked))), expected);
        assert!(!marks.has_reported(&Marker::Release(ResultMarker::of(&by, asked))), "another kind");
        assert!(
            !marks.has_reported(&Marker::Report(ResultMarker::of(&claimant("f", "other", 60), asked))),
            "another holder"
        );
    }
}
