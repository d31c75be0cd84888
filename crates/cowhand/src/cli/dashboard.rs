//! `cowhand dashboard`: prints a login link for a browser.

use std::path::Path;

use clap::Args;

use super::{Failure, location, print};
use cowhand_web::api::{LINK_VALID_MINUTES, LoginLink};

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
            let valid = format!("it works once, within {LINK_VALID_MINUTES} minutes");
            print::note(format!("open this in a browser; {valid}"));
            print::line(link.url);
        }
        Ok(())
    }
}
