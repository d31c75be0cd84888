//! The README's first command.

use std::process::Command;

#[test]
fn demo_shows_what_works_and_ends_well() {
    let output = Command::new(env!("CARGO_BIN_EXE_cowhand")).arg("demo").env_clear().output().unwrap();
    let said = String::from_utf8(output.stdout).unwrap();
    assert!(output.status.success(), "{said}");
    for agent in ["triage/", "reporter/", "janitor/"] {
        assert!(said.contains(agent), "{said}");
    }
}
