//! The configs of the measured fleets.

use std::fmt::Write as _;
use std::fs;
use std::path::Path;

use super::agent::Program;

const SCHEDULES_OF_AGENT: usize = 10;
const SCHEDULES_OF_FILE: usize = 1_000;
/// Size of the text of one schedule.
const SCHEDULE_BYTES: usize = 300;

const DESCRIPTION: &str = "Looks after issues";

/// Agent that [`Config::change_one_agent`] changes.
pub(crate) const CHANGED_AGENT: &str = "f0.a0";

/// Returns the description of the changed agent.
pub(crate) fn described(round: usize) -> String {
    format!("{DESCRIPTION}, round {round}")
}

/// Files of a fleet: the root file, and a fleet below for each thousand schedules.
#[derive(Debug, Clone)]
pub(crate) struct Config {
    top: String,
    agents: String,
    below: Vec<String>,
}

impl Config {
    pub(crate) const fn new() -> Self {
        Self { top: String::new(), agents: String::new(), below: Vec::new() }
    }

    /// Adds a line to the top of the root file.
    pub(crate) fn top(mut self, line: &str) -> Self {
        writeln!(self.top, "{line}").unwrap();
        self
    }

    /// Adds an agent with one schedule. `schedule` is the schedule in flow style, without braces.
    pub(crate) fn agent(mut self, name: &str, places: usize, program: &Program, schedule: &str) -> Self {
        let command = program.yaml();
        writeln!(
            self.agents,
            "  - {{name: {name}, runtime: command, command: {command}, instances: {{max_concurrent: {places}}}, schedules: {{s: {{{schedule}}}}}}}"
        )
        .unwrap();
        self
    }

    /// Adds schedules that are not due for a long time, ten for each agent.
    pub(crate) fn armed(mut self, schedules: usize) -> Self {
        let mut left = schedules;
        while left > 0 {
            let count = left.min(SCHEDULES_OF_FILE);
            self.below.push(armed_file(count));
            left -= count;
        }
        self
    }

    /// Returns the size of all files.
    pub(crate) fn bytes(&self) -> usize {
        self.root().len() + self.below.iter().map(String::len).sum::<usize>()
    }

    /// Returns the texts of all files.
    pub(crate) fn texts(&self) -> Vec<String> {
        std::iter::once(self.root()).chain(self.below.iter().cloned()).collect()
    }

    pub(crate) fn write(&self, folder: &Path) {
        fs::write(folder.join("cowhand.yaml"), self.root()).unwrap();
        for (index, text) in self.below.iter().enumerate() {
            let folder = folder.join(format!("f{index}"));
            fs::create_dir_all(&folder).unwrap();
            fs::write(folder.join("cowhand.yaml"), text).unwrap();
        }
    }

    /// Changes one agent in the files of a fleet. Each round makes another change.
    pub(crate) fn change_one_agent(&self, folder: &Path, round: usize) {
        let changed =
            self.below[0].replacen(DESCRIPTION, &described(round), 1).replacen("Look at", "Look again at", 1);
        let file = folder.join("f0/cowhand.yaml");
        let new = folder.join("f0/new");
        fs::write(&new, changed).unwrap();
        fs::rename(new, file).unwrap();
    }

    fn root(&self) -> String {
        let mut text = self.top.clone();
        match self.agents.as_str() {
            "" => text.push_str("agents: []\n"),
            agents => write!(text, "agents:\n{agents}").unwrap(),
        }
        if !self.below.is_empty() {
            text.push_str("fleets:\n");
        }
        for index in 0..self.below.len() {
            writeln!(text, "  - {{path: f{index}/cowhand.yaml, name: f{index}}}").unwrap();
        }
        text
    }
}

fn armed_file(schedules: usize) -> String {
    let mut text = "agents:\n".to_owned();
    for index in 0..schedules {
        let (agent, schedule) = (index / SCHEDULES_OF_AGENT, index % SCHEDULES_OF_AGENT);
        if schedule == 0 {
            write!(text, "  - name: a{agent}\n    description: {DESCRIPTION}\n").unwrap();
            text.push_str("    runtime: command\n    command: ['true']\n    schedules:\n");
        }
        let begin = text.len();
        write!(
            text,
            "      s{schedule}:\n        type: cron\n        cron: 0 0 1 1 *\n        timezone: UTC\n        prompt: >-\n          Look"
        )
        .unwrap();
        let filler = (SCHEDULE_BYTES - 1).saturating_sub(text.len() - begin);
        text.extend(" at the newest issues".chars().cycle().take(filler - 1));
        text.push_str(".\n");
    }
    text
}
