//! The page of nodes: the daemons that share the store, what they run and what they cannot run.

use axum::extract::State;
use jiff::Timestamp;
use maud::{Markup, html};

use super::layout::{Frame, Tab, part};
use super::text::{Text, short};
use super::{PageAnswer, Pages, elements, now};
use cowhand_web::api::{NodeStateView, NodeView, Page, segment};

/// Number of characters of a digest that the page shows.
const SHORT_DIGEST: usize = 8;

pub(super) async fn page(State(pages): State<Pages>) -> PageAnswer {
    let now = now();
    let nodes = pages.client.get::<Page<NodeView>>("nodes").await?.items;
    let running = nodes.iter().filter(|node| node.state != NodeStateView::Gone).count();
    let differs = nodes.iter().any(|node| node.config_differs);
    let main = html! {
        div.page-head #head data-live {
            h1 { "Nodes" }
            p.facts {
                span { (running) @if running == 1 { " node runs" } @else { " nodes run" } }
                @if differs { span { b { "configs differ" } } }
            }
        }
        (part("nodes", "All nodes", &html! {}, &table(&nodes, now)))
        @if differs {
            (part("configs", "Different configs", &html! {}, &html! {
                p { "Some nodes run another config than the node that shows this page. Until all nodes run the same config, the lower of the limits on running jobs holds." }
            }))
        }
        @if nodes.iter().any(|node| !node.unable.is_empty()) {
            (part("unable", "Agents that a node cannot run", &html! {}, &unable(&nodes)))
        }
    };
    pages.page(Frame { title: "Nodes", tab: Tab::Nodes, follow: None }, main).await
}

fn table(nodes: &[NodeView], now: Timestamp) -> Markup {
    html! {
        table {
            thead { tr { th { "Node" } th { "State" } th.end { "Running" } th.wide { "Labels" } th.wide { "Last seen" } th.wide { "Version" } th.wide { "Config" } th.end { span.hidden { "Drain" } } } }
            tbody {
                @for node in nodes {
                    tr {
                        td { code.any { (short(&node.name, 60)) } @if node.is_this { span.muted { " (this one)" } } }
                        td { (node.state.as_str()) @if let Some(since) = node.since { span.muted { " " (elements::from_now(since, now)) } } }
                        td.end { span.number { (node.running) @if let Some(capacity) = node.capacity { "/" (capacity) } } }
                        td.wide { @for label in &node.labels { code.any { (short(label, 60)) } " " } }
                        td.wide { (elements::from_now(node.last_seen_at, now)) }
                        td.wide { @if let Some(version) = &node.version { (short(version, 30)) } @else { span.muted { "–" } } }
                        td.wide { (config(node)) }
                        td.end { (drain_button(node)) }
                    }
                }
            }
        }
    }
}

fn config(node: &NodeView) -> Markup {
    let digest: String = node.config.iter().flat_map(|config| config.chars()).take(SHORT_DIGEST).collect();
    html! { code { (digest) } @if node.config_differs { " " b { "differs" } } }
}

fn drain_button(node: &NodeView) -> Markup {
    let name = &node.name;
    let address = |verb: &str| format!("/api/v1/nodes/{}/{verb}", segment(name));
    match node.state {
        NodeStateView::Ready => html! {
            button.small.script data-post=(address("drain")) data-confirm={ "Drain " (name) "? It takes no new jobs until it is undrained." }
                data-said={ (name) " takes no new jobs." } aria-label={ "Drain " (name) } { "Drain" }
        },
        NodeStateView::Draining | NodeStateView::Drained => html! {
            button.small.script data-post=(address("undrain")) data-said={ (name) " takes jobs again." } aria-label={ "Undrain " (name) } { "Undrain" }
        },
        NodeStateView::Gone => html! {
            button.small.script data-post=(address("forget")) data-confirm={ "Forget " (name) "? It is listed again if it starts again." }
                data-said={ (name) " is forgotten." } aria-label={ "Forget " (name) } { "Forget" }
        },
    }
}

fn unable(nodes: &[NodeView]) -> Markup {
    html! {
        table {
            thead { tr { th { "Agent" } th { "Node" } th.grow { "Reason" } } }
            tbody {
                @for node in nodes {
                    @for unable in &node.unable {
                        tr {
                            td { (elements::agent(&unable.agent)) }
                            td { code.any { (short(&node.name, 60)) } }
                            td.grow { (Text(&unable.reason)) }
                        }
                    }
                }
            }
        }
    }
}
