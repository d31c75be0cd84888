//! Trust: which authors' text may reach an agent, and what happens to text of other authors.
//!
//! This module only decides. The caller finds out the permission of an author in a repository, and the origin of a pull
//! request ([`TextOrigin::open_questions`] returns the missing facts).

mod allowed_author;
mod origin;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::github::Auth;
use crate::sandbox::{Credentials, Network, NetworkWord, Sandbox, SandboxKind, SandboxRules};
use crate::word::written_as;
pub use allowed_author::AllowedAuthor;
pub use origin::{Author, AuthorPermission, Head, Question, TextOrigin};

/// Authors whose text may get into a prompt. An author is trusted by name or by permission in the repository; everybody
/// else is a stranger.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct Trust {
    /// Authors who are trusted whatever their permission is: accounts by their login, users of a chat as `slack:ID` or
    /// `discord:ID`.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    #[schemars(extend("items" = { "type": "string", "examples": ["ann", "our-ci[bot]", "slack:U012AB3CD"] }))]
    pub allow_authors: Vec<String>,
    /// Minimum permission in the repository for an author to be trusted.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub min_permission: Option<RepoPermission>,
    /// Repositories whose text can be trusted, as `owner/name` or `owner/*`; unset means any that a delivery names.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    #[schemars(extend("items" = { "type": "string", "pattern": r"^[\w.-]+/([\w.-]+|\*)$", "examples": ["my-org/app", "my-org/*"] }))]
    pub repos: Vec<String>,
    /// Treatment of strangers' text; unset means `refuse`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub strangers: Option<Treatment>,
    /// Treatment of pull requests from forks, whoever opened them; unset means the same as for strangers.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub forks: Option<Treatment>,
    /// The strict sandbox, for the treatment `sandbox`; unset means bubblewrap with only the workspace and no network.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub sandbox: Option<Sandbox>,
    /// API address of GitHub at which the permissions of a webhook's authors are requested; unset means github.com.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(regex(pattern = "^https?://"))]
    pub api_url: Option<String>,
    /// Authentication for the requests for permissions of a webhook's authors; other triggers and work sources use
    /// their own.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub auth: Option<Auth>,
}

/// Treatment of text: a normal job, a job in the strict sandbox, or no job. The ledger records the refusal.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum Treatment {
    Allow,
    Sandbox,
    Refuse,
}

/// Permission in a repository, from the lowest to the highest.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum RepoPermission {
    Read,
    Triage,
    Write,
    Maintain,
    Admin,
}

written_as! {
    RepoPermission { Read = "read", Triage = "triage", Write = "write", Maintain = "maintain", Admin = "admin" }
}

/// Decision about a text, with the reason.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum TrustVerdict {
    Trusted,
    /// The job runs in the strict sandbox.
    Confined(String),
    Refused(String),
}

impl Trust {
    /// Checks whether an author is trusted by name, which needs no request.
    pub(crate) fn knows(&self, author: &Author) -> bool {
        self.allow_authors.iter().any(|known| AllowedAuthor::of(known).is(author))
    }

    /// Checks whether the text of strangers or forks leads to the strict sandbox.
    pub fn confines(&self) -> bool {
        [self.for_strangers(), self.for_forks()].contains(&Treatment::Sandbox)
    }

    /// Checks whether these rules define who is trusted, or how strangers are treated.
    pub(crate) fn is_defined(&self) -> bool {
        !self.allow_authors.is_empty() || self.min_permission.is_some() || self.strangers.is_some()
    }

    pub(crate) fn for_strangers(&self) -> Treatment {
        self.strangers.unwrap_or(Treatment::Refuse)
    }

    pub(crate) fn for_forks(&self) -> Treatment {
        self.forks.unwrap_or_else(|| self.for_strangers())
    }

    /// Decides about a text. A text without a known author counts as text of a stranger.
    pub fn verdict(&self, origin: &TextOrigin) -> TrustVerdict {
        let by_permission = || origin.authors.iter().find_map(|author| self.low_permission(author, origin));
        let strange = self.stranger_reason(origin).or_else(by_permission);
        let strange = strange.map(|why| self.for_strangers().verdict(why));
        let forked = origin.fork().map(|why| self.for_forks().verdict(why));
        strictest(strange.into_iter().chain(forked))
    }

    /// Returns the reason why a text counts as text of a stranger, whatever permissions its authors have.
    pub(crate) fn stranger_reason(&self, origin: &TextOrigin) -> Option<String> {
        let unnamed = || origin.authors.iter().any(|author| author.login.is_none());
        let by_name = || {
            let stranger = origin.authors.iter().find(|author| !self.knows(author));
            let stranger = stranger.filter(|_| self.min_permission.is_none())?;
            Some(format!("{stranger} is not among `allow_authors`"))
        };
        self.unlisted_repo(origin)
            .or_else(|| origin.authors.is_empty().then(|| origin.unknown_author_reason().to_owned()))
            .or_else(|| {
                unnamed().then(|| "one of its authors has no name, or no account any more".to_owned())
            })
            .or_else(by_name)
    }

    /// Returns the reason if the repository is not listed. Everybody may write in their own repository, so a delivery
    /// that names an unlisted repository counts as text of a stranger.
    fn unlisted_repo(&self, origin: &TextOrigin) -> Option<String> {
        if self.repos.is_empty() || origin.has_no_repository {
            return None;
        }
        let Some(repo) = origin.repo.as_deref() else {
            return Some("it names no repository, and `repos` lists the trusted ones".to_owned());
        };
        let covers = |known: &String| match known.strip_suffix("/*") {
            Some(owner) => repo.split_once('/').is_some_and(|(own, _)| own.eq_ignore_ascii_case(owner)),
            None => known.eq_ignore_ascii_case(repo),
        };
        (!self.repos.iter().any(covers)).then(|| format!("{repo} is not among `repos`"))
    }

    /// Returns the reason why the permission of an author is too low, if it is.
    fn low_permission(&self, author: &Author, origin: &TextOrigin) -> Option<String> {
        let least = self.min_permission?;
        if author.login.is_none() || self.knows(author) {
            return None;
        }
        let has = match (author.permission, origin.repo.as_deref()) {
            (AuthorPermission::Permission(own), _) if own >= least => return None,
            (_, None) => {
                return Some(format!(
                    "{author} is not among `allow_authors`, and there is no repository in which to check a permission"
                ));
            }
            (AuthorPermission::Permission(own), Some(repo)) => format!("{own} in {repo}"),
            (AuthorPermission::Nothing | AuthorPermission::Unknown, Some(repo)) => {
                format!("no permission in {repo}")
            }
        };
        Some(format!("{author} has {has}, and `min_permission` is {least}"))
    }

    /// Returns the strict sandbox, if it is configured. Unset keys are as strict as in the default of [`strict`].
    pub(crate) fn strict(&self, keeps_keys_outside: bool) -> Option<SandboxRules> {
        let own = self.sandbox.as_ref()?.rules();
        let usual = strict(keeps_keys_outside && own.kind == SandboxKind::Bubblewrap);
        Some(SandboxRules {
            write: own.write.or(usual.write),
            read: own.read.or(usual.read),
            network: own.network.clone().or(usual.network),
            // With an open network, requests do not go through the proxy.
            credentials: own
                .credentials
                .or(usual.credentials.filter(|_| own.network != Some(Network::Word(NetworkWord::On)))),
            ..own
        })
    }
}

/// Returns the default strict sandbox: access to the workspace only, and no network. If `keeps_keys_outside` is true,
/// the agent can send requests to the model through the credential proxy.
pub fn strict(keeps_keys_outside: bool) -> SandboxRules {
    SandboxRules {
        kind: SandboxKind::STRICT,
        write: Some(Vec::new()),
        read: Some(Vec::new()),
        network: Some(Network::Word(NetworkWord::Off)),
        credentials: keeps_keys_outside.then_some(Credentials::Outside),
        ..SandboxRules::default()
    }
}

impl Treatment {
    fn verdict(self, why: String) -> TrustVerdict {
        match self {
            Self::Allow => TrustVerdict::Trusted,
            Self::Sandbox => TrustVerdict::Confined(why),
            Self::Refuse => TrustVerdict::Refused(why),
        }
    }
}

impl TrustVerdict {
    const fn treatment(&self) -> Treatment {
        match self {
            Self::Trusted => Treatment::Allow,
            Self::Confined(_) => Treatment::Sandbox,
            Self::Refused(_) => Treatment::Refuse,
        }
    }
}

/// Returns the strictest decision; of equal decisions the first.
fn strictest(verdicts: impl Iterator<Item = TrustVerdict>) -> TrustVerdict {
    let stricter = |one: TrustVerdict, other: TrustVerdict| {
        if other.treatment() > one.treatment() { other } else { one }
    };
    verdicts.reduce(stricter).unwrap_or(TrustVerdict::Trusted)
}

/// Returns the strictest decision of all rules.
pub fn judge<'a>(trusts: impl IntoIterator<Item = &'a Trust>, origin: &TextOrigin) -> TrustVerdict {
    strictest(trusts.into_iter().map(|trust| trust.verdict(origin)))
}

/// Decides about text that comes from a job whose own text was not trusted. `why` is the reason. Such text is never
/// trusted, even if the rules allow text of strangers.
pub fn judge_derived<'a>(trusts: impl IntoIterator<Item = &'a Trust>, why: &str) -> TrustVerdict {
    let treatments = trusts.into_iter().map(Trust::for_strangers);
    // Without trust rules, a job with such text still runs in the strict sandbox.
    match treatments.max().unwrap_or(Treatment::Sandbox) {
        Treatment::Refuse => TrustVerdict::Refused(why.to_owned()),
        Treatment::Allow | Treatment::Sandbox => TrustVerdict::Confined(why.to_owned()),
    }
}

#[cfg(test)]
mod tests;
