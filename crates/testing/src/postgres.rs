//! A real PostgreSQL server for one test.

use std::fs;
use std::io::Read;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use rustix::process::{Pid, Signal, kill_process};
use tempfile::TempDir;

/// Server that is stopped and removed when dropped.
#[derive(Debug)]
pub struct Postgres {
    server: Option<Child>,
    data: TempDir,
    /// Whether commits are synced to the disk. Tests do not need this, and it takes most of their time.
    is_durable: bool,
}

impl Postgres {
    pub fn start() -> Self {
        Self::start_with(false)
    }

    /// Starts a server that syncs its commits, as a real one does. For measurements.
    pub fn start_durable() -> Self {
        Self::start_with(true)
    }

    /// Returns whether the programs of PostgreSQL are on this machine.
    pub fn is_installed() -> bool {
        ["initdb", "postgres", "pg_isready", "psql"].iter().all(|name| find(name).is_some())
    }

    fn start_with(is_durable: bool) -> Self {
        let data = tempfile::Builder::new().prefix("cowhand-pg-").tempdir().expect("a folder for the server");
        copy_template(data.path());
        let mut postgres = Self { server: None, data, is_durable };
        postgres.start_again();
        postgres
    }

    pub fn url(&self) -> String {
        format!("postgres:///postgres?host={}&user=postgres", self.data.path().display())
    }

    /// Runs a query, and returns its result as text without headings.
    pub fn ask(&self, query: &str) -> String {
        let mut psql = Command::new(tool("psql"));
        psql.args(["-X", "-A", "-t", "-d", &self.url(), "-c", query]);
        let output = psql.output().expect("psql starts");
        assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
        String::from_utf8_lossy(&output.stdout).trim().to_owned()
    }

    /// Stops the server until it is started again. Its data is kept.
    pub fn stop(&mut self) {
        // SIGQUIT stops the server immediately, and a clean stop is not needed. SIGKILL would leave a segment of shared
        // memory, and after some thousands of these no other server starts on this machine.
        self.thaw();
        let Some(mut server) = self.server.take() else { return };
        kill_process(Pid::from_child(&server), Signal::QUIT).ok();
        server.wait().ok();
    }

    /// Suspends all processes of the server, so that it accepts connections but does not answer, until [`Self::thaw`].
    pub fn freeze(&self) {
        self.signal_all(Signal::STOP);
    }

    pub fn thaw(&self) {
        self.signal_all(Signal::CONT);
    }

    fn signal_all(&self, signal: Signal) {
        let Some(server) = &self.server else { return };
        let server = Pid::from_child(server);
        // The main process is first, because it starts the other processes.
        kill_process(server, signal).ok();
        let pid = server.as_raw_nonzero();
        let children = fs::read_to_string(format!("/proc/{pid}/task/{pid}/children")).unwrap_or_default();
        for child in children.split_whitespace() {
            if let Some(child) = child.parse().ok().and_then(Pid::from_raw) {
                kill_process(child, signal).ok();
            }
        }
    }

    pub fn start_again(&mut self) {
        self.server = Some(serve(self.data.path(), self.is_durable));
        self.wait_until_ready();
    }

    fn wait_until_ready(&self) {
        let deadline = Instant::now() + Duration::from_mins(1);
        let is_ready = || {
            let mut probe = Command::new(tool("pg_isready"));
            probe.arg("-q").arg("-h").arg(self.data.path()).status().is_ok_and(|status| status.success())
        };
        while !is_ready() {
            assert!(Instant::now() < deadline, "PostgreSQL did not start:\n{}", self.log());
            std::thread::sleep(Duration::from_millis(20));
        }
    }

    fn log(&self) -> String {
        let mut text = String::new();
        fs::File::open(self.data.path().join("log")).unwrap().read_to_string(&mut text).unwrap();
        text
    }
}

fn serve(data: &Path, is_durable: bool) -> Child {
    let log = fs::File::create(data.join("log")).unwrap();
    as_server_user(&tool("postgres"))
        .arg("-D")
        .arg(data.join("db"))
        // No TCP is used, because a socket in a separate folder cannot collide with another server.
        .args(["-c", "listen_addresses="])
        .arg("-c")
        .arg(format!("unix_socket_directories={}", data.display()))
        .args(["-c", if is_durable { "fsync=on" } else { "fsync=off" }, "-c", "max_connections=50"])
        .stdout(Stdio::null())
        .stderr(log)
        .spawn()
        .expect("postgres starts")
}

impl Drop for Postgres {
    fn drop(&mut self) {
        self.stop();
    }
}

/// Copies a prepared data folder. `initdb` takes seconds and a copy takes a moment, so the first test runs `initdb` and
/// the others wait for it.
fn copy_template(to: &Path) {
    let cache = target_folder().join("tmp");
    fs::create_dir_all(&cache).unwrap();
    let template = cache.join("postgres-template");
    let lock = fs::File::create(cache.join("postgres-template.lock")).unwrap();
    lock.lock().unwrap();
    if !template.join("complete").exists() {
        fs::remove_dir_all(&template).ok();
        make_template(&template);
        fs::write(template.join("complete"), "").unwrap();
    }
    drop(lock);
    run(Command::new("cp").arg("-a").arg(template.join("db")).arg(to));
    give_to_server_user(to);
}

/// Returns the target folder. The program of a test is at `target/PROFILE/deps/NAME`.
fn target_folder() -> PathBuf {
    let program = std::env::current_exe().unwrap();
    program.ancestors().nth(3).expect("a program of cargo's").to_owned()
}

fn make_template(template: &Path) {
    let scratch = tempfile::Builder::new().prefix("cowhand-initdb-").tempdir().unwrap();
    give_to_server_user(scratch.path());
    let mut initdb = as_server_user(&tool("initdb"));
    initdb.args(["--no-sync", "--auth=trust", "--username=postgres", "--encoding=UTF8", "--locale=C", "-D"]);
    run(initdb.arg(scratch.path().join("db")).stdout(Stdio::null()));
    fs::create_dir_all(template).unwrap();
    run(Command::new("cp").arg("-a").arg(scratch.path().join("db")).arg(template));
}

fn run(command: &mut Command) {
    let status = command.status().unwrap_or_else(|error| panic!("{command:?}: {error}"));
    assert!(status.success(), "{command:?}: {status}");
}

/// Returns a command that runs as the server's user and dies with the test. If the test runs as root, the server's user
/// is 65534 (`nobody`), because PostgreSQL refuses to run as root. Otherwise the server runs as the user of the test.
fn as_server_user(program: &Path) -> Command {
    let mut command = Command::new("setpriv");
    command.arg("--pdeathsig=QUIT");
    if is_root() {
        command.args(["--reuid=65534", "--regid=65534", "--clear-groups"]);
    }
    command.arg(program);
    command
}

fn give_to_server_user(folder: &Path) {
    if is_root() {
        run(Command::new("chown").arg("65534:65534").arg(folder));
    }
}

fn is_root() -> bool {
    use std::os::unix::fs::MetadataExt;
    fs::metadata("/proc/self").is_ok_and(|metadata| metadata.uid() == 0)
}

fn tool(name: &str) -> PathBuf {
    find(name).unwrap_or_else(|| panic!("{name} is not installed; scripts/test installs PostgreSQL"))
}

/// Finds a program of the server. These programs are rarely on the PATH. Debian has a folder for each version.
fn find(name: &str) -> Option<PathBuf> {
    let by_version = fs::read_dir("/usr/lib/postgresql").into_iter().flatten().flatten();
    let on_path = std::env::var_os("PATH").map(|path| std::env::split_paths(&path).collect::<Vec<_>>());
    let folders =
        on_path.unwrap_or_default().into_iter().chain(by_version.map(|version| version.path().join("bin")));
    folders.map(|folder| folder.join(name)).find(|file| file.is_file())
}
