//! `cowhand completions`: for a shell to complete from.

use clap::{Args, CommandFactory};
use clap_complete::Shell;

use super::{Cli, Failure};

#[derive(Debug, Args)]
pub(super) struct Completions {
    shell: Shell,
}

impl Completions {
    #[expect(clippy::unnecessary_wraps, reason = "every verb is run in the same way")]
    pub(super) fn run(self) -> Result<(), Failure> {
        clap_complete::generate(self.shell, &mut Cli::command(), "cowhand", &mut std::io::stdout());
        Ok(())
    }
}
