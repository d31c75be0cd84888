//! Two nodes with the same config on one database: one of them is connected for a bot.

use std::fs;
use std::process::Command;

use cowhand_testing::postgres::Postgres;
use cowhand_testing::process::{has_ended, left_over};
use cowhand_testing::wait_until;
use rustix::process::{Pid, Signal, kill_process};
use tempfile::TempDir;

use crate::reliable::{PRINT_TEXT, helper};
use crate::scene::Scene;

/// A second node beside the node of a scene.
struct SecondNode<'a> {
    scene: &'a Scene,
    folder: TempDir,
}

impl<'a> SecondNode<'a> {
    fn started(scene: &'a Scene) -> Self {
        let folder = TempDir::new().unwrap();
        fs::copy(scene.root.join("cowhand.yaml"), folder.path().join("cowhand.yaml")).unwrap();
        let node = Self { scene, folder };
        let output = node.command(&["start", "-d", "--no-server"]).output().unwrap();
        assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
        node
    }

    fn command(&self, arguments: &[&str]) -> Command {
        let mut command = self.scene.command(arguments);
        command.current_dir(self.folder.path()).env("XDG_RUNTIME_DIR", self.folder.path());
        command
    }
}

impl Drop for SecondNode<'_> {
    fn drop(&mut self) {
        let _ = self.command(&["stop", "--timeout", "0"]).output();
        for pid in left_over(self.folder.path()) {
            let _ = kill_process(pid, Signal::KILL);
        }
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn another_node_takes_over_the_bots_of_a_killed_node() {
    let server = Postgres::start();
    let program = format!("text=$({PRINT_TEXT}); while [ -e busy ]; do sleep 0.05; done; echo \"did $text\"");
    let scene = Scene::new(&format!("store: {}\n{}", server.url(), helper(&program, 4, ""))).await;
    scene.start();
    scene.connected().await;
    scene.mention_on_slack("one");
    scene.mention_on_discord("one");
    scene.wait_for_slack("did one").await;
    scene.wait_for_discord("did one").await;
    let holders = || server.ask("select distinct node from chat_bots");
    let first = holders();
    let second = SecondNode::started(&scene);
    // Both nodes run and may start jobs, but only one of them is connected.
    for number in 2..6 {
        scene.mention_on_slack(&format!("message {number}"));
        scene.mention_on_discord(&format!("message {number}"));
    }
    scene.wait_for_slack("did message 5").await;
    scene.wait_for_discord("did message 5").await;
    assert_eq!((holders(), scene.slack.connections(), scene.discord.connections().0), (first.clone(), 1, 1));
    // The job of this message is lost with its node.
    scene.write("busy", "");
    fs::write(second.folder.path().join("busy"), "").unwrap();
    scene.mention_on_discord("unlucky");
    wait_until("the job to run", || {
        (server.ask("select count(*) from jobs where status = 'running'") == "1").then_some(())
    });
    let ran_on = server.ask("select node from attempts order by started_at desc limit 1");
    let daemon: Pid = scene.daemon().unwrap();
    kill_process(daemon, Signal::KILL).unwrap();
    wait_until("the daemon to be gone", || has_ended(daemon).then_some(()));
    scene.mention_on_slack("meanwhile");
    fs::remove_file(second.folder.path().join("busy")).unwrap();
    let other = || Some(holders()).filter(|holder| *holder != first && !holder.contains('\n'));
    scene.discord.wait_for("another holder", |_| other()).await;
    scene.wait_for_slack("did meanwhile").await;
    scene.mention_on_discord("afterwards");
    scene.wait_for_discord("did afterwards").await;
    let told = if ran_on == first { "lost" } else { "did unlucky" };
    scene.wait_for_discord(told).await;
    let open = "select count(*) from chat_answers where state = 'open'";
    wait_until("the end of all answers", || (server.ask(open) == "0").then_some(()));
    for text in ["did meanwhile", "did afterwards", told] {
        scene.assert_posted_once(text);
    }
    let posts = scene.posted_texts();
    for number in 2..6 {
        let text = format!("did message {number}");
        assert_eq!(posts.iter().filter(|post| post.contains(&text)).count(), 2, "{posts:#?}");
    }
}
