//! Parts of messages that name known words.

pub use crate::suggest::closest;

/// Returns ``did you mean `prompt`?``, if a word is similar.
pub(super) fn did_you_mean<'a>(word: &str, known: impl IntoIterator<Item = &'a str>) -> Option<String> {
    closest(word, known).map(|known| format!("did you mean `{known}`?"))
}

/// Formats `a, b or c`, each in backticks.
pub(super) fn one_of<'a>(words: impl IntoIterator<Item = &'a str>) -> String {
    let words: Vec<String> = words.into_iter().map(|word| format!("`{word}`")).collect();
    match words.as_slice() {
        [] => String::new(),
        [only] => only.clone(),
        [most @ .., last] => format!("{} or {last}", most.join(", ")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn words_are_listed() {
        assert_eq!(one_of(["a", "b", "c"]), "`a`, `b` or `c`");
    }
}
