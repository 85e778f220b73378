//! Logs and exec, for the API.

use std::pin::Pin;

use bytes::Bytes;
use futures::TryStreamExt;
use tokio::io::{AsyncRead, AsyncWrite};

use super::Kubelet;
use crate::api::{LogOptions, LogStream, NodeAccess, PodRef, Process, Start};
use crate::node::runtime::log::LogRange;
use crate::node::runtime::{Error, Exec, Running};

/// The prefix of container runtimes for the reason why a command can't be executed.
const NOT_EXECUTED: &str = "failed to exec in container: OCI runtime exec failed: exec failed: unable to start \
                            container process: ";

impl NodeAccess for Kubelet {
    fn logs(&self, pod: PodRef<'_>, container: &str, options: LogOptions) -> Result<LogStream, String> {
        let log = self.log(pod.uid, container, options.previous);
        let log = log.ok_or_else(|| {
            if options.previous {
                return format!(
                    "previous terminated container {container:?} in pod {:?} not found",
                    pod.name
                );
            }
            let why = self.waiting_reason(pod.uid, container);
            let why = why.map_or_else(|| " - no logs yet".to_owned(), |why| format!(": {why}"));
            format!(
                "container {container:?} in pod {:?} is waiting to start{why}",
                pod.name
            )
        })?;
        let number = |given: Option<u64>| given.and_then(|given| usize::try_from(given).ok());
        let part = LogRange {
            tail_lines: number(options.tail_lines),
            since: options.since,
            timestamps: options.timestamps,
            limit_bytes: number(options.limit_bytes),
            follow: options.follow,
        };
        Ok(Box::pin(log.stream(part).map_ok(Bytes::from)))
    }

    fn exec(
        &self,
        pod: PodRef<'_>,
        container: &str,
        command: Vec<String>,
        on_terminal: bool,
    ) -> Option<Start> {
        let container = self.container(pod.uid, container)?;
        if container.exit().is_some() {
            return None;
        }
        Some(Box::pin(async move {
            let exec = Exec { command, on_terminal };
            match container.start(exec).await {
                Ok(running) => Ok(process(running)),
                Err(Error::Command(message)) => Err(format!("{NOT_EXECUTED}{message}: unknown")),
                Err(error) => Err(error.to_string()),
            }
        }))
    }
}

fn process(mut running: Running) -> Process {
    if let Some(terminal) = running.terminal.take() {
        let exit = running.end();
        return Process {
            stdin: Box::pin(terminal.input),
            stdout: Box::pin(terminal.output),
            stderr: Box::pin(tokio::io::empty()),
            resize: Some(Box::new(move |columns, rows| terminal.size.set(columns, rows))),
            exit: Box::pin(async move { exit.await.code }),
        };
    }
    let (stdin, stdout, stderr) = (running.stdin.take(), running.stdout.take(), running.stderr.take());
    let read = |stream: Option<Pin<Box<dyn AsyncRead + Send>>>| {
        stream.unwrap_or_else(|| Box::pin(tokio::io::empty()))
    };
    let exit = running.end();
    Process {
        stdin: stdin.map_or_else(
            || Box::pin(tokio::io::sink()) as Pin<Box<dyn AsyncWrite + Send>>,
            |stdin| Box::pin(stdin),
        ),
        stdout: read(stdout.map(|stdout| Box::pin(stdout) as _)),
        stderr: read(stderr.map(|stderr| Box::pin(stderr) as _)),
        resize: None,
        exit: Box::pin(async move { exit.await.code }),
    }
}
