//! Whether two messages say the same.

use std::hash::{BuildHasher, BuildHasherDefault, DefaultHasher};

/// A fingerprint of a message of the API server. It leaves out the first quoted name, which is that
/// of the child, and all digits, such as those of a quota: they change while the message says the
/// same.
pub(super) fn fingerprint(words: &str) -> u64 {
    let rest = words
        .split_once('"')
        .and_then(|(_, rest)| rest.split_once('"'))
        .map_or(words, |(_, rest)| rest);
    let words: String = rest.chars().filter(|c| !c.is_ascii_digit()).collect();
    hash(&words)
}

pub(super) fn hash(words: &str) -> u64 {
    BuildHasherDefault::<DefaultHasher>::default().hash_one(words)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn refusals_that_differ_in_a_name_or_a_number_only_are_the_same() {
        let words = |name: &str, what: &str| fingerprint(&format!("pods \"{name}\" is forbidden: {what}"));
        assert_eq!(words("a", "used: pods=1"), words("b", "used: pods=27"));
        assert_ne!(words("a", "quota"), words("a", "webhook"));
    }
}
