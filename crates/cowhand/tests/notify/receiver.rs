//! A webhook receiver on loopback that verifies signatures and can refuse requests.

use std::io::{BufRead, BufReader, Read, Write};
use std::net::TcpListener;
use std::sync::{Arc, Mutex};

use ring::hmac::{HMAC_SHA256, Key, verify};
use serde_json::Value;

use crate::{SECRET, wait_until};

/// A request with a valid signature.
#[derive(Debug, Clone)]
pub(crate) struct Delivery {
    pub(crate) id: String,
    pub(crate) body: Value,
    /// Status of the answer.
    pub(crate) status: u16,
}

impl Delivery {
    /// Returns `KIND TITLE`.
    pub(crate) fn line(&self) -> String {
        format!("{} {}", self.body["kind"].as_str().unwrap(), self.body["title"].as_str().unwrap())
    }
}

#[derive(Debug, Default)]
struct ReceiverState {
    all: Vec<Delivery>,
    /// Statuses of the next answers; after that, 200.
    answers: Vec<(u16, Option<u32>)>,
}

pub(crate) struct Receiver {
    pub(crate) url: String,
    state: Arc<Mutex<ReceiverState>>,
}

impl Receiver {
    pub(crate) fn start() -> Self {
        Self::at("127.0.0.1:0")
    }

    pub(crate) fn at(address: &str) -> Self {
        let listener = TcpListener::bind(address).unwrap();
        let url = format!("http://{}/hook", listener.local_addr().unwrap());
        let state = Arc::new(Mutex::new(ReceiverState::default()));
        let shared = Arc::clone(&state);
        std::thread::spawn(move || {
            for stream in listener.incoming() {
                let Ok(stream) = stream else { return };
                receive(stream, &shared);
            }
        });
        Self { url, state }
    }

    /// Sets the next answers: a status, and a `Retry-After` in seconds.
    pub(crate) fn answer(&self, answers: &[(u16, Option<u32>)]) {
        self.state.lock().unwrap().answers = answers.to_vec();
    }

    pub(crate) fn all(&self) -> Vec<Delivery> {
        self.state.lock().unwrap().all.clone()
    }

    /// Returns the notifications that were accepted, as `KIND TITLE`.
    pub(crate) fn accepted(&self) -> Vec<String> {
        self.all().iter().filter(|one| one.status == 200).map(Delivery::line).collect()
    }

    /// Waits until this number of notifications was accepted, and returns them.
    pub(crate) fn wait_for(&self, count: usize) -> Vec<String> {
        wait_until(&format!("{count} notifications, not {:?}", self.accepted()), || {
            let accepted = self.accepted();
            (accepted.len() >= count).then_some(accepted)
        })
    }
}

fn receive(mut stream: std::net::TcpStream, state: &Mutex<ReceiverState>) {
    let mut reader = BufReader::new(stream.try_clone().unwrap());
    let (mut length, mut id, mut signature) = (0, String::new(), String::new());
    loop {
        let mut line = String::new();
        // A daemon that is killed leaves half a request.
        if reader.read_line(&mut line).unwrap_or(0) == 0 {
            return;
        }
        let Some((name, value)) = line.trim_end().split_once(": ") else {
            if line.trim_end().is_empty() {
                break;
            }
            continue;
        };
        match name.to_ascii_lowercase().as_str() {
            "content-length" => length = value.parse().unwrap(),
            "x-cowhand-delivery" => value.clone_into(&mut id),
            "x-cowhand-signature-256" => value.clone_into(&mut signature),
            _ => {}
        }
    }
    let mut body = vec![0; length];
    if reader.read_exact(&mut body).is_err() {
        return;
    }
    let tag = signature.strip_prefix("sha256=").unwrap();
    let tag: Vec<u8> =
        (0..tag.len()).step_by(2).map(|at| u8::from_str_radix(&tag[at..at + 2], 16).unwrap()).collect();
    verify(&Key::new(HMAC_SHA256, SECRET.as_bytes()), &body, &tag).expect("a valid signature");
    let (status, retry_after) = {
        let mut state = state.lock().unwrap();
        let answer = if state.answers.is_empty() { (200, None) } else { state.answers.remove(0) };
        let body = serde_json::from_slice(&body).unwrap();
        state.all.push(Delivery { id, body, status: answer.0 });
        answer
    };
    let retry_after = retry_after.map(|seconds| format!("retry-after: {seconds}\r\n")).unwrap_or_default();
    let _ = stream.write_all(
        format!("HTTP/1.1 {status} X\r\n{retry_after}content-length: 0\r\nconnection: close\r\n\r\n")
            .as_bytes(),
    );
}
