//! A container engine for one test: Podman, which has Docker's API, with its storage, settings and socket in
//! a folder that is removed with it. Its only image is made here.

use std::fs;
use std::os::unix::fs::{PermissionsExt, chown, symlink};
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};

use tempfile::TempDir;

use crate::wait_until;

pub const IMAGE: &str = "cowhand-test:1";

/// Programs in the image's `PATH`: one program with many names.
const PROGRAMS: [&str; 17] = [
    "sh", "cat", "ls", "echo", "sleep", "id", "head", "dd", "env", "touch", "mkdir", "rm", "seq", "grep",
    "yes", "mount", "nc",
];

/// Limits that every machine allows, and locks in files, because locks in shared memory are shared with other engines.
const SETTINGS: &str = "[containers]\ndefault_ulimits = [\"nofile=1024:1024\", \"nproc=1024:1024\"]\n\
    [engine]\nlock_type = \"file\"\nevents_logger = \"none\"\n";

#[derive(Debug)]
pub struct Podman {
    folder: TempDir,
    service: Option<Child>,
    /// Command that runs the service's command.
    wrapper_command: &'static [&'static str],
}

impl Podman {
    /// Starts an engine.
    pub fn start() -> Self {
        Self::with_wrapper(&[])
    }

    /// Starts an engine with a socket that belongs to this user, as for members of the group `docker`.
    pub fn of_user(user: u32) -> Self {
        let podman = Self::start();
        chown(podman.socket(), Some(user), Some(user)).unwrap();
        podman
    }

    /// Starts an engine in its own network, which has only its containers.
    pub fn apart() -> Self {
        Self::with_wrapper(&["unshare", "--net", "--"])
    }

    fn with_wrapper(wrapper_command: &'static [&'static str]) -> Self {
        let folder = TempDir::new_in("/tmp").unwrap();
        fs::set_permissions(folder.path(), fs::Permissions::from_mode(0o755)).unwrap();
        fs::write(folder.path().join("containers.conf"), SETTINGS).unwrap();
        let mut podman = Self { folder, service: None, wrapper_command };
        podman.import();
        podman.serve();
        podman
    }

    /// Makes an image with few files. If the machine's `/usr` is mounted into the container, the programs of the
    /// machine are available too.
    fn import(&self) {
        let root = self.folder.path().join("image");
        for folder in ["usr/bin", "usr/lib", "usr/lib64", "usr/sbin", "etc", "tmp"] {
            fs::create_dir_all(root.join(folder)).unwrap();
        }
        fs::set_permissions(root.join("tmp"), fs::Permissions::from_mode(0o1777)).unwrap();
        for link in ["bin", "lib", "lib64", "sbin"] {
            symlink(format!("usr/{link}"), root.join(link)).unwrap();
        }
        fs::copy("/bin/busybox", root.join("usr/bin/busybox")).expect("busybox-static is installed");
        for name in PROGRAMS {
            symlink("busybox", root.join("usr/bin").join(name)).unwrap();
        }
        fs::write(root.join("etc/made-for"), "a test\n").unwrap();
        self.import_as(IMAGE);
    }

    /// Makes another image, which contains this shell script as a program in addition.
    pub fn add_image(&self, image: &str, program: &str, script: &str) {
        let path = self.folder.path().join("image/usr/bin").join(program);
        fs::write(&path, script).unwrap();
        fs::set_permissions(&path, fs::Permissions::from_mode(0o755)).unwrap();
        self.import_as(image);
    }

    fn import_as(&self, image: &str) {
        let (root, archive) = (self.folder.path().join("image"), self.folder.path().join("image.tar"));
        let packed =
            Command::new("tar").arg("-C").arg(&root).arg("-cf").arg(&archive).arg(".").status().unwrap();
        assert!(packed.success());
        self.podman(&["import", "-q", archive.to_str().unwrap(), image]);
    }

    fn command(&self, wrapper_command: &[&str]) -> Command {
        let path = |name: &str| self.folder.path().join(name);
        let mut words = wrapper_command.iter().chain(&["podman"]);
        let mut command = Command::new(words.next().unwrap());
        command.args(words);
        // The helpers of Podman write files into the working directory.
        command.current_dir(self.folder.path());
        command.env("CONTAINERS_CONF", path("containers.conf")).env("TMPDIR", self.folder.path());
        for (option, name) in [
            ("--root", "root"),
            ("--runroot", "run"),
            ("--tmpdir", "tmp"),
            ("--network-config-dir", "networks"),
        ] {
            command.arg(option).arg(path(name));
        }
        command.args(["--runtime", "runc", "--storage-driver", "vfs", "--cgroup-manager", "cgroupfs"]);
        command
    }

    /// Runs a command, and returns its output.
    pub fn podman(&self, arguments: &[&str]) -> String {
        let done = self.command(&[]).args(arguments).output().expect("podman is installed");
        let (said, wrong) = (String::from_utf8_lossy(&done.stdout), String::from_utf8_lossy(&done.stderr));
        assert!(done.status.success(), "podman {arguments:?}: {said}{wrong}");
        said.trim().to_owned()
    }

    pub fn serve(&mut self) {
        let log = fs::File::create(self.folder.path().join("log")).unwrap();
        let mut command = self.command(self.wrapper_command);
        command.args(["system", "service", "--time", "0"]).arg(format!("unix://{}", self.socket().display()));
        self.service =
            Some(command.stdin(Stdio::null()).stdout(log.try_clone().unwrap()).stderr(log).spawn().unwrap());
        wait_until("the engine", || std::os::unix::net::UnixStream::connect(self.socket()).ok());
    }

    /// Kills only the service; containers continue.
    pub fn kill(&mut self) {
        if let Some(mut service) = self.service.take() {
            service.kill().unwrap();
            service.wait().unwrap();
        }
    }

    pub fn socket(&self) -> PathBuf {
        self.folder.path().join("sock")
    }

    /// Returns the names of all containers, including ended ones.
    pub fn containers(&self) -> Vec<String> {
        self.podman(&["ps", "--all", "--format", "{{.Names}}"]).lines().map(str::to_owned).collect()
    }
}

impl Drop for Podman {
    fn drop(&mut self) {
        // Remove the containers that a failed test left.
        self.command(self.wrapper_command).args(["rm", "--all", "--force", "--time", "0"]).output().ok();
        if let Some(mut service) = self.service.take() {
            service.kill().ok();
            service.wait().ok();
        }
    }
}
