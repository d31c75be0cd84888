//! Disks for one test, in a mount namespace that ends with the test. This requires root.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};

/// Mount namespace, held by a process that dies with the test.
#[derive(Debug)]
pub struct Namespace {
    holder: Child,
}

impl Namespace {
    pub fn start() -> Self {
        let mut command = Command::new("setpriv");
        command.args(["--pdeathsig=KILL", "unshare", "--mount", "--propagation", "private"]);
        command.args(["sh", "-c", "echo; exec sleep infinity"]).stdout(Stdio::piped());
        let mut holder = command.spawn().unwrap();
        // The holder prints a line as soon as it runs inside the namespace.
        let mut line = [0];
        std::io::Read::read_exact(holder.stdout.as_mut().unwrap(), &mut line).expect("mounting needs root");
        Self { holder }
    }

    /// Returns a command that sees the disks of this namespace.
    pub fn command(&self, program: &str) -> Command {
        let mut command = Command::new("nsenter");
        command.args(["-m", "-t", &self.holder.id().to_string(), program]);
        command
    }

    /// Returns the path by which processes outside the namespace reach a path inside it.
    pub fn outside_path(&self, path: &Path) -> PathBuf {
        let root = Path::new("/proc").join(self.holder.id().to_string()).join("root");
        root.join(path.strip_prefix("/").unwrap())
    }

    pub fn run(&self, program: &str, arguments: &[&str]) {
        let output = self.command(program).args(arguments).output().unwrap();
        assert!(
            output.status.success(),
            "{program} {arguments:?}: {}",
            String::from_utf8_lossy(&output.stderr)
        );
    }
}

impl Drop for Namespace {
    fn drop(&mut self) {
        self.holder.kill().ok();
        self.holder.wait().ok();
    }
}

/// Ext4 disk in an image file. A test can make the disk read-only while processes have files open on it.
#[derive(Debug)]
pub struct Ext4 {
    image: PathBuf,
    mount_point: PathBuf,
}

impl Ext4 {
    /// Mounts a new disk. Its image is at `image`, outside of the disk.
    pub fn mount(namespace: &Namespace, image: PathBuf, mount_point: &Path) -> Self {
        fs::File::create(&image).unwrap().set_len(32 << 20).unwrap();
        namespace.run("mkfs.ext4", &["-q", "-O", "^has_journal", image.to_str().unwrap()]);
        let disk = Self { image, mount_point: mount_point.to_owned() };
        disk.mount_image(namespace);
        disk
    }

    fn mount_image(&self, namespace: &Namespace) {
        let (image, mount_point) = (self.image.to_str().unwrap(), self.mount_point.to_str().unwrap());
        namespace.run("mount", &["-o", "loop,errors=remount-ro", image, mount_point]);
    }

    /// Makes the disk read-only, as the kernel does when the disk fails.
    pub fn make_read_only(&self) {
        let output =
            Command::new("losetup").args(["-n", "-O", "NAME", "-j"]).arg(&self.image).output().unwrap();
        let device = String::from_utf8(output.stdout).unwrap();
        let name = device.trim().rsplit('/').next().unwrap();
        fs::write(Path::new("/sys/fs/ext4").join(name).join("trigger_fs_error"), "a test").unwrap();
    }

    /// Repairs the disk and mounts it again. No process may use it during the call.
    pub fn repair(&self, namespace: &Namespace) {
        namespace.run("umount", &[self.mount_point.to_str().unwrap()]);
        // The exit codes 1 and 2 mean that something was repaired.
        let repaired =
            namespace.command("e2fsck").args(["-fy", self.image.to_str().unwrap()]).output().unwrap();
        assert!(repaired.status.code().is_some_and(|code| code <= 2), "{repaired:?}");
        self.mount_image(namespace);
    }
}
