//! Notifications for a program, which reads them from its standard input. The program runs under a minder, so its
//! processes end with it, with its time limit, and with the daemon.

use std::io::{self, Write as _};
use std::path::{Path, PathBuf};

use super::{SendError, Sending};
use crate::state::StateFolder;
use cowhand_run::gate;
use cowhand_system::blocking::run_blocking;

/// Folder in the state folder with the input of programs that run now.
const INPUTS: &str = "notifications";
/// Opens the file `$0` as the standard input of the other arguments. The content is in a file and not in an argument,
/// because other users can see arguments.
const WITH_INPUT: &str = r#"exec "$@" <"$0""#;

pub(super) async fn run(
    sending: &Sending<'_>,
    command: &[String],
    directory: &Path,
) -> Result<(), SendError> {
    let payload = sending.payload()?;
    let folder = inputs(&sending.engine.home.state);
    let input = run_blocking(move || write_input(&folder, &payload)).await;
    let input = input.map_err(|error| SendError::new(format!("cannot write its input: {error}")))?;
    let file = input.path().display().to_string();
    let words = ["sh", "-c", WITH_INPUT, file.as_str()].map(str::to_owned);
    let words: Vec<String> = words.into_iter().chain(command.iter().cloned()).collect();
    let (program, timeout) = (&sending.engine.program, sending.target.timeout);
    let ran = gate::run_limited(program, &words, directory, timeout, sending.redactor.clone()).await;
    match ran {
        Ok(answer) if answer.allows => Ok(()),
        Ok(answer) => {
            let printed = gate::printed_suffix(&answer.output);
            Err(SendError::new(format!("its exit code is not 0{printed}")))
        }
        Err(error) => Err(SendError::new(format!("{error:#}"))),
    }
}

fn inputs(state: &StateFolder) -> PathBuf {
    state.path().join(INPUTS)
}

/// Writes the input to a file that only the owner can read. The file is removed when the result is dropped.
fn write_input(folder: &Path, payload: &[u8]) -> io::Result<tempfile::NamedTempFile> {
    std::fs::create_dir_all(folder)?;
    let mut file = tempfile::NamedTempFile::new_in(folder)?;
    file.write_all(payload)?;
    Ok(file)
}

/// Removes the files that a daemon left because it died.
pub fn clear_inputs(state: &StateFolder) -> io::Result<()> {
    match std::fs::remove_dir_all(inputs(state)) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => Err(error),
        _ => Ok(()),
    }
}
