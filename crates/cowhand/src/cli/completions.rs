//! `cowhand completions`: prints the script with which a shell asks this program for completions.

use clap::{Args, ValueEnum};
use clap_complete::env::Shells;

use super::location::cannot;
use super::{Failure, complete, print};

#[derive(Debug, Args)]
pub(super) struct CompletionsArgs {
    /// Shell to print the script for
    shell: Shell,
}

#[derive(Debug, Clone, Copy, ValueEnum)]
enum Shell {
    Bash,
    Elvish,
    Fish,
    Powershell,
    Zsh,
}

impl CompletionsArgs {
    pub(super) fn run(self) -> Result<(), Failure> {
        let name = match self.shell {
            Shell::Bash => "bash",
            Shell::Elvish => "elvish",
            Shell::Fish => "fish",
            Shell::Powershell => "powershell",
            Shell::Zsh => "zsh",
        };
        let mut script = Vec::new();
        if let Some(shell) = Shells::builtins().completer(name) {
            let written = shell.write_registration(
                complete::COMPLETE_VARIABLE,
                "cowhand",
                "cowhand",
                "cowhand",
                &mut script,
            );
            written.map_err(|error| cannot("cannot write completions", &error))?;
        }
        print::part(String::from_utf8_lossy(&script));
        Ok(())
    }
}
