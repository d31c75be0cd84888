//! Caps on memory, processes and CPU. The script continues only after the test has seen that its caps are in force.

use std::fs;
use std::os::unix::fs::chown;
use std::path::{Path, PathBuf};
use std::process::Command;

use rustix::process::{Pid, Signal, kill_process};
use serde_json::{Value, json};

use super::{NOBODY, Scene, User, for_each_sandbox, in_a_container, wait_until};

for_each_sandbox!(a_bomb, a_hoarder);
in_a_container!(a_bomb, a_hoarder);

const PIDS: u64 = 48;
const MEMORY: u64 = 200_000_000;

fn sandbox(kind: &str) -> Value {
    json!({"sandbox": {"kind": kind, "pids": PIDS, "memory": "200MB", "cpu": 0.5}})
}

/// Returns a script that waits for the file `go`.
fn waiting(then: &str) -> String {
    format!("echo $$ >ready\nwhile [ ! -e go ]; do sleep 0.05; done\n{then}\n")
}

/// Returns the group of a process in this controller of cgroup version 1; none on machines without it.
fn group(controller: &str, pid: &str) -> Option<PathBuf> {
    let mounts = fs::read_to_string("/proc/self/mountinfo").unwrap();
    let mount = mounts.lines().find_map(|line| {
        let (left, right) = line.split_once(" - cgroup ")?;
        let fits = right.split([' ', ',']).any(|word| word == controller);
        fits.then(|| left.split(' ').nth(4).map(PathBuf::from)).flatten()
    })?;
    let groups = fs::read_to_string(format!("/proc/{pid}/cgroup")).ok()?;
    let path = groups.lines().find_map(|line| {
        let mut parts = line.splitn(3, ':').skip(1);
        let fits = parts.next()?.split(',').any(|word| word == controller);
        fits.then(|| parts.next()).flatten().map(|path| path.trim_start_matches('/').to_owned())
    })?;
    Some(mount.join(path))
}

/// Returns the limit of this process, in either version of cgroups.
fn limit(pid: &str, controller: &str, one: &str, two: &str) -> u64 {
    let unified = || {
        let groups = fs::read_to_string(format!("/proc/{pid}/cgroup")).unwrap();
        let path = groups.lines().find_map(|line| line.strip_prefix("0::/")).unwrap().to_owned();
        Path::new("/sys/fs/cgroup").join(path).join(two)
    };
    let file = group(controller, pid).map_or_else(unified, |group| group.join(one));
    let text = fs::read_to_string(&file).unwrap_or_else(|error| panic!("{}: {error}", file.display()));
    text.split_whitespace().next().unwrap().parse().unwrap_or(u64::MAX)
}

/// Groups of version 1 that an ordinary user may use, below the groups of this process; removed on drop.
struct Delegated(Vec<PathBuf>);

impl Delegated {
    /// Creates the groups. Returns none on a machine without version 1: such a machine requires systemd, and only the
    /// refusal can be tested.
    fn new(name: &str) -> Option<Self> {
        let homes: Option<Vec<PathBuf>> =
            ["memory", "pids", "cpu"].into_iter().map(|controller| group(controller, "self")).collect();
        let groups: Vec<PathBuf> = homes?.into_iter().map(|home| home.join(name)).collect();
        for group in &groups {
            fs::create_dir(group).unwrap();
            chown(group, Some(NOBODY), Some(NOBODY)).unwrap();
            for file in ["cgroup.procs", "tasks"] {
                chown(group.join(file), Some(NOBODY), Some(NOBODY)).unwrap();
            }
        }
        Some(Self(groups))
    }

    /// Returns the command that puts another command into the groups.
    fn wrapper_command(&self) -> Vec<String> {
        let files: Vec<String> =
            self.0.iter().map(|group| group.join("cgroup.procs").display().to_string()).collect();
        let script = format!("for f in {}; do echo 0 >$f || exit 1; done; exec \"$@\"", files.join(" "));
        ["sh", "-c", &script, "sh"].map(str::to_owned).into()
    }
}

impl Drop for Delegated {
    fn drop(&mut self) {
        for group in &self.0 {
            // The remaining processes are being ended.
            for _ in 0..200 {
                if fs::remove_dir(group).is_ok() {
                    break;
                }
                std::thread::sleep(std::time::Duration::from_millis(20));
            }
        }
    }
}

/// Checks that the caps are in force, and runs the script under them. Where caps are not available, checks the refusal
/// and returns none.
fn loose(kind: &str, user: User, script: &str) -> Option<(Value, String)> {
    // A container engine has its own groups.
    let delegated = (user == User::Nobody && kind != "docker")
        .then(|| Delegated::new(&format!("cowhand-test-{}-{}", std::process::id(), fastrand::u32(..))))
        .flatten();
    // The reached caps of a container are reported only while it runs, so the script waits. It waits without `sleep`,
    // because no process can be forked then.
    let last = if kind == "docker" { "until [ -e seen ]; do :; done" } else { "" };
    let mut scene = Scene::new(user, &waiting(&format!("{script}\n{last}")), &sandbox(kind));
    if let Some(delegated) = &delegated {
        scene.wrapper_command = delegated.wrapper_command();
    }
    scene.start();
    let id = scene.trigger();
    if user == User::Nobody && delegated.is_none() && kind != "docker" {
        let (job, _) = scene.ended(&id);
        let why = job["error"]["message"].as_str().unwrap();
        assert!(why.contains("caps on memory, processes or processor time cannot be enforced"), "{job:#}");
        assert!(!scene.path("desk/ready").exists(), "something ran");
        return None;
    }
    wait_until("the agent", || {
        let job = scene.json(&["job", &id]);
        assert!(matches!(job["status"].as_str(), Some("pending" | "running")), "{job:#}");
        scene.path("desk/ready").exists().then_some(())
    });
    // The pid in the file may be of a namespace, so the process is found by its directory.
    let pid = super::processes_naming(&scene.path("desk"))
        .into_iter()
        .map(|pid| pid.as_raw_nonzero().to_string())
        .find(|pid| {
            let words = fs::read(format!("/proc/{pid}/cmdline")).unwrap_or_default();
            [&b"/usr/bin/sh\0"[..], b"/bin/sh\0", b"sh\0"].iter().any(|shell| words.starts_with(shell))
        })
        .expect("the agent's process");
    assert_eq!(limit(&pid, "pids", "pids.max", "pids.max"), PIDS);
    assert!(limit(&pid, "memory", "memory.limit_in_bytes", "memory.max") <= MEMORY);
    assert_eq!(limit(&pid, "cpu", "cpu.cfs_quota_us", "cpu.max"), 50_000);
    fs::write(scene.path("desk/go"), "").unwrap();
    if kind == "docker" {
        wait_until("the note", || {
            let said = scene.command(&["logs", &id]).output().unwrap().stdout;
            String::from_utf8_lossy(&said).contains("the sandbox's cap on").then_some(())
        });
        fs::write(scene.path("desk/seen"), "").unwrap();
    }
    let came = scene.ended(&id);
    // No process and no group is left.
    let found = Command::new("find").args(["/sys/fs/cgroup", "-name", &format!("cowhand-{id}.*")]).output();
    let left = String::from_utf8(found.unwrap().stdout).unwrap();
    assert!(left.is_empty(), "{left}");
    drop(scene);
    drop(delegated);
    Some(came)
}

fn a_bomb(kind: &str, user: User) {
    let script = "perl -e 'my $n = 0; for (1..10000) { my $p = fork; last unless defined $p; unless ($p) { sleep 600; \
                  exit } $n++ } print \"forked $n: $!\\n\"'";
    let Some((job, said)) = loose(kind, user, script) else { return };
    let forked =
        said.lines().find_map(|line| line.strip_prefix("forked ")).unwrap_or_else(|| panic!("{said}"));
    let count: u64 = forked.split(':').next().unwrap().parse().unwrap();
    assert!((1..PIDS).contains(&count), "{said}");
    assert!(forked.contains("temporarily unavailable"), "{said}");
    assert!(said.contains("the sandbox's cap on processes (48) was reached"), "{said}");
    assert_eq!(job["status"], "completed", "{job:#}\n{said}");
}

fn a_hoarder(kind: &str, user: User) {
    let script = "perl -e 'my @all; push @all, \"x\" x 10_000_000 while 1'; echo perl came to $?";
    let Some((job, said)) = loose(kind, user, script) else { return };
    assert!(said.contains("perl came to 137"), "{said}");
    assert!(said.contains("the sandbox's cap on memory (200000000 bytes) was reached"), "{said}");
    assert_eq!(job["status"], "completed", "{job:#}\n{said}");
}

/// Caps work without a sandbox.
#[test]
fn caps_work_without_sandbox() {
    let script = "perl -e 'my $n = 0; for (1..1000) { my $p = fork; last unless defined $p; unless ($p) { sleep 600; \
                  exit } $n++ } print \"forked $n\\n\"'; cat ../home/.ssh/id";
    let (_, said) = loose("none", User::Root, script).unwrap();
    assert!(said.contains("the sandbox's cap on processes (48) was reached"), "{said}");
    assert!(said.contains("a-private-key"), "{said}");
}

/// The groups of a killed keeper are removed after the end of its agent. In namespaces the agent ends at once,
/// otherwise by itself.
#[test]
fn groups_of_killed_keeper_are_removed() {
    for kind in ["none", "landlock", "bubblewrap"] {
        let mut scene = Scene::new(User::Root, &waiting("exit 0"), &sandbox(kind));
        scene.start();
        let id = scene.trigger();
        wait_until("the agent", || scene.path("desk/ready").exists().then_some(()));
        let folder = scene.path(&format!("fleet/.cowhand/attempts/{id}.1"));
        let read = |name: &str| fs::read_to_string(folder.join(name)).unwrap();
        let keeper: Value = serde_json::from_str(&read("keeper.json")).unwrap();
        let groups: Vec<String> = read("caps").lines().map(str::to_owned).collect();
        assert!(groups.iter().all(|group| Path::new(group).exists()), "{groups:?}");
        let keeper = Pid::from_raw(i32::try_from(keeper["pid"].as_i64().unwrap()).unwrap()).unwrap();
        kill_process(keeper, Signal::KILL).unwrap();
        fs::write(scene.path("desk/go"), "").unwrap();
        let (job, said) = scene.ended(&id);
        assert_ne!(job["status"], "running", "{kind}: {job:#}\n{said}");
        wait_until("the groups to be gone", || {
            groups.iter().all(|group| !Path::new(group).exists()).then_some(())
        });
        wait_until("nothing to be left", || {
            super::processes_naming(&scene.path("desk")).is_empty().then_some(())
        });
    }
}

/// If no group can be created, the job fails instead of running without caps.
#[test]
fn job_fails_if_no_group_can_be_created() {
    let mut scene =
        Scene::new(User::Nobody, "echo ran >ran", &json!({"sandbox": {"kind": "none", "pids": 48}}));
    scene.start();
    let (job, _) = scene.run();
    assert_eq!(job["status"], "failed", "{job:#}");
    let why = job["error"]["message"].as_str().unwrap();
    assert!(why.contains("caps on memory, processes or processor time cannot be enforced here"), "{why}");
    assert!(!scene.path("desk/ran").exists(), "something ran");
}
