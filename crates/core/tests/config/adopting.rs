//! `adopt`: valid values, and errors.

use super::{lines, load_text};

#[test]
fn only_former_names_of_schedules_can_be_adopted() {
    let messages = |schedules: &str| {
        let loaded = load_text(&format!("agents:\n  - name: a\n    schedules:\n{schedules}"));
        lines(&loaded).join("\n")
    };
    let one = |name: &str, adopt: &str| format!("      {name}: {{type: manual, adopt: {adopt}}}\n");
    assert_eq!(messages(&one("new", "old")), "");
    assert_eq!(messages(&one("new", "b/old")), "");
    let both = one("new", "old") + "      old: {type: manual}\n";
    let still = "a/old is still in the config; `adopt` is for the former name of this schedule";
    assert!(messages(&both).contains(still), "{}", messages(&both));
    assert!(messages(&one("new", "new")).contains("a/new is still in the config"));
    let twice = one("new", "old") + &one("other", "a/old");
    assert!(messages(&twice).contains("a/new adopts a/old already"), "{}", messages(&twice));
    for bad in ["/x", "a b/c", "''", "..", "[old]"] {
        let text = messages(&one("new", bad));
        assert!(text.contains("cowhand.yaml:4"), "{bad}: {text}");
    }
}
