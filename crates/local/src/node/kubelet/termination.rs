//! Stops containers, and reports how they ended.

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::PathBuf;
use std::time::Duration;

use jiff::Timestamp;
use k8s_openapi::api::core::v1::Container as Spec;
use nix::sys::signal::Signal;
use tokio::time::timeout;

use super::probes::RunningContainer;
use super::status::Terminated;
use super::worker::PodWorker;
use crate::node::events::EventType;
use crate::node::runtime::{Exit, Mount};

/// The end of a longer message is kept.
const MAX_MESSAGE_BYTES: usize = 4096;
/// The end of a log that becomes a termination message.
const MAX_LOG_LINES: usize = 80;
const MAX_LOG_BYTES: usize = 2048;

impl PodWorker {
    pub(super) fn finish(
        &self,
        running: &RunningContainer,
        exit: Exit,
        id: &str,
        since: Timestamp,
        attempt: u32,
    ) -> Terminated {
        let spec = &running.spec;
        let written = fs::read(self.termination_file(&spec.name, attempt)).unwrap_or_default();
        let mut message = last(&written, MAX_MESSAGE_BYTES);
        let falls_back = spec.termination_message_policy.as_deref() == Some("FallbackToLogsOnError");
        if message.is_empty() && falls_back && exit.code != 0 {
            message = running.container.log().tail(MAX_LOG_LINES, MAX_LOG_BYTES);
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

    /// Runs the preStop hook, sends SIGTERM, and kills the container after its grace period.
    pub(super) async fn stop(&self, running: &RunningContainer, grace: Duration) -> Exit {
        let before = tokio::time::Instant::now();
        let lifecycle = running.spec.lifecycle.as_ref();
        let hook = lifecycle.and_then(|lifecycle| lifecycle.pre_stop.as_ref());
        if let Some(hook) = hook.filter(|_| !grace.is_zero())
            && !matches!(timeout(grace, running.hook(hook)).await, Ok(Ok(())))
        {
            self.record_container_event(
                &running.spec,
                EventType::Warning,
                "FailedPreStopHook",
                "PreStopHook failed",
            );
        }
        let left = grace.saturating_sub(before.elapsed());
        if !grace.is_zero() {
            let signal = lifecycle.and_then(|lifecycle| lifecycle.stop_signal.as_deref());
            running.container.signal(
                signal
                    .and_then(|name| name.parse().ok())
                    .unwrap_or(Signal::SIGTERM),
            );
            // At least two seconds remain after the hook, as with a kubelet.
            let left = left.max(Duration::from_secs(2).min(grace));
            if let Ok(exit) = timeout(left, running.container.wait()).await {
                return exit;
            }
        }
        running.container.kill();
        running.container.wait().await
    }

    /// Creates the file for the termination message, which any user of the container may write.
    pub(super) fn termination_mount(&self, spec: &Spec, attempt: u32) -> Mount {
        let source = self.termination_file(&spec.name, attempt);
        if let Some(parent) = source.parent() {
            drop(fs::create_dir_all(parent));
        }
        drop(fs::write(&source, ""));
        drop(fs::set_permissions(&source, fs::Permissions::from_mode(0o666)));
        let target = spec.termination_message_path.as_deref();
        Mount {
            source,
            target: PathBuf::from(target.unwrap_or("/dev/termination-log")),
            ..Mount::default()
        }
    }

    fn termination_file(&self, name: &str, attempt: u32) -> PathBuf {
        self.directory
            .join("termination")
            .join(format!("{name}-{attempt}"))
    }
}

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
