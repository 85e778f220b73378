//! Writes that are not sent again before a time.

use std::collections::{HashMap, HashSet};
use std::sync::Arc;

use tokio::time::Instant;
use trainyard_core::model::Action;

use super::Index;

/// The pause before a write is sent again.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct WriteBackoff {
    /// Until when.
    pub until: Instant,
    /// How often in a row it was sent, to no effect.
    pub tries: u32,
}

/// The writes of a job that wait. Hardly any job has some, and that costs a word of local.
#[derive(Clone, Debug, Default)]
pub struct WriteBackoffs(Option<Arc<HashMap<Action, WriteBackoff>>>);

impl WriteBackoffs {
    /// Whether nothing waits.
    pub fn is_empty(&self) -> bool {
        self.0.is_none()
    }

    /// The pause of a write.
    pub fn get(&self, action: &Action) -> Option<WriteBackoff> {
        self.0.as_ref()?.get(action).copied()
    }
}

impl Index {
    /// Lets writes for a job wait.
    pub fn back_off(&self, owner: &str, backoffs: Vec<(Action, WriteBackoff)>) {
        if !backoffs.is_empty()
            && let Some(owner) = self.lock().owners.get_mut(owner)
        {
            Arc::make_mut(owner.backoffs.0.get_or_insert_default()).extend(backoffs);
        }
    }

    /// Forgets the backoffs of writes that are not wanted any more.
    pub fn forget_backoffs(&self, owner: &str, wanted: &HashSet<&Action>) {
        if let Some(owner) = self.lock().owners.get_mut(owner)
            && let Some(backoffs) = &mut owner.backoffs.0
            && backoffs.keys().any(|action| !wanted.contains(action))
        {
            Arc::make_mut(backoffs).retain(|action, _| wanted.contains(action));
            owner.backoffs.0.take_if(|backoffs| backoffs.is_empty());
        }
    }
}
