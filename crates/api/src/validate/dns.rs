//! What Kubernetes accepts as the name of a host.

use crate::names::MAX_NAME;

/// What keeps a name from being a DNS-1035 label, if anything.
pub fn dns_label_problem(name: &str) -> Option<String> {
    let inner = |c: char| c.is_ascii_lowercase() || c.is_ascii_digit() || c == '-';
    if name.is_empty() {
        Some("must not be empty".to_owned())
    } else if name.len() > MAX_NAME {
        Some(format!(
            "has {} characters; at most {MAX_NAME} are possible",
            name.len()
        ))
    } else if !name.starts_with(|c: char| c.is_ascii_lowercase())
        || !name.chars().all(inner)
        || name.ends_with('-')
    {
        Some(
            "must consist of lower-case letters, digits and '-', start with a letter and not end with '-'"
                .to_owned(),
        )
    } else {
        None
    }
}
