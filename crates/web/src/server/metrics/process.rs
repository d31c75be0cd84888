//! Metrics of this process, with the names that Prometheus' own clients use.

use std::fs;

use super::text::{MetricKind, MetricsText};

/// Writes the metrics, or leaves them out if there is no `/proc`.
pub(super) fn write(page: &mut MetricsText) {
    let status = fs::read_to_string("/proc/self/status").unwrap_or_default();
    let kib = status.lines().find_map(|line| line.strip_prefix("VmRSS:")?.trim().strip_suffix(" kB"));
    if let Some(kib) = kib.and_then(|kib| kib.parse::<u64>().ok()) {
        page.single(MetricKind::Gauge, "process_resident_memory_bytes", "Memory in use.", kib * 1024);
    }
    if let Some(seconds) = cpu_seconds() {
        page.single(MetricKind::Counter, "process_cpu_seconds_total", "Processor time used.", seconds);
    }
    if let Ok(open) = fs::read_dir("/proc/self/fd") {
        page.single(MetricKind::Gauge, "process_open_fds", "Open files and connections.", open.count());
    }
}

/// Returns the sum of user and system time in seconds. `/proc/self/stat` contains both as clock ticks, after the name
/// of the program in brackets.
fn cpu_seconds() -> Option<f64> {
    let stat = fs::read_to_string("/proc/self/stat").ok()?;
    let (_, fields) = stat.rsplit_once(')')?;
    let mut times = fields.split_whitespace().skip(11).map(str::parse::<u32>);
    let ticks = times.next()?.ok()? + times.next()?.ok()?;
    let rate = u32::try_from(rustix::param::clock_ticks_per_second()).ok()?;
    Some(f64::from(ticks) / f64::from(rate))
}
