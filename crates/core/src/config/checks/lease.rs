//! Checks of `leases`: their length has limits, and leases matter only on a database that several nodes share.

use serde::Deserialize as _;
use serde_json::Value;

use crate::config::load::Loader;
use crate::config::node::Node;
use crate::config::problem::Problem;
use crate::lease::LeaseConfig;

/// Reads `leases` of the root file. `checked` is the typed value of the root file.
pub(in crate::config) fn read(loader: &mut Loader<'_>, root: &Node, checked: &Value) {
    let written = checked.get("leases").and_then(|value| LeaseConfig::deserialize(value).ok());
    let Some((leases, entry)) = written.zip(root.entry("leases")) else { return };
    if let Some(message) = leases.validate() {
        let at = entry.node.get("length").map_or(entry.node.at, |length| length.at);
        loader.problems.add(Problem::error(at, message).key("leases.length"));
        return;
    }
    if loader.store.is_none() && !entry.node.is_null() {
        let message =
            "`leases` has no effect without `store`, because only one node uses the file in the state folder";
        loader.problems.add(Problem::warning(entry.key_at, message).key("leases"));
    }
    loader.leases = leases.into();
}
