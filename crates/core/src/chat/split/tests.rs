use proptest::prelude::*;

use super::*;

fn lengths(parts: &[String]) -> Vec<usize> {
    parts.iter().map(|part| length(part)).collect()
}

#[test]
fn short_texts_are_one_part() {
    for (text, expected) in [
        ("", &[][..]),
        (" \n\n ", &[]),
        ("```\n```", &[]),
        ("one\n\ntwo", &["one\n\ntwo"]),
        ("\n\n  indented\n\n", &["  indented"]),
        ("```rust\nlet a;\n```\n", &["```rust\nlet a;\n```"]),
    ] {
        assert_eq!(split(text, 200), expected, "{text:?}");
    }
}

#[test]
fn a_part_ends_at_the_best_place() {
    let words = |count: usize| "word ".repeat(count);
    for (first, second) in [
        (format!("{}\n\n", words(21)), format!("{}\n{}. {}", words(4), words(3), words(20))),
        (format!("{}\n", words(21)), format!("{}. {}", words(4), words(20))),
        (format!("{}. ", words(21)), format!("{}, {}", words(4), words(20))),
        (format!("{}! ", words(21)), format!("{}, {}", words(4), words(20))),
        (format!("{}? ", words(21)), format!("{}, {}", words(4), words(20))),
        (format!("{}, ", words(21)), words(30)),
        (words(40), words(10)),
        ("x".repeat(200), "y".repeat(100)),
        // No place after the first 100 characters.
        (format!("word {}", "x".repeat(195)), "x".repeat(10)),
    ] {
        let parts = split(&format!("{first}{second}"), 200);
        assert_eq!(parts, [first.trim_end(), second.trim_end()], "{first}|{second}");
    }
}

#[test]
fn a_cut_code_block_is_closed_and_opened_again() {
    let lines: Vec<String> = (1..=30).map(|number| format!("let line = {number};\n")).collect();
    let code = lines.concat();
    for (open, close) in
        [("```rust", "```"), ("````rust", "````"), ("~~~rust", "~~~"), ("  ```rust", "  ```")]
    {
        let parts = split(&format!("Before.\n\n{open}\n{code}{close}\n\nAfter."), 200);
        assert!(parts.len() >= 3, "{parts:#?}");
        for (index, part) in parts.iter().enumerate() {
            assert!(length(part) <= 200);
            let begins = if index == 0 { format!("Before.\n\n{open}\n") } else { format!("{open}\n") };
            let ends =
                if index == parts.len() - 1 { format!("{close}\n\nAfter.") } else { format!(";\n{close}") };
            assert!(part.starts_with(&begins) && part.ends_with(&ends), "{part}");
        }
    }
}

#[test]
fn a_fence_in_a_longer_fence_does_not_close_it() {
    let text = format!("````md\n```rust\n{}```\n{}````\n", "code\n".repeat(30), "more\n".repeat(30));
    let parts = split(&text, 200);
    assert!(parts.len() > 1);
    assert!(parts.iter().all(|part| part.starts_with("````md\n") && part.ends_with("\n````")), "{parts:#?}");
}

#[test]
fn a_text_is_cut_before_a_code_block_rather_than_after_its_first_line() {
    let text = format!("{}\n```rust\n{}\n```", "x".repeat(185), "y".repeat(100));
    let expected = ["x".repeat(185), format!("```rust\n{}\n```", "y".repeat(100))];
    assert_eq!(split(&text, 200), expected);
}

#[test]
fn one_long_line_of_code_is_cut_within_the_limit() {
    let text = format!("```js\n{}\n```", "x".repeat(700));
    let parts = split(&text, 200);
    assert!(parts.iter().all(|part| part.starts_with("```js\nx") && part.ends_with("x\n```")), "{parts:#?}");
    assert!(lengths(&parts).iter().all(|length| *length <= 200));
}

#[test]
fn characters_links_and_entities_stay_whole() {
    for atom in [
        "👨‍👩‍👧",
        "👍🏽",
        "🇩🇪",
        "e\u{301}",
        "❤\u{fe0f}",
        "&amp;",
        "<https://example.com|the text of a link>",
        "[the text](https://example.com)",
        "`inline code`",
    ] {
        for before in 150..200 {
            let parts = split(&format!("{}{}", "x".repeat(before), atom.repeat(20)), 200);
            let whole: usize = parts.iter().map(|part| part.matches(atom).count()).sum();
            assert_eq!(whole, 20, "{atom} after {before}: {parts:#?}");
        }
    }
}

#[test]
fn shortened_texts_end_with_an_ellipsis() {
    for (text, limit, expected) in
        [("short", 5, "short"), ("shorter", 5, "shor…"), ("a 👍🏽 b", 5, "a…"), ("one two", 5, "one…")]
    {
        assert_eq!(shorten(text, limit), expected);
    }
}

proptest! {
    #[test]
    fn parts_are_within_the_limit_and_lose_nothing(
        lines in prop::collection::vec("```|```rust|````|~~~|> ```|- ```sh|.{0,40}|[a-z ,.&;<>👍🏽]{0,300}|\n", 0..60),
        limit in 100_usize..400,
    ) {
        let text = lines.join("\n");
        let pieces = pieces(&text, limit);
        let joined: String = pieces.iter().map(|piece| piece.body).collect();
        prop_assert_eq!(joined, &text[..]);
        for part in split(&text, limit) {
            prop_assert!(length(&part) <= limit, "{} > {limit}: {part}", length(&part));
            prop_assert!(!part.trim().is_empty() && !is_bare(&part));
        }
    }
}
