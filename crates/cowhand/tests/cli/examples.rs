//! The examples are valid, and the docs show them unchanged.

use std::path::Path;

use super::cowhand;

#[test]
fn example_fleet_has_no_warnings_and_docs_show_it() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
    let checked = cowhand(&root, &["config", "check", "-c", "examples/fleet"], &[]);
    assert_eq!(checked, "exit: 0\n--- stdout\nok: 3 agents, 6 schedules\n--- stderr\n");
    let example = std::fs::read_to_string(root.join("examples/fleet/cowhand.yaml")).unwrap();
    let page = std::fs::read_to_string(root.join("docs/config.md")).unwrap();
    assert!(page.contains(&format!("```yaml\n{example}```\n")), "docs/config.md shows another text");
}

/// The config limits spending, accounts and the machine, and gives no warning.
#[test]
fn careful_fleet_has_no_warnings_and_docs_link_to_it() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
    let checked = cowhand(&root, &["config", "check", "-c", "examples/careful"], &[]);
    assert_eq!(checked, "exit: 0\n--- stdout\nok: 2 agents, 2 schedules\n--- stderr\n");
    for page in ["docs/budgets.md", "docs/providers.md", "docs/sandbox.md"] {
        let text = std::fs::read_to_string(root.join(page)).unwrap();
        assert!(text.contains("(../examples/careful/cowhand.yaml)"), "{page} does not name it");
    }
}
