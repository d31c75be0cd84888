//! Drains and forgets nodes on request of a person.

use cowhand_store::{DrainChange, Forgotten};

use super::{Fleet, FleetError};

impl Fleet {
    /// Lets a node take no new jobs. Its running jobs continue.
    pub async fn drain(&self, node: &str) -> Result<DrainChange, FleetError> {
        let change = self.store().drain(node.to_owned(), self.clock().now()).await?;
        self.refresh_nodes().await?;
        Ok(change)
    }

    /// Lets a drained node take jobs again.
    pub async fn undrain(&self, node: &str) -> Result<DrainChange, FleetError> {
        let change = self.store().undrain(node.to_owned(), self.clock().now()).await?;
        self.refresh_nodes().await?;
        Ok(change)
    }

    /// Removes a node that no longer runs from the list of nodes.
    pub async fn forget_node(&self, node: &str) -> Result<Forgotten, FleetError> {
        if node == self.node() {
            return Ok(Forgotten::StillRuns);
        }
        let forgotten = self.store().forget_node(node.to_owned(), self.clock().now()).await?;
        self.refresh_nodes().await?;
        Ok(forgotten)
    }

    /// Reads the nodes again and plans all agents.
    async fn refresh_nodes(&self) -> Result<(), FleetError> {
        self.engine.nodes.set(self.store().nodes().await?);
        self.engine.nodes.refresh.notify_one();
        self.engine.replan_all();
        Ok(())
    }
}
