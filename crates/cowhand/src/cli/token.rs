//! `cowhand token`: creates, lists and revokes the tokens with which programs use the API over TCP.

use std::io;
use std::path::Path;

use clap::{Args, Subcommand};
use cowhand_core::duration;
use cowhand_core::id::TokenName;
use cowhand_core::interval::Interval;
use cowhand_core::server::Scope;
use jiff::Timestamp;

use super::location::Connection;
use super::print::{self, Table};
use super::{Exit, Failure, location};
use cowhand_store as store;
use cowhand_web::api::{CreatedToken, Page, TokenRequest, segment};

#[derive(Debug, Subcommand)]
pub(super) enum TokenVerb {
    /// Create a token and show it, once
    Create(TokenCreateArgs),
    /// List tokens, including revoked and expired ones
    List(TokenListArgs),
    /// Revoke a token at once
    Revoke(TokenRevokeArgs),
}

#[derive(Debug, Args)]
pub(super) struct TokenCreateArgs {
    /// Name of the token, to recognise its use later
    name: TokenName,
    /// Rights: read, operate (also trigger agents, cancel jobs, change schedules, answer asks) or admin (also stop,
    /// remove, create tokens)
    #[arg(long, value_name = "SCOPE")]
    scope: Scope,
    /// Time until it expires (30d) [default: until it is revoked]
    #[arg(long, value_name = "TIME")]
    expires: Option<Interval>,
    /// Print JSON
    #[arg(long)]
    json: bool,
}

#[derive(Debug, Args)]
pub(super) struct TokenListArgs {
    /// Print JSON
    #[arg(long)]
    json: bool,
}

#[derive(Debug, Args)]
pub(super) struct TokenRevokeArgs {
    /// Token, as `cowhand token list` names it
    name: TokenName,
    /// Print JSON
    #[arg(long)]
    json: bool,
}

impl TokenVerb {
    pub(super) fn run(self, config: Option<&Path>) -> Result<(), Failure> {
        match self {
            Self::Create(create) => create.run(config),
            Self::List(list) => list.run(config),
            Self::Revoke(revoke) => revoke.run(config),
        }
    }
}

impl TokenCreateArgs {
    fn run(self, config: Option<&Path>) -> Result<(), Failure> {
        let name = self.name.to_string();
        let request = TokenRequest { name, scope: Some(self.scope), expires_in: self.expires };
        location::ask(config, async |client| {
            let created: CreatedToken = client.post("tokens", &request).await?;
            if !self.json {
                print::note("this is the only time that the token is shown");
            }
            let output = if self.json { print::to_json(&created) } else { created.token };
            match print::try_line(output) {
                Ok(()) => Ok(()),
                Err(error) => Err(revoke_unseen(client, &self.name, &error).await),
            }
        })
    }
}

/// Revokes a token that could not be shown. The token cannot be shown later, so nobody could ever use it.
async fn revoke_unseen(client: &Connection<'_>, name: &TokenName, error: &io::Error) -> Failure {
    let revoked = client.post::<store::TokenRecord>(&revoke_path(name), &()).await;
    let outcome = match revoked {
        Ok(_) => format!("the token {name} could not be shown, so it was revoked"),
        Err(problem) => format!(
            "the token {name} could not be shown, and it cannot be revoked now ({}); `cowhand token revoke {name}` \
             revokes it",
            problem.message
        ),
    };
    Failure::new(Exit::CannotRunHere, format!("cannot write to standard output: {error}; {outcome}"))
}

fn revoke_path(name: &TokenName) -> String {
    format!("tokens/{}/revoke", segment(name.as_str()))
}

impl TokenListArgs {
    fn run(self, config: Option<&Path>) -> Result<(), Failure> {
        let tokens: Page<store::TokenRecord> =
            location::ask(config, async |client| Ok(client.get("tokens").await?))?;
        if self.json {
            print::json(&tokens.items);
        } else if tokens.items.is_empty() {
            print::prose("no tokens; `cowhand token create NAME --scope read` creates one", 0);
        } else {
            table(&tokens.items, Timestamp::now()).print();
        }
        Ok(())
    }
}

impl TokenRevokeArgs {
    fn run(self, config: Option<&Path>) -> Result<(), Failure> {
        let path = revoke_path(&self.name);
        let token: store::TokenRecord =
            location::ask(config, async |client| Ok(client.post(&path, &()).await?))?;
        print::done(&format!("{} is revoked.", token.name), &token, self.json);
        Ok(())
    }
}

fn table(tokens: &[store::TokenRecord], now: Timestamp) -> Table {
    let mut table = Table::new(&["TOKEN", "SCOPE", "CREATED", "LAST USED", "VALID UNTIL"])
        .optional_columns(&["CREATED", "LAST USED"]);
    for token in tokens {
        let until = match (token.revoked_at, token.expires_at) {
            (Some(_), _) => "revoked".to_owned(),
            (None, Some(end)) if end <= now => "expired".to_owned(),
            (None, Some(end)) => duration::relative_to_now(now, end),
            (None, None) => "no end".to_owned(),
        };
        table.row([
            token.name.to_string(),
            token.scope.to_string(),
            duration::relative_to_now(now, token.created_at),
            token.last_used_at.map_or_else(|| "never".to_owned(), |at| duration::relative_to_now(now, at)),
            until,
        ]);
    }
    table
}
