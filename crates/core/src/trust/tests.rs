use serde_json::{Value, json};

use super::*;
use crate::trigger::FiringContext;
use crate::trigger::tests::GOLDEN;
use crate::trigger::{Task, TriggerConfig};
use crate::work::{Priority, WorkItem};

fn trust(written: Value) -> Trust {
    serde_json::from_value(written).unwrap()
}

fn trigger(written: Value) -> TriggerConfig {
    serde_json::from_value(written).unwrap()
}

fn hook() -> TriggerConfig {
    trigger(json!({"type": "webhook", "secret_env": "S"}))
}

fn delivered(payload: Value) -> TextOrigin {
    TextOrigin::of(&hook(), &FiringContext { payload: Some(payload), ..FiringContext::default() }).unwrap()
}

fn listed(kind: &str, metadata: &[(&str, &str)]) -> TextOrigin {
    let trigger = trigger(json!({"type": kind, "owner": "o", "repo": "r"}));
    let metadata = metadata.iter().map(|(key, value)| ((*key).to_owned(), (*value).to_owned())).collect();
    TextOrigin::of(&trigger, &FiringContext::of_task(Task { metadata, ..Task::default() })).unwrap()
}

fn logins(origin: &TextOrigin) -> Vec<&str> {
    origin.authors.iter().map(|author| author.login.as_deref().unwrap_or("-")).collect()
}

#[test]
fn authors_are_found_in_the_payload_of_a_delivery() {
    for (payload, expected) in [
        (json!({"sender": {"login": "ann"}}), vec!["ann"]),
        (json!({"issue": {"user": {"login": "eve"}}, "sender": {"login": "ann"}}), vec!["eve", "ann"]),
        (
            json!({"issue": {"user": {"login": "ann"}}, "comment": {"user": {"login": "eve"}}, "sender": {"login": "eve"}}),
            vec!["eve", "ann"],
        ),
        (
            json!({"review": {"user": {"login": "eve"}}, "pull_request": {"user": {"login": "ann"}}}),
            vec!["ann", "eve"],
        ),
        (json!({"release": {"author": {"login": "eve"}}, "sender": {"login": "eve"}}), vec!["eve"]),
        (json!({"issue": {"user": null}, "sender": {"login": "ann"}}), vec!["-", "ann"]),
        (json!({"issue": {"user": {"login": ""}}}), vec!["-"]),
        (json!({"issue": {"user": "eve"}}), vec!["-"]),
        (json!({"head_commit": {"author": {"name": "x"}}, "sender": {"login": "ann"}}), vec!["ann"]),
        (json!({"user": {"username": "gitlab-ann"}, "object_attributes": {}}), vec!["gitlab-ann"]),
        // Eve reviews Ann's pull request, and Ann resolves the review.
        (
            json!({"thread": {"comments": [{"user": {"login": "eve"}}]}, "pull_request": {"user": {"login": "ann"},
                "base": {"user": {"login": "my-org"}}, "head": {"user": {"login": "x"}}}, "sender": {"login": "ann"}}),
            vec!["ann", "eve"],
        ),
        // Eve started the workflow run, and Ann runs it again.
        (
            json!({"workflow_run": {"actor": {"login": "eve"}, "triggering_actor": {"login": "ann"}}, "sender": {"login": "ann"}}),
            vec!["ann", "eve"],
        ),
        // GitLab: Ann labels Eve's issue, and then her own.
        (
            json!({"user": {"id": 1, "username": "ann"}, "object_attributes": {"author_id": 2}}),
            vec!["ann", "-"],
        ),
        (json!({"user": {"id": 1, "username": "ann"}, "object_attributes": {"author_id": 1}}), vec!["ann"]),
        // Slack sends no names.
        (json!({"event": {"user": "U1", "text": "go"}}), vec!["-"]),
        (json!({}), vec![]),
        (json!("text"), vec![]),
        (json!([{"user": {"login": "ann"}}]), vec!["ann"]),
    ] {
        let origin = delivered(payload.clone());
        let (mut found, mut expected) = (logins(&origin), expected);
        found.sort_unstable();
        expected.sort_unstable();
        assert_eq!(found, expected, "{payload}");
    }
}

#[test]
fn invalid_repository_names_are_ignored() {
    for name in ["o", "o/", "/r", "o/r/../..", "../r", "o/r?x", "o/r#x", "o/ r", "ö/r", ""] {
        assert_eq!(delivered(json!({"repository": {"full_name": name}})).repo, None, "{name}");
    }
    assert_eq!(
        delivered(json!({"repository": {"full_name": "my-org/a.b_c"}})).repo.as_deref(),
        Some("my-org/a.b_c")
    );
}

#[test]
fn forks_are_recognized_in_payloads() {
    let pull = |head: Value| json!({"pull_request": {"head": {"repo": head}, "base": {"repo": {"full_name": "O/R"}}}, "repository": {"full_name": "O/R"}});
    for (payload, expected) in [
        (pull(json!({"full_name": "o/r"})), Head::Own),
        (pull(json!({"full_name": "eve/r"})), Head::Fork(Some("eve/r".into()))),
        (pull(Value::Null), Head::Fork(None)),
        (json!({"pull_request": {}}), Head::Fork(None)),
        (json!({"issue": {"number": 7, "pull_request": {"url": "x"}}}), Head::OfPull(7)),
        (json!({"issue": {"number": "7", "pull_request": {}}}), Head::Unknown),
        (json!({"object_attributes": {"source_project_id": 1, "target_project_id": 1}}), Head::Own),
        (json!({"object_attributes": {"source_project_id": 2, "target_project_id": 1}}), Head::Fork(None)),
        (
            json!({"object_attributes": {
                "source_project_id": 2, "target_project_id": 1, "source": {"path_with_namespace": "a/fork"},
            }}),
            Head::Fork(Some("a/fork".to_owned())),
        ),
        (json!({"check_suite": {"head_branch": "main"}}), Head::Own),
        (json!({"check_suite": {"head_branch": null}}), Head::Unknown),
        (json!({"check_run": {"check_suite": {"head_branch": null}}}), Head::Unknown),
        (json!({"workflow_job": {"head_branch": "main"}}), Head::Unknown),
        (json!({"context": "ci", "branches": []}), Head::Unknown),
        (json!({"context": "ci", "branches": [{"name": "main"}]}), Head::Own),
        (json!({"issue": {"number": 7}}), Head::Own),
        (
            json!({"workflow_run": {"head_repository": {"full_name": "eve/r"}}, "repository": {"full_name": "o/r"}}),
            Head::Fork(Some("eve/r".into())),
        ),
        (
            json!({"workflow_run": {"head_repository": null}, "repository": {"full_name": "o/r"}}),
            Head::Fork(None),
        ),
        (json!({}), Head::Own),
    ] {
        assert_eq!(delivered(payload.clone()).head, expected, "{payload}");
    }
    let own = [("author", "ann"), ("head_repo", "O/R")];
    assert_eq!(listed("github_pull_requests", &own).head, Head::Own);
    let fork = [("author", "ann"), ("head_repo", "eve/r")];
    assert_eq!(listed("github_pull_requests", &fork).head, Head::Fork(Some("eve/r".into())));
    let gone = [("author", "ann"), ("head_repo", "")];
    assert_eq!(listed("github_pull_requests", &gone).head, Head::Fork(None));
    assert_eq!(listed("github_issues", &[("author", "ann")]).head, Head::Own);
}

#[test]
fn author_and_permission_decide_trust() {
    use RepoPermission::{Admin, Read, Triage, Write};
    let by = |login: Option<&str>, permission: AuthorPermission| TextOrigin {
        repo: Some("o/r".into()),
        authors: vec![Author { permission, ..Author::new(login.map(str::to_owned)) }],
        ..TextOrigin::default()
    };
    let has = |permission| AuthorPermission::Permission(permission);
    let (names, write) = (json!({"allow_authors": ["Ann", "bot[bot]"]}), json!({"min_permission": "write"}));
    let both = json!({"allow_authors": ["ann"], "min_permission": "write"});
    let everybody = json!({"strangers": "allow", "forks": "refuse"});
    for (written, origin, expected) in [
        (&names, by(Some("ann"), AuthorPermission::Unknown), ""),
        (&names, by(Some("BOT[bot]"), AuthorPermission::Unknown), ""),
        (&names, by(Some("anna"), has(Admin)), "refused: anna is not among `allow_authors`"),
        (
            &names,
            by(None, AuthorPermission::Unknown),
            "refused: one of its authors has no name, or no account any more",
        ),
        (&names, TextOrigin::default(), "refused: its author is not known"),
        (&write, by(Some("eve"), has(Write)), ""),
        (&write, by(Some("eve"), has(Admin)), ""),
        (
            &write,
            by(Some("eve"), has(Triage)),
            "refused: eve has triage in o/r, and `min_permission` is write",
        ),
        (
            &write,
            by(Some("eve"), AuthorPermission::Nothing),
            "refused: eve has no permission in o/r, and `min_permission` is write",
        ),
        (
            &write,
            by(Some("eve"), AuthorPermission::Unknown),
            "refused: eve has no permission in o/r, and `min_permission` is write",
        ),
        (&both, by(Some("ann"), has(Read)), ""),
        (&both, by(Some("eve"), has(Write)), ""),
        (&everybody, by(None, AuthorPermission::Unknown), ""),
        (&everybody, TextOrigin::default(), ""),
    ] {
        let verdict_text = verdict_text(trust(written.clone()).verdict(&origin));
        assert_eq!(verdict_text, expected, "{written} {origin:?}");
    }
    let two = TextOrigin {
        authors: vec![Author::new(Some("ann".into())), Author::new(Some("eve".into()))],
        ..TextOrigin::default()
    };
    assert_eq!(
        verdict_text(trust(names).verdict(&two)),
        "refused: eve is not among `allow_authors`",
        "every author has to be trusted"
    );
}

fn verdict_text(verdict: TrustVerdict) -> String {
    match verdict {
        TrustVerdict::Trusted => String::new(),
        TrustVerdict::Confined(why) => format!("confined: {why}"),
        TrustVerdict::Refused(why) => format!("refused: {why}"),
    }
}

#[test]
fn forks_and_strangers_are_treated_as_configured() {
    let of_fork = |login: &str| TextOrigin {
        head: Head::Fork(Some("eve/r".into())),
        ..delivered(json!({"sender": {"login": login}}))
    };
    for (written, login, expected) in [
        (json!({"allow_authors": ["ann"]}), "ann", "refused: its commits come from the fork eve/r"),
        (json!({"allow_authors": ["ann"], "forks": "allow"}), "ann", ""),
        (
            json!({"allow_authors": ["ann"], "forks": "sandbox"}),
            "ann",
            "confined: its commits come from the fork eve/r",
        ),
        (
            json!({"allow_authors": ["ann"], "forks": "sandbox"}),
            "eve",
            "refused: eve is not among `allow_authors`",
        ),
        (
            json!({"allow_authors": ["ann"], "strangers": "sandbox"}),
            "ann",
            "confined: its commits come from the fork eve/r",
        ),
        (
            json!({"strangers": "sandbox", "forks": "refuse"}),
            "eve",
            "refused: its commits come from the fork eve/r",
        ),
    ] {
        assert_eq!(
            verdict_text(trust(written.clone()).verdict(&of_fork(login))),
            expected,
            "{written} {login}"
        );
    }
    let strict = [trust(json!({"strangers": "sandbox"})), trust(json!({"allow_authors": ["ann"]}))];
    let origin = delivered(json!({"sender": {"login": "eve"}}));
    assert_eq!(
        verdict_text(judge(&strict, &origin)),
        "refused: eve is not among `allow_authors`",
        "the stricter decision counts"
    );
    assert_eq!(judge(&[], &origin), TrustVerdict::Trusted, "there are no trust rules");
}

#[test]
fn permissions_count_only_in_the_configured_repositories() {
    let of = |repo: &str| TextOrigin {
        repo: Some(repo.into()),
        authors: vec![Author {
            permission: AuthorPermission::Permission(RepoPermission::Admin),
            ..Author::new(Some("eve".into()))
        }],
        ..TextOrigin::default()
    };
    let trust = trust(json!({"min_permission": "write", "repos": ["My-Org/app", "tools/*"]}));
    for (repo, expected) in [
        ("my-org/APP", ""),
        ("tools/any", ""),
        ("my-org/other", "refused: my-org/other is not among `repos`"),
        ("eve/app", "refused: eve/app is not among `repos`"),
        ("tools", "refused: tools is not among `repos`"),
    ] {
        assert_eq!(verdict_text(trust.verdict(&of(repo))), expected);
        assert_eq!(of(repo).open_questions(&[&trust]), [], "the permission is known, or the text is refused");
    }
    let nowhere = TextOrigin { repo: None, ..of("o/r") };
    assert_eq!(
        verdict_text(trust.verdict(&nowhere)),
        "refused: it names no repository, and `repos` lists the trusted ones"
    );
}

#[test]
fn text_without_a_proven_author_is_refused() {
    let unsigned = trigger(json!({"type": "webhook", "allow_unsigned": true}));
    let payload = Some(json!({"sender": {"login": "ann"}}));
    let origin = TextOrigin::of(&unsigned, &FiringContext { payload, ..FiringContext::default() }).unwrap();
    let names = trust(json!({"allow_authors": ["ann"]}));
    assert_eq!(
        verdict_text(names.verdict(&origin)),
        "refused: its deliveries are not signed, so that anybody could have written it"
    );
    for (written, may_have_outside_text) in [
        (json!({"type": "manual"}), false),
        (json!({"type": "interval", "interval": "1h"}), false),
        (json!({"type": "dispatch_result", "schedule": "x"}), false),
        (json!({"type": "chat"}), true),
        (json!({"type": "custom", "name": "mail"}), true),
    ] {
        let origin = TextOrigin::of(&trigger(written.clone()), &FiringContext::default());
        assert_eq!(origin.is_some(), may_have_outside_text, "{written}");
        if let Some(origin) = origin {
            assert_eq!(verdict_text(names.verdict(&origin)), "refused: its author is not known", "{written}");
        }
    }
}

/// The table in `docs/trust.md` names each type whose authors are checked, and each type that fires for an event of the
/// fleet. One row is for all other types, without their names.
#[test]
fn the_documentation_names_every_type_whose_authors_are_checked() {
    let page = include_str!("../../../../docs/trust.md");
    let (_, section) = page.split_once("## Whose text is checked").unwrap();
    let rows: Vec<&str> = section.lines().skip_while(|line| !line.starts_with('|')).collect();
    let subjects =
        rows.iter().take_while(|line| line.starts_with('|')).map(|row| row.split('|').nth(1).unwrap());
    let subjects: String = subjects.collect();
    for (name, line) in GOLDEN {
        let trigger: TriggerConfig = serde_json::from_str(line).unwrap();
        let is_checked = TextOrigin::of(&trigger, &FiringContext::default()).is_some();
        let is_named = subjects.contains(&format!("`{name}`"));
        assert_eq!(is_named, is_checked || trigger.follows_events(), "docs/trust.md: {name}");
    }
}

#[test]
fn only_undecided_questions_of_trust_are_asked() {
    let origin = delivered(json!({"issue": {"number": 7, "pull_request": {}, "user": {"login": "ann"}},
        "sender": {"login": "eve"}, "repository": {"full_name": "o/r"}}));
    let asked = |written: Value| origin.open_questions(&[&trust(written)]).len();
    assert_eq!(asked(json!({"allow_authors": ["ann"], "forks": "allow"})), 0);
    assert_eq!(asked(json!({"allow_authors": ["ann"]})), 0, "eve is always refused");
    assert_eq!(asked(json!({"allow_authors": ["ann", "eve"]})), 1, "the origin of the commits");
    assert_eq!(asked(json!({"allow_authors": ["ann"], "min_permission": "read"})), 2);
    assert_eq!(asked(json!({"min_permission": "read", "forks": "allow"})), 2);
    assert_eq!(asked(json!({"min_permission": "read", "strangers": "allow", "forks": "allow"})), 0);
    let gone =
        TextOrigin { authors: vec![Author::new(None), Author::new(Some("eve".into()))], ..origin.clone() };
    assert!(gone.open_questions(&[&trust(json!({"min_permission": "read"}))]).is_empty(), "always refused");
    let nowhere = delivered(json!({"sender": {"login": "eve"}}));
    assert!(nowhere.open_questions(&[&trust(json!({"min_permission": "read"}))]).is_empty());
}

#[test]
fn the_author_of_a_work_item_is_checked() {
    let item = |metadata: Value| WorkItem {
        id: "github-7".parse().unwrap(),
        title: String::new(),
        description: String::new(),
        priority: Priority::Medium,
        labels: Vec::new(),
        metadata: metadata.as_object().cloned().unwrap(),
        url: String::new(),
        created_at: jiff::Timestamp::UNIX_EPOCH,
        updated_at: jiff::Timestamp::UNIX_EPOCH,
    };
    let of = |metadata: Value, repo: Option<&str>| {
        verdict_text(
            trust(json!({"allow_authors": ["ann"]})).verdict(&TextOrigin::of_item(&item(metadata), repo)),
        )
    };
    assert_eq!(of(json!({"author": "ann"}), Some("o/r")), "");
    assert_eq!(of(json!({"author": "ann"}), None), "");
    assert_eq!(
        of(json!({"author": null}), Some("o/r")),
        "refused: one of its authors has no name, or no account any more"
    );
    assert_eq!(of(json!({}), None), "refused: its author is not known");
}

/// Only the case of ASCII letters is ignored. A letter that looks like another letter, a space and an invisible
/// character make a different name.
#[test]
fn lookalike_names_are_not_trusted() {
    let known = trust(json!({"allow_authors": ["kim"]}));
    let knows = |login: &str| known.knows(&Author::new(Some(login.to_owned())));
    assert!(knows("KIM"));
    for other in ["\u{212a}im", "kım", "kim ", "k\u{200b}im"] {
        assert!(!knows(other), "{other:?}");
    }
}

/// Everybody can register a login that is the same text as the id of a user of a chat.
#[test]
fn an_id_of_a_chat_and_a_login_are_different_authors() {
    let message = |platform: &str, id: &str| {
        let metadata = [("platform", platform), ("author", id)];
        let metadata = metadata.map(|(key, value)| (key.to_owned(), value.to_owned())).into();
        let context = FiringContext::of_task(Task { metadata, ..Task::default() });
        TextOrigin::of(&trigger(json!({"type": "chat"})), &context).unwrap()
    };
    let issue = |login: &str| listed("github_issues", &[("author", login)]);
    let mail = |author: &str| {
        let metadata =
            [("platform", "slack"), ("author", author)].map(|(key, value)| (key.into(), value.into()));
        let context = FiringContext::of_task(Task { metadata: metadata.into(), ..Task::default() });
        TextOrigin::of(&trigger(json!({"type": "custom", "name": "mail"})), &context).unwrap()
    };
    for (entry, origin, stranger) in [
        ("slack:U012AB3CD", message("slack", "U012AB3CD"), None),
        ("slack:U012AB3CD", message("slack", "u012ab3cd"), Some("slack:u012ab3cd")),
        ("slack:U012AB3CD", message("discord", "U012AB3CD"), Some("discord:U012AB3CD")),
        ("slack:U012AB3CD", issue("u012ab3cd"), Some("u012ab3cd")),
        ("slack:U012AB3CD", issue("slack:U012AB3CD"), Some("slack:U012AB3CD")),
        ("slack:U012AB3CD", mail("slack:U012AB3CD"), Some("slack:U012AB3CD")),
        ("U012AB3CD", issue("u012ab3cd"), None),
        ("U012AB3CD", message("slack", "U012AB3CD"), Some("slack:U012AB3CD")),
        ("jira:ann", mail("jira:Ann"), None),
    ] {
        let verdict = verdict_text(trust(json!({"allow_authors": [entry]})).verdict(&origin));
        let expected = stranger.map(|stranger| format!("refused: {stranger} is not among `allow_authors`"));
        assert_eq!(verdict, expected.unwrap_or_default(), "{entry} {origin:?}");
    }
    let again = |author: &str, by: &str| {
        let metadata = [("platform", "slack"), ("author", author), ("repeated_by", by)];
        let metadata = metadata.map(|(key, value)| (key.to_owned(), value.to_owned())).into();
        let context = FiringContext::of_task(Task { metadata, ..Task::default() });
        TextOrigin::of(&trigger(json!({"type": "chat"})), &context).unwrap()
    };
    let trusts_ann = trust(json!({"allow_authors": ["slack:UANN"], "strangers": "sandbox"}));
    for (author, by, is_trusted) in [("UANN", "UANN", true), ("UANN", "UEVE", false), ("UEVE", "UANN", false)]
    {
        let verdict = verdict_text(trusts_ann.verdict(&again(author, by)));
        let expected = if is_trusted { "" } else { "confined: slack:UEVE is not among `allow_authors`" };
        assert_eq!(verdict, expected, "{author} again by {by}");
    }
    let nowhere = message("irc", "ann");
    let verdict = verdict_text(trust(json!({"allow_authors": ["ann"]})).verdict(&nowhere));
    assert_eq!(verdict, "refused: its author is not known");
}

#[test]
fn derived_jobs_of_strangers_are_confined_or_refused() {
    let trusts = |written: &[Value]| written.iter().cloned().map(trust).collect::<Vec<_>>();
    for (written, expected) in [
        (trusts(&[]), "confined: eve"),
        (trusts(&[json!({"strangers": "allow"})]), "confined: eve"),
        (trusts(&[json!({"strangers": "sandbox"})]), "confined: eve"),
        (trusts(&[json!({"allow_authors": ["ann"]})]), "refused: eve"),
        (trusts(&[json!({"strangers": "sandbox"}), json!({"min_permission": "write"})]), "refused: eve"),
    ] {
        assert_eq!(verdict_text(judge_derived(&written, "eve")), expected, "{written:?}");
    }
}
