//! The four real coding agents, two of them also by the Agent Client Protocol, run by the real program
//! against a model on loopback.
//!
//! Their versions are pinned in `tests/node/package.json`. A program that is not installed fails its tests.

#![expect(clippy::unwrap_used, clippy::expect_used, reason = "a test that cannot go on fails")]

mod asks;
mod asks_acp;
mod budgets;
mod canaries;
mod failures;
mod going_on;
mod limits;
mod models;
mod reserve;
mod sandboxed;
mod sessions;
mod steering;
mod strangers;
mod work;

use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};

use models::{CACHED, INPUT, Models, OUTPUT};
use rustix::process::{Signal, kill_process};
use serde_json::{Value, json};
use tempfile::TempDir;

/// Coding agent program.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Cli {
    Claude,
    Codex,
    Gemini,
    Opencode,
    /// `gemini --acp`.
    GeminiAcp,
    /// `opencode acp`.
    OpencodeAcp,
}

/// Declares each test once for each program.
macro_rules! for_each_cli {
    ($($story:ident),+ $(,)?) => {
        mod claude { $(#[test] fn $story() { super::$story(crate::Cli::Claude); })+ }
        mod codex { $(#[test] fn $story() { super::$story(crate::Cli::Codex); })+ }
        mod gemini { $(#[test] fn $story() { super::$story(crate::Cli::Gemini); })+ }
        mod opencode { $(#[test] fn $story() { super::$story(crate::Cli::Opencode); })+ }
        mod gemini_acp { $(#[test] fn $story() { super::$story(crate::Cli::GeminiAcp); })+ }
        mod opencode_acp { $(#[test] fn $story() { super::$story(crate::Cli::OpencodeAcp); })+ }
    };
}
use cowhand_testing::process::left_over;
use cowhand_testing::wait_until;
use for_each_cli;

impl Cli {
    /// Returns the name of the program.
    const fn name(self) -> &'static str {
        match self {
            Self::Claude => "claude",
            Self::Codex => "codex",
            Self::Gemini | Self::GeminiAcp => "gemini",
            Self::Opencode | Self::OpencodeAcp => "opencode",
        }
    }

    const fn is_acp(self) -> bool {
        matches!(self, Self::GeminiAcp | Self::OpencodeAcp)
    }

    /// Returns its folder below `node_modules`.
    const fn folder(self) -> &'static str {
        match self {
            Self::Claude => "@anthropic-ai/claude-code-linux-x64",
            Self::Codex | Self::Gemini | Self::GeminiAcp => ".bin",
            Self::Opencode | Self::OpencodeAcp => "opencode-linux-x64-baseline/bin",
        }
    }

    const fn model(self) -> &'static str {
        match self {
            Self::Claude => "claude-sonnet-5",
            Self::Codex => "fake-model",
            Self::Gemini | Self::GeminiAcp => "gemini-2.5-flash",
            Self::Opencode | Self::OpencodeAcp => "fake/m1",
        }
    }

    /// Returns its settings, which allow the use of its shell without asking.
    fn settings(self) -> Value {
        match self {
            Self::Claude => json!({"runtime": "claude", "allowed_tools": ["Bash"]}),
            Self::Codex => json!({"runtime": "codex", "permission_mode": "bypassPermissions"}),
            Self::Gemini => json!({"runtime": "gemini", "allowed_tools": ["run_shell_command"]}),
            Self::Opencode => json!({"runtime": "opencode", "allowed_tools": ["bash"]}),
            Self::GeminiAcp => json!({
                "runtime": "acp", "command": ["gemini", "--acp"], "allowed_tools": ["execute"],
            }),
            Self::OpencodeAcp => json!({
                "runtime": "acp", "command": ["opencode", "acp"], "allowed_tools": ["execute"],
            }),
        }
    }
}

/// Fleet of one agent in its own folder, with its own home and a fake model.
struct Scene {
    folder: TempDir,
    root: PathBuf,
    cli: Cli,
    models: Models,
    /// Key for the model.
    key: String,
}

impl Scene {
    fn new(cli: Cli) -> Self {
        Self::with(cli, &json!({}))
    }

    /// Starts a fleet with `settings` over the default ones.
    fn with(cli: Cli, settings: &Value) -> Self {
        let models = Models::start();
        let url = models.url();
        Self::at(cli, models, &url, settings)
    }

    /// Starts a fleet with secrets: one in the `.env` beside the config, and the key for the model.
    fn with_secrets(cli: Cli, settings: &Value, in_env_file: &str, key: &str) -> Self {
        let models = Models::start();
        let url = models.url();
        Self::build(cli, models, &url, settings, &format!("DOTENV_KEY={in_env_file}\n"), key)
    }

    /// Starts a fleet with a model address at which nothing listens.
    fn alone(cli: Cli, settings: &Value) -> Self {
        Self::at(cli, Models::start(), "http://127.0.0.1:9", settings)
    }

    fn at(cli: Cli, models: Models, url: &str, settings: &Value) -> Self {
        Self::build(cli, models, url, settings, "", "fake")
    }

    fn build(cli: Cli, models: Models, url: &str, settings: &Value, env_file: &str, key: &str) -> Self {
        let program = node_modules().join(cli.folder()).join(cli.name());
        assert!(program.exists(), "{} is not installed; scripts/test does that", program.display());
        let folder = TempDir::new().unwrap();
        let root = folder.path().canonicalize().unwrap();
        let scene = Self { folder, root, cli, models, key: key.to_owned() };
        scene.write(".env", env_file);
        scene.write("desk/.keep", "");
        scene.write("tmp/.keep", "");
        scene.write_configs(url);
        let mut agent = json!({
            "name": "coder", "model": cli.model(), "working_directory": "desk",
        });
        let layers = [cli.settings(), settings.clone()];
        for (key, value) in layers.iter().filter_map(Value::as_object).flatten() {
            agent[key] = value.clone();
        }
        let price = json!({"input": 1.0, "cached_input": 0.5, "output": 2.0});
        let fleet = json!({"agents": [agent], "prices": {cli.model(): price}, "server": {"enabled": false}});
        // JSON is valid YAML.
        scene.write("cowhand.yaml", &fleet.to_string());
        let said = scene.command(&["start", "-d", "--no-server"]).output().unwrap();
        assert!(said.status.success(), "{}", String::from_utf8_lossy(&said.stderr));
        scene
    }

    /// Changes the config of the running fleet.
    fn change(&self, change: impl FnOnce(&mut Value)) {
        let text = fs::read_to_string(self.root.join("cowhand.yaml")).unwrap();
        let mut fleet = serde_json::from_str(&text).unwrap();
        change(&mut fleet);
        self.write("cowhand.yaml", &fleet.to_string());
        let output = self.command(&["reload"]).output().unwrap();
        assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    }

    /// Writes the config files in the home of each program.
    fn write_configs(&self, url: &str) {
        let codex = format!(
            "model_provider = \"fake\"\ncheck_for_update_on_startup = false\n[analytics]\nenabled = false\n\
             [features]\nplugins = false\napps = false\nremote_plugin = false\n\
             [model_providers.fake]\nname = \"fake\"\nbase_url = \"{url}/v1\"\nenv_key = \"OPENAI_API_KEY\"\n\
             wire_api = \"responses\"\nrequest_max_retries = 1\nstream_max_retries = 1\n"
        );
        self.write("home/.codex/config.toml", &codex);
        let gemini = json!({
            "security": {"auth": {"selectedType": "gemini-api-key"}},
            "general": {"maxAttempts": 1, "enableAutoUpdate": false},
            "privacy": {"usageStatisticsEnabled": false},
        });
        self.write("home/.gemini/settings.json", &gemini.to_string());
        let model = json!({
            "name": "m1", "cost": {"input": 1, "output": 2, "cache_read": 0.5},
            "limit": {"context": 100_000, "output": 4000},
        });
        let provider = json!({
            "npm": "@ai-sdk/openai-compatible", "name": "fake", "models": {"m1": model},
            "options": {"baseURL": format!("{url}/v1"), "apiKey": self.key},
        });
        let opencode = json!({"provider": {"fake": provider}, "small_model": "fake/m1", "share": "disabled"});
        self.write("home/opencode.json", &opencode.to_string());
        // Without its own list of all models, OpenCode starts in about 60 % of the time.
        self.write("home/models.json", "{}");
        self.write("home/url", url);
    }

    fn write(&self, name: &str, text: &str) {
        let path = self.root.join(name);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(path, text).unwrap();
    }

    fn command(&self, arguments: &[&str]) -> Command {
        let url = fs::read_to_string(self.root.join("home/url")).unwrap();
        let path = format!(
            "{}:{}",
            node_modules().join(self.cli.folder()).display(),
            std::env::var("PATH").unwrap()
        );
        let mut command = Command::new(env!("CARGO_BIN_EXE_cowhand"));
        command.args(arguments).current_dir(&self.root).env_clear().envs([
            ("PATH", path.as_str()),
            ("HOME", self.root.join("home").to_str().unwrap()),
            ("XDG_RUNTIME_DIR", self.root.to_str().unwrap()),
            ("TMPDIR", self.root.join("tmp").to_str().unwrap()),
            ("TZ", "UTC"),
            ("ANTHROPIC_BASE_URL", &url),
            ("ANTHROPIC_API_KEY", &self.key),
            ("CLAUDE_CODE_DISABLE_NONESSENTIAL_TRAFFIC", "1"),
            ("CLAUDE_CODE_MAX_RETRIES", "1"),
            ("OPENAI_API_KEY", &self.key),
            ("GEMINI_API_KEY", &self.key),
            ("GOOGLE_GEMINI_BASE_URL", &url),
            ("OPENCODE_CONFIG", self.root.join("home/opencode.json").to_str().unwrap()),
            ("OPENCODE_MODELS_PATH", self.root.join("home/models.json").to_str().unwrap()),
            ("OPENCODE_DISABLE_MODELS_FETCH", "1"),
            ("OPENCODE_DISABLE_DEFAULT_PLUGINS", "1"),
            ("OPENCODE_DISABLE_LSP_DOWNLOAD", "1"),
        ]);
        if self.cli.is_acp() {
            // The runtimes of these programs set these variables; `runtime: acp` does not know the program.
            let given =
                ["GEMINI_CLI_TRUST_WORKSPACE", "GEMINI_CLI_NO_RELAUNCH", "OPENCODE_DISABLE_AUTOUPDATE"];
            command.envs(given.map(|name| (name, "true")));
        }
        command
    }

    fn json(&self, arguments: &[&str]) -> Value {
        let Output { stdout, stderr, .. } =
            self.command(&[arguments, &["--json"]].concat()).output().unwrap();
        serde_json::from_slice(&stdout).unwrap_or_else(|error| {
            panic!(
                "{arguments:?}: {error}: {}{}",
                String::from_utf8_lossy(&stdout),
                String::from_utf8_lossy(&stderr)
            )
        })
    }

    fn trigger(&self, prompt: &str) -> String {
        self.json(&["trigger", "coder", "-p", prompt])["id"].as_str().unwrap().to_owned()
    }

    /// Runs a prompt, and returns the finished job. Checks that no process of it is left.
    fn run(&self, prompt: &str) -> Value {
        let job = self.json(&["trigger", "coder", "-p", prompt, "--wait"]);
        self.assert_alone();
        job
    }

    fn finished(&self, id: &str) -> Value {
        let job = wait_until("the job to end", || {
            Some(self.json(&["job", id])).filter(|job| job["finished_at"].is_string())
        });
        self.assert_alone();
        job
    }

    /// Renames the record of a session to an earlier minute. Within the minute in which a session began,
    /// `gemini --acp` empties the session when it loads it, because its record is named after the minute.
    fn let_a_minute_pass(&self) {
        if self.cli != Cli::GeminiAcp {
            return;
        }
        let chats = self.root.join("home/.gemini/tmp/desk/chats");
        for entry in fs::read_dir(&chats).unwrap().flatten() {
            let name = entry.file_name().into_string().unwrap();
            let session = name.rsplit('-').next().unwrap();
            fs::rename(entry.path(), chats.join(format!("session-2026-01-01T00-00-{session}"))).unwrap();
        }
    }

    /// Returns the job's output, line by line.
    fn output(&self, job: &Value) -> Vec<Value> {
        let file = self.root.join(format!(".cowhand/jobs/{}.jsonl", job["id"].as_str().unwrap()));
        let text = fs::read_to_string(file).unwrap();
        text.lines().map(|line| serde_json::from_str(line).unwrap()).collect()
    }

    /// Waits until only the daemon is left of all processes that work in the folder or name it.
    fn assert_alone(&self) {
        let daemon = self.json(&["status"])["daemon"]["pid"].as_i64().unwrap();
        wait_until("the agent's processes to be gone", || {
            let left = left_over(self.folder.path());
            left.iter().all(|pid| i64::from(pid.as_raw_nonzero().get()) == daemon).then_some(())
        });
    }
}

impl Drop for Scene {
    fn drop(&mut self) {
        if std::thread::panicking() {
            eprintln!("{}", fs::read_to_string(self.root.join(".cowhand/daemon.log")).unwrap_or_default());
            for served in self.models.served() {
                eprintln!("served {} {:?}", served.path, served.scenario);
            }
        }
        let _ = self.command(&["stop", "--timeout", "0"]).output();
        for pid in left_over(self.folder.path()) {
            let _ = kill_process(pid, Signal::KILL);
        }
    }
}

fn node_modules() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR"))
        .join("../../tests/node/node_modules")
        .canonicalize()
        .expect("tests/node/node_modules is missing; scripts/test installs it")
}

/// Tokens of one answer of the model: fresh input, cached input, output.
const USED: [u64; 3] = [INPUT, CACHED, OUTPUT];

/// Returns the tokens of a job, over all models: fresh input, cached input, output.
fn tokens(job: &Value) -> [u64; 3] {
    let models = job["usage"]["per_model"].as_object().expect("the job has usage");
    let sum = |key: &str| models.values().map(|used| used[key].as_u64().unwrap()).sum();
    [sum("input_tokens"), sum("cache_read_input_tokens"), sum("output_tokens")]
}

/// Returns status, exit reason and error kind.
fn status_and_error(job: &Value) -> [&str; 3] {
    [
        job["status"].as_str().unwrap_or_default(),
        job["exit_reason"].as_str().unwrap_or_default(),
        job["error"]["kind"].as_str().unwrap_or_default(),
    ]
}
