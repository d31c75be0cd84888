//! The address of the server: options of the command line override the config.

use std::net::SocketAddr;
use std::path::Path;

use clap::Args;
use cowhand_core::config::LoadedConfig;
use cowhand_core::server::ServerConfig;
use serde::{Deserialize, Serialize};

use cowhand_engine::config;

#[derive(Debug, Clone, Default, PartialEq, Eq, Args, Serialize, Deserialize)]
#[serde(default)]
pub(super) struct ListenArgs {
    /// Address of the server, overrides the config; port 0 takes a free port
    #[arg(long, value_name = "ADDRESS:PORT", conflicts_with = "no_server")]
    listen: Option<SocketAddr>,
    /// Start no server: only the socket in the state folder answers
    #[arg(long)]
    no_server: bool,
}

impl ListenArgs {
    /// Returns true if the command line has an option for the server.
    pub(super) fn is_given(&self) -> bool {
        self.no_server || self.listen.is_some()
    }

    /// Returns the settings of the server. Returns none if no server is wanted, or if the config has errors, which the
    /// start of the fleet reports.
    pub(super) fn server_of(&self, loaded: &LoadedConfig) -> Option<ServerConfig> {
        if self.no_server || loaded.errors() > 0 {
            return None;
        }
        let server = loaded.roster.server.clone();
        match self.listen {
            Some(listen) => Some(ServerConfig { enabled: true, listen, listen_chosen: true, ..server }),
            None => Some(server).filter(|server| server.enabled),
        }
    }

    /// Returns the default address, which another program may already use. Returns none if the config or the command
    /// line has an address, or if there is no server.
    pub(super) fn default_address(&self, file: &Path) -> Option<SocketAddr> {
        self.server_of(&config::load(file).loaded)
            .filter(|server| !server.listen_chosen)
            .map(|server| server.listen)
    }

    /// Returns the same options as arguments, for a daemon in the background.
    pub(super) fn arguments(&self) -> Vec<String> {
        match self.listen {
            Some(listen) => vec!["--listen".to_owned(), listen.to_string()],
            None if self.no_server => vec!["--no-server".to_owned()],
            None => Vec::new(),
        }
    }
}
