//! The operator as a process of its own, and what it costs.

use std::collections::BTreeMap;
use std::ffi::OsStr;
use std::fs;
use std::net::{Ipv4Addr, SocketAddr, TcpListener};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail, ensure};
use rustix::process::{Pid, Signal, kill_process};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use trainyard_eventually::{LOOK_INTERVAL, Wait};

use crate::proc::{cpu_seconds, memory_mib};

/// How the operator is started.
#[derive(Clone, Debug)]
pub struct Program {
    /// The binary.
    pub binary: PathBuf,
    /// Where its log goes.
    pub log: PathBuf,
}

/// A running operator. It is killed when dropped.
pub struct Operator {
    child: Child,
    http: SocketAddr,
    log: PathBuf,
}

/// Requests by verb and kind.
pub type Requests = BTreeMap<(String, String), u64>;

/// The metrics of an operator.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct OperatorMetrics {
    /// Requests by verb and kind.
    pub requests: Requests,
    /// Failed requests, by verb, kind and code.
    pub failed: BTreeMap<(String, String, String), u64>,
    /// Reconciles that have ended.
    pub reconciles: u64,
    /// Jobs that wait.
    pub queue: u64,
    /// Whether it leads.
    pub leader: bool,
}

impl OperatorMetrics {
    /// Requests that match.
    pub fn count(&self, matching: impl Fn(&str, &str) -> bool) -> u64 {
        count(&self.requests, matching)
    }

    /// Writes but for events and leases.
    pub fn writes(&self) -> u64 {
        writes(&self.requests)
    }

    /// Events that were written.
    pub fn events(&self) -> u64 {
        events(&self.requests)
    }

    /// Requests other than watches and those for the lease.
    pub fn of_jobs(&self) -> Requests {
        let mut requests = self.requests.clone();
        requests.retain(|(verb, kind), _| verb != "watch" && kind != "Lease");
        requests
    }

    /// The number of these.
    pub fn other_than_watches_and_leases(&self) -> u64 {
        self.of_jobs().values().sum()
    }
}

/// Writes but for events and leases.
pub fn writes(requests: &Requests) -> u64 {
    count(requests, |verb, kind| {
        is_write(verb) && kind != "Event" && kind != "Lease"
    })
}

/// Events that were written.
pub fn events(requests: &Requests) -> u64 {
    count(requests, |verb, kind| is_write(verb) && kind == "Event")
}

fn count(requests: &Requests, matching: impl Fn(&str, &str) -> bool) -> u64 {
    let matched = requests.iter().filter(|((verb, kind), _)| matching(verb, kind));
    matched.map(|(_, count)| count).sum()
}

fn is_write(verb: &str) -> bool {
    !matches!(verb, "get" | "list" | "watch")
}

impl Program {
    /// Starts an operator with its default settings and waits until it leads.
    pub async fn start(&self) -> Result<Operator> {
        self.start_with::<&str>(&[]).await
    }

    /// The same, with further arguments.
    pub async fn start_with<S: AsRef<OsStr>>(&self, more: &[S]) -> Result<Operator> {
        let mut operator = self.spawn(more)?;
        operator.wait_ready(true).await?;
        Ok(operator)
    }

    /// Starts an operator and waits until it is ready, whether or not it leads.
    pub async fn start_replica<S: AsRef<OsStr>>(&self, more: &[S]) -> Result<Operator> {
        let mut operator = self.spawn(more)?;
        operator.wait_ready(false).await?;
        Ok(operator)
    }

    fn spawn<S: AsRef<OsStr>>(&self, more: &[S]) -> Result<Operator> {
        let port = TcpListener::bind((Ipv4Addr::LOCALHOST, 0))?.local_addr()?.port();
        let http = SocketAddr::from((Ipv4Addr::LOCALHOST, port));
        let log = fs::File::options().create(true).append(true).open(&self.log)?;
        let child = Command::new(&self.binary)
            .arg("operator")
            .args(["--http-address", &http.to_string()])
            .args(more)
            .stdin(Stdio::null())
            .stdout(Stdio::from(log.try_clone()?))
            .stderr(Stdio::from(log))
            .spawn()
            .with_context(|| format!("{} can't be started", self.binary.display()))?;
        Ok(Operator {
            child,
            http,
            log: self.log.clone(),
        })
    }
}

impl Operator {
    /// Grows while it does something.
    fn log_length(&self) -> String {
        fs::metadata(&self.log).map_or(0, |log| log.len()).to_string()
    }

    /// Waits until it is ready, and leads if it is to.
    async fn wait_ready(&mut self, leading: bool) -> Result<()> {
        let mut wait = Wait::new("the operator is ready and leads; see its log");
        loop {
            if let Ok(metrics) = self.metrics().await
                && (metrics.leader || !leading)
                && self.get("/readyz").await.is_ok()
            {
                return Ok(());
            }
            if let Some(status) = self.child.try_wait()? {
                bail!("the operator has ended: {status}; see its log");
            }
            if !wait.has_patience(self.log_length()) {
                bail!("{wait}");
            }
            tokio::time::sleep(LOOK_INTERVAL).await;
        }
    }

    /// Its metrics.
    pub async fn metrics(&self) -> Result<OperatorMetrics> {
        Ok(parse(&self.get("/metrics").await?))
    }

    async fn get(&self, path: &str) -> Result<String> {
        let mut stream = tokio::net::TcpStream::connect(self.http).await?;
        let request = format!("GET {path} HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n");
        stream.write_all(request.as_bytes()).await?;
        let mut answer = String::new();
        stream.read_to_string(&mut answer).await?;
        let (head, body) = answer.split_once("\r\n\r\n").context("no answer")?;
        if !head.starts_with("HTTP/1.1 200") {
            bail!("{path}: {}", head.lines().next().unwrap_or_default());
        }
        Ok(body.to_owned())
    }

    /// Waits until it has made no request for a second and its queue is empty.
    pub async fn wait_until_idle(&self, limit: Duration) -> Result<OperatorMetrics> {
        let begun = Instant::now();
        let mut metrics = self.metrics().await?;
        let mut since = Instant::now();
        loop {
            if since.elapsed() > Duration::from_secs(1) && metrics.queue == 0 {
                return Ok(metrics);
            }
            if begun.elapsed() > limit {
                bail!("the operator does not come to rest: {metrics:?}");
            }
            tokio::time::sleep(Duration::from_millis(100)).await;
            let now = self.metrics().await?;
            let quiet = now.other_than_watches_and_leases() == metrics.other_than_watches_and_leases();
            if !quiet || now.reconciles != metrics.reconciles {
                since = Instant::now();
            }
            metrics = now;
        }
    }

    /// Seconds of processor time since it started.
    pub fn cpu(&self) -> Result<f64> {
        cpu_seconds(self.child.id()).context("see the operator's log")
    }

    /// Seconds of processor time of the threads that live, to the nanosecond.
    pub fn cpu_of_threads(&self) -> Result<f64> {
        let directory = Path::new("/proc").join(self.child.id().to_string()).join("task");
        let mut nanoseconds = 0.0;
        for thread in fs::read_dir(directory)? {
            let text = fs::read_to_string(thread?.path().join("schedstat"))?;
            let first = text.split(' ').next().unwrap_or_default();
            nanoseconds += first.parse::<f64>().context("unreadable schedstat")?;
        }
        Ok(nanoseconds / 1e9)
    }

    /// Its greatest memory so far, in MiB.
    pub fn peak_memory(&self) -> Result<f64> {
        self.memory("VmHWM")
    }

    /// Its memory now, in MiB.
    pub fn current_memory(&self) -> Result<f64> {
        self.memory("VmRSS")
    }

    fn memory(&self, name: &str) -> Result<f64> {
        memory_mib(self.child.id(), name).context("see the operator's log")
    }

    /// Asks it to end, and waits until it has.
    pub async fn stop(self) -> Result<()> {
        self.terminate()?;
        self.wait_exit().await
    }

    /// Asks it to end.
    pub fn terminate(&self) -> Result<()> {
        let pid = i32::try_from(self.child.id()).ok().and_then(Pid::from_raw);
        Ok(kill_process(pid.context("no process")?, Signal::TERM)?)
    }

    /// Waits until it has ended, well, after it was asked to.
    pub async fn wait_exit(mut self) -> Result<()> {
        let mut wait = Wait::new("the operator ends when asked to; see its log");
        loop {
            if let Some(status) = self.child.try_wait()? {
                ensure!(
                    status.success(),
                    "the operator has ended with {status}; see its log"
                );
                return Ok(());
            }
            if !wait.has_patience(self.log_length()) {
                bail!("{wait}");
            }
            tokio::time::sleep(LOOK_INTERVAL).await;
        }
    }

    /// Ends it without asking.
    pub fn kill(mut self) -> Result<()> {
        self.child.kill()?;
        self.child.wait()?;
        Ok(())
    }
}

impl Drop for Operator {
    fn drop(&mut self) {
        if matches!(self.child.try_wait(), Ok(None)) {
            let _ = self.child.kill();
            let _ = self.child.wait();
        }
    }
}

fn parse(text: &str) -> OperatorMetrics {
    let mut metrics = OperatorMetrics::default();
    for line in text.lines().filter(|line| !line.starts_with('#')) {
        let Some((series, value)) = line.rsplit_once(' ') else {
            continue;
        };
        let value = whole(value);
        let (name, labels) = series.split_once('{').unwrap_or((series, ""));
        let label = |wanted: &str| {
            let pairs = labels.trim_end_matches('}').split("\",");
            let mut matching = pairs.filter_map(|pair| pair.split_once("=\""));
            let found = matching.find(|(name, _)| *name == wanted);
            found.map_or(String::new(), |(_, value)| value.trim_end_matches('"').to_owned())
        };
        match name {
            "trainyard_api_requests_total" => {
                let (verb, kind, code) = (label("verb"), label("kind"), label("code"));
                if !code.starts_with('2') {
                    *metrics
                        .failed
                        .entry((verb.clone(), kind.clone(), code))
                        .or_default() += value;
                }
                *metrics.requests.entry((verb, kind)).or_default() += value;
            }
            "trainyard_reconciles_total" => metrics.reconciles += value,
            "trainyard_queue_depth" => metrics.queue = value,
            "trainyard_leader" => metrics.leader = value == 1,
            _ => {}
        }
    }
    metrics
}

fn whole(text: &str) -> u64 {
    text.split('.')
        .next()
        .and_then(|text| text.parse().ok())
        .unwrap_or(0)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn metrics_are_read() {
        let metrics = parse(
            "# TYPE trainyard_api_requests counter\n\
             trainyard_api_requests_total{verb=\"create\",kind=\"Pod\",code=\"201\"} 4\n\
             trainyard_api_requests_total{verb=\"create\",kind=\"Pod\",code=\"409\"} 1\n\
             trainyard_api_requests_total{verb=\"create\",kind=\"Event\",code=\"201\"} 2\n\
             trainyard_api_requests_total{verb=\"update\",kind=\"Lease\",code=\"200\"} 9\n\
             trainyard_api_requests_total{verb=\"watch\",kind=\"Pod\",code=\"200\"} 1\n\
             trainyard_reconciles_total{kind=\"TrainingJob\",outcome=\"acted\"} 3\n\
             trainyard_reconciles_total{kind=\"TrainingJob\",outcome=\"quiet\"} 4\n\
             trainyard_queue_depth 2\n\
             trainyard_leader 1\n# EOF\n",
        );
        assert_eq!(
            (
                metrics.writes(),
                metrics.events(),
                metrics.other_than_watches_and_leases()
            ),
            (5, 2, 7)
        );
        assert_eq!((metrics.reconciles, metrics.queue, metrics.leader), (7, 2, true));
        let conflict = ("create".to_owned(), "Pod".to_owned(), "409".to_owned());
        assert_eq!(metrics.failed, BTreeMap::from([(conflict, 1)]));
    }
}
