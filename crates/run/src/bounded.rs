//! Output of which only the beginning is kept: what floods costs neither disk nor memory.

use std::fs::File;
use std::io::{self, Read, Write};
use std::sync::mpsc::{Receiver, Sender, channel};
use std::time::Duration;

/// Streams that are being read, each by a thread of its own.
#[derive(Debug)]
pub(super) struct BoundedStreams {
    begun: usize,
    ended: (Sender<io::Result<()>>, Receiver<io::Result<()>>),
}

impl Default for BoundedStreams {
    fn default() -> Self {
        Self { begun: 0, ended: channel() }
    }
}

/// The processes are gone by then, so the streams end; unless one of them gave its end to a stranger.
const STREAM_END_TIMEOUT: Duration = Duration::from_secs(2);

impl BoundedStreams {
    /// Keeps the first `limit` bytes in the file and reads the rest, so that the writer is not held up.
    pub(super) fn keep(&mut self, from: impl Read + Send + 'static, to: File, limit: u64) {
        self.begun += 1;
        let ended = self.ended.0.clone();
        // Nobody is left to tell only if the keeper itself is about to end.
        std::thread::spawn(move || ended.send(copy(from, to, limit)).ok());
    }

    /// Until all that was written is in the files.
    pub(super) fn finish(self) -> io::Result<()> {
        for _ in 0..self.begun {
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
    // Read on in any case: a full disk here must not hold the hook up.
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
