use std::borrow::Cow;
use std::sync::Arc;

use percent_encoding::percent_decode_str;

use crate::api::error::StatusError;
use crate::api::kinds::{Kind, Kinds};
use crate::api::status;

pub(super) struct Route<'a> {
    pub(super) kind: Arc<Kind>,
    /// Empty if the path has none.
    pub(super) namespace: &'a str,
    pub(super) name: Option<&'a str>,
    pub(super) subresource: Option<&'a str>,
}

/// The percent-decoded path.
pub(super) fn decoded(path: &str) -> Cow<'_, str> {
    percent_decode_str(path).decode_utf8_lossy()
}

impl<'a> Route<'a> {
    /// `/api/v1/...` or `/apis/<group>/<version>/...`, then
    /// `[namespaces/<namespace>/]<plural>[/<name>[/<sub>]]`.
    pub(super) fn read(kinds: &Kinds, path: &'a str) -> Result<Self, StatusError> {
        Self::find(kinds, path).ok_or_else(status::unknown_path)
    }

    fn find(kinds: &Kinds, path: &'a str) -> Option<Self> {
        let (api_version, rest) = split(path)?;
        let mut parts = rest.split('/').filter(|part| !part.is_empty());
        let [first, second, third, fourth, fifth] = std::array::from_fn(|_| parts.next());
        if parts.next().is_some() {
            return None;
        }
        // `namespaces/<name>/status` is a subresource of the namespace.
        let scoped = first == Some("namespaces") && !matches!(third, None | Some("status" | "finalize"));
        let (namespace, plural, name, subresource) = if scoped {
            (second?, third?, fourth, fifth)
        } else if fourth.is_some() {
            return None;
        } else {
            ("", first?, second, third)
        };
        let kind = kinds.get(api_version, plural)?;
        // The path of a cluster-scoped kind has no namespace, that of a namespaced object must have
        // one.
        if kind.namespaced == namespace.is_empty() && (name.is_some() || !namespace.is_empty()) {
            return None;
        }
        Some(Self {
            kind,
            namespace,
            name,
            subresource,
        })
    }
}

fn split(path: &str) -> Option<(&str, &str)> {
    if let Some(rest) = path.strip_prefix("/api/") {
        let end = rest.find('/')?;
        return Some((rest.get(..end)?, rest.get(end..)?));
    }
    let rest = path.strip_prefix("/apis/")?;
    let group = rest.find('/')?;
    let version = rest.get(group + 1..)?.find('/')? + group + 1;
    Some((rest.get(..version)?, rest.get(version..)?))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::api::store::Store;

    #[rstest::rstest]
    #[case("/api/v1/pods", Some(("pods", "", None, None)))]
    #[case("/api/v1/namespaces/a/pods", Some(("pods", "a", None, None)))]
    #[case("/api/v1/namespaces/a/pods/b", Some(("pods", "a", Some("b"), None)))]
    #[case("/api/v1/namespaces/a/pods/b/status", Some(("pods", "a", Some("b"), Some("status"))))]
    #[case("/api/v1/namespaces/a", Some(("namespaces", "", Some("a"), None)))]
    #[case("/api/v1/namespaces/a/status", Some(("namespaces", "", Some("a"), Some("status"))))]
    #[case("/api/v1/nodes/n", Some(("nodes", "", Some("n"), None)))]
    #[case("/apis/coordination.k8s.io/v1/namespaces/a/leases/l", Some(("leases", "a", Some("l"), None)))]
    #[case("/api/v1/pods/b", None)]
    #[case("/api/v1/namespaces/a/nodes", None)]
    #[case("/api/v1/namespaces/a/pods/b/status/x", None)]
    #[case("/api/v1/nothing", None)]
    #[case("/api/v2/pods", None)]
    #[case("/other", None)]
    fn paths_lead_to_objects(
        #[case] path: &str,
        #[case] expected: Option<(&str, &str, Option<&str>, Option<&str>)>,
    ) {
        let kinds = Kinds::default();
        crate::api::built_in::serve(&kinds, &Store::new(1));
        let route = Route::find(&kinds, path);
        let found = route.as_ref().map(|route| {
            (
                &*route.kind.plural,
                route.namespace,
                route.name,
                route.subresource,
            )
        });
        assert_eq!(found, expected);
    }
}
