//! E-mails: logins over TLS, subjects, and repetitions.

use std::process::Command;

use cowhand_testing::smtp::{FakeSmtp, SMTP_PASSWORD, SMTP_USER, SmtpMode};

use crate::{FLAKY, Scene, wait_until};

fn scene(server: &FakeSmtp, security: &str, more: &str) -> Scene {
    let port = server.address.port();
    let target = format!(
        "{{type: email, server: localhost, port: {port}, security: {security}, from: 'Herd <herd@example.com>', to: [ops@example.com, 'Boss <boss@example.com>']{more}}}"
    );
    let scene = Scene::new(&format!(
        "notify: {{disk_low: 1B, targets: {{mail: {target}}}, rules: [{{to: [mail], kinds: [job_failed]}}]}}\n{FLAKY}"
    ));
    server.write_ca(&scene.path("ca.pem"));
    scene.with("SMTP_PASSWORD", SMTP_PASSWORD)
}

const LOGIN: &str = ", username: ops, password_env: SMTP_PASSWORD, ca_file: ca.pem";

/// Checks that the fake speaks SMTP as a client of another author expects it.
#[test]
fn the_fake_mail_server_agrees_with_another_client() {
    for (mode, connect) in [
        (SmtpMode::Starttls, "s = smtplib.SMTP('localhost', port); s.starttls(context=context)"),
        (SmtpMode::Tls, "s = smtplib.SMTP_SSL('localhost', port, context=context)"),
    ] {
        let server = FakeSmtp::start(mode);
        let folder = tempfile::TempDir::new().unwrap();
        server.write_ca(&folder.path().join("ca.pem"));
        let script = format!(
            "import smtplib, ssl\nport = {port}\ncontext = ssl.create_default_context(cafile='ca.pem')\n{connect}\n\
             try:\n    s.sendmail('a@x', ['b@x'], 'x')\n    raise SystemExit('sent without a login')\n\
             except smtplib.SMTPException:\n    s.rset()\n\
             s.login('{SMTP_USER}', '{SMTP_PASSWORD}')\n\
             s.sendmail('a@x', ['b@x', 'c@x'], 'Subject: hello\\r\\n\\r\\n.dot\\r\\n')\ns.quit()\n",
            port = server.address.port()
        );
        let output =
            Command::new("python3").args(["-c", &script]).current_dir(folder.path()).output().unwrap();
        assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
        let mails = server.mails();
        assert_eq!(mails.len(), 1);
        assert_eq!((mails[0].from.as_str(), mails[0].to.join(" ").as_str()), ("a@x", "b@x c@x"));
        assert_eq!((mails[0].header("Subject").as_str(), mails[0].is_encrypted), ("hello", true));
        assert!(mails[0].data.ends_with("\r\n\r\n.dot"), "{}", mails[0].data);
    }
}

#[test]
fn mails_are_sent_encrypted_and_with_a_login() {
    for (mode, security) in [(SmtpMode::Starttls, "starttls"), (SmtpMode::Tls, "tls")] {
        let server = FakeSmtp::start(mode);
        let mut scene = scene(&server, security, LOGIN);
        scene.start();
        scene.job("flaky/s");
        scene.wait_for_states(&["sent opened"]);
        let mails = server.mails();
        assert_eq!(mails.len(), 1);
        let mail = &mails[0];
        assert_eq!((mail.user.as_deref(), mail.is_encrypted), (Some(SMTP_USER), true));
        assert_eq!(mail.from, "herd@example.com");
        assert_eq!(mail.to, ["ops@example.com", "boss@example.com"]);
        assert_eq!(mail.header("Subject"), "[cowhand] [warning] flaky/s failed");
        assert_eq!(mail.header("Auto-Submitted"), "auto-generated");
        assert!(mail.header("Message-ID").ends_with(".1@cowhand>"), "{}", mail.data);
        assert!(mail.data.contains("cowhand job job-"), "{}", mail.data);
        assert!(!mail.data.contains("canary"), "{}", mail.data);
    }
}

#[test]
fn a_mail_whose_answer_was_lost_is_repeated_with_the_same_id() {
    let server = FakeSmtp::start(SmtpMode::Plain);
    server.state().lost_answers = 1;
    let mut scene = scene(&server, "none", "");
    scene.start();
    scene.job("flaky/s");
    scene.wait_for_states(&["sent opened"]);
    let mails = server.mails();
    assert_eq!(mails.len(), 2);
    assert_eq!(mails[0].header("Message-ID"), mails[1].header("Message-ID"));
}

#[test]
fn a_text_of_others_adds_no_header_to_a_mail() {
    let server = FakeSmtp::start(SmtpMode::Plain);
    let mut scene = scene(&server, "none", "");
    let config = scene.read("cowhand.yaml").replace(
        "schedules: {s: {type: manual, prompt: Work.}}",
        "schedules: {\"s\\u00e9 Bcc: evil@example.com\": {type: manual, prompt: Work.}}",
    );
    scene.configure(&config);
    scene.start();
    scene.job("flaky/s\u{e9} Bcc: evil@example.com");
    scene.wait_for_states(&["sent opened"]);
    let mail = server.mails().remove(0);
    assert_eq!(mail.to.len(), 2);
    assert_eq!(mail.header("Bcc"), "");
    assert!(mail.header("Subject").contains("=?utf-8?"), "{}", mail.data);
}

#[test]
fn a_wrong_password_or_certificate_is_reported() {
    let server = FakeSmtp::start(SmtpMode::Starttls);
    for (more, password, expected) in [
        (LOGIN, "wrong", "Username and password not accepted"),
        (&LOGIN.replace(", ca_file: ca.pem", ""), SMTP_PASSWORD, "certificate"),
    ] {
        let mut scene = scene(&server, "starttls", more).with("SMTP_PASSWORD", password);
        scene.start();
        let (code, report) = scene.output(&["notify", "test"]);
        assert_eq!(code, Some(5), "{report}");
        assert!(report.starts_with("mail: not sent: ") && report.contains(expected), "{report}");
    }
    assert!(server.mails().is_empty());
}

#[test]
fn a_mail_server_that_refuses_for_a_while_gets_the_mail_later() {
    let server = FakeSmtp::start(SmtpMode::Plain);
    server.state().refusals = 1;
    let mut scene = scene(&server, "none", "");
    scene.start();
    scene.job("flaky/s");
    scene.wait_for_states(&["sent opened"]);
    assert_eq!(server.mails().len(), 1);
    wait_until("two tries", || (scene.notifications()[0]["tries"] == 2).then_some(()));
}
