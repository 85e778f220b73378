//! Probes and hooks of a container that runs.

use std::net::Ipv4Addr;
use std::time::Duration;

use k8s_openapi::api::core::v1::{
    Container as ContainerSpec, ExecAction, HTTPGetAction, LifecycleHandler, Probe, TCPSocketAction,
};
use k8s_openapi::apimachinery::pkg::util::intstr::IntOrString;
use tokio::net::TcpStream;
use tokio::time::{sleep, timeout};

use super::probe_http;
use crate::node::runtime::Container;

#[derive(Clone, Debug)]
pub struct RunningContainer {
    pub spec: ContainerSpec,
    pub container: Container,
    pub address: Ipv4Addr,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ProbeEvent {
    Started,
    Ready(bool),
    /// A probe has failed, perhaps below its threshold.
    Unhealthy(String),
}

/// Why a container is killed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct KillReason {
    pub reason: String,
    /// The grace period of the probe, if it has its own.
    pub grace: Option<Duration>,
}

impl RunningContainer {
    /// Probes the container until it has to be killed.
    pub async fn watch(&self, report: impl Fn(ProbeEvent)) -> KillReason {
        if let Some(probe) = &self.spec.startup_probe
            && !self.answers_in_time(probe, &report).await
        {
            return self.kill_reason("startup", probe);
        }
        report(ProbeEvent::Started);
        let readiness = async {
            match &self.spec.readiness_probe {
                None => report(ProbeEvent::Ready(true)),
                Some(probe) => self.readiness(probe, &report).await,
            }
            std::future::pending::<std::convert::Infallible>().await
        };
        let liveness = async {
            match &self.spec.liveness_probe {
                None => std::future::pending().await,
                Some(probe) => {
                    self.until_it_fails(probe, &report).await;
                    self.kill_reason("liveness", probe)
                }
            }
        };
        tokio::select! {
            never = readiness => match never {},
            kill_reason = liveness => kill_reason,
        }
    }

    fn kill_reason(&self, kind: &str, probe: &Probe) -> KillReason {
        let name = &self.spec.name;
        KillReason {
            reason: format!("Container {name} failed {kind} probe, will be restarted"),
            grace: probe
                .termination_grace_period_seconds
                .and_then(|seconds| u64::try_from(seconds).ok())
                .map(Duration::from_secs),
        }
    }

    async fn answers_in_time(&self, probe: &Probe, report: &impl Fn(ProbeEvent)) -> bool {
        sleep(seconds(probe.initial_delay_seconds, 0)).await;
        let mut failures = 0;
        while let Err(reason) = self.probe(probe).await {
            report(ProbeEvent::Unhealthy(format!("Startup probe failed: {reason}")));
            failures += 1;
            if failures >= probe.failure_threshold.unwrap_or(3) {
                return false;
            }
            sleep(seconds(probe.period_seconds, 10)).await;
        }
        true
    }

    async fn until_it_fails(&self, probe: &Probe, report: &impl Fn(ProbeEvent)) {
        sleep(seconds(probe.initial_delay_seconds, 0)).await;
        let mut failures = 0;
        loop {
            match self.probe(probe).await {
                Ok(()) => failures = 0,
                Err(reason) => {
                    report(ProbeEvent::Unhealthy(format!("Liveness probe failed: {reason}")));
                    failures += 1;
                    if failures >= probe.failure_threshold.unwrap_or(3) {
                        return;
                    }
                }
            }
            sleep(seconds(probe.period_seconds, 10)).await;
        }
    }

    async fn readiness(&self, probe: &Probe, report: &impl Fn(ProbeEvent)) {
        sleep(seconds(probe.initial_delay_seconds, 0)).await;
        let (mut successes, mut failures, mut ready) = (0, 0, false);
        loop {
            match self.probe(probe).await {
                Ok(()) => (successes, failures) = (successes + 1, 0),
                Err(reason) => {
                    report(ProbeEvent::Unhealthy(format!("Readiness probe failed: {reason}")));
                    (successes, failures) = (0, failures + 1);
                }
            }
            let now = if ready {
                failures < probe.failure_threshold.unwrap_or(3)
            } else {
                successes >= probe.success_threshold.unwrap_or(1)
            };
            if now != ready {
                ready = now;
                report(ProbeEvent::Ready(ready));
            }
            sleep(seconds(probe.period_seconds, 10)).await;
        }
    }

    async fn probe(&self, probe: &Probe) -> Result<(), String> {
        let limit = seconds(probe.timeout_seconds, 1);
        let attempt = async {
            if let Some(action) = &probe.exec {
                self.exec(action).await
            } else if let Some(action) = &probe.http_get {
                self.get(action).await
            } else if let Some(action) = &probe.tcp_socket {
                self.connect(action).await
            } else {
                Err("the embedded cluster has exec, httpGet and tcpSocket probes only".to_owned())
            }
        };
        timeout(limit, attempt)
            .await
            .unwrap_or_else(|_| Err(format!("timed out after {limit:?}")))
    }

    pub async fn hook(&self, hook: &LifecycleHandler) -> Result<(), String> {
        if let Some(action) = &hook.exec {
            self.exec(action).await
        } else if let Some(action) = &hook.http_get {
            self.get(action).await
        } else if let Some(action) = &hook.sleep {
            sleep(Duration::from_secs(u64::try_from(action.seconds).unwrap_or(0))).await;
            Ok(())
        } else {
            Ok(())
        }
    }

    async fn exec(&self, action: &ExecAction) -> Result<(), String> {
        let command = action.command.clone().unwrap_or_default();
        let running = self
            .container
            .exec(command)
            .await
            .map_err(|error| error.to_string())?;
        let output = running.output(&[]).await.map_err(|error| error.to_string())?;
        if output.exit.code == 0 {
            return Ok(());
        }
        let said = [output.stdout, output.stderr].concat();
        Err(String::from_utf8_lossy(&said).into_owned())
    }

    async fn connect(&self, action: &TCPSocketAction) -> Result<(), String> {
        let host = action.host.clone().unwrap_or_else(|| self.address.to_string());
        let port = self.port(&action.port)?;
        TcpStream::connect((host, port))
            .await
            .map(drop)
            .map_err(|error| error.to_string())
    }

    async fn get(&self, action: &HTTPGetAction) -> Result<(), String> {
        let host = action.host.clone().unwrap_or_else(|| self.address.to_string());
        let port = self.port(&action.port)?;
        match probe_http::get(action, &host, port).await? {
            200..400 => Ok(()),
            code => Err(format!("HTTP probe failed with statuscode: {code}")),
        }
    }

    fn port(&self, port: &IntOrString) -> Result<u16, String> {
        let number = match port {
            IntOrString::Int(number) => Some(*number),
            IntOrString::String(name) => {
                let ports = self.spec.ports.iter().flatten();
                let mut named = ports.filter(|port| port.name.as_ref() == Some(name));
                named.next().map(|port| port.container_port).or(name.parse().ok())
            }
        };
        number
            .and_then(|number| u16::try_from(number).ok())
            .ok_or_else(|| format!("there is no port {port:?}"))
    }
}

fn seconds(given: Option<i32>, default: u64) -> Duration {
    Duration::from_secs(
        given
            .and_then(|given| u64::try_from(given).ok())
            .unwrap_or(default),
    )
}
