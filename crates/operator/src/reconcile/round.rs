//! The state that one reconcile carries from round to round.

use std::hash::{BuildHasher, BuildHasherDefault, DefaultHasher};
use std::sync::Arc;
use std::time::Duration;

use trainyard_core::local_state::LocalState;
use trainyard_core::model::Action;

use crate::act::Permit;
use crate::controller::{ReconcileResult, Requeue};
use crate::metrics::Outcome;

/// What a reconcile has done so far. It plans again after every write.
#[derive(Default)]
pub(super) struct Rounds {
    pub(super) replans: u32,
    pub(super) acted: bool,
    /// The processor time that planning took.
    pub(super) cost: Duration,
    /// The server has confirmed that the missing pods are deleted.
    pub(super) absence_is_confirmed: bool,
    /// A fingerprint of the actions of the round before.
    last_actions: Option<u64>,
    /// The outcome to report, if a write failed.
    pub(super) outcome: Option<Outcome>,
    /// The permit for the status write, kept while the status is planned once more.
    pub(super) permit: Option<Permit>,
    /// The job's UID, if this reconcile relies on an unwatched object that it has seen.
    pub(super) relied_on: Option<Arc<str>>,
}

impl Rounds {
    /// Records whether this reconcile relies on the job's Secret or exec right.
    pub(super) fn note_reliance(&mut self, local: &LocalState, uid: &Arc<str>) {
        if local.relies_on_unwatched() {
            self.relied_on = Some(uid.clone());
        }
    }

    /// Returns true if these are the actions of the round before.
    pub(super) fn repeats_last(&mut self, actions: &[Action]) -> bool {
        let fingerprint = BuildHasherDefault::<DefaultHasher>::default().hash_one(actions);
        self.last_actions.replace(fingerprint) == Some(fingerprint)
    }

    /// Forgets the actions of the round before, because they were not carried out.
    pub(super) fn forget_last_actions(&mut self) {
        self.last_actions = None;
    }

    /// The result of a reconcile that has nothing more to do now.
    pub(super) fn result(&self, requeue: Requeue) -> ReconcileResult {
        if self.acted {
            ReconcileResult::new(Outcome::Acted, Requeue::Again)
        } else {
            ReconcileResult::new(Outcome::Quiet, requeue)
        }
    }
}
