//! Authentication at GitHub, as work sources, triggers and trust configure it.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize, JsonSchema)]
#[serde(default)]
pub struct Auth {
    /// Environment variable that contains the token; unset means `GITHUB_TOKEN`.
    #[schemars(extend("format" = "variable"))]
    pub token_env: Option<String>,
    /// GitHub App to use instead of a token.
    pub app: Option<AppAuth>,
}

/// A GitHub App. Exactly one of `private_key_env` and `private_key_file` must be set.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct AppAuth {
    /// Id or client id of the app.
    pub id: String,
    /// Id of the installation; unset means the installation of the repository.
    #[serde(default)]
    pub installation_id: Option<u64>,
    /// Environment variable that contains the private key in PEM form.
    #[serde(default)]
    #[schemars(extend("format" = "variable"))]
    pub private_key_env: Option<String>,
    /// File with the private key in PEM form; a relative path starts in the directory of the root file.
    #[serde(default)]
    pub private_key_file: Option<String>,
}
