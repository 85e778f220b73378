//! Versions, objects, and the log that watches read. The store knows of an object only its key, its
//! version, its UID and the UIDs of its owners.
//!
//! One lock guards everything. It is held for a lookup or an insertion, never while JSON is encoded
//! or decoded. A write names the version that it is based on, and is refused if that is not the
//! latest.

mod log;
mod object;

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::ops::Bound;
use std::sync::Arc;

use log::Log;
pub(crate) use log::{Compacted, Event, Happening, Reader};
pub(crate) use object::{Draft, Head, Object, Stored, key};
use parking_lot::Mutex;

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) struct TableId(usize);

/// The table of an object, and its key in that table.
pub(crate) type ObjectKey = (TableId, Arc<str>);

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum WriteError {
    Exists,
    /// The object does not exist, or has another version.
    Changed,
}

#[derive(Debug)]
pub(crate) struct Store {
    inner: Mutex<Inner>,
    /// How many events each table keeps.
    memory: usize,
}

#[derive(Debug, Default)]
struct Inner {
    version: u64,
    tables: Vec<Table>,
    uids: HashMap<Box<str>, ObjectKey>,
    /// Dependents by the UID of an owner, which need not exist.
    dependents: HashMap<Box<str>, BTreeSet<ObjectKey>>,
}

#[derive(Debug, Default)]
struct Table {
    objects: BTreeMap<Arc<str>, Arc<Stored>>,
    log: Log,
}

/// A part of a table at a version.
#[derive(Debug)]
pub(crate) struct Page {
    pub(crate) objects: Vec<Arc<Stored>>,
    pub(crate) version: u64,
}

impl Store {
    pub(crate) fn new(memory: usize) -> Self {
        let inner = Mutex::new(Inner {
            // Version 0 means any version to clients.
            version: 1,
            ..Inner::default()
        });
        Self { inner, memory }
    }

    pub(crate) fn add_table(&self) -> TableId {
        let mut inner = self.inner.lock();
        inner.tables.push(Table::default());
        TableId(inner.tables.len() - 1)
    }

    /// The latest version.
    pub(crate) fn version(&self) -> u64 {
        self.inner.lock().version
    }

    pub(crate) fn get(&self, table: TableId, key: &str) -> Option<Arc<Stored>> {
        self.inner.lock().tables.get(table.0)?.objects.get(key).cloned()
    }

    /// The object with a UID.
    pub(crate) fn find(&self, uid: &str) -> Option<ObjectKey> {
        self.inner.lock().uids.get(uid).cloned()
    }

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

    /// Whether an owner of an object does not exist, or is in another namespace.
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

    pub(crate) fn tables_of(&self, namespace: &str) -> Vec<TableId> {
        let inner = self.inner.lock();
        let tables = inner.tables.iter().enumerate();
        let holding = tables.filter(|(_, table)| table.within(namespace, None).next().is_some());
        holding.map(|(at, _)| TableId(at)).collect()
    }

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

    /// Replaces the version `expected` of an object, unless nothing changes.
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

    /// Removes the version `expected` of an object. The returned object has the version of the
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

    /// The objects of a namespace (of all, if it is empty) after a key, in order; at a version if
    /// one is given, which must not be compacted.
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
        // Each object before its first change after the version.
        let mut then: BTreeMap<Arc<str>, Option<Arc<Stored>>> = BTreeMap::new();
        for event in since {
            then.entry(event.key.clone())
                .or_insert_with(|| event.previous.clone());
        }
        let mut objects: Vec<(Arc<str>, Arc<Stored>)> =
            now.filter(|(key, _)| !then.contains_key(key)).collect();
        let others = then.into_iter().filter_map(|(key, object)| Some((key, object?)));
        objects.extend(others.filter(|(key, _)| belongs(key, namespace, after)));
        // Cheap, because both parts are sorted.
        objects.sort_by(|(one, _), (other, _)| one.cmp(other));
        let objects = objects.into_iter().map(|(_, object)| object).collect();
        Ok(Page { objects, version })
    }

    /// The objects of a table, and a reader of all later events.
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

    /// A reader of all events after a version.
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

    /// The next events of a reader, up to a limit.
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
            // A reader may be ahead of the store.
            None => reader.reached(inner.version.max(reader.version())),
        }
        Ok(events)
    }

    /// Drops all events: watches from older versions have to list again.
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
