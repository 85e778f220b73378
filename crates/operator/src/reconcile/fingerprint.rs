//! Compares messages by what they say.

use std::hash::{BuildHasher, BuildHasherDefault, DefaultHasher};

/// A fingerprint of a message of the API server. It ignores the first quoted name, which is that of
/// the child, and all digits, such as those of a quota: these change while the message says the
/// same.
pub(super) fn fingerprint(message: &str) -> u64 {
    let rest = message
        .split_once('"')
        .and_then(|(_, rest)| rest.split_once('"'))
        .map_or(message, |(_, rest)| rest);
    let message: String = rest.chars().filter(|c| !c.is_ascii_digit()).collect();
    hash(&message)
}

pub(super) fn hash(message: &str) -> u64 {
    BuildHasherDefault::<DefaultHasher>::default().hash_one(message)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn refusals_that_differ_in_a_name_or_a_number_only_are_the_same() {
        let message = |name: &str, what: &str| fingerprint(&format!("pods \"{name}\" is forbidden: {what}"));
        assert_eq!(message("a", "used: pods=1"), message("b", "used: pods=27"));
        assert_ne!(message("a", "quota"), message("a", "webhook"));
    }
}
