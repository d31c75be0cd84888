//! Reading a job's JSONL in parts: the file may have any size, and may grow while it is read.

use std::fs::File;
use std::io::{self, BufRead, BufReader, Read, Seek, SeekFrom};
use std::path::{Path, PathBuf};

use cowhand_core::output::{FinalOutput, OutputMessage};

use crate::tail::MAX_MESSAGE_BYTES;

/// A file and the position of the reader.
#[derive(Debug)]
pub struct Jsonl {
    path: PathBuf,
    offset: u64,
    /// Number of lines that are still to be skipped.
    skip: u64,
}

/// Size of a read.
const READ_CHUNK_BYTES: u64 = 256 << 10;
/// Size of a second read, if the first read contains no whole line. It is larger than any message.
const LONG_READ_BYTES: u64 = 2 * MAX_MESSAGE_BYTES as u64;

/// Number of bytes at the end of a file that usually contain the final message.
const TAIL_BYTES: u64 = 4 << 20;

impl Jsonl {
    pub fn after(path: PathBuf, lines: u64) -> Self {
        Self { path, offset: 0, skip: lines }
    }

    /// Returns the next whole lines; empty if there are none yet, or no file.
    pub fn next_lines(&mut self) -> io::Result<Vec<u8>> {
        let mut part = self.read()?;
        while self.skip > 0 && !part.is_empty() {
            self.skip_lines(&mut part);
            if part.is_empty() {
                part = self.read()?;
            }
        }
        Ok(part)
    }

    fn skip_lines(&mut self, part: &mut Vec<u8>) {
        let mut passed = 0;
        for end in memchr::memchr_iter(b'\n', part) {
            if self.skip == 0 {
                break;
            }
            passed = end + 1;
            self.skip -= 1;
        }
        if self.skip > 0 {
            passed = part.len();
        }
        part.drain(..passed);
    }

    fn read(&mut self) -> io::Result<Vec<u8>> {
        let Some(mut file) = open(&self.path)? else { return Ok(Vec::new()) };
        let mut part = Vec::new();
        for longest in [READ_CHUNK_BYTES, LONG_READ_BYTES] {
            part.clear();
            file.seek(SeekFrom::Start(self.offset))?;
            let read = (&mut file).take(longest).read_to_end(&mut part)?;
            if let Some(end) = memchr::memrchr(b'\n', &part) {
                part.truncate(end + 1);
                break;
            }
            if (read as u64) < longest {
                part.clear();
                break;
            }
        }
        self.offset += part.len() as u64;
        Ok(part)
    }
}

/// Returns the final output of a job; `None` if the job has no output, or if its output is not on this machine.
pub fn final_output(path: &Path) -> io::Result<Option<String>> {
    let Some(file) = open(path)? else { return Ok(None) };
    let length = file.metadata()?.len();
    let output = read_output(file, length.saturating_sub(TAIL_BYTES))?;
    if output.has_agent_text() || length <= TAIL_BYTES {
        return Ok(output.into_text());
    }
    let Some(file) = open(path)? else { return Ok(None) };
    read_output(file, 0).map(FinalOutput::into_text)
}

fn read_output(mut file: File, from: u64) -> io::Result<FinalOutput> {
    file.seek(SeekFrom::Start(from))?;
    let (mut lines, mut line, mut output) = (BufReader::new(file), Vec::new(), FinalOutput::default());
    // The first line may be incomplete; then it is not a message.
    while (&mut lines).take(LONG_READ_BYTES).read_until(b'\n', &mut line)? > 0 {
        if let Ok(Some(message)) = OutputMessage::read_line(&String::from_utf8_lossy(&line)) {
            output.add(message);
        }
        line.clear();
    }
    Ok(output)
}

fn open(path: &Path) -> io::Result<Option<File>> {
    match File::open(path) {
        // The folder may have been replaced by a file.
        Err(error) if matches!(error.kind(), io::ErrorKind::NotFound | io::ErrorKind::NotADirectory) => {
            Ok(None)
        }
        file => file.map(Some),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn assistant_line(text: &str) -> String {
        format!("{{\"type\":\"assistant\",\"content\":\"{text}\"}}\n")
    }

    #[test]
    fn parts_are_whole_lines_after_the_given_line() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("job.jsonl");
        let mut early = Jsonl::after(path.clone(), 0);
        assert_eq!(early.next_lines().unwrap(), b"", "no file yet");
        let lines: Vec<String> = (0..50_000).map(|n| assistant_line(&n.to_string())).collect();
        let long = assistant_line(&"x".repeat(1 << 20));
        std::fs::write(&path, format!("{}{long}half a li", lines.concat())).unwrap();
        for after in [0_u32, 1, 7_000, 49_999, 50_000, 50_001, 60_000] {
            let (mut jsonl, mut read) = (Jsonl::after(path.clone(), after.into()), Vec::new());
            loop {
                let part = jsonl.next_lines().unwrap();
                assert!(part.len() as u64 <= LONG_READ_BYTES && part.last().is_none_or(|end| *end == b'\n'));
                if part.is_empty() {
                    break;
                }
                read.extend(part);
            }
            let mut expected = lines.get(usize::try_from(after).unwrap()..).unwrap_or_default().concat();
            if after <= 50_000 {
                expected.push_str(&long);
            }
            assert!(read == expected.as_bytes(), "after {after}");
        }
    }

    #[test]
    fn the_final_output_is_found_anywhere_in_the_file() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("job.jsonl");
        let found = |text: &str| {
            std::fs::write(&path, text).unwrap();
            final_output(&path).unwrap()
        };
        assert_eq!(final_output(&folder.path().join("gone")).unwrap(), None);
        assert_eq!(found(""), None);
        assert_eq!(
            found(&(assistant_line("first") + &assistant_line("last") + "{\"type\":\"assi")),
            Some("last".to_owned())
        );
        let answers = "{\"type\":\"tool_result\",\"result\":\"raw\"}\n".repeat(200_000);
        assert_eq!(found(&(answers.clone() + &assistant_line("done"))), Some("done".to_owned()));
        assert_eq!(
            found(&(assistant_line("early") + &answers)),
            Some("early".to_owned()),
            "text of the agent is found far from the end"
        );
        assert_eq!(found(&answers), Some("raw".to_owned()));
    }
}
