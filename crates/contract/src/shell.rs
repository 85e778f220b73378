//! The remote shell, as far as the operator prepares it.

use std::ops::RangeInclusive;

use crate::directories::mpi::paths::PROGRAM;
use crate::modes::ATTEND;

/// The port on which programs are started by other pods.
pub const PORT: u16 = 7522;

/// The one name in the certificate of every pod of every job. What tells jobs apart is who signed
/// it.
pub const CERTIFICATE_NAME: &str = "trainyard.job";

/// What both sides say in the handshake, followed by their attempt, as the protocol that they want
/// to speak (ALPN). Sides of different attempts have none in common.
pub const ATTEMPT_PROTOCOL: &str = "trainyard-attempt-";

/// What [`SHELL_IDLE_TIMEOUT`](crate::environment::SHELL_IDLE_TIMEOUT) may be: at least two
/// heartbeats; more than a day is as good as never.
pub const IDLE_TIMEOUT_SECONDS: RangeInclusive<u64> = 2..=86_400;

/// Stands for the name of the pod in the path of the API server.
pub const POD: &str = "{}";

/// The path of the API server by which the agent is started in a container of a pod, with [`POD`]
/// for the name of the pod.
pub fn exec_path(namespace: &str, container: &str) -> String {
    format!(
        "/api/v1/namespaces/{namespace}/pods/{POD}/exec?container={container}&command={PROGRAM}&command={ATTEND}\
         &stdin=true&stdout=true&stderr=true"
    )
}

/// What is before and after the name of the pod in such a path. `None` if it can't be the path of a
/// request.
pub fn split_exec_path(path: &str) -> Option<(&str, &str)> {
    let is_path = path.starts_with('/') && path.bytes().all(|byte| byte.is_ascii_graphic());
    path.split_once(POD).filter(|_| is_path)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_written_is_read() {
        let path = exec_path("ns", "main");
        let (before, after) = split_exec_path(&path).unwrap();
        assert_eq!(before, "/api/v1/namespaces/ns/pods/");
        assert!(after.starts_with("/exec?container=main&"), "{after}");
    }
}
