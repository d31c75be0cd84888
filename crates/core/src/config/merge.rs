//! Merging of trees: maps merge key by key, and every other value is replaced as a whole. A null also replaces a value.
//!
//! Missing keys are inherited. Every node keeps its location. A short form counts as its map when a map is merged over
//! the short form. A short form that is merged over another value replaces that value as a whole.

use indexmap::map::Entry::{Occupied, Vacant};

use super::node::{Entry, Map, Node, Value};

/// Merges two trees; `over` overrides `base`. The operation is associative: a chain of layers may be joined in any
/// grouping.
#[must_use]
pub fn merge(base: Node, over: Node) -> Node {
    let value = match (long_form(base).value, over.value) {
        (Value::Map(base), Value::Map(over)) if !over.replaces_all => Value::Map(merge_maps(base, over)),
        (Value::Map(_), over) => over,
        (_, Value::Map(over)) => Value::Map(Map { replaces_all: true, ..over }),
        (_, over) => over,
    };
    Node { value, at: over.at }
}

fn merge_maps(mut base: Map, over: Map) -> Map {
    for (key, entry) in over.entries {
        match base.entries.entry(key) {
            Vacant(place) => {
                place.insert(entry);
            }
            Occupied(mut place) => {
                let below = place.get_mut();
                let node = std::mem::replace(&mut below.node, Node::empty_map(entry.key_at));
                below.node = merge(node, entry.node);
                below.key_at = entry.key_at;
            }
        }
    }
    base
}

/// Returns the map for which a short form stands. Returns any other value unchanged.
pub(super) fn long_form(node: Node) -> Node {
    let Value::Scalar(scalar) = &node.value else { return node };
    let Some(key) = scalar.short_for else { return node };
    let at = node.at;
    let entries = [(key.to_owned(), Entry { key_at: at, node })].into_iter().collect();
    Node { value: Value::Map(Map { entries, replaces_all: true }), at }
}
