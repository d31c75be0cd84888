//! `cowhand completions`: what a shell runs so that it asks this program what can be typed.

use clap::{Args, ValueEnum};
use clap_complete::env::Shells;

use super::place::cannot;
use super::{Failure, complete, print};

#[derive(Debug, Args)]
pub(super) struct Completions {
    /// The shell to print them for
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

impl Completions {
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
            let written =
                shell.write_registration(complete::VARIABLE, "cowhand", "cowhand", "cowhand", &mut script);
            written.map_err(|error| cannot("cannot write completions", &error))?;
        }
        print::part(String::from_utf8_lossy(&script));
        Ok(())
    }
}
