//! Server-sent events that continue where a client stopped, until there are no more.

use std::time::Duration;

use futures_util::StreamExt;
use reqwest::Response;
use serde_json::Value;

use crate::{Scene, answer};

/// Open answer, read event by event.
struct Stream {
    response: Response,
    held: String,
}

/// Event as a browser sees it.
#[derive(Debug, PartialEq)]
struct Sent {
    id: Option<u64>,
    kind: Option<String>,
    data: Value,
}

impl Stream {
    async fn open(scene: &Scene, token: &str, path: &str, last_id: Option<u64>) -> Self {
        let mut request = scene.ask("GET", path).bearer_auth(token).header("accept", "text/event-stream");
        if let Some(id) = last_id {
            request = request.header("last-event-id", id);
        }
        let response = request.send().await.unwrap();
        assert_eq!(response.status(), 200);
        assert_eq!(response.headers()["content-type"], "text/event-stream");
        Self { response, held: String::new() }
    }

    /// Returns the next event, or none at the end of the answer.
    async fn next(&mut self) -> Option<Sent> {
        loop {
            if let Some((event, rest)) = self.held.split_once("\n\n") {
                let field =
                    |name: &str| event.lines().find_map(|line| line.strip_prefix(name)).map(str::to_owned);
                let sent = field("data: ").map(|data| Sent {
                    id: field("id: ").map(|id| id.parse().unwrap()),
                    kind: field("event: "),
                    data: serde_json::from_str(&data).unwrap(),
                });
                self.held = rest.into();
                if sent.is_some() {
                    return sent;
                }
                continue;
            }
            let part = tokio::time::timeout(Duration::from_secs(30), self.response.chunk()).await;
            let part = part.unwrap_or_else(|_| panic!("no event in time")).unwrap()?;
            self.held.push_str(std::str::from_utf8(&part).unwrap());
        }
    }

    async fn take(&mut self, count: usize) -> Vec<Sent> {
        let mut all = Vec::new();
        for _ in 0..count {
            all.push(self.next().await.unwrap());
        }
        all
    }
}

#[tokio::test]
async fn event_stream_continues_after_last_event_id() {
    let mut scene = Scene::new();
    let token = scene.token("reader", "read");
    let mut early = Stream::open(&scene, &token, "/api/v1/events?after=0", None).await;
    let seen = early.take(3).await;
    assert_eq!(seen.iter().map(|event| event.id).collect::<Vec<_>>(), [Some(1), Some(2), Some(3)]);
    assert!(seen.iter().all(|event| event.data["seq"].as_u64() == event.id));

    // Events without a client, and without a daemon, are not lost.
    assert_eq!(scene.run(&["trigger", "worker", "by-hand", "--wait"]).0, 0);
    scene.kill();
    scene.start(&[]);
    let mut late = Stream::open(&scene, &token, "/api/v1/events?after=0", Some(3)).await;
    let mut next = 4;
    loop {
        let event = late.next().await.unwrap();
        assert_eq!(event.id, Some(next), "no gap and nothing twice");
        next += 1;
        if event.data["type"] == "job:completed" {
            break;
        }
    }
    let (status, _) =
        answer(scene.ask("GET", "/api/v1/events").bearer_auth(&token).header("last-event-id", "x")).await;
    assert_eq!(status, 400);
}

#[tokio::test]
async fn output_stream_ends_with_its_job() {
    let scene = Scene::new();
    let token = scene.token("reader", "read");
    let (_, job, _) =
        scene.run(&["trigger", "worker", "by-hand", "-p", "one\ntwo\nthree", "--wait", "--json"]);
    let id = serde_json::from_str::<Value>(&job).unwrap()["id"].as_str().unwrap().to_owned();
    let path = format!("/api/v1/jobs/{id}/output?follow=1");
    let mut stream = Stream::open(&scene, &token, &path, None).await;
    let mut said = Vec::new();
    let end = loop {
        let event = stream.next().await.unwrap();
        if event.kind.is_some() {
            break event;
        }
        said.push((event.id.unwrap(), event.data["content"].as_str().unwrap().to_owned()));
    };
    assert_eq!(said, [(1, "one".into()), (2, "two".into()), (3, "three".into())]);
    assert_eq!(end.kind.as_deref(), Some("end"), "a browser is told not to come back");
    assert_eq!(stream.next().await, None);

    let mut again = Stream::open(&scene, &token, &path, Some(2)).await;
    assert_eq!(again.next().await.unwrap().data["content"], "three");
    for (query, expected) in
        [("?limit=2", "one two"), ("?after=1&limit=1", "two"), ("?after=3", ""), ("?limit=0", "")]
    {
        let request = scene.ask("GET", &format!("/api/v1/jobs/{id}/output{query}")).bearer_auth(&token);
        let text = request.send().await.unwrap().text().await.unwrap();
        let said: Vec<String> = text
            .lines()
            .map(|line| serde_json::from_str::<Value>(line).unwrap()["content"].as_str().unwrap().to_owned())
            .collect();
        assert_eq!(said.join(" "), expected, "{query}");
    }
}

/// A client that is slow, or does not read at all, costs the daemon no more than a page of memory.
#[tokio::test]
async fn thousand_stream_clients_need_little_memory() {
    let scene = Scene::new();
    let token = scene.token("reader", "read");
    let memory = |what: &str| -> u64 {
        let status = std::fs::read_to_string(format!("/proc/{}/status", scene.daemon.as_ref().unwrap().id()));
        let status = status.unwrap();
        let line = status.lines().find_map(|line| line.strip_prefix(what)).unwrap();
        line.trim().trim_end_matches(" kB").parse().unwrap()
    };
    let before = memory("VmRSS:");
    let opened =
        futures_util::stream::iter(0..1000).map(|_| Stream::open(&scene, &token, "/api/v1/events", None));
    let mut clients: Vec<Stream> = opened.buffer_unordered(50).collect().await;
    assert_eq!(scene.run(&["trigger", "worker", "by-hand", "--wait"]).0, 0);
    for client in &mut clients {
        while client.next().await.unwrap().data["type"] != "job:completed" {}
    }
    let used = memory("VmHWM:") - before;
    println!("1000 clients: {used} KiB more than {before} KiB");
    assert!(used < 64 << 10, "{used} KiB for 1000 clients");
}

/// Lines of output have no id: a client reconnects with the number of the last event.
#[tokio::test]
async fn event_stream_includes_output_on_request() {
    let scene = Scene::new();
    let token = scene.token("reader", "read");
    let mut plain = Stream::open(&scene, &token, "/api/v1/events", None).await;
    let mut both = Stream::open(&scene, &token, "/api/v1/events?output=1", None).await;
    assert_eq!(scene.run(&["trigger", "worker", "by-hand", "-p", "one\ntwo", "--wait"]).0, 0);
    let kinds = async |stream: &mut Stream| {
        let mut seen = Vec::new();
        loop {
            let event = stream.next().await.unwrap();
            let kind = event.data["type"].as_str().unwrap().to_owned();
            assert_eq!(event.id.is_none(), kind == "job:output", "{event:?}");
            if kind.starts_with("job:") {
                seen.push(kind.clone());
            }
            if kind == "job:completed" {
                assert_eq!(event.data["job_record"]["status"], "completed");
                return seen;
            }
        }
    };
    assert_eq!(kinds(&mut plain).await, ["job:created", "job:started", "job:completed"]);
    let expected = ["job:created", "job:started", "job:output", "job:output", "job:completed"];
    assert_eq!(kinds(&mut both).await, expected);
    for wrong in ["output=1", "output=1&follow=1&audit=1"] {
        let request = scene.ask("GET", &format!("/api/v1/events?{wrong}")).bearer_auth(&token);
        assert_eq!(answer(request).await.0, 400, "{wrong}");
    }
}
