//! Recognises links whose text looks like another address, so that people always see where a link leads.

use crate::chat::escape::BREAK;

/// Characters that Unicode reads as dots in the name of a host.
const DOTS: [char; 5] = ['.', '\u{3002}', '\u{ff0e}', '\u{ff61}', '\u{2024}'];

/// Checks whether the text of a link contains an address or the name of a host, and the link leads to another address.
pub(super) fn is_misleading(text: &str, url: &str) -> bool {
    let plain: String = text.chars().filter(|c| !"*_~`\\".contains(*c)).collect();
    let is_end = |c: char| c.is_whitespace() || "()<>[]{}|\"',;".contains(c);
    plain.split(is_end).any(|word| is_other_address(word.trim_matches([':', '!', '?', '…']), url))
}

/// Separates the text of each misleading link from its address, so that Discord shows both. The text is read as Discord
/// reads it, also in code blocks, because the parser of Markdown sees fewer links than Discord, for example none in
/// HTML.
pub(super) fn show_addresses(text: &str) -> String {
    let mut out = String::with_capacity(text.len());
    for (index, paragraph) in text.split("\n\n").enumerate() {
        if index > 0 {
            out += "\n\n";
        }
        let mut start = 0;
        for (at, _) in paragraph.match_indices("](") {
            // A text without a start in this paragraph began before it.
            let opening = paragraph[start..at].find('[').map(|place| start + place + 1);
            let is_open = start == 0 && index > 0;
            let address = address_after(&paragraph[at + 2..]);
            let is_hidden = match opening {
                Some(opening) => is_misleading(&paragraph[opening..at], address),
                None => is_open,
            };
            out += &paragraph[start..=at];
            if is_hidden && is_address(address) {
                out.push(BREAK);
            }
            start = at + 1;
        }
        out += &paragraph[start..];
    }
    out
}

/// Returns the address at the start of the rest of a link.
fn address_after(rest: &str) -> &str {
    let rest = rest.trim_start_matches(|c: char| c.is_whitespace() || c == '<');
    rest.split(|c: char| c.is_whitespace() || c == ')' || c == '>').next().unwrap_or_default()
}

fn is_address(url: &str) -> bool {
    url.contains("://") || url.starts_with("mailto:")
}

fn is_other_address(word: &str, url: &str) -> bool {
    let word = word.trim_matches(DOTS);
    let host = host_of(word);
    if !word.contains("://") && !is_host(&host) {
        return false;
    }
    let is_host_alone = without_scheme(word).eq_ignore_ascii_case(without_scheme(&host));
    let is_same = without_scheme(word).eq_ignore_ascii_case(without_scheme(url));
    let is_own_host = is_host_alone && host == host_of(url);
    !(is_same || is_own_host)
}

fn is_host(text: &str) -> bool {
    let is_part = |part: &str| !part.is_empty() && part.chars().all(|c| c.is_alphanumeric() || c == '-');
    let mut parts = text.rsplit(DOTS);
    let is_top = |part: &str| part.chars().count() > 1 && part.chars().any(char::is_alphabetic);
    parts.next().is_some_and(|last| is_part(last) && is_top(last))
        && parts.clone().next().is_some()
        && parts.all(is_part)
}

/// Returns the host of an address, which can be without a scheme, in lower case.
fn host_of(address: &str) -> String {
    let rest = without_scheme(address);
    let authority = rest.split(['/', '?', '#', '\\']).next().unwrap_or_default();
    let host = authority.rsplit('@').next().unwrap_or_default();
    host.split(':').next().unwrap_or_default().to_lowercase()
}

/// Removes what people leave out of an address.
fn without_scheme(address: &str) -> &str {
    let rest = address.split_once("://").map_or(address, |(_, rest)| rest);
    let rest = rest.strip_prefix("mailto:").unwrap_or(rest);
    rest.strip_prefix("www.").unwrap_or(rest).trim_end_matches('/')
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn texts_with_another_address_are_misleading() {
        for (text, url, expected) in [
            ("docs", "https://evil.example/x", false),
            ("version 1.2.3, e.g. this", "https://evil.example", false),
            ("src/main.rs", "https://host.example/src/main.rs", false),
            ("host.example", "https://host.example/x", false),
            ("www.host.example", "https://host.example", false),
            ("see host.example/x.", "https://www.host.example/x/", false),
            ("https://host.example/x", "http://host.example/x", false),
            ("me@host.example", "mailto:me@host.example", false),
            ("https://host.example/o/r", "https://evil.example", true),
            ("HOST.example", "https://evil.example", true),
            ("the host.example page", "https://evil.example", true),
            ("host.example", "https://host.example@evil.example/", true),
            ("host.example", "https://evil.example/host.example", true),
            ("host.example", "https://host.example.evil.example", true),
            ("host.example/a", "https://host.example/b", true),
            ("`ho**st**.example`", "https://evil.example", true),
            ("host\u{3002}example", "https://evil.example", true),
            ("me@host.example", "mailto:me@evil.example", true),
            ("https://localhost", "https://evil.example", true),
            ("(host.example)", "https://evil.example", true),
        ] {
            assert_eq!(is_misleading(text, url), expected, "[{text}]({url})");
        }
    }

    #[test]
    fn only_misleading_links_are_separated() {
        let broken = "[a.example]\u{200b}(https://evil.example)";
        for (text, expected) in [
            ("[a](https://b.example) [c](https://d.example) ](", None),
            ("[a.example](https://evil.example)", Some(broken)),
            ("[a.example](src/main.rs)", None),
            (
                "[a.example]( <https://evil.example> 'x')",
                Some("[a.example]\u{200b}( <https://evil.example> 'x')"),
            ),
            ("[a.example ] x](https://evil.example)", Some("[a.example ] x]\u{200b}(https://evil.example)")),
            (
                "[x [a.example] y](https://evil.example)",
                Some("[x [a.example] y]\u{200b}(https://evil.example)"),
            ),
            (
                "[a.example\n\nx](https://evil.example)",
                Some("[a.example\n\nx]\u{200b}(https://evil.example)"),
            ),
        ] {
            assert_eq!(show_addresses(text), expected.unwrap_or(text));
        }
    }
}
