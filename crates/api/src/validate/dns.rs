//! What Kubernetes accepts as a name of a host, of an object, of a label.

use crate::names::MAX_NAME;

/// The longest name with dots.
const MAX_DOMAIN: usize = 253;

/// What keeps a name from being a DNS-1035 label, if anything.
pub fn dns_label_problem(name: &str) -> Option<String> {
    length_problem(name).or_else(|| {
        let spelled = name.starts_with(|c: char| c.is_ascii_lowercase()) && is_label(name);
        (!spelled).then(|| {
            "must consist of lower-case letters, digits and '-', start with a letter and not end with '-'"
                .to_owned()
        })
    })
}

/// What keeps a name from being a DNS-1123 label, which may also start with a digit, if anything.
/// Such are the names of namespaces, containers and volumes.
pub fn object_name_problem(name: &str) -> Option<String> {
    length_problem(name).or_else(|| {
        (!is_label(name)).then(|| {
            "must consist of lower-case letters, digits and '-', and start and end with a letter or digit"
                .to_owned()
        })
    })
}

/// What keeps a name from being a DNS-1123 subdomain, if anything. Such are the names of most
/// objects, Secrets among them.
pub fn domain_name_problem(name: &str) -> Option<String> {
    (!is_domain(name)).then(|| {
        format!(
            "must consist of at most {MAX_DOMAIN} lower-case letters, digits, '-' and '.', and start and end with a letter or \
             digit, as must each part between dots, of at most {MAX_NAME}"
        )
    })
}

/// What keeps a text from being the key of a label or an annotation, if anything.
pub fn label_key_problem(key: &str) -> Option<String> {
    let (domain, name) = match key.split_once('/') {
        Some((domain, name)) => (Some(domain), name),
        None => (None, key),
    };
    let valid = !name.is_empty() && is_word(name) && domain.is_none_or(is_domain);
    (!valid).then(|| {
        "is no key of a label: write name or domain/name, the name of at most 63 letters, digits, '-', '_' and '.', \
         which starts and ends with a letter or digit"
            .to_owned()
    })
}

/// What keeps a text from being the value of a label, if anything.
pub fn label_value_problem(value: &str) -> Option<String> {
    (!is_word(value)).then(|| {
        "is no value of a label: use at most 63 letters, digits, '-', '_' and '.', and start and end with a letter or \
         digit"
            .to_owned()
    })
}

fn length_problem(name: &str) -> Option<String> {
    if name.is_empty() {
        return Some("must not be empty".to_owned());
    }
    let length = name.len();
    (length > MAX_NAME).then(|| format!("has {length} characters; at most {MAX_NAME} are possible"))
}

fn is_label(name: &str) -> bool {
    let edge = |b: u8| b.is_ascii_lowercase() || b.is_ascii_digit();
    framed(name, edge, |b| edge(b) || b == b'-')
}

/// Whether a name is a DNS subdomain: labels with dots between them.
fn is_domain(name: &str) -> bool {
    name.len() <= MAX_DOMAIN
        && name
            .split('.')
            .all(|label| label.len() <= MAX_NAME && is_label(label))
}

fn is_word(text: &str) -> bool {
    let edge = |b: u8| b.is_ascii_alphanumeric();
    text.is_empty()
        || (text.len() <= MAX_NAME && framed(text, edge, |b| edge(b) || matches!(b, b'-' | b'_' | b'.')))
}

fn framed(text: &str, edge: impl Fn(u8) -> bool, inner: impl Fn(u8) -> bool) -> bool {
    let bytes = text.as_bytes();
    bytes.first().is_some_and(|b| edge(*b))
        && bytes.last().is_some_and(|b| edge(*b))
        && bytes.iter().all(|b| inner(*b))
}
