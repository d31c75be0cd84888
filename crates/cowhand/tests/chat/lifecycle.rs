//! Stop, restart, reload, disabled schedules, `prune` and `restore` while people talk to an agent.

use std::fs;

use cowhand_testing::wait_until;

use crate::reliable::{PRINT_TEXT, helper};
use crate::scene::Scene;

/// `helper` says something, and repeats the text when there is a file `go`.
fn fleet() -> String {
    let say =
        |word: &str| format!("printf '{{\"type\":\"assistant\",\"content\":\"{word} %s\"}}\\n' \"$text\"");
    let (begun, finished) = (say("begun"), say("finished"));
    let program =
        format!("text=$({PRINT_TEXT}); {begun}; while [ ! -e go ]; do sleep 0.05; done; {finished}");
    helper(&program, 1, ", output: {assistant_messages: all}")
}

fn run(scene: &Scene, arguments: &[&str]) -> String {
    let said = scene.run(arguments);
    assert_eq!(said.code, Some(0), "{arguments:?} {}{}", said.stdout, said.stderr);
    said.stdout
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_answer_survives_a_restart_and_a_reload() {
    let scene = Scene::started(&fleet()).await;
    scene.mention_on_slack("one");
    scene.mention_on_discord("two");
    wait_until("a running job", || {
        scene.posted_texts().into_iter().find(|text| text.contains("begun")).map(drop)
    });
    run(&scene, &["stop", "--keep-agents"]);
    scene.start();
    scene.connected().await;
    // The bots stay connected over a reload that does not concern them.
    let config = fs::read_to_string(scene.root.join("cowhand.yaml")).unwrap();
    let other = "  - {name: other, runtime: command, command: [cat]}\n";
    scene.write("cowhand.yaml", &format!("{config}{other}"));
    run(&scene, &["reload"]);
    assert_eq!(scene.slack.connections(), 1);
    scene.write("go", "");
    scene.wait_for_slack("finished one").await;
    scene.wait_for_discord("finished two").await;
    scene.wait_until_answered();
    for text in ["begun one", "finished one", "begun two", "finished two"] {
        scene.assert_posted_once(text);
    }

    // People are told that a schedule is disabled.
    run(&scene, &["schedule", "disable", "helper/chat"]);
    scene.mention_on_slack("three");
    scene.wait_for_slack("is disabled, so your message started no job").await;
    run(&scene, &["schedule", "enable", "helper/chat"]);

    // After a restore, messages that were answered since the backup are not answered again.
    fs::remove_file(scene.root.join("go")).unwrap();
    scene.mention_on_discord("open at the backup");
    scene.wait_for_discord("begun open at the backup").await;
    run(&scene, &["backup", "saved.db"]);
    scene.write("go", "");
    scene.wait_for_discord("finished open at the backup").await;
    scene.mention_on_discord("after the backup");
    scene.wait_for_discord("finished after the backup").await;
    scene.wait_until_answered();
    scene.stop_daemon();
    run(&scene, &["restore", "saved.db"]);
    scene.start();
    scene.connected().await;
    scene.mention_on_discord("after the restore");
    scene.wait_for_discord("finished after the restore").await;
    scene.wait_until_answered();
    for text in ["begun open at the backup", "finished open at the backup", "finished after the backup"] {
        scene.assert_posted_once(text);
    }

    // If the `chat` of an agent is removed, its bot is disconnected. If `chat` is added again, the agent answers again.
    let without = config.lines().filter(|line| !line.contains("chat:")).collect::<Vec<_>>().join("\n");
    scene.write("cowhand.yaml", &format!("{without}\n"));
    run(&scene, &["reload"]);
    scene.slack.wait_for_connections(0).await;
    scene.write("cowhand.yaml", &config);
    run(&scene, &["reload"]);
    scene.connected().await;
    scene.mention_on_slack("at the end");
    scene.wait_for_slack("finished at the end").await;
}
