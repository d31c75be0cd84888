//! `cowhand drain` and `cowhand undrain`: whether a node takes new jobs.

use std::path::Path;
use std::time::Duration;

use clap::Args;

use super::location::{self, Connection};
use super::spinner::Spinner;
use super::{Failure, interrupt, print};
use cowhand_web::api::{ApiProblem, NodeStateView, NodeView, Page, segment};

/// Time between two checks whether a node still runs jobs.
const POLL_DRAIN_EVERY: Duration = Duration::from_millis(200);
const STILL_DRAINS: &str = "the node stays drained; `cowhand nodes` shows how many jobs it still runs";

#[derive(Debug, Args)]
pub(super) struct DrainArgs {
    /// Node, as `cowhand nodes` names it [default: the node here]
    node: Option<String>,
    /// Wait until the node runs no job
    #[arg(long)]
    wait: bool,
    /// Print the node as JSON
    #[arg(long)]
    json: bool,
}

#[derive(Debug, Args)]
pub(super) struct UndrainArgs {
    /// Node, as `cowhand nodes` names it [default: the node here]
    node: Option<String>,
    /// Print the node as JSON
    #[arg(long)]
    json: bool,
}

impl DrainArgs {
    pub(super) fn run(self, config: Option<&Path>) -> Result<(), Failure> {
        location::ask(config, async |client| {
            let mut view = change(client, self.node.as_deref(), "drain").await?;
            if self.wait && view.state == NodeStateView::Draining {
                let spinner = Spinner::new("draining");
                let wait = async { wait_until_drained(client, &view.name).await.map_err(Failure::from) };
                view = interrupt::unless_interrupted(spinner.during(wait), Some(STILL_DRAINS)).await?;
            }
            let jobs = match view.running {
                0 => "it runs no job".to_owned(),
                1 => "1 job still runs".to_owned(),
                more => format!("{more} jobs still run"),
            };
            print::done(&format!("{} takes no new jobs; {jobs}.", view.name), &view, self.json);
            Ok(())
        })
    }
}

impl UndrainArgs {
    pub(super) fn run(self, config: Option<&Path>) -> Result<(), Failure> {
        location::ask(config, async |client| {
            let view = change(client, self.node.as_deref(), "undrain").await?;
            print::done(&format!("{} takes jobs again.", view.name), &view, self.json);
            Ok(())
        })
    }
}

/// Drains or undrains a node.
async fn change(client: &Connection<'_>, node: Option<&str>, verb: &str) -> Result<NodeView, Failure> {
    let own;
    let node = if let Some(node) = node {
        node
    } else {
        own = own_node(client).await?;
        &own
    };
    Ok(client.post::<NodeView>(&format!("nodes/{}/{verb}", segment(node)), &()).await?)
}

/// Returns the name of the node that answers. Without a daemon, the name does not matter: the request is refused.
async fn own_node(client: &Connection<'_>) -> Result<String, ApiProblem> {
    let nodes = client.get::<Page<NodeView>>("nodes").await?.items;
    let own = nodes.iter().find(|node| node.is_this).or(nodes.first());
    Ok(own.map_or_else(|| "node".to_owned(), |node| node.name.clone()))
}

async fn wait_until_drained(client: &Connection<'_>, node: &str) -> Result<NodeView, ApiProblem> {
    loop {
        let nodes = client.get::<Page<NodeView>>("nodes").await?.items;
        let view = nodes.into_iter().find(|view| view.name == node);
        match view {
            Some(view) if view.state == NodeStateView::Draining => {}
            Some(view) => return Ok(view),
            None => return Err(ApiProblem::not_found(format!("the node {node:?} was forgotten"))),
        }
        tokio::time::sleep(POLL_DRAIN_EVERY).await;
    }
}
