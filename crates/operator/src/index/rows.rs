//! The children of one job, of one kind.

use std::cmp::Ordering;
use std::sync::Arc;

use trainyard_core::view::{BudgetRow, PodRow, ServiceRow};

use crate::slim::Version;

/// What every row has.
pub(super) trait Row: Clone + PartialEq {
    fn name(&self) -> &str;
    fn uid(&self) -> &str;
    fn terminating(&self) -> bool;
    fn set_terminating(&mut self);
    /// Keeps from an older row what was recorded when it was first seen.
    fn keep_from(&mut self, _older: &Self) {}
}

/// The fields that rows of every kind have.
macro_rules! common_fields {
    () => {
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
    };
}

impl Row for PodRow {
    common_fields!();
    fn keep_from(&mut self, older: &Self) {
        if let (Some(end), Some(older)) = (&mut self.end, &older.end) {
            end.seen_version = older.seen_version;
        }
    }
}

impl Row for ServiceRow {
    common_fields!();
}

impl Row for BudgetRow {
    common_fields!();
}

/// The version of a row, and when it was last seen.
#[derive(Clone, Copy, Debug)]
struct Mark {
    version: Version,
    /// The list or watch in which it was last seen.
    epoch: u32,
}

/// The children of one job, of one kind. Snapshots share them until they change.
#[derive(Debug)]
pub(super) struct Rows<R> {
    list: Arc<Vec<R>>,
    marks: Vec<Mark>,
    /// UIDs of deleted children that a late watch may still show, with the version of the deletion.
    tombstones: Vec<(Box<str>, Version)>,
    /// Positions in `list`, sorted by name and UID, so that a job with many pods needs no linear
    /// search.
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
        let slot = self.search(name, uid).ok()?;
        self.order.get(slot).map(|position| *position as usize)
    }

    /// The row with this name and UID.
    pub(super) fn get(&self, name: &str, uid: &str) -> Option<&R> {
        self.list.get(self.find(name, uid)?)
    }

    /// Returns true if there is a row with this name and UID.
    pub(super) fn contains(&self, name: &str, uid: &str) -> bool {
        self.search(name, uid).is_ok()
    }

    /// Returns true if there is a row with this name.
    pub(super) fn has(&self, name: &str) -> bool {
        let row = |position: &u32| self.list.get(*position as usize);
        let first = self
            .order
            .partition_point(|position| row(position).is_some_and(|row| row.name() < name));
        let first = self.order.get(first).and_then(row);
        first.is_some_and(|row| row.name() == name)
    }

    /// Adds or updates a row, unless a newer version is known. Returns true if anything changed
    /// that decisions depend on.
    pub(super) fn put(&mut self, mut row: R, version: Version, epoch: u32) -> bool {
        let slot = match self.search(row.name(), row.uid()) {
            Ok(slot) => slot,
            Err(_) if self.tombstones.iter().any(|(uid, _)| **uid == *row.uid()) => return false,
            Err(slot) => {
                let Ok(position) = u32::try_from(self.list.len()) else {
                    return false;
                };
                self.order.insert(slot, position);
                self.marks.push(Mark { version, epoch });
                Arc::make_mut(&mut self.list).push(row);
                return true;
            }
        };
        let Some(position) = self.order.get(slot).map(|position| *position as usize) else {
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
        // A deletion can't be taken back.
        if old.terminating() {
            row.set_terminating();
        }
        row.keep_from(old);
        if *old == row {
            return false;
        }
        if let Some(old) = Arc::make_mut(&mut self.list).get_mut(position) {
            *old = row;
        }
        true
    }

    /// Marks a row as terminating. Returns true if it was not before.
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

    /// Removes a row that was deleted at a version, before the watch shows it.
    pub(super) fn tombstone(&mut self, name: &str, uid: &str, version: Version) -> Option<R> {
        let removed = self.remove(name, uid)?;
        self.tombstones.push((uid.into(), version));
        Some(removed)
    }

    /// Removes a row. `None` if there is none.
    pub(super) fn remove(&mut self, name: &str, uid: &str) -> Option<R> {
        self.tombstones.retain(|(deleted, _)| **deleted != *uid);
        let slot = self.search(name, uid).ok()?;
        let last = self.list.len().saturating_sub(1);
        let moved = self
            .list
            .get(last)
            .and_then(|row| self.search(row.name(), row.uid()).ok());
        let position = self.order.remove(slot) as usize;
        if let Some(moved) = moved
            && moved != slot
            && let Some(moved_position) = self.order.get_mut(if moved > slot { moved - 1 } else { moved })
            && let Ok(position) = u32::try_from(position)
        {
            *moved_position = position;
        }
        self.marks.swap_remove(position);
        Some(Arc::make_mut(&mut self.list).swap_remove(position))
    }

    /// Removes the rows that a list did not contain although they are not newer than the list.
    pub(super) fn sweep(&mut self, epoch: u32, listed: Version) -> Vec<R> {
        self.tombstones.retain(|(_, deleted_at)| *deleted_at > listed);
        let is_stale = |mark: &Mark| mark.epoch != epoch && mark.version <= listed;
        let stale: Vec<(String, String)> = self
            .list
            .iter()
            .zip(&self.marks)
            .filter(|(_, mark)| is_stale(mark))
            .map(|(row, _)| (row.name().to_owned(), row.uid().to_owned()))
            .collect();
        stale
            .iter()
            .filter_map(|(name, uid)| self.remove(name, uid))
            .collect()
    }

    /// Forgets all versions, so that the next version of every row counts as newer.
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
