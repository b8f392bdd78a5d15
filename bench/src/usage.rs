//! What a process uses, from /proc.

use std::time::Duration;

/// Clock ticks a second, as Linux reports them to programs.
const TICKS: u64 = 100;

/// User and system time of a process so far.
pub(crate) fn cpu(process: &str) -> Duration {
    times(process, 11)
}

/// The same of the children of a process that ended and were waited for.
pub(crate) fn waited_cpu(process: &str) -> Duration {
    times(process, 13)
}

/// Two of the fields after the name.
fn times(process: &str, first: usize) -> Duration {
    let stat = std::fs::read_to_string(format!("/proc/{process}/stat")).unwrap_or_default();
    let after_name = stat.rsplit_once(')').map_or("", |(_, rest)| rest);
    let ticks: u64 =
        after_name.split_whitespace().skip(first).take(2).filter_map(|field| field.parse::<u64>().ok()).sum();
    Duration::from_millis(ticks * 1_000 / TICKS)
}

/// Resident memory of a process at its peak, in MB.
pub(crate) fn peak_rss_mb(process: &str) -> f64 {
    let status = std::fs::read_to_string(format!("/proc/{process}/status")).unwrap_or_default();
    let line = status.lines().find_map(|line| line.strip_prefix("VmHWM:"));
    let kib = line.and_then(|line| line.split_whitespace().next()).and_then(|kib| kib.parse::<f64>().ok());
    kib.unwrap_or(0.0) / 1_024.0
}
