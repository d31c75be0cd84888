//! Characters that are not displayed.

use std::iter::Peekable;
use std::str::Chars;

/// Checks whether a character is default-ignorable in Unicode, that is, displayed as nothing: zero-width marks, marks
/// that change the direction of text, variation selectors, fillers and tags.
pub const fn is_invisible(character: char) -> bool {
    matches!(
        character,
        '\u{ad}'
            | '\u{34f}'
            | '\u{61c}'
            | '\u{115f}'..='\u{1160}'
            | '\u{17b4}'..='\u{17b5}'
            | '\u{180b}'..='\u{180f}'
            | '\u{200b}'..='\u{200f}'
            | '\u{202a}'..='\u{202e}'
            | '\u{2060}'..='\u{206f}'
            | '\u{3164}'
            | '\u{fe00}'..='\u{fe0f}'
            | '\u{feff}'
            | '\u{ffa0}'
            | '\u{fff0}'..='\u{fff8}'
            | '\u{1bca0}'..='\u{1bca3}'
            | '\u{1d173}'..='\u{1d17a}'
            | '\u{e0000}'..='\u{e0fff}'
    )
}

/// Removes everything that people do not see: escape sequences, control characters except tabs, marks that change the
/// direction of text, and invisible characters. Every line end becomes a line feed.
pub fn without_invisible(text: &str) -> String {
    let mut out = String::with_capacity(text.len());
    let mut rest = text.chars().peekable();
    while let Some(character) = rest.next() {
        match character {
            '\u{1b}' => skip_escape(&mut rest),
            '\u{9b}' => skip_until_final(&mut rest),
            '\r' if rest.peek() == Some(&'\n') => {}
            '\r' | '\u{85}' | '\u{2028}' | '\u{2029}' => out.push('\n'),
            '\n' | '\t' => out.push(character),
            modifier if is_modifier(modifier) => {
                if out.ends_with(|last: char| !last.is_whitespace() && !is_invisible(last)) {
                    out.push(modifier);
                }
            }
            hidden if hidden.is_control() || is_invisible(hidden) => {}
            plain => out.push(plain),
        }
    }
    out
}

/// Checks whether the character joins or varies the character before it, as in emoji and in Persian. One such character
/// after a visible character is part of the text; several could hide a message.
const fn is_modifier(character: char) -> bool {
    matches!(character, '\u{200c}' | '\u{200d}' | '\u{fe0e}' | '\u{fe0f}')
}

fn skip_escape(rest: &mut Peekable<Chars<'_>>) {
    match rest.peek() {
        Some('[') => {
            rest.next();
            skip_until_final(rest);
        }
        // Strings for the terminal (titles, links) continue up to the control character that ends them.
        Some(']' | 'P' | 'X' | '^' | '_') => while rest.next_if(|c| !c.is_control()).is_some() {},
        _ => {
            while rest.next_if(|c| matches!(c, ' '..='/')).is_some() {}
            rest.next_if(|c| matches!(c, '0'..='~'));
        }
    }
}

/// Skips the rest of a control sequence: its parameters and its final character.
fn skip_until_final(rest: &mut Peekable<Chars<'_>>) {
    while rest.next_if(|c| matches!(c, ' '..='?')).is_some() {}
    rest.next_if(|c| matches!(c, '@'..='~'));
}
