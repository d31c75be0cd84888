use jiff::SignedDuration;
use serde_json::{Value, json};

use super::*;
use crate::actor::Actor;
use crate::ask::{Answered, Ask, AskState, AskSubject};
use crate::budget::{BudgetOwner, BudgetWindow, OverBudget, Unit};
use crate::chat::markdown::post_limit;
use crate::chat::render::RenderedPost;
use crate::chat::split::length;
use ChatPlatform::{Discord, Slack};

fn agent() -> AgentName {
    "coder".parse().unwrap()
}

fn job() -> JobId {
    "job-2026-01-05-a1b2c3".parse().unwrap()
}

fn attachment(name: &str, media_type: &str, bytes: u64) -> ChatAttachment {
    let (id, url) = ("1".to_owned(), String::new());
    ChatAttachment {
        id,
        name: name.to_owned(),
        media_type: media_type.to_owned(),
        bytes,
        url,
        is_voice: false,
    }
}

#[test]
fn notices_are_plain_sentences() {
    let now: Timestamp = "2026-01-05T14:00:00Z".parse().unwrap();
    let later: Timestamp = "2026-01-05T14:05:10Z".parse().unwrap();
    let rate = |messages| MessageRate { messages, period: SignedDuration::from_mins(10) };
    let (agent, job) = (&agent(), &job());
    let over = |spent| OverBudget {
        scope: BudgetOwner::Person,
        window: BudgetWindow::Day,
        unit: Unit::Usd,
        limit: 2_500_000,
        spent,
        reserved: 400_000,
        needed: 200_000,
        until: Some(later),
    };
    let large = attachment("a `b`.zip", "application/zip", 104_857_600);
    for (text, expected) in [
        (
            waiting(agent, 3, job, Slack),
            "Your message is number 3 in the queue of agent coder. `!cancel a1b2c3` removes it from the queue.",
        ),
        (started(agent, Slack), "Agent coder now works on your message."),
        (stranger(agent, Slack), "You may not talk to agent coder. The owner of the fleet decides who may."),
        (
            stranger_in_direct(agent, Slack),
            "You may not talk to agent coder in direct messages. The owner of the fleet decides who may.",
        ),
        (blocked(), "This bot does not answer your messages."),
        (no_direct_messages(agent, Slack), "Agent coder takes no direct messages."),
        (needs_operator("schedule run", Discord), "Only operators may use `/schedule run`."),
        (
            needs_operator_to_stop(job),
            "job-2026-01-05-a1b2c3 answers somebody else. Only operators may stop it.",
        ),
        (
            rate_reached(rate(1), later, now),
            "You may send 1 message in 10m. You can write again in 5m 10s (14:05 UTC).",
        ),
        (
            rate_reached(rate(5), later, now),
            "You may send 5 messages in 10m. You can write again in 5m 10s (14:05 UTC).",
        ),
        (
            over_person_budget(&over(2_500_000), now),
            "Your budget of $2.50 for one day is used up. You can write again in 5m 10s (14:05 UTC).",
        ),
        (
            over_person_budget(&over(2_000_000), now),
            "Your budget of $2.50 for one day has no room for this message: $2.00 is used, $0.40 is reserved for your earlier messages, and a job may cost $0.20. The budget is renewed in 5m 10s (14:05 UTC).",
        ),
        (
            waits_for_budget(agent, &over(2_000_000), job, Slack),
            "Your message to agent coder waits, because your budget of $2.50 for one day has no room for it: $2.00 is used, $0.40 is reserved for your earlier messages, and a job may cost $0.20. It starts when your running jobs have ended and have left enough. `!cancel a1b2c3` removes it from the queue.",
        ),
        (
            attachment_too_large(&large, 10_485_760, Slack),
            "The agent did not get `a 'b'.zip`: the file has 104 MB, and the maximum is 10.4 MB.",
        ),
        (
            attachment_type_refused(&large, &["image/*".to_owned(), "text/plain".to_owned()], Slack),
            "The agent did not get `a 'b'.zip`: files of type `application/zip` are not allowed. Allowed types: `image/*`, `text/plain`",
        ),
        (
            attachment_type_refused(&attachment("x", "", 1), &["image/*".to_owned()], Slack),
            "The agent did not get `x`: its type is not known. Allowed types: `image/*`",
        ),
        (too_many_attachments(7, 5), "The agent got only 5 of your 7 files. A message may have at most 5."),
        (
            attachment_failed(&attachment("x", "", 1), "status 404.", Slack),
            "The agent did not get `x`: status 404.",
        ),
        (
            file_not_posted("a.txt", "it is too large", Slack),
            "The agent sent `a.txt`, which could not be posted: it is too large.",
        ),
        (
            attachments_ignored(agent, true, Slack),
            "Agent coder takes no files. Only your text was passed on.",
        ),
        (attachments_ignored(agent, false, Slack), "Agent coder takes no files. Nothing was passed on."),
        (voice_ignored(agent, Slack), "Agent coder takes no voice messages. Please write your message."),
        (voice_failed("no <key>", Slack), "Your voice message could not be transcribed: no &lt;key&gt;."),
        (transcript("Hello @everyone", 15, Discord), "Transcript: Hello @\u{200b}everyone"),
        (
            transcript("Hello you", 5, Slack),
            "Transcript: Hello\n… 4 more characters are not shown. The agent gets the whole transcript.",
        ),
        (cancelled(None, Slack), "Your message was removed from the queue."),
        (cancelled(Some("<@U1>"), Slack), "Your message was removed from the queue by &lt;@U1&gt;."),
        (stopping(job), "job-2026-01-05-a1b2c3 is being stopped."),
        (nothing_to_stop(), "No job runs or waits in this conversation."),
        (nothing_to_retry(), "There is no earlier message in this conversation that could run again."),
        (busy(job, Discord), "job-2026-01-05-a1b2c3 still runs in this conversation. `/stop` stops it."),
        (no_such_job("x", Slack), "There is no job `x`. `!jobs` lists the jobs."),
        (no_such_schedule("x", Slack), "There is no schedule `x`. `!schedules` lists the schedules."),
        (no_such_skill("x", Slack), "There is no skill `x`. `!skills` lists the skills."),
        (
            which_agent(&[agent.clone(), "tester".parse().unwrap()], Slack),
            "Several agents answer here. Put one of these before the arguments: `@coder`, `@tester`",
        ),
        (no_such_agent("x", Slack), "No agent `x` answers you here."),
        (
            conversation_reset(agent, Slack),
            "The conversation was reset. Agent coder does not remember the earlier messages.",
        ),
        (
            schedule_disabled(agent, "chat", Discord),
            "Schedule `coder/chat` is disabled, so your message started no job. `/why coder/chat` shows more.",
        ),
    ] {
        assert_eq!(text, expected);
    }
}

fn ask(what: AskSubject) -> Ask {
    let asked_at: Timestamp = "2026-01-05T14:00:00Z".parse().unwrap();
    Ask {
        id: "job-2026-01-05-a1b2c3.1".parse().unwrap(),
        job: job(),
        agent: agent(),
        schedule: None,
        attempt: 1,
        what,
        asked_at,
        expires_at: asked_at + SignedDuration::from_hours(1),
        state: AskState::Open,
    }
}

fn tool(tool: &str, input: Value) -> Ask {
    ask(AskSubject::Tool { tool: tool.to_owned(), input })
}

const WITHOUT_ANSWER: &str = "Without an answer within 1h, job-2026-01-05-a1b2c3.1 counts as denied.";

fn texts(ask: &Ask, is_answerable: bool, platform: ChatPlatform) -> Vec<String> {
    let posts = ask_posts(ask, is_answerable, platform);
    assert!(posts.iter().all(|post| post.file.is_none()));
    posts.into_iter().map(|post| post.text).collect()
}

#[test]
fn asks_show_everything_that_is_to_be_allowed() {
    let edit = json!({"old_string": "same\nold\nend", "new_string": "same\nnew\nmore\nend"});
    let diff = "```diff\n  same\n- old\n+ new\n+ more\n  end\n```";
    let mut edit_of_file = edit.clone();
    edit_of_file["file_path"] = json!("src/main.rs");
    for (name, input, expected) in [
        (
            "Bash",
            json!({"command": "rm -r \u{202e}x\n# `ls`"}),
            "```sh\nrm -r \\u{202e}x\n# `ls`\n```".to_owned(),
        ),
        (
            "Bash",
            json!({"command": "ls", "timeout": 5}),
            "```sh\nls\n```\n```json\n{\n  \"timeout\": 5\n}\n```".to_owned(),
        ),
        ("Edit", edit_of_file, format!("File: `src/main.rs`\n{diff}")),
        (
            "MultiEdit",
            json!({"file_path": "a", "edits": [edit, {"old_string": "a", "new_string": ""}]}),
            format!("File: `a`\n{diff}\n```diff\n- a\n```"),
        ),
        (
            "Write",
            json!({"file_path": "a", "content": "one\ntwo\n"}),
            "File: `a`\n```diff\n+ one\n+ two\n```".to_owned(),
        ),
        ("Odd", json!({"edits": [1]}), "```json\n{\n  \"edits\": [\n    1\n  ]\n}\n```".to_owned()),
        ("Odd", json!({}), "```json\n{}\n```".to_owned()),
        ("Odd", json!("@everyone"), "```json\n\"@\u{200b}everyone\"\n```".to_owned()),
    ] {
        let expected = format!(
            "Agent coder asks whether it may use `{name}`:\n{expected}\n\nAn operator can press a button, or reply `allow` or `deny`. {WITHOUT_ANSWER}"
        );
        assert_eq!(texts(&tool(name, input), true, Discord), [expected]);
    }
    let question = ask(AskSubject::question("Which **one**, <@U1>?"));
    for (is_answerable, expected) in [
        (true, "An operator can reply to this message."),
        (
            false,
            "Nobody can answer here, because no operator is listed for this agent. Use `cowhand answer job-2026-01-05-a1b2c3.1`.",
        ),
    ] {
        let expected = format!("Agent coder asks:\nWhich *one*, &lt;@U1&gt;?\n\n{expected} {WITHOUT_ANSWER}");
        assert_eq!(texts(&question, is_answerable, Slack), [expected]);
    }
}

#[test]
fn a_long_command_is_shown_as_a_whole() {
    let command: Vec<String> = (0..1_000).map(|number| format!("echo {number}")).collect();
    let asked = tool("Bash", json!({"command": command.join("\n")}));
    for platform in [Slack, Discord] {
        let posts = texts(&asked, true, platform);
        let limit = post_limit(platform);
        assert!(posts.len() > 1 && posts.iter().all(|post| length(post) <= limit), "{posts:#?}");
        let shown: Vec<&str> =
            posts.iter().flat_map(|post| post.lines()).filter(|line| line.starts_with("echo")).collect();
        assert_eq!(shown, command);
        let answered =
            Answered { answered_at: Timestamp::UNIX_EPOCH, by: None, message: Some("<long> ".repeat(1_000)) };
        let closed = texts(&Ask { state: AskState::Denied(answered), ..asked.clone() }, true, platform);
        let (last, others) = closed.split_last().unwrap();
        assert_eq!(others, &posts[..posts.len() - 1], "an answer changes only the last post");
        assert!(last.contains("was denied") && length(last) <= limit, "{last}");
    }
}

#[test]
fn a_very_long_command_is_in_a_file() {
    let command: Vec<String> = (0..10_000).map(|number| format!("echo {number} \u{202e}&\u{1b}")).collect();
    let asked = tool("Bash", json!({"command": command.join("\n"), "timeout": 5}));
    for platform in [Slack, Discord] {
        let posts = ask_posts(&asked, true, platform);
        let [RenderedPost { text, file: Some(file) }] = &posts[..] else { panic!("{posts:?}") };
        assert!(text.contains("echo 1 ") && text.matches("```").count() == 2, "{text}");
        assert!(text.contains("is in ask-1.txt.") && length(text) <= post_limit(platform), "{text}");
        assert_eq!(file.name, "ask-1.txt");
        let shown: Vec<&str> = file.content.lines().take(10_000).collect();
        assert_eq!((shown[0], shown[9_999]), ("echo 0 \\u{202e}&\\u{1b}", "echo 9999 \\u{202e}&\\u{1b}"));
        assert!(file.content.ends_with("{\n  \"timeout\": 5\n}"));
    }
}

#[test]
fn a_closed_ask_says_who_answered() {
    let by = |message: Option<&str>| Answered {
        answered_at: Timestamp::UNIX_EPOCH,
        by: Some(Actor::Chat { platform: Slack, id: "U1".to_owned(), name: "<!here>".to_owned() }),
        message: message.map(str::to_owned),
    };
    let nobody = Answered { answered_at: Timestamp::UNIX_EPOCH, by: None, message: None };
    let answered_at = Timestamp::UNIX_EPOCH;
    for (state, expected) in [
        (AskState::Open, None),
        (
            AskState::Allowed(by(None)),
            Some("was allowed by &lt;!here&gt; (U1) on slack on 1970-01-01 at 00:00 UTC."),
        ),
        (
            AskState::Denied(by(Some("too risky"))),
            Some("was denied by &lt;!here&gt; (U1) on slack on 1970-01-01 at 00:00 UTC: too risky"),
        ),
        (AskState::Answered(nobody), Some("was answered on 1970-01-01 at 00:00 UTC.")),
        (
            AskState::Expired { answered_at },
            Some("expired without an answer on 1970-01-01 at 00:00 UTC. This counts as denied."),
        ),
        (
            AskState::Ended { answered_at },
            Some("was closed on 1970-01-01 at 00:00 UTC, because the attempt ended before anybody answered."),
        ),
    ] {
        let ask = Ask { state, ..tool("Bash", json!({})) };
        let expected = expected.map(|text| format!("job-2026-01-05-a1b2c3.1 {text}"));
        assert_eq!(ask_closed(&ask, Slack), expected);
    }
    assert_eq!(ask_needs_reply(), "This ask is a question. Reply to the message with your answer.");
}
