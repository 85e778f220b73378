//! The children of one job, of one kind.

use std::cmp::Ordering;
use std::sync::Arc;

use trainyard_core::view::{PodRow, ServiceRow};

use crate::slim::Version;

/// What every row has.
pub(super) trait Row: Clone + PartialEq {
    fn name(&self) -> &str;
    fn uid(&self) -> &str;
    fn terminating(&self) -> bool;
    fn set_terminating(&mut self);
    /// Takes over from an older row what was true when it was first seen.
    fn remember(&mut self, _older: &Self) {}
}

impl Row for PodRow {
    fn name(&self) -> &str {
        &self.name
    }
    fn uid(&self) -> &str {
        &self.uid
    }
    fn terminating(&self) -> bool {
        self.terminating
    }
    fn set_terminating(&mut self) {
        self.terminating = true;
    }
    fn remember(&mut self, older: &Self) {
        if let (Some(end), Some(older)) = (&mut self.end, &older.end) {
            end.seen_version = older.seen_version;
        }
    }
}

impl Row for ServiceRow {
    fn name(&self) -> &str {
        &self.name
    }
    fn uid(&self) -> &str {
        &self.uid
    }
    fn terminating(&self) -> bool {
        self.terminating
    }
    fn set_terminating(&mut self) {
        self.terminating = true;
    }
}

/// What is known about a row beside the row.
#[derive(Clone, Copy, Debug)]
struct Mark {
    version: Version,
    /// The list or watch in which it was last seen.
    epoch: u32,
}

/// The children of one job, of one kind. Looking at them is free: they are shared until they change.
#[derive(Debug)]
pub(super) struct Rows<R> {
    list: Arc<Vec<R>>,
    marks: Vec<Mark>,
    /// What is gone and may still turn up in a watch that is late, with the version at which it went.
    tombstones: Vec<(Box<str>, Version)>,
    /// Positions in `list`, ordered by name and UID, so that a job of many pods is not searched from end to end.
    order: Vec<u32>,
}

impl<R> Default for Rows<R> {
    fn default() -> Self {
        Self {
            list: Arc::default(),
            marks: Vec::new(),
            tombstones: Vec::new(),
            order: Vec::new(),
        }
    }
}

impl<R: Row> Rows<R> {
    pub(super) fn share(&self) -> Arc<Vec<R>> {
        self.list.clone()
    }

    pub(super) fn iter(&self) -> impl Iterator<Item = (&R, Version)> {
        self.list.iter().zip(self.marks.iter().map(|mark| mark.version))
    }

    pub(super) fn is_empty(&self) -> bool {
        self.list.is_empty()
    }

    fn search(&self, name: &str, uid: &str) -> Result<usize, usize> {
        self.order
            .binary_search_by(|position| match self.list.get(*position as usize) {
                Some(row) => row.name().cmp(name).then_with(|| row.uid().cmp(uid)),
                None => Ordering::Less,
            })
    }

    fn find(&self, name: &str, uid: &str) -> Option<usize> {
        let place = self.search(name, uid).ok()?;
        self.order.get(place).map(|position| *position as usize)
    }

    /// Whether a row of that name and UID is there.
    pub(super) fn contains(&self, name: &str, uid: &str) -> bool {
        self.search(name, uid).is_ok()
    }

    /// Whether a row of that name is there.
    pub(super) fn has(&self, name: &str) -> bool {
        let row = |position: &u32| self.list.get(*position as usize);
        let first = self
            .order
            .partition_point(|position| row(position).is_some_and(|row| row.name() < name));
        let first = self.order.get(first).and_then(row);
        first.is_some_and(|row| row.name() == name)
    }

    /// Takes a row in, unless a newer one is there. Whether anything that decisions look at has changed.
    pub(super) fn put(&mut self, mut row: R, version: Version, epoch: u32) -> bool {
        let place = match self.search(row.name(), row.uid()) {
            Ok(place) => place,
            Err(_) if self.tombstones.iter().any(|(uid, _)| **uid == *row.uid()) => return false,
            Err(place) => {
                let Ok(position) = u32::try_from(self.list.len()) else {
                    return false;
                };
                self.order.insert(place, position);
                self.marks.push(Mark { version, epoch });
                Arc::make_mut(&mut self.list).push(row);
                return true;
            }
        };
        let Some(position) = self.order.get(place).map(|position| *position as usize) else {
            return false;
        };
        let (Some(mark), Some(old)) = (self.marks.get_mut(position), self.list.get(position)) else {
            return false;
        };
        mark.epoch = epoch;
        if version <= mark.version && version != Version(0) {
            return false;
        }
        mark.version = version;
        // What has been asked to go can't be asked to stay.
        if old.terminating() {
            row.set_terminating();
        }
        row.remember(old);
        if *old == row {
            return false;
        }
        if let Some(old) = Arc::make_mut(&mut self.list).get_mut(position) {
            *old = row;
        }
        true
    }

    /// Marks a row as asked to go. Whether it was there and was not yet.
    pub(super) fn terminate(&mut self, name: &str, uid: &str) -> bool {
        let Some(position) = self.find(name, uid) else {
            return false;
        };
        if self.list.get(position).is_none_or(Row::terminating) {
            return false;
        }
        Arc::make_mut(&mut self.list)
            .get_mut(position)
            .map(Row::set_terminating)
            .is_some()
    }

    /// Removes a row of which we know, before the watch does, that it went at a version.
    pub(super) fn tombstone(&mut self, name: &str, uid: &str, version: Version) -> Option<R> {
        let removed = self.remove(name, uid)?;
        self.tombstones.push((uid.into(), version));
        Some(removed)
    }

    /// Removes a row, if it is there.
    pub(super) fn remove(&mut self, name: &str, uid: &str) -> Option<R> {
        self.tombstones.retain(|(tombstones, _)| **tombstones != *uid);
        let place = self.search(name, uid).ok()?;
        let last = self.list.len().saturating_sub(1);
        let moved = self
            .list
            .get(last)
            .and_then(|row| self.search(row.name(), row.uid()).ok());
        let position = self.order.remove(place) as usize;
        if let Some(moved) = moved
            && moved != place
            && let Some(slot) = self.order.get_mut(if moved > place { moved - 1 } else { moved })
            && let Ok(position) = u32::try_from(position)
        {
            *slot = position;
        }
        self.marks.swap_remove(position);
        Some(Arc::make_mut(&mut self.list).swap_remove(position))
    }

    /// Removes what a list of a version did not contain, though it is not newer than that list.
    pub(super) fn sweep(&mut self, epoch: u32, listed: Version) -> Vec<R> {
        self.tombstones.retain(|(_, went)| *went > listed);
        let stale = |mark: &Mark| mark.epoch != epoch && mark.version <= listed;
        let gone: Vec<(String, String)> = self
            .list
            .iter()
            .zip(&self.marks)
            .filter(|(_, mark)| stale(mark))
            .map(|(row, _)| (row.name().to_owned(), row.uid().to_owned()))
            .collect();
        gone.iter()
            .filter_map(|(name, uid)| self.remove(name, uid))
            .collect()
    }

    /// Forgets all versions: whatever comes next is newer.
    pub(super) fn forget_versions(&mut self) {
        for mark in &mut self.marks {
            mark.version = Version(0);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn row(name: &str, uid: &str) -> ServiceRow {
        ServiceRow {
            name: name.into(),
            uid: uid.into(),
            terminating: false,
        }
    }

    fn names(rows: &Rows<ServiceRow>) -> Vec<String> {
        rows.order
            .iter()
            .map(|position| rows.list[*position as usize].name.to_string())
            .collect()
    }

    #[test]
    fn rows_stay_searchable_through_any_removal() {
        for victim in ["a", "b", "c", "d", "e"] {
            let mut rows = Rows::default();
            for name in ["c", "a", "e", "b", "d"] {
                assert!(rows.put(row(name, name), Version(1), 1));
            }
            assert!(rows.remove(victim, victim).is_some());
            assert!(rows.remove(victim, victim).is_none());
            let left: Vec<_> = ["a", "b", "c", "d", "e"]
                .into_iter()
                .filter(|name| *name != victim)
                .collect();
            assert_eq!(names(&rows), left);
            for name in left {
                assert!(rows.contains(name, name) && rows.has(name));
            }
            assert!(!rows.has(victim) && !rows.has("aa") && !rows.has("f"));
        }
    }

    #[test]
    fn older_and_equal_versions_change_nothing() {
        let mut rows = Rows::default();
        assert!(rows.put(row("a", "1"), Version(5), 1));
        let going = ServiceRow {
            terminating: true,
            ..row("a", "1")
        };
        assert!(!rows.put(going.clone(), Version(5), 1));
        assert!(!rows.put(going.clone(), Version(4), 1));
        assert!(rows.put(going, Version(6), 1));
        assert!(!rows.put(row("a", "1"), Version(7), 1), "it never un-terminates");
        assert!(rows.share()[0].terminating);
    }

    #[test]
    fn what_is_gone_does_not_come_back_with_a_late_watch() {
        let mut rows = Rows::default();
        rows.put(row("a", "1"), Version(5), 1);
        rows.tombstone("a", "1", Version(9));
        assert!(rows.is_empty());
        assert!(!rows.put(row("a", "1"), Version(8), 1), "the watch is late");
        assert!(rows.put(row("a", "2"), Version(10), 1), "its replacement");
        assert!(rows.remove("a", "1").is_none());
        assert!(rows.tombstones.is_empty());
        rows.tombstone("a", "2", Version(12));
        rows.sweep(2, Version(11));
        assert!(!rows.put(row("a", "2"), Version(11), 2), "the list was late, too");
        rows.sweep(3, Version(12));
        assert!(rows.tombstones.is_empty());
    }

    #[test]
    fn a_sweep_spares_what_is_newer_than_the_list() {
        let mut rows = Rows::default();
        rows.put(row("old", "1"), Version(5), 1);
        rows.put(row("listed", "2"), Version(5), 2);
        rows.put(row("new", "3"), Version(11), 1);
        assert_eq!(rows.sweep(2, Version(10)), [row("old", "1")]);
        assert_eq!(names(&rows), ["listed", "new"]);
        assert_eq!(rows.sweep(2, Version(10)), []);
    }
}
