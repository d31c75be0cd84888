//! The secrets that this process knows: the secrets in its environment, and in every config that it has loaded. They
//! are masked in the log and in the messages of verbs, so that a line about a file or a command cannot show a secret.

use std::sync::{Arc, LazyLock, PoisonError, RwLock};

use cowhand_core::config::{looks_secret, passwords};
use cowhand_run::redact::Redactor;

use super::own_variables;

static KNOWN: LazyLock<RwLock<Arc<Redactor>>> = LazyLock::new(|| {
    let secrets = own_variables().flat_map(|(name, value)| {
        let in_address = passwords(&value);
        in_address.into_iter().chain(looks_secret(&name).then_some(value))
    });
    RwLock::new(Arc::new(Redactor::of(secrets.collect())))
});

/// Returns the redactor for all secrets that this process knows.
pub fn known() -> Arc<Redactor> {
    Arc::clone(&KNOWN.read().unwrap_or_else(PoisonError::into_inner))
}

/// Adds the secrets of a config. Earlier secrets stay known, because texts and running agents can still contain them.
pub(crate) fn remember(redactor: &Redactor) {
    let mut known = KNOWN.write().unwrap_or_else(PoisonError::into_inner);
    let more: Vec<_> =
        redactor.secrets().iter().filter(|secret| !known.secrets().contains(secret)).cloned().collect();
    if !more.is_empty() {
        *known = Arc::new(Redactor::clone(&known).with_secrets(more));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn secrets_of_every_config_stay_known() {
        for secret in ["first-secret-of-this-test", "second-secret-of-this-test"] {
            remember(&Redactor::of(vec![secret.to_owned()]));
        }
        let text = "a first-secret-of-this-test and a second-secret-of-this-test";
        assert_eq!(known().redact(text), "a *** and a ***");
    }
}
