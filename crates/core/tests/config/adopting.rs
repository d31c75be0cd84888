//! `adopt`: valid values, and errors.

use super::{lines, load_text};

#[test]
fn what_can_be_adopted() {
    let said = |schedules: &str| {
        let loaded = load_text(&format!("agents:\n  - name: a\n    schedules:\n{schedules}"));
        lines(&loaded).join("\n")
    };
    let one = |name: &str, adopt: &str| format!("      {name}: {{type: manual, adopt: {adopt}}}\n");
    assert_eq!(said(&one("new", "old")), "");
    assert_eq!(said(&one("new", "b/old")), "");
    let both = one("new", "old") + "      old: {type: manual}\n";
    let still = "a/old is still in the config; `adopt` is for the former name of this schedule";
    assert!(said(&both).contains(still), "{}", said(&both));
    assert!(said(&one("new", "new")).contains("a/new is still in the config"));
    let twice = one("new", "old") + &one("other", "a/old");
    assert!(said(&twice).contains("a/new adopts a/old already"), "{}", said(&twice));
    for bad in ["/x", "a b/c", "''", "..", "[old]"] {
        let text = said(&one("new", bad));
        assert!(text.contains("cowhand.yaml:4"), "{bad}: {text}");
    }
}
