//! The program of an agent, with the model and the account that it uses.

use std::path::Path;

use indexmap::IndexMap;

use crate::runtime::Runtime;

#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Program {
    pub runtime: Runtime,
    /// Program and arguments for the runtimes `command` and `acp`; other runtimes have their own program.
    pub command: Vec<String>,
    /// Model; none means that the program decides.
    pub model: Option<String>,
    /// Configured provider; none means the default provider of the runtime, if it has one.
    pub provider: Option<String>,
    /// Environment variables, in addition to those that every agent gets.
    pub env: IndexMap<String, String>,
}

impl Program {
    /// Returns the runtime of the program. For `runtime: acp`, it is the runtime with the file name of the command, for
    /// example `gemini` for `gemini --acp`, or else `acp`.
    pub fn known_runtime(&self) -> Runtime {
        let name = self.command.first().and_then(|command| Path::new(command).file_name()?.to_str());
        let known = name.and_then(Runtime::named);
        known.filter(|_| self.runtime == Runtime::Acp).unwrap_or(self.runtime)
    }
}
