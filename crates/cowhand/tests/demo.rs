//! The README's first command, with the real program.

#![expect(clippy::unwrap_used, reason = "a test that cannot go on fails")]

use std::io::{BufRead, BufReader, Read};
use std::path::PathBuf;
use std::process::{Command, Stdio};

/// Returns the folder of the demo, from its output.
fn folder(said: &str) -> PathBuf {
    let folder = said.split_whitespace().find(|word| word.contains("cowhand-demo-")).unwrap();
    folder.trim_end_matches(';').into()
}

#[test]
fn the_demo_runs_a_fleet() {
    let mut demo = Command::new(env!("CARGO_BIN_EXE_cowhand"))
        .args(["demo", "--for", "2m"])
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    let mut expected = vec![
        "triager/new-issues",
        "builder/docs",
        "done: 1,312 passed in 41 s",
        "high priority",
        "files-fix-login: available → claimed",
        "done: Fix the login with SSO: https://git.example.com/shop/pull/",
        "files-fix-login: claimed → done",
    ];
    let mut said = String::new();
    for line in BufReader::new(demo.stdout.take().unwrap()).lines().map(Result::unwrap) {
        let was_missing = !expected.is_empty();
        expected.retain(|word| !line.contains(word));
        if was_missing && expected.is_empty() {
            Command::new("kill").args(["-INT", &demo.id().to_string()]).status().unwrap();
        }
        said.extend([line.as_str(), "\n"]);
    }
    let mut errors = String::new();
    demo.stderr.take().unwrap().read_to_string(&mut errors).unwrap();
    assert!(demo.wait().unwrap().success(), "{said}\n{errors}");
    assert_eq!((errors.as_str(), expected), ("", vec![]), "{said}");
    assert!(!folder(&said).exists(), "nothing is left of it");
}

#[test]
fn the_demo_ends_by_itself() {
    let output = Command::new(env!("CARGO_BIN_EXE_cowhand")).args(["demo", "--for", "1s"]).output().unwrap();
    let (said, errors) = (String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr));
    assert!(output.status.success(), "{said}\n{errors}");
    assert_eq!(errors, "");
    assert!(said.contains(" jobs: "), "{said}");
    assert!(!folder(&said).exists(), "nothing is left of it");
}

#[test]
fn demo_ends_on_interrupt_and_keeps_its_folder() {
    let mut demo = Command::new(env!("CARGO_BIN_EXE_cowhand"))
        .args(["demo", "--keep"])
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    let mut lines = BufReader::new(demo.stdout.take().unwrap()).lines().map(Result::unwrap);
    // The demo handles signals from the time at which it prints events.
    let mut said = lines.by_ref().take_while(|line| !line.contains(" started")).collect::<Vec<_>>();
    Command::new("kill").args(["-INT", &demo.id().to_string()]).status().unwrap();
    said.extend(lines);
    assert!(demo.wait().unwrap().success());
    let folder = folder(&said.join("\n"));
    assert!(folder.join(".cowhand/state.yaml").exists());
    std::fs::remove_dir_all(folder).unwrap();
}

/// The reader closes the pipe, as in `cowhand demo | head -1`.
#[test]
fn demo_ends_when_its_output_is_closed() {
    let temporary = tempfile::tempdir().unwrap();
    let mut demo = Command::new(env!("CARGO_BIN_EXE_cowhand"))
        .arg("demo")
        .env("TMPDIR", temporary.path())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    let mut first = String::new();
    BufReader::new(demo.stdout.take().unwrap()).read_line(&mut first).unwrap();
    let output = demo.wait_with_output().unwrap();
    assert!(output.status.success(), "{output:?}");
    assert_eq!(String::from_utf8_lossy(&output.stderr), "");
    assert!(!folder(&first).exists(), "nothing is left of it");
    let full = std::fs::OpenOptions::new().write(true).open("/dev/full").unwrap();
    let output = Command::new(env!("CARGO_BIN_EXE_cowhand"))
        .arg("demo")
        .env("TMPDIR", temporary.path())
        .stdout(full)
        .output()
        .unwrap();
    assert_eq!(output.status.code(), Some(6), "{output:?}");
    assert_eq!(std::fs::read_dir(temporary.path()).unwrap().count(), 0, "nothing is left of it");
}
