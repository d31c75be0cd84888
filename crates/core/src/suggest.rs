//! Finds the known word that is closest to a mistyped word.

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
    }
}
