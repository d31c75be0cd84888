//! The real program, in a small fleet without a daemon.

use std::collections::BTreeMap;
use std::fs;
use std::process::{Command, Stdio};

use tempfile::TempDir;

const FLEET: &str = "\
agents:
  - name: coder
    runtime: command
    command: [cat]
    work_source: {type: files, path: tasks}
    schedules:
      nightly: {type: cron, cron: 0 3 * * *, prompt: Build and test everything.}
  - name: helper
    runtime: command
    command: [cat]
    schedules:
      hello: {type: interval, interval: 1h, prompt: Say hi.}
";

#[derive(Clone)]
pub(super) struct Answer {
    pub(super) code: Option<i32>,
    pub(super) stdout: String,
    pub(super) stderr: String,
}

/// A folder with a fleet, and the answers of the commands that ran in it.
pub(super) struct Program {
    pub(super) folder: TempDir,
    answers: BTreeMap<Vec<String>, Answer>,
}

impl Program {
    pub(super) fn new() -> Self {
        let folder = TempDir::new().unwrap();
        fs::create_dir(folder.path().join("tasks")).unwrap();
        fs::write(folder.path().join("tasks/1.md"), "Paint the fence.\n").unwrap();
        fs::write(folder.path().join("cowhand.yaml"), FLEET).unwrap();
        Self { folder, answers: BTreeMap::new() }
    }

    /// Runs a command, or returns its answer if it has run before.
    pub(super) fn answer(&mut self, words: &[String]) -> Answer {
        if let Some(answer) = self.answers.get(words) {
            return answer.clone();
        }
        let answer = self.run(words, &[]);
        self.answers.insert(words.to_vec(), answer.clone());
        answer
    }

    /// Runs a command for at most half a minute, with an empty standard input.
    pub(super) fn run<W: AsRef<str>>(&self, words: &[W], variables: &[(String, String)]) -> Answer {
        let output = Command::new("timeout")
            .args(["30", env!("CARGO_BIN_EXE_cowhand")])
            .args(words.iter().map(AsRef::as_ref))
            .current_dir(self.folder.path())
            .env_clear()
            .env("PATH", std::env::var_os("PATH").unwrap())
            .env("HOME", self.folder.path())
            .envs(variables.iter().cloned())
            .stdin(Stdio::null())
            .output()
            .unwrap();
        let text = |bytes: Vec<u8>| String::from_utf8(bytes).unwrap();
        Answer { code: output.status.code(), stdout: text(output.stdout), stderr: text(output.stderr) }
    }
}
