//! Connections without an authenticated request yet: when there are too many, the oldest is closed.

use std::collections::VecDeque;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use tokio::task::AbortHandle;

const MAX_UNAUTHENTICATED: usize = 256;

/// Whether a connection has had an authenticated request.
#[derive(Clone, Debug, Default)]
pub(super) struct Authenticated(Arc<AtomicBool>);

impl Authenticated {
    pub(super) fn set(&self) {
        self.0.store(true, Ordering::Relaxed);
    }

    fn is_set(&self) -> bool {
        self.0.load(Ordering::Relaxed)
    }
}

/// The oldest first.
#[derive(Debug, Default)]
pub(super) struct UnauthenticatedConnections(VecDeque<(AbortHandle, Authenticated)>);

impl UnauthenticatedConnections {
    /// Adds a connection. If there are too many, the oldest is closed.
    pub(super) fn add(&mut self, task: AbortHandle, authenticated: Authenticated) {
        self.0
            .retain(|(task, authenticated)| !task.is_finished() && !authenticated.is_set());
        self.0.push_back((task, authenticated));
        if self.0.len() > MAX_UNAUTHENTICATED
            && let Some((oldest, _)) = self.0.pop_front()
        {
            oldest.abort();
        }
    }
}
