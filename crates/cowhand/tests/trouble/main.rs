//! Problems of the machine, not of the agents: each gives a clear message and the right exit code, and
//! nothing is lost or silently emptied.

#![expect(clippy::unwrap_used, reason = "a test that cannot go on says so by panicking")]

mod away;
mod backup;
mod busy;
mod closed;
mod fleet;
mod ready;
mod store;

use std::io::{BufRead, BufReader};
use std::os::unix::fs::{MetadataExt, PermissionsExt};
use std::path::Path;
use std::process::{Child, Command, Output, Stdio};
use std::time::{Duration, Instant};

use cowhand_testing::{disk, http, tmpfs, wait_until};
use fleet::Fleet;

const COWHAND: &str = env!("CARGO_BIN_EXE_cowhand");
const FLEET: &str = "agents:\n  - {name: a, runtime: command, command: [sh, -c, 'echo hi'], schedules: {s: {type: interval, interval: 1s}}}\n";

fn start(folder: &Path) -> Output {
    Command::new(COWHAND).args(["start", "--no-server", "-c"]).arg(folder).output().unwrap()
}

#[track_caller]
fn refused(output: &Output, exit: i32, words: &[&str]) {
    let said = String::from_utf8_lossy(&output.stderr);
    assert_eq!(output.status.code(), Some(exit), "{said}");
    for word in words {
        assert!(said.contains(word), "{word:?} in: {said}");
    }
}

#[test]
fn invalid_config_is_refused_before_state_folder_is_created() {
    let folder = tempfile::tempdir().unwrap();
    std::fs::write(folder.path().join("cowhand.yaml"), "agents: [{nam: a}]\n").unwrap();
    refused(&start(folder.path()), 3, &["unknown key `nam`", "did you mean `name`?"]);
    assert!(!folder.path().join(".cowhand").exists());
    refused(&start(&folder.path().join("gone.yaml")), 3, &["gone.yaml"]);
}

#[test]
fn error_names_state_folder_that_cannot_be_written() {
    let folder = tempfile::tempdir().unwrap();
    std::fs::write(folder.path().join("cowhand.yaml"), FLEET).unwrap();
    std::fs::set_permissions(folder.path(), std::fs::Permissions::from_mode(0o755)).unwrap();
    // The tests may run as root, for whom file modes do not apply.
    let output = Command::new("setpriv")
        .args(["--reuid=65534", "--regid=65534", "--clear-groups", COWHAND, "start", "--no-server", "-c"])
        .arg(folder.path())
        .output()
        .unwrap();
    refused(&output, 6, &["cannot use the state folder", ".cowhand", "Permission denied"]);
}

#[test]
fn invalid_store_file_is_not_changed() {
    let folder = tempfile::tempdir().unwrap();
    std::fs::write(folder.path().join("cowhand.yaml"), FLEET).unwrap();
    std::fs::create_dir(folder.path().join(".cowhand")).unwrap();
    let file = folder.path().join(".cowhand/store.db");
    std::fs::write(&file, "not a database at all, ".repeat(300)).unwrap();
    refused(&start(folder.path()), 6, &["cannot open the store", "store.db", "not a database"]);
    assert_eq!(std::fs::metadata(&file).unwrap().len(), 6_900);
}

#[test]
fn a_second_daemon_is_refused() {
    let folder = tempfile::tempdir().unwrap();
    std::fs::write(folder.path().join("cowhand.yaml"), FLEET).unwrap();
    let first = Daemon::start(Command::new(COWHAND).args(["start", "--no-server", "-c"]).arg(folder.path()));
    refused(&start(folder.path()), 5, &["a daemon is running in", "already"]);
    drop(first);
}

/// Daemon that is stopped with the test.
struct Daemon(Child);

impl Daemon {
    fn start(command: &mut Command) -> Self {
        Self::with_log(command, Stdio::null())
    }

    fn with_log(command: &mut Command, log: impl Into<Stdio>) -> Self {
        let mut daemon = command.stdout(Stdio::piped()).stderr(log).spawn().unwrap();
        let mut line = String::new();
        BufReader::new(daemon.stdout.take().unwrap()).read_line(&mut line).unwrap();
        assert!(line.starts_with("ready"), "{line}");
        Self(daemon)
    }
}

impl Drop for Daemon {
    fn drop(&mut self) {
        Command::new("kill").arg(self.0.id().to_string()).status().ok();
        self.0.wait().ok();
    }
}

/// The log cannot be written, as on a full disk: the daemon continues.
#[test]
fn a_log_that_cannot_be_written_does_not_end_the_daemon() {
    let folder = tempfile::tempdir().unwrap();
    std::fs::write(folder.path().join("cowhand.yaml"), FLEET).unwrap();
    for format in ["text", "json"] {
        let mut command = Command::new(COWHAND);
        command.args(["start", "--no-server", "--log-format", format, "-c"]).arg(folder.path());
        let full = std::fs::OpenOptions::new().write(true).open("/dev/full").unwrap();
        let mut daemon = Daemon::with_log(&mut command, full);
        let before = in_status(folder.path(), "completed");
        wait_for_completed(folder.path(), before + 2);
        assert!(daemon.0.try_wait().unwrap().is_none(), "{format}: it runs");
    }
}

/// The fleet's own disk is full for a time: the daemon continues, and afterwards every job is settled.
#[test]
fn daemon_survives_full_disk() {
    let folder = tempfile::tempdir().unwrap();
    let place = folder.path().join("disk");
    std::fs::create_dir(&place).unwrap();
    let script = format!(
        "mount -t tmpfs -o size=4m tmpfs '{0}' && printf \"%s\" \"$FLEET\" > '{0}/cowhand.yaml' && exec '{COWHAND}' start --no-server -c '{0}'",
        place.display()
    );
    let mut unshare = Command::new("unshare");
    if std::fs::metadata("/proc/self").unwrap().uid() != 0 {
        unshare.args(["--user", "--map-root-user"]);
    }
    unshare.args(["--mount", "--propagation", "private", "sh", "-c", &script]).env("FLEET", FLEET);
    let log = folder.path().join("log");
    let daemon = Daemon::with_log(&mut unshare, std::fs::File::create(&log).unwrap());
    // The disk exists only in the daemon's mount namespace.
    let disk = Path::new("/proc")
        .join(daemon.0.id().to_string())
        .join("root")
        .join(place.strip_prefix("/").unwrap());
    wait_for_completed(&disk, 2);
    let filler = disk.join("filler");
    assert!(std::fs::write(&filler, vec![0_u8; 8 << 20]).is_err(), "the disk is full");
    // Each failed write is logged, and the daemon tries again.
    let told = || {
        let log = std::fs::read_to_string(&log).unwrap().to_lowercase();
        log.lines()
            .filter(|line| line.contains("is full, so nothing") || line.contains("no space left"))
            .count()
    };
    wait_for("two looks that went wrong", || told() >= 2);
    std::fs::remove_file(&filler).unwrap();
    let before = in_status(&disk, "completed");
    wait_for_completed(&disk, before + 2);
    let open = in_status(&disk, "running") + in_status(&disk, "pending");
    assert!(open <= 1, "all but the one that may run now are settled, not {open}");
}

/// The disk of the agent's directory is full, and the error of the job names it.
#[test]
fn a_failure_on_a_full_disk_names_the_disk() {
    let folder = tempfile::tempdir().unwrap();
    let desk = folder.path().join("desk");
    std::fs::create_dir(&desk).unwrap();
    let namespace = disk::Namespace::start();
    tmpfs::mount(&namespace, &desk, 1);
    let agent = |name: &str, more: &str| {
        format!(
            "  - {{name: {name}, runtime: command, working_directory: desk, {more}schedules: {{s: {{type: manual, prompt: x}}}}, \
             command: [sh, -c, 'dd if=/dev/zero of=big bs=64k count=64 2>/dev/null']}}\n"
        )
    };
    let again = agent("again", "retry: {max_attempts: 2, backoff: 1h, on: [error]}, ");
    let fleet = format!("agents:\n{}{again}", agent("a", ""));
    std::fs::write(folder.path().join("cowhand.yaml"), fleet).unwrap();
    let cowhand = |arguments: &[&str]| {
        let mut command = namespace.command(COWHAND);
        command.args(arguments).arg("-c").arg(folder.path());
        command
    };
    let daemon = Daemon::start(&mut cowhand(&["start", "--no-server"]));
    let said = |arguments: &[&str]| {
        let output = cowhand(arguments).output().unwrap();
        let said =
            format!("{}{}", String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr));
        said.split_whitespace().collect::<Vec<_>>().join(" ")
    };
    let expected = format!("exit code 1; the disk of {} is full", desk.display());
    for arguments in [&["trigger", "a", "s", "--wait"][..], &["logs", "a"]] {
        let said = said(arguments);
        assert!(said.contains(&expected), "{arguments:?}: {said}");
    }
    said(&["trigger", "again", "s"]);
    wait_for("the reason of the retry", || said(&["why", "again/s"]).contains(&expected));
    drop(daemon);
}

/// With 64 file descriptors a daemon cannot start all jobs at once. This shortage is not a failure of a job: every job
/// runs in turn, none fails, and no schedule pauses.
#[test]
fn many_jobs_complete_with_few_file_descriptors() {
    use std::fmt::Write as _;
    const JOBS: usize = 144;
    let folder = tempfile::tempdir().unwrap();
    let mut fleet = "agents:\n".to_owned();
    for number in 0..JOBS {
        writeln!(
            fleet,
            "  - {{name: a{number}, runtime: command, command: [sh, -c, 'cat; sleep 0.5'], breaker: {{failures: 1}}, \
             schedules: {{s: {{type: interval, interval: 1d, jitter: 0, prompt: hi}}}}}}"
        )
        .unwrap();
    }
    std::fs::write(folder.path().join("cowhand.yaml"), fleet).unwrap();
    let script = format!("ulimit -n 64; exec '{COWHAND}' start --no-server -c '{}'", folder.path().display());
    let log = folder.path().join("log");
    let daemon =
        Daemon::with_log(Command::new("sh").args(["-c", &script]), std::fs::File::create(&log).unwrap());
    let told = || {
        let log = std::fs::read_to_string(&log).unwrap();
        let last: Vec<&str> = log.lines().rev().take(20).collect();
        last.join("\n")
    };
    // Wait as long as the number of completed jobs increases.
    let (mut most, mut patience) = (0, Instant::now() + Duration::from_mins(1));
    while most < JOBS {
        let done = in_status(folder.path(), "completed");
        if done > most {
            (most, patience) = (done, Instant::now() + Duration::from_mins(2));
        }
        assert_eq!(in_status(folder.path(), "failed"), 0, "after {done} jobs:\n{}", told());
        assert!(Instant::now() < patience, "{done} of {JOBS} jobs:\n{}", told());
        std::thread::sleep(Duration::from_millis(100));
    }
    let said = ask(folder.path(), &["schedule", "list", "--json"]);
    assert!(!said.contains("paused") && !said.contains("\"last_error\": \""), "{said}");
    drop(daemon);
}

fn ask(folder: &Path, arguments: &[&str]) -> String {
    let output = Command::new(COWHAND).args(arguments).current_dir(folder).output().unwrap();
    assert!(output.status.success(), "{arguments:?}: {output:?}");
    String::from_utf8(output.stdout).unwrap()
}

/// The folder of attempts is full: a job that cannot start for this reason waits and shows it, and it counts
/// neither for its schedule nor for its item.
#[test]
fn job_waits_while_attempts_folder_is_full() {
    let folder = tempfile::tempdir().unwrap();
    let (place, items) = (folder.path(), folder.path().join("items"));
    std::fs::create_dir(&items).unwrap();
    std::fs::create_dir_all(place.join(".cowhand/attempts")).unwrap();
    std::fs::write(items.join("one.md"), "---\ntitle: One\nstatus: available\n---\nDo it.\n").unwrap();
    let fleet = "agents:\n  - name: a\n    runtime: command\n    command: [sh, -c, 'cat']\n    \
                 schedules:\n      s: {type: interval, interval: 1h, prompt: Go., breaker: {failures: 1}, \
                 work_source: {type: files, path: items, max_item_attempts: 1}}\n";
    std::fs::write(place.join("cowhand.yaml"), fleet).unwrap();
    let attempts = place.join(".cowhand/attempts");
    let script = format!(
        "mount -t tmpfs -o size=1m,mode=700 tmpfs '{}' && head -c 2000000 /dev/zero > '{}/filler'; \
         exec '{COWHAND}' start --no-server -c '{}'",
        attempts.display(),
        attempts.display(),
        place.display()
    );
    let mut unshare = Command::new("unshare");
    if std::fs::metadata("/proc/self").unwrap().uid() != 0 {
        unshare.args(["--user", "--map-root-user"]);
    }
    unshare.args(["--mount", "--propagation", "private", "sh", "-c", &script]);
    let daemon = Daemon::start(&mut unshare);
    let job = || {
        let jobs: serde_json::Value = serde_json::from_str(&ask(place, &["jobs", "--json"])).unwrap();
        jobs[0].clone()
    };
    let requeued = || ask(place, &["events", "--json"]).matches("\"job:requeued\"").count();
    // The job is requeued more often than it would be for other reasons.
    wait_for("six tries", || {
        let job = job();
        assert!(job["status"] != "failed", "{job:#}");
        requeued() >= 6
    });
    let id = job()["id"].as_str().unwrap().to_owned();
    wait_for("it to wait", || job()["status"] == "pending");
    let words = "No space left on device";
    for told in [ask(place, &["job", &id]), ask(place, &["why", "a/s"]), ask(place, &["events", "--json"])] {
        assert!(told.contains(words), "{told}");
    }
    let shown: serde_json::Value = serde_json::from_str(&ask(place, &["job", &id, "--json"])).unwrap();
    assert_eq!(shown["waits"]["reason"], "requeued", "{shown:#}");
    assert!(shown["waits"]["until"].is_string(), "{shown:#}");
    let status = ask(place, &["status"]);
    assert!(status.contains(words), "{status}");
    let inside = Path::new("/proc").join(daemon.0.id().to_string()).join("root");
    std::fs::remove_file(inside.join(attempts.strip_prefix("/").unwrap()).join("filler")).unwrap();
    wait_for("its end", || job()["finished_at"].is_string());
    assert_eq!(job()["status"], "completed");
    wait_for("the item to be done", || {
        std::fs::read_to_string(items.join("one.md")).unwrap().contains("status: completed")
    });
    let schedule: serde_json::Value =
        serde_json::from_str(&ask(place, &["schedule", "show", "a/s", "--json"])).unwrap();
    assert_eq!((&schedule["status"], &schedule["last_error"]), (&"idle".into(), &serde_json::Value::Null));
}

/// Counts the jobs whose view has this status.
fn in_status(disk: &Path, status: &str) -> usize {
    let views = std::fs::read_dir(disk.join(".cowhand/jobs")).unwrap().flatten().map(|entry| entry.path());
    let says = |view: &std::path::PathBuf| {
        std::fs::read_to_string(view).is_ok_and(|text| text.contains(&format!("\nstatus: {status}\n")))
    };
    views.filter(|view| view.extension() == Some("yaml".as_ref())).filter(says).count()
}

fn wait_for_completed(disk: &Path, count: usize) {
    wait_for(&format!("{count} jobs"), || in_status(disk, "completed") >= count);
}

fn wait_for(what: &str, look: impl Fn() -> bool) {
    wait_until(what, || look().then_some(()));
}

fn answer(folder: &Path, arguments: &[&str]) -> Output {
    Command::new(COWHAND).args(arguments).arg("-c").arg(folder).output().unwrap()
}

fn json(folder: &Path, arguments: &[&str]) -> serde_json::Value {
    let answer = answer(folder, &[arguments, &["--json"]].concat());
    let said = String::from_utf8_lossy(&answer.stderr).into_owned();
    serde_json::from_slice(&answer.stdout).unwrap_or_else(|error| panic!("{arguments:?}: {error}: {said}"))
}

fn trigger(folder: &Path, agent: &str) -> String {
    json(folder, &["trigger", agent])["id"].as_str().unwrap().to_owned()
}

fn wait_for_status(folder: &Path, job: &str, status: &str) {
    wait_for(&format!("{job} to be {status}"), || json(folder, &["job", job])["status"] == status);
}

fn daemon(folder: &Path) -> Daemon {
    let log = std::fs::File::options().create(true).append(true).open(folder.join("log")).unwrap();
    Daemon::with_log(Command::new(COWHAND).args(["start", "--no-server", "-c"]).arg(folder), log)
}

/// Stops the daemon with `cowhand stop`, and waits for its end: it must not hang.
fn stop(folder: &Path, mut daemon: Daemon) {
    let stopped = answer(folder, &["stop"]);
    let said = String::from_utf8_lossy(&stopped.stderr).into_owned();
    let log = std::fs::read_to_string(folder.join("log")).unwrap_or_default();
    assert!(stopped.status.success(), "{said}\n{log}");
    assert!(daemon.0.wait().unwrap().success(), "{log}");
}

/// Collects every file below a folder to which other users have rights.
fn open_to_others(folder: &Path, found: &mut Vec<String>) {
    for entry in std::fs::read_dir(folder).unwrap().flatten() {
        let (path, about) = (entry.path(), entry.metadata().unwrap());
        if !about.is_symlink() && about.mode() & 0o077 != 0 {
            found.push(format!("{:o} {}", about.mode(), path.display()));
        }
        if about.is_dir() {
            open_to_others(&path, found);
        }
    }
}

const WAITER: &str = "agents:\n  - {name: waiter, runtime: command, command: [sh, -c, 'echo first; while [ ! -e go ]; do sleep 0.05; done; echo last']}\n  - {name: quick, runtime: command, command: [sh, -c, 'echo quick words']}\n";

#[test]
fn state_folder_is_private_to_owner() {
    let folder = tempfile::tempdir().unwrap();
    let folder = folder.path();
    std::fs::write(folder.join("cowhand.yaml"), WAITER).unwrap();
    let state = folder.join(".cowhand");
    // Create the folder with open modes, as a person or an older version may have done.
    let made = "umask 000; mkdir -p .cowhand/jobs .cowhand/attempts/job-2026-01-05-aaaaaa.1 && echo x >.cowhand/daemon.log && \
                echo x >.cowhand/jobs/job-2026-01-05-aaaaaa.yaml && echo x >.cowhand/attempts/job-2026-01-05-aaaaaa.1/prompt";
    assert!(Command::new("sh").args(["-c", made]).current_dir(folder).status().unwrap().success());
    let script = format!("umask 000; exec '{COWHAND}' start --no-server -c .");
    let running = Daemon::start(Command::new("sh").args(["-c", &script]).current_dir(folder));
    let job = trigger(folder, "quick");
    wait_for_status(folder, &job, "completed");
    let closed = || {
        let mut found = Vec::new();
        open_to_others(&state, &mut found);
        if std::fs::metadata(&state).unwrap().mode() & 0o077 != 0 {
            found.push("the folder itself".to_owned());
        }
        found
    };
    assert_eq!(closed(), Vec::<String>::new());
    assert!(state.join("store.db-wal").exists() && state.join("store.db-shm").exists());
    stop(folder, running);
    // A verb that only reads creates no file for others either.
    assert!(answer(folder, &["jobs"]).status.success());
    assert_eq!(closed(), Vec::<String>::new());
    assert_eq!(std::fs::read_to_string(state.join(".gitignore")).unwrap(), "*\n");
}

#[test]
fn state_folder_of_other_user_is_refused() {
    let folder = tempfile::tempdir().unwrap();
    let folder = folder.path();
    std::fs::write(folder.join("cowhand.yaml"), FLEET).unwrap();
    let state = folder.join(".cowhand");
    std::fs::create_dir_all(state.join("jobs")).unwrap();
    for theirs in [state.clone(), state.join("jobs")] {
        std::os::unix::fs::chown(&theirs, Some(65_534), Some(65_534)).unwrap();
        refused(&start(folder), 6, &["cannot use the state folder", "belongs to user 65534", "chown -R"]);
        let doctor = answer(folder, &["doctor"]);
        let said = String::from_utf8_lossy(&doctor.stdout).into_owned();
        assert!(said.contains("FAIL") && said.contains("belongs to user 65534"), "{said}");
        assert!(!state.join("store.db").exists() && !state.join("daemon.lock").exists());
        std::os::unix::fs::chown(&theirs, Some(0), Some(0)).unwrap();
    }
}

#[test]
fn a_link_in_the_state_folder_is_refused() {
    let folder = tempfile::tempdir().unwrap();
    let folder = folder.path();
    std::fs::write(folder.join("cowhand.yaml"), FLEET).unwrap();
    let (state, elsewhere) = (folder.join(".cowhand"), folder.join("elsewhere"));
    std::fs::create_dir_all(&elsewhere).unwrap();
    std::fs::create_dir_all(&state).unwrap();
    std::fs::write(folder.join("file"), "text").unwrap();
    for name in [
        "store.db",
        "daemon.lock",
        "daemon.log",
        "node",
        "job-key",
        "state.yaml",
        "views",
        "jobs",
        "attempts",
    ] {
        let target = if matches!(name, "jobs" | "attempts") { &elsewhere } else { &folder.join("file") };
        std::os::unix::fs::symlink(target, state.join(name)).unwrap();
        refused(&start(folder), 6, &["cannot use the state folder", name, "is a symbolic link"]);
        let doctor = answer(folder, &["doctor"]);
        assert!(String::from_utf8_lossy(&doctor.stdout).contains("is a symbolic link"), "{name}");
        std::fs::remove_file(state.join(name)).unwrap();
    }
    assert_eq!(std::fs::read_to_string(folder.join("file")).unwrap(), "text");
    assert_eq!(std::fs::read_dir(&elsewhere).unwrap().count(), 0);
    // The folder itself may be a link, because the config names it.
    std::fs::remove_dir_all(&state).unwrap();
    std::os::unix::fs::symlink(&elsewhere, &state).unwrap();
    let running = daemon(folder);
    assert!(elsewhere.join("store.db").exists());
    stop(folder, running);
}

/// Files that are removed under a running daemon are written again, with all earlier output.
#[test]
fn removed_views_are_written_again() {
    let folder = tempfile::tempdir().unwrap();
    let folder = folder.path();
    std::fs::write(folder.join("cowhand.yaml"), WAITER).unwrap();
    let running = daemon(folder);
    let job = trigger(folder, "waiter");
    let jobs = folder.join(".cowhand/jobs");
    let output = || std::fs::read_to_string(jobs.join(format!("{job}.jsonl"))).unwrap_or_default();
    wait_for("its first words", || output().contains("first"));
    std::fs::remove_dir_all(&jobs).unwrap();
    std::fs::write(folder.join("go"), "").unwrap();
    wait_for_status(folder, &job, "completed");
    assert!(output().contains("first") && output().contains("last"), "{}", output());
    wait_for("its record", || {
        std::fs::read_to_string(jobs.join(format!("{job}.yaml")))
            .is_ok_and(|text| text.contains("status: completed"))
    });
    let next = trigger(folder, "quick");
    wait_for_status(folder, &next, "completed");
    std::fs::remove_dir_all(&jobs).unwrap();
    stop(folder, running);
}

/// A view cannot be written for a time; afterwards nothing of it is lost.
#[test]
fn unwritable_view_does_not_block_jobs() {
    let folder = tempfile::tempdir().unwrap();
    let folder = folder.path();
    std::fs::write(folder.join("cowhand.yaml"), WAITER).unwrap();
    let running = daemon(folder);
    let jobs = folder.join(".cowhand/jobs");
    let waiting = trigger(folder, "waiter");
    wait_for("its first words", || {
        std::fs::read_to_string(jobs.join(format!("{waiting}.jsonl")))
            .is_ok_and(|text| text.contains("first"))
    });
    std::fs::remove_dir_all(&jobs).unwrap();
    std::fs::write(&jobs, "in the way").unwrap();
    std::fs::write(folder.join("go"), "").unwrap();
    let quick = trigger(folder, "quick");
    for job in [&waiting, &quick] {
        wait_for_status(folder, job, "completed");
    }
    assert_eq!(json(folder, &["job", &waiting])["summary"], "last");
    // A running job can still be cancelled.
    std::fs::remove_file(folder.join("go")).unwrap();
    let cancelled = trigger(folder, "waiter");
    wait_for_status(folder, &cancelled, "running");
    assert!(answer(folder, &["cancel", &cancelled]).status.success());
    wait_for_status(folder, &cancelled, "cancelled");
    stop(folder, running);
    std::fs::remove_file(&jobs).unwrap();
    let running = daemon(folder);
    let said = |job: &str| std::fs::read_to_string(jobs.join(format!("{job}.jsonl"))).unwrap_or_default();
    assert!(said(&waiting).contains("first") && said(&waiting).contains("last"), "{}", said(&waiting));
    assert!(said(&quick).contains("quick words"), "{}", said(&quick));
    assert!(String::from_utf8_lossy(&answer(folder, &["logs", &quick]).stdout).contains("quick words"));
    for job in [&waiting, &quick] {
        assert!(jobs.join(format!("{job}.yaml")).exists());
    }
    stop(folder, running);
}

#[test]
fn changed_job_file_is_written_again() {
    let folder = tempfile::tempdir().unwrap();
    let folder = folder.path();
    std::fs::write(folder.join("cowhand.yaml"), WAITER).unwrap();
    let running = daemon(folder);
    let ids: Vec<String> = (0..4).map(|_| trigger(folder, "quick")).collect();
    let view = |id: &String| folder.join(".cowhand/jobs").join(format!("{id}.yaml"));
    for id in &ids {
        wait_for_status(folder, id, "completed");
        wait_for("its record", || {
            std::fs::read_to_string(view(id)).is_ok_and(|text| text.contains("status: completed"))
        });
    }
    let before: Vec<String> = ids.iter().map(|id| std::fs::read_to_string(view(id)).unwrap()).collect();
    stop(folder, running);
    std::fs::write(view(&ids[0]), before[0].replace("completed", "cancelled")).unwrap();
    std::fs::write(view(&ids[1]), &before[1][..10]).unwrap();
    std::fs::remove_file(view(&ids[2])).unwrap();
    std::fs::remove_file(view(&ids[3])).unwrap();
    std::fs::write(folder.join("file"), "text").unwrap();
    std::fs::create_dir(view(&ids[3])).unwrap();
    let running = daemon(folder);
    for (id, before) in ids.iter().zip(&before).take(3) {
        assert_eq!(&std::fs::read_to_string(view(id)).unwrap(), before);
    }
    // A folder in the place of a view does not block the other views, or later jobs.
    let next = trigger(folder, "quick");
    wait_for_status(folder, &next, "completed");
    wait_for("its record", || view(&next).exists());
    stop(folder, running);
}
