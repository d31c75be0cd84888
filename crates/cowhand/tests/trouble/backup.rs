//! `cowhand backup` and `cowhand restore`.

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::PathBuf;
use std::process::Output;

use cowhand_testing::postgres::Postgres;
use serde_json::Value;

use super::http::deliver;
use super::store::{ended, sql, statuses};
use super::{Fleet, refused, tmpfs, wait_for};

#[track_caller]
fn good(output: &Output) -> String {
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    String::from_utf8_lossy(&output.stdout).into_owned()
}

/// Starts a fleet that has run `jobs` jobs.
fn busy(jobs: usize) -> Fleet {
    let fleet = Fleet::started();
    for number in 0..jobs {
        assert_eq!(deliver(fleet.place(), "a/hook", &number.to_string()).unwrap().status, 202);
    }
    wait_for("the jobs to end", || ended(&fleet) == jobs);
    fleet
}

fn stop(fleet: &mut Fleet) {
    good(&fleet.run(&["stop"]));
    fleet.ended();
}

fn files_of(fleet: &Fleet, extension: &str) -> Vec<PathBuf> {
    let entries = fs::read_dir(fleet.path().join(".cowhand/jobs")).unwrap().flatten();
    let mut files: Vec<_> = entries.map(|entry| entry.path()).collect();
    files.retain(|path| path.extension() == Some(extension.as_ref()));
    files.sort();
    files
}

/// A backup of a working daemon is restored in an empty folder: history, keys of deliveries and output.
#[test]
fn backup_of_running_fleet_is_restored_elsewhere() {
    let mut fleet = busy(3);
    let saved = fleet.path().join("saved.db");
    let name = saved.to_str().unwrap().to_owned();
    let text = good(&fleet.run(&["backup", &name]));
    assert!(text.contains("saved.db") && text.contains("3 jobs"), "{text}");
    assert_eq!(fs::metadata(&saved).unwrap().permissions().mode() & 0o777, 0o600);
    let left: Vec<_> = fs::read_dir(fleet.path()).unwrap().flatten().map(|entry| entry.file_name()).collect();
    assert!(left.iter().all(|name| !name.to_string_lossy().starts_with(".tmp")), "{left:?}");
    // An existing file is never overwritten.
    refused(&fleet.run(&["backup", &name]), 5, &["saved.db", "exists"]);
    let outputs: Vec<String> =
        files_of(&fleet, "jsonl").iter().map(|file| fs::read_to_string(file).unwrap()).collect();
    assert_eq!(outputs.len(), 3);
    stop(&mut fleet);
    let mut other = Fleet::prepared();
    let text = good(&other.run(&["restore", &name]));
    assert!(text.contains("3 jobs"), "{text}");
    let restored: Vec<String> =
        files_of(&other, "jsonl").iter().map(|file| fs::read_to_string(file).unwrap()).collect();
    assert_eq!(restored, outputs);
    let store = other.path().join(".cowhand/store.db");
    assert_eq!(fs::metadata(&store).unwrap().permissions().mode() & 0o777, 0o600);
    other.start();
    assert_eq!(
        deliver(other.place(), "a/hook", "1").unwrap().status,
        200,
        "a delivery that was taken before"
    );
    assert_eq!(statuses(&other), ["completed"; 3]);
    let jobs: Vec<Value> = serde_json::from_str(&good(&other.run(&["jobs", "--json"]))).unwrap();
    let logs = good(&other.run(&["logs", jobs[0]["id"].as_str().unwrap()]));
    assert!(logs.contains("ran"), "{logs}");
    assert_eq!(other.run(&["doctor"]).status.code(), Some(0));
}

/// The replaced store is kept, and can be restored by the same verb.
#[test]
fn restore_keeps_replaced_store() {
    let mut fleet = busy(1);
    let saved = fleet.path().join("saved.db");
    good(&fleet.run(&["backup", "--no-output", saved.to_str().unwrap()]));
    assert_eq!(deliver(fleet.place(), "a/hook", "later").unwrap().status, 202);
    wait_for("the second job to end", || ended(&fleet) == 2);
    stop(&mut fleet);
    let text = good(&fleet.run(&["restore", saved.to_str().unwrap()]));
    assert_eq!(ended(&fleet), 1);
    let aside = fs::read_dir(fleet.path().join(".cowhand")).unwrap().flatten().map(|entry| entry.path());
    // Its `-wal` and `-shm` may be beside it.
    let mut aside = aside.filter(|path| {
        let name = path.to_string_lossy();
        name.contains("store.db.replaced-") && name.ends_with('Z')
    });
    let aside = aside.next().unwrap();
    assert!(text.contains(aside.file_name().unwrap().to_str().unwrap()), "{text}");
    good(&fleet.run(&["restore", aside.to_str().unwrap()]));
    assert_eq!(ended(&fleet), 2);
    assert_eq!(files_of(&fleet, "jsonl").len(), 2, "output that is there stays");
}

/// After a crash, the newest rows of the store are in its write-ahead log.
#[test]
fn replaced_store_of_killed_daemon_is_one_file() {
    let mut fleet = busy(1);
    let saved = fleet.path().join("saved.db");
    good(&fleet.run(&["backup", saved.to_str().unwrap()]));
    assert_eq!(deliver(fleet.place(), "a/hook", "later").unwrap().status, 202);
    wait_for("the second job to end", || ended(&fleet) == 2);
    fleet.kill();
    let state = fleet.path().join(".cowhand");
    assert!(fs::metadata(state.join("store.db-wal")).unwrap().len() > 0);
    // The restore replaces changed output.
    for output in files_of(&fleet, "jsonl") {
        fs::write(output, "changed\n").unwrap();
    }
    good(&fleet.run(&["restore", saved.to_str().unwrap()]));
    let entries = fs::read_dir(&state).unwrap().flatten().map(|entry| entry.path());
    let mut kept: Vec<_> =
        entries.filter(|path| path.to_string_lossy().contains("store.db.replaced-")).collect();
    kept.sort();
    let [replaced, outputs] = kept.as_slice() else { panic!("{kept:?}") };
    assert_eq!(outputs.extension(), Some("jobs".as_ref()));
    assert_eq!(fs::metadata(outputs).unwrap().permissions().mode() & 0o777, 0o700);
    let alone = fleet.outside().join("alone.db");
    fs::copy(replaced, &alone).unwrap();
    good(&fleet.run(&["restore", alone.to_str().unwrap()]));
    assert_eq!(ended(&fleet), 2);
}

#[test]
fn restore_is_refused_while_a_daemon_runs() {
    let fleet = busy(1);
    let saved = fleet.path().join("saved.db");
    good(&fleet.run(&["backup", saved.to_str().unwrap()]));
    let stop = format!("`cowhand -c {} stop`", fleet.path().display());
    refused(&fleet.run(&["restore", saved.to_str().unwrap()]), 5, &["a daemon is running", &stop]);
    assert_eq!(deliver(fleet.place(), "a/hook", "more").unwrap().status, 202);
}

#[test]
fn restore_refuses_invalid_backup_files() {
    let mut fleet = busy(2);
    let saved = fleet.path().join("saved.db");
    good(&fleet.run(&["backup", saved.to_str().unwrap()]));
    stop(&mut fleet);
    let whole = fs::read(&saved).unwrap();
    let store = fleet.path().join(".cowhand/store.db");
    let before = fs::read(&store).unwrap();
    let bad = fleet.path().join("bad.db");
    let name = bad.to_str().unwrap();
    let refuse = |words: &[&str]| {
        refused(&fleet.run(&["restore", name]), 5, words);
        assert_eq!(fs::read(&store).unwrap(), before, "nothing was changed");
        let state = fs::read_dir(fleet.path().join(".cowhand")).unwrap().flatten();
        let names: Vec<_> = state.map(|entry| entry.file_name().to_string_lossy().into_owned()).collect();
        assert!(!names.iter().any(|name| name.contains("restore") || name.contains("replaced")), "{names:?}");
    };
    refuse(&["bad.db", "No such file"]);
    fs::write(&bad, "").unwrap();
    refuse(&["bad.db", "empty"]);
    fs::write(&bad, "Dear diary. ".repeat(2_000)).unwrap();
    refuse(&["bad.db", "not a database"]);
    let mut broken = whole.clone();
    let middle = whole.len() / 8192 * 4096;
    broken[middle..middle + 8192].fill(0x55);
    fs::write(&bad, &broken).unwrap();
    refuse(&["bad.db", "damaged"]);
    fs::remove_file(&bad).unwrap();
    sql_new(&bad, "create table cows (name text)");
    refuse(&["bad.db", "not a store of cowhand"]);
    fs::write(&bad, &whole).unwrap();
    sql(
        &bad,
        "insert into _sqlx_migrations (version, description, success, checksum, execution_time) \
         values (9001, 'from the future', 1, x'00', 0)",
    );
    refuse(&[&format!("the store at {name} was written by a newer cowhand")]);
    // Paths in the backup cannot leave the folder.
    fs::write(&bad, &whole).unwrap();
    sql(
        &bad,
        "update backup_files set path = '../../evil' where path = (select min(path) from backup_files)",
    );
    refuse(&["bad.db", "evil"]);
    assert!(!fleet.path().join("evil").exists());
}

fn sql_new(file: &std::path::Path, text: &'static str) {
    fs::write(file, "").unwrap();
    sql(file, text);
}

#[test]
fn backup_without_store_is_refused() {
    let fleet = Fleet::prepared();
    let saved = fleet.path().join("saved.db");
    refused(&fleet.run(&["backup", saved.to_str().unwrap()]), 5, &["no store"]);
    assert!(!saved.exists() && !fleet.path().join(".cowhand").exists());
}

#[test]
fn backup_works_without_daemon() {
    let mut fleet = busy(1);
    stop(&mut fleet);
    let saved = fleet.path().join("saved.db");
    assert!(good(&fleet.run(&["backup", saved.to_str().unwrap()])).contains("1 job"));
    let gone = fleet.path().join("no/such/saved.db");
    refused(&fleet.run(&["backup", gone.to_str().unwrap()]), 6, &["no/such", "No such file"]);
}

#[test]
fn backup_of_postgres_store_is_refused() {
    let server = Postgres::start();
    let mut fleet = Fleet::of(&format!("store: {}\n", server.url()));
    let saved = fleet.path().join("saved.db");
    // The database is still empty.
    refused(&fleet.run(&["backup", saved.to_str().unwrap()]), 5, &["PostgreSQL", "pg_dump"]);
    assert!(!saved.exists());
    fleet.start();
    refused(&fleet.run(&["backup", saved.to_str().unwrap()]), 5, &["PostgreSQL", "pg_dump"]);
    assert!(!saved.exists());
    stop(&mut fleet);
    fs::write(&saved, "x").unwrap();
    refused(&fleet.run(&["restore", saved.to_str().unwrap()]), 5, &["PostgreSQL", "pg_restore"]);
}

/// The store and the folder for temporary files are on a read-only disk, so the backup is created beside its target.
#[test]
fn backup_works_on_read_only_disk() {
    let mut fleet = Fleet::on_disk(|namespace, place| tmpfs::mount(namespace, place, 8));
    fleet.start();
    assert_eq!(deliver(fleet.place(), "a/hook", "1").unwrap().status, 202);
    wait_for("the job to end", || ended(&fleet) == 1);
    fleet.kill();
    let place = fleet.path();
    fleet.namespace().run("mount", &["-o", "remount,ro", place.to_str().unwrap()]);
    let elsewhere = tempfile::tempdir().unwrap();
    let copy = elsewhere.path().join("copy");
    let backup = fleet.command(&["backup", copy.to_str().unwrap()]).env("TMPDIR", &place).output().unwrap();
    assert!(good(&backup).contains("1 job"), "{backup:?}");
    let left: Vec<_> =
        fs::read_dir(elsewhere.path()).unwrap().flatten().map(|entry| entry.file_name()).collect();
    assert_eq!(left, ["copy"], "nothing else is left there");
}
