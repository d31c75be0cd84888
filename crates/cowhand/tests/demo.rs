//! The README's first command, for real.

use std::io::{BufRead, BufReader};
use std::process::Command;

#[test]
fn the_demo_runs_a_fleet_and_ends_by_itself() {
    let output = Command::new(env!("CARGO_BIN_EXE_cowhand")).args(["demo", "--for", "6s"]).output().unwrap();
    let (said, errors) = (String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr));
    assert!(output.status.success(), "{said}\n{errors}");
    assert_eq!(errors, "");
    for expected in [
        "triager/new-issues",
        "builder/docs",
        "done: 1,312 passed in 41 s",
        "high priority",
        "files-fix-login: available → claimed",
        "done: Fix the login with SSO: https://git.example.com/shop/pull/",
        "files-fix-login: claimed → completed",
        " jobs: ",
    ] {
        assert!(said.contains(expected), "{expected} in:\n{said}");
    }
    let folder = said.split_whitespace().find(|word| word.contains("cowhand-demo-")).unwrap();
    let folder = folder.trim_end_matches(';');
    assert!(!std::path::Path::new(folder).exists(), "nothing is left of {folder}");
}

#[test]
fn the_demo_ends_on_an_interrupt_and_can_be_kept() {
    let mut demo = Command::new(env!("CARGO_BIN_EXE_cowhand"))
        .args(["demo", "--keep"])
        .stdout(std::process::Stdio::piped())
        .spawn()
        .unwrap();
    let mut lines = BufReader::new(demo.stdout.take().unwrap()).lines().map(Result::unwrap);
    // Once it tells what happens it also listens.
    let mut said = lines.by_ref().take_while(|line| !line.contains(" started")).collect::<Vec<_>>();
    Command::new("kill").args(["-INT", &demo.id().to_string()]).status().unwrap();
    said.extend(lines);
    assert!(demo.wait().unwrap().success());
    let said = said.join("\n");
    let folder =
        said.split_whitespace().find(|word| word.contains("cowhand-demo-")).unwrap().trim_end_matches(';');
    assert!(std::path::Path::new(folder).join(".cowhand/state.yaml").exists());
    std::fs::remove_dir_all(folder).unwrap();
}
