//! What the figures were measured on.

use std::fs;

use anyhow::Result;
use kube::Client;
use serde::Serialize;

/// The machine and the server, without anything that tells where they are.
#[derive(Clone, Debug, Serialize)]
pub struct Machine {
    /// Processor.
    pub processor: String,
    /// Cores that may be used.
    pub cores: usize,
    /// Memory.
    pub memory_mib: u64,
    /// Kernel.
    pub kernel: String,
    /// Version of the API server.
    pub kubernetes: String,
    /// Load of the last minute before the benchmark: what else ran.
    pub load_before: f64,
}

impl Machine {
    /// Describes this machine.
    pub async fn describe(client: &Client) -> Result<Self> {
        let info = fs::read_to_string("/proc/cpuinfo").unwrap_or_default();
        let memory = fs::read_to_string("/proc/meminfo").unwrap_or_default();
        let load = fs::read_to_string("/proc/loadavg").unwrap_or_default();
        let kernel = fs::read_to_string("/proc/sys/kernel/osrelease").unwrap_or_default();
        let kib =
            field(&memory, "MemTotal").and_then(|text| text.trim_end_matches(" kB").parse::<u64>().ok());
        Ok(Self {
            processor: field(&info, "model name").unwrap_or("unknown").to_owned(),
            cores: std::thread::available_parallelism().map_or(1, usize::from),
            memory_mib: kib.unwrap_or(0) / 1024,
            kernel: kernel.trim().to_owned(),
            kubernetes: client.apiserver_version().await?.git_version,
            load_before: load
                .split(' ')
                .next()
                .and_then(|text| text.parse().ok())
                .unwrap_or(0.0),
        })
    }
}

/// A line `name : value`.
pub fn field<'a>(text: &'a str, name: &str) -> Option<&'a str> {
    let line = text
        .lines()
        .find(|line| line.split(':').next().map(str::trim) == Some(name))?;
    line.split_once(':').map(|(_, value)| value.trim())
}
