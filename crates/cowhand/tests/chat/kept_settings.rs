//! Settings that change while an answer is open.

use crate::reliable::helper;
use crate::scene::Scene;

/// The agent says something with a tool call, and waits for a file before it says the rest.
const PROGRAM: &str = r#"
echo '{"type":"assistant","content":"begun"}'
echo '{"type":"tool_use","tool_name":"Bash","tool_use_id":"t1","input":{"command":"ls"}}'
echo '{"type":"tool_result","tool_use_id":"t1","result":"short","success":true}'
while [ ! -e go ]; do sleep 0.05; done
echo '{"type":"assistant","content":"finished"}'
"#;

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_answer_keeps_the_settings_with_which_it_was_begun() {
    let fleet = |messages: &str| {
        let fleet = helper(PROGRAM, 2, &format!(", output: {{assistant_messages: {messages}}}"));
        format!("server: {{enabled: false}}\n{fleet}")
    };
    let scene = Scene::started(&helper(PROGRAM, 2, ", output: {assistant_messages: all}")).await;
    scene.mention_on_slack("speak");
    scene.mention_on_discord("speak");
    scene.wait_for_slack("begun").await;
    scene.wait_for_discord("begun").await;
    scene.kill_daemon();
    // With this setting, the first text would not have been posted.
    scene.write("cowhand.yaml", &fleet("answers"));
    scene.start();
    scene.write("go", "");
    scene.wait_until_answered();
    for posts in [scene.slack_posts().len(), scene.discord_posts().len()] {
        assert!(posts >= 2, "{:#?}", scene.posted_texts());
    }
    let texts = scene.posted_texts();
    for text in ["begun", "finished"] {
        assert_eq!(texts.iter().filter(|posted| posted.as_str() == text).count(), 2, "{texts:#?}");
    }
}
