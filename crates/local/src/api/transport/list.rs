//! Lists, with selectors and pages. All pages are of one version.

use http::StatusCode;

use super::Answer;
use super::encode::{self, Form};
use super::query::Query;
use crate::api::error::StatusError;
use crate::api::kinds::Kind;
use crate::api::selector::Selector;
use crate::api::semantics::Target;
use crate::api::status;

pub(super) fn selector(kind: &Kind, query: &Query) -> Result<Selector, StatusError> {
    let known = |name: &str| {
        matches!(name, "metadata.name" | "metadata.namespace") || kind.rules.selectable().contains(&name)
    };
    Selector::parse(
        query.label_selector.as_deref(),
        query.field_selector.as_deref(),
        known,
    )
}

pub(super) fn list(target: &Target<'_>, query: &Query, form: Form) -> Result<Answer, StatusError> {
    let (kind, store) = (target.kind, &target.shared.store);
    let selector = selector(kind, query)?;
    let (at, after) = match &query.more {
        Some(token) => {
            let (version, key) = read_token(token)?;
            (Some(version), Some(key))
        }
        None => (query.version()?.filter(|_| query.exact), None),
    };
    let current = store.version();
    let asked = at.or(query.version()?).unwrap_or(0);
    if asked > current {
        return Err(status::version_too_large(asked, current));
    }
    let page = store.list(target.kind.table, target.namespace, after, at).map_err(|_| match after {
        Some(_) => status::expired(
            "The provided continue parameter is too old to display a consistent list result: list again without it",
        ),
        None => status::expired(format!("The resourceVersion for the provided list is too old: {asked}")),
    })?;
    let mut selected = page
        .objects
        .iter()
        .filter(|object| selector.selects(&object.head))
        .peekable();
    let custom = target.shared.is_custom(kind);
    let mut items = Vec::with_capacity(4096);
    let mut latest = None;
    let most = query.limit.unwrap_or(usize::MAX);
    let mut count = 0;
    while count < most {
        let Some(object) = selected.next() else { break };
        if count > 0 {
            items.push(b',');
        }
        encode::write_item(&mut items, kind, object, form, custom);
        latest = Some(object);
        count += 1;
    }
    let more = match (selected.peek(), latest) {
        (Some(_), Some(last)) => {
            let token = serde_json::Value::from(format!("{}/{}", page.version, last.head.key()));
            // With a selector, the number of remaining items is unknown.
            let left = if selector.is_empty() {
                format!(",\"remainingItemCount\":{}", selected.count())
            } else {
                String::new()
            };
            format!(",\"continue\":{token}{left}")
        }
        // For custom kinds, servers always write this field.
        _ if custom && form == Form::Whole => ",\"continue\":\"\"".to_owned(),
        _ => String::new(),
    };
    let (name, api_version) = match form {
        Form::Whole => (format!("{}List", kind.kind), &*kind.api_version),
        Form::Metadata => ("PartialObjectMetadataList".to_owned(), "meta.k8s.io/v1"),
    };
    let head = format!(
        "{{\"kind\":\"{name}\",\"apiVersion\":\"{api_version}\",\"metadata\":{{\"resourceVersion\":\"{}\"{more}}},\"items\":[",
        page.version
    );
    let body = [head.as_bytes(), &items, b"]}"].concat();
    Ok(encode::json(StatusCode::OK, body))
}

/// A continue token has the version of the list and the next key.
fn read_token(token: &str) -> Result<(u64, &str), StatusError> {
    let parts = token.split_once('/');
    let parts = parts.and_then(|(version, key)| Some((version.parse().ok()?, key)));
    parts.ok_or_else(|| status::bad_request("continue key is not valid: list again without it"))
}
