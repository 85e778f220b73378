//! Events go when nobody has written them for an hour, as on every server, so that they do not pile
//! up.
//!
//! Nobody looks at the clock for that: whoever writes an event takes those away whose time is over.

use std::collections::VecDeque;
use std::sync::Arc;

use jiff::{SignedDuration, Timestamp};
use parking_lot::Mutex;

use crate::api::Shared;
use crate::api::meta;
use crate::api::store::{Object, key};

/// How long an event stays.
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

    /// The next write whose time is over.
    fn take(&self, now: Timestamp) -> Option<Write> {
        let mut writes = self.0.lock();
        writes.pop_front_if(|write| now.duration_since(write.at) >= EVENT_LIFETIME)
    }
}

/// Notes that an event was written, and takes those away that were not for too long.
pub(super) fn written(event: &Object, shared: &Shared) {
    let Some(kind) = shared.kinds.get("v1", "events") else {
        return;
    };
    let now = shared.environment.now();
    while let Some(write) = shared.expiry.take(now) {
        let latest = shared.store.get(kind.table, &write.key);
        if let Some(latest) = latest.filter(|latest| latest.version == write.version) {
            // Somebody who writes it at this moment has saved it.
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
