//! `cowhand config`.

use super::{cowhand, directory};

const FLEET: &str = "fleet: {name: demo}
defaults: {model: opus}
agents:
  - path: agents/coder.yaml
    overrides: {max_turns: 9}
  - name: helper
    schedules:
      nightly: {type: cron, cron: 0 3 * * *}
";

const CODER: &str = "name: coder
mcp_servers:
  github: {command: npx, args: [\"--token=${GITHUB_TOKEN}\"], env: {LEVEL: canary-env}}
schedules:
  hook: {type: webhook, secret: canary-literal}
  check:
    type: interval
    interval: ${EVERY}
    prompt: |
      Look at ${REPO}
      and say what you see.
";

const ENV_FILE: &str = "GITHUB_TOKEN=canary-token\nEVERY=1h\nREPO=https://me:canary-user@example.com/r.git\n";

fn fleet() -> tempfile::TempDir {
    directory(&[("cowhand.yaml", FLEET), ("agents/coder.yaml", CODER), (".env", ENV_FILE), ("deep/er/x", "")])
}

#[test]
fn check() {
    let directory = fleet();
    insta::assert_snapshot!(cowhand(directory.path(), &["config", "check"], &[]));
}

#[test]
fn check_finds_config_in_parent_directory() {
    let directory = fleet();
    let below = cowhand(&directory.path().join("deep/er"), &["config", "check"], &[]);
    assert!(below.starts_with("exit: 0\n--- stdout\nok: 2 agents, 3 schedules"), "{below}");
    for file in ["cowhand.yaml", ".", "deep"] {
        let named = cowhand(directory.path(), &["-c", file, "config", "check"], &[]);
        assert!(named.starts_with("exit: 0"), "{named}");
    }
}

#[test]
fn config_search_resolves_dot_dot_in_path() {
    let directory = directory(&[("here/cowhand.yaml", "agents: []"), ("there/x", "")]);
    let named = cowhand(&directory.path().join("here"), &["-c", "../there", "config", "check"], &[]);
    assert!(named.starts_with("exit: 3") && named.contains("no cowhand.yaml"), "{named}");
}

#[test]
fn pipes_devices_and_large_files_are_refused() {
    let fleet = "agents:\n  - path: a.yaml\n";
    let directory = directory(&[("cowhand.yaml", fleet), ("large", "agents: []\n")]);
    // The file has holes, so it needs no space.
    let large = std::fs::File::options().write(true).open(directory.path().join("large")).unwrap();
    large.set_len(5 << 30).unwrap();
    let pipe = |name: &str| {
        let made = std::process::Command::new("mkfifo").arg(directory.path().join(name)).status();
        assert!(made.unwrap().success());
    };
    let check = |file: &str| cowhand(directory.path(), &["-c", file, "config", "check"], &[]);
    let refused = |file: &str, expected: &str| {
        let said = check(file);
        assert!(said.starts_with("exit: 3") && said.contains(expected), "{file}: {said}");
    };
    refused("/dev/zero", "cannot read /dev/zero: it is a device, not a regular file");
    refused("large", "larger than 1024 MiB");
    for name in ["pipe", "a.yaml", ".env", "prompt"] {
        pipe(name);
    }
    refused("pipe", "it is a pipe, not a regular file");
    // The error names the file and the line with the reference.
    refused("cowhand.yaml", "a.yaml: it is a pipe, not a regular file");
    refused("cowhand.yaml", "cowhand.yaml:2:");
    std::fs::remove_file(directory.path().join("a.yaml")).unwrap();
    std::fs::write(directory.path().join("a.yaml"), "name: a\nschedules: {s: {type: manual}}\n").unwrap();
    let said = check("cowhand.yaml");
    assert!(said.contains(".env cannot be read: it is a pipe, not a regular file"), "{said}");
    let said = cowhand(directory.path(), &["doctor"], &[]);
    assert!(said.contains("warn  variables: .env cannot be read: it is a pipe"), "{said}");
    std::fs::create_dir(directory.path().join("below")).unwrap();
    pipe("below/cowhand.yaml");
    refused("below", "below/cowhand.yaml is not a regular file");
    let said = cowhand(directory.path(), &["trigger", "a", "--prompt-file", "prompt"], &[]);
    assert!(said.contains("it is a pipe, not a regular file") && said.contains("`-`"), "{said}");
    let said = cowhand(directory.path(), &["restore", "prompt"], &[]);
    assert!(said.contains("it is a pipe, not a regular file"), "{said}");
}

#[test]
fn process_environment_overrides_env_file() {
    let directory = fleet();
    let shown = cowhand(directory.path(), &["config", "show", "--json"], &[("EVERY", "2h")]);
    assert!(shown.contains(r#""interval": "2h""#), "{shown}");
}

/// A secret of the config is masked wherever its text occurs, even if it does not come from a variable.
#[test]
fn show_masks_known_secrets_everywhere() {
    let secret = "key-ABCDEF-canary";
    let agent = format!(
        "agents:\n  - name: a\n    env: {{SERVICE_KEY: {secret}}}\n    default_prompt: \"use {secret}\"\n    \
         system_prompt: \"{secret} opens it\"\n    runtime: command\n    command: [echo, \"{secret}\"]\n    \
         schedules: {{s: {{type: manual, prompt: \"use {secret} and canary-env-file\"}}}}\n"
    );
    let directory = directory(&[("cowhand.yaml", &agent), (".env", "OTHER_TOKEN=canary-env-file\n")]);
    for arguments in [&["config", "show"][..], &["config", "show", "--json"]] {
        let shown = cowhand(directory.path(), arguments, &[]);
        assert!(shown.starts_with("exit: 0") && shown.contains("use *** and ***"), "{shown}");
        assert!(!shown.contains("canary"), "{shown}");
    }
}

#[test]
fn show() {
    let directory = fleet();
    let shown = cowhand(directory.path(), &["config", "show"], &[]);
    assert!(!shown.contains("canary"), "{shown}");
    insta::assert_snapshot!(shown);
    let json = cowhand(directory.path(), &["config", "show", "--json"], &[]);
    assert!(!json.contains("canary"), "{json}");
}

const WRONG: &str = "agents:
  - name: a
    modle: opus
    hooks: {}
    schedules:
      s: {type: interval, interval: '${TOKEN}'}
";

#[test]
fn config_errors_do_not_show_secrets() {
    let directory = directory(&[("cowhand.yaml", WRONG)]);
    let env = [("TOKEN", "canary")];
    let checked = cowhand(directory.path(), &["config", "check"], &env);
    assert!(!checked.contains("canary"), "{checked}");
    insta::assert_snapshot!("errors", checked);
    insta::assert_snapshot!(
        "errors_as_json",
        cowhand(directory.path(), &["config", "check", "--json"], &env)
    );
    insta::assert_snapshot!("errors_of_show", cowhand(directory.path(), &["config", "show"], &env));
}

#[test]
fn missing_config_is_reported() {
    let directory = directory(&[("x", "")]);
    let missing = |arguments: &[&str]| cowhand(directory.path(), arguments, &[]);
    insta::assert_snapshot!("not_found", missing(&["config", "check"]));
    insta::assert_snapshot!("named_but_gone", missing(&["config", "check", "-c", "gone.yaml"]));
}

#[test]
fn files_that_cannot_be_read() {
    let fleet = "agents:\n  - path: folder\n  - path: latin.yaml\n";
    let directory = directory(&[("cowhand.yaml", fleet), ("folder/x", "")]);
    std::fs::write(directory.path().join("latin.yaml"), b"name: caf\xe9").unwrap();
    insta::assert_snapshot!(cowhand(directory.path(), &["config", "check"], &[]));
}

#[test]
fn cowhand_beside_herdctl_wins() {
    let directory = directory(&[
        ("cowhand.yaml", "agents: [{name: ours, default_prompt: Go.}]"),
        ("herdctl.yaml", "nonsense: 1"),
        (".env", "not a variable\n"),
    ]);
    insta::assert_snapshot!(cowhand(directory.path(), &["config", "check"], &[]));
}

#[test]
fn schema() {
    let directory = directory(&[]);
    for (arguments, title) in
        [(&["config", "schema"][..], "FleetFile"), (&["config", "schema", "--agent"][..], "Agent")]
    {
        let output = cowhand(directory.path(), arguments, &[]);
        let json =
            output.strip_prefix("exit: 0\n--- stdout\n").unwrap().strip_suffix("--- stderr\n").unwrap();
        let schema: serde_json::Value = serde_json::from_str(json).unwrap();
        assert_eq!(schema["title"], title);
    }
}

#[test]
fn help() {
    let directory = directory(&[]);
    insta::assert_snapshot!(cowhand(directory.path(), &["config", "--help"], &[]));
}

#[test]
fn a_first_config_does_not_replace_one_of_herdctl() {
    let directory = directory(&[("herdctl.yaml", "agents: []")]);
    let refused = cowhand(directory.path(), &["init"], &[]);
    insta::assert_snapshot!(refused);
    assert!(!directory.path().join("cowhand.yaml").exists());
    let forced = cowhand(directory.path(), &["init", "--force"], &[]);
    assert!(forced.starts_with("exit: 0\n--- stdout\nwrote ./cowhand.yaml"), "{forced}");
    let again = cowhand(directory.path(), &["init", "--force"], &[]);
    assert!(again.contains("exists already, and is not overwritten"), "{again}");
}
