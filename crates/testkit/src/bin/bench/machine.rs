//! The machine of a benchmark.

use std::fs;

use anyhow::Result;
use kube::Client;
use serde::Serialize;
use trainyard_testkit::cluster::Cluster;
use trainyard_testkit::proc::{cpu_seconds, field};

/// The machine and the server, without anything that identifies them.
#[derive(Clone, Debug, Serialize)]
pub struct Machine {
    pub processor: String,
    /// Cores that may be used.
    pub cores: usize,
    pub memory_mib: u64,
    pub kernel: String,
    /// Version of the API server.
    pub kubernetes: String,
    /// The load of the last minute before the benchmark.
    pub load_before: f64,
}

impl Machine {
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

/// The processes of the server and of the benchmark.
#[derive(Clone, Debug, Default)]
pub struct ClusterProcesses {
    server: Vec<u32>,
}

/// Seconds of processor time.
#[derive(Clone, Copy, Debug, Default)]
pub struct CpuTime {
    /// Of the API server and etcd.
    pub server: f64,
    /// Of the benchmark.
    pub bench: f64,
}

impl ClusterProcesses {
    /// Finds the processes of the test cluster; none if it is another cluster.
    pub fn find() -> Self {
        let cluster = Cluster::from_env();
        let pids = cluster
            .iter()
            .flat_map(|cluster| ["kube-apiserver", "etcd"].map(|name| cluster.pid(name).ok()));
        Self {
            server: pids.flatten().collect(),
        }
    }

    pub fn spent(&self) -> CpuTime {
        CpuTime {
            server: self.server.iter().filter_map(|pid| cpu_seconds(*pid).ok()).sum(),
            bench: cpu_seconds(std::process::id()).unwrap_or(0.0),
        }
    }
}

impl std::ops::Sub for CpuTime {
    type Output = Self;

    fn sub(self, before: Self) -> Self {
        Self {
            server: self.server - before.server,
            bench: self.bench - before.bench,
        }
    }
}
