//! The texts of agents and of the people who write to them can be large and odd. Each function that formats them needs
//! a time that grows with their size. A function whose time grows with the square of the size would not end here.

use serde_json::{Value, json};

use super::ChatPlatform::{Discord, Slack};
use super::escape::{code_block, escape, inline_code, with_codes};
use super::markdown::{convert, post_limit, to_posts};
use super::render::{AnswerEnd, AnswerOutcome, OutputRenderer};
use super::settings::{ChatOutput, OutputDetail, PostedMessages};
use super::split::{length, shorten, split};
use super::texts::ask_posts;
use crate::ask::{Ask, AskState, AskSubject};
use crate::invisible::without_invisible;
use crate::output::OutputMessage;

/// Size of the texts in bytes. In a build for tests, its square is more steps than a test has time for.
const SIZE: usize = 400_000;

/// Returns texts in which simple searches go back to the start, or on to the end, for each character.
fn large_texts() -> Vec<(&'static str, String)> {
    let filled = |text: &str| text.repeat(SIZE / text.len());
    let half = |text: &str| text.repeat(SIZE / 2 / text.len());
    let growing = (1..2_000).map(|count| "`".repeat(count)).collect::<Vec<_>>().join(" ");
    vec![
        ("spaces", filled(" ")),
        ("spaces in a line", format!("x{}x", filled(" "))),
        ("spaces in code", format!("```\nx{}\n```", filled(" "))),
        ("line ends", filled("\n")),
        ("flags", filled("🇩")),
        ("joined characters", filled("\u{200d}")),
        ("marks on a character", filled("\u{301}")),
        ("backticks", filled("`")),
        ("runs of backticks", growing),
        ("open code", filled("`a ``b ```c ")),
        ("angles", filled("<")),
        ("brackets", filled("[")),
        ("images", filled("![")),
        ("links", filled("[a](")),
        ("links in links", format!("{}{}", half("[![a"), half("](u)"))),
        ("entities", filled("&a")),
        ("bold", format!("{}x{}", half("**"), half("**"))),
        ("bold and italic", format!("{}x{}", half("*_"), half("_*"))),
        ("italic in bold", format!("{}{}x", half("**a "), half("_b_ "))),
        ("lines in bold", format!("{}{}", half("**a "), half("\nx"))),
        ("lists", filled("- ")),
        ("lists before a text", format!("{}x", filled("1. "))),
        ("lists before lines", format!("{}x{}", half("- "), half("\nx"))),
        ("quotes", filled("> ")),
        ("quotes before lines", format!("{}x{}", half(">"), half("\nx"))),
        ("fences", filled("```\n")),
        ("a wide table with many rows", format!("{}\n{}\n{}", half("|a"), half("|-"), half("|\n"))),
        ("references", format!("[a]: /{}\n\n{}", half("u"), half("[a]"))),
        ("headings", filled("a\n=\n")),
        ("escape sequences", filled("\u{1b}[")),
    ]
}

fn ask(what: AskSubject) -> Ask {
    let asked_at = jiff::Timestamp::UNIX_EPOCH;
    Ask {
        id: "job-2026-01-05-a1b2c3.1".parse().unwrap(),
        job: "job-2026-01-05-a1b2c3".parse().unwrap(),
        agent: "coder".parse().unwrap(),
        schedule: None,
        attempt: 1,
        what,
        asked_at,
        expires_at: asked_at,
        state: AskState::Open,
    }
}

fn output() -> ChatOutput {
    ChatOutput {
        tool_results: true,
        tool_result_max_length: 900,
        system_status: true,
        errors: true,
        result_summary: false,
        typing_indicator: true,
        acknowledge_emoji: None,
        assistant_messages: PostedMessages::All,
        progress_indicator: true,
        detail: OutputDetail::Verbose,
    }
}

#[test]
fn large_texts_are_split() {
    for (name, text) in large_texts() {
        let parts = split(&text, 2_000);
        assert!(parts.iter().all(|part| length(part) <= 2_000), "{name}");
        assert!(length(&shorten(&text, SIZE)) <= SIZE, "{name}");
    }
}

#[test]
fn large_texts_are_escaped() {
    for (name, text) in large_texts() {
        assert!(with_codes(&text).len() >= text.len(), "{name}");
        assert!(without_invisible(&text).len() <= text.len(), "{name}");
        for platform in [Slack, Discord] {
            for formatted in
                [escape(&text, platform), code_block(&text, "sh", platform), inline_code(&text, platform)]
            {
                assert!(formatted.len() <= 6 * text.len() + 20, "{name}");
            }
        }
    }
}

#[test]
fn large_texts_in_markdown_are_converted_for_slack() {
    for (name, text) in large_texts() {
        assert!(convert(&text, Slack).len() <= 20 * SIZE, "{name}");
    }
}

#[test]
fn large_texts_in_markdown_are_converted_for_discord() {
    for (name, text) in large_texts() {
        assert!(convert(&text, Discord).len() <= 20 * SIZE, "{name}");
    }
}

#[test]
fn large_asks_are_one_post_with_a_file() {
    for (name, text) in large_texts() {
        for platform in [Slack, Discord] {
            for what in [
                AskSubject::Tool { tool: "Bash".to_owned(), input: json!({ "command": text }) },
                AskSubject::Tool {
                    tool: "Write".to_owned(),
                    input: json!({ "file_path": "a", "content": text }),
                },
                AskSubject::question(&text),
            ] {
                let posts = ask_posts(&ask(what), true, platform);
                assert!(posts.len() == 1 && posts[0].file.is_some(), "{name}");
                assert!(length(&posts[0].text) <= post_limit(platform), "{name}");
            }
        }
    }
}

#[test]
fn large_outputs_become_few_posts() {
    let end = AnswerEnd {
        job: "job-2026-01-05-a1b2c3".parse().unwrap(),
        outcome: AnswerOutcome::Succeeded,
        duration: None,
        usage: None,
    };
    for (name, text) in large_texts() {
        for platform in [Slack, Discord] {
            // The longest text that is not a file for its length alone.
            let longest = text.chars().take(20_000).collect::<String>();
            let lines = [
                json!({"type": "assistant", "content": text}),
                json!({"type": "assistant", "content": longest}),
                json!({"type": "tool_use", "tool_name": text, "tool_use_id": "1", "input": {"command": text}}),
                json!({"type": "tool_result", "tool_use_id": "1", "result": text, "success": true}),
                json!({"type": "error", "message": text}),
                json!({"type": "system", "subtype": "status", "content": text}),
            ];
            let mut renderer = OutputRenderer::new(platform, &output());
            let push = |value: Value| renderer.push(&OutputMessage::from_json(value).unwrap());
            let posts: Vec<_> = lines.into_iter().flat_map(push).collect();
            assert!(posts.len() <= 60, "{name}: {}", posts.len());
            assert!(posts.iter().all(|post| length(&post.text) <= post_limit(platform)), "{name}");
            assert!(length(&renderer.progress()) <= post_limit(platform), "{name}");
            assert!(renderer.end(&end).len() <= 4, "{name}");
        }
    }
}

#[test]
fn a_text_that_grows_with_its_notation_becomes_a_file() {
    // Each `&` is five characters on Slack.
    let text = "&".repeat(50_000);
    assert!(to_posts(&text, Slack).len() > 20);
    let mut renderer = OutputRenderer::new(Slack, &output());
    let posts =
        renderer.push(&OutputMessage::from_json(json!({"type": "assistant", "content": text})).unwrap());
    assert_eq!((posts.len(), posts[0].file.as_ref().map(|file| file.content.len())), (1, Some(50_000)));
}
