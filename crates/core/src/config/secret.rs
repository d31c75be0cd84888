//! Detection and masking of secrets in the config.

mod url;

use serde_json::Value as Json;

use super::node::Scalar;
use crate::store_address::decoded;
use url::{Url, is_scheme};

pub const MASK: &str = "***";

/// Checks whether a variable or key of this name may hold a secret. In doubt, returns true.
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

/// Replaces `https://user:password@host/` with `https://***@host/` and `?password=…` with `?password=***`, anywhere in
/// the text; none if there is nothing to replace.
pub(super) fn without_user(text: &str) -> Option<String> {
    let mut masked = String::new();
    let mut rest = text;
    while let Some(scheme_end) = rest.find("://").map(|at| at + 3) {
        let (scheme, after) = rest.split_at(scheme_end);
        masked += scheme;
        let url = Url::of(text, text.len() - after.len());
        let masked_length = url.user_and_password().map_or(0, str::len);
        if masked_length > 0 {
            masked += MASK;
        }
        let mut from = masked_length;
        for value in url.password_parameters().into_iter().filter(|value| value.start >= masked_length) {
            masked += &after[from..value.start];
            masked += MASK;
            from = value.end;
        }
        rest = &after[from..];
    }
    masked += rest;
    (masked != text).then_some(masked)
}

/// Returns whether an address, which may be mistyped, may contain a password: it has a colon before an `@`, or
/// `?password=`.
pub(super) fn address_may_hold_password(address: &str) -> bool {
    let colon = address.find(':');
    colon.is_some_and(|colon| address[colon..].contains('@')) || may_hold_password(address)
}

/// Returns whether an address may contain a password that [`without_user`] does not mask, because the address is
/// mistyped or contains spaces.
pub(super) fn may_hold_unmasked_password(address: &str) -> bool {
    let is_plain = |(scheme, after): (&str, &str)| {
        is_scheme(scheme) && !after.starts_with(['/', '\\', ':']) && !address.contains(char::is_whitespace)
    };
    address_may_hold_password(address) && !address.split_once("://").is_some_and(is_plain)
}

/// Adds the passwords that a mistyped address, or an address with spaces, may contain: each text between one of the
/// first two colons and an `@`.
pub(super) fn add_unmasked_passwords(address: &str, found: &mut Vec<String>) {
    let address = address.trim();
    // In `http:u:password@host`, the first colon belongs to the scheme. In `u:password@host`, it does not.
    for (colon, _) in address.match_indices(':').take(2) {
        for (at, _) in address.match_indices('@').filter(|(at, _)| *at > colon) {
            let after = &address[colon + 1..at];
            // After the colon of the scheme there are slashes and a user.
            if colon > 0 && !after.starts_with(['/', '\\']) {
                add_password(after, found);
            }
        }
    }
}

/// Adds a password as it is written, as parsers change it, and without percent escapes. The name of a variable is left
/// out.
fn add_password(written: &str, found: &mut Vec<String>) {
    if written.is_empty() || names_variable(written) {
        return;
    }
    // Parsers leave out tabs and line breaks.
    let read: String = written.chars().filter(|sign| !matches!(sign, '\t' | '\n' | '\r')).collect();
    let escape = |sign: char| match sign {
        '"' | '<' | '>' | '`' | ' ' => format!("%{:02X}", u32::from(sign)),
        other => other.to_string(),
    };
    let escaped: String = read.chars().map(escape).collect();
    let plain = decoded(&read);
    let mut forms = vec![written.to_owned()];
    for form in [Some(read), plain, Some(escaped)].into_iter().flatten() {
        if !forms.contains(&form) {
            forms.push(form);
        }
    }
    found.append(&mut forms);
}

/// Adds the password of every URL in the value to `found`.
pub(super) fn add_passwords(value: &Json, found: &mut Vec<String>) {
    match value {
        Json::String(text) => found.extend(passwords(text)),
        Json::Array(items) => items.iter().for_each(|item| add_passwords(item, found)),
        Json::Object(map) => map.values().for_each(|item| add_passwords(item, found)),
        _ => {}
    }
}

/// Returns the passwords of every URL in the text, such as `https://user:password@host/` and
/// `postgres://host/?password=…`, in all forms that `add_password` adds. A password that is only the name of
/// a variable (`$TOKEN`, `${TOKEN}`, `{{token}}`) is left out.
pub fn passwords(text: &str) -> Vec<String> {
    let mut found = Vec::new();
    for (at, scheme) in text.match_indices("://") {
        let url = Url::of(text, at + scheme.len());
        url.passwords().for_each(|password| add_password(password, &mut found));
        for value in url.password_parameters() {
            let value = &url.text[value];
            add_password(value, &mut found);
            let plain = decoded(&value.replace('+', " "));
            let is_new = |plain: &String| !names_variable(value) && !found.contains(plain);
            found.extend(plain.filter(is_new));
        }
    }
    found
}

/// Returns whether the text may contain an address with a password, even if it is no valid address.
pub(super) fn may_hold_password(text: &str) -> bool {
    text.contains("://") && (text.contains('@') || without_user(text).is_some())
}

/// Returns whether the password of this address may contain an unescaped `/`, `\`, `?` or `#`. A part of the password
/// would then be read as the port, path, query or fragment. This is assumed if the text before the first of these
/// characters contains a colon, and an `@` follows after them. It is also assumed for `http://host:80/@x`, because this
/// can mean the user `host` with the password `80/`, and a password must not be sent to a wrong host or be shown. The
/// author of the address can write the `@` of a path as `%40`.
pub(super) fn has_unescaped_password(address: &str) -> bool {
    let Some((scheme, after)) = address.split_once("://") else { return false };
    let (authority, others) = after.split_at(after.find(['/', '\\', '?', '#']).unwrap_or(after.len()));
    let is_ipv6 = |host: &str| host.starts_with('[') && host.ends_with(']');
    is_scheme(scheme) && others.contains('@') && authority.contains(':') && !is_ipv6(authority)
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
            ("http://me:pa/ss@host/", &["pa/ss"]),
            ("http://me:pa?ss@host/", &["pa?ss"]),
            ("http://me:pa#ss@host/", &["pa#ss"]),
            ("http://me:2024/ss@host/", &["2024/ss"]),
            ("http://me:p@ss/wo@host/", &["p", "p@ss/wo"]),
            ("http://me:pa%2Fss@host/", &["pa%2Fss", "pa/ss"]),
            ("http://me:100%@host/", &["100%"]),
            ("postgres://h/x?user=me&password=a%26b+c", &["a%26b+c", "a&b+c", "a&b c"]),
            ("postgres://h/x?%70assword=hunter22&sslmode=require", &["hunter22"]),
            ("http://u:Pa01<Zq-x7@127.0.0.1/1", &["Pa01<Zq-x7", "Pa01%3CZq-x7"]),
            ("http://u:Pa>Zq@h/1", &["Pa>Zq", "Pa%3EZq"]),
            ("http://u:Pa\"Z/q@h/1", &["Pa\"Z/q", "Pa%22Z/q"]),
            ("postgres://u:Pa`Zq@h/1", &["Pa`Zq", "Pa%60Zq"]),
            ("see http://u:Pa<Zq@h, or x@y", &["Pa<Zq", "Pa%3CZq"]),
            ("https://u:Ex02/Zq-x7@m.example/p?mail=a@b.c", &["Ex02/Zq-x7", "Ex02/Zq-x7@m.example/p?mail=a"]),
            ("http://u:1234\\Secret@h/x", &["1234\\Secret"]),
            ("see http://u:80\"Zq@h:80/1", &["80\"Zq", "80%22Zq"]),
            ("see http://u:80<Zq/x@h", &["80<Zq/x", "80%3CZq/x"]),
            ("see \"http://host:80\",\"me@host\" and <a href=\"http://host:80\">me@host</a>", &[]),
            ("see <http://host:80>, `http://host:80`. me@host", &[]),
            ("see http://host:80/x, or ask me@host", &[]),
            ("see [page](http://host:80/x)(me@host)", &[]),
        ] {
            assert_eq!(passwords(text), expected, "{text}");
        }
    }

    #[test]
    fn credentials_in_urls_are_masked() {
        for (text, masked) in [
            ("https://me:pw@host/path", "https://***@host/path"),
            ("https://me@host/p@th", "https://***@host/p@th"),
            ("see https://a@b and http://c:d@e?f=g", "see https://***@b and http://***@e?f=g"),
            ("postgres://u:p@db", "postgres://***@db"),
            ("http://me:pa/ss@host/", "http://***@host/"),
            ("http://me:p@s?s@host/", "http://***@host/"),
            ("http://me:2024#s@host/", "http://***@host/"),
            ("http://u:Pa01<Zq-x7@127.0.0.1/1", "http://***@127.0.0.1/1"),
            ("http://u:Pa\"Z/q`@h/1", "http://***@h/1"),
            ("see http://u:Pa<Zq@h, or x@y", "see http://***@h, or x@y"),
            ("see http://u:80\"Zq@h:80/1, or x@y", "see http://***@h:80/1, or x@y"),
            ("postgres://h/x?user=u&password=p&port=1", "postgres://h/x?user=u&password=***&port=1"),
            ("postgres://u:p@h/x?password=p", "postgres://***@h/x?password=***"),
        ] {
            assert_eq!(without_user(text).as_deref(), Some(masked), "{text}");
        }
        for text in ["https://host/a@b", "mail me@host", "", "http://host:80/x, me@host"] {
            assert_eq!(without_user(text), None, "{text}");
        }
    }

    #[test]
    fn passwords_of_mistyped_addresses_are_found() {
        for (address, password) in [
            ("http:/u:Pw-x7@host", "Pw-x7"),
            ("http:u:Pw-x7@host", "Pw-x7"),
            ("http:\\\\u:Pw-x7@host", "Pw-x7"),
            ("http:///u:Pw-x7@host", "Pw-x7"),
            ("tu:Pw-x7@host", "Pw-x7"),
            ("//u:Pw-x7@host", "Pw-x7"),
            ("http://u:Pw x7@host", "Pw x7"),
            ("http://u:Pw\tx7@host", "Pwx7"),
        ] {
            let mut found = Vec::new();
            add_unmasked_passwords(address, &mut found);
            assert!(may_hold_unmasked_password(address), "{address}");
            assert!(found.iter().any(|found| found == password), "{address}: {found:?}");
        }
        for address in ["http://u:pw@host/", "https://host/a@b", "host", "me@host", "https://host:80/"] {
            assert!(!may_hold_unmasked_password(address), "{address}");
        }
    }

    #[test]
    fn unescaped_passwords_are_recognized() {
        for (address, expected) in [
            ("http://me:pa/ss@host/", true),
            ("http://me:pa?ss@host/", true),
            ("http://me:pa#ss@host/", true),
            ("http://me:p@s:s/s@host/", true),
            ("http://me:pass@host/", false),
            ("http://me:p@ss@host/", false),
            ("http://me:p@ss/wo@host/", true),
            ("http://u:1234/Secret@127.0.0.1:9/x", true),
            ("http://u:1234\\Secret@127.0.0.1:9/x", true),
            ("http://host:80/@team", true),
            ("http://host:80/%40team", false),
            ("http://[::1]/@team", false),
            ("http://host/@team", false),
        ] {
            assert_eq!(has_unescaped_password(address), expected, "{address}");
        }
    }
}
