//! Folders that the user of the daemon may not search.

use std::io::{BufRead, BufReader};
use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::process::{Command, Stdio};

use super::{COWHAND, Daemon, FLEET, http, refused, wait_for};

/// Runs cowhand as a user to whom modes of files apply, also if the tests run as root.
fn as_nobody(arguments: &[&str]) -> Command {
    let mut command = Command::new("setpriv");
    command.args(["--reuid=65534", "--regid=65534", "--clear-groups", COWHAND]).args(arguments);
    command
}

fn set_mode(path: &Path, mode: u32) {
    std::fs::set_permissions(path, std::fs::Permissions::from_mode(mode)).unwrap();
}

#[test]
fn config_in_closed_folder_is_a_permission_error() {
    let folder = tempfile::tempdir().unwrap();
    set_mode(folder.path(), 0o755);
    let above = folder.path().join("above");
    let fleet = above.join("fleet");
    std::fs::create_dir_all(&fleet).unwrap();
    std::fs::write(fleet.join("cowhand.yaml"), FLEET).unwrap();
    for closed in [&above, &fleet] {
        set_mode(closed, 0o000);
        for named in [fleet.clone(), fleet.join("cowhand.yaml")] {
            let output = as_nobody(&["-c", named.to_str().unwrap(), "status"]).output().unwrap();
            let closed = closed.to_str().unwrap();
            refused(&output, 3, &["cannot reach", "permission denied", closed]);
        }
        set_mode(closed, 0o755);
    }
    refused(&as_nobody(&["-c", "/no/such/folder", "status"]).output().unwrap(), 3, &["does not exist"]);
}

/// The folder above the state folder is closed while a daemon of another user than root runs.
#[test]
fn closed_folder_above_state_folder_is_reported() {
    let folder = tempfile::tempdir().unwrap();
    set_mode(folder.path(), 0o755);
    let fleet = folder.path().join("fleet");
    std::fs::create_dir(&fleet).unwrap();
    let config = "server: {listen: \"127.0.0.1:0\"}\nagents:\n- {name: a, runtime: command, command: [cat], \
                  schedules: {hook: {type: webhook, allow_unsigned: true, prompt: x}}}\n";
    std::fs::write(fleet.join("cowhand.yaml"), config).unwrap();
    std::os::unix::fs::chown(&fleet, Some(65534), Some(65534)).unwrap();
    let mut command = as_nobody(&["-c", fleet.to_str().unwrap(), "start"]);
    let child = command.stdout(Stdio::piped()).stderr(Stdio::null()).spawn().unwrap();
    let mut daemon = Daemon(child);
    let mut line = String::new();
    BufReader::new(daemon.0.stdout.take().unwrap()).read_line(&mut line).unwrap();
    let place = line.trim().strip_prefix("ready http://").unwrap().to_owned();
    set_mode(&fleet, 0o000);
    wait_for("it to be not ready", || http::get(&place, "/readyz").unwrap().status == 503);
    let (ready, delivery) =
        (http::get(&place, "/readyz").unwrap(), http::deliver(&place, "a/hook", "1").unwrap());
    assert_eq!((ready.status, delivery.status), (503, 503), "{ready:?} {delivery:?}");
    for said in [ready.body, delivery.body] {
        assert!(said.contains("permission denied"), "{said}");
    }
    set_mode(&fleet, 0o755);
    wait_for("it to be ready", || http::get(&place, "/readyz").unwrap().status == 200);
}

/// The state folder is open only to its owner, so another user cannot know whether a daemon runs.
#[test]
fn other_user_is_not_told_that_no_daemon_runs() {
    let folder = tempfile::tempdir().unwrap();
    set_mode(folder.path(), 0o755);
    let config = folder.path().join("cowhand.yaml");
    std::fs::write(&config, FLEET).unwrap();
    set_mode(&config, 0o644);
    let mut command = Command::new(COWHAND);
    command.args(["-c", config.to_str().unwrap(), "start"]).stdout(Stdio::piped()).stderr(Stdio::null());
    let mut daemon = Daemon(command.spawn().unwrap());
    let mut line = String::new();
    BufReader::new(daemon.0.stdout.take().unwrap()).read_line(&mut line).unwrap();
    assert!(line.starts_with("ready"), "{line}");
    let output = as_nobody(&["-c", config.to_str().unwrap(), "status"]).output().unwrap();
    let said = String::from_utf8([output.stdout, output.stderr].concat()).unwrap();
    assert!(said.contains("daemon: not known; the store cannot be read"), "{said}");
    assert!(!said.contains("not running") && !said.contains("no daemon runs"), "{said}");
}
