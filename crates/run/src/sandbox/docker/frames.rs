//! The output of a container in the engine's format: each frame has a header of eight bytes with the stream and the
//! length, and then the content.

use std::io::{self, Write};

use tokio::io::{AsyncRead, AsyncReadExt};

/// Maximum part of a frame that is in memory at a time.
const CHUNK_BYTES: usize = 64 * 1024;

#[derive(Debug, thiserror::Error)]
pub(super) enum FrameError {
    #[error("it ended in the middle")]
    Cut,
    #[error("it is not made of frames")]
    NoFrame,
    #[error("{0}")]
    Read(io::Error),
    #[error("it cannot be written: {0}")]
    Write(io::Error),
}

/// Copies frames until the stream ends, which is allowed only between two frames.
pub(super) async fn copy(
    mut stream: impl AsyncRead + Unpin,
    mut stdout: impl Write,
    mut stderr: impl Write,
) -> Result<(), FrameError> {
    let mut chunk = vec![0; CHUNK_BYTES];
    while let Some((kind, mut left)) = head(&mut stream).await? {
        while left > 0 {
            let most = left.min(CHUNK_BYTES);
            let count = stream.read(&mut chunk[..most]).await.map_err(FrameError::Read)?;
            if count == 0 {
                return Err(FrameError::Cut);
            }
            let written = match kind {
                Kind::Stdout => stdout.write_all(&chunk[..count]),
                Kind::Stderr => stderr.write_all(&chunk[..count]),
            };
            written.map_err(FrameError::Write)?;
            left -= count;
        }
    }
    Ok(())
}

enum Kind {
    Stdout,
    Stderr,
}

async fn head(stream: &mut (impl AsyncRead + Unpin)) -> Result<Option<(Kind, usize)>, FrameError> {
    let mut head = [0; 8];
    let mut filled = 0;
    while filled < head.len() {
        match stream.read(&mut head[filled..]).await.map_err(FrameError::Read)? {
            0 if filled == 0 => return Ok(None),
            0 => return Err(FrameError::Cut),
            count => filled += count,
        }
    }
    let [kind, 0, 0, 0, length @ ..] = head else { return Err(FrameError::NoFrame) };
    let kind = match kind {
        0 | 1 => Kind::Stdout,
        2 => Kind::Stderr,
        _ => return Err(FrameError::NoFrame),
    };
    Ok(Some((kind, usize::try_from(u32::from_be_bytes(length)).map_err(|_| FrameError::NoFrame)?)))
}

#[cfg(test)]
mod tests {
    use super::*;
    use tokio::io::AsyncWriteExt;

    fn frame(kind: u8, text: &[u8]) -> Vec<u8> {
        let length = u32::try_from(text.len()).unwrap().to_be_bytes();
        [&[kind, 0, 0, 0], &length[..], text].concat()
    }

    /// Returns the output for bytes that arrive in pieces of this size.
    async fn copied(bytes: &[u8], piece: usize) -> (Result<(), FrameError>, Vec<u8>, Vec<u8>) {
        let (ours, mut theirs) = tokio::io::duplex(7);
        let (mut out, mut err) = (Vec::new(), Vec::new());
        let send = async {
            for piece in bytes.chunks(piece) {
                // The reader stops after an error.
                if theirs.write_all(piece).await.is_err() {
                    break;
                }
            }
            drop(theirs);
        };
        let (done, ()) = tokio::join!(copy(ours, &mut out, &mut err), send);
        (done, out, err)
    }

    #[tokio::test]
    async fn frames_are_read_in_pieces_of_any_size() {
        let long = vec![b'x'; CHUNK_BYTES + 3];
        let frames = [frame(1, b"one "), frame(2, b"bad"), frame(1, b""), frame(1, b"two "), frame(1, &long)];
        let bytes = frames.concat();
        for piece in [1, 2, 3, 8, 9, 11, bytes.len()] {
            let (done, out, err) = copied(&bytes, piece).await;
            assert!(done.is_ok(), "{piece}: {done:?}");
            assert_eq!(
                (out, err),
                ([b"one two ".to_vec(), long.clone()].concat(), b"bad".to_vec()),
                "{piece}"
            );
        }
    }

    #[tokio::test]
    async fn incomplete_and_invalid_frames_are_errors() {
        let whole = frame(1, b"all");
        for length in 1..whole.len() {
            let (done, out, _) = copied(&whole[..length], 5).await;
            assert!(matches!(done, Err(FrameError::Cut)), "{length}: {done:?}");
            // Content before the error is not lost.
            assert_eq!(out, whole[8.min(length)..length], "{length}");
        }
        // Output of a terminal has no frames. The other two headers have an unknown stream and a byte that is not zero.
        for bytes in [&b"plain words"[..], &[3, 0, 0, 0, 0, 0, 0, 1, 0], &[1, 0, 1, 0, 0, 0, 0, 0]] {
            let (done, out, err) = copied(bytes, 3).await;
            assert!(matches!(done, Err(FrameError::NoFrame)), "{bytes:?}: {done:?}");
            assert!(out.is_empty() && err.is_empty());
        }
        let (done, out, _) = copied(&[&[1, 0, 0, 0, 255, 255, 255, 255][..], b"little"].concat(), 4).await;
        assert!(matches!(done, Err(FrameError::Cut)), "{done:?}");
        assert_eq!(out, b"little");
    }
}
