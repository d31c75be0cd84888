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

/// Without the wait for a node that may only restart.
const SHORT_WAITS: &str = "slack_pace,chat_gone";

/// A second node beside the node of a scene.
struct SecondNode<'a> {
    scene: &'a Scene,
    folder: TempDir,
}

impl<'a> SecondNode<'a> {
    fn started(scene: &'a Scene) -> Self {
        let config = fs::read_to_string(scene.root.join("cowhand.yaml")).unwrap();
        Self::started_with(scene, &config)
    }

    fn started_with(scene: &'a Scene, config: &str) -> Self {
        let folder = TempDir::new().unwrap();
        fs::write(folder.path().join("cowhand.yaml"), config).unwrap();
        let node = Self { scene, folder };
        let output = node.command(&["start", "-d", "--no-server"]).output().unwrap();
        assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
        node
    }

    /// Takes over what a killed node left: lets its leases expire at once, and makes this node look at them.
    fn take_over(&self, server: &Postgres, killed: &str) {
        server.ask(&format!("update leases set expires_at = 0 where node = '{killed}' returning node"));
        server.ask(&format!("update chat_bots set until = 0 where node = '{killed}' returning node"));
        let reloaded = self.command(&["reload"]).output().unwrap();
        assert!(reloaded.status.success(), "{}", String::from_utf8_lossy(&reloaded.stderr));
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
    let mut scene = Scene::new(&format!("store: {}\n{}", server.url(), helper(&program, 4, ""))).await;
    scene.set("COWHAND_WAITS", SHORT_WAITS);
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
    second.take_over(&server, &first);
    wait_for_other_holder(&scene, &server, &first).await;
    scene.wait_for_slack("did meanwhile").await;
    scene.mention_on_discord("afterwards");
    scene.wait_for_discord("did afterwards").await;
    let told = if ran_on == first {
        // For some minutes, only the node with the output may post the end.
        let lost = "update jobs set finished_at = 1 where status = 'failed' returning id";
        wait_until("the end of the lost job", || server.ask(lost).contains("job-").then_some(()));
        "lost"
    } else {
        "did unlucky"
    };
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

/// Waits until a node other than this one is connected for all bots.
async fn wait_for_other_holder(scene: &Scene, server: &Postgres, first: &str) {
    let holders = || {
        server.ask("select distinct node from chat_bots where until > extract(epoch from now()) * 1000000")
    };
    let other =
        || Some(holders()).filter(|holder| !holder.is_empty() && holder != first && !holder.contains('\n'));
    scene.discord.wait_for("another holder", |_| other()).await;
}

/// Returns a fleet whose node was killed before it posted the answer to a finished job, and the node.
async fn killed_before_the_post(server: &Postgres) -> (Scene, String) {
    let config = format!("store: {}\n{}", server.url(), helper(&format!("echo did $({PRINT_TEXT})"), 4, ""));
    let mut scene = Scene::new(&config).await;
    scene.set("COWHAND_WAITS", SHORT_WAITS);
    scene.start_with(&[("COWHAND_FAULT", "chat_post_tried")]);
    scene.connected().await;
    let first = server.ask("select distinct node from chat_bots");
    let daemon: Pid = scene.daemon().unwrap();
    scene.mention_on_slack("one");
    wait_until("the daemon to be gone", || has_ended(daemon).then_some(()));
    (scene, first)
}

const OPEN: &str = "select count(*) from chat_answers where state = 'open'";

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_node_that_restarts_posts_its_finished_answers_itself() {
    let server = Postgres::start();
    let (scene, first) = killed_before_the_post(&server).await;
    let second = SecondNode::started(&scene);
    second.take_over(&server, &first);
    wait_for_other_holder(&scene, &server, &first).await;
    scene.mention_on_discord("two");
    scene.wait_for_discord("did two").await;
    // The other node has no output of the first job, and does not end its answer.
    wait_until("the end of the second answer", || (server.ask(OPEN) == "1").then_some(()));
    scene.start();
    scene.wait_for_slack("did one").await;
    wait_until("the end of all answers", || (server.ask(OPEN) == "0").then_some(()));
    scene.assert_posted_once("did one");
    assert!(!scene.posted_texts().iter().any(|text| text.contains("The job is done")));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_answer_says_that_its_output_is_on_a_node_that_stays_away() {
    let server = Postgres::start();
    let (scene, first) = killed_before_the_post(&server).await;
    server.ask("update jobs set finished_at = 1");
    let second = SecondNode::started(&scene);
    second.take_over(&server, &first);
    scene.wait_for_slack(&format!("Its output is on the node `{first}`")).await;
    wait_until("the end of all answers", || (server.ask(OPEN) == "0").then_some(()));
    assert!(!scene.posted_texts().iter().any(|text| text.contains("did one")));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_node_without_the_agent_in_its_config_drops_no_answers() {
    let server = Postgres::start();
    let program = format!("text=$({PRINT_TEXT}); while [ -e busy ]; do sleep 0.05; done; echo \"did $text\"");
    let store = format!("server: {{enabled: false}}\nstore: {}\n", server.url());
    let config = format!("{store}{}", helper(&program, 4, ""));
    let scene = Scene::new("").await;
    scene.write("cowhand.yaml", &config);
    scene.write("busy", "");
    scene.start();
    scene.connected().await;
    scene.mention_on_slack("one");
    wait_until("the job to run", || {
        (server.ask("select count(*) from jobs where status = 'running'") == "1").then_some(())
    });
    let second = SecondNode::started_with(&scene, &config.replace("name: helper", "name: other"));
    // The other node has looked at the open answers when its job has ended.
    let output = second.command(&["trigger", "other", "--wait"]).output().unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    assert_eq!(server.ask("select count(*) from chat_answers where state = 'open'"), "1");
    fs::remove_file(scene.root.join("busy")).unwrap();
    scene.wait_for_slack("did one").await;
}
