//! CPU time, memory and writes of a process, from `/proc`.

use std::collections::HashMap;
use std::fs;
use std::time::{Duration, Instant};

/// Milliseconds in a tick of `/proc/PID/stat`. Linux has 100 ticks in a second on every machine that cowhand supports.
const TICK_MS: f64 = 10.0;
/// Interval at which [`CpuClock`] looks at the threads. A thread that ends loses what it did since the last look.
const LOOK_EVERY: Duration = Duration::from_millis(250);

/// Returns a number from `status` or `io` of a process, for example `VmRSS`.
pub(crate) fn number(pid: u32, file: &str, name: &str) -> u64 {
    let text = fs::read_to_string(format!("/proc/{pid}/{file}")).unwrap();
    let line = text.lines().find(|line| line.split(':').next() == Some(name)).unwrap();
    line.split_whitespace().nth(1).unwrap().parse().unwrap()
}

/// Returns a size from `status` of a process, in MB.
pub(crate) fn megabytes(pid: u32, name: &str) -> f64 {
    number(pid, "status", name) as f64 * 1024.0 / 1e6
}

/// Resets the peak memory (`VmHWM`) of a process to its present memory.
pub(crate) fn reset_peak(pid: u32) {
    fs::write(format!("/proc/{pid}/clear_refs"), "5").unwrap();
}

/// Returns the fields of `/proc/PID/stat` after the name of the program.
fn stat(pid: u32) -> Option<Vec<u64>> {
    let text = fs::read_to_string(format!("/proc/{pid}/stat")).ok()?;
    let fields = text[text.rfind(')')? + 2..].split_whitespace();
    Some(fields.map(|field| field.parse().unwrap_or_default()).collect())
}

/// Returns the CPU time of a process without its children, in milliseconds.
pub(crate) fn own_cpu(pid: u32) -> f64 {
    let fields = stat(pid).unwrap();
    (fields[11] + fields[12]) as f64 * TICK_MS
}

/// Returns the CPU time of the children that a process has waited for, in milliseconds.
pub(crate) fn reaped_cpu(pid: u32) -> f64 {
    let fields = stat(pid).unwrap();
    (fields[13] + fields[14]) as f64 * TICK_MS
}

/// Returns the CPU time of a process, of its living descendants, and of all that these have waited for.
pub(crate) fn tree_cpu(pid: u32) -> f64 {
    let Some(fields) = stat(pid) else { return 0.0 };
    let own = fields[11..=14].iter().sum::<u64>() as f64 * TICK_MS;
    own + children(pid).into_iter().map(tree_cpu).sum::<f64>()
}

fn children(pid: u32) -> Vec<u32> {
    let of_thread = |thread: u32| {
        let text = fs::read_to_string(format!("/proc/{pid}/task/{thread}/children")).unwrap_or_default();
        text.split_whitespace().filter_map(|child| child.parse().ok()).collect::<Vec<u32>>()
    };
    threads(pid).into_iter().flat_map(of_thread).collect()
}

fn threads(pid: u32) -> Vec<u32> {
    let entries = fs::read_dir(format!("/proc/{pid}/task")).into_iter().flatten().flatten();
    entries.filter_map(|entry| entry.file_name().to_str()?.parse().ok()).collect()
}

/// CPU time of one process since a moment, in nanoseconds: the sum over its threads. The ticks of `/proc/PID/stat` are
/// too coarse for single firings.
pub(crate) struct CpuClock {
    pid: u32,
    ticks: f64,
    /// First and last known time of each thread, also of threads that have ended.
    threads: HashMap<u32, (u64, u64)>,
}

impl CpuClock {
    pub(crate) fn start(pid: u32) -> Self {
        let threads = thread_times(pid).into_iter().map(|(thread, time)| (thread, (time, time))).collect();
        Self { pid, ticks: own_cpu(pid), threads }
    }

    /// Waits, and looks at the threads meanwhile.
    pub(crate) fn wait(&mut self, time: Duration) {
        let end = Instant::now() + time;
        while Instant::now() < end {
            std::thread::sleep(LOOK_EVERY.min(end.saturating_duration_since(Instant::now())));
            self.look();
        }
    }

    /// Looks at the threads, so that the time of threads that end soon is known.
    pub(crate) fn look(&mut self) {
        for (thread, time) in thread_times(self.pid) {
            self.threads.entry(thread).or_insert((0, time)).1 = time;
        }
    }

    /// Returns the CPU time since the start, in milliseconds.
    pub(crate) fn milliseconds(&mut self) -> f64 {
        self.look();
        let spent = |(first, last): &(u64, u64)| last.saturating_sub(*first);
        let exact = self.threads.values().map(spent).sum::<u64>() as f64 / 1e6;
        // The ticks miss nothing but are coarse: user and system time each lose up to one tick at both ends.
        let coarse = own_cpu(self.pid) - self.ticks - 4.0 * TICK_MS;
        exact.max(coarse)
    }
}

fn thread_times(pid: u32) -> Vec<(u32, u64)> {
    let time = |thread: u32| {
        let text = fs::read_to_string(format!("/proc/{pid}/task/{thread}/schedstat")).ok()?;
        Some((thread, text.split_whitespace().next()?.parse().ok()?))
    };
    threads(pid).into_iter().filter_map(time).collect()
}
