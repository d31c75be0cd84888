//! The output of a shell hook. Only its beginning is kept, so that a hook that prints without end does not fill the
//! disk or the memory.

use std::fs::File;
use std::io::{self, Read, Write};
use std::sync::mpsc::{Receiver, Sender, channel};
use std::time::Duration;

/// Streams that are read, each by its own thread.
#[derive(Debug)]
pub(super) struct BoundedStreams {
    stream_count: usize,
    ended: (Sender<io::Result<()>>, Receiver<io::Result<()>>),
}

impl Default for BoundedStreams {
    fn default() -> Self {
        Self { stream_count: 0, ended: channel() }
    }
}

/// Timeout for the end of each stream. The processes of the hook have ended, but another process may hold a stream
/// open.
const STREAM_END_TIMEOUT: Duration = Duration::from_secs(2);

impl BoundedStreams {
    /// Writes the first `limit` bytes to the file and discards the rest, so that the writer is not blocked.
    pub(super) fn keep(&mut self, from: impl Read + Send + 'static, to: File, limit: u64) {
        self.stream_count += 1;
        let ended = self.ended.0.clone();
        // Sending fails only if the keeper is about to exit.
        std::thread::spawn(move || ended.send(copy(from, to, limit)).ok());
    }

    /// Waits until all streams have ended, at most [`STREAM_END_TIMEOUT`] for each. Returns the first error of a copy.
    pub(super) fn finish(self) -> io::Result<()> {
        for _ in 0..self.stream_count {
            match self.ended.1.recv_timeout(STREAM_END_TIMEOUT) {
                Ok(copied) => copied?,
                Err(_) => return Ok(()),
            }
        }
        Ok(())
    }
}

fn copy(mut from: impl Read, mut to: File, limit: u64) -> io::Result<()> {
    let kept = io::copy(&mut from.by_ref().take(limit), &mut to);
    // Continue to read in any case: a full disk must not block the hook.
    let cut = io::copy(&mut from, &mut io::sink())?;
    kept?;
    if cut > 0 {
        write!(to, "\n[… {cut} bytes cut …]\n")?;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs;

    #[test]
    fn the_beginning_is_kept_and_the_rest_is_counted() {
        let folder = tempfile::tempdir().unwrap();
        let kept = |text: &'static [u8], limit| {
            let path = folder.path().join("out");
            let mut streams = BoundedStreams::default();
            streams.keep(text, File::create(&path).unwrap(), limit);
            streams.finish().unwrap();
            fs::read_to_string(path).unwrap()
        };
        assert_eq!(kept(b"all of it", 9), "all of it");
        assert_eq!(kept(b"all of it", 3), "all\n[… 6 bytes cut …]\n");
        assert_eq!(kept(b"", 3), "");
    }
}
