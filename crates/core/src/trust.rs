//! Trust: whose words may reach an agent, and what happens to the others'.
//!
//! Here is only the judgement. Who somebody is in a repository, and where a pull request comes from, is found out by
//! whoever asks ([`Words::open_questions`] says what is missing).

mod words;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::github::Auth;
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
    #[schemars(extend("items" = { "type": "string", "pattern": r"^[\w.-]+/([\w.-]+|\*)$", "examples": ["my-org/app", "my-org/*"] }))]
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
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Verdict {
    Trusted,
    /// The job runs, in the strict sandbox.
    Confined(String),
    Refused(String),
}

impl Trust {
    /// By name, which needs no asking. Only of letters that everybody can tell apart a case does not count.
    pub(crate) fn knows(&self, login: &str) -> bool {
        self.allow_authors.iter().any(|known| known.eq_ignore_ascii_case(login))
    }

    /// Whether anybody's words lead to the strict sandbox.
    pub fn confines(&self) -> bool {
        [self.for_strangers(), self.for_forks()].contains(&Treatment::Sandbox)
    }

    /// Whether it says who is no stranger, or what becomes of them.
    pub(crate) fn says_whom(&self) -> bool {
        !self.allow_authors.is_empty() || self.min_permission.is_some() || self.strangers.is_some()
    }

    pub(crate) fn for_strangers(&self) -> Treatment {
        self.strangers.unwrap_or(Treatment::Refuse)
    }

    pub(crate) fn for_forks(&self) -> Treatment {
        self.forks.unwrap_or_else(|| self.for_strangers())
    }

    /// Words nobody is known to have written are a stranger's.
    pub fn verdict(&self, words: &Words) -> Verdict {
        let by_permission = || words.authors.iter().find_map(|author| self.too_little(author, words));
        let strange = self.strange_anyhow(words).or_else(by_permission);
        let strange = strange.map(|why| self.for_strangers().verdict(why));
        let forked = words.fork().map(|why| self.for_forks().verdict(why));
        strictest(strange.into_iter().chain(forked))
    }

    /// Why they are a stranger's whatever anybody's permission is.
    pub(crate) fn strange_anyhow(&self, words: &Words) -> Option<String> {
        let unnamed = || words.authors.iter().any(|author| author.login.is_none());
        let by_name = || {
            let strange = |author: &&Author| !author.login.as_deref().is_some_and(|login| self.knows(login));
            let stranger = words.authors.iter().find(strange).filter(|_| self.min_permission.is_none());
            Some(format!("{} is not among `allow_authors`", stranger?.login.as_deref().unwrap_or_default()))
        };
        self.elsewhere(words)
            .or_else(|| words.authors.is_empty().then(|| words.silence().to_owned()))
            .or_else(|| {
                unnamed().then(|| "one of its authors has no name, or no account any more".to_owned())
            })
            .or_else(by_name)
    }

    /// In a repository of their own everybody may write. Who can make its deliveries look like ours is a stranger for that.
    fn elsewhere(&self, words: &Words) -> Option<String> {
        if self.repos.is_empty() || words.is_placeless {
            return None;
        }
        let Some(repo) = words.repo.as_deref() else {
            return Some("it names no repository, and `repos` does".to_owned());
        };
        let covers = |known: &String| match known.strip_suffix("/*") {
            Some(owner) => repo.split_once('/').is_some_and(|(own, _)| own.eq_ignore_ascii_case(owner)),
            None => known.eq_ignore_ascii_case(repo),
        };
        (!self.repos.iter().any(covers)).then(|| format!("{repo} is not among `repos`"))
    }

    /// Why somebody is a stranger by their permission, if they are.
    fn too_little(&self, author: &Author, words: &Words) -> Option<String> {
        let (login, least) = (author.login.as_deref()?, self.min_permission?);
        if self.knows(login) {
            return None;
        }
        let has = match (author.standing, words.repo.as_deref()) {
            (Standing::Permission(own), _) if own >= least => return None,
            (_, None) => {
                return Some(format!(
                    "{login} has no permission that could be asked for, and is not among `allow_authors`"
                ));
            }
            (Standing::Permission(own), Some(repo)) => format!("{own} in {repo}"),
            (Standing::Nothing | Standing::Unknown, Some(repo)) => format!("no permission in {repo}"),
        };
        Some(format!("{login} has {has}, and `min_permission` is {least}"))
    }

    /// The strict sandbox, if it says what that is: what it leaves open is as strict as usual.
    pub(crate) fn strict(&self, keeps_keys_outside: bool) -> Option<SandboxRules> {
        let own = self.sandbox.as_ref()?.rules();
        let usual = strict(keeps_keys_outside && own.kind == SandboxKind::Bubblewrap);
        Some(SandboxRules {
            write: own.write.or(usual.write),
            read: own.read.or(usual.read),
            network: own.network.clone().or(usual.network),
            // With an open network nothing goes through the proxy.
            credentials: own
                .credentials
                .or(usual.credentials.filter(|_| own.network != Some(Network::Word(NetworkWord::On)))),
            ..own
        })
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

impl Verdict {
    const fn treatment(&self) -> Treatment {
        match self {
            Self::Trusted => Treatment::Allow,
            Self::Confined(_) => Treatment::Sandbox,
            Self::Refused(_) => Treatment::Refuse,
        }
    }
}

/// Of equals the first.
fn strictest(verdicts: impl Iterator<Item = Verdict>) -> Verdict {
    let stricter =
        |one: Verdict, other: Verdict| if other.treatment() > one.treatment() { other } else { one };
    verdicts.reduce(stricter).unwrap_or(Verdict::Trusted)
}

/// What all of them say together.
pub fn judge<'a>(trusts: impl IntoIterator<Item = &'a Trust>, words: &Words) -> Verdict {
    strictest(trusts.into_iter().map(|trust| trust.verdict(words)))
}

/// What becomes of something that follows from a job whose words were not trusted, for this reason.
pub fn judge_again<'a>(trusts: impl IntoIterator<Item = &'a Trust>, why: &str) -> Verdict {
    let treatments = trusts.into_iter().map(Trust::for_strangers);
    // Whom nobody asked for trust still does not make a stranger's words their own.
    match treatments.max().unwrap_or(Treatment::Sandbox) {
        Treatment::Refuse => Verdict::Refused(why.to_owned()),
        Treatment::Allow | Treatment::Sandbox => Verdict::Confined(why.to_owned()),
    }
}

#[cfg(test)]
mod tests;
