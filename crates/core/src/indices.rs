//! Sets of pod indices, written as users read them: `0-3,7`.

use std::collections::BTreeSet;

use trainyard_contract::indices;

/// Parses a set. Anything else than numbers and ranges is ignored, because anybody may have edited
/// the status.
pub fn parse(text: &str, replicas: i32) -> BTreeSet<i32> {
    // Bounded by the role's size, so that no text can ask for more than the job has.
    let limit = u32::try_from(replicas).unwrap_or_default();
    let set = indices::parse(text, limit);
    set.filter_map(|index| i32::try_from(index).ok()).collect()
}

/// Formats a set. `None` if it is empty.
pub fn format(set: &BTreeSet<i32>) -> Option<String> {
    let text = indices::format(set.iter().filter_map(|index| u32::try_from(*index).ok()));
    (!text.is_empty()).then_some(text)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ranges_are_joined() {
        assert_eq!(
            format(&[0, 1, 2, 3, 7, 9, 10].into()).as_deref(),
            Some("0-3,7,9-10")
        );
        assert_eq!(format(&BTreeSet::new()), None);
    }

    #[test]
    fn nonsense_and_indices_beyond_the_role_are_passed_over() {
        assert_eq!(parse("0-1, x, 3,-4,7-9999999", 9), [0, 1, 3, 7, 8].into());
        assert_eq!(parse("", 3), BTreeSet::new());
    }

    proptest::proptest! {
        #[test]
        fn what_is_written_is_read(set in proptest::collection::btree_set(0..500i32, 0..100)) {
            proptest::prop_assert_eq!(parse(&format(&set).unwrap_or_default(), 500), set);
        }

        #[test]
        fn any_text_is_read(text in ".*") {
            parse(&text, 10);
        }
    }
}
