//! Actions on files and processes of the same user that no rule of Landlock restricts, and sockets that no
//! network namespace confines.

use std::fs;
use std::os::unix::fs::MetadataExt;

use serde_json::json;

use super::{Scene, User};

/// Functions of the scripts: `try NAME COMMAND…` prints the name and whether the command succeeded, `call` makes a
/// system call, and `modes_by_number` tries each call that sets a mode.
const FUNCTIONS: &str = r#"
try() { name=$1; shift; if "$@" 2>> errors; then echo "$name: out"; else echo "$name: held"; fi; }
call() { perl -e 'my @a = map { /^-?\d+$/ ? $_ + 0 : $_ } @ARGV; my $n = shift @a; my $r = syscall($n, @a); if ($r < 0) { warn "call $n: $!\n"; exit 1 }' "$@"; }
modes_by_number() {
if [ "$(uname -m)" = x86_64 ]; then
  try chmod call 90 own 2541
  try fchmodat call 268 -100 own 2541 0
  try fchmodat2 call 452 -100 own 2541 0
  try open call 2 made1 65 2541
  try openat call 257 -100 made2 65 2541
  try creat call 85 made3 1517
  try mknod call 133 made4 35309 0
  try openat2 call 437 -100 own 0 24
fi
}
"#;

/// Script in which each line prints an action and its result. `tool` is a file of the same owner, elsewhere.
const RIGHTS: &str = r#"
echo x > own
try plain chmod 755 own
try sticky chmod 1755 .
try setuid chmod 4755 own
try setgid chmod 2755 own
try elsewhere chmod 4755 "$TOOL"
try fchmod perl -e 'open my $f, "<", "own"; chmod 04755, $f or die "$!\n"'
modes_by_number
try setpriority perl -e "setpriority(0, $WATCHER, 19) or die qq(\$!\n)"
try of-user perl -e 'setpriority(2, 0, 1) or die "$!\n"'
try itself perl -e 'setpriority(0, 0, 1) or die "$!\n"'
try affinity taskset -p 1 $WATCHER
try own-affinity taskset 1 true
try scheduler chrt -b -p 0 $WATCHER
try io ionice -c 3 -p $WATCHER
try own-io ionice -c 3 true
try group chgrp $GROUP own
try own-group chgrp "$(id -g)" own
umask 022; mkdir -p repo && cd repo && git init -q . && git -c user.name=a -c user.email=a@b commit -q --allow-empty -m x
try git test -e .git/HEAD
cd .. && tar cf own.tar repo && mkdir unpacked
try tar tar xf own.tar -C unpacked
cat errors
"#;

fn nobody_else_is_touched(user: User) {
    let mut scene = Scene::new(user, &format!("{FUNCTIONS}{RIGHTS}"), &json!({"sandbox": "landlock"}));
    scene.write("outside/tool", "#!/bin/sh\n");
    scene.hand_over();
    scene.start();
    let watcher = scene.daemon.as_ref().unwrap().id();
    let env = json!({
        "TOOL": scene.path("outside/tool").display().to_string(), "WATCHER": watcher.to_string(), "GROUP": "33",
        "GIT_CONFIG_NOSYSTEM": "1",
    });
    scene.set(&json!({ "env": env }));
    assert!(scene.command(&["reload"]).status().unwrap().success());
    let (job, said) = scene.run();
    assert_eq!(job["status"], "completed", "{job:#}\n{said}");
    let came_to = |name: &str| {
        let told = said.lines().find_map(|line| line.strip_prefix(&format!("{name}: ")));
        told.unwrap_or_else(|| panic!("{name}:\n{said}")).to_owned()
    };
    for name in ["plain", "sticky", "itself", "own-affinity", "own-io", "own-group", "git", "tar"] {
        assert_eq!(came_to(name), "out", "{name}:\n{said}");
    }
    let mut held = vec!["setuid", "setgid", "elsewhere", "fchmod"];
    held.extend(["setpriority", "of-user", "affinity", "scheduler", "io", "group"]);
    if cfg!(target_arch = "x86_64") {
        held.extend(["chmod", "fchmodat", "fchmodat2", "open", "openat", "creat", "mknod", "openat2"]);
    }
    for name in held {
        assert_eq!(came_to(name), "held", "{name}:\n{said}");
    }
    assert!(said.contains("call 437: Function not implemented"), "{said}");
    assert_eq!(fs::metadata(scene.path("outside/tool")).unwrap().mode() & 0o7777, 0o644);
}

#[test]
fn landlock_protects_other_files_and_processes_as_root() {
    nobody_else_is_touched(User::Root);
}

#[test]
fn landlock_protects_other_files_and_processes_as_nobody() {
    nobody_else_is_touched(User::Nobody);
}

/// Script that tries each call that sets a mode. Files of a namespace or a container are files of the host.
const MODES: &str = r#"
echo x > own
mkdir folder
try plain chmod 755 own
try sticky chmod 1777 folder
try written sh -c 'echo y > written && cp written copied'
try setuid chmod 4755 own
try setgid chmod 2755 own
try folder chmod 2777 folder
try fchmod perl -e 'open my $f, "<", "own"; chmod 04755, $f or die "$!\n"'
modes_by_number
cat errors
"#;

/// Checks that no file gets a mode with which it has the rights of its owner, who may be root.
fn no_special_modes(sandbox: &str, user: User) {
    let mut scene = Scene::new(user, &format!("{FUNCTIONS}{MODES}"), &json!({ "sandbox": sandbox }));
    scene.start();
    let (job, said) = scene.run();
    assert_eq!(job["status"], "completed", "{job:#}\n{said}");
    for name in ["plain", "sticky", "written"] {
        assert!(said.contains(&format!("{name}: out")), "{name}:\n{said}");
    }
    let mut held = vec!["setuid", "setgid", "folder", "fchmod"];
    if cfg!(target_arch = "x86_64") {
        held.extend(["chmod", "fchmodat", "fchmodat2", "open", "openat", "creat", "mknod", "openat2"]);
    }
    for name in held {
        assert!(said.contains(&format!("{name}: held")), "{name}:\n{said}");
    }
}

#[test]
fn setuid_modes_are_refused_in_bubblewrap_as_root() {
    no_special_modes("bubblewrap", User::Root);
}

#[test]
fn setuid_modes_are_refused_in_bubblewrap_as_nobody() {
    no_special_modes("bubblewrap", User::Nobody);
}

#[test]
fn setuid_modes_are_refused_in_container() {
    no_special_modes("docker", User::Root);
}

/// Script that opens sockets of many families by number: VSOCK, ALG, PACKET, Bluetooth, netlink protocols other than
/// routes, and the families that programs need.
const SOCKETS: &str = r#"
for each in vsock:40:1:0 alg:38:5:0 packet:17:3:0 bluetooth:31:3:1 generic:16:3:16 diag:16:3:4 \
    routes:16:3:0 tcp:2:1:0 tcp6:10:1:0 unix:1:1:0; do
  perl -e '($n, $f, $t, $p) = split /:/, shift; socket(my $s, $f, $t, $p) or ($why = $!); print "$n: ", $why || "made", "\n"' $each
done
"#;

fn sockets(sandbox: &serde_json::Value, user: User) {
    sockets_refused(sandbox, user, "Permission denied");
}

fn sockets_refused(sandbox: &serde_json::Value, user: User, answer: &str) {
    let mut scene = Scene::new(user, SOCKETS, &json!({ "sandbox": sandbox }));
    scene.start();
    let (job, said) = scene.run();
    assert_eq!(job["status"], "completed", "{job:#}\n{said}");
    for family in ["vsock", "alg", "packet", "bluetooth", "generic", "diag"] {
        assert!(said.contains(&format!("{family}: {answer}")), "{family}:\n{said}");
    }
    for family in ["routes", "tcp", "tcp6", "unix"] {
        assert!(said.contains(&format!("{family}: made")), "{family}:\n{said}");
    }
}

#[test]
fn bubblewrap_refuses_other_socket_families_as_root() {
    sockets(&json!("bubblewrap"), User::Root);
}

#[test]
fn bubblewrap_refuses_other_socket_families_as_nobody() {
    sockets(&json!("bubblewrap"), User::Nobody);
}

/// Podman's filter answers unknown calls with this error.
#[test]
fn container_refuses_other_socket_families() {
    sockets_refused(&json!("docker"), User::Root, "Function not implemented");
}

#[test]
fn bubblewrap_with_proxy_refuses_other_socket_families() {
    sockets(&json!({"kind": "bubblewrap", "network": {"hosts": ["example.com"]}}), User::Nobody);
}
