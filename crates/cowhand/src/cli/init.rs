//! `cowhand init`: writes a first config that works without changes.

use std::fs::OpenOptions;
use std::io::{self, Write};
use std::path::{Path, PathBuf};

use clap::Args;
use serde_json::json;

use super::location::cannot;
use super::{Exit, Failure, advice, print};

#[derive(Debug, Args)]
pub(super) struct InitArgs {
    /// Write a cowhand.yaml even if a herdctl.yaml is beside it, which is then no longer used
    #[arg(long)]
    force: bool,
    /// Print JSON
    #[arg(long)]
    json: bool,
}

const FLEET_TEMPLATE: &str = include_str!("init.yaml");

impl InitArgs {
    pub(super) fn run(self, config: Option<&Path>) -> Result<(), Failure> {
        let target = config.unwrap_or(Path::new("."));
        let file = if target.is_dir() { target.join("cowhand.yaml") } else { target.to_owned() };
        let shown_path = file.display();
        if let Some(herdctl_file) = herdctl_beside(&file).filter(|_| !self.force) {
            let message = format!(
                "{} is already a fleet, and `cowhand start` runs it without changes. If a cowhand.yaml is beside it, it is no \
                 longer used; `cowhand init --force` writes the cowhand.yaml anyway",
                herdctl_file.display()
            );
            return Err(Failure::new(Exit::Refused, message));
        }
        let result = OpenOptions::new()
            .write(true)
            .create_new(true)
            .open(&file)
            .and_then(|mut file| file.write_all(FLEET_TEMPLATE.as_bytes()));
        match result {
            Ok(()) => {}
            Err(error) if error.kind() == io::ErrorKind::AlreadyExists => {
                let message = format!("{shown_path} exists already, and is not overwritten");
                return Err(Failure::new(Exit::Refused, message));
            }
            Err(error) => return Err(cannot(&format!("cannot write {shown_path}"), &error)),
        }
        print::done(&format!("wrote {shown_path}"), &json!({ "file": file }), self.json);
        if self.json {
            return Ok(());
        }
        let verbs = [
            ("start -d", "starts it"),
            ("trigger helper --wait", "runs its agent now"),
            ("logs helper", "shows the output of the agent"),
        ];
        print::line("");
        for (verb, what) in verbs {
            print::line(format!("{}    {what}", advice::command(&format!("{verb:<21}"))));
        }
        Ok(())
    }
}

/// Returns the config file of herdctl in the same folder, which is no longer used once a `cowhand.yaml` is written
/// there.
fn herdctl_beside(file: &Path) -> Option<PathBuf> {
    let names = ["herdctl.yaml", "herdctl.yml"].map(|name| file.with_file_name(name));
    names.into_iter().find(|herdctl_file| herdctl_file.exists())
}
