//! Feeds requests of one kind into the store, and the keys of their jobs into the queue.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use tokio::sync::Notify;
use tokio::time::Instant;
use trainyard_api::ScaleKind;

use super::store::Store;
use crate::controller::Queue;
use crate::index::{JobKey, Source};
use crate::listwatch::{Error, Sink};
use crate::metrics::{Kind, Metrics};
use crate::slim::Version;

pub(super) struct Feeder {
    pub kind: ScaleKind,
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
        let (version, changed) = self.store.apply(self.kind, json, self.scope, source)?;
        if let Some(job) = changed {
            self.queue.add(job);
        }
        Ok(version)
    }

    fn gone(&self, json: &str) -> Result<Version, serde_json::Error> {
        let (version, changed) = self.store.gone(self.kind, json, self.scope)?;
        if let Some(job) = changed {
            // The next request may have its turn.
            self.queue.add(job);
        }
        Ok(version)
    }

    fn listed(&self, version: Version, _: Instant) {
        self.queue.extend(self.store.listed(self.scope, version));
        self.listed.notify_one();
        if self.failure_is_logged.swap(false, Ordering::Relaxed) {
            tracing::info!(kind = %self.kind, "watched");
        }
    }

    fn bookmark(&self, _: Version) {}

    fn refused(&self) {
        self.store.refused(self.scope);
        self.listed.notify_one();
    }

    fn interrupted(&self, error: Option<&Error>) {
        self.metrics.watch_restarted(match self.kind {
            ScaleKind::ScaleIn => Kind::ScaleIn,
            ScaleKind::ScaleOut => Kind::ScaleOut,
        });
        let Some(error) = error else { return };
        let kind = self.kind;
        let first = !self.failure_is_logged.swap(true, Ordering::Relaxed);
        match error.code() {
            Some(403 | 404) if first => tracing::warn!(
                %kind,
                %error,
                "a kind may not be watched, so that its requests are not carried out: apply the output of `trainyard \
                 install`"
            ),
            _ if first => tracing::warn!(%kind, %error, "a watch was interrupted and is tried again"),
            _ => tracing::debug!(%kind, %error, "a watch was interrupted and is tried again"),
        }
    }
}
