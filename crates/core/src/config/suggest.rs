//! "Did you mean": finds the closest known word.

/// Returns the closest word; none if no word is similar. The number of letters that may differ is a third of the length
/// of `word`, but at least one and at most four. A word of one letter has to be equal.
pub fn closest<'a>(word: &str, known: impl IntoIterator<Item = &'a str>) -> Option<&'a str> {
    let lower = word.to_lowercase();
    let length = lower.chars().count();
    let most = (length / 3).clamp(1, 4).min(length.saturating_sub(1));
    known
        .into_iter()
        .filter(|known| known.len().abs_diff(word.len()) <= 4 * most)
        .map(|known| (strsim::damerau_levenshtein(&lower, &known.to_lowercase()), known))
        .filter(|(distance, _)| *distance <= most)
        .min_by_key(|(distance, _)| *distance)
        .map(|(_, known)| known)
}

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
    fn the_closest_word_is_suggested() {
        let keys = ["prompt", "enabled", "type", "interval", "on"];
        for (word, expected) in [
            ("promt", Some("prompt")),
            ("Prompt", Some("prompt")),
            ("pormpt", Some("prompt")),
            ("enable", Some("enabled")),
            ("tpye", Some("type")),
            ("zzz", None),
            ("x", None),
            ("", None),
        ] {
            assert_eq!(closest(word, keys), expected, "{word}");
        }
        assert_eq!(one_of(["a", "b", "c"]), "`a`, `b` or `c`");
    }
}
