//! The machine and the program of a run.

use std::process::Command;

use serde_json::{Value, json};

use super::Bench;

pub(crate) fn describe(bench: &Bench) -> Value {
    let cores = std::thread::available_parallelism().map_or(1, usize::from);
    json!({
        "processor": from_file("/proc/cpuinfo", "model name"),
        "cores": cores,
        "memory": from_file("/proc/meminfo", "MemTotal"),
        "kernel": std::fs::read_to_string("/proc/sys/kernel/osrelease").unwrap_or_default().trim(),
        "load_at_start": std::fs::read_to_string("/proc/loadavg").unwrap_or_default().trim(),
        "program": version(bench),
    })
}

fn from_file(file: &str, key: &str) -> String {
    let text = std::fs::read_to_string(file).unwrap_or_default();
    let line = text.lines().find(|line| line.starts_with(key)).unwrap_or_default();
    line.split_once(':').map_or("", |(_, value)| value.trim()).to_owned()
}

fn version(bench: &Bench) -> String {
    let output = Command::new(&bench.program).arg("--version").output();
    output.map(|output| String::from_utf8_lossy(&output.stdout).trim().to_owned()).unwrap_or_default()
}
