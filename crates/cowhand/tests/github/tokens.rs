//! Tokens: their origin, their rights, and their secrecy.

use std::io::Write;
use std::sync::{Arc, Mutex};

use cowhand::work::github::{ApiFailure, GitHubWorkSource};
use cowhand::work::{SourceContext, SourceRegistry, WorkSource, WorkSourceError};
use cowhand_core::work::FetchOptions;
use cowhand_core::work_source::ConfiguredSource;
use jiff::{SignedDuration, Timestamp};
use tracing::instrument::WithSubscriber;

use crate::fake::{Fake, FakeFault};
use crate::trouble::{ISSUE, api_error};
use crate::{TOKEN, claim, id, scene, settings, source_with};

#[tokio::test]
async fn scopes_are_checked() {
    for (scopes, is_private, missing) in [
        (Some("repo, gist"), true, None),
        (Some("public_repo"), false, None),
        (Some("public_repo"), true, Some("repo")),
        (Some("gist"), false, Some("public_repo")),
        (Some(""), true, Some("repo")),
        (None, true, None),
    ] {
        let (fake, source) = scene().await;
        (fake.state().scopes, fake.state().is_private) = (scopes, is_private);
        match (source.validate_token().await, missing) {
            (Ok(()), None) => {}
            (Err(WorkSourceError::GitHubAuth(error)), Some(missing)) => {
                assert_eq!(error.missing_scopes(), [missing]);
                assert_eq!(error.required_scopes, [missing]);
                assert_eq!(error.found_scopes.join(", "), scopes.unwrap());
            }
            (found, _) => panic!("{scopes:?}: {found:?}"),
        }
    }
}

/// Every refusal names the repository, the variable of the token and what to check. It says that a scope is
/// missing only if GitHub's answer says so.
#[tokio::test]
async fn refusals_name_repository_token_variable_and_remedy() {
    let gist = [("x-oauth-scopes", "gist"), ("x-accepted-oauth-scopes", "repo")];
    for (status, headers, words, scopes) in [
        (401, &[][..], "the token in GITHUB_TOKEN was refused for my-org/my-repo: check that", ""),
        (403, &[], "the token in GITHUB_TOKEN may not do this in my-org/my-repo: check that", ""),
        (403, &gist, "has the scopes gist and needs one of repo for my-org/my-repo", "repo"),
        (404, &[], "there is no my-org/my-repo, or the token in GITHUB_TOKEN cannot see it: check", ""),
        (404, &[("x-oauth-scopes", "gist")], "a private repository needs repo", "repo"),
        (404, &[("x-oauth-scopes", "repo")], "there is no my-org/my-repo", ""),
    ] {
        let (fake, source) = scene().await;
        fake.fault("GET /repos/my-org/my-repo", FakeFault::with(status, headers, "planned"));
        let error = source.fetch_available_work(&FetchOptions::default()).await.unwrap_err();
        assert!(error.to_string().contains(words), "{status}: {error}");
        assert_eq!(error.to_string().contains("scope"), !scopes.is_empty(), "{status}: {error}");
        assert!(!error.to_string().contains("SECRET"));

        fake.fault("GET /repos/my-org/my-repo", FakeFault::with(status, headers, "planned"));
        let error = source.validate_token().await.unwrap_err();
        assert!(error.to_string().contains(words) && !error.is_retryable(), "{status}: {error}");
        let WorkSourceError::GitHubAuth(error) = error else { panic!("{error:?}") };
        assert_eq!(error.missing_scopes().join(", "), scopes, "{status}: {error}");
    }
}

#[test]
fn github_source_is_created_from_config() {
    let made = |yaml: serde_json::Value, token: Option<&str>| {
        let config: ConfiguredSource = serde_json::from_value(yaml).unwrap();
        let token = token.map(str::to_owned);
        let setting = SourceContext::new("", move |name| token.clone().filter(|_| name == "MY_TOKEN"));
        if let Ok(source) = SourceRegistry::default().create(&config, &setting) {
            assert_eq!(source.source_type(), config.name());
        }
        GitHubWorkSource::from_config(&config, &setting)
    };
    let auth = serde_json::json!({"token_env": "MY_TOKEN"});
    let whole = serde_json::json!({
        "type": "github", "repo": "o/r", "auth": auth, "labels": {"ready": "go", "in_progress": "busy"},
        "exclude_labels": [], "cleanup_on_failure": false, "api_url": "https://github.example.com/api/v3",
    });
    let settings = made(whole, Some(TOKEN)).unwrap().settings().clone();
    assert_eq!((settings.ready.as_str(), settings.in_progress.as_str()), ("go", "busy"));
    assert!(settings.exclude_labels.is_empty() && !settings.cleanup_on_failure);
    let bare = serde_json::json!({"type": "github", "repo": "o/r", "auth": auth});
    let settings = made(bare.clone(), Some(TOKEN)).unwrap().settings().clone();
    assert_eq!((settings.ready.as_str(), settings.in_progress.as_str()), ("ready", "agent-working"));
    assert_eq!(settings.exclude_labels, ["blocked", "wip"]);
    assert!(settings.cleanup_on_failure);

    let error = made(bare.clone(), None).unwrap_err();
    assert_eq!(
        error.to_string(),
        "GitHub: no token for o/r: the variable MY_TOKEN is not set; set it, add it to .env, or name another in `auth.token_env`"
    );
    assert!(matches!(error, WorkSourceError::GitHubAuth(_)));
    for token in ["", "  ", "with\nline"] {
        assert!(made(bare.clone(), Some(token)).is_err(), "{token:?}");
    }
    for repo in ["", "r", "o/", "/r", "o/r/x", "../r", "o/..", "o/r?x", "o/r#x", "o/r x"] {
        let yaml = serde_json::json!({"type": "github", "repo": repo, "auth": auth});
        assert!(made(yaml, Some(TOKEN)).is_err(), "{repo}");
    }
    assert!(made(serde_json::json!({"type": "github"}), Some(TOKEN)).is_err());
    assert!(made(serde_json::json!({"type": "files", "path": "x"}), Some(TOKEN)).is_err());
}

#[derive(Clone, Default)]
struct Log(Arc<Mutex<Vec<u8>>>);

impl Write for Log {
    fn write(&mut self, bytes: &[u8]) -> std::io::Result<usize> {
        self.0.lock().unwrap().write(bytes)
    }

    fn flush(&mut self) -> std::io::Result<()> {
        Ok(())
    }
}

/// The token is not in an error, even if a proxy's page quotes it, not in `Debug`, and not in the most
/// verbose log.
#[tokio::test]
async fn the_token_is_never_shown() {
    let (log, fake) = (Log::default(), Fake::start().await);
    let writer = log.clone();
    let subscriber = tracing_subscriber::fmt()
        .with_max_level(tracing::Level::TRACE)
        .with_writer(move || writer.clone())
        .finish();
    let seen = async {
        let source = source_with(settings(&fake.url));
        let mut seen = format!("{source:?} {:?}", source.client());
        fake.add(7, &["ready"]);
        claim(&source, 7, "job-1").await.unwrap();
        let page = format!("<html>Bad header: Authorization: Bearer {TOKEN}</html>");
        let soon = (Timestamp::now() + SignedDuration::from_hours(1)).as_second().to_string();
        for (status, headers) in [
            (400, vec![]),
            (500, vec![]),
            (500, vec![]),
            (500, vec![]),
            (500, vec![]),
            (
                403,
                vec![
                    ("x-ratelimit-limit", "1".into()),
                    ("x-ratelimit-remaining", "0".into()),
                    ("x-ratelimit-reset", soon),
                ],
            ),
        ] {
            fake.fault(ISSUE, FakeFault::Answer { status, headers, body: page.clone() });
        }
        for _ in 0..3 {
            let error = source.get_work(&id(7)).await.unwrap_err();
            seen = format!("{seen} {error} {error:?}");
            let error = api_error(error);
            assert!(error.message.contains("[hidden]") || error.message.contains("not asked"), "{error}");
            assert!(!matches!(error.kind, ApiFailure::Unreadable));
        }
        seen
    };
    let seen = seen.with_subscriber(subscriber).await;
    let log = String::from_utf8(log.0.lock().unwrap().clone()).unwrap();
    assert!(log.contains("a limit is reached") && log.contains("trying again"), "{log}");
    for text in [seen, log] {
        assert!(!text.contains("0123456789SECRET"), "{text}");
    }
    assert!(fake.state().tokens.iter().all(|token| *token == format!("Bearer {TOKEN}")));
}
