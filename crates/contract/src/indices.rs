//! Sets of numbers of pods as text: `0-3,7`.

use std::fmt::Write as _;

/// Writes numbers, each once and in order.
pub fn format(indices: impl IntoIterator<Item = u32>) -> String {
    let mut text = String::new();
    let mut range: Option<(u32, u32)> = None;
    for index in indices {
        range = match range {
            Some((first, last)) if last.checked_add(1) == Some(index) => Some((first, index)),
            done => {
                push(&mut text, done);
                Some((index, index))
            }
        };
    }
    push(&mut text, range);
    text
}

fn push(text: &mut String, range: Option<(u32, u32)>) {
    let Some((first, last)) = range else { return };
    if !text.is_empty() {
        text.push(',');
    }
    // Writing into a String can't fail.
    let _ = if first == last {
        write!(text, "{first}")
    } else {
        write!(text, "{first}-{last}")
    };
}

/// Reads the numbers below a limit, so that no text can ask for more than there are. What is no
/// number and no range is passed over, and a number may come more than once.
pub fn parse(text: &str, limit: u32) -> impl Iterator<Item = u32> {
    let range = move |part: &str| {
        let (first, last) = part.split_once('-').unwrap_or((part, part));
        let last: u32 = last.parse().ok()?;
        Some(first.parse().ok()?..last.saturating_add(1).min(limit))
    };
    text.split(',').map(str::trim).filter_map(range).flatten()
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;

    #[test]
    fn ranges_are_joined() {
        assert_eq!(format([0, 1, 2, 3, 7, 9, 10]), "0-3,7,9-10");
        assert_eq!(format([u32::MAX - 1, u32::MAX]), "4294967294-4294967295");
        assert_eq!(format([]), "");
    }

    proptest::proptest! {
        #[test]
        fn what_is_written_is_read(set in proptest::collection::btree_set(0..500u32, 0..100)) {
            let text = format(set.iter().copied());
            proptest::prop_assert_eq!(parse(&text, 500).collect::<BTreeSet<u32>>(), set);
        }
    }
}
