//! The keeper with real processes: every way an agent can end, and what remains afterwards.

#![expect(clippy::unwrap_used, reason = "a test that cannot go on says so by panicking")]

mod spawner;

use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::process::{Child, Command};
use std::time::{Duration, Instant};

use cowhand::run::attempt::Attempt;
use cowhand::run::ending::{Ending, ExitStatus};
use cowhand::run::process::StopSignal;
use cowhand::run::start::StartSpec;
use cowhand::run::supervision::{AttemptState, StopOutcome};
use cowhand_core::id::JobId;
use cowhand_core::job::Termination;
use tempfile::TempDir;

struct Scene {
    state: TempDir,
    attempt: Attempt,
    keeper: Option<Child>,
    grace_ms: u64,
}

impl Scene {
    fn new() -> Self {
        let state = tempfile::tempdir().unwrap();
        let job = JobId::new(jiff::civil::date(2026, 1, 5), fastrand::u64(..));
        let attempt = Attempt::new(state.path(), &job, 1);
        Self { state, attempt, keeper: None, grace_ms: 10_000 }
    }

    fn grace(mut self, grace_ms: u64) -> Self {
        self.grace_ms = grace_ms;
        self
    }

    fn start(&self, argv: &[&str]) -> StartSpec {
        StartSpec {
            argv: argv.iter().map(|&argument| argument.to_owned()).collect(),
            directory: self.state.path().to_owned(),
            stop_signal: StopSignal::Terminate,
            grace_ms: self.grace_ms,
            reader: None,
            input: None,
            limits: None,
            sandbox: None,
            program: None,
            rules: None,
        }
    }

    fn launch(mut self, start: &StartSpec) -> Self {
        let environment = [("PATH".to_owned(), std::env::var("PATH").unwrap())];
        let program = Path::new(env!("CARGO_BIN_EXE_cowhand"));
        self.keeper = Some(self.attempt.launch(program, start, "do it\n", &environment).unwrap());
        self
    }

    fn sh(self, script: &str) -> Self {
        let start = self.start(&["sh", "-c", script]);
        self.launch(&start)
    }

    fn ending(&self) -> Ending {
        self.wait_for("the ending", || self.attempt.ending().unwrap())
    }

    fn wait_for<T>(&self, what: &str, mut look: impl FnMut() -> Option<T>) -> T {
        let patience = Instant::now() + Duration::from_secs(30);
        loop {
            if let Some(found) = look() {
                return found;
            }
            let log = std::fs::read_to_string(self.attempt.folder().join("keeper.log")).unwrap_or_default();
            assert!(Instant::now() < patience, "timed out while waiting for {what}; the keeper says: {log}");
            std::thread::sleep(Duration::from_millis(10));
        }
    }

    /// Waits until the agent prints this word.
    fn until_it_says(&self, word: &str) {
        self.wait_for(word, || self.stdout().contains(word).then_some(()));
    }

    fn stdout(&self) -> String {
        String::from_utf8_lossy(&std::fs::read(self.attempt.stdout()).unwrap_or_default()).into_owned()
    }

    /// Returns the processes that still carry this attempt's mark, except the keeper.
    fn alive(&self) -> Vec<String> {
        let (name, value) = self.attempt.mark();
        let mark = format!("{name}={value}");
        let keeper = self.keeper.as_ref().map(|keeper| keeper.id().to_string());
        let entries = std::fs::read_dir("/proc").unwrap().flatten();
        let pids = entries.map(|entry| entry.file_name().to_string_lossy().into_owned());
        let carries = |pid: &String| {
            let environment = std::fs::read(format!("/proc/{pid}/environ")).unwrap_or_default();
            environment.split(|byte| *byte == 0).any(|variable| variable == mark.as_bytes())
        };
        pids.filter(carries).filter(|pid| Some(pid) != keeper.as_ref()).collect()
    }
}

impl Drop for Scene {
    fn drop(&mut self) {
        for pid in self.alive() {
            Command::new("kill").args(["-9", &pid]).status().ok();
        }
        if let Some(keeper) = &mut self.keeper {
            keeper.kill().ok();
            keeper.wait().ok();
        }
    }
}

#[test]
fn the_prompt_comes_on_stdin_and_the_output_goes_to_files() {
    let scene = Scene::new().sh("cat; echo to stderr >&2; pwd; exit 3");
    let ending = scene.ending();
    assert_eq!(ending.status, ExitStatus::Code { code: 3 });
    assert_eq!((ending.stopped, ending.leftovers), (None, 0));
    let directory = scene.state.path().canonicalize().unwrap();
    assert_eq!(scene.stdout(), format!("do it\n{}\n", directory.display()));
    assert_eq!(std::fs::read_to_string(scene.attempt.stderr()).unwrap(), "to stderr\n");
    assert_eq!(scene.attempt.state().unwrap(), AttemptState::Ended(ending));
}

#[test]
fn only_the_given_environment_reaches_the_agent() {
    let scene = Scene::new().sh("env | cut -d= -f1 | sort | tr '\\n' ' '");
    scene.ending();
    let names: Vec<String> = scene.stdout().split_whitespace().map(str::to_owned).collect();
    assert_eq!(names, ["COWHAND_ATTEMPT_ID", "PATH", "PWD"]);
}

#[test]
fn no_descriptor_is_inherited() {
    let scene = Scene::new().sh("ls /proc/self/fd | wc -l");
    scene.ending();
    assert_eq!(scene.stdout().trim(), "4", "in, out, err, and the folder that ls reads");
}

#[test]
fn start_failures_have_their_message() {
    let missing = Scene::new();
    let start = missing.start(&["no-such-agent-here", "-p"]);
    let missing = missing.launch(&start);
    let ExitStatus::StartFailed { message } = missing.ending().status else { panic!() };
    assert_eq!(
        message,
        "cannot start \"no-such-agent-here\": it was not found; is it installed and on the PATH?"
    );

    let nowhere = Scene::new();
    let start = StartSpec { directory: "/no/such/directory".into(), ..nowhere.start(&["true"]) };
    let nowhere = nowhere.launch(&start);
    let ExitStatus::StartFailed { message } = nowhere.ending().status else { panic!() };
    assert_eq!(message, "cannot start \"true\": its directory /no/such/directory does not exist");

    let locked = Scene::new();
    let start = locked.start(&["/etc/passwd"]);
    let locked = locked.launch(&start);
    let ExitStatus::StartFailed { message } = locked.ending().status else { panic!() };
    assert_eq!(message, "cannot start \"/etc/passwd\": it may not be executed");
}

#[test]
fn killed_agent_ends_with_signal_status() {
    let scene = Scene::new().sh("kill -9 $$");
    assert_eq!(scene.ending().status, ExitStatus::signal(9));
}

#[test]
fn agent_ends_gracefully_on_stop_request() {
    let scene = Scene::new().sh("trap 'echo bye; exit 0' TERM; echo ready; while :; do sleep 0.05; done");
    scene.until_it_says("ready");
    assert_eq!(scene.attempt.stop().unwrap(), StopOutcome::Asked);
    let ending = scene.ending();
    assert_eq!((ending.status, ending.stopped), (ExitStatus::Code { code: 0 }, Some(Termination::Graceful)));
    assert!(scene.stdout().contains("bye"));
}

#[test]
fn agent_that_ignores_signal_is_killed_after_grace_period() {
    let scene = Scene::new().grace(300).sh("trap '' TERM; echo ready; while :; do sleep 0.05; done");
    scene.until_it_says("ready");
    assert_eq!(scene.attempt.stop().unwrap(), StopOutcome::Asked);
    let ending = scene.ending();
    assert_eq!((ending.status, ending.stopped), (ExitStatus::signal(9), Some(Termination::Forced)));
    assert!(scene.alive().is_empty());
}

#[test]
fn second_stop_request_kills_agent_at_once() {
    let script = "trap 'echo asked' TERM; echo ready; while :; do sleep 0.05; done";
    let scene = Scene::new().grace(3_600_000).sh(script);
    scene.until_it_says("ready");
    assert_eq!(scene.attempt.stop().unwrap(), StopOutcome::Asked);
    // Two signals at once would count as one.
    scene.until_it_says("asked");
    assert_eq!(scene.attempt.stop().unwrap(), StopOutcome::Asked);
    assert_eq!(scene.ending().stopped, Some(Termination::Forced));
}

#[test]
fn a_grandchild_with_its_own_session_does_not_survive() {
    let script = "setsid sh -c 'trap \"\" TERM HUP; echo deep; while :; do sleep 0.05; done' & \
                  while ! grep -q deep \"$COWHAND_OUT\"; do sleep 0.02; done; exit 0";
    let scene = Scene::new();
    let script = script.replace("$COWHAND_OUT", &scene.attempt.stdout().display().to_string());
    let scene = scene.sh(&script);
    let ending = scene.ending();
    assert_eq!((ending.status, ending.stopped), (ExitStatus::Code { code: 0 }, None));
    assert!(ending.leftovers >= 1, "{}", ending.leftovers);
    assert!(scene.alive().is_empty(), "{:?}", scene.alive());
}

#[test]
fn stop_kills_whole_process_tree() {
    let deep = "sh -c 'sh -c \"setsid sleep 1000 & sleep 1000\" & sleep 1000' &";
    let scene = Scene::new().grace(200).sh(&format!("trap '' TERM; {deep} {deep} echo ready; sleep 1000"));
    scene.until_it_says("ready");
    scene.wait_for("the tree to grow", || (scene.alive().len() >= 9).then_some(()));
    assert_eq!(scene.attempt.stop().unwrap(), StopOutcome::Asked);
    assert_eq!(scene.ending().stopped, Some(Termination::Forced));
    assert!(scene.alive().is_empty(), "{:?}", scene.alive());
}

#[test]
fn agent_with_closed_output_is_still_running() {
    let script = "exec >&- 2>&-; touch closed; while [ ! -e go ]; do sleep 0.02; done; exit 7";
    let scene = Scene::new().sh(script);
    scene.wait_for("its output to be closed", || scene.state.path().join("closed").exists().then_some(()));
    assert_eq!(scene.attempt.state().unwrap(), AttemptState::Kept);
    std::fs::write(scene.state.path().join("go"), "").unwrap();
    assert_eq!(scene.ending().status, ExitStatus::Code { code: 7 });
}

/// A person removed the state folder: nobody could find the processes later, so they are ended.
#[test]
fn agent_is_ended_when_attempt_folder_is_removed() {
    let scene =
        Scene::new().grace(200).sh("trap '' TERM; setsid sleep 1000 & echo up; while :; do sleep 0.1; done");
    scene.until_it_says("up");
    std::fs::remove_dir_all(scene.attempt.folder()).unwrap();
    scene.wait_for("its end", || scene.alive().is_empty().then_some(()));
}

#[test]
fn agent_without_keeper_is_found_and_ended() {
    let mut scene = Scene::new().sh("echo ready; sleep 1000");
    scene.until_it_says("ready");
    let mut keeper = scene.keeper.take().unwrap();
    keeper.kill().unwrap();
    keeper.wait().unwrap();
    assert_eq!(scene.attempt.state().unwrap(), AttemptState::Unkept);
    assert_eq!(scene.attempt.stop().unwrap(), StopOutcome::NoKeeper);
    scene
        .wait_for("the agent's end", || (scene.attempt.state().unwrap() == AttemptState::Gone).then_some(()));
    assert!(scene.alive().is_empty());
}

#[test]
fn process_without_mark_is_found_by_its_cgroup() {
    let mut scene = Scene::new().sh("setsid env -i sleep 777 & echo ready; sleep 1000");
    scene.until_it_says("ready");
    let mut keeper = scene.keeper.take().unwrap();
    keeper.kill().unwrap();
    keeper.wait().unwrap();
    let cgroup = std::fs::read_to_string(scene.attempt.folder().join("cgroup"));
    assert_eq!(scene.attempt.state().unwrap(), AttemptState::Unkept);
    scene.attempt.stop().unwrap();
    scene.wait_for("its end", || (scene.attempt.state().unwrap() == AttemptState::Gone).then_some(()));
    // Where no control group can be created, a process without the mark cannot be found after its keeper has ended.
    if let Ok(cgroup) = cgroup {
        assert!(!Path::new(&cgroup).exists(), "its group is removed");
    }
}

/// With too few file descriptors the processes cannot be found, and the attempt does not count as gone.
#[test]
fn attempt_is_not_gone_when_descriptors_run_out() {
    use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
    use std::os::fd::AsRawFd;
    let mut scene = Scene::new().sh("setsid sleep 778 & echo ready; sleep 1000");
    scene.until_it_says("ready");
    // The keeper writes the record while the agent may already print.
    let record = scene.attempt.folder().join("agent.json");
    scene.wait_for("the record of the agent", || record.exists().then_some(()));
    let mut keeper = scene.keeper.take().unwrap();
    keeper.kill().unwrap();
    keeper.wait().unwrap();
    // The agent itself ends too; a process that it started continues.
    let agent = std::fs::read_to_string(scene.attempt.folder().join("agent.json")).unwrap();
    let agent: serde_json::Value = serde_json::from_str(&agent).unwrap();
    let agent = agent["pid"].as_i64().unwrap().to_string();
    Command::new("kill").args(["-9", &agent]).status().unwrap();
    scene.wait_for("the agent's end", || {
        let stat = std::fs::read_to_string(format!("/proc/{agent}/stat")).unwrap_or_default();
        (stat.is_empty() || stat.contains(") Z")).then_some(())
    });
    assert_eq!(scene.attempt.state().unwrap(), AttemptState::Unkept);
    // No descriptor number below the last one is free.
    let open: Vec<_> = (0..64).map(|_| std::fs::File::open("/dev/null").unwrap()).collect();
    let highest = u64::try_from(open.last().unwrap().as_raw_fd()).unwrap();
    let before = getrlimit(Resource::Nofile);
    for free in 1..6 {
        let limit = Rlimit { current: Some(highest + free), maximum: before.maximum };
        setrlimit(Resource::Nofile, limit).unwrap();
        let standing = scene.attempt.state();
        setrlimit(Resource::Nofile, before).unwrap();
        assert!(!matches!(standing, Ok(AttemptState::Gone)), "{} free: {standing:?}", free - 1);
    }
    drop(open);
    scene.attempt.stop().unwrap();
    scene.wait_for("its end", || (scene.attempt.state().unwrap() == AttemptState::Gone).then_some(()));
}

#[test]
fn attempt_is_kept_from_launch_and_has_one_keeper() {
    let scene = Scene::new().sh("while [ ! -e go ]; do sleep 0.02; done");
    assert_eq!(scene.attempt.state().unwrap(), AttemptState::Kept, "from the first moment on");
    let program = Path::new(env!("CARGO_BIN_EXE_cowhand"));
    let second = scene.attempt.launch(program, &scene.start(&["true"]), "", &[]).unwrap_err();
    assert_eq!(second.to_string(), "another keeper runs this attempt");
    std::fs::write(scene.state.path().join("go"), "").unwrap();
    scene.ending();
}

#[test]
fn attempt_without_launch_is_gone_and_never_began() {
    let scene = Scene::new();
    std::fs::create_dir_all(scene.attempt.folder()).unwrap();
    assert_eq!(scene.attempt.state().unwrap(), AttemptState::Gone);
    assert!(!scene.attempt.began().unwrap());
    let by_hand = Command::new(env!("CARGO_BIN_EXE_cowhand"))
        .arg("keeper")
        .arg(scene.attempt.folder())
        .output()
        .unwrap();
    assert!(String::from_utf8_lossy(&by_hand.stderr).contains("not by hand"), "{by_hand:?}");
}

#[test]
fn attempt_files_are_private_to_owner() {
    let scene = Scene::new().sh("true");
    scene.ending();
    for entry in std::fs::read_dir(scene.attempt.folder()).unwrap().flatten() {
        let mode = entry.metadata().unwrap().permissions().mode() & 0o777;
        assert_eq!(mode, 0o600, "{:?}", entry.file_name());
    }
    let folder = std::fs::metadata(scene.attempt.folder()).unwrap().permissions().mode() & 0o777;
    assert_eq!(folder, 0o700);
}

#[test]
fn a_second_keeper_does_not_start_the_agent_again() {
    let mut scene = Scene::new().sh("echo ready; sleep 1000");
    scene.until_it_says("ready");
    let mut keeper = scene.keeper.take().unwrap();
    keeper.kill().unwrap();
    keeper.wait().unwrap();
    let second =
        Command::new(env!("CARGO_BIN_EXE_cowhand")).arg("keeper").arg(scene.attempt.folder()).spawn();
    scene.keeper = Some(second.unwrap());
    assert!(!scene.keeper.as_mut().unwrap().wait().unwrap().success());
    assert_eq!(scene.stdout(), "ready\n");
}

#[test]
fn state_can_be_read_right_after_launch() {
    for _ in 0..10 {
        let scene = Scene::new().sh("echo ready");
        let standing = scene.attempt.state().unwrap();
        assert!(matches!(standing, AttemptState::Kept | AttemptState::Ended(_)), "{standing:?}");
        assert_eq!(scene.ending().status, ExitStatus::Code { code: 0 });
    }
}

/// The files of the records are on disk before the agent begins, but they may be empty or incomplete.
#[test]
fn damaged_record_means_that_attempt_may_have_begun() {
    let scene = Scene::new();
    std::fs::create_dir_all(scene.attempt.folder()).unwrap();
    assert!(!scene.attempt.began().unwrap());
    for record in ["keeper.json", "agent.json"] {
        for left in ["", "\0\0\0\0", "{\"pid\":4"] {
            std::fs::write(scene.attempt.folder().join(record), left).unwrap();
            assert_eq!(scene.attempt.state().unwrap(), AttemptState::Gone, "{record} {left:?}");
            assert!(scene.attempt.began().unwrap(), "{record} {left:?}");
            assert_eq!(scene.attempt.stop().unwrap(), StopOutcome::NoKeeper, "{record} {left:?}");
        }
    }
}

mod gates {
    //! The answers of a `when_command`, and the end of its processes.

    use std::path::Path;
    use std::sync::atomic::{AtomicBool, Ordering};
    use std::time::Duration;

    use cowhand::run::gate::run_command;

    const PATIENCE: Duration = Duration::from_mins(1);

    fn answer(script: &str, patience: Duration) -> Result<bool, String> {
        let command = ["sh", "-c", script].map(str::to_owned);
        let (minder, stop) = (Path::new(env!("CARGO_BIN_EXE_cowhand")), AtomicBool::new(false));
        let heard = run_command(minder, &command, Path::new("/"), patience, &stop, &str::to_owned);
        heard.map(|heard| heard.allows).map_err(|error| format!("{error:#}"))
    }

    #[test]
    fn exit_code_of_when_command_decides() {
        let table = [
            ("exit 0", Ok(true)),
            ("exit 1", Ok(false)),
            ("exit 125", Ok(false)),
            ("exit 127", Err("\"sh\" ended with code 127, which means that it could not run".to_owned())),
            ("kill -9 $$", Err("\"sh\" was killed".to_owned())),
            ("kill -9 0", Err("\"sh\" was killed".to_owned())),
        ];
        for (script, expected) in table {
            assert_eq!(answer(script, PATIENCE), expected, "{script}");
        }
        assert_eq!(answer("sleep 100", Duration::from_millis(50)), Err("no answer within 50ms".to_owned()));
        let (minder, stop) = (Path::new(env!("CARGO_BIN_EXE_cowhand")), AtomicBool::new(false));
        let said = |command: &[&str], directory: &str| {
            let command: Vec<String> = command.iter().map(|word| (*word).to_owned()).collect();
            let asked = run_command(minder, &command, Path::new(directory), PATIENCE, &stop, &str::to_owned);
            asked.map_err(|error| format!("{error:#}"))
        };
        for (command, directory, why) in [
            (&["no-such-program"][..], "/", "No such file"),
            (&["true"], "/no/such/folder", "its directory /no/such/folder does not exist"),
        ] {
            let missing = said(command, directory).unwrap_err();
            assert!(missing.contains(&format!("cannot start {:?}", command[0])), "{missing}");
            assert!(missing.contains(why), "{missing}");
        }
        assert!(said(&[], "/").is_err());
    }

    /// Counts the processes with this argument.
    fn with_word(word: &str) -> usize {
        let processes = std::fs::read_dir("/proc").unwrap().flatten();
        let told = processes.filter_map(|process| std::fs::read(process.path().join("cmdline")).ok());
        told.filter(|told| told.split(|byte| *byte == 0).any(|argument| argument == word.as_bytes())).count()
    }

    /// No process is left, not even one in its own session, whether the command ends by itself, exceeds its time, or is
    /// abandoned.
    #[test]
    fn processes_of_when_command_are_killed() {
        let word = format!("{}.25", 400_000 + std::process::id());
        let wait = |what: &str, look: &dyn Fn() -> bool| {
            let until = std::time::Instant::now() + Duration::from_mins(1);
            while !look() {
                assert!(std::time::Instant::now() < until, "timed out while waiting for {what}");
                std::thread::sleep(Duration::from_millis(10));
            }
        };
        let left = format!("(setsid sleep {word} &); sleep 0.2");
        assert_eq!(answer(&left, PATIENCE), Ok(true));
        assert_eq!(with_word(&word), 0);
        let both = format!("(setsid sleep {word} &); sleep {word}");
        assert!(answer(&both, Duration::from_millis(500)).is_err());
        assert_eq!(with_word(&word), 0);
        let stop = AtomicBool::new(false);
        let command = ["sh", "-c", &both].map(str::to_owned);
        std::thread::scope(|scope| {
            let minder = Path::new(env!("CARGO_BIN_EXE_cowhand"));
            let (stop, command) = (&stop, &command);
            let asked = scope
                .spawn(move || run_command(minder, command, Path::new("/"), PATIENCE, stop, &str::to_owned));
            wait("both to run", &|| with_word(&word) == 2);
            stop.store(true, Ordering::Relaxed);
            assert!(asked.join().unwrap().is_err());
        });
        assert_eq!(with_word(&word), 0);
    }
}
