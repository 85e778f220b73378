//! What one reconcile carries from round to round.

use std::hash::{BuildHasher, BuildHasherDefault, DefaultHasher};
use std::sync::Arc;
use std::time::Duration;

use tokio::time::Instant;
use trainyard_core::model::Action;
use trainyard_core::view::SecretState;

use super::result::{ReconcileResult, Requeue};
use crate::act::Permit;
use crate::index::LocalState;
use crate::metrics::Outcome;

/// What a reconcile has done so far. It plans again after every write, in up to eight rounds.
#[derive(Default)]
pub(super) struct Round {
    pub(super) rounds: u32,
    pub(super) acted: bool,
    pub(super) cost: Duration,
    /// The server has confirmed that the missing pods are gone.
    pub(super) searched: bool,
    /// A fingerprint of the actions of the round before.
    did: Option<u64>,
    /// The outcome to report, if a write failed on the way.
    pub(super) outcome: Option<Outcome>,
    /// The permit for the status write, held while the status is planned once more.
    pub(super) permit: Option<Permit>,
    /// The job's UID, if this reconcile relies on an unwatched object that it has seen.
    pub(super) made_sure: Option<Arc<str>>,
}

impl Round {
    /// Notes whether the job's Secret or its exec right has been seen.
    pub(super) fn note_sure(&mut self, local: LocalState, uid: &Arc<str>) {
        if matches!(local.secret, SecretState::There(_)) || local.grant_is_sure {
            self.made_sure = Some(uid.clone());
        }
    }

    /// Returns true if these are the actions of the round before.
    pub(super) fn did_just(&mut self, actions: &[Action]) -> bool {
        let did = BuildHasherDefault::<DefaultHasher>::default().hash_one(actions);
        self.did.replace(did) == Some(did)
    }

    /// The actions of the round before were not carried out.
    pub(super) fn forget_did(&mut self) {
        self.did = None;
    }
}

/// What one round has come to so far.
pub(super) struct RoundResult {
    pub(super) acted: bool,
    pub(super) next: Option<Instant>,
}

impl RoundResult {
    pub(super) fn at(&mut self, when: Instant) {
        self.next = Some(self.next.map_or(when, |next| next.min(when)));
    }

    pub(super) fn verdict(self) -> ReconcileResult {
        match (self.acted, self.next) {
            (true, _) => ReconcileResult::new(Outcome::Acted, Requeue::Again),
            (false, Some(at)) => ReconcileResult::new(Outcome::Quiet, Requeue::At(at)),
            (false, None) => ReconcileResult::REST,
        }
    }
}
