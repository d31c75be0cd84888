use proptest::prelude::*;

use super::*;
use crate::chat::split::length;
use ChatPlatform::{Discord, Slack};

#[test]
fn slack_shows_its_own_notation() {
    for (markdown, expected) in [
        ("plain", "plain"),
        ("**bold** __bold__ *italic* _italic_ ~~gone~~", "*bold* *bold* _italic_ _italic_ ~gone~"),
        ("***both***", "_*both*_"),
        ("**bold\nbold**", "*bold*\n*bold*"),
        ("# Heading\ntext", "*Heading*\n\ntext"),
        ("#### **Bold** heading", "*Bold heading*"),
        ("Title\n=====\n\ntext", "*Title*\n\ntext"),
        ("[a **b**](https://x.y/?a=1&b=2)", "<https://x.y/?a=1&amp;b=2|a *b*>"),
        ("<https://x.y>", "<https://x.y>"),
        ("[one][1]\n\n[1]: https://x.y", "<https://x.y|one>"),
        ("![alt](https://x.y/z.png)", "<https://x.y/z.png|alt>"),
        ("[![badge](https://x.y/b.svg)](https://x.y)", "<https://x.y|badge>"),
        ("[file](src/main.rs)", "file (src/main.rs)"),
        ("[evil](!channel) <!here> <@U1> <#C1>", "evil (!channel) &lt;!here&gt; &lt;@U1&gt; &lt;#C1&gt;"),
        ("[evil](<https://x.y|text> \"t\")", "<https://x.y%7Ctext|evil>"),
        ("a & b &amp; c < d", "a &amp; b &amp; c &lt; d"),
        ("- one\n- two\n  - inner\n    text\n- three", "• one\n• two\n    • inner\n    text\n• three"),
        ("3. one\n4. two\n   - inner", "3. one\n4. two\n    • inner"),
        ("- one\n\n- two\n\nafter", "• one\n• two\n\nafter"),
        ("- [ ] open\n- [x] done", "• ☐ open\n• ☑ done"),
        ("> quote\n> more\n>\n> last\n\nafter", "> quote\n> more\n>\n> last\n\nafter"),
        ("before\n\n> quote", "before\n\n> quote"),
        ("one\n\n---\n\ntwo", "one\n\n⸻\n\ntwo"),
        ("```rust\nlet a = **b** & <c>;\n```", "```\nlet a = **b** &amp; &lt;c&gt;;\n```"),
        ("````md\n```\ncode\n```\n````", "```\n``\u{200b}`\ncode\n``\u{200b}`\n```"),
        ("    indented", "```\nindented\n```"),
        ("use `a < b` now", "use `a &lt; b` now"),
        ("- item\n  ```sh\n  ls\n  ```\n- next", "• item\n```\nls\n```\n• next"),
        ("one<br>two <b>x</b>", "one\ntwo &lt;b&gt;x&lt;/b&gt;"),
        ("<div>\nx\n</div>\n\nafter", "&lt;div&gt;\nx\n&lt;/div&gt;\n\nafter"),
        ("a  \nb\\\nc", "a\nb\nc"),
        ("| a | bcd |\n|---|:-:|\n| **1** | é & x |", "```\na | bcd\n--|------\n1 | é &amp; x\n```"),
        ("\u{202e}x\u{0} &#x202e;y", "x y"),
        ("[x](<https://x.y/&#10;&lt;!here&gt;&#x202e;>)", "<https://x.y/%0A%3C!here%3E%E2%80%AE|x>"),
    ] {
        assert_eq!(convert(markdown, Slack), expected, "{markdown:?}");
    }
}

#[test]
fn discord_keeps_what_it_shows() {
    let kept = "# One\n## Two\n### Three\n**b** *i* __u__ ~~s~~ ||spoiler||\n> quote\n- a\n  - b\n1. c\n\n```rust\nfn x() {}\n```\n[masked](https://x.y) `code` https://x.y <https://x.y>\n\\*plain\\*";
    for (markdown, expected) in [
        (kept, kept),
        ("#### Four **bold** ####\ntext", "**Four bold**\ntext"),
        ("Title\n=====\ntext", "# Title\ntext"),
        ("Title\n---", "## Title"),
        ("![alt](https://x.y/z.png) and ![](https://x.y)", "[alt](https://x.y/z.png) and https://x.y"),
        ("[![badge](https://x.y/b.svg)](https://x.y)", "[badge](https://x.y)"),
        ("[one][1]\n\n[1]: https://x.y", "[one](https://x.y)\n\n[1]: https://x.y"),
        ("- [ ] open\n- [x] done", "- ☐ open\n- ☑ done"),
        ("~~~rust\ncode\n~~~\nafter", "```rust\ncode\n```\nafter"),
        ("````md\n```\ncode\n```\n````", "```md\n``\u{200b}`\ncode\n``\u{200b}`\n```"),
        ("```js\nlet open;", "```js\nlet open;\n```"),
        ("before\n\n    indented\n\nafter", "before\n\n```\nindented\n```\n\nafter"),
        ("| a | bcd |\n|---|---|\n| 1 | é |\n\nafter", "```\na | bcd\n--|----\n1 | é\n```\n\nafter"),
        (
            "@everyone @here <@1> <@&2> <@!3>",
            "@\u{200b}everyone @\u{200b}here <\u{200b}@1> <\u{200b}@&2> <\u{200b}@!3>",
        ),
        ("@\u{2060}everyone `<@1>`", "@\u{200b}everyone `<\u{200b}@1>`"),
    ] {
        assert_eq!(convert(markdown, Discord), expected, "{markdown:?}");
    }
}

#[test]
fn a_link_shows_where_it_leads() {
    for (markdown, slack, discord) in [
        (
            "[https://github.com/o/r](https://evil.example)",
            "https://github.com/o/r (<https://evil.example>)",
            "[https://github.com/o/r]\u{200b}(https://evil.example)",
        ),
        (
            "see [the *github.com* page](https://evil.example)!",
            "see the _github.com_ page (<https://evil.example>)!",
            "see [the *github.com* page]\u{200b}(https://evil.example)!",
        ),
        (
            "[github.com?a&b][1]\n\n[1]: https://evil.example",
            "github.com?a&amp;b (<https://evil.example>)",
            "[github.com?a&b]\u{200b}(https://evil.example)\n\n[1]: https://evil.example",
        ),
        (
            "![git\u{2060}hub.com](https://evil.example)",
            "github.com (<https://evil.example>)",
            "[github.com]\u{200b}(https://evil.example)",
        ),
        (
            "<div>\n[github.com](https://evil.example)\n</div>",
            "&lt;div&gt;\n[github.com](https://evil.example)\n&lt;/div&gt;",
            "<div>\n[github.com]\u{200b}(https://evil.example)\n</div>",
        ),
        (
            "[github.com](https://github.com/o)",
            "<https://github.com/o|github.com>",
            "[github.com](https://github.com/o)",
        ),
    ] {
        assert_eq!(convert(markdown, Slack), slack, "{markdown:?}");
        assert_eq!(convert(markdown, Discord), discord, "{markdown:?}");
    }
}

#[test]
fn long_texts_become_posts_within_the_limit() {
    let markdown = format!(
        "# Title\n\n{}\n\n```rust\n{}```\n",
        "Words & **more**. ".repeat(200),
        "let a = &b;\n".repeat(500)
    );
    for platform in [Slack, Discord] {
        let posts = to_posts(&markdown, platform);
        assert!(posts.len() > 3 && posts.iter().all(|post| length(post) <= post_limit(platform)));
        assert!(posts.iter().all(|post| post.matches("```").count() % 2 == 0), "{posts:#?}");
    }
    assert!(to_posts(" \u{200b}\n", Slack).is_empty());
}

#[test]
fn deep_nesting_and_wide_tables_stay_small() {
    let wide =
        format!("| a | b |\n|---|---|\n| {} | x |\n{}", "y".repeat(5_000), "| 1 | 2 |\n".repeat(2_000));
    for markdown in ["- ".repeat(3_000), "![".repeat(3_000), "<".repeat(50_000), "> ".repeat(3_000), wide] {
        for platform in [Slack, Discord] {
            assert!(convert(&markdown, platform).len() < 400_000);
            assert!(to_posts(&markdown, platform).len() < 200);
        }
    }
}

proptest! {
    #[test]
    fn no_text_mentions_anybody(
        pieces in prop::collection::vec(
            "@everyone|@here|<@1>|<@&2>|<!channel>|<!here>|<!subteam\\^S>|\\[a\\]\\(|<https://|\\)|\\(|\\[|`|```|\n|> |- |    |&lt;|\\|---\\||\\*\\*|\u{200b}|\u{200d}|\\\\|[a-z ]{1,5}",
            0..40,
        ),
    ) {
        let markdown = pieces.concat();
        for post in to_posts(&markdown, Discord) {
            prop_assert!(!post.contains("@everyone") && !post.contains("@here") && !post.contains("<@"), "{post}");
        }
        for post in to_posts(&markdown, Slack) {
            for (at, _) in post.match_indices('<') {
                prop_assert!(post[at..].starts_with("<https://"), "{post}");
            }
        }
    }
}
