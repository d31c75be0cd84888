//! `cowhand init`: a first fleet that works as it is.

use std::fs::OpenOptions;
use std::io::{self, Write};
use std::path::Path;

use clap::Args;

use super::place::cannot;
use super::{Exit, Failure, print};

#[derive(Debug, Args)]
pub(super) struct Init {}

const FLEET: &str = include_str!("init.yaml");

impl Init {
    #[expect(clippy::unused_self, reason = "every verb is run in the same way")]
    pub(super) fn run(self, config: Option<&Path>) -> Result<(), Failure> {
        let here = config.unwrap_or(Path::new("."));
        let file = if here.is_dir() { here.join("cowhand.yaml") } else { here.to_owned() };
        let shown = file.display();
        let written = OpenOptions::new()
            .write(true)
            .create_new(true)
            .open(&file)
            .and_then(|mut file| file.write_all(FLEET.as_bytes()));
        match written {
            Ok(()) => {}
            Err(error) if error.kind() == io::ErrorKind::AlreadyExists => {
                let message = format!("{shown} exists already, and is not overwritten");
                return Err(Failure::new(Exit::Refused, message));
            }
            Err(error) => return Err(cannot(&format!("cannot write {shown}"), &error)),
        }
        print::line(format!("wrote {shown}"));
        print::line("\ncowhand start -d                 starts it");
        print::line("cowhand trigger helper --wait    runs its agent now");
        print::line("cowhand logs helper              shows what the agent said");
        Ok(())
    }
}
