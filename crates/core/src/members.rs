//! Which pods a role has, by their indices.

use std::collections::BTreeSet;

use crate::indices;

/// The indices of the pods of a role. Those of most roles are the first ones, from 0 on. An elastic
/// role may have gaps where pods have left.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Members(Repr);

#[derive(Clone, Debug, PartialEq, Eq)]
enum Repr {
    First(i32),
    /// Never the first ones, so that equal sets are equal values.
    Listed(BTreeSet<i32>),
}

impl Members {
    /// The indices from 0 on, that many.
    pub fn first(count: i32) -> Self {
        Self(Repr::First(count.max(0)))
    }

    /// These indices; negative ones are passed over.
    pub fn listed(indices: impl IntoIterator<Item = i32>) -> Self {
        let set: BTreeSet<i32> = indices.into_iter().filter(|index| *index >= 0).collect();
        let count = i32::try_from(set.len()).unwrap_or(i32::MAX);
        if set.last().is_none_or(|last| last.checked_add(1) == Some(count)) {
            Self::first(count)
        } else {
            Self(Repr::Listed(set))
        }
    }

    /// Parses what [`Members::format`] has written; `limit` bounds the indices.
    pub fn parse(text: &str, limit: i32) -> Self {
        Self::listed(indices::parse(text, limit))
    }

    /// Formats them as users read them, such as `0-3,7`. `None` if there are none.
    pub fn format(&self) -> Option<String> {
        indices::format(&self.iter().collect())
    }

    /// The same, but `None` if they are the first ones, so that their number says it all.
    pub fn gaps(&self) -> Option<String> {
        match &self.0 {
            Repr::First(_) => None,
            Repr::Listed(_) => self.format(),
        }
    }

    /// How many there are.
    pub fn count(&self) -> i32 {
        match &self.0 {
            Repr::First(count) => *count,
            Repr::Listed(set) => i32::try_from(set.len()).unwrap_or(i32::MAX),
        }
    }

    /// Returns true if the pod of an index is one of them.
    pub fn contains(&self, index: i32) -> bool {
        match &self.0 {
            Repr::First(count) => (0..*count).contains(&index),
            Repr::Listed(set) => set.contains(&index),
        }
    }

    /// The indices in order.
    pub fn iter(&self) -> impl Iterator<Item = i32> + '_ {
        let (first, listed) = match &self.0 {
            Repr::First(count) => (0..*count, None),
            Repr::Listed(set) => (0..0, Some(set)),
        };
        first.chain(listed.into_iter().flatten().copied())
    }

    /// Them as runs of indices without gaps: the first of each, and how many there are.
    pub fn runs(&self) -> Vec<(i32, i32)> {
        let mut runs: Vec<(i32, i32)> = Vec::new();
        match &self.0 {
            Repr::First(count) => runs.extend((*count > 0).then_some((0, *count))),
            Repr::Listed(set) => {
                for index in set {
                    match runs.last_mut() {
                        Some((first, count)) if *first + *count == *index => *count += 1,
                        _ => runs.push((*index, 1)),
                    }
                }
            }
        }
        runs
    }

    /// How many of them come before an index: the place of its pod among all of the role.
    pub fn position(&self, index: i32) -> i32 {
        match &self.0 {
            Repr::First(_) => index,
            Repr::Listed(set) => i32::try_from(set.range(..index).count()).unwrap_or(i32::MAX),
        }
    }

    /// The number after the highest index: all of them are below it.
    pub fn end(&self) -> i32 {
        match &self.0 {
            Repr::First(count) => *count,
            Repr::Listed(set) => set.last().map_or(0, |last| last.saturating_add(1)),
        }
    }

    /// These and others.
    #[must_use]
    pub fn with(&self, others: impl IntoIterator<Item = i32>) -> Self {
        Self::listed(self.iter().chain(others))
    }

    /// These without those for which something holds.
    #[must_use]
    pub fn without(&self, leaves: impl Fn(i32) -> bool) -> Self {
        Self::listed(self.iter().filter(|index| !leaves(*index)))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_first_ones_are_the_first_ones_however_they_came_about() {
        assert_eq!(Members::listed([2, 0, 1]), Members::first(3));
        assert_eq!(Members::listed([]), Members::first(0));
        assert_eq!(
            Members::first(3).with([4]).without(|index| index == 4),
            Members::first(3)
        );
    }

    #[test]
    fn gaps_are_kept() {
        let members = Members::parse("0-1,7,-3,99999", 10);
        assert_eq!(members.format().as_deref(), Some("0-1,7"));
        assert_eq!((members.count(), members.end()), (3, 8));
        assert!(members.contains(7) && !members.contains(2));
        assert_eq!(members.runs(), [(0, 2), (7, 1)]);
        assert_eq!(Members::first(3).runs(), [(0, 3)]);
        assert_eq!(Members::first(0).runs(), []);
        assert_eq!([0, 1, 7].map(|index| members.position(index)), [0, 1, 2]);
    }

    proptest::proptest! {
        #[test]
        fn what_is_written_is_read(set in proptest::collection::btree_set(0..50i32, 0..30)) {
            let members = Members::listed(set.iter().copied());
            let text = members.format().unwrap_or_default();
            proptest::prop_assert_eq!(Members::parse(&text, 50), members.clone());
            proptest::prop_assert_eq!(members.iter().collect::<BTreeSet<i32>>(), set);
        }
    }
}
