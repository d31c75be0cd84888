//! A client of the server: one connection with many requests, or one stream of events.

use std::io::{BufRead, BufReader, Read, Write};
use std::net::TcpStream;

/// Connection that stays open between requests.
#[derive(Debug)]
pub(crate) struct Http<S> {
    stream: BufReader<S>,
    host: String,
}

/// Head of an answer.
struct Head {
    status: u16,
    length: usize,
    chunked: bool,
}

impl Http<TcpStream> {
    pub(crate) fn connect(address: &str) -> Self {
        let stream = TcpStream::connect(address).unwrap();
        stream.set_nodelay(true).unwrap();
        Self::new(stream, address)
    }
}

impl<S: Read + Write> Http<S> {
    pub(crate) fn new(stream: S, host: &str) -> Self {
        Self { stream: BufReader::new(stream), host: host.to_owned() }
    }

    pub(crate) fn get(&mut self, path: &str) -> serde_json::Value {
        self.request("GET", path, "", "");
        let (status, body) = self.answer();
        assert_eq!(status, 200, "GET {path}: {body}");
        serde_json::from_str(&body).unwrap()
    }

    /// Sends a delivery to the webhook of an agent. Returns the answer if it was accepted.
    pub(crate) fn deliver(&mut self, agent: &str, id: &str, body: &str) -> serde_json::Value {
        let headers = format!("content-type: application/json\r\nx-github-delivery: {id}\r\n");
        self.request("POST", &format!("/hooks/{agent}/s"), &headers, body);
        let (status, body) = self.answer();
        assert_eq!(status, 202, "delivery {id}: {body}");
        serde_json::from_str(&body).unwrap()
    }

    /// Requests a stream of server-sent events, and returns its reader.
    pub(crate) fn events(mut self, path: &str) -> BufReader<Chunks<BufReader<S>>> {
        self.request("GET", path, "accept: text/event-stream\r\n", "");
        let head = self.head();
        assert!(head.status == 200 && head.chunked, "GET {path}: {}", head.status);
        BufReader::new(Chunks { stream: self.stream, left: 0 })
    }

    fn request(&mut self, method: &str, path: &str, headers: &str, body: &str) {
        let (host, length) = (&self.host, body.len());
        let text = format!(
            "{method} {path} HTTP/1.1\r\nhost: {host}\r\n{headers}content-length: {length}\r\n\r\n{body}"
        );
        self.stream.get_mut().write_all(text.as_bytes()).unwrap();
    }

    fn answer(&mut self) -> (u16, String) {
        let head = self.head();
        let mut body = Vec::new();
        if head.chunked {
            Chunks { stream: &mut self.stream, left: 0 }.read_to_end(&mut body).unwrap();
        } else {
            body.resize(head.length, 0);
            self.stream.read_exact(&mut body).unwrap();
        }
        (head.status, String::from_utf8(body).unwrap())
    }

    fn head(&mut self) -> Head {
        let first = line(&mut self.stream);
        let status = first.split(' ').nth(1).and_then(|status| status.parse().ok());
        let mut head = Head { status: status.unwrap_or_default(), length: 0, chunked: false };
        loop {
            let line = line(&mut self.stream).to_ascii_lowercase();
            match line.split_once(':') {
                Some(("content-length", length)) => head.length = length.trim().parse().unwrap(),
                Some(("transfer-encoding", coding)) => head.chunked = coding.trim() == "chunked",
                Some(_) => {}
                None => return head,
            }
        }
    }
}

/// Body of an answer in chunks.
pub(crate) struct Chunks<R> {
    stream: R,
    left: usize,
}

impl<R: BufRead> Read for Chunks<R> {
    fn read(&mut self, buffer: &mut [u8]) -> std::io::Result<usize> {
        if self.left == 0 {
            let size = line(&mut self.stream);
            self.left = usize::from_str_radix(&size, 16).unwrap_or_default();
            if self.left == 0 {
                line(&mut self.stream);
                return Ok(0);
            }
        }
        let most = buffer.len().min(self.left);
        let read = self.stream.read(&mut buffer[..most])?;
        self.left -= read;
        if self.left == 0 {
            line(&mut self.stream);
        }
        Ok(read)
    }
}

/// Reads a line without its end.
fn line(stream: &mut impl BufRead) -> String {
    let mut line = String::new();
    stream.read_line(&mut line).unwrap();
    line.trim_end().to_owned()
}
