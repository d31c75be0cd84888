//! Requests to a fleet's server, with one connection for each request.

use std::io::{self, Read, Write};
use std::net::TcpStream;
use std::time::Duration;

/// Status and body of an answer.
#[derive(Debug, PartialEq, Eq)]
pub struct HttpAnswer {
    pub status: u16,
    pub body: String,
}

pub fn get(address: &str, path: &str) -> io::Result<HttpAnswer> {
    send(address, "GET", path, "", "")
}

/// Sends a request with a token of the API.
pub fn get_with_token(address: &str, path: &str, token: &str) -> io::Result<HttpAnswer> {
    send(address, "GET", path, &format!("authorization: Bearer {token}\r\n"), "")
}

/// Sends an unsigned delivery to a webhook. `webhook` is `agent/schedule`.
pub fn deliver(address: &str, webhook: &str, id: &str) -> io::Result<HttpAnswer> {
    let headers = format!("x-github-delivery: {id}\r\ncontent-type: application/json\r\n");
    send(address, "POST", &format!("/hooks/{webhook}"), &headers, &format!("{{\"id\":\"{id}\"}}"))
}

fn send(address: &str, method: &str, path: &str, headers: &str, body: &str) -> io::Result<HttpAnswer> {
    let mut stream = TcpStream::connect(address)?;
    stream.set_read_timeout(Some(Duration::from_secs(20)))?;
    let length = body.len();
    write!(
        stream,
        "{method} {path} HTTP/1.1\r\nhost: {address}\r\nconnection: close\r\n{headers}content-length: {length}\r\n\r\n{body}"
    )?;
    let mut answer = String::new();
    stream.read_to_string(&mut answer)?;
    let (head, body) = answer.split_once("\r\n\r\n").ok_or(io::ErrorKind::UnexpectedEof)?;
    let status = head.split(' ').nth(1).and_then(|status| status.parse().ok());
    Ok(HttpAnswer { status: status.ok_or(io::ErrorKind::InvalidData)?, body: body.to_owned() })
}
