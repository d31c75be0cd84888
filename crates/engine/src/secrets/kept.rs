//! The secrets with which processes were started. They are kept in the folder of the attempt until the attempt is
//! settled. A later daemon may have to mask the output, and the config may have other values by then.

use std::io;

use tracing::warn;

use crate::prune::files::entries;
use crate::state::{StateFolder, modes};
use cowhand_run::attempt::Attempt;
use cowhand_run::redact::Redactor;

/// The texts that a process gets.
pub(crate) struct GivenTexts<'a> {
    /// Arguments of the process. They can contain a secret, because the config can put a variable into an argument.
    pub(crate) arguments: &'a [String],
    pub(crate) environment: &'a [(String, String)],
    pub(crate) files: &'a [(String, String)],
    pub(crate) input: &'a str,
}

/// Writes the secrets that a process gets into the folder of its attempt, before the process starts. Other secrets are
/// not written to the disk.
pub(crate) fn keep(attempt: &Attempt, redactor: &Redactor, given: &GivenTexts<'_>) -> io::Result<()> {
    let values = given.environment.iter().chain(given.files).map(|(_, value)| value.as_str());
    let texts = values.chain(given.arguments.iter().map(String::as_str)).chain([given.input]);
    attempt.write_secrets(&redactor.secrets_in(texts))
}

/// Returns the kept secrets of all attempts and hooks that are not settled.
pub(crate) fn of_attempts(state: &StateFolder) -> Vec<String> {
    let (mut secrets, attempts) = (Vec::new(), state.attempts());
    let folders = match entries(&attempts) {
        Ok(folders) => folders,
        Err(error) => {
            warn!("cannot list attempts to know the secrets with which they were started: {error}");
            return secrets;
        }
    };
    for folder in folders.flatten() {
        let Ok(attempt) = Attempt::at(&folder.path()) else { continue };
        let mut kept = attempt.secrets();
        if kept.as_ref().is_err_and(|error| error.kind() == io::ErrorKind::PermissionDenied) {
            modes::restore(&[attempt.folder()]);
            kept = attempt.secrets();
        }
        match kept {
            Ok(kept) => secrets.extend(kept),
            Err(error) => {
                warn!(
                    attempt = attempt.name(),
                    "the secrets with which it was started cannot be read; only those of the config are masked: {error}"
                );
            }
        }
    }
    secrets.sort();
    secrets.dedup();
    secrets
}
