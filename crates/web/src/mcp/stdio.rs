//! Standard input and output of an MCP server. The library drops a line that is not JSON, so this module answers such a
//! line with the error that JSON-RPC requires.

use tokio::io::{
    AsyncBufReadExt, AsyncRead, AsyncWrite, AsyncWriteExt, BufReader, DuplexStream, duplex, split,
};
use tokio::sync::mpsc;
use tokio::task::JoinHandle;

/// Size of the buffer in each direction between the server and this module.
const BUFFER_BYTES: usize = 64 * 1024;
const MAX_WAITING_ANSWERS: usize = 16;

/// Answer to a line that is not JSON. The answer has no id, because the request is unknown.
const PARSE_ERROR: &str =
    r#"{"jsonrpc":"2.0","id":null,"error":{"code":-32700,"message":"the line is not JSON"}}"#;

/// Returns the stream of a server, and the task that writes its output. The task ends when the server has closed the
/// stream.
pub(super) fn connect(
    input: impl AsyncRead + Unpin + Send + 'static,
    output: impl AsyncWrite + Unpin + Send + 'static,
) -> (DuplexStream, JoinHandle<()>) {
    let (server, near) = duplex(BUFFER_BYTES);
    let (from_server, to_server) = split(near);
    let (refusals, refused) = mpsc::channel(MAX_WAITING_ANSWERS);
    tokio::spawn(read(BufReader::new(input), to_server, refusals));
    (server, tokio::spawn(write(BufReader::new(from_server), refused, output)))
}

/// Passes on the lines that are JSON, until the input or the server ends.
async fn read(
    mut input: impl AsyncBufReadExt + Unpin,
    mut server: impl AsyncWrite + Unpin,
    refusals: mpsc::Sender<&'static str>,
) {
    let mut line = Vec::new();
    while input.read_until(b'\n', &mut line).await.is_ok_and(|count| count > 0) {
        let is_json = serde_json::from_slice::<serde::de::IgnoredAny>(&line).is_ok();
        let is_empty = line.trim_ascii().is_empty();
        let passed = match (is_json, is_empty) {
            (true, _) => server.write_all(&line).await.is_ok(),
            (false, true) => true,
            (false, false) => refusals.send(PARSE_ERROR).await.is_ok(),
        };
        if !passed {
            return;
        }
        line.clear();
    }
    // If this fails, the server has ended.
    server.shutdown().await.ok();
}

/// Writes the lines of the server and the refusals.
async fn write(
    mut server: impl AsyncBufReadExt + Unpin,
    mut refused: mpsc::Receiver<&'static str>,
    mut output: impl AsyncWrite + Unpin,
) {
    // If a refusal arrives while a line of the server is being read, `line` keeps the part that was read, and the next
    // round reads the rest.
    let mut line = Vec::new();
    loop {
        let written = tokio::select! {
            read = server.read_until(b'\n', &mut line) => match read {
                Ok(count) if count > 0 => {
                    let written = output.write_all(&line).await;
                    line.clear();
                    written
                }
                _ => return,
            },
            Some(refusal) = refused.recv() => output.write_all(format!("{refusal}\n").as_bytes()).await,
        };
        if written.is_err() || output.flush().await.is_err() {
            return;
        }
    }
}

#[cfg(test)]
mod tests {
    use tokio::io::AsyncReadExt;

    use super::*;

    #[tokio::test]
    async fn a_line_that_is_not_json_is_answered() {
        let (mut client, input) = duplex(1024);
        let (output, mut answers) = duplex(1024);
        let (mut server, writer) = connect(input, output);
        client.write_all(b"{\"id\":1}\n\nnot json\n{\"id\":2}\n").await.unwrap();
        drop(client);
        let mut heard = String::new();
        server.read_to_string(&mut heard).await.unwrap();
        assert_eq!(heard, "{\"id\":1}\n{\"id\":2}\n");
        server.write_all(b"{\"ok\":true}\n").await.unwrap();
        drop(server);
        writer.await.unwrap();
        let mut said = String::new();
        answers.read_to_string(&mut said).await.unwrap();
        let mut lines: Vec<&str> = said.lines().collect();
        lines.sort_unstable();
        assert_eq!(lines, [PARSE_ERROR, "{\"ok\":true}"]);
    }
}
