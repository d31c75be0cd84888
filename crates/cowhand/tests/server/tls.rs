//! TLS by certificate files.

use std::fs;

use rcgen::{CertificateParams, KeyPair, date_time_ymd};
use reqwest::Client;
use reqwest::tls::TlsInfo;

use crate::Scene;

const FLEET: &str = r#"
server: {listen: "127.0.0.1:0", tls: {certificate: tls/cert.pem, key: tls/key.pem}}
agents:
  - name: worker
    runtime: command
    command: [sh, -c, cat]
    schedules:
      hook: {type: webhook, secret_env: HOOK_OLD, prompt: Look.}
"#;

/// Writes a new certificate, valid until the end of that year; returns its DER form.
fn certify(scene: &Scene, year: i32) -> Vec<u8> {
    let mut params = CertificateParams::new(["localhost".to_owned(), "127.0.0.1".to_owned()]).unwrap();
    params.not_before = date_time_ymd(2000, 1, 1);
    params.not_after = date_time_ymd(year, 12, 31);
    let key = KeyPair::generate().unwrap();
    let certificate = params.self_signed(&key).unwrap();
    fs::create_dir_all(scene.path("tls")).unwrap();
    fs::write(scene.path("tls/cert.pem"), certificate.pem()).unwrap();
    fs::write(scene.path("tls/key.pem"), key.serialize_pem()).unwrap();
    certificate.der().to_vec()
}

/// Returns the status, and the server's certificate, for a client that trusts only `trusted`.
async fn shown(scene: &Scene, trusted: &[u8]) -> Result<(u16, Vec<u8>), reqwest::Error> {
    let trusted = reqwest::Certificate::from_der(trusted).unwrap();
    let client = Client::builder().tls_certs_only([trusted]).tls_info(true).build().unwrap();
    let response = client.get(format!("{}/api/v1/status", scene.url)).send().await?;
    let info = response.extensions().get::<TlsInfo>().unwrap();
    Ok((response.status().as_u16(), info.peer_certificate().unwrap().to_vec()))
}

#[tokio::test]
async fn tls_is_served_and_certificate_is_reloaded() {
    let mut scene = Scene::prepared(FLEET);
    let first = certify(&scene, 2090);
    scene.start(&[]);
    assert!(scene.url.starts_with("https://"), "{}", scene.url);
    assert_eq!(shown(&scene, &first).await.unwrap(), (401, first.clone()));
    // A browser that logged in over TLS never sends its cookie without it.
    let (_, link, _) = scene.run(&["dashboard"]);
    let trusted = reqwest::Certificate::from_der(&first).unwrap();
    let browser = Client::builder().tls_certs_only([trusted]).redirect(reqwest::redirect::Policy::none());
    let entered = browser.build().unwrap().get(link.trim()).send().await.unwrap();
    assert!(entered.headers()["set-cookie"].to_str().unwrap().ends_with("; Secure"), "{entered:?}");
    assert!(scene.log().contains("the certificate is valid until 2090-12-31"), "{}", scene.log());
    // Plain HTTP is refused.
    let plain = reqwest::get(scene.url.replace("https", "http")).await;
    assert!(plain.is_err());

    // An incomplete change leaves the certificate in place, whatever the rest of the config is.
    fs::write(scene.path("tls/cert.pem"), "half").unwrap();
    let (code, _, notes) = scene.run(&["reload"]);
    assert!(code == 0 && notes.contains("note: the server keeps its old certificate"), "{notes}");
    scene.until("said so", || scene.log().contains("the certificate stays as it is"));
    let log = scene.log();
    let is_error = |entry: &str| entry.contains("ERROR") && entry.contains("the certificate stays as it is");
    assert!(log.lines().any(is_error), "{log}");
    let (_, status, _) = scene.run(&["status"]);
    assert!(status.contains("the server keeps its old certificate"), "{status}");
    assert_eq!(shown(&scene, &first).await.unwrap().1, first);
    let second = certify(&scene, 2091);
    assert_eq!(scene.run(&["reload"]).0, 0);
    scene.until("read again", || scene.log().contains("the certificate is valid until 2091-12-31"));
    assert_eq!(shown(&scene, &second).await.unwrap().1, second);
    assert!(shown(&scene, &first).await.is_err(), "the old one is gone");

    // A pipe is refused instead of being read.
    fs::remove_file(scene.path("tls/cert.pem")).unwrap();
    assert!(std::process::Command::new("mkfifo").arg(scene.path("tls/cert.pem")).status().unwrap().success());
    assert_eq!(scene.run(&["reload"]).0, 0);
    scene.until("said so", || scene.log().contains("cert.pem: it is a pipe, not a regular file"));
    assert_eq!(shown(&scene, &second).await.unwrap().1, second);
    fs::remove_file(scene.path("tls/cert.pem")).unwrap();

    certify(&scene, 2020);
    let daemon = rustix::process::Pid::from_raw(scene.pid().cast_signed()).unwrap();
    rustix::process::kill_process(daemon, rustix::process::Signal::HUP).unwrap();
    scene.until("noted", || scene.log().contains("the certificate ended on 2020-12-31"));
    let (code, doctor, _) = scene.run(&["doctor"]);
    assert!(
        code == 0 && doctor.contains("warn  certificate: the certificate ended on 2020-12-31"),
        "{doctor}"
    );
}

#[tokio::test]
async fn start_refuses_invalid_certificate_files() {
    let scene = Scene::prepared(FLEET);
    let start = |expected: &str| {
        let (code, out, said) = scene.run(&["start"]);
        assert!(code == 6 && out.is_empty() && said.contains(expected), "{expected}: {code} {out} {said}");
        assert!(!said.contains("PRIVATE"), "{said}");
        let (code, doctor, _) = scene.run(&["doctor"]);
        assert!(code == 6 && doctor.contains("FAIL  certificate"), "{doctor}");
    };
    start("cert.pem: No such file");
    certify(&scene, 2090);
    let other = fs::read(scene.path("tls/key.pem")).unwrap();
    certify(&scene, 2090);
    let key = fs::read_to_string(scene.path("tls/key.pem")).unwrap();
    fs::write(scene.path("tls/key.pem"), &other).unwrap();
    start("does not match the key");
    fs::write(scene.path("tls/key.pem"), "nothing").unwrap();
    start("there is no private key in PEM form in");
    fs::write(scene.path("tls/key.pem"), &key[..key.len() / 2]).unwrap();
    start("its private key is not in PEM form");
    fs::write(scene.path("tls/key.pem"), &key).unwrap();
    fs::write(scene.path("tls/cert.pem"), "").unwrap();
    start("there is no certificate in PEM form in");
    let damaged = "-----BEGIN CERTIFICATE-----\nAAAA\n-----END CERTIFICATE-----\n";
    fs::write(scene.path("tls/cert.pem"), damaged).unwrap();
    start("cert.pem is damaged");
    assert!(!scene.path(".cowhand/store.db").exists(), "nothing has begun");
}
