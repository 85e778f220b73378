//! Writes that are not sent again before a time.

use std::collections::{HashMap, HashSet};
use std::sync::Arc;

use tokio::time::Instant;
use trainyard_core::model::Action;

use super::Index;

/// The pause before a write is sent again.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Pause {
    /// Until when.
    pub until: Instant,
    /// How often in a row it was sent, to no effect.
    pub tries: u32,
}

/// The writes of a job that wait. Hardly any job has some, and that costs a word of memory.
#[derive(Clone, Debug, Default)]
pub struct Pauses(Option<Arc<HashMap<Action, Pause>>>);

impl Pauses {
    /// Whether nothing waits.
    pub fn is_empty(&self) -> bool {
        self.0.is_none()
    }

    /// The pause of a write.
    pub fn get(&self, action: &Action) -> Option<Pause> {
        self.0.as_ref()?.get(action).copied()
    }
}

impl Index {
    /// Lets writes for a job wait.
    pub fn pause(&self, owner: &str, pauses: Vec<(Action, Pause)>) {
        if !pauses.is_empty()
            && let Some(owner) = self.lock().owners.get_mut(owner)
        {
            Arc::make_mut(owner.pauses.0.get_or_insert_default()).extend(pauses);
        }
    }

    /// Forgets the pauses of writes that are not wanted any more.
    pub fn forget_pauses(&self, owner: &str, wanted: &HashSet<&Action>) {
        if let Some(owner) = self.lock().owners.get_mut(owner)
            && let Some(pauses) = &mut owner.pauses.0
            && pauses.keys().any(|action| !wanted.contains(action))
        {
            Arc::make_mut(pauses).retain(|action, _| wanted.contains(action));
            owner.pauses.0.take_if(|pauses| pauses.is_empty());
        }
    }
}
