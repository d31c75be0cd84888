//! Requests to a fleet's server, one connection each.

use std::io::{self, Read, Write};
use std::net::TcpStream;
use std::time::Duration;

/// Status and body of an answer.
#[derive(Debug, PartialEq, Eq)]
pub struct HttpAnswer {
    pub status: u16,
    pub body: String,
}

pub fn get(place: &str, path: &str) -> io::Result<HttpAnswer> {
    send(place, "GET", path, "", "")
}

/// Sends a delivery to an unsigned webhook of `agent`.
pub fn deliver(place: &str, hook: &str, id: &str) -> io::Result<HttpAnswer> {
    let headers = format!("x-github-delivery: {id}\r\ncontent-type: application/json\r\n");
    send(place, "POST", &format!("/hooks/{hook}"), &headers, &format!("{{\"id\":\"{id}\"}}"))
}

fn send(place: &str, method: &str, path: &str, headers: &str, body: &str) -> io::Result<HttpAnswer> {
    let mut stream = TcpStream::connect(place)?;
    stream.set_read_timeout(Some(Duration::from_secs(20)))?;
    let length = body.len();
    write!(
        stream,
        "{method} {path} HTTP/1.1\r\nhost: {place}\r\nconnection: close\r\n{headers}content-length: {length}\r\n\r\n{body}"
    )?;
    let mut answer = String::new();
    stream.read_to_string(&mut answer)?;
    let (head, body) = answer.split_once("\r\n\r\n").ok_or(io::ErrorKind::UnexpectedEof)?;
    let status = head.split(' ').nth(1).and_then(|status| status.parse().ok());
    Ok(HttpAnswer { status: status.ok_or(io::ErrorKind::InvalidData)?, body: body.to_owned() })
}
