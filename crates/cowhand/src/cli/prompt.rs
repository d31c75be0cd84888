//! A prompt from the command line, from a file, or from standard input.

use std::io::{self, Read};
use std::path::{Path, PathBuf};

use clap::Args;

use super::Failure;
use cowhand_system::named_file;

/// Largest number of bytes that are read. The limit of the API is lower, so the API refuses a prompt that was cut here.
const MAX_PROMPT_BYTES: u64 = 4 << 20;

#[derive(Debug, Args)]
pub(super) struct PromptArgs {
    /// Prompt, instead of that of the schedule or the agent; `-` reads it from standard input
    #[arg(short, long, value_name = "TEXT")]
    prompt: Option<String>,
    /// Read the prompt from this file; `-` is standard input
    #[arg(long, value_name = "FILE", conflicts_with = "prompt")]
    prompt_file: Option<PathBuf>,
}

impl PromptArgs {
    /// Returns the prompt, or none if none was given.
    pub(super) fn read(self) -> Result<Option<String>, Failure> {
        let dash = Path::new("-");
        match (self.prompt, self.prompt_file) {
            (Some(text), _) if text != "-" => checked("`--prompt`", Ok(text)).map(Some),
            (None, Some(file)) if file != dash => {
                let shown = file.display().to_string();
                checked(&shown, named_file::read_text(&file, MAX_PROMPT_BYTES)).map(Some)
            }
            (None, None) => Ok(None),
            _ => {
                let mut text = String::new();
                let read = io::stdin().lock().take(MAX_PROMPT_BYTES).read_to_string(&mut text);
                checked("standard input", read.map(|_| text)).map(Some)
            }
        }
    }
}

fn checked(from: &str, read: io::Result<String>) -> Result<String, Failure> {
    match read {
        Ok(text) if text.trim().is_empty() => Err(Failure::usage(format!("{from} is empty; write a prompt"))),
        Ok(text) => Ok(text),
        Err(error) if error.kind() == io::ErrorKind::InvalidInput => Err(Failure::usage(format!(
            "cannot read the prompt from {from}: {error}; `-` reads standard input"
        ))),
        Err(error) => Err(Failure::usage(format!("cannot read the prompt from {from}: {error}"))),
    }
}
