//! Programs of Node.

use std::path::{Path, PathBuf};
use std::process::Stdio;

use tokio::process::{Child, Command};

pub(crate) fn node_folder() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../../tests/node")
}

/// Starts a script in the folder of the Node packages. It ends when its standard input is closed.
pub(crate) fn start(script: &str, arguments: &[&str]) -> Child {
    let script = node_folder().join(script);
    assert!(
        script.is_file() && node_folder().join("node_modules/@slack/web-api").is_dir(),
        "{} or the packages are not installed: run scripts/test, which installs them",
        script.display()
    );
    Command::new("node")
        .arg("--import")
        .arg(node_folder().join("ends-with-parent.mjs"))
        .arg(script)
        .args(arguments)
        .env("NO_COLOR", "1")
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .kill_on_drop(true)
        .spawn()
        .expect("node is not installed: run scripts/test, which installs it")
}
