//! The state of each job, computed once for all followers.

use std::collections::HashMap;
use std::sync::Arc;

use parking_lot::Mutex;
use tokio::sync::watch;
use trainyard_core::observe::{Observed, observe};
use trainyard_core::view::View;

use crate::clock::{Clock, monotonic};
use crate::index::{Index, JobKey, Lookup};
use crate::settings::SharedSettings;

/// The latest state of a job, or none if there is no such job.
pub(super) type ObservedJob = Option<Arc<Observed>>;

/// The jobs that have followers.
pub(super) struct Feeds {
    index: Arc<Index>,
    settings: SharedSettings,
    clock: Arc<dyn Clock>,
    followed: Mutex<HashMap<JobKey, watch::Sender<ObservedJob>>>,
}

impl Feeds {
    pub(super) fn new(index: Arc<Index>, settings: SharedSettings, clock: Arc<dyn Clock>) -> Self {
        Self {
            index,
            settings,
            clock,
            followed: Mutex::default(),
        }
    }

    /// Returns the state of a job now.
    pub(super) fn observe_job(&self, key: &JobKey) -> ObservedJob {
        let Some(Lookup::Job(known)) = self.index.get(key) else {
            return None;
        };
        Some(Arc::new(observe(&View {
            job: &known.job,
            frameworks: &self.index.frameworks_for(&known.job),
            pods: &known.pods,
            services: &known.services,
            departed: &known.departed,
            conflicts: &known.conflicts,
            local: &known.local,
            absence_is_confirmed: false,
            refusal: known.refusal.as_deref(),
            progress: known.progress.as_deref(),
            nodes: &known.nodes,
            budgets: None,
            settings: &self.settings.now(),
            now: self.clock.now(),
            instant: monotonic(),
        })))
    }

    /// Follows a job from now on.
    pub(super) fn follow(self: &Arc<Self>, key: &JobKey) -> watch::Receiver<ObservedJob> {
        let mut followed = self.followed.lock();
        if let Some(feed) = followed.get(key) {
            return feed.subscribe();
        }
        // First the subscription, then the state: a change in between is seen.
        let news = self.index.follow(key);
        let (feed, receiver) = watch::channel(self.observe_job(key));
        followed.insert(key.clone(), feed);
        tokio::spawn(self.clone().feed(key.clone(), news));
        receiver
    }

    /// Computes the state of a job whenever it changes, until it has no follower.
    async fn feed(self: Arc<Self>, key: JobKey, mut news: watch::Receiver<u64>) {
        let Some(feed) = self.followed.lock().get(&key).cloned() else {
            return;
        };
        loop {
            tokio::select! {
                known = news.changed() => if known.is_err() { return },
                () = feed.closed() => {
                    let mut followed = self.followed.lock();
                    // A follower may have come while the last one left.
                    if feed.receiver_count() == 0 {
                        followed.remove(&key);
                        return;
                    }
                }
            }
            let seen = self.observe_job(&key);
            feed.send_if_modified(|last| {
                let changed = *last != seen;
                *last = seen;
                changed
            });
        }
    }
}
