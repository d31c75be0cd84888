//! Trust: whose text becomes a job, whose text runs in the strict sandbox, and what the ledger records about the rest.

use std::os::unix::fs::PermissionsExt;

use cowhand::fleet::{Delivered, Fleet, JobChanges, Stop};
use cowhand::store::LedgerRow;
use cowhand::trigger::Registry;
use cowhand_core::chat::posting::MessageDetails;
use cowhand_core::delivery::{Delivery, Message, Webhook};
use cowhand_core::job::{Job, JobStatus};
use cowhand_core::roster::Agent;
use cowhand_core::runtime::Runtime;
use cowhand_core::schedule::{FiringOutcome, SkipReason};
use cowhand_core::trigger::ChatPlatform;
use serde_json::{Value, json};

use crate::fake::{FakeLists, issue};
use crate::{FleetFolder, id, jobs, ledger, name, on_both, record, wait_for, with_schedule};

on_both!(strangers_are_refused_and_confined);

const HOOK: &str = r#"{"type":"webhook","secret":"x"}"#;

/// Sets the trust, with a token from a variable that every test has.
fn trusting(mut agent: Agent, url: &str, mut trust: Value) -> Agent {
    trust["api_url"] = json!(url);
    trust["auth"] = json!({"token_env": "PATH"});
    agent.schedules.last_mut().unwrap().trust = Some(serde_json::from_value(trust).unwrap());
    agent
}

fn opened(id: &str, author: &str) -> Delivery {
    comes(
        id,
        "issues",
        &json!({"action": "opened", "issue": {"number": 7, "title": "T", "user": {"login": author}},
        "sender": {"login": author}, "repository": {"full_name": "o/r"}}),
    )
}

fn comes(id: &str, event: &str, payload: &Value) -> Delivery {
    Delivery::Webhook(Webhook::of_body(id, event, payload.to_string().as_bytes()).unwrap())
}

async fn deliver(fleet: &Fleet, schedule: &str, delivery: Delivery) -> Delivered {
    fleet.deliver(&name("a"), &schedule.parse().unwrap(), delivery).await.unwrap()
}

/// Waits for the outcome of a firing.
async fn settled(fleet: &Fleet, schedule: &str, key: &str) -> LedgerRow {
    let mut found = None;
    wait_for(&format!("{key} is settled"), async || {
        let rows = ledger(fleet, id("a", schedule)).await;
        found = rows.into_iter().find(|row| row.key.as_str().ends_with(key));
        found.as_ref().is_some_and(|row| row.outcome != FiringOutcome::Preparing)
    })
    .await;
    found.unwrap()
}

async fn job_of(fleet: &Fleet, row: &LedgerRow) -> Job {
    fleet.store().job(row.job.clone().unwrap()).await.unwrap().unwrap()
}

fn refused(row: &LedgerRow) -> &str {
    assert_eq!((row.outcome, &row.job), (FiringOutcome::Skipped(SkipReason::Filtered), &None), "{row:?}");
    row.note.as_deref().unwrap()
}

async fn strangers_are_refused_and_confined(home: FleetFolder) {
    let fake = FakeLists::with_issues(0).await;
    fake.fake_state.lock().unwrap().people =
        vec![("ann", "write", "maintain"), ("eve", "read", "triage"), ("odd", "write", "our-own-role")];
    let agent = with_schedule(home.idle_agent("a"), "strict", HOOK, "{{title}}");
    let agent = trusting(agent, &fake.url, json!({"min_permission": "write", "allow_authors": ["bot[bot]"]}));
    let agent = with_schedule(agent, "lenient", HOOK, "{{title}}");
    let agent = trusting(agent, &fake.url, json!({"min_permission": "write", "strangers": "sandbox"}));
    let fleet = home.start(vec![agent], Registry::default()).await;
    for (author, trusted) in
        [("ann", true), ("odd", true), ("bot[bot]", true), ("eve", false), ("nobody", false)]
    {
        for schedule in ["strict", "lenient"] {
            let delivered = deliver(&fleet, schedule, opened(author, author)).await;
            assert!(matches!(delivered, Delivered::Preparing), "{delivered:?}");
            assert_eq!(deliver(&fleet, schedule, opened(author, author)).await, Delivered::Duplicate);
        }
        let row = settled(&fleet, "strict", author).await;
        let lenient = settled(&fleet, "lenient", author).await;
        let confined = job_of(&fleet, &lenient).await.confined().map(str::to_owned);
        if trusted {
            assert_eq!((row.outcome, row.note.as_deref()), (FiringOutcome::Ran, None), "{author}");
            assert_eq!(job_of(&fleet, &row).await.confined(), None, "{author}");
        } else {
            let has = if author == "eve" { "triage" } else { "no permission" };
            let why = format!("{author} has {has} in o/r, and `min_permission` is write");
            assert_eq!(refused(&row), why);
            assert_eq!(confined.as_deref(), Some(why.as_str()));
            assert_eq!(lenient.note, Some(format!("in the strict sandbox: {why}")));
        }
    }
    // The bot is a stranger if it is not named.
    let row = settled(&fleet, "lenient", "bot[bot]").await;
    assert_eq!(
        job_of(&fleet, &row).await.confined(),
        Some("bot[bot] has no permission in o/r, and `min_permission` is write")
    );
    let asked = fake.fake_state.lock().unwrap().asked_about.clone();
    assert_eq!(
        asked.iter().filter(|login| *login == "eve").count(),
        1,
        "what is known is not asked again: {asked:?}"
    );

    // A retry of a stranger's job has the same confinement.
    let row = settled(&fleet, "lenient", "eve").await;
    fleet.cancel(row.job.clone().unwrap()).await.unwrap();
    let again = fleet.retry(row.job.as_ref().unwrap(), JobChanges::default()).await.unwrap();
    assert!(again.confined().is_some_and(|why| why.starts_with("eve has")), "{again:?}");
    fleet.stop(Stop::KeepAgents).await.unwrap();
}

/// A comment on a pull request does not contain its origin, so GitHub is asked.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn pull_requests_from_forks_are_not_trusted() {
    let home = FleetFolder::sqlite();
    let pull = |number: u64, head: Value| {
        json!({"number": number, "created_at": "2026-01-01T00:00:00Z", "user": {"login": "ann"}, "title": "P",
            "head": {"repo": head}, "base": {"repo": {"full_name": "o/r"}}})
    };
    let pulls = vec![
        pull(1, json!({"full_name": "o/r"})),
        pull(2, json!({"full_name": "eve/r"})),
        pull(3, Value::Null),
    ];
    let fake = FakeLists::start(Vec::new(), pulls).await;
    let agent = with_schedule(home.idle_agent("a"), "hook", HOOK, "{{title}}");
    let agent = trusting(agent, &fake.url, json!({"allow_authors": ["ann"]}));
    let list = format!(
        r#"{{"type":"github_pull_requests","owner":"o","repo":"r","api_url":"{}","auth":{{"token_env":"PATH"}}}}"#,
        fake.url
    );
    let agent = trusting(
        with_schedule(agent, "list", &list, "{{title}}"),
        &fake.url,
        json!({"allow_authors": ["ANN"], "forks": "sandbox"}),
    );
    let fleet = home.start(vec![agent], Registry::default()).await;
    let on = |number: u64| {
        json!({"issue": {"number": number, "title": "P", "pull_request": {"url": "x"}, "user": {"login": "ann"}},
            "comment": {"user": {"login": "ann"}, "body": "go"}, "sender": {"login": "ann"}, "repository": {"full_name": "o/r"}})
    };
    for (number, expected) in [
        (1, None),
        (2, Some("its commits come from the fork eve/r")),
        (3, Some("its commits come from a fork whose name is not known")),
    ] {
        deliver(&fleet, "hook", comes(&format!("on-{number}"), "issue_comment", &on(number))).await;
        let row = settled(&fleet, "hook", &format!("on-{number}")).await;
        match expected {
            None => assert_eq!(row.outcome, FiringOutcome::Ran),
            Some(why) => assert_eq!(refused(&row), why),
        }
        let key = format!(":{number}");
        let row = settled(&fleet, "list", &key).await;
        assert_eq!(job_of(&fleet, &row).await.confined(), expected, "of the list");
    }
    fleet.stop(Stop::KeepAgents).await.unwrap();
}

/// An author is neither trusted nor refused because GitHub is not available: the check is repeated, also
/// after a restart.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn delivery_waits_while_permission_cannot_be_read() {
    let (home, fake) = (FleetFolder::sqlite(), FakeLists::with_issues(0).await);
    {
        let mut fake_state = fake.fake_state.lock().unwrap();
        (fake_state.people, fake_state.refuses) = (vec![("ann", "admin", "admin")], Some(403));
    }
    let agent = || {
        let agent = with_schedule(home.idle_agent("a"), "hook", HOOK, "x");
        trusting(agent, &fake.url, json!({"min_permission": "write"}))
    };
    let fleet = home.start(vec![agent()], Registry::default()).await;
    deliver(&fleet, "hook", opened("d1", "ann")).await;
    wait_for("its trouble is told", async || {
        let trouble = record(&fleet, id("a", "hook")).await.last_error;
        trouble.is_some_and(|trouble| trouble.contains("the permission of ann, for `trust`"))
    })
    .await;
    fleet.stop(Stop::KeepAgents).await.unwrap();
    drop(fleet);
    let fleet = home.start(vec![agent()], Registry::default()).await;
    assert_eq!(ledger(&fleet, id("a", "hook")).await[0].outcome, FiringOutcome::Preparing);
    fake.fake_state.lock().unwrap().refuses = None;
    let row = settled(&fleet, "hook", "d1").await;
    assert_eq!(row.outcome, FiringOutcome::Ran);
    assert_eq!(record(&fleet, id("a", "hook")).await.last_error, None);
    fleet.stop(Stop::KeepAgents).await.unwrap();
}

/// Trust also applies to polled lists and to chat messages. A chat has no permissions, so only `allow_authors`
/// counts.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn trust_applies_to_lists_and_chats() {
    let (home, fake) = (FleetFolder::sqlite(), FakeLists::with_issues(0).await);
    let by = |number: u64, author: &str| {
        let mut issue = issue(number);
        issue["user"] = json!({"login": author});
        issue
    };
    fake.fake_state.lock().unwrap().issues = vec![by(1, "ann"), by(2, "eve"), issue(3)];
    fake.fake_state.lock().unwrap().people = vec![("ann", "write", "write"), ("eve", "read", "read")];
    let list = format!(
        r#"{{"type":"github_issues","owner":"o","repo":"r","api_url":"{}","auth":{{"token_env":"PATH"}}}}"#,
        fake.url
    );
    let agent = with_schedule(home.idle_agent("a"), "list", &list, "{{title}}");
    let agent = trusting(agent, "http://127.0.0.1:1", json!({"min_permission": "write"}));
    let agent = with_schedule(agent, "chat", r#"{"type":"chat"}"#, "{{body}}");
    let trust = json!({"allow_authors": ["slack:ann", "eve"], "min_permission": "read"});
    let agent = trusting(agent, &fake.url, trust);
    let fleet = home.start(vec![agent], Registry::default()).await;
    assert_eq!(settled(&fleet, "list", ":1").await.outcome, FiringOutcome::Ran);
    let row = settled(&fleet, "list", ":2").await;
    assert_eq!(refused(&row), "eve has read in o/r, and `min_permission` is write");
    assert_eq!(
        refused(&settled(&fleet, "list", ":3").await),
        "one of its authors has no name, or no account any more"
    );
    for (author, expected) in [
        ("ann", None),
        (
            "eve",
            Some(
                "slack:eve is not among `allow_authors`, and there is no repository in which to check a permission",
            ),
        ),
    ] {
        let (channel, text, url) = ("C1".to_owned(), "go".to_owned(), String::new());
        let message = Message {
            platform: ChatPlatform::Slack,
            id: author.to_owned(),
            channel,
            thread: None,
            author: author.to_owned(),
            text,
            url,
            details: MessageDetails::default(),
        };
        deliver(&fleet, "chat", Delivery::Chat(message)).await;
        let row = settled(&fleet, "chat", author).await;
        match expected {
            None => assert_eq!(row.outcome, FiringOutcome::Ran),
            Some(why) => assert_eq!(refused(&row), why),
        }
    }
    fleet.stop(Stop::KeepAgents).await.unwrap();
}

/// A stranger's job reaches only its directory, and so do the jobs that follow from it.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn confinement_applies_to_jobs_that_follow() {
    let (home, fake) = (FleetFolder::sqlite(), FakeLists::with_issues(0).await);
    for folder in ["desk", "outside"] {
        let folder = home.path().join(folder);
        std::fs::create_dir(&folder).unwrap();
        std::fs::set_permissions(&folder, std::fs::Permissions::from_mode(0o777)).unwrap();
    }
    let desk = |called: &str| {
        let mut agent = home.agent(called);
        agent.directory = home.path().join("desk");
        let script = "read who; touch \"$who-was-here\"; touch \"../outside/$who\" || echo held";
        agent.program.command = ["sh", "-c", script].map(str::to_owned).into();
        agent
    };
    let agent = with_schedule(desk("a"), "hook", HOOK, "{{metadata.author}}\n");
    let agent = trusting(agent, &fake.url, json!({"allow_authors": ["ann"], "strangers": "sandbox"}));
    let follows = r#"{"type":"dispatch_result","schedule":"a/hook"}"#;
    let next = with_schedule(desk("b"), "after", follows, "after-{{upstream.job_id}}\n");
    // This agent trusts only ann, whichever job passes the text on.
    let wary = with_schedule(home.idle_agent("c"), "after", follows, "x");
    let wary = trusting(wary, &fake.url, json!({"allow_authors": ["ann"]}));
    let fleet = home.start(vec![agent, next, wary], Registry::default()).await;
    for author in ["ann", "eve"] {
        deliver(&fleet, "hook", opened(author, author)).await;
    }
    wait_for("the wary one has decided twice", async || {
        let rows = ledger(&fleet, id("c", "after")).await;
        rows.len() == 2 && rows.iter().all(|row| row.outcome != FiringOutcome::Preparing)
    })
    .await;
    let rows = ledger(&fleet, id("c", "after")).await;
    let (ran, skipped): (Vec<_>, Vec<_>) = rows.iter().partition(|row| row.outcome == FiringOutcome::Ran);
    assert_eq!((ran.len(), refused(skipped[0])), (1, "eve is not among `allow_authors`"));
    wait_for("all four have ended", async || {
        let jobs = jobs(&fleet).await;
        jobs.iter().filter(|job| job.status() == JobStatus::Completed).count() == 4
    })
    .await;
    let outside = |name: &str| home.path().join("outside").join(name).exists();
    let was_here = |name: &str| home.path().join("desk").join(format!("{name}-was-here")).exists();
    for job in jobs(&fleet).await.into_iter().filter(|job| job.agent().as_str() != "c") {
        let who = job.prompt().unwrap().trim().to_owned();
        let is_strange = job.confined().is_some();
        assert_eq!(job.confined(), is_strange.then_some("eve is not among `allow_authors`"));
        assert!(was_here(&who), "{who} worked");
        assert_eq!(outside(&who), !is_strange, "{who}");
    }
    let strange = jobs(&fleet).await.iter().filter(|job| job.confined().is_some()).count();
    assert_eq!(strange, 2, "eve's, and the one that followed");
    for schedule in [id("a", "hook"), id("b", "after")] {
        let mut notes: Vec<_> = ledger(&fleet, schedule).await.into_iter().map(|row| row.note).collect();
        notes.sort();
        let note = "in the strict sandbox: eve is not among `allow_authors`".to_owned();
        assert_eq!(notes, [None, Some(note)], "the ledger says it in both");
    }
    fleet.stop(Stop::KeepAgents).await.unwrap();
}

/// Files that a stranger's job writes to the settings of its program, or to a work source, are not visible to
/// others.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn files_of_strangers_are_hidden_from_trusted_jobs() {
    let (home, fake) = (FleetFolder::sqlite(), FakeLists::with_issues(0).await);
    let write = |name: &str, text: &str| {
        let path = home.path().join(name);
        std::fs::create_dir_all(path.parent().unwrap()).unwrap();
        std::fs::write(&path, text).unwrap();
        path
    };
    let script = "#!/bin/sh\nread -r prompt; cat ~/.claude/login > seen; echo evil >> ~/.claude/settings.json\n\
                  echo evil > tasks/evil.md; echo \"$ANTHROPIC_API_KEY\" >> seen; echo over >> seen\n";
    let program = write("bin/claude", script);
    std::fs::set_permissions(&program, std::fs::Permissions::from_mode(0o755)).unwrap();
    write("home/.claude/login", "a-login\n");
    write("desk/tasks/own.md", "---\ntitle: Own\n---\n");
    let mut agent = with_schedule(home.agent("a"), "hook", HOOK, "x");
    agent.directory = home.path().join("desk");
    (agent.program.runtime, agent.program.command) = (Runtime::Claude, Vec::new());
    let path = format!("{}:{}", home.path().join("bin").display(), std::env::var("PATH").unwrap());
    let own = [
        ("HOME", home.path().join("home").display().to_string()),
        ("PATH", path),
        ("ANTHROPIC_API_KEY", "a-key".to_owned()),
    ];
    agent.program.env = own.into_iter().map(|(name, value)| (name.to_owned(), value)).collect();
    let agent = trusting(agent, &fake.url, json!({"strangers": "sandbox"}));
    let mut queue = with_schedule(home.idle_agent("b"), "poll", r#"{"type":"manual"}"#, "x");
    let tasks = home.path().join("desk/tasks").display().to_string();
    queue.work_source = Some(serde_json::from_value(json!({"type": "files", "path": tasks})).unwrap());
    let fleet = home.start(vec![agent, queue], Registry::default()).await;
    deliver(&fleet, "hook", opened("d1", "eve")).await;
    let seen = home.path().join("desk/seen");
    wait_for("the program has run", async || {
        std::fs::read_to_string(&seen).is_ok_and(|seen| seen.ends_with("over\n"))
    })
    .await;
    let seen = std::fs::read_to_string(seen).unwrap();
    assert_eq!(seen, "withheld-by-cowhand\nover\n", "neither the login nor the key");
    let text = |name: &str| std::fs::read_to_string(home.path().join(name)).ok();
    assert_eq!(text("home/.claude/settings.json"), None);
    assert_eq!(text("desk/tasks/evil.md"), None);
    assert_eq!(
        text("state/strangers/a/.claude/settings.json").as_deref(),
        Some("evil\n"),
        "it has one of its own"
    );
    fleet.stop(Stop::Cancel).await.unwrap();
}
