//! The secrets of hooks appear only where they are needed.

use std::fs;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use crate::server::Server;
use crate::{Scene, states, text};

const CANARIES: [&str; 4] =
    ["canary-in-command", "canary-in-env-file", "canary-in-header", "canary-that-signs"];

#[test]
fn secrets_of_hooks_do_not_leak() {
    let server = Server::start();
    let mut scene = Scene::new(&format!(
        r#"
agents:
  - name: worker
    runtime: command
    command: [echo, done]
    hooks:
      after_run:
        - {{type: shell, command: "echo ${{COMMAND_TOKEN}}; echo $ENV_FILE_KEY >&2; sleep 0.5; env"}}
        - {{type: webhook, url: "{url}/echo", allow_private: true, secret: canary-that-signs, headers: {{Authorization: Bearer canary-in-header}}}}
        - {{type: webhook, url: "http://user:${{ENV_FILE_KEY}}@127.0.0.1:9/?key=${{ENV_FILE_KEY}}", allow_private: true, retries: 0}}
"#,
        url = server.url
    ));
    fs::write(scene.path(".env"), "COMMAND_TOKEN=canary-in-command\nENV_FILE_KEY=canary-in-env-file\n")
        .unwrap();
    // Watch the arguments of all processes while the hooks run.
    let (over, folder) = (Arc::new(AtomicBool::new(false)), scene.folder.path().to_owned());
    let (watching, seen_over) = (Arc::clone(&over), folder.clone());
    let watcher = std::thread::spawn(move || {
        let mut looked = 0;
        while !watching.load(Ordering::Relaxed) {
            looked += 1;
            if let Some(found) = in_arguments(&seen_over) {
                return Err(found);
            }
        }
        Ok(looked)
    });
    scene.start();
    let job = scene.trigger("worker");
    let hooks = scene.hooks(&job);
    over.store(true, Ordering::Relaxed);
    let looked = watcher.join().unwrap().unwrap();
    assert!(looked > 10, "{looked} looks are not enough to say anything");
    assert_eq!(states(&hooks), ["completed", "completed", "failed"], "{hooks:?}");
    assert!(text(&hooks[0], "said").starts_with("***\n"), "{hooks:?}");
    let asked = server.asked("/echo");
    assert_eq!(
        asked[0].header("authorization"),
        "Bearer canary-in-header",
        "it is there where it is meant to be"
    );
    assert!(text(&hooks[1], "said").contains("***"), "{hooks:?}");
    let mut seen = [scene.run(&["job", &job, "--json"]), scene.run(&["job", &job])].concat();
    seen += &scene.run(&["events", "--json", "--limit", "1000"]);
    seen += &scene.run(&["config", "show"]);
    scene.run(&["stop", "--timeout", "0"]);
    scene.ended();
    for canary in CANARIES {
        assert!(!seen.contains(canary), "{canary}: {seen}");
        for file in files(&folder) {
            let given = ["cowhand.yaml", ".env"].iter().any(|name| file.ends_with(name));
            let holds = memchr::memmem::find(&fs::read(&file).unwrap(), canary.as_bytes()).is_some();
            assert!(given || !holds, "{canary} is in {}", file.display());
        }
    }
}

fn in_arguments(folder: &Path) -> Option<String> {
    for process in fs::read_dir("/proc").unwrap().flatten() {
        let line = fs::read(process.path().join("cmdline")).unwrap_or_default();
        let ours = fs::read_link(process.path().join("cwd")).is_ok_and(|cwd| cwd.starts_with(folder));
        let line = String::from_utf8_lossy(&line).into_owned();
        if ours && CANARIES.iter().any(|canary| line.contains(canary)) {
            return Some(line);
        }
    }
    None
}

fn files(folder: &Path) -> Vec<std::path::PathBuf> {
    let mut found = Vec::new();
    for entry in fs::read_dir(folder).unwrap().flatten() {
        let kind = entry.file_type().unwrap();
        if kind.is_dir() {
            found.extend(files(&entry.path()));
        } else if kind.is_file() {
            found.push(entry.path());
        }
    }
    found
}
