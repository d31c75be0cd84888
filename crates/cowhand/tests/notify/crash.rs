//! The daemon dies while it sends: a notification that arrived is not sent to a chat again, and a receiver that cannot be
//! asked recognises the repetition.

use cowhand_testing::discord::FakeDiscord;
use cowhand_testing::slack::FakeSlack;
use cowhand_testing::smtp::{FakeSmtp, SmtpMode};

use crate::chat::{discord_texts, scene as chat_scene, slack_texts};
use crate::receiver::Receiver;
use crate::{FLAKY, Scene};

/// The points between the failure of a job and the end of its notification.
const FAULTS: [&str; 4] =
    ["incidents_followed", "notification_taken", "notification_sent", "notification_settled"];

#[test]
fn webhooks_and_mails_keep_one_id_over_a_crash() {
    let mail = FakeSmtp::start(SmtpMode::Plain);
    for fault in FAULTS {
        let receiver = Receiver::start();
        mail.state().mails.clear();
        let port = mail.address.port();
        let hook = format!(
            "{{type: webhook, url: '{}', secret_env: HOOK_SECRET, allow_private: true}}",
            receiver.url
        );
        let mails = format!(
            "{{type: email, server: localhost, port: {port}, security: none, from: a@example.com, to: [b@example.com]}}"
        );
        let mut scene = Scene::new(&format!(
            "notify: {{disk_low: 1B, targets: {{hook: {hook}, mail: {mails}}}, rules: [{{to: [hook, mail], kinds: [job_failed]}}]}}\n{FLAKY}"
        ));
        scene.start_and_die(fault);
        scene.output(&["trigger", "flaky/s"]);
        scene.ended();
        scene.start();
        scene.wait_for_states(&["sent opened", "sent opened"]);
        let ids: Vec<String> = receiver.all().into_iter().map(|delivery| delivery.id).collect();
        let messages: Vec<String> = mail.mails().iter().map(|mail| mail.header("Message-ID")).collect();
        assert!((1..=2).contains(&ids.len()), "{fault}: {ids:?}");
        assert!((1..=2).contains(&messages.len()), "{fault}: {messages:?}");
        assert!(ids.iter().all(|id| *id == ids[0]), "{fault}: {ids:?}");
        assert!(messages.iter().all(|id| *id == messages[0]), "{fault}: {messages:?}");
        if fault == "notification_taken" || fault.starts_with("incidents") {
            assert!(ids.len() == 1 && messages.len() == 1, "{fault}: nothing was sent before");
        }
        assert_eq!(scene.notifications().len(), 2, "{fault}: the incident is reported once");
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn chats_get_a_notification_once_over_a_crash() {
    for fault in FAULTS {
        let (slack, discord) = (FakeSlack::start().await, FakeDiscord::start().await);
        let mut scene = chat_scene(&slack, &discord);
        tokio::task::block_in_place(|| {
            scene.start_and_die(fault);
            scene.output(&["trigger", "flaky/s"]);
            scene.ended();
            scene.start();
            scene.wait_for_states(&["sent opened", "sent opened"]);
        });
        assert_eq!(slack_texts(&slack).len(), 1, "{fault}");
        assert_eq!(discord_texts(&discord).len(), 1, "{fault}");
    }
}
