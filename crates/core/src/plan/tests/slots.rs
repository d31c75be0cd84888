//! Agents that share a provider: which jobs start there, and when.

use super::*;
use crate::percent::Percent;
use crate::provider::{Parked, Provider, UsageWindow, WindowUsage};

/// Returns the agent with the program and the fallbacks of a config.
fn configured(config: &str, agent: Agent) -> Agent {
    let Agent { program, fallbacks, .. } =
        Agent::from_config(agent.name.clone(), serde_json::from_str(config).unwrap());
    Agent { program, fallbacks, ..agent }
}

/// Agents `a` and `b` with a pending job each, and optionally a running job of `a`.
fn scene(limits: Provider, running: bool, parked_until: Option<&str>, last_start: Option<&str>) -> Scene {
    let mut scene = Scene::new(r#"{"type":"manual"}"#).max(9);
    scene.roster.agents.push(Agent::new("b".parse().unwrap()));
    for agent in &mut scene.roster.agents {
        agent.program.provider = Some("shared".to_owned());
    }
    scene.roster.providers.insert("shared".to_owned(), limits);
    if running {
        scene = scene.job("agent", RUNNING);
        scene.snapshot.jobs[0].provider = Some("shared".to_owned());
    }
    scene = scene.job("agent", PENDING).job("agent", PENDING);
    scene.snapshot.jobs.last_mut().unwrap().agent = "b".parse().unwrap();
    let parked = parked_until.map(|until| Parked {
        provider: "shared".into(),
        since: at("09:00"),
        until: at(until),
        message: "the limit".into(),
        times: 1,
    });
    let state = ProviderState { parked, last_start: last_start.map(at), windows: vec![] };
    scene.snapshot.providers.insert("shared".to_owned(), state);
    scene
}

#[test]
fn provider_limits_decide_which_jobs_start() {
    let any = Provider::default;
    let most = |max| Provider { max_concurrent: Some(max), ..any() };
    let paced = || Provider { start_every: Some("10m".parse().unwrap()), ..any() };
    check([
        ("no limits", scene(any(), false, None, None), "10:00", "start 1 | start 2"),
        ("parked", scene(any(), false, Some("11:30"), None), "10:00", "wake 11:30"),
        ("parked until now", scene(any(), false, Some("10:00"), None), "10:00", "start 1 | start 2"),
        ("one slot", scene(most(1), false, None, None), "10:00", "start 1"),
        ("one slot, taken", scene(most(1), true, None, None), "10:00", ""),
        ("two slots, one taken", scene(most(2), true, None, None), "10:00", "start 2"),
        ("start_every", scene(paced(), false, None, None), "10:00", "start 1 | wake 10:10"),
        ("too soon", scene(paced(), false, None, Some("09:55")), "10:00", "wake 10:05"),
    ]);
    let mut other = scene(any(), false, Some("11:30"), None);
    other.roster.agents[1].program.provider = Some("own".into());
    assert_eq!(other.plan("10:00"), "start 2 | wake 11:30", "another provider is not parked");
}

/// The order of the agents in the config does not matter.
#[test]
fn the_oldest_waiting_job_gets_the_only_slot() {
    let one_slot = || Provider { max_concurrent: Some(1), ..Provider::default() };
    let mut older = scene(one_slot(), false, None, None);
    older.snapshot.jobs[0].agent = "b".parse().unwrap();
    older.snapshot.jobs[1].agent = older.roster.agents[0].name.clone();
    assert_eq!(older.plan("10:00"), "start 1");
    let mut backoff = scene(one_slot(), false, None, None);
    backoff.snapshot.jobs[0].state = LiveState::Pending { not_before: Some(at("11:00")) };
    assert_eq!(backoff.plan("10:00"), "start 2 | wake 11:00", "the older job may not start yet");
}

#[test]
fn a_fallback_runs_while_the_provider_is_used_up() {
    let fallback = |scene: &Scene| {
        let plan = plan(at("10:00"), &scene.roster, &scene.snapshot);
        let starts = plan.actions.iter().filter_map(|action| match action {
            Action::Start { agent, fallback, .. } => Some((agent.to_string(), *fallback)),
            _ => None,
        });
        starts.collect::<Vec<_>>()
    };
    let with = |parked: Option<&str>, fallback: &str| {
        let mut scene = scene(Provider::default(), false, parked, None);
        let own = format!(r#"{{"provider":"shared","fallback":{fallback}}}"#);
        scene.roster.agents[0] = configured(&own, scene.roster.agents[0].clone());
        scene
    };
    let two = r#"[{"model":"small"},{"runtime":"codex"}]"#;
    let a = |number| vec![("a".to_owned(), number)];
    let both = vec![("a".to_owned(), None), ("b".to_owned(), None)];
    assert_eq!(fallback(&with(None, two)), both, "its own program, while its provider takes jobs");
    assert_eq!(fallback(&with(Some("11:30"), "[]")), vec![]);
    assert_eq!(fallback(&with(Some("11:30"), two)), a(Some(1)), "the first fallback has the same provider");
    let account = r#"[{"provider":"second","env":{"KEY":"other"}},{"runtime":"codex"}]"#;
    assert_eq!(fallback(&with(Some("11:30"), account)), a(Some(0)));
    // All providers are used up.
    let mut all = with(Some("11:30"), account);
    for provider in ["second", "codex"] {
        let state = all.snapshot.providers["shared"].clone();
        all.snapshot.providers.insert(provider.to_owned(), state);
    }
    assert_eq!(fallback(&all), vec![]);
}

/// Agent `a` has a job. `resumes` is the runtime and the provider of the session that the job continues, and `used_up`
/// lists the providers that are used up, each with the end of its limit. Returns the fallback with which the job starts
/// or the wake-up time, and the provider that the job waits for.
fn resumed(own: &str, resumes: Option<(&str, &str)>, used_up: &[(&str, &str)]) -> String {
    let mut scene = Scene::new(r#"{"type":"manual"}"#).job("agent", PENDING);
    scene.roster.agents[0] = configured(own, scene.roster.agents[0].clone());
    let job = &mut scene.snapshot.jobs[0];
    if let Some((runtime, provider)) = resumes {
        (job.resumes, job.provider) = (Some(runtime.to_owned()), Some(provider.to_owned()));
    }
    for (provider, until) in used_up {
        let (since, until, message) = (at("09:00"), at(until), String::new());
        let parked = Parked { provider: (*provider).to_owned(), since, until, message, times: 1 };
        let state = ProviderState { parked: Some(parked), ..ProviderState::default() };
        scene.snapshot.providers.insert((*provider).to_owned(), state);
    }
    let plan = plan(at("10:00"), &scene.roster, &scene.snapshot);
    let starts = plan.actions.iter().map(|action| match action {
        Action::Start { fallback, .. } => fallback.map_or("itself".to_owned(), |number| number.to_string()),
        other => format!("{other:?}"),
    });
    let wake = plan.wake_at.map(|wake| format!("wake {}", short(wake)));
    let (roster, job) = (&scene.roster, &scene.snapshot.jobs[0]);
    let hold = scene.snapshot.provider_hold(roster, &roster.agents[0], job, at("10:00"));
    let limit = hold.map(|hold| format!("waits for {}", hold.provider()));
    starts.chain(wake).chain(limit).collect::<Vec<_>>().join(" | ")
}

#[test]
fn a_begun_job_continues_only_on_the_runtime_of_its_session() {
    let codex = r#"{"fallback":[{"runtime":"codex"}]}"#;
    let account =
        r#"{"fallback":[{"runtime":"codex"},{"provider":"second"},{"runtime":"codex","provider":"spare"}]}"#;
    let acp =
        r#"{"fallback":[{"runtime":"acp","provider":"x","command":["x"]},{"runtime":"acp","provider":"y"}]}"#;
    let (on_claude, on_codex) = (Some(("claude", "claude")), Some(("codex", "codex")));
    let (claude, codex_too) = (("claude", "11:30"), ("codex", "10:30"));
    for (name, own, resumes, used_up, expected) in [
        ("nothing begun", codex, None, vec![claude], "0"),
        ("nothing begun, all used up", codex, None, vec![claude, codex_too], "wake 10:30 | waits for codex"),
        ("begun with its own program", codex, on_claude, vec![claude], "wake 11:30 | waits for claude"),
        ("begun with its own program, not used up", codex, on_claude, vec![codex_too], "itself"),
        // Its own provider is available, but does not know the session.
        ("begun with a fallback", codex, on_codex, vec![codex_too], "wake 10:30 | waits for codex"),
        (
            "begun with a fallback, all used up",
            codex,
            on_codex,
            vec![claude, codex_too],
            "wake 10:30 | waits for codex",
        ),
        ("begun with a fallback, not used up", codex, on_codex, vec![], "0"),
        ("another account of the same runtime", account, on_claude, vec![claude], "1"),
        ("another account of a fallback's runtime", account, on_codex, vec![codex_too], "2"),
        (
            "not its own program, even if that is not used up",
            account,
            on_codex,
            vec![codex_too, ("spare", "10:20")],
            "wake 10:20 | waits for spare",
        ),
        ("not with acp at x", acp, Some(("acp", "y")), vec![("y", "10:30")], "wake 10:30 | waits for y"),
        ("acp at the same provider", acp, Some(("acp", "y")), vec![], "1"),
        ("no runtime can continue it", codex, Some(("gemini", "gemini")), vec![claude], "0"),
    ] {
        assert_eq!(resumed(own, resumes, &used_up), expected, "{name}");
    }
}

/// Uses 90% of the 5-hour window of a provider that keeps 20%, until 11:30.
fn use_up_to_reserve(scene: &mut Scene, provider: &str) {
    let reserve = Some("20%".parse().unwrap());
    let limits = scene.roster.providers.entry(provider.to_owned()).or_default();
    *limits = Provider { reserve, ..limits.clone() };
    let (window, used) = (UsageWindow::FiveHour, Percent::of_part(0.9).unwrap());
    let usage = WindowUsage { window, used, resets_at: at("11:30"), reported_at: at("09:50") };
    scene.snapshot.providers.entry(provider.to_owned()).or_default().windows = vec![usage];
}

#[test]
fn a_reached_reserve_holds_only_automatic_jobs_back() {
    let jobs = |origins: &[&str]| {
        let mut scene = Scene::new(r#"{"type":"manual"}"#).max(9);
        use_up_to_reserve(&mut scene, "claude");
        origins.iter().fold(scene, |scene, origin| scene.job(origin, PENDING))
    };
    let retry = |mut scene: Scene| {
        scene.snapshot.jobs[0].began_at = Some(at("09:30"));
        scene
    };
    let parked = |until: &str| {
        let mut scene = jobs(&["clock"]);
        let (since, until, message) = (at("09:00"), at(until), String::new());
        let parked = Parked { provider: "claude".to_owned(), since, until, message, times: 1 };
        scene.snapshot.providers.get_mut("claude").unwrap().parked = Some(parked);
        scene
    };
    let mut elsewhere = jobs(&["clock"]);
    elsewhere.roster.agents[0].program.provider = Some("other".to_owned());
    check([
        ("automatic", jobs(&["clock"]), "10:00", "wake 11:30"),
        ("by hand", jobs(&["hand"]), "10:00", "start 1"),
        (
            "by hand, after an automatic job of the same session",
            jobs(&["clock", "hand"]),
            "10:00",
            "start 2 | wake 11:30",
        ),
        ("the window has been reset", jobs(&["clock"]), "11:30", "start 1"),
        ("a retry of an automatic job", retry(jobs(&["clock"])), "10:00", "wake 11:30"),
        ("a retry of a job by hand", retry(jobs(&["hand"])), "10:00", "start 1"),
        ("another provider", elsewhere, "10:00", "start 1"),
        ("used up until an earlier time", parked("10:30"), "10:00", "wake 11:30"),
        ("used up until a later time", parked("12:30"), "10:00", "wake 12:30"),
    ]);
}

#[test]
fn a_job_held_by_the_reserve_uses_a_fallback_or_explains_its_wait() {
    let scene = |config: &str, reserved: &[&str], job: &str| {
        let mut scene = Scene::new(r#"{"type":"manual"}"#).job(job, PENDING);
        scene.roster.agents[0] = configured(config, scene.roster.agents[0].clone());
        for provider in reserved {
            use_up_to_reserve(&mut scene, provider);
        }
        scene
    };
    let shown = |scene: &Scene| {
        let start =
            plan(at("10:00"), &scene.roster, &scene.snapshot).actions.into_iter().find_map(|action| {
                if let Action::Start { fallback, .. } = action { Some(fallback) } else { None }
            });
        let (roster, job) = (&scene.roster, &scene.snapshot.jobs[0]);
        let hold = scene.snapshot.provider_hold(roster, &roster.agents[0], job, at("10:00"));
        (start, hold.map(|hold| (hold.reason(), hold.until(), hold.sentence())))
    };
    let codex = r#"{"fallback":[{"runtime":"codex"}]}"#;
    assert_eq!(shown(&scene(codex, &["claude"], "clock")), (Some(Some(0)), None));
    assert_eq!(shown(&scene(codex, &["claude"], "hand")), (Some(None), None), "its own program");
    let sentence =
        "claude keeps 20% of its 5-hour window for jobs by hand and from chats (`reserve`), and 90% is used";
    let held = (SkipReason::ReserveReached, at("11:30"), sentence.to_owned());
    assert_eq!(shown(&scene("{}", &["claude"], "clock")), (None, Some(held)));
    assert_eq!(shown(&scene(codex, &["claude", "codex"], "hand")), (Some(None), None));
    let all = shown(&scene(codex, &["claude", "codex"], "clock"));
    assert!(all.0.is_none() && all.1.is_some(), "{all:?}");
}

#[test]
fn the_fallback_of_an_attempt_is_found() {
    let fallback = r#"{"fallback":[{"provider":"second"},{"runtime":"codex"},{"runtime":"command"}]}"#;
    let agent = configured(fallback, Agent::new("a".parse().unwrap()));
    for (provider, runtime, expected) in [
        (Some("claude"), Some("claude"), None),
        (Some("second"), Some("claude"), Some(0)),
        (Some("codex"), Some("codex"), Some(1)),
        (Some("codex"), None, Some(1)),
        (None, Some("command"), Some(2)),
        (Some("gone"), Some("gemini"), None),
    ] {
        assert_eq!(agent.fallback_of(provider, runtime), expected, "{provider:?} {runtime:?}");
    }
}

#[test]
fn a_fallback_overrides_provider_model_and_env() {
    let agent = configured(
        r#"{"model":"big","provider":"mine","env":{"A":"1","B":"2"},
            "fallback":[{"model":"small","env":{"B":"3"}},{"runtime":"codex"},{"runtime":"cli","provider":"other"}]}"#,
        Agent::new("a".parse().unwrap()),
    );
    let shown = |number| {
        let agent = agent.fallback(number)?;
        let env = agent.program.env["B"].clone();
        Some((agent.provider().map(str::to_owned), agent.program.model.clone(), env))
    };
    let some = |text: &str| Some(text.to_owned());
    assert_eq!(shown(0), Some((some("mine"), some("small"), "3".to_owned())));
    assert_eq!(shown(1), Some((some("codex"), None, "2".to_owned())));
    assert_eq!(shown(2), Some((some("other"), some("big"), "2".to_owned())));
    assert_eq!(shown(3), None);
}
