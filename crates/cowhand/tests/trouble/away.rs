//! A daemon that is stopped while the server of its store is away.

use std::fs;
use std::os::unix::net::UnixListener;
use std::path::{Path, PathBuf};

use super::http::deliver;
use super::store::statuses;
use super::{Fleet, wait_for};
use cowhand_testing::postgres::Postgres;

/// Takes connections and answers nothing, as a server that hangs.
fn silent_in_place_of(url: &str) -> UnixListener {
    let socket = socket(url);
    fs::remove_file(&socket).ok();
    UnixListener::bind(socket).unwrap()
}

fn socket(url: &str) -> PathBuf {
    let folder = url.split("host=").nth(1).unwrap().split('&').next().unwrap();
    Path::new(folder).join(".s.PGSQL.5432")
}

#[test]
fn a_stop_waits_for_a_server_that_is_away_once_and_says_so() {
    let mut server = Postgres::start();
    let mut fleet = Fleet::of(&format!("store: {}\n", server.url()));
    fleet.start();
    for delivery in ["1", "2"] {
        assert_eq!(deliver(fleet.place(), "waiter/hook", delivery).unwrap().status, 202);
    }
    wait_for("a job to run", || statuses(&fleet).iter().any(|status| status == "running"));
    server.stop();
    let silent = silent_in_place_of(&server.url());
    let stop = fleet.run(&["stop", "--timeout", "0"]);
    let (stdout, stderr) = (String::from_utf8_lossy(&stop.stdout), String::from_utf8_lossy(&stop.stderr));
    assert_eq!(stop.status.code(), Some(0), "{stdout}{stderr}{}", fleet.log());
    let note = "the daemon waits for its store for 10 seconds at most, and the next start settles the jobs";
    assert!(stderr.split_whitespace().collect::<Vec<_>>().join(" ").contains(note), "{stderr}");
    assert!(stdout.contains("what became of the jobs is not known"), "{stdout}");
    fleet.ended();
    let log = fleet.log();
    assert!(log.contains("the next start settles the jobs whose end it could not write"), "{log}");
    assert!(log.contains("its end is not written; the next start settles it"), "{log}");
    drop(silent);
    fs::remove_file(socket(&server.url())).unwrap();
    server.start_again();
    fleet.start();
    wait_for("the job that ran to be settled", || {
        statuses(&fleet).iter().any(|status| status == "cancelled")
    });
}
