//! Object metadata.

use jiff::Timestamp;
use serde_json::{Map, Value};

use super::error::FieldError;
use super::kinds::{Kind, NameFormat};
use super::store::Object;

/// The longest generateName prefix that is kept.
const MAX_GENERATED_BASE: usize = 58;
/// Characters of random suffixes: no vowels, so that no words come out, and no look-alikes.
const SIGNS: &[u8] = b"bcdfghjklmnpqrstvwxz2456789";
const SERVERS_OWN: &[&str] = &[
    "uid",
    "creationTimestamp",
    "resourceVersion",
    "generation",
    "deletionTimestamp",
    "deletionGracePeriodSeconds",
    "selfLink",
    "managedFields",
];

pub(crate) fn metadata(object: &mut Object) -> &mut Map<String, Value> {
    member(object, "metadata")
}

/// A member that is an object, created if it does not exist.
pub(crate) fn member<'a>(object: &'a mut Object, name: &str) -> &'a mut Map<String, Value> {
    let slot = object.entry(name).or_insert(Value::Null);
    if !slot.is_object() {
        *slot = Value::Object(Map::new());
    }
    match slot {
        Value::Object(member) => member,
        // It was just made an object.
        _ => unreachable!(),
    }
}

/// A string of the metadata; empty if it does not exist.
pub(crate) fn text<'a>(object: &'a Object, name: &str) -> &'a str {
    let metadata = object.get("metadata");
    metadata
        .and_then(|metadata| metadata.get(name)?.as_str())
        .unwrap_or_default()
}

pub(crate) fn number(object: &Object, name: &str) -> Option<i64> {
    object.get("metadata")?.get(name)?.as_i64()
}

pub(crate) fn finalizers(object: &Object) -> Vec<&str> {
    let metadata = object.get("metadata");
    let finalizers = metadata.and_then(|metadata| metadata.get("finalizers")?.as_array());
    finalizers
        .into_iter()
        .flatten()
        .filter_map(Value::as_str)
        .collect()
}

/// Removes the field if the list is empty.
pub(crate) fn set_finalizers(object: &mut Object, finalizers: Vec<String>) {
    let metadata = metadata(object);
    if finalizers.is_empty() {
        metadata.remove("finalizers");
    } else {
        metadata.insert("finalizers".into(), finalizers.into());
    }
}

pub(crate) fn is_terminating(object: &Object) -> bool {
    !text(object, "deletionTimestamp").is_empty()
}

/// A time as Kubernetes writes it: to the second.
pub(crate) fn time(at: Timestamp) -> String {
    Timestamp::from_second(at.as_second()).unwrap_or(at).to_string()
}

/// Removes the fields that only the server writes.
pub(crate) fn clear_servers_own(object: &mut Object) {
    let metadata = metadata(object);
    for name in SERVERS_OWN {
        metadata.remove(*name);
    }
}

/// Restores the fields that only the server writes.
pub(crate) fn restore_servers_own(new: &mut Object, old: &Object) {
    clear_servers_own(new);
    let metadata = metadata(new);
    let former = old.get("metadata").and_then(Value::as_object);
    for (name, value) in former.into_iter().flatten() {
        if SERVERS_OWN.contains(&name.as_str()) {
            metadata.insert(name.clone(), value.clone());
        }
    }
}

pub(crate) fn bump_generation(object: &mut Object) {
    let next = number(object, "generation").unwrap_or(0) + 1;
    metadata(object).insert("generation".into(), next.into());
}

/// A random name with a prefix.
pub(crate) fn generated(base: &str, random: u64) -> String {
    let mut end = base.len().min(MAX_GENERATED_BASE);
    while !base.is_char_boundary(end) {
        end -= 1;
    }
    let mut name = base.get(..end).unwrap_or_default().to_owned();
    let mut rest = random;
    for _ in 0..5 {
        let count = SIGNS.len() as u64;
        let at = usize::try_from(rest % count).unwrap_or(0);
        name.push(SIGNS.get(at).copied().map_or('x', char::from));
        rest /= count;
    }
    name
}

pub(crate) fn check(kind: &Kind, object: &Object) -> Vec<FieldError> {
    let mut errors = Vec::new();
    let name = text(object, "name");
    if name.is_empty() {
        errors.push(FieldError::required(
            "metadata.name",
            "name or generateName is required",
        ));
    } else if let Some(why) = wrong_name(kind.traits.name_format, name) {
        errors.push(FieldError::invalid("metadata.name", &name.into(), why));
    }
    let metadata = object.get("metadata");
    let labels = metadata.and_then(|metadata| metadata.get("labels")?.as_object());
    for (name, value) in labels.into_iter().flatten() {
        check_key("metadata.labels", name, &mut errors);
        if !is_label_value(value.as_str().unwrap_or_default()) {
            errors.push(FieldError::invalid(
                "metadata.labels",
                value,
                "a label's value has at most 63 letters, digits, '-', '_' or '.', and begins and ends with a letter or digit",
            ));
        }
    }
    let annotations = metadata.and_then(|metadata| metadata.get("annotations")?.as_object());
    let mut size = 0;
    for (name, value) in annotations.into_iter().flatten() {
        check_key("metadata.annotations", &name.to_lowercase(), &mut errors);
        size += name.len() + value.as_str().map_or(0, str::len);
    }
    if size > 256 << 10 {
        errors.push(FieldError::too_long("metadata.annotations", 256 << 10));
    }
    check_owners(object, &mut errors);
    for finalizer in finalizers(object) {
        let known = ["orphan", "foregroundDeletion", "kubernetes"].contains(&finalizer);
        // Only core kinds require a finalizer to have a prefix.
        let prefixed = finalizer.contains('/') || !kind.group.is_empty();
        if !known && (!is_qualified(finalizer) || !prefixed) {
            errors.push(FieldError::invalid(
                "metadata.finalizers",
                &finalizer.into(),
                "name is neither a standard finalizer name nor is it fully qualified",
            ));
        }
    }
    errors
}

fn check_owners(object: &Object, errors: &mut Vec<FieldError>) {
    let owners = object
        .get("metadata")
        .and_then(|metadata| metadata.get("ownerReferences")?.as_array());
    let mut controllers = 0;
    for owner in owners.into_iter().flatten() {
        for name in ["apiVersion", "kind", "name", "uid"] {
            if owner
                .get(name)
                .and_then(Value::as_str)
                .unwrap_or_default()
                .is_empty()
            {
                let why = format!("{name} must not be empty");
                errors.push(FieldError::invalid(
                    format!("metadata.ownerReferences.{name}"),
                    &"".into(),
                    &why,
                ));
            }
        }
        if owner.get("controller") == Some(&Value::Bool(true)) {
            controllers += 1;
        }
    }
    if controllers > 1 {
        let why = "Only one reference can have Controller set to true";
        errors.push(FieldError::invalid("metadata.ownerReferences", &Value::Null, why));
    }
}

fn check_key(field: &str, key: &str, errors: &mut Vec<FieldError>) {
    if !is_qualified(key) {
        errors.push(FieldError::invalid(
            field,
            &key.into(),
            "a key is a name of at most 63 letters, digits, '-', '_' or '.', with a DNS name and '/' before it if wanted",
        ));
    }
}

fn wrong_name(format: NameFormat, name: &str) -> Option<&'static str> {
    match format {
        NameFormat::Subdomain if !is_subdomain(name) => Some(
            "a lowercase RFC 1123 subdomain has lower case letters, digits, '-' or '.', and begins and ends with a letter or digit",
        ),
        NameFormat::Label if !is_label(name) => Some(
            "a lowercase RFC 1123 label has at most 63 lower case letters, digits or '-', and begins and ends with a letter or digit",
        ),
        NameFormat::Segment if matches!(name, "." | "..") || name.contains(['/', '%']) => {
            Some("may not be '.' or '..', nor contain '/' or '%'")
        }
        _ => None,
    }
}

pub(crate) fn is_label(text: &str) -> bool {
    let edge =
        |byte: Option<&u8>| byte.is_some_and(|byte| byte.is_ascii_lowercase() || byte.is_ascii_digit());
    let bytes = text.as_bytes();
    bytes.len() <= 63
        && edge(bytes.first())
        && edge(bytes.last())
        && bytes
            .iter()
            .all(|byte| byte.is_ascii_lowercase() || byte.is_ascii_digit() || *byte == b'-')
}

pub(crate) fn is_subdomain(text: &str) -> bool {
    // Labels of an object's name may be longer than those of a DNS name.
    let part = |part: &str| {
        let bytes = part.as_bytes();
        let fits = |byte: &u8| byte.is_ascii_lowercase() || byte.is_ascii_digit();
        bytes.first().is_some_and(fits)
            && bytes.last().is_some_and(fits)
            && bytes.iter().all(|byte| fits(byte) || *byte == b'-')
    };
    text.len() <= 253 && text.split('.').all(part)
}

fn is_label_value(text: &str) -> bool {
    text.is_empty() || is_simple_name(text)
}

fn is_simple_name(text: &str) -> bool {
    let bytes = text.as_bytes();
    bytes.len() <= 63
        && bytes.first().is_some_and(u8::is_ascii_alphanumeric)
        && bytes.last().is_some_and(u8::is_ascii_alphanumeric)
        && bytes
            .iter()
            .all(|byte| byte.is_ascii_alphanumeric() || b"-_.".contains(byte))
}

fn is_qualified(text: &str) -> bool {
    match text.split_once('/') {
        Some((prefix, name)) => is_subdomain(prefix) && is_simple_name(name),
        None => is_simple_name(text),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[rstest::rstest]
    #[case("a", true)]
    #[case("a.b-c.1", true)]
    #[case("a..b", false)]
    #[case("-a", false)]
    #[case("A", false)]
    #[case("", false)]
    fn names_are_dns_names(#[case] name: &str, #[case] fits: bool) {
        assert_eq!(is_subdomain(name), fits);
    }

    #[test]
    fn a_generated_name_keeps_what_fits_of_its_beginning() {
        let name = generated(&"a".repeat(100), 123_456_789);
        assert_eq!((name.len(), name.starts_with(&"a".repeat(58))), (63, true));
        assert_ne!(generated("job-", 1), generated("job-", 2));
    }

    #[test]
    fn keys_may_have_a_prefix() {
        for (key, fits) in [
            ("app", true),
            ("x.io/App_1", true),
            ("/a", false),
            ("x.io/", false),
            ("a b", false),
        ] {
            assert_eq!(is_qualified(key), fits, "{key}");
        }
    }
}
