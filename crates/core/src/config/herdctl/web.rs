//! herdctl's `web`: the address of the server, unless `server.listen` sets it, and defaults for `web_chat`.

use core::net::{IpAddr, Ipv4Addr};

use indexmap::IndexMap;

use super::super::load::Loader;
use super::super::node::{Entry, Location, Map, Node, Value};
use super::super::problem::Problem;

/// Uses `web.host` and `web.port` of the root file as the server's address. Warns of keys of `web` that have no effect.
pub(in super::super) fn apply(loader: &mut Loader<'_>, root: &Node) {
    let Some(web) = root.get("web") else { return };
    if let Some(enabled) = web.get("enabled").filter(|enabled| enabled.text() == Some("false")) {
        let message = "`enabled: false` has no effect here: the API and webhooks are on the same server";
        let help = "`server: {enabled: false}` turns all of it off";
        warn(loader, enabled.at, message, help, "web.enabled");
    }
    let has_listen = root.get("server").is_some_and(|server| server.entry("listen").is_some());
    for key in ["host", "port"] {
        let Some((at, text)) = web.get(key).and_then(|node| Some((node.at, node.text()?.to_owned()))) else {
            continue;
        };
        if has_listen {
            let message = format!("`web.{key}` has no effect, because `server.listen` is set");
            warn(loader, at, message, "keep one of the two", &format!("web.{key}"));
        } else if key == "port" {
            // An invalid port is already reported.
            text.parse().into_iter().for_each(|port| {
                loader.server.listen.set_port(port);
                loader.server.listen_chosen = true;
            });
        } else if let Some(host) = address(&text) {
            loader.server.listen.set_ip(host);
        } else {
            let message = format!(
                "`{text}` is not an address to listen on, so the server listens on this machine only"
            );
            let help = "write an IP address of this machine: `127.0.0.1`, or `0.0.0.0` for all of them";
            warn(loader, at, message, help, "web.host");
        }
    }
}

/// Returns the keys of `web` that have an equal in `web_chat`, in the form of `defaults`.
pub(in super::super) fn web_as_defaults(root: &Node) -> Option<Node> {
    let web = root.get("web")?.entries()?;
    let keys = ["session_expiry_hours", "tool_results", "message_grouping"];
    let own: IndexMap<_, _> =
        keys.into_iter().filter_map(|key| Some((key.to_owned(), web.get(key)?.clone()))).collect();
    let at = own.values().next()?.key_at;
    let map = |entries| Node { value: Value::Map(Map { entries, replaces_all: false }), at };
    let web_chat = Entry { key_at: at, node: map(own) };
    Some(map([("web_chat".to_owned(), web_chat)].into_iter().collect()))
}

fn address(host: &str) -> Option<IpAddr> {
    if host == "localhost" { Some(Ipv4Addr::LOCALHOST.into()) } else { host.parse().ok() }
}

fn warn(loader: &mut Loader<'_>, at: Location, message: impl Into<String>, help: &str, key: &str) {
    loader.problems.add(Problem::warning(at, message).key(key).help(help.to_owned()));
}
