//! Comparison of each surface with the API.

use std::fs;

use jiff::{SignedDuration, Timestamp};
use serde_json::{Value, json};

use super::{name_of, time, told};
use crate::{Scene, answer};

pub(super) struct Surfaces<'a> {
    pub(super) scene: &'a Scene,
    pub(super) token: &'a str,
}

impl Surfaces<'_> {
    async fn api(&self, path: &str) -> Value {
        let (code, said) =
            answer(self.scene.ask("GET", &format!("/api/v1/{path}")).bearer_auth(self.token)).await;
        assert_eq!(code, 200, "{path}: {said}");
        said
    }

    /// Returns a page. Code in messages is between backticks, as in the messages themselves.
    async fn page(&self, path: &str) -> String {
        let page = self.scene.ask("GET", path).bearer_auth(self.token).send().await.unwrap();
        assert_eq!(page.status().as_u16(), 200, "{path}");
        page.text().await.unwrap().replace("<code>", "`").replace("</code>", "`")
    }

    async fn metrics(&self) -> String {
        self.page("/metrics").await
    }

    /// Returns the schedules, and `state.yaml` when it agrees with them.
    pub(super) async fn settled(&self) -> (Vec<Value>, Value) {
        let schedules = self.api("schedules").await["items"].as_array().unwrap().clone();
        let mut state = Value::Null;
        self.scene.until("state.yaml to say what the API says", || {
            let text = fs::read_to_string(self.scene.path(".cowhand/state.yaml")).unwrap();
            state = yaml(&text);
            schedules.iter().all(|view| {
                let kept = in_state(&state, view);
                kept["status"] == view["status"] && time(&kept["next_run_at"]) == time(&view["next_run_at"])
            })
        });
        (schedules, state)
    }

    pub(super) async fn schedule(&self, view: &Value, state: &Value) {
        let name = name_of(view);
        let (agent, schedule) = name.split_once('/').unwrap();
        let listed = told(self.scene, &["schedule", "list"]);
        let listed = listed.as_array().unwrap().iter().find(|other| name_of(other) == name).unwrap().clone();
        let shown = told(self.scene, &["schedule", "show", &name]);
        let why = told(self.scene, &["why", &name]);
        let one = self.api(&format!("schedules/{agent}/{schedule}")).await;
        for (surface, said) in [("list", &listed), ("show", &shown), ("why", &why["schedule"]), ("API", &one)]
        {
            for (key, value) in view.as_object().unwrap() {
                assert_eq!(&said[key], value, "{name}: {key} of {surface}");
            }
        }
        let next = time(&view["next_run_at"]);
        let now = Timestamp::now();
        assert!(
            next.is_none_or(|at| at >= now - SignedDuration::from_mins(1)),
            "{name}: a time that has passed: {next:?}"
        );
        let firings = told(self.scene, &["schedule", "next", &name, "--count", "3"]);
        assert_eq!(firings.as_array().unwrap().first().and_then(time), next, "{name}: schedule next");
        let coming = self.api(&format!("schedules/{agent}/{schedule}/next?count=3")).await;
        assert_eq!(coming["items"], firings, "{name}: the API's next firings");
        let kept = in_state(state, view);
        assert_eq!(kept["last_error"], view["last_error"], "{name}: state.yaml");
        self.schedule_in_numbers(view, next).await;
        self.schedule_on_pages(view, next).await;
        // The outcomes of its firings.
        let ledger = self.api(&format!("schedules/{agent}/{schedule}/firings?limit=10")).await;
        assert_eq!(why["firings"], ledger["items"], "{name}: the ledger");
        let (_, why, _) = self.scene.run(&["why", &name]);
        let page = self.page(&format!("/schedules/{agent}/{schedule}")).await;
        for firing in ledger["items"].as_array().unwrap() {
            for job in firing["jobs"].as_array().unwrap() {
                let (id, status) = (job["id"].as_str().unwrap(), job["status"].as_str().unwrap());
                assert_eq!(told(self.scene, &["job", id])["status"], *status, "{name}: {id}");
                let line = why.lines().rfind(|line| line.contains(id)).unwrap();
                assert!(line.contains(status), "{name}: {line}");
                let row = page.split("<tr>").find(|row| row.contains(&format!("/jobs/{id}\""))).unwrap();
                assert!(row.contains(&format!("s-{status}\"")), "{name}: {row}");
            }
        }
    }

    async fn schedule_in_numbers(&self, view: &Value, next: Option<Timestamp>) {
        let metrics = self.metrics().await;
        let labels = format!("agent={},schedule={}", view["agent"], view["schedule"]);
        let status = format!("cowhand_schedule_status{{{labels},status={}}} 1", view["status"]);
        assert!(metrics.lines().any(|line| line == status), "{status} in {metrics}");
        let seconds = next.map_or(0, Timestamp::as_second);
        let next = format!("cowhand_schedule_next_run_timestamp_seconds{{{labels}}} {seconds}");
        assert!(metrics.lines().any(|line| line == next), "{next} in {metrics}");
    }

    async fn schedule_on_pages(&self, view: &Value, next: Option<Timestamp>) {
        let name = name_of(view);
        let (agent, schedule) = name.split_once('/').unwrap();
        let page = self.page(&format!("/schedules/{agent}/{schedule}")).await;
        let status = format!("s-{}\"", view["status"].as_str().unwrap());
        assert!(field(&page, "Status").contains(&status), "{name}: {}", field(&page, "Status"));
        assert_eq!(due(field(&page, "Next")).first().copied(), next, "{name}: its page");
        assert_eq!(page.contains("Next firings"), next.is_some(), "{name}: its page lists next firings");
        // A schedule that its file turns off has no button to turn it on.
        let place = view["off_in_file"].as_str();
        assert_eq!(page.contains("is turned off by"), place.is_some(), "{name}: {page}");
        assert!(place.is_none_or(|place| page.contains(&escaped(place)) && !page.contains("/enable\"")));
        if let Some(note) = view["skip_note"].as_str() {
            assert!(page.contains(&escaped(note)), "{name}: {note} in {page}");
        }
        let page = self.page(&format!("/agents/{agent}")).await;
        let row =
            page.split("<tr>").find(|row| row.contains(&format!("/schedules/{agent}/{schedule}\""))).unwrap();
        assert!(row.contains(&status), "{name}: {row}");
        assert_eq!(due(row).first().copied(), next, "{name}: the page of its agent: {row}");
        let timeline = self.api("timeline").await;
        let lane = timeline["schedules"].as_array().unwrap();
        let lane = lane.iter().find(|lane| name_of(lane) == name).unwrap();
        assert_eq!(lane["status"], view["status"], "{name}: timeline");
        let until = time(&timeline["to"]).unwrap();
        let planned = lane["planned"].as_array().unwrap().first().and_then(time);
        assert_eq!(planned, next.filter(|at| *at < until), "{name}: timeline");
    }

    pub(super) async fn agents(&self, schedules: &[Value], state: &Value) {
        let agents = self.api("agents").await["items"].clone();
        assert_eq!(told(self.scene, &["agents"]), agents);
        let status = self.api("status").await;
        assert_eq!(status["agents"], agents);
        assert_eq!(told(self.scene, &["status"]), status);
        let page = self.page("/").await;
        let metrics = self.metrics().await;
        let sum = |key: &str| {
            agents.as_array().unwrap().iter().map(|agent| agent[key].as_u64().unwrap()).sum::<u64>()
        };
        assert_eq!(
            (status["running"].as_u64(), status["queued"].as_u64()),
            (Some(sum("running")), Some(sum("queued")))
        );
        for (key, word) in [("running", "running"), ("queued", "waiting")] {
            assert!(page.contains(&format!("<span>{} {word}</span>", sum(key))), "{key}: {page}");
        }
        for agent in agents.as_array().unwrap() {
            let name = agent["name"].as_str().unwrap();
            let own = schedules.iter().filter(|view| view["agent"] == agent["name"]);
            let next = own
                .filter_map(|view| Some((time(&view["next_run_at"])?, view["schedule"].clone())))
                .min_by_key(|next| next.0);
            let expected =
                next.clone().map_or(Value::Null, |(at, schedule)| json!({ "schedule": schedule, "at": at }));
            assert_eq!(agent["next"], expected, "{name}");
            assert_eq!(time(&state["agents"][name]["next_trigger_at"]), next.map(|next| next.0), "{name}");
            for (word, key) in [("running", "running"), ("pending", "queued")] {
                let line = format!("cowhand_jobs{{agent=\"{name}\",status=\"{word}\"}} {}", agent[key]);
                assert!(metrics.lines().any(|known| known == line), "{line} in {metrics}");
            }
            let own = self.page(&format!("/agents/{name}")).await;
            let facts = format!(
                "<span>{} of {} running</span><span>{} waiting</span>",
                agent["running"], agent["max_concurrent"], agent["queued"]
            );
            assert!(own.contains(&facts), "{facts} in {own}");
        }
    }

    pub(super) async fn jobs(&self) {
        let jobs = self.api("jobs?limit=100").await["items"].as_array().unwrap().clone();
        assert_eq!(told(self.scene, &["jobs", "--limit", "100"]).as_array().unwrap(), &jobs);
        let of = |word: &str| jobs.iter().filter(|job| job["status"] == word).count();
        for status in ["pending", "running", "completed", "failed", "cancelled"] {
            assert!(of(status) > 0, "there is one that is {status}");
            let listed = told(self.scene, &["jobs", "--limit", "100", "--status", status]);
            assert_eq!(listed.as_array().unwrap().len(), of(status), "{status}");
            let page = self.page(&format!("/jobs?status={status}")).await;
            assert_eq!(
                page.matches(&format!("class=\"status s-{status}\"")).count(),
                of(status),
                "{status}: {page}"
            );
        }
        for job in &jobs {
            let id = job["id"].as_str().unwrap();
            let one = told(self.scene, &["job", id]);
            assert_eq!(one["status"], job["status"], "{id}");
            let page = self.page(&format!("/jobs/{id}")).await;
            assert!(
                field(&page, "Status").contains(&format!("s-{}\"", job["status"].as_str().unwrap())),
                "{id}"
            );
            if let Some(message) = one["waits"]["message"].as_str() {
                assert!(page.contains(&escaped(message)), "{id}: {message}");
            }
            if one["waits"]["reason"] == "usage_limit" || one["waits"]["reason"] == "reserve_reached" {
                let until = one["waits"]["until"].as_str().unwrap();
                let fleet = self.page("/").await;
                for page in [&page, &fleet] {
                    assert!(page.contains(&format!("<time datetime=\"{until}\"")), "{id}: {page}");
                }
            }
            self.scene.until("the file of the job to say what the API says", || {
                let kept = fs::read_to_string(self.scene.path(&format!(".cowhand/jobs/{id}.yaml")));
                kept.is_ok_and(|kept| yaml(&kept)["status"] == job["status"])
            });
        }
    }

    pub(super) async fn work(&self) {
        let items = self.api("work?all=1").await["items"].as_array().unwrap().clone();
        assert_eq!(told(self.scene, &["work", "list", "--all"]).as_array().unwrap(), &items);
        let page = self.page("/work").await;
        for status in ["available", "claimed", "closing", "given_up"] {
            let count = items.iter().filter(|item| item["status"] == status).count();
            assert!(count > 0, "one is {status}: {items:?}");
            let told = format!(">{count} {}</span>", status.replace('_', " "));
            assert!(page.contains(&told), "{status}: {page}");
        }
        let closing = items.iter().find(|item| item["status"] == "closing").unwrap();
        let error = closing["last_error"].as_str().unwrap();
        let shown = told(self.scene, &["work", "show", closing["id"].as_str().unwrap()]);
        assert_eq!((&shown["status"], &shown["last_error"]), (&json!("closing"), &json!(error)));
        assert!(page.contains(&escaped(error)), "{error} in {page}");
        let given_up = self.api("status").await["given_up"].clone();
        assert_eq!(given_up.as_array().unwrap().len(), 1, "{given_up}");
        assert_eq!(told(self.scene, &["why", "unlucky/hard"])["given_up"], given_up);
        let reason = given_up[0]["given_up"]["reason"].as_str().unwrap().to_owned();
        let item = items.iter().find(|item| item["status"] == "given_up").unwrap();
        assert_eq!((&item["id"], &item["given_up"]["reason"]), (&given_up[0]["id"], &json!(reason)));
        assert!(page.contains(&escaped(&reason)), "{reason} in {page}");
        assert!(self.page("/").await.contains("1 given up"));
    }

    pub(super) async fn asks(&self) {
        let open = self.api("asks").await["items"].as_array().unwrap().clone();
        assert_eq!(open.len(), 1);
        assert_eq!(told(self.scene, &["asks"]).as_array().unwrap(), &open);
        assert_eq!(told(self.scene, &["status"])["asks"], 1);
        let line = "cowhand_asks{agent=\"asker\"} 1";
        assert!(self.metrics().await.lines().any(|known| known == line), "{line}");
        for path in ["/", "/jobs", "/agents/steady"] {
            let page = self.page(path).await;
            assert!(page.contains("<title>(1) "), "{path}: {page}");
        }
    }

    pub(super) async fn budgets(&self) {
        let usage = self.api("usage").await;
        let budgets = usage["budgets"].as_array().unwrap();
        assert_eq!(told(self.scene, &["usage"])["budgets"], usage["budgets"]);
        let metrics = self.metrics().await;
        assert_eq!(budgets.len(), 1);
        for budget in budgets {
            for key in ["limit", "spent", "reserved"] {
                let line = format!(
                    "cowhand_budget_{key}{{agent={},window={},unit={}}} {}",
                    budget["agent"],
                    budget["window"],
                    budget["unit"],
                    budget[key].as_f64().unwrap()
                );
                assert!(metrics.lines().any(|known| known == line), "{line} in {metrics}");
            }
        }
        let page = self.page("/usage").await;
        assert!(page.contains("$0.04") && page.contains("$0.05"), "{page}");
        // An exhausted budget is shown where people look first.
        let poor =
            told(self.scene, &["schedule", "show", "poor/costs"])["skip_note"].as_str().unwrap().to_owned();
        let (_, status, _) = self.scene.run(&["status"]);
        assert!(status.contains(&poor), "{poor} in {status}");
        let page = self.page("/").await;
        assert!(page.contains(&escaped(&poor)), "{poor} in {page}");
    }

    pub(super) async fn providers(&self) {
        let parked = self.api("status").await["parked"].as_array().unwrap().clone();
        assert_eq!(parked.len(), 1);
        let until = time(&parked[0]["until"]).unwrap();
        let providers = self.api("providers").await["items"].as_array().unwrap().clone();
        let shared = providers.iter().find(|provider| provider["provider"] == "shared").unwrap();
        assert_eq!(shared["parked"], parked[0]);
        let line = format!(
            "cowhand_provider_parked_until_timestamp_seconds{{provider=\"shared\"}} {}",
            until.as_second()
        );
        assert!(self.metrics().await.lines().any(|known| known == line), "{line}");
        let page = self.page("/").await;
        assert!(
            page.contains("shared is used up") && page.contains(&format!("datetime=\"{until}\"")),
            "{page}"
        );
        self.reserve(&providers).await;
    }

    async fn reserve(&self, providers: &[Value]) {
        let usages = self.api("status").await["provider_usage"].as_array().unwrap().clone();
        let [usage] = usages.as_slice() else { panic!("{usages:?}") };
        assert_eq!((&usage["provider"], &usage["reserve"]), (&json!("claude"), &json!("20%")));
        let claude = providers.iter().find(|provider| provider["provider"] == "claude").unwrap();
        assert_eq!(claude["provider_usage"], *usage);
        let agent = self.api("agents/saver").await;
        assert_eq!(agent["provider_usage"], *usage);
        let window = &usage["windows"][0];
        assert_eq!((&window["window"], &window["used_percent"]), (&json!("five_hour"), &json!(90.0)));
        let [resets, reported, until] =
            [&window["resets_at"], &window["reported_at"], &usage["reached"]["until"]]
                .map(|at| time(at).unwrap());
        assert_eq!(until, resets);
        let job = told(self.scene, &["jobs", "--schedule", "after"])[0].clone();
        assert_eq!(time(&job["waits"]["until"]), Some(until), "{job}");
        let of_window = "{provider=\"claude\",window=\"five_hour\"}";
        let metrics = self.metrics().await;
        for line in [
            format!("cowhand_provider_window_used_ratio{of_window} 0.9"),
            format!("cowhand_provider_window_resets_at_timestamp_seconds{of_window} {}", resets.as_second()),
            format!(
                "cowhand_provider_window_reported_at_timestamp_seconds{of_window} {}",
                reported.as_second()
            ),
            "cowhand_provider_reserve_ratio{provider=\"claude\"} 0.2".to_owned(),
            format!(
                "cowhand_provider_reserved_until_timestamp_seconds{{provider=\"claude\"}} {}",
                until.as_second()
            ),
        ] {
            assert!(metrics.lines().any(|known| known == line), "{line} in {metrics}");
        }
        let page = self.page("/").await;
        for text in ["No automatic job starts at claude", "5-hour window", ">90%<", ">20%<"] {
            assert!(page.contains(text), "{text} in {page}");
        }
        assert!(page.contains(&format!("datetime=\"{reported}\"")), "{page}");
        for verb in ["status", "agents"] {
            let (_, text, _) = self.scene.run(&[verb]);
            assert!(text.contains("5-hour window 90% used") && text.contains("reserve reached"), "{text}");
        }
    }

    pub(super) async fn config(&self) {
        let at = self.api("status").await["daemon"]["config_refused_at"].clone();
        assert!(at.is_string());
        let page = self.page("/").await;
        assert!(page.contains("The config on disk was refused"), "{page}");
        let (_, said, _) = self.scene.run(&["status"]);
        assert!(said.contains("the config on disk was refused"), "{said}");
        let (_, events, _) = self.scene.run(&["events", "--limit", "1000"]);
        assert!(events.contains("fleet:config_refused"), "{events}");
        assert_eq!(self.scene.run(&["config", "check"]).0, 3);
    }

    /// Checks the texts: no next time that has passed, and none for schedules that do not fire.
    pub(super) fn texts(&self, schedules: &[Value]) {
        let (_, list, _) = self.scene.run(&["schedule", "list"]);
        let (_, status, _) = self.scene.run(&["status"]);
        for text in [&list, &status] {
            assert!(!says_nothing(text), "{text}");
        }
        for view in schedules {
            let name = name_of(view);
            let (_, why, _) = self.scene.run(&["why", &name]);
            assert!(!says_nothing(&why), "{why}");
            let (standing, _) = why.split_once("\n\n").unwrap();
            let standing = standing.split_whitespace().collect::<Vec<_>>().join(" ");
            let tells = standing.contains("fires next in") || standing.contains("Its next due time is in");
            let reasons = ["usage_limit", "reserve_reached", "over_budget"];
            let explained = reasons.iter().any(|reason| view["skip_reason"] == *reason);
            assert_eq!(tells || explained, view["next_run_at"].is_string() || explained, "{name}: {why}");
            let (_, next, _) = self.scene.run(&["schedule", "next", &name]);
            assert_eq!(next.contains("has no next firing"), view["next_run_at"].is_null(), "{name}: {next}");
        }
    }
}

fn in_state(state: &Value, view: &Value) -> Value {
    let (agent, schedule) = (view["agent"].as_str().unwrap(), view["schedule"].as_str().unwrap());
    state["agents"][agent]["schedules"][schedule].clone()
}

/// Returns the value beside a name in the head of a page.
fn field<'p>(page: &'p str, name: &str) -> &'p str {
    let (_, rest) =
        page.split_once(&format!("<dt>{name}</dt><dd>")).unwrap_or_else(|| panic!("{name} in {page}"));
    rest.split_once("</dd>").unwrap().0
}

/// Returns the future times in a part of a page.
fn due(part: &str) -> Vec<Timestamp> {
    let times =
        part.split("<time ").skip(1).filter(|time| time.split('>').next().unwrap().contains("data-due"));
    let times = times.filter_map(|time| time.split("datetime=\"").nth(1)?.split('"').next());
    times.map(|time| time.parse().unwrap()).collect()
}

/// Escapes a text for a page.
fn escaped(text: &str) -> String {
    text.replace('&', "&amp;").replace('<', "&lt;").replace('>', "&gt;").replace('"', "&quot;")
}

/// Parses nested maps with one key per line, which is all that these views contain.
fn yaml(text: &str) -> Value {
    let mut all = json!({});
    let mut above: Vec<(usize, String)> = Vec::new();
    for line in text.lines().filter(|line| !line.starts_with('#')) {
        let Some((key, value)) = line.split_once(':') else { continue };
        let depth = key.len() - key.trim_start().len();
        above.retain(|(other, _)| *other < depth);
        let place = above.iter().fold(&mut all, |place, (_, key)| &mut place[key]);
        if !place.is_object() {
            continue;
        }
        place[key.trim()] = match value.trim() {
            "null" => Value::Null,
            "" => json!({}),
            text => text.trim_matches(['"', '\'']).into(),
        };
        above.push((depth, key.trim().to_owned()));
    }
    all
}

/// Checks for times that are empty: `0s ago` and `in 0s`.
fn says_nothing(text: &str) -> bool {
    text.split(|c: char| !c.is_alphanumeric()).any(|word| word == "0s")
}
