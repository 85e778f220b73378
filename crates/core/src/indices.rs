//! Sets of pod indices, written as users read them: `0-3,7`.

use std::collections::BTreeSet;
use std::fmt::Write as _;

/// Reads a set; what is not a number or a range is passed over, because a status may have been edited by anybody.
pub fn parse(text: &str, replicas: i32) -> BTreeSet<i32> {
    let mut set = BTreeSet::new();
    for part in text.split(',').map(str::trim) {
        let (first, last) = part.split_once('-').unwrap_or((part, part));
        if let (Ok(first), Ok(last)) = (first.parse::<i32>(), last.parse::<i32>()) {
            // Bounded by the role's size, so that no text can ask for more than the job has.
            set.extend(first.max(0)..=last.min(replicas - 1));
        }
    }
    set
}

/// Writes a set; `None` if it is empty.
pub fn format(set: &BTreeSet<i32>) -> Option<String> {
    let mut text = String::new();
    let mut range: Option<(i32, i32)> = None;
    for &index in set {
        range = match range {
            Some((first, last)) if last + 1 == index => Some((first, index)),
            Some(done) => {
                push(&mut text, done);
                Some((index, index))
            }
            None => Some((index, index)),
        };
    }
    if let Some(done) = range {
        push(&mut text, done);
    }
    (!text.is_empty()).then_some(text)
}

fn push(text: &mut String, (first, last): (i32, i32)) {
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
