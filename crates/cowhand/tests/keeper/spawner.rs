//! Keepers that a spawner makes.

use std::os::unix::fs::PermissionsExt;
use std::path::PathBuf;
use std::time::Duration;

use cowhand::run::attempt::{Attempt, BeforeOutput};
use cowhand::run::ending::ExitStatus;
use cowhand::run::launcher::{LaunchInput, Launcher};
use cowhand::run::spawner::end_left_over;
use cowhand::run::supervision::AttemptState;
use cowhand_testing::process::{has_ended, lives, spawners};
use rustix::process::{Pid, Signal, kill_process};

use super::Scene;

/// A scene whose keepers come from a spawner.
struct SpawnerScene {
    scene: Scene,
    launcher: Launcher,
}

impl SpawnerScene {
    fn new() -> Self {
        let scene = Scene::new();
        let program = PathBuf::from(env!("CARGO_BIN_EXE_cowhand"));
        let launcher = Launcher::new(program, scene.state.path().to_owned());
        Self { scene, launcher }
    }

    fn sh(&self, attempt: &Attempt, script: &str) {
        let environment = [("PATH".to_owned(), std::env::var("PATH").unwrap())];
        let start = self.scene.start(&["sh", "-c", script]);
        let (before_output, prompt) = (BeforeOutput::default(), "do it\n".to_owned());
        let input = LaunchInput { before_output, start, prompt, environment: environment.to_vec() };
        self.launcher.launch(attempt, &input).unwrap();
    }

    /// Launches the scene's own attempt.
    fn first(&self, script: &str) {
        self.sh(&self.scene.attempt, script);
    }

    /// Launches a second attempt of the job, and returns its exit status.
    fn second(&self, script: &str) -> ExitStatus {
        let attempt = Attempt::new(self.scene.state.path(), &self.scene.attempt.job().unwrap(), 2);
        self.sh(&attempt, script);
        self.scene.wait_for("the second ending", || attempt.ending().unwrap()).status
    }

    fn spawners(&self) -> Vec<Pid> {
        spawners(self.scene.state.path())
    }

    fn spawner(&self) -> Pid {
        let [spawner] = self.spawners()[..] else { panic!("{:?}", self.spawners()) };
        spawner
    }

    fn keeper(&self) -> Pid {
        Pid::from_raw(self.scene.attempt.keeper_pid().unwrap()).unwrap()
    }
}

#[test]
fn keeper_of_a_spawner_is_like_an_executed_one() {
    let spawned = SpawnerScene::new();
    spawned.first("cat; env | cut -d= -f1 | sort | tr '\\n' ' '; ls /proc/self/fd | wc -l; while [ ! -e go ]; do sleep 0.02; done; exit 3");
    let scene = &spawned.scene;
    scene.until_it_says("4");
    assert_eq!(scene.stdout(), "do it\nCOWHAND_ATTEMPT_ID PATH PWD 4\n");
    let keeper = spawned.keeper();
    let shown = |file: &str| {
        let bytes = std::fs::read(format!("/proc/{}/{file}", keeper.as_raw_nonzero())).unwrap();
        let text = String::from_utf8(bytes).unwrap();
        text.trim_end_matches('\0').replace('\0', " ")
    };
    let folder = scene.attempt.folder().display().to_string();
    assert_eq!(shown("cmdline"), format!("{} keeper {folder}", env!("CARGO_BIN_EXE_cowhand")));
    assert_eq!(shown("environ"), scene.attempt.mark().0 + "=" + &scene.attempt.mark().1);
    assert_eq!(scene.attempt.state().unwrap(), AttemptState::Kept);
    std::fs::write(scene.state.path().join("go"), "").unwrap();
    assert_eq!(scene.ending().status, ExitStatus::Code { code: 3 });
    scene.wait_for("the spawner to reap the keeper", || (!lives(keeper)).then_some(()));
    assert_eq!(spawned.second("exit 4"), ExitStatus::Code { code: 4 });
    assert_eq!(spawned.spawners().len(), 1, "one spawner makes all keepers");
}

/// The environment that the kernel shows is that of the execution, before any program could change it.
#[test]
fn agent_of_a_spawner_has_each_variable_once() {
    let spawned = SpawnerScene::new();
    let environment = [("PATH".to_owned(), std::env::var("PATH").unwrap())];
    let start = spawned.scene.start(&["cat", "/proc/self/environ"]);
    let (before_output, prompt) = (BeforeOutput::default(), String::new());
    let input = LaunchInput { before_output, start, prompt, environment: environment.to_vec() };
    spawned.launcher.launch(&spawned.scene.attempt, &input).unwrap();
    spawned.scene.ending();
    let shown = spawned.scene.stdout();
    let names: Vec<&str> = shown.split('\0').filter_map(|text| Some(text.split_once('=')?.0)).collect();
    assert_eq!(names, ["PATH", "COWHAND_ATTEMPT_ID"]);
}

/// A process cannot set such a variable for itself, but it can pass it to a program.
#[test]
fn keeper_with_an_unusual_variable_is_executed() {
    let spawned = SpawnerScene::new();
    let path = ("PATH".to_owned(), std::env::var("PATH").unwrap());
    let environment = vec![path, (String::new(), "value".to_owned())];
    let start = spawned.scene.start(&["sh", "-c", "exit 3"]);
    let (before_output, prompt) = (BeforeOutput::default(), String::new());
    let input = LaunchInput { before_output, start, prompt, environment };
    spawned.launcher.launch(&spawned.scene.attempt, &input).unwrap();
    assert_eq!(spawned.scene.ending().status, ExitStatus::Code { code: 3 });
}

#[test]
fn upgraded_program_is_executed_for_each_keeper() {
    let mut spawned = SpawnerScene::new();
    let (copy, new) = (spawned.scene.state.path().join("cowhand"), spawned.scene.state.path().join("new"));
    for file in [&copy, &new] {
        std::fs::copy(env!("CARGO_BIN_EXE_cowhand"), file).unwrap();
    }
    spawned.launcher = Launcher::new(copy.clone(), spawned.scene.state.path().to_owned());
    std::fs::rename(new, copy).unwrap();
    spawned.first("exit 3");
    assert_eq!(spawned.scene.ending().status, ExitStatus::Code { code: 3 });
    assert!(spawned.spawners().is_empty(), "a spawner could be of another version");
}

#[test]
fn keeper_outlives_its_spawner() {
    let spawned = SpawnerScene::new();
    spawned.first("echo ready; while [ ! -e go ]; do sleep 0.02; done; exit 3");
    spawned.scene.until_it_says("ready");
    let SpawnerScene { scene, launcher } = spawned;
    // The daemon ends, for whatever reason.
    drop(launcher);
    assert!(spawners(scene.state.path()).is_empty());
    assert_eq!(scene.attempt.state().unwrap(), AttemptState::Kept);
    std::fs::write(scene.state.path().join("go"), "").unwrap();
    assert_eq!(scene.ending().status, ExitStatus::Code { code: 3 });
}

#[test]
fn killed_spawner_is_replaced() {
    let spawned = SpawnerScene::new();
    spawned.first("echo ready; while [ ! -e go ]; do sleep 0.02; done; exit 3");
    spawned.scene.until_it_says("ready");
    kill_process(spawned.spawner(), Signal::KILL).unwrap();
    assert_eq!(spawned.second("exit 4"), ExitStatus::Code { code: 4 });
    std::fs::write(spawned.scene.state.path().join("go"), "").unwrap();
    assert_eq!(spawned.scene.ending().status, ExitStatus::Code { code: 3 });
}

#[test]
fn spawner_that_hangs_is_replaced_and_the_agent_starts_once() {
    let mut spawned = SpawnerScene::new();
    spawned.launcher = spawned.launcher.with_answer_timeout(Duration::from_millis(200));
    spawned.first("true");
    spawned.scene.ending();
    let hung = spawned.spawner();
    kill_process(hung, Signal::STOP).unwrap();
    let runs = spawned.scene.state.path().join("runs");
    let script = format!("echo run >> {}; exit 4", runs.display());
    assert_eq!(spawned.second(&script), ExitStatus::Code { code: 4 });
    assert!(!lives(hung), "it was ended and reaped");
    assert_eq!(std::fs::read_to_string(runs).unwrap(), "run\n");
}

#[test]
fn program_that_cannot_be_a_spawner_is_executed_for_each_keeper() {
    let mut spawned = SpawnerScene::new();
    let wrapper = spawned.scene.state.path().join("wrapper");
    let program = env!("CARGO_BIN_EXE_cowhand");
    std::fs::write(&wrapper, format!("#!/bin/sh\n[ \"$2\" = spawner ] && exit 1\nexec {program} \"$@\"\n"))
        .unwrap();
    std::fs::set_permissions(&wrapper, PermissionsExt::from_mode(0o755)).unwrap();
    spawned.launcher = Launcher::new(wrapper, spawned.scene.state.path().to_owned());
    spawned.first("exit 3");
    assert_eq!(spawned.scene.ending().status, ExitStatus::Code { code: 3 });
    assert_eq!(spawned.second("exit 4"), ExitStatus::Code { code: 4 });
    assert!(spawned.spawners().is_empty());
}

/// A suspended spawner does not notice the end of its daemon.
#[test]
fn suspended_spawner_of_an_earlier_daemon_is_ended() {
    let spawned = SpawnerScene::new();
    spawned.first("true");
    spawned.scene.ending();
    kill_process(spawned.spawner(), Signal::STOP).unwrap();
    let other = tempfile::tempdir().unwrap();
    end_left_over(other.path()).unwrap();
    assert_eq!(spawned.spawners().len(), 1, "a spawner of another state folder");
    end_left_over(spawned.scene.state.path()).unwrap();
    spawned.scene.wait_for("the end of the spawner", || {
        let stat = spawned.spawners().first().map(|pid| has_ended(*pid));
        stat.unwrap_or(true).then_some(())
    });
}
