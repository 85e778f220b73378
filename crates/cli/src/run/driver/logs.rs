//! Follows the logs of containers.

use std::collections::{BTreeSet, HashMap};
use std::time::Duration;

use futures::{AsyncBufRead, AsyncBufReadExt, AsyncReadExt};
use k8s_openapi::api::core::v1::Pod;
use kube::Api;
use kube::api::LogParams;
use tokio::sync::mpsc::{self, Receiver, Sender};
use tokio::task::{self, JoinSet};

use crate::run::view::{Event, ObservedPod};

/// Lines that may wait to be shown. A program that prints more blocks, as on a slow terminal.
const MAX_PENDING_LINES: usize = 1024;
/// The rest of a longer line becomes the next one.
const MAX_LINE_BYTES: usize = 64 * 1024;
/// A node may not know a container yet that its pod already shows as started.
const MAX_ATTEMPTS: u32 = 5;
/// Before the second attempt; doubled after each.
const RETRY_INTERVAL: Duration = Duration::from_millis(50);

#[derive(Debug)]
pub struct Line {
    uid: String,
    container: String,
    text: String,
}

impl From<Line> for Event {
    fn from(line: Line) -> Self {
        Self::Log {
            uid: line.uid,
            container: line.container,
            line: line.text,
        }
    }
}

/// One start of a container: the pod's uid, the container's name and its restarts.
pub type Key = (String, String, i32);

/// The tasks that follow logs.
pub struct LogFollowers {
    tasks: JoinSet<()>,
    /// Logs that have not been read to their end.
    open: HashMap<task::Id, Key>,
    pods: Api<Pod>,
    lines: Sender<Line>,
    started: BTreeSet<Key>,
}

impl LogFollowers {
    pub fn new(pods: Api<Pod>) -> (Self, Receiver<Line>) {
        let (lines, incoming) = mpsc::channel(MAX_PENDING_LINES);
        let followers = Self {
            tasks: JoinSet::new(),
            open: HashMap::new(),
            pods,
            lines,
            started: BTreeSet::new(),
        };
        (followers, incoming)
    }

    /// Follows the containers of a pod that were started since it was last seen.
    pub fn follow(&mut self, pod: &ObservedPod) {
        for container in pod.containers.iter().filter(|container| container.has_run()) {
            let key = (pod.uid.clone(), container.name.clone(), container.restarts);
            if self.started.insert(key.clone()) {
                let follower = LogFollower {
                    pod: pod.name.clone(),
                    uid: pod.uid.clone(),
                    container: container.name.clone(),
                    lines: self.lines.clone(),
                };
                let task = self.tasks.spawn(follower.follow(self.pods.clone()));
                self.open.insert(task.id(), key);
            }
        }
    }

    /// Waits until one log has been read to its end; None if none is open.
    pub async fn ended(&mut self) -> Option<()> {
        let ended = self.tasks.join_next_with_id().await?;
        let id = ended.map_or_else(|error| error.id(), |(id, ())| id);
        self.open.remove(&id);
        Some(())
    }

    /// Logs that have not been read to their end.
    pub fn open(&self) -> impl Iterator<Item = &Key> {
        self.open.values()
    }

    pub fn is_empty(&self) -> bool {
        self.tasks.is_empty()
    }
}

struct LogFollower {
    pod: String,
    uid: String,
    container: String,
    lines: Sender<Line>,
}

impl LogFollower {
    async fn follow(self, pods: Api<Pod>) {
        let params = LogParams {
            container: Some(self.container.clone()),
            follow: true,
            ..LogParams::default()
        };
        let mut last = None;
        for attempt in 0..MAX_ATTEMPTS {
            let reason = match pods.log_stream(&self.pod, &params).await {
                Ok(log) => {
                    if let Err(error) = self.read(log).await {
                        // Another attempt would show the beginning twice.
                        self.send(format!("(the log is cut off here: {error})")).await;
                    }
                    return;
                }
                Err(error) => error,
            };
            // The pod is gone, and its log with it.
            if matches!(&reason, kube::Error::Api(status) if status.code == 404) {
                self.send("(the pod was removed before its log could be read)".to_owned())
                    .await;
                return;
            }
            tracing::debug!(pod = self.pod, container = self.container, error = %reason, "the log can't be read yet");
            last = Some(reason);
            tokio::time::sleep(RETRY_INTERVAL * 2_u32.pow(attempt)).await;
        }
        if let Some(reason) = last {
            self.send(format!("(the log can't be read: {reason})")).await;
        }
    }

    /// Reads lines to the end, or until the receiver is dropped.
    async fn read(&self, log: impl AsyncBufRead + Send) -> Result<(), std::io::Error> {
        let mut log = std::pin::pin!(log);
        let limit = u64::try_from(MAX_LINE_BYTES).unwrap_or(u64::MAX);
        let mut buffer = Vec::new();
        loop {
            buffer.clear();
            let read = log.as_mut().take(limit).read_until(b'\n', &mut buffer).await?;
            if read == 0 || !self.send(clean(&buffer)).await {
                return Ok(());
            }
        }
    }

    /// Returns false if the receiver is gone.
    async fn send(&self, text: String) -> bool {
        let line = Line {
            uid: self.uid.clone(),
            container: self.container.clone(),
            text,
        };
        self.lines.send(line).await.is_ok()
    }
}

/// A line as a terminal shows it: only what follows the last carriage return.
fn clean(bytes: &[u8]) -> String {
    let text = String::from_utf8_lossy(bytes);
    let text = text.trim_end_matches(['\n', '\r']);
    text.rsplit('\r').next().unwrap_or_default().to_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    async fn lines(log: &[u8]) -> Vec<String> {
        let (lines, mut received) = mpsc::channel(MAX_PENDING_LINES);
        let follower = LogFollower {
            pod: String::new(),
            uid: String::new(),
            container: String::new(),
            lines,
        };
        follower
            .read(futures::io::Cursor::new(log.to_vec()))
            .await
            .unwrap();
        drop(follower);
        let mut all = Vec::new();
        while let Some(line) = received.recv().await {
            all.push(line.text);
        }
        all
    }

    #[tokio::test]
    async fn lines_are_what_a_terminal_would_show() {
        assert_eq!(lines(b"a\n\nb\r\nc").await, ["a", "", "b", "c"]);
        assert_eq!(lines(b"10 %\r50 %\r100 %\nnext\n").await, ["100 %", "next"]);
        assert_eq!(lines(b"caf\xc3\xa9 \xff\n").await, ["café \u{fffd}"]);
        assert_eq!(lines(b"").await, [""; 0]);
    }

    #[tokio::test]
    async fn a_line_without_end_does_not_fill_the_memory() {
        let long = lines(&vec![b'x'; MAX_LINE_BYTES * 2 + 1]).await;
        assert_eq!(
            long.iter().map(String::len).collect::<Vec<_>>(),
            [MAX_LINE_BYTES, MAX_LINE_BYTES, 1]
        );
    }
}
