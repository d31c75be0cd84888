//! Trust: whose words may reach an agent, and what happens to the others'.
//!
//! Here is only the judgement. Who somebody is in a repository, and where a pull request comes from, is found out by
//! whoever asks ([`Words::open_questions`] says what is missing).

mod words;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::config::shape::Auth;
use crate::filter::same_word;
use crate::sandbox::{Credentials, Network, NetworkWord, Sandbox, SandboxKind, SandboxRules};
use crate::word::written_as;
pub use words::{Author, Head, Question, Standing, Words};

/// Who may put words into a prompt. Somebody is trusted by name or by their permission in the repository; everybody
/// else is a stranger.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct Trust {
    /// These are trusted, whatever their permission.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub allow_authors: Vec<String>,
    /// Who has at least this in the repository is trusted.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub min_permission: Option<RepoPermission>,
    /// The repositories whose words count, as `owner/name` or `owner/*`; unset means any that a delivery names.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    #[schemars(inner(regex(pattern = r"^[\w.-]+/([\w.-]+|\*)$")))]
    pub repos: Vec<String>,
    /// What becomes of strangers' words; unset means `refuse`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub strangers: Option<Treatment>,
    /// What becomes of pull requests from forks, whoever opened them; unset means the same as for strangers.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub forks: Option<Treatment>,
    /// The strict sandbox, for `sandbox` above; unset means bubblewrap with nothing but the workspace and no network.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub sandbox: Option<Sandbox>,
    /// Where permissions of a webhook's repository are asked for; unset means GitHub itself.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(regex(pattern = "^https?://"))]
    pub api_url: Option<String>,
    /// As whom they are asked for, for a webhook; others use what their trigger or work source has.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub auth: Option<Auth>,
}

/// What is done with words of somebody: a job as any other, a job in the strict sandbox, or none, which the ledger tells.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum Treatment {
    Allow,
    Sandbox,
    Refuse,
}

/// What somebody may do in a repository, the least first.
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

/// What is made of words, and why.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub enum Verdict {
    Trusted,
    /// The job runs, in the strict sandbox.
    Confined(String),
    Refused(String),
}

impl Trust {
    /// By name, which needs no asking.
    pub(crate) fn knows(&self, login: Option<&str>) -> bool {
        login.is_some_and(|login| self.allow_authors.iter().any(|known| same_word(known, login)))
    }

    /// Whether anybody's words lead to the strict sandbox.
    pub fn confines(&self) -> bool {
        [self.for_strangers(), self.for_forks()].contains(&Treatment::Sandbox)
    }

    /// Whether it says who is no stranger, or what becomes of them.
    pub(crate) fn says_whom(&self) -> bool {
        !self.allow_authors.is_empty() || self.min_permission.is_some() || self.strangers.is_some()
    }

    pub(crate) fn asks_for_forks(&self) -> bool {
        self.for_forks() != Treatment::Allow
    }

    fn for_strangers(&self) -> Treatment {
        self.strangers.unwrap_or(Treatment::Refuse)
    }

    fn for_forks(&self) -> Treatment {
        self.forks.unwrap_or_else(|| self.for_strangers())
    }

    /// Words nobody is known to have written are a stranger's.
    pub fn verdict(&self, words: &Words) -> Verdict {
        let stranger = || words.authors.iter().find_map(|author| self.stranger(author, words));
        let nobody = || words.authors.is_empty().then(|| words.silence().to_owned());
        let strange = self.elsewhere(words).or_else(stranger).or_else(nobody);
        let strange = strange.map(|why| self.for_strangers().verdict(why));
        let forked = words.fork().map(|why| self.for_forks().verdict(why));
        strange.into_iter().chain(forked).max().unwrap_or(Verdict::Trusted)
    }

    /// In a repository of their own everybody may write. Who can make its deliveries look like ours is a stranger for that.
    fn elsewhere(&self, words: &Words) -> Option<String> {
        let repo = words.repo.as_deref().filter(|_| !self.repos.is_empty())?;
        let covers = |known: &String| match known.strip_suffix("/*") {
            Some(owner) => repo.split_once('/').is_some_and(|(own, _)| same_word(own, owner)),
            None => same_word(known, repo),
        };
        (!self.repos.iter().any(covers)).then(|| format!("{repo} is not among `repos`"))
    }

    /// Why somebody is one, if they are.
    fn stranger(&self, author: &Author, words: &Words) -> Option<String> {
        let Some(login) = author.login.as_deref() else {
            return Some("one of its authors has no account any more".to_owned());
        };
        if self.knows(Some(login)) {
            return None;
        }
        let Some(least) = self.min_permission else {
            return Some(format!("{login} is not among `allow_authors`"));
        };
        let place = words.repo.as_deref().unwrap_or("any repository");
        match author.standing {
            Standing::Permission(own) if own >= least => None,
            Standing::Permission(own) => {
                Some(format!("{login} has {own} in {place}, and `min_permission` is {least}"))
            }
            Standing::Nothing | Standing::Unknown => {
                Some(format!("{login} has no permission in {place}, and `min_permission` is {least}"))
            }
        }
    }

    /// The strict sandbox, if it says what that is.
    pub(crate) fn strict(&self) -> Option<SandboxRules> {
        self.sandbox.as_ref().map(Sandbox::rules)
    }
}

/// Nothing but the workspace, and nobody but the model.
pub fn strict(keeps_keys_outside: bool) -> SandboxRules {
    SandboxRules {
        kind: SandboxKind::Bubblewrap,
        write: Some(Vec::new()),
        read: Some(Vec::new()),
        network: Some(Network::Word(NetworkWord::Off)),
        credentials: keeps_keys_outside.then_some(Credentials::Outside),
        ..SandboxRules::default()
    }
}

impl Treatment {
    fn verdict(self, why: String) -> Verdict {
        match self {
            Self::Allow => Verdict::Trusted,
            Self::Sandbox => Verdict::Confined(why),
            Self::Refuse => Verdict::Refused(why),
        }
    }
}

/// What all of them say together: the strictest counts.
pub fn judge<'a>(trusts: impl IntoIterator<Item = &'a Trust>, words: &Words) -> Verdict {
    trusts.into_iter().map(|trust| trust.verdict(words)).max().unwrap_or(Verdict::Trusted)
}

#[cfg(test)]
mod tests;
