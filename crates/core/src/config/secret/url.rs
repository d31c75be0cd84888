//! URLs in texts: where a URL ends, and its passwords.

use core::ops::Range;

use crate::store_address::decoded;

/// A URL in a text, without its scheme.
pub(super) struct Url<'a> {
    pub text: &'a str,
    /// Length of the part before the first `/`, `\`, `?` or `#`. Most parsers read `\` as `/`.
    authority: usize,
}

impl<'a> Url<'a> {
    /// Returns the URL whose scheme ends at `start` of the text. If the whole text is one URL without spaces, the URL
    /// extends to the end of the text. In other texts, a quote or bracket can end the URL.
    pub(super) fn of(text: &'a str, start: usize) -> Self {
        let after = &text[start..];
        let is_one_word = !text.contains(char::is_whitespace);
        let is_whole = is_one_word && is_scheme(text[..start].trim_end_matches("://"));
        let find = |from: usize, ends: &dyn Fn(char) -> bool| {
            after[from..].find(ends).map_or(after.len(), |end| from + end)
        };
        let ends_authority = |sign: char| sign.is_whitespace() || "/\\?#".contains(sign);
        let is_quote = |sign: char| "\"<>`".contains(sign);
        let first = &after[..find(0, &|sign| ends_authority(sign) || is_quote(sign))];
        // Parsers accept quotes in a password, so a quote does not end the URL within a password. After digits, which
        // may be a port, a quote is within a password if a letter or digit follows: `http://u:80"x@host`. Else the
        // URL ends there, as in JSON: `"http://host:80","me@host"`.
        let after_quote = after[first.len()..].strip_prefix(is_quote);
        let is_before_word = after_quote.is_some_and(|after| after.starts_with(char::is_alphanumeric));
        let in_password = first.rsplit_once(':').is_some_and(|(_, port)| !is_port(port) || is_before_word)
            && !first.contains('@');
        if is_whole || in_password {
            let end = find(0, &char::is_whitespace);
            return Self { text: &after[..end], authority: find(0, &ends_authority) };
        }
        let ends_url = |sign: char| {
            sign.is_whitespace() || is_quote(sign) || (!is_one_word && "'()[]{},|".contains(sign))
        };
        Self { text: &after[..find(first.len(), &ends_url)], authority: first.len() }
    }

    /// Returns the user and the password: the part before the last `@` of the authority. If the authority contains a
    /// colon, returns the part before the last `@` of the URL, because the password may contain an unescaped `/`, `\`,
    /// `?` or `#`.
    pub(super) fn user_and_password(&self) -> Option<&'a str> {
        let authority = &self.text[..self.authority];
        let until = if authority.contains(':') { self.text } else { authority };
        until.rsplit_once('@').map(|(user, _)| user)
    }

    /// Returns the possible passwords. All of them begin after the first colon. One ends at the last `@` of the
    /// authority. If the authority contains a colon, one more ends at each later `@`, because the password may contain
    /// an unescaped `/`, `\`, `?` or `#`.
    pub(super) fn passwords(&self) -> impl Iterator<Item = &'a str> + use<'a> {
        let text = self.text;
        let (authority, others) = text.split_at(self.authority);
        let read = authority.rfind('@');
        let has_colon = authority.contains(':');
        let meant = others.match_indices('@').filter(move |_| has_colon).map(|(at, _)| authority.len() + at);
        read.into_iter().chain(meant).filter_map(|at| Some(text[..at].split_once(':')?.1))
    }

    /// Returns the ranges of the values of `password=` in the query.
    pub(super) fn password_parameters(&self) -> Vec<Range<usize>> {
        let Some(query) = self.text.find('?').map(|at| at + 1) else { return Vec::new() };
        let end = self.text[query..].find('#').map_or(self.text.len(), |at| query + at);
        let mut found = Vec::new();
        let mut start = query;
        for parameter in self.text[query..end].split('&') {
            if let Some((key, value)) = parameter.split_once('=')
                && decoded(key).is_some_and(|key| key.eq_ignore_ascii_case("password"))
                && !value.is_empty()
            {
                found.push(start + key.len() + 1..start + parameter.len());
            }
            start += parameter.len() + 1;
        }
        found
    }
}

pub(super) fn is_scheme(text: &str) -> bool {
    let is_sign = |sign: char| sign.is_ascii_alphanumeric() || "+-.".contains(sign);
    text.starts_with(|first: char| first.is_ascii_alphabetic()) && text.chars().all(is_sign)
}

fn is_port(text: &str) -> bool {
    !text.is_empty() && text.bytes().all(|digit| digit.is_ascii_digit())
}
