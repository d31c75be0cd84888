//! `cowhand nodes`: lists the nodes of the fleet, and forgets nodes that no longer run.

use std::path::Path;

use clap::{Args, Subcommand};
use cowhand_core::duration;
use jiff::Timestamp;

use super::print::{self, Table};
use super::{Failure, location, style};
use cowhand_web::api::{NodeStateView, NodeView, Page, segment};

/// Number of characters of a digest that the table shows.
const SHORT_DIGEST: usize = 8;

#[derive(Debug, Args)]
#[command(args_conflicts_with_subcommands = true)]
pub(super) struct NodesArgs {
    /// Print JSON
    #[arg(long)]
    json: bool,
    #[command(subcommand)]
    verb: Option<NodesVerb>,
}

#[derive(Debug, Subcommand)]
enum NodesVerb {
    /// Remove a node that no longer runs from the list
    Forget(ForgetArgs),
}

#[derive(Debug, Args)]
struct ForgetArgs {
    /// Node, as `cowhand nodes` names it
    node: String,
    /// Print the node as JSON
    #[arg(long)]
    json: bool,
}

impl NodesArgs {
    pub(super) fn run(self, config: Option<&Path>) -> Result<(), Failure> {
        match self.verb {
            Some(NodesVerb::Forget(forget)) => forget.run(config),
            None => list(config, self.json),
        }
    }
}

impl ForgetArgs {
    fn run(self, config: Option<&Path>) -> Result<(), Failure> {
        location::ask(config, async |client| {
            let address = format!("nodes/{}/forget", segment(&self.node));
            let view = client.post::<NodeView>(&address, &()).await?;
            print::done(&format!("{} is forgotten.", view.name), &view, self.json);
            Ok(())
        })
    }
}

fn list(config: Option<&Path>, json: bool) -> Result<(), Failure> {
    let nodes = location::ask(config, async |client| Ok(client.get::<Page<NodeView>>("nodes").await?.items))?;
    if json {
        print::json(&nodes);
        return Ok(());
    }
    let now = Timestamp::now();
    let mut table = Table::new(&["NODE", "STATE", "RUNNING", "LABELS", "SEEN", "VERSION", "CONFIG"])
        .optional_columns(&["VERSION", "SEEN", "LABELS", "CONFIG"]);
    for node in &nodes {
        let capacity = node.capacity.map(|capacity| format!("/{capacity}")).unwrap_or_default();
        let this = if node.is_this { " (this)" } else { "" };
        table.row([
            format!("{}{this}", print::cell(&node.name)),
            state(node, now),
            format!("{}{capacity}", node.running),
            node.labels.join(" "),
            duration::relative_to_now(now, node.last_seen_at),
            node.version.clone().unwrap_or_default(),
            digest(node),
        ]);
    }
    table.print();
    let lines: Vec<String> = nodes.iter().flat_map(notes).collect();
    if !lines.is_empty() {
        print::line("");
    }
    for line in lines {
        print::prose(&line, 2);
    }
    Ok(())
}

/// Formats the state with the time since which a node is gone or drained.
fn state(node: &NodeView, now: Timestamp) -> String {
    let since = node.since.map(|since| format!(" {}", duration::relative_to_now(now, since)));
    let word = format!("{}{}", node.state.as_str(), since.unwrap_or_default());
    let colour = if node.state == NodeStateView::Ready { style::GOOD } else { style::ODD };
    style::styled(&word, colour)
}

fn digest(node: &NodeView) -> String {
    let digest: String = node.config.iter().flat_map(|config| config.chars()).take(SHORT_DIGEST).collect();
    if node.config_differs { style::styled(format!("{digest} differs"), style::ODD) } else { digest }
}

/// Formats a line for each agent that the node cannot run, and one if its config differs.
fn notes(node: &NodeView) -> Vec<String> {
    let cannot_run = style::styled("cannot run", style::ODD);
    let unable = node.unable.iter().map(|unable| {
        let reason = print::one_line(&unable.reason, 300);
        format!("{cannot_run}: {} on {}: {reason}", unable.agent, node.name)
    });
    let differs = node.config_differs.then(|| {
        format!(
            "{}: the config of {} is not that of this node; until all nodes run the same config, the lower of the \
             limits on running jobs holds",
            style::styled("config differs", style::ODD),
            node.name
        )
    });
    unable.chain(differs).collect()
}
