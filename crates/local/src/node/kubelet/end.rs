//! How runs of containers end, and what is said of that.

use std::fs;
use std::path::PathBuf;
use std::time::Duration;

use jiff::Timestamp;
use nix::sys::signal::Signal;
use tokio::time::timeout;

use super::probes::Asked;
use super::status::Terminated;
use super::worker::Worker;
use crate::node::events::Kind;
use crate::node::runtime::Exit;

/// As much of a message is kept.
const LONGEST_MESSAGE: usize = 4096;
/// As much of a log becomes a message.
const LONGEST_LOG: (usize, usize) = (80, 2048);

impl Worker {
    /// The end of a run, as it is reported.
    pub(super) fn finish(
        &self,
        asked: &Asked,
        exit: Exit,
        id: &str,
        since: Timestamp,
        attempt: u32,
    ) -> Terminated {
        let spec = &asked.spec;
        let written = fs::read(self.termination(&spec.name, attempt)).unwrap_or_default();
        let mut message = last(&written, LONGEST_MESSAGE);
        let falls_back = spec.termination_message_policy.as_deref() == Some("FallbackToLogsOnError");
        if message.is_empty() && falls_back && exit.code != 0 {
            let (lines, bytes) = LONGEST_LOG;
            message = asked.container.log().tail(lines, bytes);
        }
        let reason = match exit {
            Exit {
                out_of_memory: true, ..
            } => "OOMKilled",
            Exit { code: 0, .. } => "Completed",
            _ => "Error",
        };
        Terminated {
            code: exit.code,
            reason: reason.to_owned(),
            message: (!message.is_empty()).then_some(message),
            started: since,
            finished: self.now(),
            id: Some(id.to_owned()),
        }
    }

    /// Asks a container to end, and ends it after the time it has for that.
    pub(super) async fn stop(&self, asked: &Asked, grace: Duration) -> Exit {
        let before = tokio::time::Instant::now();
        let lifecycle = asked.spec.lifecycle.as_ref();
        let hook = lifecycle.and_then(|lifecycle| lifecycle.pre_stop.as_ref());
        if let Some(hook) = hook.filter(|_| !grace.is_zero())
            && !matches!(timeout(grace, asked.hook(hook)).await, Ok(Ok(())))
        {
            self.tell_container(
                &asked.spec,
                Kind::Warning,
                "FailedPreStopHook",
                "PreStopHook failed",
            );
        }
        let left = grace.saturating_sub(before.elapsed());
        if !grace.is_zero() {
            let signal = lifecycle.and_then(|lifecycle| lifecycle.stop_signal.as_deref());
            asked.container.signal(
                signal
                    .and_then(|name| name.parse().ok())
                    .unwrap_or(Signal::SIGTERM),
            );
            // After a hook that took all of the time there are two seconds left, as everywhere.
            let left = left.max(Duration::from_secs(2).min(grace));
            if let Ok(exit) = timeout(left, asked.container.wait()).await {
                return exit;
            }
        }
        asked.container.kill();
        asked.container.wait().await
    }

    /// The file for the termination message of a run.
    pub(super) fn termination(&self, name: &str, attempt: u32) -> PathBuf {
        self.directory
            .join("termination")
            .join(format!("{name}-{attempt}"))
    }
}

/// The last bytes of a text.
fn last(text: &[u8], bytes: usize) -> String {
    let from = text.len().saturating_sub(bytes);
    String::from_utf8_lossy(&text[from..]).into_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn of_a_long_message_the_end_is_kept() {
        assert_eq!(last(b"abc", 4), "abc");
        assert_eq!(last(b"abcdef", 4), "cdef");
    }
}
