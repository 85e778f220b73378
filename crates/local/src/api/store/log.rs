//! The events of a table, for watches.

use std::collections::VecDeque;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Weak};

use tokio::sync::watch;

use super::Stored;

/// How many times its size the log may grow for slow watches.
const MAX_GROWTH: usize = 16;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Happening {
    Added,
    Modified,
    Deleted,
}

#[derive(Clone, Debug)]
pub(crate) struct Event {
    pub(crate) version: u64,
    pub(crate) happening: Happening,
    pub(super) key: Arc<str>,
    /// The new object, or its last state.
    pub(crate) object: Arc<Stored>,
    pub(crate) previous: Option<Arc<Stored>>,
}

/// The requested version is too old.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Compacted {
    pub(crate) wanted: u64,
    /// The oldest version whose later events are all kept.
    pub(crate) oldest: u64,
}

#[derive(Debug)]
pub(super) struct Log {
    events: VecDeque<Event>,
    /// Events up to this version were dropped.
    forgotten: u64,
    changed: watch::Sender<()>,
    readers: Vec<Weak<AtomicU64>>,
}

impl Default for Log {
    fn default() -> Self {
        Self {
            events: VecDeque::new(),
            forgotten: 0,
            changed: watch::Sender::new(()),
            readers: Vec::new(),
        }
    }
}

#[derive(Debug)]
pub(crate) struct Reader {
    version: Arc<AtomicU64>,
    changed: watch::Receiver<()>,
}

impl Reader {
    /// The version up to which it has read.
    pub(crate) fn version(&self) -> u64 {
        self.version.load(Ordering::Relaxed)
    }

    pub(super) fn reached(&mut self, version: u64) {
        self.version.store(version, Ordering::Relaxed);
    }

    /// Waits for the next event.
    pub(crate) async fn changed(&mut self) {
        if self.changed.changed().await.is_err() {
            // The store is gone.
            std::future::pending::<()>().await;
        }
    }
}

impl Log {
    pub(super) fn push(
        &mut self,
        happening: Happening,
        key: Arc<str>,
        object: Arc<Stored>,
        previous: Option<Arc<Stored>>,
        memory: usize,
    ) {
        self.events.push_back(Event {
            version: object.version,
            happening,
            key,
            object,
            previous,
        });
        self.trim(memory);
        self.changed.send_replace(());
    }

    fn trim(&mut self, memory: usize) {
        if self.events.len() <= memory {
            return;
        }
        self.readers.retain(|reader| reader.strong_count() > 0);
        let slowest = self.readers.iter().filter_map(Weak::upgrade);
        let slowest = slowest
            .map(|version| version.load(Ordering::Relaxed))
            .min()
            .unwrap_or(u64::MAX);
        while self.events.len() > memory {
            let needed = self.events.front().is_some_and(|event| event.version > slowest);
            if needed && self.events.len() <= memory.saturating_mul(MAX_GROWTH) {
                return;
            }
            if let Some(event) = self.events.pop_front() {
                self.forgotten = event.version;
            }
        }
    }

    pub(super) fn knows(&self, version: u64) -> Result<(), Compacted> {
        if version < self.forgotten {
            return Err(Compacted {
                wanted: version,
                oldest: self.forgotten,
            });
        }
        Ok(())
    }

    pub(super) fn since(&self, version: u64) -> Result<impl Iterator<Item = &Event>, Compacted> {
        self.knows(version)?;
        let first = self.events.partition_point(|event| event.version <= version);
        Ok(self.events.range(first..))
    }

    pub(super) fn forget(&mut self, version: u64) {
        self.events.clear();
        self.forgotten = version;
    }

    pub(super) fn reader(&mut self, version: u64) -> Reader {
        let version = Arc::new(AtomicU64::new(version));
        self.readers.push(Arc::downgrade(&version));
        Reader {
            version,
            changed: self.changed.subscribe(),
        }
    }
}
