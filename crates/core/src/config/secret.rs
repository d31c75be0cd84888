//! Detection and masking of secrets in the config.

use serde_json::Value as Json;

use super::node::Scalar;

pub const MASK: &str = "***";

/// Checks whether a variable or key of this name may hold a secret. In doubt it returns true.
pub fn looks_secret(variable: &str) -> bool {
    let upper = variable.to_ascii_uppercase().replace("AUTHORI", "AUTH").replace("AUTHOR", "");
    let parts = ["TOKEN", "SECRET", "KEY", "PASS", "CREDENTIAL", "AUTH", "WEBHOOK_UR", "CONNECTION_STRING"];
    // These are compared as whole words: `PATH` is not a personal access token (`PAT`). `PWD` alone is a directory.
    let words = ["PAT", "DSN", "PWD"];
    let mut own = upper.split(|sign: char| !sign.is_alphanumeric());
    parts.iter().any(|part| upper.contains(part))
        || upper.ends_with("WEBHOOK")
        || (upper != "PWD" && own.any(|own| words.contains(&own)))
}

/// Checks whether the text contains the value of a variable that may be secret.
pub(super) fn holds_secret(scalar: &Scalar) -> bool {
    scalar.variables.iter().any(|name| looks_secret(name))
}

/// Masks the values at the pointers, and the user and password of every URL.
pub(super) fn mask(value: &mut Json, secrets: &[String]) {
    for pointer in secrets {
        if let Some(secret) = value.pointer_mut(pointer) {
            *secret = MASK.into();
        }
    }
    mask_addresses(value);
}

fn mask_addresses(value: &mut Json) {
    match value {
        Json::String(text) => {
            if let Some(masked) = without_user(text) {
                *text = masked;
            }
        }
        Json::Array(items) => items.iter_mut().for_each(mask_addresses),
        Json::Object(map) => map.values_mut().for_each(mask_addresses),
        _ => {}
    }
}

/// Replaces `https://user:password@host/` with `https://***@host/`, anywhere in the text; none if there is nothing to
/// replace.
fn without_user(text: &str) -> Option<String> {
    let mut masked = String::new();
    let mut rest = text;
    while let Some(scheme_end) = rest.find("://").map(|at| at + 3) {
        let (scheme, after) = rest.split_at(scheme_end);
        masked += scheme;
        let authority =
            after.find(|c: char| matches!(c, '/' | '?' | '#') || c.is_whitespace()).unwrap_or(after.len());
        rest = match after[..authority].rfind('@') {
            Some(at) => {
                masked += MASK;
                &after[at..]
            }
            None => after,
        };
    }
    masked += rest;
    (masked != text).then_some(masked)
}

/// Adds the password of every URL in the value to `found`.
pub(super) fn add_passwords(value: &Json, found: &mut Vec<String>) {
    match value {
        Json::String(text) => found.extend(passwords(text).map(str::to_owned)),
        Json::Array(items) => items.iter().for_each(|item| add_passwords(item, found)),
        Json::Object(map) => map.values().for_each(|item| add_passwords(item, found)),
        _ => {}
    }
}

/// Returns the password of every URL in the text, such as `https://user:password@host/`. A password that is only the
/// name of a variable (`$TOKEN`, `${TOKEN}`, `{{token}}`) is left out.
pub fn passwords(text: &str) -> impl Iterator<Item = &str> {
    let ends_url = |sign: char| "/?#\"<>`".contains(sign) || sign.is_whitespace();
    let authorities = text.split("://").skip(1).filter_map(move |after| after.split(ends_url).next());
    let passwords = authorities.filter_map(|authority| authority.rsplit_once('@')?.0.split_once(':'));
    passwords.map(|(_, password)| password).filter(|password| !names_variable(password))
}

fn names_variable(text: &str) -> bool {
    let in_braces = |open: &str, close: &str| text.strip_prefix(open)?.strip_suffix(close);
    let of_template = text.starts_with("{{") && text.ends_with("}}");
    let name = in_braces("${", "}").or_else(|| text.strip_prefix('$'));
    let is_name = |name: &str| name.chars().all(|sign| sign.is_ascii_alphanumeric() || sign == '_');
    of_template || name.is_some_and(|name| !name.is_empty() && is_name(name))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_of_secret_variables_are_recognized() {
        for name in [
            "GITHUB_TOKEN",
            "my_secret",
            "ApiKey",
            "DB_PASSWORD",
            "PASS",
            "AWS_CREDENTIALS",
            "BASIC_AUTH",
            "AUTHORIZATION",
            "GITHUB_PAT",
            "PAT",
            "SENTRY_DSN",
            "MYSQL_PWD",
            "SLACK_WEBHOOK",
            "SLACK_WEBHOOK_URL",
            "AZURE_STORAGE_CONNECTION_STRING",
        ] {
            assert!(looks_secret(name), "{name}");
        }
        for name in
            ["HOME", "MODEL", "REPO", "GIT_AUTHOR_NAME", "PATH", "PWD", "OLDPWD", "PATTERN", "WEBHOOK_HOST"]
        {
            assert!(!looks_secret(name), "{name}");
        }
    }

    #[test]
    fn passwords_are_found_in_urls() {
        for (text, expected) in [
            ("postgres://me:hunter22@db/x", &["hunter22"][..]),
            ("https://me:p@ss:word@host", &["p@ss:word"]),
            ("see https://me:one@host, or \"http://me:two@host\"", &["one", "two"]),
            ("curl 'https://me:hunter22@host'", &["hunter22"]),
            ("{\"a\":\"http://host:80\",\"b\":\"me@host\"}", &[]),
            ("https://me@host https://host/a:b@c me:hunter22@db", &[]),
            ("https://me:$TOKEN@host https://me:${TOKEN}@host https://me:{{token}}@host", &[]),
            ("https://me:$TOK-EN@host", &["$TOK-EN"]),
        ] {
            assert_eq!(passwords(text).collect::<Vec<_>>(), expected, "{text}");
        }
    }

    #[test]
    fn credentials_in_urls_are_masked() {
        for (text, masked) in [
            ("https://me:pw@host/p@th", "https://***@host/p@th"),
            ("see https://a@b and http://c:d@e?f=@", "see https://***@b and http://***@e?f=@"),
            ("postgres://u:p@db", "postgres://***@db"),
        ] {
            assert_eq!(without_user(text).as_deref(), Some(masked), "{text}");
        }
        for text in ["https://host/a@b", "mail me@host", ""] {
            assert_eq!(without_user(text), None, "{text}");
        }
    }
}
