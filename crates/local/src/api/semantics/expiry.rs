//! Events expire an hour after their last write, as on every server.
//!
//! There is no timer: every write of an event removes those that have expired.

use std::collections::VecDeque;
use std::sync::Arc;

use jiff::{SignedDuration, Timestamp};
use parking_lot::Mutex;

use crate::api::Shared;
use crate::api::meta;
use crate::api::store::{Object, key};

const EVENT_LIFETIME: SignedDuration = SignedDuration::from_hours(1);

/// The writes of events, the oldest first.
#[derive(Debug, Default)]
pub(crate) struct Expiry(Mutex<VecDeque<Write>>);

#[derive(Debug)]
struct Write {
    at: Timestamp,
    key: Arc<str>,
    version: u64,
}

impl Expiry {
    fn note(&self, write: Write) {
        let mut writes = self.0.lock();
        writes.push_back(write);
    }

    /// The next expired write.
    fn take(&self, now: Timestamp) -> Option<Write> {
        let mut writes = self.0.lock();
        writes.pop_front_if(|write| now.duration_since(write.at) >= EVENT_LIFETIME)
    }
}

/// Records the write of an event, and removes expired ones.
pub(super) fn written(event: &Object, shared: &Shared) {
    let Some(kind) = shared.kinds.get("v1", "events") else {
        return;
    };
    let now = shared.environment.now();
    while let Some(write) = shared.expiry.take(now) {
        let latest = shared.store.get(kind.table, &write.key);
        if let Some(latest) = latest.filter(|latest| latest.version == write.version) {
            // Fails if the event was written just now.
            drop(shared.store.remove(kind.table, &latest));
        }
    }
    let key = key(meta::text(event, "namespace"), meta::text(event, "name"));
    if let Some(stored) = shared.store.get(kind.table, &key) {
        shared.expiry.note(Write {
            at: now,
            key,
            version: stored.version,
        });
    }
}
