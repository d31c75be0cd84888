//! `cowhand dashboard`: prints a login link for a browser.

use std::path::Path;

use clap::Args;

use super::{Failure, location, print};
use cowhand_web::api::LoginLink;

#[derive(Debug, Args)]
pub(super) struct DashboardArgs {
    /// Print JSON
    #[arg(long)]
    json: bool,
}

impl DashboardArgs {
    pub(super) fn run(self, config: Option<&Path>) -> Result<(), Failure> {
        let link: LoginLink = location::ask(config, async |client| Ok(client.post("login", &()).await?))?;
        if self.json {
            print::json(&link);
        } else {
            print::note("open this in a browser; it works once, within ten minutes");
            print::line(link.url);
        }
        Ok(())
    }
}
