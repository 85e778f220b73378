//! How many connections a pod may have.
//!
//! Whoever has shown a token makes no room for strangers. But programs in a pod have its token, and
//! could take all connections that there are.

use std::collections::{HashMap, VecDeque};

use parking_lot::Mutex;

use crate::http::{ConnectionPermit, KeptConnection};

/// An agent follows when its role may start, who is there, whether it is to leave, and scripts, and
/// sends a report now and then. The rest is for connections that broke, which nobody knows yet.
const MAX_CONNECTIONS: usize = 16;

/// The connections on which pods have shown their tokens.
#[derive(Default)]
pub(super) struct PodConnections(Mutex<Pods>);

#[derive(Default)]
struct Pods {
    /// By UID, the oldest connection first, among some that are closed by now.
    connections: HashMap<Box<str>, VecDeque<KeptConnection>>,
    /// The number of pods at which those without connections are removed: twice the number after
    /// the last time, so that removing costs no more than adding.
    max: usize,
}

impl PodConnections {
    /// A smaller number of pods is left alone.
    const FEW: usize = 64;

    /// Keeps the connection of a pod. When it has more than it may, its oldest one is closed.
    pub(super) fn keep(&self, uid: &str, connection: &ConnectionPermit) {
        connection.keep();
        let mut pods = self.0.lock();
        let known = pods.connections.get(uid);
        if known.is_some_and(|known| known.iter().any(|one| one.is_of(connection))) {
            return;
        }
        if pods.connections.len() >= pods.max {
            pods.connections
                .retain(|_, known| known.iter().any(KeptConnection::is_open));
            pods.max = Self::FEW.max(2 * pods.connections.len());
        }
        let known = pods.connections.entry(uid.into()).or_default();
        known.retain(KeptConnection::is_open);
        if known.len() >= MAX_CONNECTIONS
            && let Some(oldest) = known.pop_front()
        {
            oldest.close();
        }
        known.push_back(connection.downgrade());
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_pod_with_too_many_connections_loses_its_oldest() {
        let pods = PodConnections::default();
        let open = |uid: &str| {
            let connection = ConnectionPermit::for_tests();
            pods.keep(uid, &connection);
            connection
        };
        let other = open("b");
        let mut connections: Vec<_> = (0..MAX_CONNECTIONS).map(|_| open("a")).collect();
        // However often it asks on one of them, and whatever has been closed.
        for _ in 0..100 {
            pods.keep("a", &connections[0]);
        }
        connections.remove(3);
        connections.push(open("a"));
        assert!(!connections.iter().any(ConnectionPermit::is_closing));
        connections.extend([open("a"), open("a")]);
        let closing: Vec<bool> = connections.iter().map(ConnectionPermit::is_closing).collect();
        assert_eq!(closing[..3], [true, true, false]);
        assert_eq!(closing.iter().filter(|closing| **closing).count(), 2);
        assert!(!other.is_closing());
    }

    #[test]
    fn pods_that_are_gone_are_forgotten_in_time() {
        let pods = PodConnections::default();
        let kept = ConnectionPermit::for_tests();
        pods.keep("kept", &kept);
        for number in 0..10_000 {
            pods.keep(&number.to_string(), &ConnectionPermit::for_tests());
            assert!(pods.0.lock().connections.len() <= PodConnections::FEW);
        }
        assert!(pods.0.lock().connections.contains_key("kept"));
    }
}
