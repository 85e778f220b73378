//! What a reconcile has done so far, and what one look has come to.

use std::hash::{BuildHasher, BuildHasherDefault, DefaultHasher};
use std::sync::Arc;
use std::time::Duration;

use tokio::time::Instant;
use trainyard_core::model::Action;
use trainyard_core::view::SecretState;

use super::verdict::{Next, Verdict};
use crate::act::Place;
use crate::index::Memory;
use crate::metrics::Outcome;

/// What a reconcile has done so far.
#[derive(Default)]
pub(super) struct Work {
    pub(super) rounds: u32,
    pub(super) acted: bool,
    pub(super) cost: Duration,
    /// It has been made sure that pods are gone that are not there.
    pub(super) searched: bool,
    /// A fingerprint of what was last done.
    did: Option<u64>,
    /// How it ends, if something failed on the way.
    pub(super) outcome: Option<Outcome>,
    /// The place from which the status is written.
    pub(super) place: Option<Place>,
    /// The UID of the job, if something that is not watched is known to be there, because pods are to be created.
    pub(super) made_sure: Option<Arc<str>>,
}

impl Work {
    /// What is known of the job's Secret, and of its right.
    pub(super) fn note_sure(&mut self, memory: Memory, uid: &Arc<str>) {
        if matches!(memory.secret, SecretState::There(_)) || memory.grant_is_sure {
            self.made_sure = Some(uid.clone());
        }
    }

    /// Whether the same was done the last time.
    pub(super) fn did_just(&mut self, actions: &[Action]) -> bool {
        let did = BuildHasherDefault::<DefaultHasher>::default().hash_one(actions);
        self.did.replace(did) == Some(did)
    }

    /// What was to be done last was not.
    pub(super) fn forget_did(&mut self) {
        self.did = None;
    }
}

/// What one look has come to so far.
pub(super) struct Progress {
    pub(super) acted: bool,
    pub(super) next: Option<Instant>,
}

impl Progress {
    pub(super) fn at(&mut self, when: Instant) {
        self.next = Some(self.next.map_or(when, |next| next.min(when)));
    }

    pub(super) fn verdict(self) -> Verdict {
        match (self.acted, self.next) {
            (true, _) => Verdict::new(Outcome::Acted, Next::Again),
            (false, Some(at)) => Verdict::new(Outcome::Quiet, Next::At(at)),
            (false, None) => Verdict::REST,
        }
    }
}
