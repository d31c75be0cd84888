//! Twenty thousand deliveries at full speed, a fifth of them sent again, and a daemon that is killed in
//! between.
//!
//! There are only 2,000 deliveries unless `COWHAND_LONG=1` is set.

use std::collections::{BTreeMap, HashSet};
use std::net::{IpAddr, Ipv4Addr};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use cowhand::store::Store;
use cowhand_core::id::ScheduleId;
use cowhand_core::trigger::Occurrence;
use reqwest::Client;
use serde_json::Value;

use crate::{OLD, Scene, hmac};
use cowhand_testing::postgres::Postgres;

const SENDERS: usize = 32;

/// Returns a config whose one place is taken during the whole test, so that the other jobs wait and cost
/// nothing.
fn fleet(store: Option<&str>) -> String {
    let store = store.map(|url| format!("store: \"{url}\"")).unwrap_or_default();
    format!(
        r#"
{store}
server: {{listen: "127.0.0.1:0"}}
agents:
  - name: worker
    runtime: command
    command: [sh, -c, "cat > /dev/null; while test -e busy; do sleep 0.1; done"]
    schedules:
      hook: {{type: webhook, secret_env: HOOK_OLD, prompt: "Look at {{{{payload.number}}}}"}}
      "off": {{type: webhook, secret_env: HOOK_OLD, enabled: false, prompt: Look.}}
      by-hand: {{type: manual, prompt: Work.}}
"#
    )
}

/// Answers to each delivery, in order.
type Answers = Mutex<BTreeMap<usize, Vec<(u16, Option<String>)>>>;

struct Sender {
    client: Client,
    url: String,
}

impl Sender {
    fn new(url: &str, from: [u8; 4]) -> Self {
        let client = Client::builder().local_address(IpAddr::V4(Ipv4Addr::from(from))).build().unwrap();
        Self { client, url: url.to_owned() }
    }

    /// Sends a delivery until there is an answer. A daemon that died may have accepted it or not, so it is sent again.
    async fn send(&self, schedule: &str, number: usize, secret: &str) -> (u16, Value) {
        let body = format!(r#"{{"number":{number}}}"#);
        let patience = Instant::now() + Duration::from_mins(2);
        loop {
            let request = self.client.post(format!("{}/hooks/worker/{schedule}", self.url));
            let request = request
                .header("x-github-delivery", format!("d-{number}"))
                .header("x-github-event", "push")
                .header("x-hub-signature-256", format!("sha256={}", hmac(secret, &[body.as_bytes()])))
                .body(body.clone());
            if let Ok(response) = request.send().await {
                let status = response.status().as_u16();
                if let Ok(text) = response.text().await {
                    return (status, serde_json::from_str(&text).unwrap());
                }
            }
            assert!(Instant::now() < patience, "nobody answers");
            tokio::time::sleep(Duration::from_millis(50)).await;
        }
    }
}

/// Sends deliveries one after another, sharing a counter with the other senders; every fifth a second time.
async fn deliver_all(url: String, next: Arc<AtomicUsize>, most: usize, answers: Arc<Answers>) {
    let sender = Sender::new(&url, [127, 0, 0, 1]);
    loop {
        let number = next.fetch_add(1, Ordering::Relaxed);
        if number >= most {
            return;
        }
        for _ in 0..if number.is_multiple_of(5) { 2 } else { 1 } {
            let (status, said) = sender.send("hook", number, OLD).await;
            let job = said["job"].as_str().map(str::to_owned);
            answers.lock().unwrap().entry(number).or_default().push((status, job));
        }
    }
}

/// Sends invalid deliveries while the others are sent, and checks that they are refused with a reason.
async fn deliver_wrongly(
    url: String,
    stop: Arc<AtomicUsize>,
    most: usize,
) -> BTreeMap<(&'static str, u16), usize> {
    let sender = Sender::new(&url, [127, 0, 0, 2]);
    let mut seen = BTreeMap::new();
    for number in most.. {
        if stop.load(Ordering::Relaxed) >= most {
            break;
        }
        let [schedule, secret] =
            [["hook", "guess"], ["nothing", OLD], ["off", OLD], ["by-hand", OLD]][number % 4];
        let (status, said) = sender.send(schedule, number, secret).await;
        let expected = match schedule {
            "hook" => (401, "unauthorized"),
            "by-hand" => (422, "not_a_webhook"),
            _ => (404, "not_found"),
        };
        let said = said["code"].as_str().unwrap().to_owned();
        assert!([expected, (429, "too_many")].contains(&(status, &said)), "{schedule}: {status} {said}");
        *seen.entry((schedule, status)).or_default() += 1;
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
    seen
}

async fn flood(store: Option<&str>, most: usize) {
    let mut scene = Scene::prepared(&fleet(store));
    std::fs::write(scene.path("busy"), "").unwrap();
    scene.start(&[]);
    let (next, answers) = (Arc::new(AtomicUsize::new(0)), Arc::new(Answers::default()));
    let began = Instant::now();
    let senders: Vec<_> = (0..SENDERS)
        .map(|_| tokio::spawn(deliver_all(scene.url.clone(), Arc::clone(&next), most, Arc::clone(&answers))))
        .collect();
    let wrong = tokio::spawn(deliver_wrongly(scene.url.clone(), Arc::clone(&next), most));
    let mut memory = 0;
    for third in 1..3 {
        while next.load(Ordering::Relaxed) < most * third / 3 {
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
        memory = memory.max(scene.peak_memory_mb());
        let place = scene.place();
        scene.kill();
        scene.start(&["--listen", &place]);
    }
    for sender in senders {
        sender.await.unwrap();
    }
    let took = began.elapsed();
    let wrong = wrong.await.unwrap();
    memory = memory.max(scene.peak_memory_mb());
    scene.kill();
    std::fs::remove_file(scene.path("busy")).unwrap();

    let file = scene.path(".cowhand/store.db");
    let store = Store::open(store.unwrap_or(file.to_str().unwrap())).await.unwrap();
    let schedule = ScheduleId::of(&"worker".parse().unwrap(), &"hook".parse().unwrap());
    let mut jobs = HashSet::new();
    let answers = std::mem::take(&mut *answers.lock().unwrap());
    assert_eq!(answers.len(), most);
    for (number, answers) in &answers {
        let sent = if number.is_multiple_of(5) { 2 } else { 1 };
        let accepted: Vec<_> = answers.iter().filter(|(status, _)| *status == 202).collect();
        assert!(accepted.len() <= 1 && answers.len() == sent, "{number}: {answers:?}");
        assert!(answers.iter().all(|(status, _)| [200, 202].contains(status)), "{number}: {answers:?}");
        let key = Occurrence::Webhook { delivery_id: &format!("d-{number}") }.key(0);
        let job = store.firing(schedule, key).await.unwrap().and_then(|row| row.job).unwrap();
        assert!(accepted.iter().all(|(_, named)| named.as_deref() == Some(job.as_str())), "{number}");
        assert!(store.job(job.clone()).await.unwrap().is_some(), "{number}");
        assert!(jobs.insert(job), "{number} shares its job");
    }
    let all = store.jobs(cowhand::store::JobFilter::default(), u32::MAX).await.unwrap();
    assert_eq!(all.len(), most, "a job for each, and for nothing else");
    store.close().await;
    let rate = most * 6 / 5 * 1000 / usize::try_from(took.as_millis()).unwrap();
    println!(
        "{most} deliveries and a fifth again in {took:.1?} with two kills: {rate}/s; at most {memory} MB; refused: {wrong:?}"
    );
}

fn most() -> usize {
    if std::env::var_os("COWHAND_LONG").is_some() { 20_000 } else { 2_000 }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn each_delivery_becomes_one_job_on_sqlite() {
    flood(None, most()).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn each_delivery_becomes_one_job_on_postgres() {
    let postgres = Postgres::start();
    flood(Some(&postgres.url()), most()).await;
}
