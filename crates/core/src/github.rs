//! How to sign in to GitHub, as work sources, triggers and trust name it in the config.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize, JsonSchema)]
#[serde(default)]
pub struct Auth {
    /// The environment variable that holds the token; unset means `GITHUB_TOKEN`.
    pub token_env: Option<String>,
    /// A GitHub App instead of a token.
    pub app: Option<AppAuth>,
}

/// A GitHub App. One of the two private keys must be named.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct AppAuth {
    /// Its id, or its client id.
    pub id: String,
    /// Unset means the one that the repository has.
    #[serde(default)]
    pub installation_id: Option<u64>,
    /// The environment variable that holds the private key in PEM form.
    #[serde(default)]
    pub private_key_env: Option<String>,
    /// The file with the private key, relative to the root config file.
    #[serde(default)]
    pub private_key_file: Option<String>,
}
