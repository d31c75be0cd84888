//! The dashboard in a real browser, with the real program. A script in `tests/node/browser` runs each story,
//! and reports where it fails.

#![expect(clippy::unwrap_used, reason = "a test that cannot go on fails")]

use std::fs;
use std::io::{BufRead, BufReader};
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};

use tempfile::TempDir;

const AGENT: &str = include_str!("agent.sh");
/// Claude Code of the agent `steered`.
const CLAUDE: &str = include_str!("claude.js");
const FLEET: &str = include_str!("cowhand.yaml");

/// Fleet with its dashboard, which ends with the test.
struct Scene {
    folder: TempDir,
    daemon: Child,
    url: String,
}

impl Scene {
    fn new() -> Self {
        Self::of(FLEET)
    }

    fn of(fleet: &str) -> Self {
        let folder = TempDir::new().unwrap();
        let place = |name: &str| folder.path().join(name);
        fs::write(place("cowhand.yaml"), fleet).unwrap();
        fs::write(place("agent.sh"), AGENT).unwrap();
        fs::create_dir(place("tasks")).unwrap();
        fs::write(place("tasks/login.md"), "---\ntitle: Repair the login\npriority: high\n---\nIt fails.\n")
            .unwrap();
        fs::create_dir(place("code")).unwrap();
        fs::write(place("code/README"), "first\n").unwrap();
        for given in [["init", "--quiet"].as_slice(), &["add", "-A"], &["commit", "--quiet", "-m", "first"]] {
            let mut git = Command::new("git");
            git.args(["-c", "user.name=t", "-c", "user.email=t@example.com"]).args(given);
            assert!(git.current_dir(place("code")).status().unwrap().success(), "git {given:?}");
        }
        fs::write(place("claude"), CLAUDE).unwrap();
        fs::set_permissions(place("claude"), fs::Permissions::from_mode(0o755)).unwrap();
        let path = format!("{}:{}", folder.path().display(), std::env::var("PATH").unwrap());
        let log = fs::File::create(place("log")).unwrap();
        let mut command = Command::new(env!("CARGO_BIN_EXE_cowhand"));
        command.arg("start").current_dir(folder.path()).env("PATH", path);
        let mut daemon = command.stdout(Stdio::piped()).stderr(log).spawn().unwrap();
        let mut line = String::new();
        BufReader::new(daemon.stdout.take().unwrap()).read_line(&mut line).unwrap();
        let Some(url) = line.trim().strip_prefix("ready ") else {
            panic!("{line:?} {}", fs::read_to_string(place("log")).unwrap())
        };
        Self { url: url.to_owned(), folder, daemon }
    }

    fn path(&self) -> &Path {
        self.folder.path()
    }

    /// Runs a story in the browser.
    fn story(&self, name: &str) {
        let scripts = PathBuf::from(concat!(env!("CARGO_MANIFEST_DIR"), "/../../tests/node/browser"));
        let script = scripts.join(format!("{name}.mjs"));
        let mut node = Command::new("node");
        node.arg(script).env("COWHAND", env!("CARGO_BIN_EXE_cowhand")).env("FLEET", self.path());
        let output = node.env("URL", &self.url).output().unwrap();
        let [out, said] = [&output.stdout, &output.stderr].map(|bytes| String::from_utf8_lossy(bytes));
        println!("{out}");
        assert!(output.status.success(), "{name}: {out}\n{said}\nthe daemon says:\n{}", self.log());
    }

    fn log(&self) -> String {
        fs::read_to_string(self.path().join("log")).unwrap()
    }
}

impl Drop for Scene {
    fn drop(&mut self) {
        // The agents end when they notice that the daemon has ended or that their folder is missing.
        self.daemon.kill().unwrap();
        self.daemon.wait().unwrap();
    }
}

#[test]
fn one_time_link_logs_in_browser() {
    let scene = Scene::new();
    scene.story("login");
    assert!(!scene.log().contains("/login/"), "no link in the log: {}", scene.log());
}

#[test]
fn overview_shows_three_running_agents() {
    Scene::new().story("fleet");
}

#[test]
fn output_appears_while_the_agent_runs() {
    Scene::new().story("live");
}

#[test]
fn jobs_are_cancelled_retried_and_forked() {
    Scene::new().story("steer");
}

#[test]
fn job_page_shows_workspace_changes_and_hooks() {
    Scene::new().story("workspace");
}

#[test]
fn partial_message_grows_until_complete() {
    Scene::new().story("partial");
}

#[test]
fn schedules_are_turned_off_and_on_and_fired() {
    Scene::new().story("schedule");
}

#[test]
fn jobs_are_filtered_searched_and_paged() {
    Scene::new().story("jobs");
}

#[test]
fn work_page_shows_waiting_claimed_and_done_items() {
    // No server answers at this address.
    let silent = "
  - name: waits-for-github
    runtime: command
    command: [cat]
    work_source: {type: github, repo: acme/api, api_url: 'http://127.0.0.1:9', auth: {token_env: HOME}}
";
    Scene::of(&format!("{FLEET}{silent}")).story("work");
}

#[test]
fn asks_are_shown_and_answered() {
    let asker = "
  - name: asker
    runtime: command
    command: [sh, -c, 'printf \"%s\\n%s\" \"$COWHAND_SOCKET\" \"$COWHAND_JOB_TOKEN\" > asker.new; mv asker.new asker.token; exec sh agent.sh asker']
    fleet_tools: true
";
    Scene::of(&format!("{FLEET}{asker}")).story("asks");
}

#[test]
fn webhook_delivery_appears_as_job() {
    Scene::new().story("webhook");
}

#[test]
fn dashboard_works_with_keyboard_only() {
    Scene::new().story("keyboard");
}

#[test]
fn dashboard_works_without_javascript() {
    Scene::new().story("noscript");
}

#[test]
fn hostile_text_is_escaped() {
    Scene::new().story("hostile");
}

#[test]
fn pages_are_accessible_in_both_schemes_and_widths() {
    Scene::new().story("pages");
}

#[test]
fn output_of_100000_lines_is_paged() {
    Scene::new().story("long");
}

#[test]
fn pages_show_correct_budgets_configs_asks_and_zones() {
    Scene::new().story("truth");
}

#[test]
fn page_is_dimmed_while_daemon_is_gone() {
    Scene::new().story("away");
}

#[test]
fn page_catches_up_after_daemon_restart() {
    Scene::new().story("life");
}

#[test]
fn person_talks_to_agent_in_chat() {
    Scene::new().story("chat");
}

#[test]
fn chat_works_on_a_phone_and_with_hostile_text() {
    Scene::new().story("chat-phone");
}

#[test]
fn unsent_message_is_kept_while_daemon_is_gone() {
    Scene::new().story("chat-away");
}

#[test]
fn running_answer_is_steered_and_interrupted() {
    let steered = "
  - {name: steered, runtime: claude}
";
    Scene::of(&format!("{FLEET}{steered}")).story("chat-steer");
}
