//! The program as people run it: exit code, output and errors of each verb.

#![expect(clippy::unwrap_used, reason = "a test that cannot go on fails")]

mod config;
mod examples;

use std::path::Path;
use std::process::Command;

use tempfile::TempDir;

/// Creates a directory with these files.
fn directory(files: &[(&str, &str)]) -> TempDir {
    let directory = TempDir::new().unwrap();
    for (name, text) in files {
        let path = directory.path().join(name);
        std::fs::create_dir_all(path.parent().unwrap()).unwrap();
        std::fs::write(path, text).unwrap();
    }
    directory
}

/// Returns exit code, stdout and stderr, with the path of the directory removed.
fn cowhand(directory: &Path, arguments: &[&str], env: &[(&str, &str)]) -> String {
    let output = Command::new(env!("CARGO_BIN_EXE_cowhand"))
        .args(arguments)
        .current_dir(directory)
        .env_clear()
        .env("TZ", "Europe/Berlin")
        .envs(env.iter().copied())
        .output()
        .unwrap();
    let text = |bytes: &[u8]| {
        let real = directory.canonicalize().unwrap();
        String::from_utf8_lossy(bytes)
            .replace(real.to_str().unwrap(), "[DIR]")
            .replace(directory.to_str().unwrap(), "[DIR]")
    };
    format!(
        "exit: {}\n--- stdout\n{}--- stderr\n{}",
        output.status.code().unwrap(),
        text(&output.stdout),
        text(&output.stderr)
    )
}
