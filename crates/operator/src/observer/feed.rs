//! What is told of each job, computed once for all who follow it.

use std::collections::HashMap;
use std::sync::Arc;

use parking_lot::Mutex;
use tokio::sync::watch;
use trainyard_core::observe::{Observed, observe};
use trainyard_core::view::View;

use crate::clock::{Clock, monotonic};
use crate::index::{Index, JobKey, Lookup};
use crate::settings::SharedSettings;

/// A job as it was last seen; none if it is not there.
pub(super) type Seen = Option<Arc<Observed>>;

/// The jobs that somebody follows.
pub(super) struct Feeds {
    index: Arc<Index>,
    settings: SharedSettings,
    clock: Arc<dyn Clock>,
    followed: Mutex<HashMap<JobKey, watch::Sender<Seen>>>,
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

    /// A job at this moment.
    pub(super) fn look(&self, key: &JobKey) -> Seen {
        let Some(Lookup::Job(known)) = self.index.get(key) else {
            return None;
        };
        Some(Arc::new(observe(&View {
            job: &known.job,
            pods: &known.pods,
            services: &known.services,
            departed: &known.departed,
            conflicts: &known.conflicts,
            local: &known.local,
            absence_is_confirmed: false,
            refusal: known.refusal.as_deref(),
            progress: known.progress.as_deref(),
            nodes: &known.nodes,
            settings: &self.settings.now(),
            now: self.clock.now(),
            instant: monotonic(),
        })))
    }

    /// A job from now on.
    pub(super) fn follow(self: &Arc<Self>, key: &JobKey) -> watch::Receiver<Seen> {
        let mut followed = self.followed.lock();
        if let Some(feed) = followed.get(key) {
            return feed.subscribe();
        }
        // First the change, then the look: what changes in between is looked at again.
        let news = self.index.follow(key);
        let (feed, receiver) = watch::channel(self.look(key));
        followed.insert(key.clone(), feed);
        tokio::spawn(self.clone().feed(key.clone(), news));
        receiver
    }

    /// Looks at a job whenever it changes, until nobody follows it any more.
    async fn feed(self: Arc<Self>, key: JobKey, mut news: watch::Receiver<u64>) {
        let Some(feed) = self.followed.lock().get(&key).cloned() else {
            return;
        };
        loop {
            tokio::select! {
                known = news.changed() => if known.is_err() { return },
                () = feed.closed() => {
                    let mut followed = self.followed.lock();
                    // Somebody may have come while the last one went.
                    if feed.receiver_count() == 0 {
                        followed.remove(&key);
                        return;
                    }
                }
            }
            let seen = self.look(&key);
            feed.send_if_modified(|last| {
                let changed = *last != seen;
                *last = seen;
                changed
            });
        }
    }
}
