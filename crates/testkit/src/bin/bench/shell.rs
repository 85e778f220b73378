//! The remote shell: what it takes to start many commands at once, and how large the agent is.

use std::fs;
use std::path::Path;
use std::process::Stdio;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};
use futures::future::try_join_all;
use tokio::net::TcpStream;
use tokio::process::{Child, Command};
use trainyard_core::attach::PORT;
use trainyard_core::frameworks::Identity;
use trainyard_operator::identity;

use super::machine::field;
use super::session::{Session, as_f64, say};
use super::stats::{median, spread};

/// How often one command is started.
const ALONE: usize = 20;
/// How often many are.
const TOGETHER: usize = 5;

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

        let mut alone = Vec::new();
        for _ in 0..ALONE {
            alone.push(job.start_all(1).await?);
        }
        let mut together = Vec::new();
        for _ in 0..TOGETHER {
            together.push(job.start_all(self.sizes.commands).await?);
        }
        let name = format!("{} remote commands", self.sizes.commands);
        let ratio = median(&together) / median(&alone);
        say(&format!(
            "{name}: {:.1} ms, one {:.1} ms",
            median(&together),
            median(&alone)
        ));
        let detail = format!(
            "{:.1} ms against {:.1} ms; {} ms",
            median(&together),
            median(&alone),
            spread(&together)
        );
        self.figure(&name, "all ended, x one", ratio, "x", Some(2.0), detail);
        Ok(())
    }
}

/// The programs of one job.
struct Job<'a> {
    agent: &'a Path,
    identity: &'a Path,
}

fn host(number: u8) -> String {
    format!("127.78.0.{number}")
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
            .env("TRAINYARD_SHELL_ADDRESS", host(number))
            .spawn()?;
        let port = u16::try_from(PORT)?;
        let begun = Instant::now();
        while TcpStream::connect((host(number), port)).await.is_err() {
            ensure!(
                begun.elapsed() < Duration::from_secs(30),
                "a server that does not listen"
            );
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
        Ok(server)
    }

    /// Milliseconds until as many commands, each in another place, have been started at once and have ended.
    async fn start_all(&self, commands: u8) -> Result<f64> {
        let begun = Instant::now();
        try_join_all((1..=commands).map(|number| async move {
            let status = self.command("rsh").arg(host(number)).arg("true").status().await?;
            ensure!(status.success(), "a remote command has ended with {status}");
            Ok(())
        }))
        .await?;
        Ok(begun.elapsed().as_secs_f64() * 1e3)
    }
}

fn resident(child: &Child) -> Result<f64> {
    let id = child.id().context("a server that has ended")?;
    let status = fs::read_to_string(format!("/proc/{id}/status"))?;
    let text = field(&status, "VmRSS").context("no VmRSS")?;
    Ok(text.trim_end_matches(" kB").parse::<f64>()? / 1024.0)
}
