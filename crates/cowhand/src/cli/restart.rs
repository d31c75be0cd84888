//! `cowhand restart`: a new daemon in the background; the agents live on.

use std::path::Path;

use clap::Args;

use super::listen::Listen;
use super::place::Place;
use super::stop::stop;
use super::{Failure, background};
use crate::api::StopAsked;

#[derive(Debug, Args)]
pub(super) struct Restart {
    #[command(flatten)]
    listen: Listen,
}

impl Restart {
    pub(super) fn run(self, config: Option<&Path>) -> Result<(), Failure> {
        let place = Place::find(config)?;
        stop(&place, StopAsked { keep_agents: true, timeout_seconds: None })?;
        background::start(&place, &self.listen, &[])
    }
}
