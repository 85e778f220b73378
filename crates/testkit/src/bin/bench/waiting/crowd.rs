//! Many waiting connections to the observer, without the processes of agents.

use std::net::Ipv4Addr;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};
use futures::StreamExt;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;
use tokio_rustls::TlsConnector;
use tokio_rustls::client::TlsStream;
use tokio_rustls::rustls::pki_types::ServerName;
use trainyard_contract::environment;
use trainyard_contract::observer::{LINES, start_of};
use trainyard_operator::OBSERVER_PORT;
use trainyard_testkit::program::Operator;
use trainyard_testkit::waiting::{self, Waiter};

use super::{NAMESPACE, Session, Setting};

const MAX_ATTEMPTS: u32 = 10;
const RETRY_INTERVAL: Duration = Duration::from_millis(500);
const MAX_PARALLEL: usize = 32;

impl Session {
    /// The cost of so many connections; the agents that wait have some of them.
    pub(super) async fn crowd(
        &mut self,
        setting: &Setting<'_>,
        operator: &Operator,
        patient: &[Vec<Waiter>],
    ) -> Result<()> {
        let patient: Vec<&Waiter> = patient.iter().flatten().collect();
        let first = patient.first().context("nobody waits")?;
        let authority = first.env.get(environment::AUTHORITY).context("no authority")?;
        let observer = Observer {
            address: setting.addresses[0],
            host: waiting::host(NAMESPACE),
            tls: TlsConnector::from(trainyard_agent::observer::authorities(authority)?),
        };
        let more = self.sizes.agents.saturating_sub(patient.len());
        let alone = operator.current_memory()?;
        let begun = Instant::now();
        let connections: Vec<Result<TlsStream<TcpStream>>> = futures::stream::iter(0..more)
            .map(|number| observer.connect_with_retries(patient[number % patient.len()]))
            .buffer_unordered(MAX_PARALLEL)
            .collect()
            .await;
        let connections: Vec<_> = connections.into_iter().collect::<Result<_>>()?;
        let seconds = begun.elapsed().as_secs_f64();
        let memory = operator.current_memory()?;
        let detail = format!(
            "{alone:.1} MiB with {}; the others came within {seconds:.1} s; peak {:.1} MiB",
            patient.len(),
            operator.peak_memory()?
        );
        self.figure(
            &format!("{} agents", connections.len() + patient.len()),
            "memory of the operator",
            memory,
            "MiB",
            Some(100.0),
            detail,
        );
        Ok(())
    }
}

/// The observer at an address.
struct Observer {
    address: Ipv4Addr,
    host: String,
    tls: TlsConnector,
}

impl Observer {
    /// Retries like an agent whose connection was refused because there are too many.
    async fn connect_with_retries(&self, waiter: &Waiter) -> Result<TlsStream<TcpStream>> {
        let mut attempts = 0;
        loop {
            attempts += 1;
            match self.listen(waiter).await {
                Err(_) if attempts < MAX_ATTEMPTS => tokio::time::sleep(RETRY_INTERVAL).await,
                answered => return answered,
            }
        }
    }

    /// Sends the request of an agent and returns after the first line of the answer.
    async fn listen(&self, waiter: &Waiter) -> Result<TlsStream<TcpStream>> {
        let stream = TcpStream::connect((self.address, OBSERVER_PORT)).await?;
        let name = ServerName::try_from(self.host.clone())?;
        let mut stream = self.tls.connect(name, stream).await?;
        let of = |variable: &str| waiter.env.get(variable).cloned().unwrap_or_default();
        let (namespace, job) = (of(environment::NAMESPACE), of(environment::JOB));
        let path = start_of(&namespace, &job, &of(environment::ROLE));
        let request = format!(
            "GET {path} HTTP/1.1\r\nHost: {}\r\nAuthorization: Bearer {}\r\n\
             Connection: Upgrade\r\nUpgrade: {LINES}\r\n\r\n",
            self.host, waiter.token,
        );
        stream.write_all(request.as_bytes()).await?;
        let mut answer = Vec::new();
        // The head of the answer, and a line after it.
        while !String::from_utf8_lossy(&answer)
            .split_once("\r\n\r\n")
            .is_some_and(|(_, body)| body.contains("waits"))
        {
            ensure!(
                stream.read_buf(&mut answer).await? > 0,
                "refused: {}",
                String::from_utf8_lossy(&answer)
            );
        }
        Ok(stream)
    }
}
