//! Connections of which nobody knows yet whose they are: they make room for others.

use std::collections::VecDeque;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use tokio::task::AbortHandle;

/// How many there may be at a time.
pub(super) const MOST: usize = 256;

/// Whether somebody has shown who they are.
#[derive(Clone, Debug, Default)]
pub(super) struct Known(Arc<AtomicBool>);

impl Known {
    /// They have.
    pub(super) fn note(&self) {
        self.0.store(true, Ordering::Relaxed);
    }

    fn is_noted(&self) -> bool {
        self.0.load(Ordering::Relaxed)
    }
}

/// Connections on which nobody has shown who they are, the oldest first.
#[derive(Debug, Default)]
pub(super) struct Newcomers(VecDeque<(AbortHandle, Known)>);

impl Newcomers {
    /// One more. If there are too many, the oldest goes.
    pub(super) fn add(&mut self, task: AbortHandle, known: Known) {
        self.0
            .retain(|(task, known)| !task.is_finished() && !known.is_noted());
        self.0.push_back((task, known));
        if self.0.len() > MOST
            && let Some((oldest, _)) = self.0.pop_front()
        {
            oldest.abort();
        }
    }
}
