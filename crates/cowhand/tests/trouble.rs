//! Trouble with the machine, not with the agents: each gets a clear message, the right exit code, and nothing is
//! lost or silently emptied.

#![expect(clippy::unwrap_used, reason = "a test that cannot go on says so by panicking")]

use std::io::{BufRead, BufReader};
use std::os::unix::fs::{MetadataExt, PermissionsExt};
use std::path::Path;
use std::process::{Child, Command, Output, Stdio};
use std::time::{Duration, Instant};

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
fn a_bad_config_is_refused_before_anything_is_made() {
    let folder = tempfile::tempdir().unwrap();
    std::fs::write(folder.path().join("cowhand.yaml"), "agents: [{nam: a}]\n").unwrap();
    refused(&start(folder.path()), 3, &["unknown key `nam`", "did you mean `name`?"]);
    assert!(!folder.path().join(".cowhand").exists());
    refused(&start(&folder.path().join("gone.yaml")), 3, &["gone.yaml"]);
}

#[test]
fn a_folder_that_cannot_be_written_is_named() {
    let folder = tempfile::tempdir().unwrap();
    std::fs::write(folder.path().join("cowhand.yaml"), FLEET).unwrap();
    std::fs::set_permissions(folder.path(), std::fs::Permissions::from_mode(0o755)).unwrap();
    // The tests may run as root, whom no mode stops.
    let output = Command::new("setpriv")
        .args(["--reuid=65534", "--regid=65534", "--clear-groups", COWHAND, "start", "--no-server", "-c"])
        .arg(folder.path())
        .output()
        .unwrap();
    refused(&output, 6, &["cannot use the state folder", ".cowhand", "Permission denied"]);
}

#[test]
fn a_store_that_is_no_database_is_left_as_it_is() {
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

/// A daemon that is stopped with the test.
struct Daemon(Child);

impl Daemon {
    fn start(command: &mut Command) -> Self {
        Self::telling(command, Stdio::null())
    }

    fn telling(command: &mut Command, log: impl Into<Stdio>) -> Self {
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

/// On a disk of its own that is full for a while: the daemon lives on, and afterwards every job is settled.
#[test]
fn a_full_disk_is_survived() {
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
    let daemon = Daemon::telling(&mut unshare, std::fs::File::create(&log).unwrap());
    // The disk exists only in the daemon's own view of the machine.
    let disk = Path::new("/proc")
        .join(daemon.0.id().to_string())
        .join("root")
        .join(place.strip_prefix("/").unwrap());
    wait_for_completed(&disk, 2);
    let filler = disk.join("filler");
    assert!(std::fs::write(&filler, vec![0_u8; 8 << 20]).is_err(), "the disk is full");
    // Each look that goes wrong is told, and the next one comes all the same.
    let told = || {
        let log = std::fs::read_to_string(&log).unwrap().to_lowercase();
        log.lines().filter(|line| line.contains("disk is full") || line.contains("no space left")).count()
    };
    wait_for("two looks that went wrong", || told() >= 2);
    std::fs::remove_file(&filler).unwrap();
    let before = in_status(&disk, "completed");
    wait_for_completed(&disk, before + 2);
    let open = in_status(&disk, "running") + in_status(&disk, "pending");
    assert!(open <= 1, "all but the one that may run now are settled, not {open}");
}

/// Jobs whose view says so.
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
    let patience = Instant::now() + Duration::from_mins(1);
    while !look() {
        assert!(Instant::now() < patience, "waited in vain for {what}");
        std::thread::sleep(Duration::from_millis(50));
    }
}
