//! Agents in processes of their own.

use std::fs;
use std::path::Path;
use std::process::Stdio;
use std::time::Instant;

use anyhow::{Context, Result, bail, ensure};
use tempfile::TempDir;
use tokio::io::{AsyncBufReadExt, BufReader};
use tokio::sync::{mpsc, watch};
use tokio::task::JoinHandle;
use trainyard_eventually::within;

use super::{HostNames, Waiter};

/// The agents of jobs, by job. They are ended when this is dropped.
pub struct Agents {
    /// The agents of each job.
    pub by_job: Vec<Vec<Agent>>,
    /// Their tokens.
    _directory: TempDir,
}

impl Agents {
    /// Starts an agent for each waiting pod, and returns when all of them wait.
    pub async fn start(program: &Path, names: &HostNames, waiters: &[Vec<Waiter>]) -> Result<Self> {
        let directory = tempfile::tempdir()?;
        let program = std::path::absolute(program)?;
        let (told, mut waits) = mpsc::unbounded_channel();
        let mut by_job = Vec::new();
        for job in waiters {
            let start = |waiter| start(&program, names, waiter, directory.path(), told.clone());
            by_job.push(job.iter().map(start).collect::<Result<Vec<_>>>()?);
        }
        drop(told);
        let all = by_job.iter().map(Vec::len).sum::<usize>();
        for number in 0..all {
            let what = format!("{number} of {all} agents wait, and the next");
            if within(&what, waits.recv()).await.is_none() {
                bail!("{number} of {all} agents wait; see the operator's log");
            }
        }
        Ok(Self {
            by_job,
            _directory: directory,
        })
    }

    /// All of them.
    pub fn all(&self) -> impl Iterator<Item = &Agent> {
        self.by_job.iter().flatten()
    }
}

/// An agent in a process of its own, which says when it has ended well.
pub struct Agent {
    ended: watch::Receiver<Option<Instant>>,
    complaints: watch::Receiver<Vec<String>>,
    task: JoinHandle<Result<()>>,
}

impl Agent {
    /// Waits until it has released the programs of its pod. Returns when it ended.
    pub async fn wait_released(&self) -> Result<Instant> {
        let mut ended = self.ended.clone();
        let ended = within("an agent is let go", ended.wait_for(Option::is_some)).await;
        let ended = *ended.context("an agent has not ended well")?;
        ended.context("an agent has not ended")
    }

    /// Waits until it logs a complaint with this text. Fails if it ends before.
    pub async fn wait_for_complaint(&self, of: &str) -> Result<()> {
        let mut complaints = self.complaints.clone();
        let said = complaints.wait_for(|all| all.iter().any(|complaint| complaint.contains(of)));
        let said = within(&format!("an agent says `{of}`"), said).await;
        said.map(drop).with_context(|| {
            let all = self.complaints.borrow().join("\n");
            format!("an agent has ended and has not said `{of}`: {all}")
        })
    }

    /// Whether it has not ended.
    pub fn is_waiting(&self) -> bool {
        !self.task.is_finished()
    }
}

impl Drop for Agent {
    fn drop(&mut self) {
        self.task.abort();
    }
}

fn start(
    program: &Path,
    names: &HostNames,
    waiter: &Waiter,
    directory: &Path,
    told: mpsc::UnboundedSender<()>,
) -> Result<Agent> {
    let token = directory.join(&waiter.name);
    fs::write(&token, &waiter.token)?;
    let mut child = names
        .command(program)
        .arg("wait")
        .env_clear()
        .envs(&waiter.env)
        .env("TRAINYARD_TOKEN_FILE", &token)
        .env("TRAINYARD_ANNOTATIONS_FILE", directory.join("none"))
        .env("TRAINYARD_TERMINATION_LOG", "/dev/null")
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .kill_on_drop(true)
        .spawn()?;
    let errors = child.stderr.take().context("no errors")?;
    let (complain, complaints) = watch::channel(Vec::new());
    // It ends with the agent.
    tokio::spawn(async move {
        let mut lines = BufReader::new(errors).lines();
        while let Ok(Some(line)) = lines.next_line().await {
            complain.send_modify(|all| all.push(line));
        }
    });
    let (end, ended) = watch::channel(None);
    let task = tokio::spawn(async move {
        let out = child.stdout.take().context("no output")?;
        let mut lines = BufReader::new(out).lines();
        lines.next_line().await?.context("an agent that says nothing")?;
        told.send(())?;
        drop(told);
        let status = child.wait().await?;
        let now = Instant::now();
        ensure!(status.success(), "an agent has ended with {status}");
        end.send_replace(Some(now));
        Ok(())
    });
    Ok(Agent {
        ended,
        complaints,
        task,
    })
}
