//! The remote shell: what it takes to start many commands at once, and how large the agent is.

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
use super::session::{Session, as_f64, say};
use super::stats::{median, spread};

/// How often one command is started.
const ALONE: usize = 20;
/// How often many are.
const TOGETHER: usize = 5;
/// How often both are where the network takes its time.
const DELAYED: usize = 3;
/// How long everything takes there, in one direction. Far more than the processors need for all commands, so that what is seen
/// is who waits for whom.
const DELAY: Duration = Duration::from_millis(100);

/// The addresses of servers, and those behind which they are where the network takes its time.
const NEAR: u8 = 78;
const FAR: u8 = 79;

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

    /// Many commands at once, against one, and against no more than the processes that they are.
    async fn commands(&mut self, job: &Job<'_>) -> Result<()> {
        let commands = self.sizes.commands;
        let mut alone = Vec::new();
        for _ in 0..ALONE {
            alone.push(job.start_all(NEAR, 1).await?);
        }
        let (mut together, mut floors) = (Vec::new(), Vec::new());
        for _ in 0..TOGETHER {
            floors.push(start_bare(commands).await?);
            together.push(job.start_all(NEAR, commands).await?);
        }
        let name = format!("{commands} remote commands");
        let (one, all, floor) = (median(&alone), median(&together), median(&floors));
        say(&format!(
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

    /// The same where nobody computes for long and everybody waits: that many take longer than one would be because they wait for
    /// each other.
    async fn commands_far_away(&mut self, job: &Job<'_>) -> Result<()> {
        let commands = self.sizes.commands;
        let mut network = Vec::new();
        for number in 1..=commands {
            network.push(Delayed::new(address(FAR, number)?, address(NEAR, number)?, DELAY).await?);
        }
        let (mut alone, mut together) = (Vec::new(), Vec::new());
        for _ in 0..DELAYED {
            alone.push(job.start_all(FAR, 1).await?);
            together.push(job.start_all(FAR, commands).await?);
        }
        let (one, all) = (median(&alone), median(&together));
        let name = format!("{commands} remote commands, {} ms away", DELAY.as_millis());
        say(&format!("{name}: {all:.1} ms, one {one:.1} ms"));
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
            .env("TRAINYARD_SHELL_ADDRESS", host(NEAR, number))
            .spawn()?;
        let begun = Instant::now();
        while TcpStream::connect(address(NEAR, number)?).await.is_err() {
            ensure!(
                begun.elapsed() < Duration::from_secs(30),
                "a server that does not listen"
            );
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
        Ok(server)
    }

    /// Milliseconds until as many commands, each in another place, have been started at once and have ended.
    async fn start_all(&self, network: u8, commands: u8) -> Result<f64> {
        all(commands, |number| async move {
            let mut client = self.command("rsh");
            ends_well(client.arg(host(network, number)).arg("true")).await
        })
        .await
    }
}

/// Milliseconds for the processes that so many remote commands are, without an agent: each is one in place of the client, which
/// starts the shell of the command, as a server would, beside all others.
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

/// Milliseconds until all of them are done, which are begun at once.
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
