//! `/readyz` while nothing can be written, and how often that is logged.

use super::disk::Ext4;
use super::http::{deliver, get, get_with_token};
use super::store::{ended, statuses};
use super::{COWHAND, Fleet, tmpfs, wait_for};
use cowhand_testing::postgres::Postgres;

fn ready(fleet: &Fleet) -> u16 {
    get(fleet.place(), "/readyz").unwrap().status
}

#[test]
fn daemon_on_full_disk_is_not_ready_and_logs_once() {
    let mut fleet = Fleet::on_disk(|namespace, place| tmpfs::mount(namespace, place, 8));
    fleet.start();
    assert_eq!(ready(&fleet), 200);
    // Start a job, so that its lease has to be renewed and its output written.
    assert_eq!(deliver(fleet.place(), "waiter/hook", "runs").unwrap().status, 202);
    wait_for("the job to run", || statuses(&fleet) == ["running"]);
    tmpfs::fill(fleet.namespace(), &fleet.path());
    wait_for("it to be not ready", || ready(&fleet) == 503);
    let answer = deliver(fleet.place(), "a/hook", "1").unwrap();
    assert_eq!(answer.status, 503, "{answer:?}");
    let refused = fleet.run(&["trigger", "a"]);
    let said = String::from_utf8_lossy(&refused.stderr);
    let names_cause = said.contains("is full, so nothing can be written");
    assert!(refused.status.code() == Some(6) && names_cause, "{said}");
    let elsewhere = tempfile::tempdir().unwrap();
    let backup = fleet.run(&["backup", elsewhere.path().join("copy").to_str().unwrap()]);
    assert!(backup.status.success(), "{}", String::from_utf8_lossy(&backup.stderr));
    let status = String::from_utf8(fleet.run(&["status"]).stdout).unwrap();
    assert!(status.contains("no new work is accepted") && status.contains("full"), "{status}");
    // Each warning is logged once, and later with a count, whatever is retried meanwhile.
    let complaints = || {
        let log = fleet.log();
        let all = log.lines().filter(|line| line.contains("WARN") || line.contains("ERROR"));
        all.map(|line| line.split_once(' ').unwrap().1.to_owned()).collect::<Vec<_>>()
    };
    let renewals = || complaints().iter().filter(|line| line.contains("cannot renew the leases")).count();
    wait_for("a renewal that fails", || renewals() > 0);
    wait_for("more that fail", || complaints().iter().any(|line| line.contains("repeated=")));
    let counts: Vec<_> = complaints().into_iter().filter(|line| line.contains("repeated=")).collect();
    assert!(
        counts.iter().all(|line| line.contains(" repeated until 20")),
        "with the time of the last: {counts:?}"
    );
    let mut first: Vec<_> = complaints().into_iter().filter(|line| !line.contains("repeated=")).collect();
    let all = first.len();
    first.sort();
    first.dedup();
    assert_eq!(first.len(), all, "{}", fleet.log());
    tmpfs::free(fleet.namespace(), &fleet.path());
    wait_for("it to be ready", || ready(&fleet) == 200);
    assert_eq!(deliver(fleet.place(), "a/hook", "1").unwrap().status, 202);
    let status = String::from_utf8(fleet.run(&["status"]).stdout).unwrap();
    assert!(!status.contains("no new work is accepted"), "{status}");
    fleet.let_go();
    wait_for("both jobs to end", || statuses(&fleet).iter().all(|status| !is_open(status)));
    assert_eq!(statuses(&fleet), ["completed", "completed"], "{}", fleet.log());
}

fn said(fleet: &Fleet, arguments: &[&str]) -> String {
    let output = fleet.run(arguments);
    format!("{}{}", String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr))
}

/// Returns the sentence about a full disk.
fn full(folder: &str) -> String {
    format!(
        "the disk of {folder} is full, so nothing can be written; free space on it, and cowhand continues by itself"
    )
}

/// Returns the sentence about a disk that became read-only.
fn read_only(folder: &str) -> String {
    format!(
        "the disk of {folder} is read-only, so nothing can be written; mount it writable again (`dmesg` may say why it became \
         read-only), and cowhand continues by itself"
    )
}

/// On a full disk, everything can still be read, and all verbs name the cause.
#[test]
fn verbs_work_on_full_disk_and_report_it() {
    let mut fleet = Fleet::on_disk(|namespace, place| tmpfs::mount(namespace, place, 8));
    fleet.start();
    let saved = fleet.outside().join("saved.db");
    assert_eq!(fleet.run(&["backup", saved.to_str().unwrap()]).status.code(), Some(0));
    let token = said(&fleet, &["token", "create", "reader", "--scope", "read"]);
    let token = token.lines().find(|line| line.starts_with("cow_")).unwrap().to_owned();
    tmpfs::fill(fleet.namespace(), &fleet.path());
    wait_for("it to be not ready", || ready(&fleet) == 503);
    let answer = get(fleet.place(), "/readyz").unwrap();
    // Anybody can request `/readyz`, so the answer names no path.
    assert_eq!(answer.body, format!("{}\n", full("the state folder")), "{answer:?}");
    let folder = fleet.path().join(".cowhand").display().to_string();
    // These requests succeed although the first use of the token cannot be recorded in the store.
    for path in ["status", "jobs", "schedules"] {
        let answer = get_with_token(fleet.place(), &format!("/api/v1/{path}"), &token).unwrap();
        assert_eq!(answer.status, 200, "{answer:?}");
    }
    for verb in [
        &["status"][..],
        &["why", "a/hook"],
        &["why", "a"],
        &["schedule", "list"],
        &["schedule", "list", "--json"],
        &["schedule", "show", "a/hook"],
        &["why", "a/hook", "--json"],
    ] {
        let said = said(&fleet, verb);
        assert!(said.contains(&full(&folder)) && !said.contains("database or disk"), "{verb:?}: {said}");
        let shown = said.contains("no new work is accepted: ") || said.contains("\"store_problem\": \"");
        assert!(shown, "{verb:?}: {said}");
    }
    let doctor = said(&fleet, &["doctor"]);
    for what in ["state folder", "store"] {
        assert!(doctor.contains(&format!("FAIL  {what}: {}", full(&folder))), "{doctor}");
    }
    let refused = said(&fleet, &["trigger", "a"]);
    assert!(refused.contains(&full(&folder)), "{refused}");
    wait_for("the log to name it", || fleet.log().contains(&full(&folder)));
    assert!(!fleet.log().contains("database or disk is full"), "{}", fleet.log());
    fleet.kill();
    // Without a daemon, nothing continues by itself.
    let cannot_start = format!(
        "the disk of {folder} is full, so no daemon can start; free space on it, and then start it with `cowhand -c"
    );
    for verb in [
        &["doctor"][..],
        &["status"],
        &["status", "--json"],
        &["why", "a/hook"],
        &["why", "a/hook", "--json"],
        &["why", "a", "--json"],
        &["schedule", "list"],
        &["schedule", "show", "a/hook"],
        &["trigger", "a"],
        &["start", "-d"],
        &["start"],
    ] {
        // A verb that closes the store frees the space of its log.
        tmpfs::fill(fleet.namespace(), &fleet.path());
        let said = said(&fleet, verb);
        assert!(said.contains(&cannot_start) && !said.contains("by itself"), "{verb:?}: {said}");
        assert!(!said.contains("starts it"), "{verb:?}: {said}");
    }
    tmpfs::fill(fleet.namespace(), &fleet.path());
    let restore = fleet.run(&["restore", saved.to_str().unwrap()]);
    let message = String::from_utf8_lossy(&restore.stderr).split_whitespace().collect::<Vec<_>>().join(" ");
    let expected = format!("the disk of {folder} is full; free space on it, and run the command again");
    assert!(message.contains(&expected) && message.contains("nothing was changed"), "{message}");
    assert_eq!(restore.status.code(), Some(6), "{message}");
    tmpfs::free(fleet.namespace(), &fleet.path());
    assert_eq!(fleet.run(&["restore", saved.to_str().unwrap()]).status.code(), Some(0), "as advised");
    let doctor = said(&fleet, &["doctor"]);
    assert!(doctor.contains("ok    state folder: "), "{doctor}");
}

fn is_open(status: &str) -> bool {
    matches!(status, "pending" | "running")
}

#[test]
fn daemon_on_read_only_disk_is_not_ready() {
    let mut disk = None;
    let mut fleet = Fleet::on_disk(|namespace, place| {
        disk = Some(Ext4::mount(namespace, place.with_file_name("image"), place));
    });
    let disk = disk.unwrap();
    fleet.start();
    assert_eq!(deliver(fleet.place(), "a/hook", "before").unwrap().status, 202);
    wait_for("the job to end", || ended(&fleet) == 1);
    assert_eq!(ready(&fleet), 200);
    disk.make_read_only();
    wait_for("it to be not ready", || ready(&fleet) == 503);
    assert_eq!(deliver(fleet.place(), "a/hook", "after").unwrap().status, 503);
    let answer = get(fleet.place(), "/readyz").unwrap();
    assert_eq!(answer.body, format!("{}\n", read_only("the state folder")), "{answer:?}");
    let folder = fleet.path().join(".cowhand").display().to_string();
    for verb in [&["status"][..], &["why", "a/hook"], &["doctor"], &["trigger", "a"]] {
        let said = said(&fleet, verb);
        assert!(
            said.contains(&read_only(&folder)) && !said.contains("readonly database"),
            "{verb:?}: {said}"
        );
    }
    wait_for("the log to name it", || fleet.log().contains(&read_only(&folder)));
    fleet.kill();
    let started = said(&fleet, &["start", "-d"]);
    assert!(started.contains("/.cowhand/daemon.log: Read-only file system"), "{started}");
    disk.repair(fleet.namespace());
    fleet.start();
    assert_eq!(deliver(fleet.place(), "a/hook", "before").unwrap().status, 200);
    assert_eq!(deliver(fleet.place(), "a/hook", "after").unwrap().status, 202);
    wait_for("the second job to end", || ended(&fleet) == 2);
}

/// Without a daemon, nothing continues by itself. The store of a daemon that has ended is one file, which cannot be
/// opened on a read-only disk. If another program read the store while the daemon ended, the files of its journal are left,
/// and the store can be opened.
#[test]
fn doctor_without_daemon_on_read_only_disk_names_the_start() {
    let mut disk = None;
    let mut fleet = Fleet::on_disk(|namespace, place| {
        disk = Some(Ext4::mount(namespace, place.with_file_name("image"), place));
    });
    let disk = disk.unwrap();
    fleet.start();
    assert_eq!(fleet.run(&["stop"]).status.code(), Some(0));
    fleet.ended();
    disk.make_read_only();
    let folder = fleet.path().join(".cowhand").display().to_string();
    let doctor = || said(&fleet, &["doctor"]).split_whitespace().collect::<Vec<_>>().join(" ");
    let is_shown = |doctor: &str, what: &str| {
        let row = format!(
            "FAIL {what}: the disk of {folder} is read-only, so no daemon can start; mount it writable again"
        );
        doctor.contains(&row)
    };
    wait_for("the disk to be read-only", || is_shown(&doctor(), "state folder"));
    let doctor = doctor();
    let is_one_file = !fleet.path().join(".cowhand/store.db-wal").exists();
    assert_eq!(is_shown(&doctor, "store"), is_one_file, "{doctor}");
    assert!(!doctor.contains("by itself"), "{doctor}");
    disk.repair(fleet.namespace());
}

/// `stop` ends the daemon and its agents on a disk that became read-only. The next start settles the job.
#[test]
fn daemon_on_read_only_disk_can_be_stopped() {
    let mut disk = None;
    let mut fleet = Fleet::on_disk(|namespace, place| {
        disk = Some(Ext4::mount(namespace, place.with_file_name("image"), place));
    });
    let disk = disk.unwrap();
    fleet.start();
    assert_eq!(deliver(fleet.place(), "waiter/hook", "runs").unwrap().status, 202);
    wait_for("the job to run", || statuses(&fleet) == ["running"]);
    disk.make_read_only();
    wait_for("it to be not ready", || ready(&fleet) == 503);
    let stop = fleet.run(&["stop", "--timeout", "0"]);
    let (stdout, stderr) = (String::from_utf8_lossy(&stop.stdout), String::from_utf8_lossy(&stop.stderr));
    assert_eq!(stop.status.code(), Some(0), "{stdout}{stderr}{}", fleet.log());
    assert!(stdout.starts_with("stopped; "), "{stdout}");
    let words = stderr.split_whitespace().collect::<Vec<_>>().join(" ");
    assert!(words.contains("the next start settles the jobs whose end it cannot write"), "{stderr}");
    fleet.ended();
    assert!(fleet.log().contains("its outcome is not stored; the next start of the daemon settles it"));
    // The agent and its keeper would keep the disk busy.
    disk.repair(fleet.namespace());
    fleet.start();
    // If the disk failed before the agent was started, the job starts now.
    fleet.let_go();
    wait_for("the job to be settled", || statuses(&fleet).iter().all(|status| !is_open(status)));
}

/// On a full disk, `stop` waits for the store only for a limited time, and reports how many outcomes are not written.
#[test]
fn stop_on_full_disk_reports_unwritten_outcomes() {
    let mut fleet = Fleet::on_disk(|namespace, place| tmpfs::mount(namespace, place, 8));
    fleet.start();
    assert_eq!(deliver(fleet.place(), "waiter/hook", "runs").unwrap().status, 202);
    wait_for("the job to run", || statuses(&fleet) == ["running"]);
    tmpfs::fill(fleet.namespace(), &fleet.path());
    wait_for("it to be not ready", || ready(&fleet) == 503);
    fleet.let_go();
    let stop = fleet.run(&["stop", "--timeout", "0"]);
    let (stdout, stderr) = (String::from_utf8_lossy(&stop.stdout), String::from_utf8_lossy(&stop.stderr));
    assert_eq!(stop.status.code(), Some(0), "{stdout}{stderr}{}", fleet.log());
    assert!(
        stdout.contains("the outcome of 1 job is not written, and the next start settles it"),
        "{stdout}"
    );
    let words = stderr.split_whitespace().collect::<Vec<_>>().join(" ");
    assert!(words.contains("the next start settles the jobs whose end it cannot write"), "{stderr}");
    fleet.ended();
    tmpfs::free(fleet.namespace(), &fleet.path());
    fleet.start();
    wait_for("the job to be settled", || statuses(&fleet).iter().all(|status| !is_open(status)));
}

/// The end of an agent is recorded on a full disk, so a stop does not wait for the time that agents may have.
#[test]
fn a_stop_on_a_full_disk_does_not_wait_for_an_agent_that_has_ended() {
    let mut fleet = Fleet::on_disk(|namespace, place| tmpfs::mount(namespace, place, 8));
    fleet.start();
    assert_eq!(deliver(fleet.place(), "waiter/hook", "runs").unwrap().status, 202);
    wait_for("the job to run", || statuses(&fleet) == ["running"]);
    let output = || said(&fleet, &["logs", "waiter"]);
    wait_for("its output", || output().contains('.'));
    tmpfs::fill(fleet.namespace(), &fleet.path());
    wait_for("it to be not ready", || ready(&fleet) == 503);
    fleet.let_go();
    let stop = fleet
        .namespace()
        .command("timeout")
        .args(["120", COWHAND, "stop", "--timeout", "600", "-c"])
        .arg(fleet.path())
        .output()
        .unwrap();
    let (stdout, stderr) = (String::from_utf8_lossy(&stop.stdout), String::from_utf8_lossy(&stop.stderr));
    assert_eq!(stop.status.code(), Some(0), "{stdout}{stderr}{}", fleet.log());
    assert!(
        stdout.contains("the outcome of 1 job is not written, and the next start settles it"),
        "{stdout}"
    );
    fleet.ended();
    tmpfs::free(fleet.namespace(), &fleet.path());
    fleet.start();
    wait_for("the job to be settled", || statuses(&fleet) == ["completed"]);
}

#[test]
fn daemon_with_read_only_store_server_is_not_ready() {
    let server = Postgres::start();
    let mut fleet = Fleet::of(&format!("store: {}\n", server.url()));
    fleet.start();
    assert_eq!(ready(&fleet), 200);
    execute(&server.url(), "alter system set default_transaction_read_only = on");
    wait_for("it to be not ready", || ready(&fleet) == 503);
    assert_eq!(deliver(fleet.place(), "a/hook", "1").unwrap().status, 503);
    execute(&server.url(), "alter system reset default_transaction_read_only");
    wait_for("it to be ready", || ready(&fleet) == 200);
    assert_eq!(deliver(fleet.place(), "a/hook", "1").unwrap().status, 202);
}

fn execute(url: &str, setting: &'static str) {
    tokio::runtime::Runtime::new().unwrap().block_on(async {
        use sqlx::{Connection, Executor};
        let mut server = sqlx::PgConnection::connect(url).await.unwrap();
        server.execute(setting).await.unwrap();
        server.execute("select pg_reload_conf()").await.unwrap();
        server.close().await.unwrap();
    });
}
