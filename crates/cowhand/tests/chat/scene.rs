//! A fleet whose agents talk on a fake Slack and a fake Discord.

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::PathBuf;
use std::process::{Command, Output};

use cowhand_testing::discord::{self, FakeDiscord};
use cowhand_testing::process::{has_ended, left_over};
use cowhand_testing::slack::{self, FakeSlack};
use cowhand_testing::wait_until;
use rustix::process::{Pid, Signal, kill_process};
use serde_json::Value;
use tempfile::TempDir;

/// Id of the channel on the fake Slack.
pub(crate) const SLACK_CHANNEL: &str = "C1";
/// A person on the fake Slack.
pub(crate) const ANN: &str = "UANN";

/// A fleet in its own folder, with one workspace on each platform. The remaining processes of the fleet are ended with
/// the test.
pub(crate) struct Scene {
    folder: TempDir,
    pub(crate) root: PathBuf,
    pub(crate) slack: FakeSlack,
    pub(crate) discord: FakeDiscord,
    /// Variables in the environment of each verb, in addition to the usual ones.
    variables: Vec<(&'static str, String)>,
}

/// Exit code and output of a verb.
pub(crate) struct RunResult {
    pub(crate) code: Option<i32>,
    pub(crate) stdout: String,
    pub(crate) stderr: String,
}

/// Settings of both platforms with which everybody may talk to the agent, in the channels of the fakes and directly.
pub(crate) fn everyone(slack_keys: &str, discord_keys: &str) -> String {
    format!(
        "{{slack: {{everyone: true, dm: {{everyone: true}}, channels: [{{id: {SLACK_CHANNEL}}}]{slack_keys}}}, \
         discord: {{bot_token_env: DISCORD_TOKEN, everyone: true, dm: {{everyone: true}}, \
         guilds: [{{id: '{}', channels: [{{id: '{}'}}]}}]{discord_keys}}}}}",
        discord::GUILD_ID,
        discord::CHANNEL_ID
    )
}

impl Scene {
    /// Creates the platforms and the config, without starting the fleet.
    pub(crate) async fn new(fleet: &str) -> Self {
        let folder = TempDir::new().unwrap();
        let root = folder.path().canonicalize().unwrap();
        let (slack, discord) = (FakeSlack::start().await, FakeDiscord::start().await);
        slack.add_channel(SLACK_CHANNEL, "general");
        slack.add_user(ANN, "Ann");
        let scene = Self { folder, root, slack, discord, variables: Vec::new() };
        scene.write("cowhand.yaml", &format!("server: {{enabled: false}}\n{fleet}"));
        scene
    }

    /// Starts the fleet, and waits until its bots are connected to both platforms.
    pub(crate) async fn started(fleet: &str) -> Self {
        let scene = Self::new(fleet).await;
        scene.start();
        scene.connected().await;
        scene
    }

    pub(crate) async fn connected(&self) {
        self.slack.wait_for_connections(1).await;
        self.discord.wait_for_connection().await;
    }

    pub(crate) fn start(&self) {
        let said = self.run(&["start", "-d", "--no-server"]);
        assert_eq!((said.code, said.stdout.as_str()), (Some(0), "ready\n"), "{}", said.stderr);
    }

    /// Starts the fleet with a daemon that is killed at a point of its code, and returns the daemon.
    pub(crate) fn start_with_fault(&self, point: &str) -> Pid {
        let said =
            self.command(&["start", "-d", "--no-server"]).env("COWHAND_FAULT", point).output().unwrap();
        assert!(said.status.success(), "{}", String::from_utf8_lossy(&said.stderr));
        self.daemon().unwrap()
    }

    /// Stops the fleet without a wait for its agents.
    pub(crate) fn stop(&self) {
        let said = self.run(&["stop", "--timeout", "0"]);
        assert_eq!(said.code, Some(0), "{}", said.stderr);
    }

    /// Sets a variable in the environment of each verb.
    pub(crate) fn set(&mut self, name: &'static str, value: impl Into<String>) {
        self.variables.push((name, value.into()));
    }

    pub(crate) fn write(&self, name: &str, text: &str) {
        fs::write(self.root.join(name), text).unwrap();
    }

    /// Writes a program below the root.
    pub(crate) fn write_program(&self, name: &str, text: &str) {
        self.write(name, text);
        fs::set_permissions(self.root.join(name), fs::Permissions::from_mode(0o755)).unwrap();
    }

    /// Creates a verb with the tokens of both platforms in its environment. Programs in the root come first in PATH.
    pub(crate) fn command(&self, arguments: &[&str]) -> Command {
        let mut command = Command::new(env!("CARGO_BIN_EXE_cowhand"));
        let path = format!("{}:{}", self.root.display(), std::env::var("PATH").unwrap());
        command
            .args(arguments)
            .current_dir(&self.root)
            .env_clear()
            .env("PATH", path)
            .env("TZ", "UTC")
            .env("XDG_RUNTIME_DIR", self.folder.path())
            .env("COWHAND_WAITS", "slack_pace")
            .env("SLACK_BOT_TOKEN", slack::BOT_TOKEN)
            .env("SLACK_APP_TOKEN", slack::APP_TOKEN)
            .env("COWHAND_SLACK_API", self.slack.url())
            .env("DISCORD_TOKEN", discord::BOT_TOKEN)
            .env("COWHAND_DISCORD_API", self.discord.url())
            .envs(self.variables.clone());
        command
    }

    pub(crate) fn run(&self, arguments: &[&str]) -> RunResult {
        let Output { status, stdout, stderr } = self.command(arguments).output().unwrap();
        let text = |bytes| String::from_utf8(bytes).unwrap();
        RunResult { code: status.code(), stdout: text(stdout), stderr: text(stderr) }
    }

    /// Runs a verb that has to succeed, and parses its JSON.
    pub(crate) fn json(&self, arguments: &[&str]) -> Value {
        let said = self.run(&[arguments, &["--json"]].concat());
        assert_eq!(said.code, Some(0), "{arguments:?}: {}{}", said.stdout, said.stderr);
        serde_json::from_str(&said.stdout).unwrap()
    }

    /// Returns all jobs, the oldest first.
    pub(crate) fn jobs(&self) -> Vec<Value> {
        let mut jobs = self.json(&["jobs", "--all"]).as_array().unwrap().clone();
        jobs.reverse();
        jobs
    }

    /// Waits until a verb returns JSON in which `look` finds a value.
    pub(crate) fn wait_for<T>(
        &self,
        what: &str,
        arguments: &[&str],
        look: impl Fn(&Value) -> Option<T>,
    ) -> T {
        wait_until(what, || look(&self.json(arguments)))
    }

    pub(crate) fn daemon(&self) -> Option<Pid> {
        let pid = self.json(&["status"])["daemon"]["pid"].as_i64()?;
        Pid::from_raw(pid.try_into().unwrap())
    }

    /// Kills the daemon, so that it cannot clean up.
    pub(crate) fn kill_daemon(&self) {
        let daemon = self.daemon().unwrap();
        kill_process(daemon, Signal::KILL).unwrap();
        wait_for_end(daemon);
    }

    /// Returns the log of the daemon.
    pub(crate) fn log(&self) -> String {
        fs::read_to_string(self.root.join(".cowhand/daemon.log")).unwrap()
    }
}

/// Waits until a daemon is gone.
pub(crate) fn wait_for_end(daemon: Pid) {
    wait_until("the daemon to be gone", || has_ended(daemon).then_some(()));
}

impl Drop for Scene {
    fn drop(&mut self) {
        let _ = self.run(&["stop", "--timeout", "0"]);
        for pid in left_over(self.folder.path()) {
            let _ = kill_process(pid, Signal::KILL);
        }
    }
}
