use jiff::SignedDuration;
use serde_json::{Value, json};

use super::*;
use crate::job::{JobUsage, ModelUsage};
use ChatPlatform::{Discord, Slack};

fn settings() -> ChatOutput {
    ChatOutput {
        tool_results: true,
        tool_result_max_length: 50,
        system_status: true,
        errors: true,
        result_summary: false,
        typing_indicator: true,
        acknowledge_emoji: None,
        assistant_messages: PostedMessages::Answers,
        progress_indicator: true,
        detail: OutputDetail::Standard,
    }
}

fn line(value: Value) -> OutputMessage {
    OutputMessage::from_json(value).unwrap()
}

fn text(content: &str) -> Value {
    json!({"type": "assistant", "content": content})
}

fn text_with_id(content: &str, id: &str) -> Value {
    json!({"type": "assistant", "content": content, "line": {"message": {"id": id}}})
}

fn call(id: &str, command: &str) -> Value {
    json!({"type": "tool_use", "tool_name": "Bash", "tool_use_id": id, "input": {"command": command}})
}

fn result(id: &str, text: &str) -> Value {
    json!({"type": "tool_result", "tool_use_id": id, "result": text, "success": true})
}

fn ended(outcome: AnswerOutcome) -> AnswerEnd {
    let duration = Some(SignedDuration::from_secs(185));
    AnswerEnd { job: "job-2026-01-05-a1b2c3".parse().unwrap(), outcome, duration, usage: None }
}

fn failed(reason: &str) -> AnswerEnd {
    ended(AnswerOutcome::Failed { reason: reason.to_owned() })
}

/// Returns the posts of each line, then those of the end.
fn render(output: &ChatOutput, lines: &[Value], end: &AnswerEnd) -> Vec<Vec<String>> {
    let mut renderer = OutputRenderer::new(Discord, output);
    let mut posts: Vec<_> = lines.iter().map(|value| renderer.push(&line(value.clone()))).collect();
    posts.push(renderer.end(end));
    posts.into_iter().map(|posts| posts.into_iter().map(|post| post.text).collect()).collect()
}

fn all_posts(output: &ChatOutput, lines: &[Value], end: &AnswerEnd) -> Vec<String> {
    render(output, lines, end).concat()
}

#[test]
fn answers_are_texts_of_turns_without_tool_calls() {
    let done = ended(AnswerOutcome::Succeeded);
    let (tool, end_line) =
        ([call("t", "ls"), result("t", "x")], json!({"type": "system", "subtype": "result"}));
    let subagent = json!({"type": "assistant", "content": "inner", "line": {"parent_tool_use_id": "t"}});
    let partial = json!({"type": "assistant", "content": "Ans", "partial": true});
    let user = json!({"type": "system", "subtype": "user_input", "content": "and now?"});
    let [call, result] = tool;
    for (lines, expected) in [
        (vec![text("Answer")], vec!["Answer"]),
        (vec![text("I look."), call.clone(), result.clone(), text("Answer")], vec!["Answer"]),
        (vec![partial, text("Answer"), end_line.clone()], vec!["Answer"]),
        (vec![text("Answer"), end_line, text("More")], vec!["Answer", "More"]),
        (vec![text("One"), user, text("Two")], vec!["One", "Two"]),
        // Messages with ids.
        (vec![text_with_id("One", "m1"), text_with_id("Two", "m2")], vec!["One", "Two"]),
        (vec![text_with_id("One", "m1"), text_with_id("Two", "m1"), call.clone()], vec![]),
        // Without ids, these texts belong to the same turn.
        (vec![text("One"), text("Two"), call.clone(), result.clone(), text("Three")], vec!["Three"]),
        (vec![call.clone(), subagent, result, text("Answer")], vec!["Answer"]),
    ] {
        let mut posts = all_posts(&settings(), &lines, &done);
        if expected.is_empty() {
            // The final output.
            posts.clear();
        }
        assert_eq!(posts, expected, "{lines:?}");
    }
}

#[test]
fn an_answer_is_posted_as_soon_as_its_turn_is_over() {
    let lines = [text_with_id("One", "m1"), text_with_id("Two", "m2"), call("t", "ls"), result("t", "x")];
    let end = failed("it broke");
    let posts = render(&settings(), &lines, &end);
    assert_eq!(posts[1], ["One"]);
    assert!(posts[0].is_empty() && posts[2].is_empty() && posts[3].is_empty());
    let all = ChatOutput { assistant_messages: PostedMessages::All, ..settings() };
    let posts = render(&all, &lines, &end);
    assert_eq!((&posts[0][..], &posts[1][..]), (&["One".to_owned()][..], &["Two".to_owned()][..]));
}

#[test]
fn later_lines_and_restarts_change_no_post() {
    let output = ChatOutput { assistant_messages: PostedMessages::All, ..settings() };
    let mut lines = Vec::new();
    for round in 0..20 {
        lines.push(text_with_id(&format!("Text {round}.\n\n```rs\n{}```", "code\n".repeat(600)), "m"));
        lines.push(call(&format!("t{round}"), "ls"));
        lines.push(result(&format!("t{round}"), &"x".repeat(round * 5)));
    }
    let whole = render(&output, &lines, &ended(AnswerOutcome::Succeeded));
    for count in 0..lines.len() {
        let part = render(&output, &lines[..count], &failed("lost"));
        assert_eq!(part[..count], whole[..count]);
    }
}

#[test]
fn results_of_tools_are_folded_or_posted_with_a_file() {
    let long = "line of output\n".repeat(100);
    let lines = [call("t1", "ls"), result("t1", "a\nb"), call("t2", "cargo test"), result("t2", &long)];
    let mut renderer = OutputRenderer::new(Slack, &settings());
    let posts: Vec<_> = lines.iter().flat_map(|value| renderer.push(&line(value.clone()))).collect();
    let [post] = &posts[..] else { panic!("{posts:#?}") };
    assert!(post.text.starts_with("Bash `cargo test`\n```\nline of output\n"), "{}", post.text);
    assert!(post.text.ends_with("…\n```\nThe whole text has 1500 characters and is in tool-result-2.txt."));
    assert!(length_of_code(&post.text) <= 300);
    let file = RenderedFile { name: "tool-result-2.txt".to_owned(), content: long.clone() };
    assert_eq!(post.file, Some(file));
    assert!(renderer.progress().contains("✓ Bash `ls` → a b"), "{}", renderer.progress());

    let done = ended(AnswerOutcome::Succeeded);
    let without_progress = ChatOutput { progress_indicator: false, ..settings() };
    assert_eq!(all_posts(&without_progress, &lines, &done)[0], "Bash `ls`\n```\na\nb\n```");
    let quiet = ChatOutput { tool_results: false, ..settings() };
    assert_eq!(all_posts(&quiet, &lines[..2], &done), ["a\nb"], "only the final output");
}

fn length_of_code(post: &str) -> usize {
    post.split("```").nth(1).unwrap().trim().chars().count()
}

#[test]
fn a_job_without_an_answer_posts_its_result_or_one_sentence() {
    let result_line = json!({"type": "system", "subtype": "result", "line": {"result": "The **result**"}});
    let stdout = json!({"type": "system", "content": "hello"});
    let done = ended(AnswerOutcome::Succeeded);
    let by = |by: Option<&str>| ended(AnswerOutcome::Cancelled { by: by.map(str::to_owned) });
    for (lines, end, expected) in [
        (vec![result_line.clone()], &done, vec!["The **result**"]),
        (vec![stdout], &done, vec!["hello"]),
        (vec![text("Answer"), result_line], &done, vec!["Answer"]),
        (vec![], &done, vec!["The job is done. The agent wrote no answer. Job: `job-2026-01-05-a1b2c3`"]),
        (
            vec![],
            &failed("exit code 3"),
            vec!["The job failed: exit code 3. More about it: `/why job-2026-01-05-a1b2c3`"],
        ),
        (
            vec![text("Answer")],
            &failed("exit code 3."),
            vec!["Answer", "The job failed: exit code 3. More about it: `/why job-2026-01-05-a1b2c3`"],
        ),
        (vec![], &by(None), vec!["Job job-2026-01-05-a1b2c3 was stopped."]),
        (vec![], &by(Some("@everyone")), vec!["Job job-2026-01-05-a1b2c3 was stopped by @\u{200b}everyone."]),
    ] {
        assert_eq!(all_posts(&settings(), &lines, end), expected, "{lines:?}");
    }
}

#[test]
fn a_very_long_text_is_a_file() {
    let mut renderer = OutputRenderer::new(Discord, &settings());
    let long = "word ".repeat(9_000);
    assert!(renderer.push(&line(text(&long))).is_empty());
    let posts = renderer.end(&ended(AnswerOutcome::Succeeded));
    let file = RenderedFile { name: "message-1.md".to_owned(), content: long };
    assert_eq!((posts.len(), posts[0].file.as_ref()), (1, Some(&file)));
    assert!(posts[0].text.starts_with("The agent wrote a long message.\n```\nword "));
}

#[test]
fn a_long_final_output_is_several_messages_with_whole_code_blocks() {
    let code = "let number = 1;\n".repeat(1_000);
    let output = format!("Result:\n```rust\n{code}```\nThe end.");
    let as_output = [json!({"type": "system", "content": output})];
    let posts = all_posts(&settings(), &as_output, &ended(AnswerOutcome::Succeeded));
    assert!(posts.len() > 5, "{}", posts.len());
    assert_eq!(posts, all_posts(&settings(), &[text(&output)], &ended(AnswerOutcome::Succeeded)));
    assert!(posts.iter().all(|post| post.matches("```").count() == 2), "{posts:#?}");
}

#[test]
fn a_very_long_final_output_is_a_file() {
    let lines = [json!({"type": "system", "content": "x".repeat(50_000)})];
    let mut renderer = OutputRenderer::new(Discord, &settings());
    assert!(renderer.push(&line(lines[0].clone())).is_empty());
    let posts = renderer.end(&ended(AnswerOutcome::Succeeded));
    let file = posts[0].file.as_ref().unwrap();
    assert_eq!((posts.len(), &file.name[..], file.content.len()), (1, "output-a1b2c3.txt", 50_000));
}

#[test]
fn an_attempt_that_is_repeated_answers_again() {
    let attempt = serde_json::to_value(OutputMessage::attempt(2, Some("exit code 1"))).unwrap();
    let lines = [text("API error"), attempt, text("Answer")];
    assert_eq!(all_posts(&settings(), &lines, &ended(AnswerOutcome::Succeeded)), ["Answer"]);
}

#[test]
fn errors_of_the_agent_are_posted_if_wanted() {
    let lines = [json!({"type": "error", "message": "no access to <x>"}), text("Answer")];
    let done = ended(AnswerOutcome::Succeeded);
    assert_eq!(all_posts(&settings(), &lines, &done), ["**Error:** no access to <x>", "Answer"]);
    let quiet = ChatOutput { errors: false, ..settings() };
    assert_eq!(all_posts(&quiet, &lines, &done), ["Answer"]);
}

#[test]
fn the_summary_states_duration_turns_cost_and_tokens() {
    let output = ChatOutput { result_summary: true, ..settings() };
    let model = ModelUsage {
        input_tokens: 1_000,
        output_tokens: 999,
        cache_read_input_tokens: 1_234_567,
        cost_usd: Some(0.25),
        ..ModelUsage::default()
    };
    let usage = |total_cost_usd, num_turns| JobUsage {
        per_model: [("m".to_owned(), model)].into(),
        total_cost_usd,
        num_turns,
        ..JobUsage::default()
    };
    for (usage, expected) in [
        (Some(usage(Some(0.123_456), Some(1))), "3m 5s · 1 turn · $0.1235 · 1,235,567 tokens in, 999 out"),
        (Some(usage(None, Some(12))), "3m 5s · 12 turns · $0.2500 · 1,235,567 tokens in, 999 out"),
    ] {
        let end = AnswerEnd { usage, ..ended(AnswerOutcome::Succeeded) };
        assert_eq!(all_posts(&output, &[text("Answer")], &end), ["Answer", expected]);
    }
    let end = AnswerEnd { usage: None, ..ended(AnswerOutcome::Succeeded) };
    assert_eq!(all_posts(&output, &[text("Answer")], &end), ["Answer\n3m 5s"], "nothing but the duration");
}

#[test]
fn the_progress_message_shows_the_last_steps() {
    let render = |detail, count: usize| {
        let mut renderer = OutputRenderer::new(Discord, &ChatOutput { detail, ..settings() });
        renderer.push(&line(json!({"type": "system", "subtype": "init"})));
        renderer.push(&line(json!({"type": "system", "subtype": "hook", "content": "ran"})));
        for number in 0..count {
            renderer.push(&line(call(&format!("t{number}"), &format!("step {number}"))));
        }
        renderer
    };
    assert_eq!(render(OutputDetail::Minimal, 1).progress(), "⏳ Working · 1 tool call");
    assert_eq!(
        render(OutputDetail::Standard, 1).progress(),
        "⏳ Working · 1 tool call\n• init\n▸ Bash `step 0`"
    );
    assert!(render(OutputDetail::Verbose, 1).progress().contains("• init\n• hook: ran\n"));
    assert_eq!(render(OutputDetail::Standard, 30).progress().lines().count(), 9);
    assert_eq!(render(OutputDetail::Verbose, 30).progress().lines().count(), 21);

    let mut renderer = render(OutputDetail::Minimal, 2);
    renderer.push(&line(json!({"type": "tool_result", "tool_use_id": "t0", "error": "no such file"})));
    for (end, expected) in [
        (ended(AnswerOutcome::Succeeded), "✅ Done in 3m 5s · 2 tool calls"),
        (failed("it broke"), "❌ Failed: it broke · 2 tool calls"),
        (ended(AnswerOutcome::Cancelled { by: Some("Ann".to_owned()) }), "⏹️ Stopped by Ann · 2 tool calls"),
    ] {
        renderer.end(&end);
        assert_eq!(renderer.progress(), expected);
    }
}

#[test]
fn the_progress_message_is_within_the_limit_and_mentions_nobody() {
    let output = ChatOutput { detail: OutputDetail::Verbose, ..settings() };
    for platform in [Discord, Slack] {
        let mut renderer = OutputRenderer::new(platform, &output);
        for number in 0..40 {
            let id = format!("t{number}");
            renderer.push(&line(call(&id, &"<@1> @everyone & `x` ".repeat(20))));
            renderer.push(&line(result(&id, &"<!channel> ".repeat(4))));
        }
        let text = renderer.progress();
        assert!(super::super::split::length(&text) <= super::super::markdown::post_limit(platform));
        assert!(text.lines().count() > 2);
        assert!(!text.contains("<@") && !text.contains("<!channel") || platform == Discord, "{text}");
        assert!(!text.contains("@everyone") || platform == Slack, "{text}");
    }
}
