//! Secrets of every kind are planted, and searched in the arguments of all processes while an agent runs, and
//! in all output and stored data afterwards.

use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::JoinHandle;

use serde_json::json;

use super::{Cli, Scene, for_each_cli, status_and_error, wait_until};

for_each_cli!(no_secret_is_ever_an_argument);

/// Command of the hook that runs until the watcher has seen it.
const HOOK: &str = "sleep 0.3";
/// Number of looks that are needed for a conclusion.
const ENOUGH: usize = 50;

fn no_secret_is_ever_an_argument(cli: Cli) {
    let canary = |place: &str| format!("canary-{}-in-{place}", std::process::id());
    let script = "printf %s \"$TOKEN\" > mcp-token; exit 3";
    let mut settings = json!({
        "env": {"AGENT_TOKEN": canary("agent-env")},
        "hooks": {"after_run": [
            {"type": "shell", "command": "test -n ${DOTENV_KEY} && until [ -e seen ]; do sleep 0.3; done"},
            {
                "type": "webhook", "url": "http://127.0.0.1:9/", "allow_private": true, "retries": 0,
                "headers": {"Authorization": canary("hook-header")}, "secret": canary("hook-secret"),
            },
        ]},
    });
    if takes_a_prompt(cli) {
        settings["system_prompt"] = json!("You keep this to yourself: ${DOTENV_KEY}");
    }
    if cli != Cli::Gemini {
        settings["mcp_servers"] = json!({
            "broken": {"command": "sh", "args": ["-c", script], "env": {"TOKEN": canary("mcp-env")}},
            "away": {"url": "http://127.0.0.1:9/mcp", "headers": {"Authorization": canary("mcp-header")}},
        });
    }
    let scene = Scene::with_secrets(cli, &settings, &canary("env-file"), &canary("provider-key"));
    let watch = Watch::over(&scene.root);
    let job = scene.run("SCENARIO:tool");
    assert_eq!(status_and_error(&job), ["completed", "success", ""], "{job:#}");
    // Run the agent once more with a slow answer, so that the servers are started meanwhile.
    let id = scene.trigger("SCENARIO:slow");
    wait_until("the servers to be started", || {
        let token = fs::read_to_string(scene.root.join("desk/mcp-token")).unwrap_or_default();
        let served =
            scene.models.served().iter().any(|served| served.body.to_string().contains("SCENARIO:slow"));
        (served && (cli == Cli::Gemini || token == canary("mcp-env"))).then_some(())
    });
    if takes_a_prompt(cli) {
        let asked =
            scene.models.served().iter().any(|served| served.body.to_string().contains(&canary("env-file")));
        assert!(asked, "the system prompt never reached the model");
    }
    scene.json(&["cancel", &id]);
    scene.finished(&id);
    wait_until("the hooks to end", || {
        let hooks = scene.json(&["job", &id])["hooks"].as_array()?.clone();
        hooks.iter().all(|hook| hook["ended_at"].is_string()).then_some(())
    });
    let seen = watch.over_now();
    assert!(seen.looks > ENOUGH, "{} looks are not enough to say anything", seen.looks);
    assert!(seen.has_seen(cli.name()), "{:#?}", seen.programs);
    assert!(seen.has_seen(HOOK), "{:#?}", seen.programs);
    assert_eq!(seen.leaks, BTreeSet::new());
    nothing_tells(&scene, &id);
}

/// Checks whether the program takes a system prompt with a secret. ACP has no field for a system prompt, and Codex
/// takes it only as an argument.
fn takes_a_prompt(cli: Cli) -> bool {
    !cli.is_acp() && cli != Cli::Codex
}

/// The prompt would have to be an argument, so the job fails.
#[test]
fn codex_is_not_started_with_a_secret_in_its_prompt() {
    let canary = format!("canary-{}-in-a-prompt", std::process::id());
    let settings = json!({"system_prompt": "You keep this to yourself: ${DOTENV_KEY}"});
    let scene = Scene::with_secrets(Cli::Codex, &settings, &canary, "some-provider-key");
    let watch = Watch::over(&scene.root);
    let job = scene.run("SCENARIO:tool");
    assert_eq!(status_and_error(&job), ["failed", "error", "start_failed"], "{job:#}");
    let message = job["error"]["message"].as_str().unwrap();
    assert!(
        message.contains(
            "`system_prompt` contains a secret, and Codex accepts a system prompt only as an argument"
        ),
        "{message}"
    );
    assert_eq!(watch.over_now().leaks, BTreeSet::new());
    assert!(scene.models.served().is_empty());
    nothing_tells(&scene, job["id"].as_str().unwrap());
    // A prompt without a secret may be an argument.
    scene.change(|fleet| fleet["agents"][0]["system_prompt"] = json!("You are patient."));
    assert_eq!(scene.run("SCENARIO:tool")["status"], "completed");
}

/// Checks that no secret is in the output of verbs, or in a stored file.
fn nothing_tells(scene: &Scene, job: &str) {
    let mark = format!("canary-{}", std::process::id());
    for verb in [
        ["job", job, "--json"].as_slice(),
        &["job", job],
        &["logs", job],
        &["events", "--json", "--limit", "1000"],
        &["config", "show"],
        &["doctor"],
    ] {
        let said = scene.command(verb).output().unwrap();
        let said = [said.stdout, said.stderr].concat();
        assert!(!String::from_utf8_lossy(&said).contains(&mark), "{verb:?}");
    }
    let files = files(&scene.root.join(".cowhand"));
    let of_job = format!("jobs/{job}.");
    assert!(files.iter().any(|file| file.to_string_lossy().contains(&of_job)), "{files:?}");
    for file in files {
        let holds = memchr::memmem::find(&fs::read(&file).unwrap(), mark.as_bytes()).is_some();
        assert!(!holds, "a secret is in {}", file.display());
    }
}

pub(super) fn files(folder: &Path) -> Vec<PathBuf> {
    let entries = fs::read_dir(folder).unwrap().map(|entry| entry.unwrap());
    let found = entries.map(|entry| match entry.file_type().unwrap() {
        kind if kind.is_dir() => files(&entry.path()),
        kind if kind.is_file() => vec![entry.path()],
        _ => Vec::new(),
    });
    found.flatten().collect()
}

/// Watcher that reads all processes continuously, on its own thread.
struct Watch {
    over: Arc<AtomicBool>,
    watcher: JoinHandle<Seen>,
}

#[derive(Default)]
struct Seen {
    /// Number of looks that found a process of an attempt.
    looks: usize,
    /// Arguments of every process of an attempt.
    programs: BTreeSet<String>,
    /// Arguments with a secret, of any process.
    leaks: BTreeSet<String>,
}

impl Watch {
    fn over(root: &Path) -> Self {
        let over = Arc::new(AtomicBool::new(false));
        let (ended, root) = (Arc::clone(&over), root.to_owned());
        let watcher = std::thread::spawn(move || {
            let mut seen = Seen::default();
            while !ended.load(Ordering::Relaxed) {
                seen.look(&root);
                // The hook waits for this file.
                if seen.looks > ENOUGH && seen.has_seen(HOOK) && !root.join("desk/seen").exists() {
                    fs::write(root.join("desk/seen"), "").unwrap();
                }
            }
            seen
        });
        Self { over, watcher }
    }

    fn over_now(self) -> Seen {
        self.over.store(true, Ordering::Relaxed);
        self.watcher.join().unwrap()
    }
}

impl Seen {
    fn has_seen(&self, program: &str) -> bool {
        self.programs.iter().any(|words| words.contains(program))
    }

    fn look(&mut self, root: &Path) {
        let mark = format!("canary-{}", std::process::id());
        let mut found = false;
        for process in fs::read_dir("/proc").unwrap().flatten() {
            let Ok(words) = fs::read(process.path().join("cmdline")) else { continue };
            let words = String::from_utf8_lossy(&words).replace('\0', " ");
            if words.contains(&mark) {
                self.leaks.insert(words.clone());
            }
            let inside = fs::read_link(process.path().join("cwd")).is_ok_and(|cwd| cwd.starts_with(root));
            if inside && !words.contains("cowhand start") {
                found = true;
                self.programs.insert(words);
            }
        }
        self.looks += usize::from(found);
    }
}
