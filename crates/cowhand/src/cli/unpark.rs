//! `cowhand unpark`: lets jobs start at a parked provider again, without waiting for the end of its usage limit.

use std::path::Path;

use clap::Args;

use super::{Failure, location, print};
use cowhand_web::api::{ProviderView, segment};

#[derive(Debug, Args)]
pub(super) struct UnparkArgs {
    /// Provider, as `cowhand status` names it
    provider: String,
    /// Print the provider as JSON
    #[arg(long)]
    json: bool,
}

impl UnparkArgs {
    pub(super) fn run(self, config: Option<&Path>) -> Result<(), Failure> {
        location::ask(config, async |client| {
            let address = format!("providers/{}/unpark", segment(&self.provider));
            let view = client.post::<ProviderView>(&address, &()).await?;
            print::done(&format!("{} takes jobs again.", view.provider), &view, self.json);
            Ok(())
        })
    }
}
