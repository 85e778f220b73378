//! How often the pods of a role were replaced, written as users read it: `0-62x3;63x4`.

use std::collections::{BTreeMap, BTreeSet};

use trainyard_api::{RestartRecord, RoleStatus};

use crate::indices;
use crate::job::Job;

/// The pause before a replacement does not grow any more from here on. Counting stops here, so that
/// the text stays short.
pub const MAX_COUNT: u32 = 6;

/// Parses counts by index, up to an end. Anything else is ignored, because anybody may have edited
/// the status.
pub fn parse(text: &str, end: i32) -> BTreeMap<i32, u32> {
    let mut counts = BTreeMap::new();
    for group in text.split(';') {
        if let Some((set, count)) = group.rsplit_once('x')
            && let Ok(count) = count.trim().parse::<u32>()
        {
            let pods = indices::parse(set, end).into_iter();
            counts.extend(
                pods.filter(|_| count > 0)
                    .map(|index| (index, count.min(MAX_COUNT))),
            );
        }
    }
    counts
}

/// Formats counts. `None` if there are none. Every index is written once, so the role's size bounds
/// the length.
pub fn format(counts: &BTreeMap<i32, u32>) -> Option<String> {
    let mut groups: BTreeMap<u32, BTreeSet<i32>> = BTreeMap::new();
    for (index, count) in counts {
        groups.entry((*count).min(MAX_COUNT)).or_default().insert(*index);
    }
    groups.remove(&0);
    let groups = groups.iter();
    let groups = groups.filter_map(|(count, set)| Some(format!("{}x{count}", indices::format(set)?)));
    let text = groups.collect::<Vec<_>>().join(";");
    (!text.is_empty()).then_some(text)
}

/// The counts of a role, from its status. Former versions of the operator wrote no counts: then
/// they are counted from the records since the job was last calm.
pub(crate) fn of_role(
    job: &Job<'_>,
    role: usize,
    written: Option<&RoleStatus>,
    recent: &[RestartRecord],
) -> BTreeMap<i32, u32> {
    if recent.is_empty() {
        return BTreeMap::new();
    }
    let end = job.roles.get(role).map_or(0, |role| role.members.end());
    if let Some(text) = written.and_then(|written| written.replacements.as_deref()) {
        return parse(text, end);
    }
    let mut counts = BTreeMap::new();
    let keys = recent.iter().filter_map(|record| job.key(&record.pod));
    for key in keys.filter(|key| key.role == role) {
        add(&mut counts, key.index);
    }
    counts
}

/// Counts one more replacement. Returns how many there were before.
pub(crate) fn add(counts: &mut BTreeMap<i32, u32>, index: i32) -> u32 {
    let count = counts.entry(index).or_default();
    let before = *count;
    *count = before.saturating_add(1).min(MAX_COUNT);
    before
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pods_that_were_replaced_as_often_are_written_together() {
        let counts = [(0, 3), (1, 3), (2, 0), (3, 1), (4, 3), (5, 99)].into();
        assert_eq!(format(&counts).as_deref(), Some("3x1;0-1,4x3;5x6"));
        assert_eq!(format(&[(0, 0)].into()), None);
    }

    #[test]
    fn nonsense_is_passed_over() {
        let read = parse("0-1x2;x;7;3xx2;2x-1;1x4; 3 x 5;9x1;2x0;4x4294967295", 5);
        assert_eq!(read, [(0, 2), (1, 4), (3, 5), (4, MAX_COUNT)].into());
    }

    #[test]
    fn the_largest_role_fits_the_schema() {
        let counts = (0..10_000_i32).map(|index| (index, 1 + index.unsigned_abs() % MAX_COUNT));
        let text = format(&counts.collect()).unwrap();
        assert!(text.len() <= 65_536, "{}", text.len());
    }

    proptest::proptest! {
        #[test]
        fn what_is_written_is_read(counts in proptest::collection::btree_map(0..500i32, 1..=MAX_COUNT, 0..100)) {
            proptest::prop_assert_eq!(parse(&format(&counts).unwrap_or_default(), 500), counts);
        }

        #[test]
        fn any_text_is_read(text in ".*") {
            parse(&text, 10);
        }
    }
}
