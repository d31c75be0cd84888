//! `/readyz` while nothing can be written, and how often that is logged.

use super::disk::Ext4;
use super::http::{deliver, get};
use super::store::{ended, statuses};
use super::{Fleet, tmpfs, wait_for};
use cowhand_testing::postgres::Postgres;

fn ready(fleet: &Fleet) -> u16 {
    get(fleet.place(), "/readyz").unwrap().status
}

#[test]
fn a_full_disk_is_not_ready_and_is_logged_once() {
    let mut fleet = Fleet::on_disk(|namespace, place| tmpfs::mount(namespace, place, 8));
    fleet.start();
    assert_eq!(ready(&fleet), 200);
    // A running job, so that its lease has to be renewed and its output written.
    assert_eq!(deliver(fleet.place(), "waiter/hook", "runs").unwrap().status, 202);
    wait_for("the job to run", || statuses(&fleet) == ["running"]);
    tmpfs::fill(fleet.namespace(), &fleet.path());
    wait_for("it to be not ready", || ready(&fleet) == 503);
    let answer = deliver(fleet.place(), "a/hook", "1").unwrap();
    assert_eq!(answer.status, 503, "{answer:?}");
    let refused = fleet.run(&["trigger", "a"]);
    let said = String::from_utf8_lossy(&refused.stderr);
    let names_cause = said.contains("cannot be written") || said.contains("disk is full");
    assert!(refused.status.code() == Some(6) && names_cause, "{said}");
    let elsewhere = tempfile::tempdir().unwrap();
    let backup = fleet.run(&["backup", elsewhere.path().join("copy").to_str().unwrap()]);
    assert!(backup.status.success(), "{}", String::from_utf8_lossy(&backup.stderr));
    let status = String::from_utf8(fleet.run(&["status"]).stdout).unwrap();
    assert!(status.contains("nothing is accepted") && status.contains("full"), "{status}");
    // Each complaint is in the log once, and later with a count, whatever is retried meanwhile.
    let complaints = || {
        let log = fleet.log();
        let all = log.lines().filter(|line| line.contains("WARN") || line.contains("ERROR"));
        all.map(|line| line.split_once(' ').unwrap().1.to_owned()).collect::<Vec<_>>()
    };
    let renewals = || complaints().iter().filter(|line| line.contains("cannot renew the leases")).count();
    wait_for("a renewal that fails", || renewals() > 0);
    wait_for("more that fail", || complaints().iter().any(|line| line.contains("repeated=")));
    let mut first: Vec<_> = complaints().into_iter().filter(|line| !line.contains("repeated=")).collect();
    let all = first.len();
    first.sort();
    first.dedup();
    assert_eq!(first.len(), all, "{}", fleet.log());
    tmpfs::free(fleet.namespace(), &fleet.path());
    wait_for("it to be ready", || ready(&fleet) == 200);
    assert_eq!(deliver(fleet.place(), "a/hook", "1").unwrap().status, 202);
    let status = String::from_utf8(fleet.run(&["status"]).stdout).unwrap();
    assert!(!status.contains("nothing is accepted"), "{status}");
    fleet.let_go();
    wait_for("both jobs to end", || statuses(&fleet).iter().all(|status| !is_open(status)));
    assert_eq!(statuses(&fleet), ["completed", "completed"], "{}", fleet.log());
}

fn is_open(status: &str) -> bool {
    matches!(status, "pending" | "running")
}

#[test]
fn a_state_folder_that_became_read_only_is_not_ready() {
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
    fleet.kill();
    disk.repair(fleet.namespace());
    fleet.start();
    assert_eq!(deliver(fleet.place(), "a/hook", "before").unwrap().status, 200);
    assert_eq!(deliver(fleet.place(), "a/hook", "after").unwrap().status, 202);
    wait_for("the second job to end", || ended(&fleet) == 2);
}

#[test]
fn a_server_that_only_reads_is_not_ready() {
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
