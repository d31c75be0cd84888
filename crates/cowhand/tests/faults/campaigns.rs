//! The campaigns, one function each.

use std::fs;
use std::path::Path;
use std::thread::sleep;
use std::time::Duration;

use rustix::process::{Signal, kill_process};

use crate::check::{Counts, check};
use crate::disk::{Ext4, Namespace};
use crate::fleet::{Fleet, write_whole};
use crate::{Campaign, Setting, StoreKind, tmpfs};

pub(crate) const ALL: &[Campaign] = &[
    Campaign { name: "daemon_killed", about: "`kill -9` of the daemon", store: None, run: daemon_killed },
    Campaign { name: "keepers_killed", about: "`kill -9` of keepers", store: None, run: keepers_killed },
    Campaign { name: "both_killed", about: "`kill -9` of both", store: None, run: both_killed },
    Campaign { name: "daemon_stopped", about: "SIGSTOP of the daemon", store: None, run: daemon_stopped },
    Campaign { name: "keepers_stopped", about: "SIGSTOP of keepers", store: None, run: keepers_stopped },
    Campaign { name: "disk_full", about: "full disk", store: None, run: disk_full },
    Campaign { name: "read_only", about: "disk becomes read-only", store: None, run: read_only },
    Campaign { name: "clock_steps", about: "wall clock steps, both ways", store: None, run: clock_steps },
    Campaign { name: "descriptors", about: "64 file descriptors", store: None, run: descriptors },
    Campaign { name: "views_deleted", about: "views deleted", store: None, run: views_deleted },
    Campaign {
        name: "store_unlinked",
        about: "store removed, saved and restored",
        store: Some(StoreKind::Sqlite),
        run: store_unlinked,
    },
    Campaign {
        name: "server_stopped",
        about: "PostgreSQL fails or does not answer",
        store: Some(StoreKind::Postgres),
        run: server_stopped,
    },
];

fn some(milliseconds: std::ops::Range<u64>) {
    sleep(Duration::from_millis(fastrand::u64(milliseconds)));
}

fn started(setting: Setting) -> Fleet {
    let mut fleet = Fleet::new(setting);
    fleet.start();
    fleet.sender.start();
    fleet.wait_for_work(5);
    fleet
}

fn daemon_killed(setting: Setting) -> Counts {
    let (mut fleet, kills) = (started(setting), setting.of(6, 100));
    for _ in 0..kills {
        some(50..800);
        fleet.kill();
        some(0..300);
        fleet.start();
    }
    check(fleet, kills, 0)
}

/// Kills one keeper if there is one, and returns the number killed.
fn kill_keeper(fleet: &Fleet) -> usize {
    let Some(keeper) = fastrand::choice(fleet.keepers()) else { return 0 };
    usize::from(kill_process(keeper, Signal::KILL).is_ok())
}

fn keepers_killed(setting: Setting) -> Counts {
    let (fleet, kills) = (started(setting), setting.of(8, 100));
    for _ in 0..kills {
        fleet.wait_for("a keeper to kill", || kill_keeper(&fleet) == 1);
        some(50..400);
    }
    check(fleet, kills, kills as usize)
}

fn both_killed(setting: Setting) -> Counts {
    let (mut fleet, kills) = (started(setting), setting.of(5, 100));
    let mut keepers = 0;
    for _ in 0..kills {
        some(50..800);
        keepers += kill_keeper(&fleet);
        fleet.kill();
        keepers += kill_keeper(&fleet);
        fleet.start();
    }
    check(fleet, kills + u32::try_from(keepers).unwrap(), keepers)
}

/// Suspends the daemon for a time, in the long form for longer than a lease.
fn daemon_stopped(setting: Setting) -> Counts {
    let (fleet, stops) = (started(setting), setting.of(2, 5));
    for _ in 0..stops {
        kill_process(fleet.daemon(), Signal::STOP).unwrap();
        sleep(Duration::from_secs(setting.of(2, 40).into()));
        kill_process(fleet.daemon(), Signal::CONT).unwrap();
        fleet.wait_for_work(10);
    }
    check(fleet, stops, 0)
}

fn keepers_stopped(setting: Setting) -> Counts {
    let (fleet, stops) = (started(setting), setting.of(3, 30));
    for _ in 0..stops {
        fleet.wait_for("a keeper", || !fleet.keepers().is_empty());
        let keepers = fleet.keepers();
        let stopped: Vec<_> =
            keepers.into_iter().filter(|keeper| kill_process(*keeper, Signal::STOP).is_ok()).collect();
        sleep(Duration::from_secs(1));
        for keeper in stopped {
            kill_process(keeper, Signal::CONT).ok();
        }
        fleet.wait_for_work(5);
    }
    check(fleet, stops, 0)
}

fn disk_full(setting: Setting) -> Counts {
    let mount = |namespace: &Namespace, place: &Path| tmpfs::mount(namespace, place, 48);
    let mut fleet = Fleet::on_disk(setting, Some(mount));
    fleet.start();
    fleet.sender.start();
    let fills = setting.of(2, 10);
    for _ in 0..fills {
        fleet.wait_for_work(10);
        tmpfs::fill(fleet.namespace.as_ref().unwrap(), &fleet.path());
        fleet.wait_for("it to be not ready", || !fleet.is_ready());
        some(1_000..3_000);
        tmpfs::free(fleet.namespace.as_ref().unwrap(), &fleet.path());
        fleet.wait_for("it to be ready", || fleet.is_ready());
    }
    fleet.wait_for_work(10);
    assert!(fleet.sender.refused() > 0);
    check(fleet, fills, 0)
}

/// Makes the disk read-only. Attempts whose keeper could not write their end are lost, with a reason.
fn read_only(setting: Setting) -> Counts {
    let mut made = None;
    let mut fleet = Fleet::on_disk(
        setting,
        Some(|namespace: &Namespace, place: &Path| {
            made = Some(Ext4::mount(namespace, place.with_file_name("image"), place));
        }),
    );
    let disk = made.unwrap();
    fleet.start();
    let (times, mut excused) = (setting.of(1, 5), 0);
    for _ in 0..times {
        fleet.sender.start();
        fleet.wait_for_work(10);
        excused += fleet.keepers().len() + 4;
        disk.make_read_only();
        fleet.wait_for("it to be not ready", || !fleet.is_ready());
        fleet.sender.stop();
        fleet.kill();
        for keeper in fleet.keepers() {
            kill_process(keeper, Signal::KILL).ok();
        }
        // The disk cannot be repaired while a process uses it.
        fleet.wait_for("keepers and agents to go", || fleet.processes().is_empty());
        disk.repair(fleet.namespace.as_ref().unwrap());
        fleet.start();
    }
    fleet.sender.start();
    fleet.wait_for_work(10);
    check(fleet, times, excused)
}

/// Sets the clock. Intervals continue to fire, and the timeout of a job does not expire.
fn clock_steps(setting: Setting) -> Counts {
    let mut fleet = Fleet::new(setting);
    let clock = fleet.outside("clock");
    write_whole(&clock, "+0");
    fleet.variables = vec![
        ("LD_PRELOAD", faketime()),
        ("FAKETIME_TIMESTAMP_FILE", clock.display().to_string()),
        ("FAKETIME_NO_CACHE", "1".to_owned()),
        ("FAKETIME_DONT_FAKE_MONOTONIC", "1".to_owned()),
    ];
    fleet.start();
    fleet.sender.send("long/hook", "long");
    fleet.sender.start();
    fleet.wait_for("the first ticks", || fleet.ticks() >= 2);
    let steps = ["-600", "+3600", "-7200", "+0", "+86400", "+86100"];
    let times = setting.of(4, 18);
    for step in steps.iter().cycle().take(times as usize) {
        write_whole(&clock, step);
        let before = fleet.ticks();
        fleet.wait_for(&format!("ticks after the step to {step}"), || fleet.ticks() >= before + 2);
        fleet.wait_for_work(5);
        // Restart the daemon after about half of the steps.
        if fastrand::bool() {
            fleet.kill();
            fleet.start();
        }
    }
    write_whole(&clock, "+0");
    check(fleet, times, 0)
}

fn faketime() -> String {
    let folders = fs::read_dir("/usr/lib").unwrap().flatten();
    let libraries = folders.map(|folder| folder.path().join("faketime/libfaketimeMT.so.1"));
    let found = libraries.into_iter().find(|library| library.exists());
    found.expect("libfaketime is not installed; scripts/test installs it").display().to_string()
}

fn descriptors(setting: Setting) -> Counts {
    let mut fleet = Fleet::new(setting);
    fleet.descriptors = Some(64);
    fleet.start();
    let deliveries = setting.of(48, 144);
    for number in 0..deliveries {
        fleet.sender.send(&format!("w{}/hook", number % 4), &format!("burst{number}"));
    }
    check(fleet, 1, 0)
}

fn views_deleted(setting: Setting) -> Counts {
    let (fleet, times) = (started(setting), setting.of(4, 40));
    for _ in 0..times {
        fs::remove_dir_all(fleet.seen(".cowhand/jobs")).ok();
        fleet.wait_for_work(8);
        fs::remove_file(fleet.seen(".cowhand/state.yaml")).ok();
    }
    check(fleet, times, 0)
}

/// Deletes the store. No delivery that was accepted before or after the deletion is lost, and none is accepted while
/// the store is missing.
fn store_unlinked(setting: Setting) -> Counts {
    let (mut fleet, times) = (started(setting), setting.of(1, 10));
    for time in 0..times {
        fleet.wait_for_work(10);
        for name in ["store.db", "store.db-wal", "store.db-shm"] {
            fs::remove_file(fleet.seen(".cowhand").join(name)).unwrap();
        }
        fleet.wait_for("it to be not ready", || !fleet.is_ready());
        let before = fleet.sender.accepted().len();
        some(300..1_000);
        assert_eq!(fleet.sender.accepted().len(), before, "nothing is accepted");
        let saved = fleet.outside(&format!("saved{time}"));
        let saved = saved.to_str().unwrap();
        for (verb, arguments) in
            [("backup", &["backup", saved][..]), ("stop", &[]), ("restore", &["restore", saved])]
        {
            if verb == "stop" {
                fleet.stop(&["--keep-agents"]);
                continue;
            }
            let output = fleet.run(arguments);
            assert!(output.status.success(), "{verb}: {}", String::from_utf8_lossy(&output.stderr));
        }
        fleet.start();
    }
    fleet.wait_for_work(10);
    check(fleet, times, 0)
}

/// The server ends without writing anything more, or is suspended, for less than a lease. Deliveries are refused
/// meanwhile, and the outcomes of jobs are stored afterwards.
fn server_stopped(setting: Setting) -> Counts {
    let (mut fleet, times) = (started(setting), setting.of(2, 20));
    for time in 0..times {
        fleet.wait_for_work(10);
        let server = fleet.server.as_mut().unwrap();
        if time % 2 == 0 {
            server.stop();
            some(500..4_000);
            server.start_again();
        } else {
            server.freeze();
            some(500..4_000);
            server.thaw();
        }
        fleet.wait_for("it to be ready", || fleet.is_ready());
    }
    fleet.wait_for_work(10);
    check(fleet, times, 0)
}
