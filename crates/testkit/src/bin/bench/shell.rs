//! The remote shell: the time to start many commands at once, and the size of the agent.

use std::fs;
use std::net::SocketAddr;
use std::path::Path;
use std::process::Stdio;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};
use futures::future::try_join_all;
use tokio::net::TcpStream;
use tokio::process::{Child, Command};
use trainyard_core::model::Identity;
use trainyard_core::remote_shell::PORT;
use trainyard_operator::identity;
use trainyard_testkit::proc::memory_mib;

use super::delay::Delayed;
use super::session::{Session, as_f64, log};
use super::stats::{median, spread};

const SINGLE_RUNS: usize = 20;
const PARALLEL_RUNS: usize = 5;
const DELAYED_RUNS: usize = 3;
/// The delay in one direction. It is far more than the processors need for all commands, so that
/// the result shows how often a command waits for the network.
const DELAY: Duration = Duration::from_millis(100);

/// Servers have addresses in the near network, and delayed ones in the far network.
const NEAR_NETWORK: u8 = 78;
const FAR_NETWORK: u8 = 79;

impl Session {
    pub(super) async fn shell(&mut self, agent: &Path) -> Result<()> {
        let directory = tempfile::tempdir()?;
        for (name, content) in identity::make(Identity::Certificate, jiff::Timestamp::now())? {
            fs::write(directory.path().join(name), content.0)?;
        }
        let job = Job {
            agent,
            identity: directory.path(),
        };
        let mut servers = Vec::new();
        for number in 1..=self.sizes.commands {
            servers.push(job.serve(number).await?);
        }
        let first = servers.first().context("no server")?;
        let idle = resident(first)?;
        let size = as_f64(fs::metadata(agent)?.len()) / 1024.0 / 1024.0;
        self.figure("agent", "on disk", size, "MiB", Some(4.0), String::new());
        self.figure(
            "agent",
            "resident",
            idle,
            "MiB",
            Some(3.0),
            "a server that waits".to_owned(),
        );
        self.commands(&job).await?;
        self.commands_far_away(&job).await
    }

    /// Compares many commands in parallel with one, and with the same processes without the agent.
    async fn commands(&mut self, job: &Job<'_>) -> Result<()> {
        let commands = self.sizes.commands;
        let mut alone = Vec::new();
        for _ in 0..SINGLE_RUNS {
            alone.push(job.start_all(NEAR_NETWORK, 1).await?);
        }
        let (mut together, mut floors) = (Vec::new(), Vec::new());
        for _ in 0..PARALLEL_RUNS {
            floors.push(start_bare(commands).await?);
            together.push(job.start_all(NEAR_NETWORK, commands).await?);
        }
        let name = format!("{commands} remote commands");
        let (one, all, floor) = (median(&alone), median(&together), median(&floors));
        log(&format!(
            "{name}: {all:.1} ms, one {one:.1} ms, the bare processes {floor:.1} ms"
        ));
        let detail = format!("{all:.1} ms against {one:.1} ms; {} ms", spread(&together));
        self.figure(&name, "all ended, x one", all / one, "x", Some(2.0), detail);
        let detail = format!("{all:.1} ms against {floor:.1} ms; {} ms", spread(&floors));
        self.figure(
            &name,
            "all ended, x bare processes",
            all / floor,
            "x",
            None,
            detail,
        );
        Ok(())
    }

    /// The same over a slow network: many commands take longer than one only if they wait for each
    /// other.
    async fn commands_far_away(&mut self, job: &Job<'_>) -> Result<()> {
        let commands = self.sizes.commands;
        let mut network = Vec::new();
        for number in 1..=commands {
            network.push(
                Delayed::new(
                    address(FAR_NETWORK, number)?,
                    address(NEAR_NETWORK, number)?,
                    DELAY,
                )
                .await?,
            );
        }
        let (mut alone, mut together) = (Vec::new(), Vec::new());
        for _ in 0..DELAYED_RUNS {
            alone.push(job.start_all(FAR_NETWORK, 1).await?);
            together.push(job.start_all(FAR_NETWORK, commands).await?);
        }
        let (one, all) = (median(&alone), median(&together));
        let name = format!("{commands} remote commands, {} ms away", DELAY.as_millis());
        log(&format!("{name}: {all:.1} ms, one {one:.1} ms"));
        let detail = format!("{all:.1} ms against {one:.1} ms; {} ms", spread(&together));
        self.figure(&name, "all ended, x one", all / one, "x", Some(2.0), detail);
        Ok(())
    }
}

/// The programs of one job.
struct Job<'a> {
    agent: &'a Path,
    identity: &'a Path,
}

fn host(network: u8, number: u8) -> String {
    format!("127.{network}.0.{number}")
}

fn address(network: u8, number: u8) -> Result<SocketAddr> {
    Ok(SocketAddr::new(
        host(network, number).parse()?,
        u16::try_from(PORT)?,
    ))
}

impl Job<'_> {
    fn command(&self, mode: &str) -> Command {
        let mut command = Command::new(self.agent);
        command
            .arg(mode)
            .env("TRAINYARD_IDENTITY", self.identity)
            .stdin(Stdio::null())
            .kill_on_drop(true);
        command
    }

    /// A server that takes commands.
    async fn serve(&self, number: u8) -> Result<Child> {
        let server = self
            .command("serve")
            .env("TRAINYARD_SHELL_ADDRESS", host(NEAR_NETWORK, number))
            .spawn()?;
        let begun = Instant::now();
        while TcpStream::connect(address(NEAR_NETWORK, number)?).await.is_err() {
            ensure!(
                begun.elapsed() < Duration::from_secs(30),
                "a server that does not listen"
            );
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
        Ok(server)
    }

    /// Milliseconds until commands on so many hosts, started in parallel, have ended.
    async fn start_all(&self, network: u8, commands: u8) -> Result<f64> {
        all(commands, |number| async move {
            let mut client = self.command("rsh");
            ends_well(client.arg(host(network, number)).arg("true")).await
        })
        .await
    }
}

/// Milliseconds for the processes of so many remote commands without the agent: each is a process
/// in place of the client, which starts the shell of the command in place of the server.
async fn start_bare(commands: u8) -> Result<f64> {
    all(commands, |_| async {
        let mut client = Command::new("/bin/sh");
        ends_well(
            client
                .args(["-c", "/bin/sh -c true; exit $?"])
                .stdin(Stdio::null()),
        )
        .await
    })
    .await
}

/// Milliseconds until all of them, started in parallel, are done.
async fn all<F: Future<Output = Result<()>>>(commands: u8, work: impl Fn(u8) -> F) -> Result<f64> {
    let begun = Instant::now();
    try_join_all((1..=commands).map(work)).await?;
    Ok(begun.elapsed().as_secs_f64() * 1e3)
}

async fn ends_well(command: &mut Command) -> Result<()> {
    let status = command.kill_on_drop(true).status().await?;
    ensure!(status.success(), "a command has ended with {status}");
    Ok(())
}

fn resident(child: &Child) -> Result<f64> {
    memory_mib(child.id().context("a server that has ended")?, "VmRSS")
}
