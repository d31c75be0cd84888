//! Where the server answers: what the command line says about it, over what the config says.

use std::net::SocketAddr;
use std::path::Path;

use clap::Args;
use cowhand_core::server::Server;
use serde::{Deserialize, Serialize};

use cowhand_engine::config;

#[derive(Debug, Clone, Default, PartialEq, Eq, Args, Serialize, Deserialize)]
#[serde(default)]
pub(super) struct Listen {
    /// Where the server answers, whatever the config says; port 0 takes a free one
    #[arg(long, value_name = "ADDRESS:PORT", conflicts_with = "no_server")]
    listen: Option<SocketAddr>,
    /// No server: only the socket in the state folder answers
    #[arg(long)]
    no_server: bool,
}

impl Listen {
    /// Whether the command line says anything about it.
    pub(super) fn is_given(&self) -> bool {
        self.no_server || self.listen.is_some()
    }

    /// None for no server. A config with mistakes has none either; whoever starts the fleet says what they are.
    pub(super) fn server(&self, file: &Path) -> Option<Server> {
        let loaded = config::load(file).loaded;
        if self.no_server || loaded.errors() > 0 {
            return None;
        }
        let server = loaded.roster.server;
        match self.listen {
            Some(listen) => Some(Server { enabled: true, listen, listen_chosen: true, ..server }),
            None => Some(server).filter(|server| server.enabled),
        }
    }

    /// The address that nobody chose, which may be another program's; none if somebody chose one.
    pub(super) fn default_address(&self, file: &Path) -> Option<SocketAddr> {
        self.server(file).filter(|server| !server.listen_chosen).map(|server| server.listen)
    }

    /// The same for a daemon in the background.
    pub(super) fn arguments(&self) -> Vec<String> {
        match self.listen {
            Some(listen) => vec!["--listen".to_owned(), listen.to_string()],
            None if self.no_server => vec!["--no-server".to_owned()],
            None => Vec::new(),
        }
    }
}
