//! The sources of agents: their selection, their lifetime, and finding the next item.

use std::collections::VecDeque;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};

use async_trait::async_trait;
use cowhand::work::files::FilesWorkSource;
use cowhand::work::{
    Claimant, NextItem, NextOptions, SourceContext, SourceOwner, SourceRegistry, WorkSource, WorkSourceError,
    WorkSources,
};
use cowhand_core::roster::{Agent, Schedule};
use cowhand_core::trigger::TriggerConfig;
use cowhand_core::work::{
    ClaimFailureReason, ClaimResult, FetchOptions, FetchResult, Priority, ReleaseOptions, ReleaseResult,
    WorkItem, WorkItemId, WorkOutcome, WorkResult,
};
use cowhand_core::work_source::ConfiguredSource;

use crate::{Tasks, at, claimant, id, result};

fn files(path: &str) -> ConfiguredSource {
    serde_json::from_value(serde_json::json!({"type": "files", "path": path})).unwrap()
}

fn agent(source: Option<ConfiguredSource>) -> Agent {
    let mut agent = Agent::new("builder".parse().unwrap());
    agent.work_source = source;
    agent
}

fn with_schedule(mut agent: Agent, source: Option<ConfiguredSource>) -> Agent {
    let mut schedule = Schedule::new(&agent.name, "poll".parse().unwrap(), TriggerConfig::Manual {});
    schedule.work_source = source.map(Box::new);
    agent.schedules.push(schedule);
    agent
}

fn sources(tasks: &Tasks) -> WorkSources {
    WorkSources::new(
        Arc::new(SourceRegistry::default()),
        SourceContext::new(tasks.path(), |_| None).clock(tasks.clock.clone()),
    )
}

fn claimed(next: &NextItem) -> &str {
    assert!(next.claimed(), "{next:?}");
    assert!(matches!(next.claim_result(), Some(ClaimResult::Claimed(_))));
    next.item().unwrap().id.external_id()
}

#[tokio::test]
async fn items_are_ordered_by_priority_then_age() {
    let file =
        |priority: &str, day: u8| format!("---\npriority: {priority}\ncreated: 2026-01-{day:02}\n---\n");
    let tasks = Tasks::new(&[
        ("low-old.md", &file("low", 1)),
        ("medium.md", &file("medium", 9)),
        ("high-new.md", &file("high", 8)),
        ("high-old.md", &file("high", 7)),
        ("critical.md", &file("critical", 9)),
    ]);
    let (sources, agent) = (sources(&tasks), agent(Some(files("."))));
    let whose = SourceOwner::agent(&agent);
    let line = sources.candidates(whose, &FetchOptions::default()).await.unwrap();
    let line: Vec<_> = line.iter().map(|item| item.id.external_id()).collect();
    let expected = ["critical", "high-old", "high-new", "medium", "low-old"];
    assert_eq!(line, expected);
    for name in expected {
        let next = sources.next_item(whose, &NextOptions::default(), &claimant(name)).await.unwrap();
        assert_eq!(claimed(&next), name);
    }
    let next = sources.next_item(whose, &NextOptions::default(), &claimant("late")).await.unwrap();
    assert_eq!((next.item(), next.claimed(), next.claim_result()), (None, false, None));
    assert_eq!(next, NextItem::Nothing);
}

#[tokio::test]
async fn item_is_not_claimed_without_auto_claim() {
    let tasks = Tasks::new(&[("a.md", "# A\n"), ("b.md", "---\nlabels: [ui]\n---\n")]);
    let (sources, agent) = (sources(&tasks), agent(Some(files("."))));
    let fetch = FetchOptions { labels: vec!["ui".into()], ..FetchOptions::default() };
    let options = NextOptions { auto_claim: false, fetch };
    for _ in 0..2 {
        let next = sources.next_item(SourceOwner::agent(&agent), &options, &claimant("job-1")).await.unwrap();
        assert!(matches!(&next, NextItem::Unclaimed(item) if item.id == id("files-b")), "{next:?}");
        assert_eq!((next.claimed(), next.claim_result()), (false, None));
    }
    assert_eq!(tasks.read("b.md"), "---\nlabels: [ui]\n---\n");
}

#[tokio::test]
async fn outcome_and_release_reach_source_of_agent() {
    let tasks = Tasks::new(&[("a.md", "# A\n"), ("b.md", "# B\n")]);
    let (sources, agent) = (sources(&tasks), agent(Some(files("."))));
    let (whose, by) = (SourceOwner::agent(&agent), claimant("job-1"));
    for _ in 0..2 {
        assert!(sources.next_item(whose, &NextOptions::default(), &by).await.unwrap().claimed());
    }
    let done = result(WorkOutcome::Success, "done");
    sources.report_outcome(&id("files-a"), &done, whose, &by).await.unwrap();
    assert!(tasks.read("a.md").contains("status: completed"));
    let options =
        ReleaseOptions { reason: Some("shutdown".into()), add_comment: true, ..ReleaseOptions::default() };
    assert!(sources.release_item(&id("files-b"), &options, whose, &by).await.unwrap().success);
    assert!(tasks.read("b.md").ends_with("shutdown\n"));
    for error in [
        sources.report_outcome(&id("github-1"), &done, whose, &by).await.unwrap_err(),
        sources.release_item(&id("github-1"), &options, whose, &by).await.unwrap_err(),
    ] {
        assert_eq!(error.to_string(), "builder has no work source \"github\" for github-1");
    }
}

#[tokio::test]
async fn schedule_uses_only_its_own_source() {
    let tasks = Tasks::new(&[]);
    for folder in ["agents", "schedules"] {
        std::fs::create_dir(tasks.file(folder)).unwrap();
        tasks.write(&format!("{folder}/{folder}.md"), "# A\n");
    }
    let sources = sources(&tasks);
    for (of_agent, of_schedule, expected) in [
        (Some("agents"), Some("schedules"), Some("files-schedules")),
        // The loader of the config adds the source of the agent to the schedules that inherit it.
        (Some("agents"), None, None),
        (None, Some("schedules"), Some("files-schedules")),
        (None, None, None),
    ] {
        let agent = with_schedule(agent(of_agent.map(files)), of_schedule.map(files));
        let whose = SourceOwner::schedule(&agent, &agent.schedules[0]);
        let options = NextOptions { auto_claim: false, ..NextOptions::default() };
        let next = sources.next_item(whose, &options, &claimant("job-1")).await.unwrap();
        assert_eq!(next.item().map(|item| item.id.to_string()).as_deref(), expected);
        assert_eq!(sources.source_of(whose).unwrap().is_some(), expected.is_some());
        assert_eq!(sources.source_of(SourceOwner::agent(&agent)).unwrap().is_some(), of_agent.is_some());
    }
}

#[test]
fn source_is_created_once_while_config_has_it() {
    let made = Arc::new(AtomicUsize::new(0));
    let (counted, mut registry) = (Arc::clone(&made), SourceRegistry::empty());
    registry
        .register("files", move |config, setting| {
            counted.fetch_add(1, Ordering::SeqCst);
            FilesWorkSource::from_config(config, setting)
        })
        .unwrap();
    let sources = WorkSources::new(Arc::new(registry), SourceContext::new("/", |_| None));
    let made = || made.load(Ordering::SeqCst);
    let ask = |agent: &Agent| sources.source_of(SourceOwner::agent(agent)).unwrap().unwrap();

    let mut builder = with_schedule(agent(Some(files("a"))), Some(files("b")));
    let first = ask(&builder);
    assert!(Arc::ptr_eq(&first, &ask(&builder)));
    let of_schedule = SourceOwner::schedule(&builder, &builder.schedules[0]);
    let second = sources.source_of(of_schedule).unwrap().unwrap();
    assert!(Arc::ptr_eq(&second, &sources.source_of(of_schedule).unwrap().unwrap()));
    assert!(Arc::ptr_eq(&first, &ask(&builder)), "two sources of one agent live side by side");
    assert_eq!(made(), 2);

    let other = Agent { name: "other".parse().unwrap(), ..builder.clone() };
    assert!(!Arc::ptr_eq(&first, &ask(&other)), "each agent has its own");
    assert_eq!(made(), 3);

    builder.work_source = Some(files("c"));
    let changed = ask(&builder);
    assert!(!Arc::ptr_eq(&first, &changed));
    builder.work_source = Some(files("a"));
    ask(&builder);
    assert_eq!(made(), 5, "what the config does not have any more is not kept");

    sources.clear();
    ask(&builder);
    assert_eq!(made(), 6);
}

#[test]
fn failed_creation_of_source_is_retried() {
    let sources = WorkSources::new(Arc::new(SourceRegistry::empty()), SourceContext::new("/", |_| None));
    let agent = agent(Some(files("a")));
    for _ in 0..2 {
        let error = sources.source_of(SourceOwner::agent(&agent)).unwrap_err();
        assert!(matches!(error, WorkSourceError::Unknown { .. }));
    }
}

/// Source that refuses claims with given reasons, and counts them.
#[derive(Debug, Default)]
struct Refusing {
    reasons: Mutex<VecDeque<ClaimFailureReason>>,
    claims: AtomicUsize,
    /// Set if its list never ends.
    endless: bool,
}

#[async_trait]
impl WorkSource for Refusing {
    fn source_type(&self) -> &'static str {
        "refusing"
    }

    async fn fetch_available_work(&self, options: &FetchOptions) -> Result<FetchResult, WorkSourceError> {
        let page: i64 = options.cursor.as_deref().map_or(0, |cursor| cursor.parse().unwrap());
        let next_cursor = (page < 3).then(|| (page + 1).to_string()).or(self.endless.then(|| "3".to_owned()));
        let item = WorkItem {
            id: id(&format!("refusing-{page}")),
            title: String::new(),
            description: String::new(),
            priority: Priority::Medium,
            labels: Vec::new(),
            metadata: serde_json::Map::new(),
            url: String::new(),
            created_at: at(page),
            updated_at: at(page),
        };
        // The first item is on every page, as when a list moves while it is read.
        let again = WorkItem { id: id("refusing-0"), created_at: at(0), ..item.clone() };
        Ok(FetchResult { items: vec![again, item], next_cursor, total_count: None })
    }

    async fn claim_work(&self, item: &WorkItemId, _: &Claimant) -> Result<ClaimResult, WorkSourceError> {
        self.claims.fetch_add(1, Ordering::SeqCst);
        let reason = self.reasons.lock().unwrap().pop_front();
        let Some(reason) = reason else {
            return Ok(ClaimResult::Claimed(Box::new(self.get_work(item).await?.unwrap())));
        };
        Ok(ClaimResult::Refused { reason, message: Some(format!("{item} is not for you")) })
    }

    async fn complete_work(
        &self,
        _: &WorkItemId,
        _: &WorkResult,
        _: &Claimant,
    ) -> Result<(), WorkSourceError> {
        Ok(())
    }

    async fn release_work(
        &self,
        _: &WorkItemId,
        _: &ReleaseOptions,
        _: &Claimant,
    ) -> Result<ReleaseResult, WorkSourceError> {
        Ok(ReleaseResult { success: true, message: None })
    }

    async fn get_work(&self, item: &WorkItemId) -> Result<Option<WorkItem>, WorkSourceError> {
        let options = FetchOptions { cursor: Some(item.external_id().to_owned()), ..FetchOptions::default() };
        Ok(self.fetch_available_work(&options).await?.items.pop())
    }
}

async fn next_of(source: Refusing) -> (Result<NextItem, WorkSourceError>, usize) {
    let (source, mut registry) = (Arc::new(source), SourceRegistry::empty());
    let made: Arc<dyn WorkSource> = source.clone();
    registry.register("refusing", move |_, _| Ok(made.clone())).unwrap();
    let sources = WorkSources::new(Arc::new(registry), SourceContext::new("/", |_| None));
    let config = serde_json::from_value(serde_json::json!({"type": "custom", "name": "refusing"})).unwrap();
    let agent = agent(Some(config));
    let next =
        sources.next_item(SourceOwner::agent(&agent), &NextOptions::default(), &claimant("job-1")).await;
    (next, source.claims.load(Ordering::SeqCst))
}

#[tokio::test]
async fn lost_claim_tries_next_item_until_source_refuses() {
    use ClaimFailureReason::{AlreadyClaimed, InvalidState, NotFound, PermissionDenied, SourceError};
    for (reasons, tries, ending) in [
        (vec![], 1, Ok("refusing-0")),
        (vec![AlreadyClaimed], 2, Ok("refusing-1")),
        (vec![AlreadyClaimed, NotFound, InvalidState], 4, Ok("refusing-3")),
        (vec![AlreadyClaimed; 4], 4, Err(("refusing-3", AlreadyClaimed))),
        (vec![PermissionDenied], 1, Err(("refusing-0", PermissionDenied))),
        (vec![NotFound, SourceError], 2, Err(("refusing-1", SourceError))),
    ] {
        let (next, claims) =
            next_of(Refusing { reasons: Mutex::new(reasons.clone().into()), ..Refusing::default() }).await;
        let next = next.unwrap();
        assert_eq!(claims, tries, "{reasons:?}");
        match ending {
            Ok(item) => assert_eq!(format!("refusing-{}", claimed(&next)), item),
            Err((item, why)) => {
                assert!(!next.claimed());
                assert_eq!(next.item().unwrap().id, id(item));
                let message = Some(format!("{item} is not for you"));
                assert_eq!(next.claim_result(), Some(ClaimResult::Refused { reason: why, message }));
            }
        }
    }
}

#[tokio::test]
async fn endless_list_is_an_error() {
    let (next, claims) = next_of(Refusing { endless: true, ..Refusing::default() }).await;
    assert_eq!(next.unwrap_err().to_string(), "the list of refusing does not end: cursor \"3\"");
    assert_eq!(claims, 0);
}
