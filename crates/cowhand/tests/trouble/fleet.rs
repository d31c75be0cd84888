//! A fleet that takes deliveries, for tests that remove something it needs.

use std::io::{BufRead, BufReader, Write};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Output, Stdio};

use tempfile::TempDir;

use super::COWHAND;
use super::disk::Namespace;

/// Fleet with its server, in its own folder, which ends with the test. `a` takes deliveries; `waiter` works
/// until there is a file `go`.
pub(crate) struct Fleet {
    folder: TempDir,
    /// Mount namespace, if the fleet is on its own disks.
    namespace: Option<Namespace>,
    daemon: Option<Child>,
    place: String,
}

impl Fleet {
    /// Creates a fleet without starting it.
    pub(crate) fn prepared() -> Self {
        Self::of("")
    }

    /// Creates a fleet with further config, without starting it.
    pub(crate) fn of(config: &str) -> Self {
        let folder = tempfile::tempdir().unwrap();
        std::fs::create_dir(folder.path().join("fleet")).unwrap();
        let fleet = Self { folder, namespace: None, daemon: None, place: String::new() };
        fleet.write_config(config);
        fleet
    }

    pub(crate) fn started() -> Self {
        let mut fleet = Self::prepared();
        fleet.start();
        fleet
    }

    /// Creates a fleet with its folder on its own disk.
    pub(crate) fn on_disk(mount: impl FnOnce(&Namespace, &Path)) -> Self {
        let mut fleet = Self::prepared();
        let namespace = Namespace::start();
        mount(&namespace, &fleet.path());
        fleet.namespace = Some(namespace);
        fleet.write_config("");
        fleet
    }

    pub(crate) fn namespace(&self) -> &Namespace {
        self.namespace.as_ref().unwrap()
    }

    pub(crate) fn path(&self) -> PathBuf {
        self.folder.path().join("fleet")
    }

    /// Returns the folder in which the agents write, which is not on the fleet's own disk.
    pub(crate) fn outside(&self) -> &Path {
        self.folder.path()
    }

    fn write_config(&self, more: &str) {
        let config = format!(
            "{more}server: {{listen: \"127.0.0.1:0\"}}\nagents:\n\
             - name: a\n  runtime: command\n  command: [sh, -c, 'echo ran; cat']\n  instances: {{max_concurrent: 4}}\n  \
             schedules: {{hook: {{type: webhook, allow_unsigned: true, prompt: '{{{{payload.id}}}}'}}}}\n\
             - name: waiter\n  runtime: command\n  command: [sh, -c, 'while ! [ -e {0}/go ]; do echo .; sleep 0.1; done']\n  \
             schedules: {{hook: {{type: webhook, allow_unsigned: true, prompt: x}}}}\n",
            self.outside().display()
        );
        let file = self.path().join("cowhand.yaml");
        let file = self.namespace.as_ref().map_or(file.clone(), |namespace| namespace.outside_path(&file));
        // A failing disk keeps only synced data.
        let mut file = std::fs::File::create(file).unwrap();
        file.write_all(config.as_bytes()).unwrap();
        file.sync_all().unwrap();
    }

    pub(crate) fn command(&self, arguments: &[&str]) -> Command {
        let mut command = self
            .namespace
            .as_ref()
            .map_or_else(|| Command::new(COWHAND), |namespace| namespace.command(COWHAND));
        command.args(arguments).arg("-c").arg(self.path());
        command
    }

    pub(crate) fn run(&self, arguments: &[&str]) -> Output {
        self.command(arguments).output().unwrap()
    }

    pub(crate) fn start(&mut self) {
        let log =
            std::fs::OpenOptions::new().create(true).append(true).open(self.outside().join("log")).unwrap();
        let mut daemon = self.command(&["start"]).stdout(Stdio::piped()).stderr(log).spawn().unwrap();
        let mut line = String::new();
        BufReader::new(daemon.stdout.take().unwrap()).read_line(&mut line).unwrap();
        self.daemon = Some(daemon);
        let place = line.trim().strip_prefix("ready http://");
        self.place = place.unwrap_or_else(|| panic!("{line:?} {}", self.log())).to_owned();
    }

    /// Returns `127.0.0.1:PORT`.
    pub(crate) fn place(&self) -> &str {
        &self.place
    }

    pub(crate) fn log(&self) -> String {
        std::fs::read_to_string(self.outside().join("log")).unwrap()
    }

    /// Waits for a daemon that was asked to stop.
    pub(crate) fn ended(&mut self) {
        let status = self.daemon.take().unwrap().wait().unwrap();
        assert!(status.success(), "{status} {}", self.log());
    }

    pub(crate) fn kill(&mut self) {
        let mut daemon = self.daemon.take().unwrap();
        daemon.kill().unwrap();
        daemon.wait().unwrap();
    }

    /// Lets `waiter` end.
    pub(crate) fn let_go(&self) {
        std::fs::write(self.outside().join("go"), "").unwrap();
    }
}

impl Drop for Fleet {
    fn drop(&mut self) {
        self.let_go();
        if self.daemon.is_some() {
            self.kill();
        }
    }
}
