//! GitHub Apps: the signed JWT, the installation token, and its renewal.

use std::process::Command;

use base64::Engine;
use base64::prelude::BASE64_STANDARD;
use cowhand::work::github::GitHubWorkSource;
use cowhand::work::{SourceContext, WorkSource, WorkSourceError};
use cowhand_core::github::{AppAuth, Auth};
use jiff::SignedDuration;
use serde::Deserialize;

use crate::fake::{Fake, FakeFault};
use crate::{claimant, id, settings};

#[derive(Deserialize)]
struct Keys {
    pkcs1: String,
    pkcs8: String,
    public: String,
}

/// Generates keys each time, so that the repository contains none.
fn keys() -> Keys {
    const MAKE: &str = "
        const { generateKeyPairSync } = require('node:crypto');
        const { privateKey, publicKey } = generateKeyPairSync('rsa', { modulusLength: 2048 });
        const pem = (type) => privateKey.export({ type, format: 'pem' });
        const public = publicKey.export({ type: 'pkcs1', format: 'der' }).toString('base64');
        console.log(JSON.stringify({ pkcs1: pem('pkcs1'), pkcs8: pem('pkcs8'), public }));";
    let output = Command::new("node").args(["-e", MAKE]).output().unwrap();
    assert!(output.status.success(), "{output:?}");
    serde_json::from_slice(&output.stdout).unwrap()
}

fn auth(installation_id: Option<u64>) -> Auth {
    let app = AppAuth {
        id: "4711".into(),
        installation_id,
        private_key_env: Some("KEY".into()),
        private_key_file: None,
    };
    Auth { token_env: None, app: Some(app) }
}

async fn scene(pem: &str, public: &str, installation_id: Option<u64>) -> (Fake, GitHubWorkSource) {
    let fake = Fake::start().await;
    fake.add(7, &["ready"]);
    fake.state().app_key = Some(BASE64_STANDARD.decode(public).unwrap());
    fake.state().good_tokens = Some(Vec::new());
    let pem = pem.to_owned();
    let setting = SourceContext::new("", move |name| (name == "KEY").then(|| pem.clone()));
    let source = GitHubWorkSource::new(settings(&fake.url), &auth(installation_id), &setting).unwrap();
    (fake, source)
}

#[tokio::test]
async fn installation_token_is_reused_until_it_expires() {
    let keys = keys();
    let one_line = keys.pkcs1.replace('\n', "\\n");
    for (pem, installation_id) in [(&keys.pkcs1, None), (&keys.pkcs8, Some(77)), (&one_line, Some(77))] {
        let (fake, source) = scene(pem, &keys.public, installation_id).await;
        source.validate_token().await.unwrap();
        source.claim_work(&id(7), &claimant("job-1")).await.unwrap();
        assert_eq!(fake.state().issued_tokens, 1);
        assert_eq!(fake.requests().contains(&"GET /installation".to_owned()), installation_id.is_none());

        // The token is revoked: the next request is refused, and succeeds with a new token.
        fake.state().good_tokens = Some(Vec::new());
        assert!(source.get_work(&id(7)).await.unwrap().is_some());
        assert_eq!(fake.state().issued_tokens, 2);

        // A token with less than a minute left is not used again.
        fake.state().good_tokens = Some(Vec::new());
        fake.state().token_life = SignedDuration::from_secs(50);
        for sold in 3..=5 {
            source.get_work(&id(7)).await.unwrap();
            assert_eq!(fake.state().issued_tokens, sold);
        }
        let shown = format!("{source:?}");
        assert!(!shown.contains("ghs_") && !shown.contains("PRIVATE KEY"), "{shown}");
    }
}

#[tokio::test]
async fn concurrent_callers_request_one_token() {
    let keys = keys();
    let (fake, source) = scene(&keys.pkcs8, &keys.public, Some(77)).await;
    let number = id(7);
    let calls = (0..20).map(|_| source.get_work(&number));
    for answer in futures_util::future::join_all(calls).await {
        assert!(answer.unwrap().is_some());
    }
    assert_eq!(fake.state().issued_tokens, 1);
}

#[tokio::test]
async fn refused_jwt_is_not_retried() {
    let (ours, theirs) = (keys(), keys());
    let (fake, source) = scene(&ours.pkcs8, &theirs.public, Some(77)).await;
    let error = source.get_work(&id(7)).await.unwrap_err();
    assert!(error.to_string().contains("access_tokens: 401"), "{error}");
    assert_eq!(fake.requests().len(), 1);
}

#[tokio::test]
async fn token_request_is_retried_after_server_error() {
    let keys = keys();
    let (fake, source) = scene(&keys.pkcs8, &keys.public, Some(77)).await;
    fake.fault("POST /app/installations/77/access_tokens", FakeFault::status(502));
    assert!(source.get_work(&id(7)).await.unwrap().is_some());
    assert_eq!(fake.state().issued_tokens, 1);
}

#[test]
fn invalid_private_keys_are_refused() {
    let folder = tempfile::tempdir().unwrap();
    let file = |name: &str| Some(name.to_owned());
    std::fs::write(folder.path().join("key.pem"), keys().pkcs1).unwrap();
    let made = |env: Option<&str>, file: Option<String>, value: Option<&str>| {
        let mut auth = auth(None);
        let app = auth.app.as_mut().unwrap();
        (app.private_key_env, app.private_key_file) = (env.map(str::to_owned), file);
        let value = value.map(str::to_owned);
        let setting = SourceContext::new(folder.path(), move |_| value.clone());
        GitHubWorkSource::new(settings("http://127.0.0.1:1"), &auth, &setting)
            .map_err(|error: WorkSourceError| error.to_string())
    };
    made(None, file("key.pem"), None).unwrap();
    made(None, Some(folder.path().join("key.pem").to_str().unwrap().to_owned()), None).unwrap();
    for (env, file, value, words) in [
        (Some("KEY"), None, None, "the variable KEY is not set"),
        (Some("KEY"), None, Some("secret-words"), "not an RSA key in PEM form"),
        (None, file("none.pem"), None, "cannot be read"),
        (None, None, None, "needs either"),
        (Some("KEY"), file("key.pem"), Some("x"), "needs either"),
    ] {
        let error = made(env, file, value).unwrap_err();
        assert!(error.contains(words) && !error.contains("secret-words"), "{error}");
    }
}
