//! Hostile clients: their requests are refused and need little memory, and the fleet fires on time meanwhile.

use std::io::{ErrorKind, Read, Write};
use std::net::{Ipv4Addr, SocketAddr, SocketAddrV4, TcpStream as Blocking};
use std::pin::pin;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use cowhand::store::Store;
use cowhand_core::id::ScheduleId;
use cowhand_core::schedule::FiringOutcome;
use futures_util::StreamExt as _;
use futures_util::stream::iter;
use jiff::SignedDuration;
use reqwest::Client;
use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
use tokio::net::{TcpSocket, TcpStream};
use tokio::time::timeout;

use crate::{OLD, Scene, answer, hmac};

const FLEET: &str = r#"
server: {listen: "127.0.0.1:0"}
agents:
  - name: worker
    runtime: command
    command: [sh, -c, "cat > /dev/null"]
    instances: {max_concurrent: 4}
    schedules:
      hook: {type: webhook, secret_env: HOOK_OLD, prompt: Look.}
  - name: clock
    runtime: command
    command: ["true"]
    instances: {max_concurrent: 4}
    schedules:
      tick: {type: cron, expression: "* * * * * *", prompt: Tick.}
"#;
const BODY: &[u8] = br#"{"action":"opened"}"#;
/// Limit of the daemon's memory, in MB. An idle daemon needs about forty.
const MUCH: u64 = 250;

/// Returns the largest delay of a firing by the clock during the test. Checks that no firing is missing.
async fn on_time(scene: &Scene) -> SignedDuration {
    let store = Store::open(scene.path(".cowhand/store.db").to_str().unwrap()).await.unwrap();
    let tick = ScheduleId::of(&"clock".parse().unwrap(), &"tick".parse().unwrap());
    let mut ledger = store.ledger(tick, 1000).await.unwrap();
    while ledger.len() < 4 {
        tokio::time::sleep(Duration::from_millis(100)).await;
        ledger = store.ledger(tick, 1000).await.unwrap();
    }
    store.close().await;
    ledger.reverse();
    let due: Vec<i64> = ledger.iter().map(|row| row.due.as_second()).collect();
    assert!(
        due.len() > 2 && due.windows(2).all(|pair| pair[1] == pair[0] + 1),
        "a firing every second: {due:?}"
    );
    // On a busy machine one firing may cover several, but none is missed.
    assert!(ledger.iter().all(|row| row.outcome != FiringOutcome::Missed), "{ledger:?}");
    ledger.iter().map(|row| row.decided_at.duration_since(row.due)).max().unwrap()
}

async fn is_well(scene: &Scene, what: &str) {
    let (latest, memory) = (on_time(scene).await, scene.peak_memory_mb());
    println!("{what}: at most {memory} MB, and the latest firing {latest:#} after its time");
    assert!(memory < MUCH, "{memory} MB");
    assert_eq!(answer(scene.github("hook", what, "push", BODY)).await.0, 202, "{}", scene.log());
}

#[tokio::test]
async fn path_tricks_are_refused() {
    let scene = Scene::of(FLEET);
    let long = "a".repeat(5_000);
    for path in [
        "/hooks/worker/..",
        "/hooks/worker/%2e%2e",
        "/hooks/worker/..%2fhook",
        "/hooks/..%2f..%2fetc/passwd",
        "/hooks/worker/hook%00",
        "/hooks/%00/hook",
        "/hooks/worker/%ff%fe",
        "/hooks/worker/hook/",
        "/hooks/worker/hook/more",
        "/hooks//worker/hook",
        "/hooks/./worker/hook",
        "/hooks/WORKER/hook",
        "/hooks/worker/h%C3%B6%C3%B6k%E2%80%AE",
        "/hooks/worker/hook%0d%0aset-cookie:x",
        &format!("/hooks/{long}/hook"),
        &format!("/hooks/worker/{long}"),
        "/api/v1/jobs/..%2f..%2fsecret",
        "/api/v1/../../hooks/worker/nothing",
    ] {
        let head = format!(
            "POST {path} HTTP/1.1\r\nhost: localhost\r\nx-hub-signature-256: sha256={}\r\n\
             content-length: {}\r\n\r\n{}",
            hmac(OLD, &[BODY]),
            BODY.len(),
            std::str::from_utf8(BODY).unwrap(),
        );
        let status = scene.raw(head.as_bytes());
        assert!([400, 401, 404, 429].contains(&status), "{path}: {status}");
    }
    // Heads that are too long, and invalid ones.
    let head =
        |more: &str| format!("GET /healthz HTTP/1.1\r\nhost: localhost\r\nconnection: close\r\n{more}\r\n");
    let long = |bytes: usize| head(&format!("x: {}\r\n", "a".repeat(bytes)));
    let many = |count: usize| head(&"x: a\r\n".repeat(count));
    for (bytes, expected) in [
        (long(60_000), 200),
        (long(70_000), 431),
        (long(100_000), 431),
        (long(300_000), 431),
        (many(98), 200),
        (many(99), 431),
        ("\0\0\0\0\r\n\r\n".to_owned(), 400),
        ("GET /\r\n\r\n".to_owned(), 400),
    ] {
        let status = scene.raw(bytes.as_bytes());
        assert_eq!(status, expected, "{} bytes", bytes.len());
    }
    assert!(scene.jobs().iter().all(|job| job["agent"] == "clock"));
    let long_id = scene.github("hook", &"x".repeat(10_000), "push", BODY);
    assert_eq!(answer(long_id).await.0, 202, "a name that is too long is none, and the body is its name");
    is_well(&scene, "path tricks").await;
}

#[tokio::test]
async fn cross_site_forms_are_refused() {
    let scene = Scene::of(FLEET);
    let token = scene.token("t", "admin");
    for (path, body) in
        [("/hooks/worker/hook", "x=1"), ("/api/v1/agents/worker/trigger", "{}"), ("/api/v1/stop", "")]
    {
        for origin in ["https://evil.example.org", "null", "http://127.0.0.1:1"] {
            let form = scene.ask("POST", path).header("origin", origin).bearer_auth(&token).body(body);
            let form = form.header("content-type", "application/x-www-form-urlencoded");
            let form = form.header("sec-fetch-site", "cross-site");
            assert_eq!(answer(form).await.0, 403, "{path} from {origin}");
        }
        let rebound =
            scene.ask("POST", path).header("host", "evil.example.org").bearer_auth(&token).body(body);
        assert_eq!(answer(rebound).await.0, 421, "{path}");
    }
    is_well(&scene, "cross-site").await;
}

/// Sends a body of a gigabyte, or as much as is accepted; returns that amount, and the status.
fn gigabyte(scene: &Scene, is_announced: bool) -> (usize, Option<u16>) {
    let mut stream = Blocking::connect(scene.place()).unwrap();
    stream.set_read_timeout(Some(Duration::from_secs(20))).unwrap();
    stream.set_write_timeout(Some(Duration::from_secs(20))).unwrap();
    let length = if is_announced { "content-length: 1000000000" } else { "transfer-encoding: chunked" };
    let head = format!(
        "POST /hooks/worker/hook HTTP/1.1\r\nhost: localhost\r\nx-gitlab-token: {OLD}\r\n{length}\r\n\r\n"
    );
    stream.write_all(head.as_bytes()).unwrap();
    let mut answering = stream.try_clone().unwrap();
    let said = std::thread::spawn(move || {
        let mut answer = Vec::new();
        let mut buffer = [0; 1024];
        while let Ok(length @ 1..) = answering.read(&mut buffer) {
            answer.extend(&buffer[..length]);
        }
        String::from_utf8_lossy(&answer).split(' ').nth(1).and_then(|status| status.parse().ok())
    });
    let mut chunk = b"100000\r\n".to_vec();
    chunk.resize(chunk.len() + (1 << 20), b' ');
    chunk.extend(b"\r\n");
    let mut sent = 0;
    while sent < 1_000_000_000 && stream.write_all(&chunk).is_ok() {
        sent += chunk.len();
    }
    (sent, said.join().unwrap())
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn body_of_a_gigabyte_is_refused() {
    let scene = Scene::of(FLEET);
    for is_announced in [true, false] {
        let sent: Vec<_> = std::thread::scope(|scope| {
            let senders: Vec<_> = (0..6).map(|_| scope.spawn(|| gigabyte(&scene, is_announced))).collect();
            senders.into_iter().map(|sender| sender.join().unwrap()).collect()
        });
        println!("announced: {is_announced}; sent and answered: {sent:?}");
        for (sent, status) in &sent {
            assert!(*sent < 100 << 20, "{sent}");
            // The answer may be lost with the connection.
            assert!(status.is_none_or(|status| status == 413), "{status:?}");
        }
        assert!(sent.iter().any(|(_, status)| *status == Some(413)), "{sent:?}");
    }
    is_well(&scene, "a gigabyte").await;
}

/// Connects from the given address, so that the server distinguishes the connection from those of the test itself.
async fn connect(scene: &Scene, from: [u8; 4]) -> Option<TcpStream> {
    let socket = TcpSocket::new_v4().unwrap();
    socket.bind(SocketAddr::V4(SocketAddrV4::new(Ipv4Addr::from(from), 0))).unwrap();
    timeout(Duration::from_secs(5), socket.connect(scene.place().parse().unwrap())).await.ok()?.ok()
}

/// Sends a byte every half second until the connection is closed; returns the duration, and the answer.
async fn drip(scene: &Scene, head: &str, bytes: &str, came: &AtomicUsize) -> (Duration, String) {
    let stream = connect(scene, [127, 0, 0, 2]).await.unwrap();
    let began = Instant::now();
    stream.writable().await.unwrap();
    stream.try_write(head.as_bytes()).unwrap();
    came.fetch_add(1, Ordering::Relaxed);
    let mut said = Vec::new();
    for byte in bytes.bytes().cycle() {
        let mut buffer = [0; 1024];
        match timeout(Duration::from_millis(500), stream.readable())
            .await
            .map(|_| stream.try_read(&mut buffer))
        {
            Ok(Ok(length @ 1..)) => said.extend(&buffer[..length]),
            Ok(Err(error)) if error.kind() == ErrorKind::WouldBlock => {}
            Ok(_) => break,
            Err(_) => {
                if stream.try_write(&[byte]).is_err() {
                    break;
                }
            }
        }
        assert!(began.elapsed() < Duration::from_mins(2), "it is still there");
    }
    (began.elapsed(), String::from_utf8_lossy(&said).into_owned())
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn slow_clients_are_disconnected() {
    let scene = Scene::of(FLEET);
    let announced = "POST /hooks/worker/hook HTTP/1.1\r\nhost: localhost\r\ncontent-length: 1000\r\n\r\n";
    let chunked =
        "POST /hooks/worker/hook HTTP/1.1\r\nhost: localhost\r\ntransfer-encoding: chunked\r\n\r\n400\r\n";
    let kinds = [("POST /hooks/worker/hook HTTP/1.1\r\nx: ", 100), (announced, 50), (chunked, 20), ("", 20)];
    let (came, gone) = (AtomicUsize::new(0), AtomicUsize::new(0));
    let slow = kinds.iter().flat_map(|(head, count)| std::iter::repeat_n(*head, *count));
    let slow = iter(slow).map(async |head| {
        let (lasted, said) = drip(&scene, head, "a", &came).await;
        gone.fetch_add(1, Ordering::Relaxed);
        let is_refused = said.starts_with("HTTP/1.1 4") || said.contains("\"code\":\"busy\"");
        assert!(said.is_empty() || is_refused, "{said}");
        (head, lasted)
    });
    // All slow clients connect at once, and all other clients are answered meanwhile.
    let others = async {
        while came.load(Ordering::Relaxed) < 190 {
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
        let (mut longest, mut beside) = (Duration::ZERO, 0);
        for number in 0..40 {
            let began = Instant::now();
            let id = format!("meanwhile-{number}");
            assert_eq!(answer(scene.github("hook", &id, "push", BODY)).await.0, 202);
            longest = longest.max(began.elapsed());
            beside = beside.max(190 - gone.load(Ordering::Relaxed));
            tokio::time::sleep(Duration::from_millis(500)).await;
        }
        (longest, beside)
    };
    let (slow, (longest, beside)) = tokio::join!(slow.buffer_unordered(1_000).collect::<Vec<_>>(), others);
    for (kind, _) in kinds {
        let lasted = slow.iter().filter(|(head, _)| *head == kind).map(|(_, lasted)| *lasted).max().unwrap();
        println!("{:?} for {lasted:.1?} at most", kind.lines().last().unwrap_or_default());
    }
    println!("a delivery of somebody else's took {longest:?} at most, beside up to {beside} slow ones");
    assert!(beside > 0, "nobody was answered before the last of them was gone");
    is_well(&scene, "slow clients").await;
}

/// Raises the limit on open files, and returns the number of connections that it allows, at most `wanted`.
fn many(wanted: u64) -> usize {
    let limit = getrlimit(Resource::Nofile);
    let most = limit.maximum.unwrap_or(u64::MAX);
    let current = most.min(wanted + 1_000);
    setrlimit(Resource::Nofile, Rlimit { current: Some(current), maximum: limit.maximum }).unwrap();
    usize::try_from(wanted.min(current - 500)).unwrap()
}

/// Returns the number of open files and connections of the daemon. The sender cannot count them, because it does not
/// notice when the kernel drops a connection from a full queue.
fn kept(scene: &Scene) -> usize {
    std::fs::read_dir(format!("/proc/{}/fd", scene.pid())).unwrap().count()
}

/// Returns the result, and the largest number of files that the daemon had open meanwhile.
async fn most_kept<T>(scene: &Scene, doing: impl Future<Output = T>) -> (T, usize) {
    let (mut doing, mut most) = (pin!(doing), 0);
    loop {
        tokio::select! {
            done = &mut doing => return (done, most.max(kept(scene))),
            () = tokio::time::sleep(Duration::from_millis(20)) => most = most.max(kept(scene)),
        }
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn ten_thousand_connections_are_limited() {
    let scene = Scene::of(FLEET);
    let (wanted, before) = (many(10_000), kept(&scene));
    let open = async |sources: usize| -> Vec<TcpStream> {
        let opening = iter(0..wanted)
            .map(|number| connect(&scene, [127, 0, 0, 2 + u8::try_from(number % sources).unwrap()]));
        opening.buffer_unordered(500).filter_map(async |stream| stream).collect().await
    };
    let client = Client::new();
    let deliver = async |id: &str| {
        let began = Instant::now();
        let request = client.post(format!("{}/hooks/worker/hook", scene.url)).header("x-github-delivery", id);
        let request =
            request.header("x-hub-signature-256", format!("sha256={}", hmac(OLD, &[BODY]))).body(BODY);
        assert_eq!(answer(request.timeout(Duration::from_mins(2))).await.0, 202);
        began.elapsed()
    };
    // One address gets at most half of the connections, so other addresses always get one.
    let flood = async { (open(1).await, deliver("beside-one").await) };
    let ((streams, took), most) = most_kept(&scene, flood).await;
    let (count, most) = (streams.len(), most - before);
    println!("{count} of {wanted} connections from one address, {most} kept; a delivery took {took:?}");
    let told = "the address has 2048 connections; further ones are closed immediately";
    assert!(scene.log().contains(told), "{}", scene.log());
    // The limit includes the files that the jobs of the agent `clock` and the delivery of this test need.
    assert!(most < 2_100, "{most}");
    drop(streams);

    // Many addresses take all connections. Silent connections are closed, and then other clients are accepted.
    let flood = async { (open(8).await, deliver("beside-many").await) };
    let ((streams, took), most) = most_kept(&scene, flood).await;
    let (count, most) = (streams.len(), most - before);
    println!("{count} of {wanted} connections from eight addresses, {most} kept; a delivery took {took:?}");
    assert!((2_100..4_150).contains(&most), "{most}");
    drop(streams);
    is_well(&scene, "ten thousand connections").await;
}
