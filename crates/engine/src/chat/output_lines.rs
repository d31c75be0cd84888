//! The lines of an output, read by a task of their own.

use futures_util::stream::{Stream, StreamExt as _, try_unfold};
use tokio::sync::mpsc;
use tokio::task::JoinSet;

use crate::fleet::{FleetError, JobMessage, OutputStream};

/// Number of lines that are read before they are posted.
const LINES_AHEAD: usize = 16;

/// Lines that a task reads. Slow posts and ticks therefore do not interrupt a read. A read that is not continued could
/// hold a connection to the store for which the posts wait.
pub(super) struct OutputLines {
    lines: mpsc::Receiver<Result<JobMessage, FleetError>>,
    /// The task ends when this value is dropped.
    _reading: JoinSet<()>,
}

impl OutputLines {
    pub(super) fn of(output: OutputStream) -> Self {
        Self::read(try_unfold(output, async |mut output| {
            Ok(output.next().await?.map(|message| (message, output)))
        }))
    }

    fn read(lines: impl Stream<Item = Result<JobMessage, FleetError>> + Send + 'static) -> Self {
        let (sender, received) = mpsc::channel(LINES_AHEAD);
        let mut reading = JoinSet::new();
        reading.spawn(async move {
            let mut lines = std::pin::pin!(lines);
            while let Some(line) = lines.next().await {
                let is_error = line.is_err();
                // An error means that nobody reads the lines any more.
                if sender.send(line).await.is_err() || is_error {
                    return;
                }
            }
        });
        Self { lines: received, _reading: reading }
    }

    /// Returns the next line; none at the end of the output. The future can be dropped without the loss of a line.
    pub(super) async fn next(&mut self) -> Option<Result<JobMessage, FleetError>> {
        self.lines.recv().await
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;
    use std::sync::atomic::{AtomicUsize, Ordering};
    use std::time::Duration;

    use cowhand_core::output::OutputMessage;
    use futures_util::stream::unfold;
    use tokio::time::{sleep, timeout};

    use super::*;

    fn message(line: u64) -> JobMessage {
        let message = OutputMessage::System {
            subtype: None,
            content: None,
            timestamp: None,
            extra: serde_json::Map::new(),
        };
        let job = "job-2026-01-05-a1b2c3".parse().unwrap();
        JobMessage { job, agent: "coder".parse().unwrap(), line, message }
    }

    /// A read takes longer than the time between two ticks, and a post takes longer than many reads.
    #[tokio::test(start_paused = true)]
    async fn a_read_goes_on_while_nobody_takes_its_line() {
        let finished = Arc::new(AtomicUsize::new(0));
        let counter = Arc::clone(&finished);
        let reads = unfold(1, move |line| {
            let counter = Arc::clone(&counter);
            async move {
                sleep(Duration::from_secs(1)).await;
                counter.fetch_add(1, Ordering::SeqCst);
                Some((Ok(message(line)), line + 1))
            }
        });
        let mut lines = OutputLines::read(reads);
        for expected in 1..=3 {
            // Each tick drops the future that waits for the line.
            let line = loop {
                if let Ok(line) = timeout(Duration::from_millis(300), lines.next()).await {
                    break line;
                }
            };
            assert_eq!(line.unwrap().unwrap().line, expected);
        }
        sleep(Duration::from_secs(10)).await;
        assert!(finished.load(Ordering::SeqCst) >= 10, "the reads stopped during the post");
        sleep(Duration::from_mins(1)).await;
        let read = finished.load(Ordering::SeqCst);
        assert!(read <= 3 + LINES_AHEAD + 1, "{read} lines are read ahead");
        assert_eq!(lines.next().await.unwrap().unwrap().line, 4);
    }
}
