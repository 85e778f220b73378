//! Feeds the objects of one kind into the store, and the keys of changed ones into the queue.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use tokio::sync::Notify;
use tokio::time::Instant;
use trainyard_core::foreign::ForeignKind;

use super::store::Store;
use crate::controller::Queue;
use crate::index::{JobKey, Source};
use crate::listwatch::{Error, Sink};
use crate::metrics::{Foreign, Metrics};
use crate::slim::Version;

pub(super) struct Feeder {
    pub kind: &'static dyn ForeignKind,
    pub scope: usize,
    pub store: Arc<Store>,
    pub queue: Arc<Queue<JobKey>>,
    pub listed: Arc<Notify>,
    pub metrics: Arc<Metrics>,
    pub failure_is_logged: AtomicBool,
}

impl Sink for Feeder {
    fn listing(&self, version: Version) {
        self.store.listing(self.scope, version);
    }

    fn object(&self, json: &str, source: Source) -> Result<Version, serde_json::Error> {
        let (version, changed) = self.store.apply(json, self.scope, source)?;
        if let Some(key) = changed {
            self.queue.add(key);
        }
        Ok(version)
    }

    fn gone(&self, json: &str) -> Result<Version, serde_json::Error> {
        self.store.gone(json, self.scope)
    }

    fn listed(&self, version: Version, _: Instant) {
        self.store.listed(self.scope, version);
        self.listed.notify_one();
        if self.failure_is_logged.swap(false, Ordering::Relaxed) {
            tracing::info!(kind = self.kind.flag(), "served");
        }
    }

    fn bookmark(&self, _: Version) {}

    fn refused(&self) {
        self.store.refused(self.scope);
        self.listed.notify_one();
    }

    fn interrupted(&self, error: Option<&Error>) {
        self.metrics.watch_restarted(Foreign::new(self.kind));
        let Some(error) = error else { return };
        let kind = self.kind.flag();
        let first = !self.failure_is_logged.swap(true, Ordering::Relaxed);
        match error.code() {
            Some(404) if first => tracing::warn!(
                kind,
                "the cluster has no {} of {}/{}: it is served as soon as there is one",
                self.kind.kind(),
                self.kind.group(),
                self.kind.version()
            ),
            Some(403) if first => tracing::warn!(
                kind,
                %error,
                "a kind may not be watched: apply the output of `trainyard install --compat={kind}`"
            ),
            _ if first => tracing::warn!(kind, %error, "a watch was interrupted and is tried again"),
            _ => tracing::debug!(kind, %error, "a watch was interrupted and is tried again"),
        }
    }
}
