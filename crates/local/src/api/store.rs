//! Versions, objects, and the log that watches read. Nothing here knows what an object means; only
//! that each has a version, a UID, and owners that are other objects' UIDs.
//!
//! One lock guards everything and is held for a look-up or an insertion, never while an object is
//! read or written as JSON. A write names the version that it was computed from, and is refused if
//! that is no longer the latest.

mod log;
mod object;

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::ops::Bound;
use std::sync::Arc;

use log::Log;
pub(crate) use log::{Compacted, Event, Happening, Reader};
pub(crate) use object::{Draft, Head, Object, Stored, key};
use parking_lot::Mutex;

/// A kind's place in the store.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) struct TableId(usize);

/// The table of an object, and its key in that table.
pub(crate) type ObjectKey = (TableId, Arc<str>);

/// Why an object was not written.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum WriteError {
    /// There is an object of that name already.
    Exists,
    /// The object is not there, or not in the version that the write was computed from.
    Changed,
}

/// The store.
#[derive(Debug)]
pub(crate) struct Store {
    inner: Mutex<Inner>,
    /// How many events each table remembers for watches that come later.
    memory: usize,
}

#[derive(Debug, Default)]
struct Inner {
    version: u64,
    tables: Vec<Table>,
    /// Every object by its UID.
    uids: HashMap<Box<str>, ObjectKey>,
    /// By the UID of an owner, whether or not there is one, those that name it.
    dependents: HashMap<Box<str>, BTreeSet<ObjectKey>>,
}

#[derive(Debug, Default)]
struct Table {
    objects: BTreeMap<Arc<str>, Arc<Stored>>,
    log: Log,
}

/// A part of a table, and the version that it was in.
#[derive(Debug)]
pub(crate) struct Page {
    pub(crate) objects: Vec<Arc<Stored>>,
    pub(crate) version: u64,
}

impl Store {
    /// An empty store whose tables remember so many events.
    pub(crate) fn new(memory: usize) -> Self {
        let inner = Mutex::new(Inner {
            // Clients take 0 for "any version".
            version: 1,
            ..Inner::default()
        });
        Self { inner, memory }
    }

    /// Adds a table.
    pub(crate) fn add_table(&self) -> TableId {
        let mut inner = self.inner.lock();
        inner.tables.push(Table::default());
        TableId(inner.tables.len() - 1)
    }

    /// The latest version of anything.
    pub(crate) fn version(&self) -> u64 {
        self.inner.lock().version
    }

    /// An object in its latest version.
    pub(crate) fn get(&self, table: TableId, key: &str) -> Option<Arc<Stored>> {
        self.inner.lock().tables.get(table.0)?.objects.get(key).cloned()
    }

    /// Whether there is an object of that UID, and where.
    pub(crate) fn find(&self, uid: &str) -> Option<ObjectKey> {
        self.inner.lock().uids.get(uid).cloned()
    }

    /// The objects that name a UID as their owner's.
    pub(crate) fn dependents(&self, uid: &str) -> Vec<ObjectKey> {
        self.inner
            .lock()
            .dependents
            .get(uid)
            .into_iter()
            .flatten()
            .cloned()
            .collect()
    }

    /// Whether any of the owners that an object names is not there, or not where an owner can be:
    /// in the same namespace, or in none.
    pub(crate) fn lacks_an_owner(&self, head: &Head) -> bool {
        let inner = self.inner.lock();
        head.owners.iter().any(|owner| {
            let place = inner.uids.get(owner);
            place.is_none_or(|(_, key)| {
                key.split_once('/')
                    .is_some_and(|(namespace, _)| *namespace != *head.namespace)
            })
        })
    }

    /// All tables that hold something of a namespace.
    pub(crate) fn tables_of(&self, namespace: &str) -> Vec<TableId> {
        let inner = self.inner.lock();
        let tables = inner.tables.iter().enumerate();
        let holding = tables.filter(|(_, table)| table.within(namespace, None).next().is_some());
        holding.map(|(at, _)| TableId(at)).collect()
    }

    /// Stores a new object.
    pub(crate) fn insert(&self, table: TableId, draft: &Draft) -> Result<Arc<Stored>, WriteError> {
        let key = draft.head.key();
        let mut inner = self.inner.lock();
        let exists = inner
            .table(table)
            .is_none_or(|table| table.objects.contains_key(&key));
        if exists {
            return Err(WriteError::Exists);
        }
        let stored = inner.next(draft);
        inner.link(table, &key, &stored.head);
        inner.put(table, key, stored.clone(), None, self.memory);
        Ok(stored)
    }

    /// Stores an object in place of its version `expected`. Where nothing changes, nothing is
    /// written.
    pub(crate) fn replace(
        &self,
        table: TableId,
        expected: &Stored,
        draft: &Draft,
    ) -> Result<Arc<Stored>, WriteError> {
        let key = draft.head.key();
        let mut inner = self.inner.lock();
        let former = inner.expect(table, &key, expected)?;
        if draft.says_the_same_as(&former) {
            return Ok(former);
        }
        let stored = inner.next(draft);
        if former.head.owners != stored.head.owners {
            inner.unlink(table, &key, &former.head);
            inner.link(table, &key, &stored.head);
        }
        inner.put(table, key, stored.clone(), Some(former), self.memory);
        Ok(stored)
    }

    /// Removes the version `expected` of an object. What is left of it carries the version of its
    /// removal.
    pub(crate) fn remove(&self, table: TableId, expected: &Stored) -> Result<Arc<Stored>, WriteError> {
        let key = expected.head.key();
        let mut inner = self.inner.lock();
        let former = inner.expect(table, &key, expected)?;
        inner.version += 1;
        let last = Arc::new(former.at(inner.version));
        inner.unlink(table, &key, &former.head);
        if let Some(table) = inner.tables.get_mut(table.0) {
            table.objects.remove(&key);
            table
                .log
                .push(Happening::Deleted, key, last.clone(), Some(former), self.memory);
        }
        Ok(last)
    }

    /// The objects of a namespace (of all, if it is empty) after a key, in order. At a version, if
    /// one is given, which must not be forgotten yet.
    pub(crate) fn list(
        &self,
        table: TableId,
        namespace: &str,
        after: Option<&str>,
        at: Option<u64>,
    ) -> Result<Page, Compacted> {
        let inner = self.inner.lock();
        let version = at.unwrap_or(inner.version);
        let Some(table) = inner.tables.get(table.0) else {
            return Ok(Page {
                objects: Vec::new(),
                version,
            });
        };
        let now = table
            .within(namespace, after)
            .map(|(key, object)| (key.clone(), object.clone()));
        if version == inner.version {
            let objects = now.map(|(_, object)| object).collect();
            return Ok(Page { objects, version });
        }
        let since = table.log.since(version)?;
        // What each object was before the first change that came after the version.
        let mut then: BTreeMap<Arc<str>, Option<Arc<Stored>>> = BTreeMap::new();
        for event in since {
            then.entry(event.key.clone())
                .or_insert_with(|| event.previous.clone());
        }
        let mut objects: Vec<(Arc<str>, Arc<Stored>)> =
            now.filter(|(key, _)| !then.contains_key(key)).collect();
        let others = then.into_iter().filter_map(|(key, object)| Some((key, object?)));
        objects.extend(others.filter(|(key, _)| belongs(key, namespace, after)));
        // Two runs, each in order: this is cheap.
        objects.sort_by(|(one, _), (other, _)| one.cmp(other));
        let objects = objects.into_iter().map(|(_, object)| object).collect();
        Ok(Page { objects, version })
    }

    /// Follows a table: all that is there now, and a reader of what happens from now on.
    pub(crate) fn follow(&self, table: TableId, namespace: &str) -> (Page, Reader) {
        let mut inner = self.inner.lock();
        let version = inner.version;
        let Some(table) = inner.table(table) else {
            let reader = Log::default().reader(version);
            return (
                Page {
                    objects: Vec::new(),
                    version,
                },
                reader,
            );
        };
        let objects = table
            .within(namespace, None)
            .map(|(_, object)| object.clone())
            .collect();
        (Page { objects, version }, table.log.reader(version))
    }

    /// Follows a table from a version on.
    pub(crate) fn follow_since(&self, table: TableId, version: u64) -> Result<Reader, Compacted> {
        let mut inner = self.inner.lock();
        match inner.table(table) {
            Some(table) => {
                table.log.knows(version)?;
                Ok(table.log.reader(version))
            }
            None => Ok(Log::default().reader(version)),
        }
    }

    /// What has happened since a reader last read, at most so many events, and how far it has read
    /// then.
    pub(crate) fn read(
        &self,
        table: TableId,
        reader: &mut Reader,
        most: usize,
    ) -> Result<Vec<Event>, Compacted> {
        let inner = self.inner.lock();
        let Some(table) = inner.tables.get(table.0) else {
            return Ok(Vec::new());
        };
        let events: Vec<Event> = table.log.since(reader.version())?.take(most).cloned().collect();
        match events.last() {
            Some(last) => reader.reached(last.version),
            // A reader may wait for a version that is not there yet.
            None => reader.reached(inner.version.max(reader.version())),
        }
        Ok(events)
    }

    /// Forgets all events: watches from a version of the past must then begin anew.
    pub(crate) fn compact(&self) {
        let mut inner = self.inner.lock();
        let version = inner.version;
        for table in &mut inner.tables {
            table.log.forget(version);
        }
    }
}

impl Inner {
    fn table(&mut self, table: TableId) -> Option<&mut Table> {
        self.tables.get_mut(table.0)
    }

    fn expect(&mut self, table: TableId, key: &str, expected: &Stored) -> Result<Arc<Stored>, WriteError> {
        let found = self.table(table).and_then(|table| table.objects.get(key));
        let found = found.filter(|found| found.version == expected.version);
        found.cloned().ok_or(WriteError::Changed)
    }

    fn next(&mut self, draft: &Draft) -> Arc<Stored> {
        self.version += 1;
        Arc::new(draft.stored(self.version))
    }

    fn put(
        &mut self,
        table: TableId,
        key: Arc<str>,
        stored: Arc<Stored>,
        former: Option<Arc<Stored>>,
        memory: usize,
    ) {
        let happening = if former.is_some() {
            Happening::Modified
        } else {
            Happening::Added
        };
        if let Some(table) = self.table(table) {
            table.objects.insert(key.clone(), stored.clone());
            table.log.push(happening, key, stored, former, memory);
        }
    }

    fn link(&mut self, table: TableId, key: &Arc<str>, head: &Head) {
        let place = (table, key.clone());
        for owner in &head.owners {
            self.dependents
                .entry(owner.clone())
                .or_default()
                .insert(place.clone());
        }
        self.uids.insert(head.uid.clone(), place);
    }

    fn unlink(&mut self, table: TableId, key: &Arc<str>, head: &Head) {
        let place = (table, key.clone());
        for owner in &head.owners {
            if let Some(dependents) = self.dependents.get_mut(owner) {
                dependents.remove(&place);
                if dependents.is_empty() {
                    self.dependents.remove(owner);
                }
            }
        }
        self.uids.remove(&head.uid);
    }
}

impl Table {
    fn within(
        &self,
        namespace: &str,
        after: Option<&str>,
    ) -> impl Iterator<Item = (&Arc<str>, &Arc<Stored>)> {
        let first = format!("{namespace}/");
        let begin = match after {
            Some(after) => Bound::Excluded(after),
            None if namespace.is_empty() => Bound::Unbounded,
            None => Bound::Included(first.as_str()),
        };
        let all = namespace.is_empty();
        let objects = self.objects.range::<str, _>((begin, Bound::Unbounded));
        objects.take_while(move |(key, _)| all || key.starts_with(&first))
    }
}

fn belongs(key: &str, namespace: &str, after: Option<&str>) -> bool {
    let within = namespace.is_empty()
        || key
            .strip_prefix(namespace)
            .is_some_and(|rest| rest.starts_with('/'));
    within && after.is_none_or(|after| key > after)
}

#[cfg(test)]
mod tests;
