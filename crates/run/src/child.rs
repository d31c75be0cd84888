//! A helper program with limits on its time and kept output. It is ended with its process group or, under a minder,
//! with all its descendants.

use std::io::Read;
use std::os::unix::process::CommandExt;
use std::process::{Child, Command, ExitStatus, Stdio};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{self, Receiver};
use std::time::{Duration, Instant};

use rustix::process::{Pid, Signal, kill_process_group};

use super::minder::{Line, Minded};

/// Interval of checks whether the program has ended.
const CHILD_POLL_INTERVAL: Duration = Duration::from_millis(5);
/// Timeout for remaining output of processes that hold its pipes after it has ended.
const OUTPUT_END_TIMEOUT: Duration = Duration::from_millis(500);
/// Maximum size of the kept end of its stderr and stdout.
const MAX_STDERR_BYTES: usize = 4 << 10;

pub(crate) struct Ran {
    pub status: ExitStatus,
    pub stdout: Vec<u8>,
    /// Set if there was more output.
    pub cut: bool,
    /// End of its stderr.
    pub complaint: String,
    /// End of its stdout.
    pub last_words: String,
}

pub(crate) enum WhyNot {
    CannotStart(std::io::Error),
    TookTooLong(Duration),
    /// The caller asked for its end.
    Stopped,
}

/// Limits on the time and kept stdout, and a flag that asks for the end.
pub(crate) struct Bounds<'a> {
    pub patience: Option<Duration>,
    pub most: usize,
    pub stop: &'a AtomicBool,
}

/// Runs a program that ends soon and starts nothing that outlives it.
pub(crate) fn run(command: &mut Command, bounds: &Bounds<'_>) -> Result<Ran, WhyNot> {
    run_by(command.stdin(Stdio::null()), None, bounds)
}

/// Runs a program that may do anything.
pub(crate) fn run_minded(minded: Minded, bounds: &Bounds<'_>) -> Result<Ran, WhyNot> {
    let Minded { mut command, line } = minded;
    run_by(&mut command, Some(line), bounds)
}

fn run_by(command: &mut Command, line: Option<Line>, bounds: &Bounds<'_>) -> Result<Ran, WhyNot> {
    command.stdout(Stdio::piped()).stderr(Stdio::piped()).process_group(0);
    let mut child = command.spawn().map_err(WhyNot::CannotStart)?;
    let stdout = child.stdout.take().map(|pipe| both_ends(pipe, bounds.most));
    let stderr = child.stderr.take().map(end);
    let ended = wait(&mut child, bounds);
    let status = match (ended, line) {
        (Ok(_), Some(line)) => line.ended().map_err(WhyNot::CannotStart)?,
        (Ok(status), None) => {
            // Whatever it left behind is ended with it.
            end_group(&child);
            status
        }
        (Err(why), line) => {
            // A minder ends everything when its connection is closed.
            if line.is_none() {
                end_group(&child);
            }
            drop(line);
            child.wait().map_err(WhyNot::CannotStart)?;
            return Err(why);
        }
    };
    let told = stdout.and_then(|said| said.recv_timeout(OUTPUT_END_TIMEOUT).ok()).unwrap_or_default();
    let complaint = stderr.and_then(|said| said.recv_timeout(OUTPUT_END_TIMEOUT).ok()).unwrap_or_default();
    let (complaint, last_words) = (complaint.text(), told.end.text());
    Ok(Ran { status, stdout: told.beginning, cut: told.cut, complaint, last_words })
}

fn wait(child: &mut Child, bounds: &Bounds<'_>) -> Result<ExitStatus, WhyNot> {
    let begin = Instant::now();
    loop {
        if let Some(status) = child.try_wait().map_err(WhyNot::CannotStart)? {
            return Ok(status);
        }
        if bounds.stop.load(Ordering::Relaxed) {
            return Err(WhyNot::Stopped);
        }
        if let Some(patience) = bounds.patience.filter(|patience| begin.elapsed() >= *patience) {
            return Err(WhyNot::TookTooLong(patience));
        }
        std::thread::sleep(CHILD_POLL_INTERVAL);
    }
}

fn end_group(child: &Child) {
    let group = i32::try_from(child.id()).ok().and_then(Pid::from_raw);
    // An error means that the group is empty.
    let _ = group.map(|group| kill_process_group(group, Signal::KILL));
}

/// Kept parts of stdout.
#[derive(Default)]
struct KeptOutput {
    beginning: Vec<u8>,
    /// Set if there was more output.
    cut: bool,
    end: LastBytes,
}

/// Keeps the first and last bytes of a pipe, and discards the rest, so that the writer is not blocked.
fn both_ends(mut pipe: impl Read + Send + 'static, most: usize) -> Receiver<KeptOutput> {
    let (tell, told) = mpsc::channel();
    std::thread::spawn(move || {
        let mut kept = KeptOutput::default();
        read(&mut pipe, |bytes| {
            let room = most - kept.beginning.len();
            kept.cut |= bytes.len() > room;
            kept.beginning.extend(&bytes[..bytes.len().min(room)]);
            kept.end.add(bytes);
        });
        // The receiver may have been dropped.
        let _ = tell.send(kept);
    });
    told
}

#[derive(Default)]
struct LastBytes {
    bytes: Vec<u8>,
    /// Set if there was more output before.
    cut: bool,
}

impl LastBytes {
    fn add(&mut self, bytes: &[u8]) {
        self.bytes.extend(bytes);
        let excess = self.bytes.len().saturating_sub(MAX_STDERR_BYTES);
        self.bytes.drain(..excess);
        self.cut |= excess > 0;
    }

    /// Returns the text without the rest of a line whose beginning is missing: it may be part of a secret and would not
    /// be recognised.
    fn text(&self) -> String {
        let end = self.bytes.iter().position(|byte| *byte == b'\n').filter(|_| self.cut);
        String::from_utf8_lossy(&self.bytes[end.unwrap_or_default()..]).trim().to_owned()
    }
}

fn end(mut pipe: impl Read + Send + 'static) -> Receiver<LastBytes> {
    let (tell, told) = mpsc::channel();
    std::thread::spawn(move || {
        let mut kept = LastBytes::default();
        read(&mut pipe, |bytes| kept.add(bytes));
        let _ = tell.send(kept);
    });
    told
}

fn read(pipe: &mut impl Read, mut take: impl FnMut(&[u8])) {
    let mut buffer = vec![0; 64 << 10];
    loop {
        match pipe.read(&mut buffer) {
            Ok(0) => return,
            Ok(count) => take(&buffer[..count]),
            Err(error) if error.kind() == std::io::ErrorKind::Interrupted => {}
            Err(_) => return,
        }
    }
}
