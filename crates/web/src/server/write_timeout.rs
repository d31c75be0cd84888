//! Disconnects a client that no longer reads the answer to its request. Without this, such a client would occupy a
//! connection without a time limit.

use std::io;
use std::pin::Pin;
use std::task::{Context, Poll, ready};
use std::time::Duration;

use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::time::{Instant, Sleep, sleep};

/// Longest time for which bytes may wait for the client.
const WRITE_TIMEOUT: Duration = Duration::from_mins(1);

pub(super) struct WriteTimeout<S> {
    stream: S,
    limit: Duration,
    /// Timer that runs while a write waits.
    timer: Option<Pin<Box<Sleep>>>,
}

impl<S> WriteTimeout<S> {
    pub(super) fn new(stream: S) -> Self {
        Self { stream, limit: WRITE_TIMEOUT, timer: None }
    }

    /// Returns the result of a write, or an error if the write has waited too long.
    fn limit_wait<T>(
        &mut self,
        context: &mut Context<'_>,
        result: Poll<io::Result<T>>,
    ) -> Poll<io::Result<T>> {
        if result.is_ready() {
            self.timer = None;
            return result;
        }
        let limit = self.limit;
        let timer = self.timer.get_or_insert_with(|| Box::pin(sleep(limit)));
        if timer.deadline() > Instant::now() {
            let _ = timer.as_mut().poll(context);
            return Poll::Pending;
        }
        Poll::Ready(Err(io::Error::new(io::ErrorKind::TimedOut, "the client does not read the answer")))
    }
}

impl<S: AsyncRead + Unpin> AsyncRead for WriteTimeout<S> {
    fn poll_read(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_read(context, buffer)
    }
}

impl<S: AsyncWrite + Unpin> AsyncWrite for WriteTimeout<S> {
    fn poll_write(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        let written = Pin::new(&mut self.stream).poll_write(context, bytes);
        self.limit_wait(context, written)
    }

    fn poll_flush(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        let flushed = Pin::new(&mut self.stream).poll_flush(context);
        self.limit_wait(context, flushed)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        let shut = Pin::new(&mut self.stream).poll_shutdown(context);
        ready!(self.limit_wait(context, shut))?;
        Poll::Ready(Ok(()))
    }
}

#[cfg(test)]
mod tests {
    use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _, duplex};

    use super::*;

    #[tokio::test(start_paused = true)]
    async fn a_client_that_does_not_read_is_disconnected() {
        let (near, mut far) = duplex(10);
        let mut near = WriteTimeout::new(near);
        near.write_all(b"0123456789").await.unwrap();
        let began = Instant::now();
        let error = near.write_all(b"more").await.unwrap_err();
        assert_eq!((error.kind(), began.elapsed()), (io::ErrorKind::TimedOut, WRITE_TIMEOUT));
        // A slow client that reads something from time to time stays connected.
        let reader = tokio::spawn(async move {
            for _ in 0..20 {
                tokio::time::sleep(WRITE_TIMEOUT / 2).await;
                far.read_exact(&mut [0; 10]).await.unwrap();
            }
        });
        near.timer = None;
        near.write_all(&[b'x'; 150]).await.unwrap();
        reader.abort();
    }
}
