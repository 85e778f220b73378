//! What the system tells of a process.

use std::fs;

use anyhow::{Context, Result};

/// The clock of `/proc/PID/stat`, which is the same on every Linux.
const TICKS_PER_SECOND: f64 = 100.0;

/// The value of a line `name : value`.
pub fn field<'a>(text: &'a str, name: &str) -> Option<&'a str> {
    let line = text
        .lines()
        .find(|line| line.split(':').next().map(str::trim) == Some(name))?;
    line.split_once(':').map(|(_, value)| value.trim())
}

/// Seconds of processor time of a process since it started.
pub fn cpu_seconds(pid: u32) -> Result<f64> {
    let stat = fs::read_to_string(format!("/proc/{pid}/stat")).context("the process has ended")?;
    // Behind the name, which may have anything in it: utime and stime are the 12th and 13th.
    let (_, rest) = stat.rsplit_once(')').context("unreadable /proc/PID/stat")?;
    let ticks = |n: usize| {
        rest.split_whitespace()
            .nth(n)
            .and_then(|text| text.parse::<f64>().ok())
    };
    let (user, system) = (ticks(11), ticks(12));
    Ok((user.context("utime")? + system.context("stime")?) / TICKS_PER_SECOND)
}

/// Memory of a process in MiB: `VmRSS`, what it has now, or `VmHWM`, the most that it has had.
pub fn memory_mib(pid: u32, name: &str) -> Result<f64> {
    let status = fs::read_to_string(format!("/proc/{pid}/status")).context("the process has ended")?;
    let text = field(&status, name).with_context(|| format!("no {name}"))?;
    Ok(text.trim_end_matches(" kB").parse::<f64>()? / 1024.0)
}
